// Command gen builds the built-in table of bots from public lists.
//
// It reads crawler-user-agents-patterns.json (crawler-user-agents),
// well-known-bots.json (arcjet/well-known-bots) and
// ai-robots-txt-robots.json (ai-robots-txt/ai.robots.txt) from the folder that
// -lists names. It also reads additions.json next to this file: our own bots, and
// corrections of the lists. A bot of the additions replaces every pattern of the
// lists that one of its own patterns covers.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type source struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	URL     string `json:"url,omitempty"`
	Licence string `json:"licence,omitempty"`
}

// sources are the versions of the lists that the table was last built from.
var sources = []source{
	{"crawler-user-agents", "1.60.0", "https://github.com/monperrus/crawler-user-agents", "MIT"},
	{"well-known-bots", "0637e27abef5", "https://github.com/arcjet/well-known-bots", "MIT"},
	{"ai.robots.txt", "738c80df2169", "https://github.com/ai-robots-txt/ai.robots.txt", "MIT"},
}

const version = "2026-11-20"

type bot struct {
	Name          string   `json:"name"`
	Categories    []string `json:"categories"`
	Operator      string   `json:"operator,omitempty"`
	Purpose       string   `json:"purpose,omitempty"`
	URL           string   `json:"url,omitempty"`
	UserTriggered bool     `json:"steered,omitempty"`
	General       bool     `json:"general,omitempty"`
	Patterns      []string `json:"patterns"`
	Weak          []string `json:"weak,omitempty"`
	Ranges        []string `json:"ranges,omitempty"`
	Domains       []string `json:"domains,omitempty"`
	Networks      []string `json:"networks,omitempty"`
	Signers       []string `json:"signature_agents,omitempty"`
}

// An ownBot is one of our bots. With AfterLists it gets only the patterns that no
// bot of the lists has: it is a group of bots without names of their own.
type ownBot struct {
	bot
	AfterLists bool `json:"after_lists"`
}

type additions struct {
	Bots       []ownBot            `json:"bots"`
	People     []string            `json:"people"`
	Harmless   []string            `json:"innocent"`
	Replace    map[string][]string `json:"replace"`    // a list's pattern: our patterns instead, or none
	Names      map[string]string   `json:"names"`      // the derived name: our name instead
	Operators  map[string]string   `json:"operators"`  // the name of a bot: our operator instead
	Purposes   map[string]string   `json:"purposes"`   // the name of an AI bot: our purpose instead
	Categories map[string][]string `json:"categories"` // the name of a bot: our categories instead
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	lists := flag.String("lists", "", "folder with the lists")
	out := flag.String("o", "table.json", "the table")
	own := flag.String("additions", "gen/additions.json", "our own bots")
	flag.Parse()
	if *lists == "" {
		log.Fatal("-lists (or $BOT_LISTS under go generate) names the folder with the lists")
	}
	var add additions
	if err := readJSON(*own, &add); err != nil {
		log.Fatal(err)
	}
	entries, err := readLists(*lists)
	if err != nil {
		log.Fatal(err)
	}
	m := newMerger(add)
	for _, e := range entries {
		if err := m.merge(e); err != nil {
			log.Fatal(err)
		}
	}
	m.addGroups()
	m.addFacts()
	if err := m.unused(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, m.table(), 0o644); err != nil {
		log.Fatal(err)
	}
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// An entry is one bot of one list.
type entry struct {
	patterns   []string // regexps
	name       string   // in the list; "" if it has none
	categories []string
	operator   string
	url        string
	domains    []string
}

func readLists(folder string) ([]entry, error) {
	var crawlers []struct {
		Pattern, URL, Description string
		Tags                      []string
	}
	var known []struct {
		ID           string
		Categories   []string
		URL          string
		Pattern      struct{ Accepted []string }
		Verification []struct {
			Type  string
			Masks []string
		}
	}
	if err := readJSON(filepath.Join(folder, "crawler-user-agents-patterns.json"), &crawlers); err != nil {
		return nil, err
	}
	if err := readJSON(filepath.Join(folder, "well-known-bots.json"), &known); err != nil {
		return nil, err
	}
	robots, err := readRobots(filepath.Join(folder, "ai-robots-txt-robots.json"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, c := range crawlers {
		entries = append(entries, entry{
			patterns: []string{c.Pattern}, url: c.URL, categories: crawlerCategories(c.Tags,
				c.Pattern+" "+c.Description),
		})
	}
	for _, k := range known {
		e := entry{patterns: k.Pattern.Accepted, url: k.URL, categories: knownCategories(k.Categories)}
		for _, v := range k.Verification {
			for _, mask := range v.Masks {
				if d := maskDomain(mask); d != "" && !slices.Contains(e.domains, d) {
					e.domains = append(e.domains, d)
				}
			}
		}
		entries = append(entries, e)
	}
	return append(entries, robots...), nil
}

// maskDomain returns the fixed end of a mask such as
// crawl-***-***.googlebot.com or @.yandex.ru, by whole labels.
func maskDomain(mask string) string {
	if i := strings.LastIndexAny(mask, "*@"); i >= 0 {
		_, mask, _ = strings.Cut(mask[i:], ".")
	}
	if strings.HasSuffix(mask, "googleusercontent.com") || strings.HasSuffix(mask, "amazonaws.com") {
		return "" // anybody can rent an address there
	}
	return mask
}

// table returns the finished table, one bot per line.
func (m *merger) table() []byte {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	list := func(name string, n int, item func(i int) any, last bool) {
		fmt.Fprintf(w, "%q: [\n", name)
		for i := range n {
			line, err := marshal(item(i))
			if err != nil {
				log.Fatal(err)
			}
			w.Write(line)
			if i < n-1 {
				w.WriteByte(',')
			}
			w.WriteByte('\n')
		}
		w.WriteString("]")
		if !last {
			w.WriteString(",")
		}
		w.WriteString("\n")
	}
	fmt.Fprintf(w, "{\n\"version\": %q,\n", version)
	list("sources", len(sources), func(i int) any { return sources[i] }, false)
	list("bots", len(m.bots), func(i int) any { return m.bots[i] }, false)
	list("people", len(m.add.People), func(i int) any { return m.add.People[i] }, false)
	list("innocent", len(m.add.Harmless), func(i int) any { return m.add.Harmless[i] }, true)
	w.WriteString("}\n")
	w.Flush()
	return b.Bytes()
}

// marshal leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// unused reports the corrections that no longer match anything in the lists.
func (m *merger) unused() error {
	var unmatched []string
	for _, p := range slices.Sorted(maps.Keys(m.add.Replace)) {
		if !m.replaced[p] {
			unmatched = append(unmatched, fmt.Sprintf("replace %q", p))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m.add.Names)) {
		if !m.renamed[n] {
			unmatched = append(unmatched, fmt.Sprintf("names %q", n))
		}
	}
	missing := func(list string, names iter.Seq[string]) {
		for _, n := range slices.Sorted(names) {
			if m.byName[n] == 0 {
				unmatched = append(unmatched, fmt.Sprintf("%s %q", list, n))
			}
		}
	}
	missing("categories", maps.Keys(m.add.Categories))
	missing("operators", maps.Keys(m.add.Operators))
	missing("purposes", maps.Keys(m.add.Purposes))
	if unmatched != nil {
		return fmt.Errorf("additions that match nothing in the lists:\n\t%s", strings.Join(unmatched, "\n\t"))
	}
	return nil
}
