package robots

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Errors of Parse: the text is not a robots.txt. It must not replace one that is
// known.
var (
	ErrEmpty  = errors.New("it is empty; the lines \"User-agent: *\" and \"Disallow:\" allow everything")
	ErrHTML   = errors.New("it is an HTML or XML page")
	ErrBinary = errors.New("it is not text")
	ErrUTF16  = errors.New("it is UTF-16; save it as UTF-8")
	ErrOther  = errors.New("no line of it belongs in a robots.txt")
)

// Parse reads a robots.txt. name returns the name of the bot that a product token
// names, "" if there is none; nil means that no names are known. The table of bots
// provides it.
//
// A user-agent line after a Crawl-delay begins another group, as after a rule. RFC
// 9309 knows no Crawl-delay, and some crawlers read on: "User-agent: bingbot",
// "Crawl-delay: 5", "User-agent: GPTBot", "Disallow: /" would lock both out. Sites
// that write this, and there are many, mean GPTBot.
//
// Parse reads the first MaxBytes of body. A line that it does not understand is a fault,
// and changes nothing. An error says that body is something else, such as an HTML
// page.
func Parse(body []byte, name func(token string) string) (*File, error) {
	if err := check(body); err != nil {
		return nil, err
	}
	body = bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF"))
	p := parser{file: &File{tokens: map[string][]token{}}, byToken: map[string]int{}}
	if len(body) > MaxBytes {
		body, p.file.cut = body[:MaxBytes], true
		if i := bytes.LastIndexAny(body, "\r\n"); i >= 0 {
			body = body[:i]
		}
	}
	for len(body) > 0 {
		p.line++
		end := bytes.IndexAny(body, "\r\n")
		if end < 0 {
			end = len(body)
		}
		p.readLine(body[:end])
		if end+1 < len(body) && body[end] == '\r' && body[end+1] == '\n' {
			end++
		}
		body = body[min(end+1, len(body)):]
	}
	if p.understood == 0 && p.unknown > 0 {
		return nil, ErrOther
	}
	if p.file.cut {
		p.fault(p.line, "the file is longer than %d KiB: crawlers and fairshare ignore the rest", MaxBytes>>10)
	}
	p.finish(name)
	return p.file, nil
}

// check returns an error if body is something else than a robots.txt.
func check(body []byte) error {
	start := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF")), " \t\r\n")
	switch {
	case bytes.HasPrefix(body, []byte("\xFF\xFE")) || bytes.HasPrefix(body, []byte("\xFE\xFF")):
		return ErrUTF16
	case len(start) == 0:
		return ErrEmpty
	case start[0] == '<':
		return ErrHTML
	case bytes.IndexByte(body[:min(len(body), MaxBytes)], 0) >= 0:
		return ErrBinary
	}
	odd := 0
	sample := start[:min(len(start), 4096)]
	for _, c := range sample {
		if c < ' ' && c != '\t' && c != '\r' && c != '\n' && c != '\f' {
			odd++
		}
	}
	if odd*20 > len(sample) {
		return ErrBinary
	}
	return nil
}

type parser struct {
	file       *File
	line       int
	open       []int // the groups that lines belong to
	closed     bool  // a rule was read: the next user-agent line begins other groups
	byToken    map[string]int
	understood int // lines with a known key
	unknown    int
	rules      int // of all groups, see maxRules
}

func (p *parser) fault(line int, format string, args ...any) {
	if len(p.file.Faults) < maxNotes {
		p.file.Faults = append(p.file.Faults, Note{line, fmt.Sprintf(format, args...)})
	}
}

// keys are the keys that crawlers understand, with common misspellings. They are those
// that Google's parser accepts, and keys that others document.
var keys = map[string]string{
	"user-agent": "user-agent", "useragent": "user-agent", "user agent": "user-agent",
	"allow":    "allow",
	"disallow": "disallow", "dissallow": "disallow", "dissalow": "disallow", "disalow": "disallow",
	"diasllow": "disallow", "disallaw": "disallow",
	"crawl-delay": "crawl-delay", "crawldelay": "crawl-delay", "crawl delay": "crawl-delay",
	"request-rate": "request-rate",
	"sitemap":      "sitemap", "site-map": "sitemap",
	"content-signal": "content-signal", "content-usage": "content-usage",
	"license": "license",
	"host":    "other", "clean-param": "other", "noindex": "other", "visit-time": "other", "cache-delay": "other",
	"comment": "other", "noarchive": "other", "nofollow": "other", "nosnippet": "other", "sitemap-index": "other",
	"disallowaitraining": "content-usage", "ai-training": "content-usage",
}

