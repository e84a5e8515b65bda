package bots

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"fairshare/botauth"
)

// A Table is a list of bots and the patterns of their user agents. Except for its
// cache it is immutable. It is safe for concurrent use.
type Table struct {
	Version string // from its file
	Sources []Source

	bots             []Bot
	byName           map[string]int
	automaton        *automaton
	cache            cache
	empty, noBrowser int32
	oversized        *Bot
}

// A Source is a list that a table was built from.
type Source struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	URL     string `json:"url,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// Bounds of a table's file.
const (
	maxTableBytes = 8 << 20
	maxBots       = 20_000
	maxList       = 200 // patterns, domains, … of one bot
	maxText       = 400 // bytes of an operator or URL
	maxFaults     = 50  // reported per file
)

// A tableFile is the content of a table's file: a JSON object.
//
//	{
//	  "version": "2026-11-20",
//	  "extends": "built-in",
//	  "bots": [
//	    {"name": "examplebot", "categories": ["monitor"], "patterns": ["<examplebot/"],
//	     "domains": ["crawl.example.org"]}
//	  ]
//	}
//
// The type pattern describes the form of patterns. With "extends": "built-in" the
// file adds to the built-in table, and a bot replaces the one of the same name
// there.
type tableFile struct {
	Version  string
	Extends  string
	Sources  []Source
	Bots     []tableBot
	People   []string // patterns of browsers, phones and their apps
	Harmless []string // patterns inside of which no bot's pattern counts

	peopleLine, harmlessLine int
}

// A tableBot is one bot in a tableFile.
type tableBot struct {
	Name          string   `json:"name"`
	Categories    []string `json:"categories"`
	Operator      string   `json:"operator,omitempty"`
	Purpose       string   `json:"purpose,omitempty"` // of an AI bot; "" means that its categories say it
	URL           string   `json:"url,omitempty"`
	UserTriggered bool     `json:"steered,omitempty"`
	General       bool     `json:"general,omitempty"` // a group of bots: any bot with a name of its own wins over it
	Patterns      []string `json:"patterns"`
	Weak          []string `json:"weak,omitempty"` // patterns that do not count in browsers and apps of phones
	Ranges        []string `json:"ranges,omitempty"`
	Domains       []string `json:"domains,omitempty"`
	Networks      []string `json:"networks,omitempty"`
	Signers       []string `json:"signature_agents,omitempty"`

	line int
}

//go:generate go run ./gen -lists $BOT_LISTS -o table.json

//go:embed table.json
var builtIn []byte

var builtInTable = sync.OnceValue(func() *Table {
	file, err := readTable(builtIn)
	if err != nil {
		panic(fmt.Sprintf("bots: the built-in table: %v", err))
	}
	table, err := file.compile()
	if err != nil {
		panic(fmt.Sprintf("bots: the built-in table: %v", err))
	}
	return table
})

// BuiltIn returns the table that is part of the program. It is built at the first
// call, in some 10 ms.
func BuiltIn() *Table { return builtInTable() }

// LoadTable reads a table from a file. The error joins all errors of the file, up
// to 50, each with the file and the line.
func LoadTable(path string) (*Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTableBytes+1))
	if err != nil {
		return nil, err
	}
	table, err := parseTable(data)
	if err != nil {
		return nil, nameFile(path, err)
	}
	return table, nil
}

func parseTable(data []byte) (*Table, error) {
	if len(data) > maxTableBytes {
		return nil, errors.New("is over 8 MiB")
	}
	file, err := readTable(data)
	if err != nil {
		return nil, err
	}
	switch file.Extends {
	case "":
	case "built-in":
		base, err := readTable(builtIn)
		if err != nil {
			return nil, err
		}
		file = base.extendedBy(file)
	}
	return file.compile()
}

// A lineError is an error on a line of a table's file.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// nameFile puts the name of the file before each error in err.
func nameFile(path string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nameFault(path, err)
	}
	faults := slices.Clone(joined.Unwrap())
	for i, f := range faults {
		faults[i] = nameFault(path, f)
	}
	return errors.Join(faults...)
}

func nameFault(path string, err error) error {
	var at *lineError
	if errors.As(err, &at) {
		return fmt.Errorf("%s:%d: %w", path, at.line, at.err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// readTable reads the JSON. It checks the type of each value; compile checks the
// rest.
func readTable(data []byte) (*tableFile, error) {
	file := &tableFile{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	lineAt := func(offset int64) int { return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n")) }
	fault := func(err error) error {
		offset := d.InputOffset()
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			offset = syntax.Offset
		case errors.As(err, &kind):
			offset = max(offset, kind.Offset)
			err = fmt.Errorf("%q cannot be a %s", kind.Field, kind.Value)
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			offset, err = int64(len(data)), errors.New("ends too early")
		}
		return &lineError{lineAt(offset), errors.New(strings.TrimPrefix(err.Error(), "json: "))}
	}
	expect := func(want json.Delim) error {
		got, err := d.Token()
		if err != nil {
			return fault(err)
		}
		if got != want {
			return fault(fmt.Errorf("expected %q", want))
		}
		return nil
	}

	if err := expect('{'); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	line := 1
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fault(err)
		}
		name, _ := key.(string)
		if seen[name] {
			return nil, fault(fmt.Errorf("duplicate key %q", name))
		}
		seen[name] = true
		switch name {
		case "version":
			err = d.Decode(&file.Version)
		case "extends":
			if err = d.Decode(&file.Extends); err == nil && file.Extends != "" && file.Extends != "built-in" {
				err = fmt.Errorf("extends %q: only \"built-in\" can be extended", file.Extends)
			}
		case "sources":
			err = d.Decode(&file.Sources)
		case "people":
			file.peopleLine = lineAt(d.InputOffset())
			err = d.Decode(&file.People)
		case "innocent":
			file.harmlessLine = lineAt(d.InputOffset())
			err = d.Decode(&file.Harmless)
		case "bots":
			if err := expect('['); err != nil {
				return nil, err
			}
			counted := int64(0) // line is that of data[counted]
			line = 1
			for d.More() {
				if len(file.Bots) == maxBots {
					return nil, fault(fmt.Errorf("over %d bots", maxBots))
				}
				start := d.InputOffset()
				for start < int64(len(data)) && bytes.IndexByte([]byte(" \t\r\n,"), data[start]) >= 0 {
					start++
				}
				line += bytes.Count(data[counted:start], []byte("\n"))
				counted = start
				bot := tableBot{line: line}
				if err := d.Decode(&bot); err != nil {
					return nil, fault(err)
				}
				file.Bots = append(file.Bots, bot)
			}
			err = expect(']')
			if err != nil {
				return nil, err
			}
		default:
			err = fmt.Errorf("unknown key %q", name)
		}
		if err != nil {
			return nil, fault(err)
		}
	}
	if err := expect('}'); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fault(errors.New("unexpected text after the table"))
	}
	return file, nil
}

// extendedBy returns the table with another's bots and signs before its own. A
// bot of the same name is replaced, and a pattern of both belongs to the other, so
// that errors are reported on the lines of the other file.
func (f *tableFile) extendedBy(other *tableFile) *tableFile {
	names, patterns := map[string]bool{}, map[string]bool{}
	for _, b := range other.Bots {
		names[b.Name] = true
		for _, p := range slices.Concat(b.Patterns, b.Weak) {
			patterns[foldASCII(p)] = true
		}
	}
	both := &tableFile{
		Version:  strings.TrimSpace(f.Version + " " + other.Version),
		Sources:  slices.Concat(f.Sources, other.Sources),
		Bots:     slices.Clone(other.Bots),
		People:   withAll(other.People, f.People),
		Harmless: withAll(other.Harmless, f.Harmless),

		peopleLine: other.peopleLine, harmlessLine: other.harmlessLine,
	}
	for _, b := range f.Bots {
		if !names[b.Name] {
			b.Patterns = slices.DeleteFunc(b.Patterns, func(p string) bool { return patterns[p] })
			b.Weak = slices.DeleteFunc(b.Weak, func(p string) bool { return patterns[p] })
			both.Bots = append(both.Bots, b)
		}
	}
	return both
}

// withAll returns list, and the patterns of more that it lacks.
func withAll(list, more []string) []string {
	has := map[string]bool{}
	for _, p := range list {
		has[foldASCII(p)] = true
	}
	return slices.Concat(list, slices.DeleteFunc(slices.Clone(more), func(p string) bool { return has[p] }))
}

// compile checks everything and builds the table, or returns all errors.
func (f *tableFile) compile() (*Table, error) {
	t := &Table{Version: f.Version, Sources: f.Sources, byName: make(map[string]int, len(f.Bots)+3)}
	t.cache.seed = maphash.MakeSeed()
	var faults []error
	fault := func(line int, format string, args ...any) {
		if len(faults) < maxFaults {
			faults = append(faults, &lineError{line, fmt.Errorf(format, args...)})
		}
	}
	var patterns []pattern
	owner := map[string]string{}
	add := func(line int, label, text string, bot int32, rank uint8) bool {
		p, err := parsePattern(text)
		if err != nil {
			fault(line, "%s: pattern %q %w", label, text, err)
			return false
		}
		p.bot, p.rank = bot, rank
		key := p.String()
		if bot < 0 {
			key = label + key // a bot may have the same pattern, and wins
		}
		if other, taken := owner[key]; taken {
			fault(line, "%s: pattern %q already belongs to %s", label, text, other)
			return false
		}
		owner[key] = label
		patterns = append(patterns, p)
		return true
	}
	for _, b := range f.Bots {
		label := fmt.Sprintf("bot %q", b.Name)
		if err := b.check(); err != nil {
			fault(b.line, "%s: %w", label, err)
		}
		if _, taken := t.byName[b.Name]; taken {
			fault(b.line, "duplicate %s", label)
			continue
		}
		t.byName[b.Name] = len(t.bots)
		rank := rankNamed
		switch {
		case b.General:
			rank = rankGeneral
		case len(b.Categories) > 0 && slices.Contains([]string{"library", "headless", "tool"}, b.Categories[0]):
			rank = rankMeans
		}
		for _, text := range b.Patterns {
			add(b.line, label, text, int32(len(t.bots)), rank)
		}
		for _, text := range b.Weak {
			if add(b.line, label, text, int32(len(t.bots)), rank) {
				patterns[len(patterns)-1].weak = true
			}
		}
		t.bots = append(t.bots, b.bot())
	}
	for _, text := range f.People {
		add(f.peopleLine, "people", text, peopleSign, rankNone)
	}
	for _, text := range f.Harmless {
		add(f.harmlessLine, "innocent", text, harmlessSign, rankNone)
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	builtInBot := func(name, category string) int32 {
		if i, found := t.byName[name]; found {
			return int32(i)
		}
		t.byName[name] = len(t.bots)
		t.bots = append(t.bots, Bot{Name: name, Categories: []string{category}})
		return int32(len(t.bots) - 1)
	}
	t.empty, t.noBrowser = builtInBot(emptyName, emptyName), builtInBot(noBrowserName, "other")
	oversized := builtInBot(oversizedName, oversizedName)
	t.oversized = &t.bots[oversized]
	var err error
	t.automaton, err = newAutomaton(patterns)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// unsafeDomains prove nothing: anybody can rent an address with a name there.
var unsafeDomains = []string{"googleusercontent.com", "1e100.net", "amazonaws.com"}

// bot returns the bot of a checked entry. Its purpose is a category of its own.
func (b *tableBot) bot() Bot {
	purpose, list := b.Purpose, b.Categories
	if purpose == "" {
		purpose = purposeOf(list, b.UserTriggered)
	}
	if purpose != "" {
		list = append(slices.Clip(list), "ai-"+purpose)
	}
	return Bot{Name: b.Name, Categories: list, Operator: b.Operator, Purpose: purpose, URL: b.URL,
		UserTriggered: b.UserTriggered, Ranges: b.Ranges, Domains: b.Domains, Networks: b.Networks,
		Signers: b.Signers, operator: OperatorName(b.Operator), general: b.General}
}

func (b *tableBot) check() error {
	switch {
	case !isName(b.Name):
		return errors.New("a name has 1 to 40 characters of a-z, 0-9, \".\", \"-\" and \"_\"")
	case slices.Contains([]string{"known", "verified", "pending", "forged"}, b.Name):
		return errors.New("policies reserve this name")
	case len(b.Categories) == 0:
		return errors.New("has no categories")
	case len(b.Categories) > 5:
		return errors.New("has over 5 categories")
	case isCategory(b.Name) && !slices.Contains(b.Categories, b.Name):
		return errors.New("has the name of a category that it does not belong to")
	case b.Purpose != "" && !slices.Contains(Purposes, b.Purpose):
		return fmt.Errorf("%q is not a purpose: training, search or user", b.Purpose)
	case b.Purpose != "" && !slices.Contains(b.Categories, "ai"):
		return errors.New("has a purpose, but not the category ai")
	case len(b.Operator) > maxText || len(b.URL) > maxText:
		return errors.New("operator or URL is over 400 bytes")
	case len(b.Patterns) > maxList || len(b.Weak) > maxList,
		len(b.Ranges) > maxList || len(b.Domains) > maxList || len(b.Networks) > maxList,
		len(b.Signers) > maxList:
		return errors.New("a list has over 200 entries")
	}
	for _, c := range b.Categories {
		if purpose, found := strings.CutPrefix(c, "ai-"); found && slices.Contains(Purposes, purpose) {
			return fmt.Errorf("%q follows from \"purpose\": %q: write \"ai\" and the purpose", c, purpose)
		}
		if !isCategory(c) {
			return fmt.Errorf("%q is not a category", c)
		}
	}
	for _, n := range slices.Concat(b.Ranges, b.Networks) {
		if !isName(n) {
			return fmt.Errorf("%q is not the name of an address set", n)
		}
	}
	for _, s := range b.Signers {
		if agent, ok := botauth.NormalAgent(s); !ok || agent != s {
			return fmt.Errorf("signature agent %q is not a host in lower case, such as agent.example", s)
		}
	}
	for _, d := range b.Domains {
		if !isDomain(d) {
			return fmt.Errorf("%q is not a domain of at least two labels in lower case", d)
		}
		for _, u := range unsafeDomains {
			if d == u || strings.HasSuffix(d, "."+u) {
				return fmt.Errorf("domain %q proves nothing: anybody can rent an address there", d)
			}
		}
	}
	return nil
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c-'a' >= 26 && c-'0' >= 10 && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 40
}

func isDomain(s string) bool {
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isName(l) || strings.Contains(l, "_") || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
	}
	return len(labels) >= 2 && len(s) <= 253
}