func (p *parser) readLine(raw []byte) {
	long := len(raw) > maxLine
	if long {
		raw = raw[:maxLine]
	}
	text, _, _ := strings.Cut(string(raw), "#")
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if !utf8.Valid(raw) { // another encoding: its bytes are what servers get
		before, _, _ := bytes.Cut(raw, []byte("#"))
		text = strings.TrimSpace(string(before))
	}
	if text == "" {
		if !bytes.ContainsRune(raw, '#') && len(bytes.TrimSpace(raw)) == 0 {
			return
		}
		p.understood++ // a comment
		return
	}
	name, value, found := strings.Cut(text, ":")
	if !found { // as Google's parser: two words
		if fields := strings.Fields(text); len(fields) == 2 {
			name, value = fields[0], fields[1]
		}
	}
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	key := keys[strings.ToLower(name)]
	if key == "" {
		p.unknown++
		p.fault(p.line, "%s is not a key that crawlers know: the line has no effect", quote(name))
		return
	}
	p.understood++
	if long {
		p.fault(p.line, "the line is longer than %d KiB: the rest of it is ignored", maxLine>>10)
	}
	rule := Rule{p.line, strings.TrimSpace(name + ": " + value)}
	switch key {
	case "user-agent":
		p.userAgent(value)
	case "allow", "disallow":
		p.path(rule, value, key == "allow")
	case "crawl-delay":
		delay, err := crawlDelay(value)
		p.delay(rule, delay, err)
	case "request-rate":
		delay, err := requestRate(value)
		p.delay(rule, delay, err)
	case "sitemap":
		if len(p.file.Sitemaps) < maxNotes {
			p.file.Sitemaps = append(p.file.Sitemaps, value)
		}
	case "content-signal", "content-usage", "license":
		p.statement(rule, key)
	}
}

func (p *parser) userAgent(value string) {
	if p.closed {
		p.open, p.closed = nil, false
	}
	text := tokenOf(value)
	switch word := strings.ToLower(text); {
	case text == "":
		p.fault(p.line, "User-agent has no value: the rules below it hold for nobody")
		p.open = append(p.open, -1)
		return
	case slices.Contains(browserWords, word):
		p.fault(p.line, "User-agent: %s is a word of browsers and names no bot: the rules below it hold for nobody",
			quote(value))
		p.open = append(p.open, -1)
		return
	default:
		i, known := p.byToken[word]
		if !known {
			i = len(p.file.groups)
			p.byToken[word] = i
			p.file.groups = append(p.file.groups, &Group{Token: text, Line: p.line})
		}
		if !slices.Contains(p.open, i) {
			p.open = append(p.open, i)
		}
	}
}

// tokenOf returns the product token of a user-agent line: the value without a version.
func tokenOf(value string) string {
	if value == "*" || strings.HasPrefix(value, "*") && strings.TrimLeft(value[1:], " \t*") == "" {
		return "*"
	}
	value, _, _ = strings.Cut(value, "/")
	value = strings.Join(strings.Fields(value), " ")
	if i := strings.LastIndexByte(value, ' '); i > 0 && strings.Trim(value[i+1:], "0123456789.") == "" {
		value = value[:i]
	}
	if len(value) > 64 {
		return ""
	}
	return value
}

func (p *parser) path(rule Rule, value string, allow bool) {
	p.closed = true
	if p.open == nil {
		p.fault(p.line, "%s stands above the first User-agent line: it has no effect", quote(rule.Text))
		return
	}
	switch {
	case value == "":
		return // matches nothing
	case value[0] != '/' && value[0] != '*':
		hint := "a path begins with /"
		if strings.Contains(value, "://") {
			hint = "it needs the path, not the whole address"
		}
		p.fault(p.line, "%s matches nothing: %s", quote(rule.Text), hint)
		return
	}
	if !p.hasRoom() {
		return
	}
	pattern := newPattern(value, rule, allow)
	for _, i := range p.open {
		if i >= 0 {
			g := p.file.groups[i]
			g.rules = append(g.rules, pattern)
		}
	}
}

// hasRoom counts a line for each group that it belongs to. It reports whether maxRules
// is enough for them.
func (p *parser) hasRoom() bool {
	if p.rules > maxRules {
		return false
	}
	if p.rules += len(p.open); p.rules > maxRules {
		p.fault(p.line, "the groups have more than %d rules in all: the rules from here on are ignored", maxRules)
		return false
	}
	return true
}

func (p *parser) delay(rule Rule, delay time.Duration, err error) {
	switch {
	case err != nil:
		p.fault(p.line, "%s: %v", quote(rule.Text), err)
	case p.open == nil:
		p.fault(p.line, "%s stands above the first User-agent line: it has no effect", quote(rule.Text))
	case delay > MaxDelay:
		p.fault(p.line, "%s is more than a day: it counts as one day", quote(rule.Text))
		delay = MaxDelay
	}
	if err != nil {
		return
	}
	p.closed = true // see Parse
	if !p.hasRoom() {
		return
	}
	for _, i := range p.open {
		if i >= 0 && delay > p.file.groups[i].Delay {
			p.file.groups[i].Delay, p.file.groups[i].DelayRule = delay, rule
		}
	}
}

// crawlDelay reads seconds, such as "10" or "0.5".
func crawlDelay(value string) (time.Duration, error) {
	value = strings.TrimSpace(strings.TrimSuffix(strings.ToLower(value), "s"))
	seconds, err := strconv.ParseFloat(strings.Replace(value, ",", ".", 1), 64)
	if err != nil || seconds < 0 || seconds != seconds {
		return 0, errors.New("the number of seconds between two requests is needed, such as 10")
	}
	return time.Duration(min(seconds, 1e9) * float64(time.Second)), nil
}

// requestRate reads "1/10", "1/10s", "500/1h" or "30/1m" as the time between two
// requests. A rate for a part of the day is an error.
func requestRate(value string) (time.Duration, error) {
	fields := strings.Fields(value)
	if len(fields) > 1 {
		return 0, errors.New("a rate for a part of the day is not enforced")
	}
	requests, per, found := strings.Cut(strings.ToLower(value), "/")
	n, err := strconv.ParseUint(strings.TrimSpace(requests), 10, 31)
	unit := time.Second
	if per != "" {
		switch per[len(per)-1] {
		case 's':
			per = per[:len(per)-1]
		case 'm':
			per, unit = per[:len(per)-1], time.Minute
		case 'h':
			per, unit = per[:len(per)-1], time.Hour
		}
	}
	if per == "" {
		per = "1" // "1/s"
	}
	t, err2 := strconv.ParseUint(per, 10, 31)
	if !found || err != nil || err2 != nil || n == 0 {
		return 0, errors.New("a number of requests and a time are needed, such as 1/10s")
	}
	return time.Duration(min(float64(t)*float64(unit)/float64(n), 1e18)), nil
}

// statement keeps a line that says what may be done with pages.
func (p *parser) statement(rule Rule, key string) {
	if len(p.file.Statements) == maxNotes {
		return
	}
	text := rule.Text
	if key != "license" && p.open != nil {
		var tokens []string
		for _, i := range p.open {
			if i >= 0 {
				tokens = append(tokens, p.file.groups[i].Token)
			}
		}
		if n := len(tokens); n > 3 {
			tokens = append(tokens[:3], fmt.Sprintf("%d more", n-3))
		}
		if tokens != nil {
			text += " (for " + strings.Join(tokens, ", ") + ")"
		}
	}
	p.file.Statements = append(p.file.Statements, Note{rule.Line, text})
}

// finish makes the file ready for questions.
func (p *parser) finish(name func(string) string) {
	f := p.file
	f.named = map[string][]int{}
	for i, g := range f.groups {
		g.paths = newPathRules(g.rules)
		lower := strings.ToLower(g.Token)
		if g.Token == "*" {
			f.star = g
			continue
		}
		if slices.Contains(withoutAgent, lower) && g.Rules() > 0 {
			if len(f.Statements) < maxNotes {
				f.Statements = append(f.Statements, Note{g.Line, "User-agent: " + g.Token +
					" says what may be done with pages that other bots fetch: no request has this name"})
			}
		}
		first, _, _ := strings.Cut(lower, " ")
		f.tokens[first] = append(f.tokens[first], token{text: lower, group: i})
		if first != lower && !slices.Contains(browserWords, first) {
			f.tokens[first] = append(f.tokens[first], token{text: first, group: i, first: true})
		}
		if name != nil {
			if bot := name(g.Token); bot != "" {
				f.named[bot] = append(f.named[bot], i)
			}
		}
	}
	if len(f.tokens) > 0 {
		f.seed, f.cache = maphash.MakeSeed(), make([]atomic.Uint64, cacheSize)
	}
}

// quote returns a text of the file in quotes, at most 80 bytes.
func quote(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "..."
	}
	return strconv.Quote(s)
}
