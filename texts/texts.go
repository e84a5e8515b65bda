// Package texts has the texts for people whose requests are refused or have to wait, in
// several languages. Start with [New]; packages httpguard and waitingroom make the pages.
package texts

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Texts are all texts in one language. A text that is empty is shown in English. They are plain
// text, not HTML.
type Texts struct {
	// Titles of refusals and the sentences that say why.
	Requests         string
	RequestsReason   string
	CeilingReason    string // the limit was spent by all unknown clients of a proxy or an office together
	InProgressReason string // the client's own requests in progress
	BanReason        string // a ban after refused requests
	TrapReason       string // a ban after blocked requests
	Cost             string // a limit of CPU, time, bytes or cost
	CostReason       string
	Block            string
	BlockReason      string
	OperatorBan      string
	OperatorReason   string // a ban without an end
	OperatorForNow   string // a ban with an end
	Busy             string // also of the waiting room
	BusyReason       string
	Failed           string // nothing can be counted
	FailedReason     string

	PleaseWait string // with {wait}
	Then       string // after PleaseWait: what to do then
	IfMistaken string // what to do if the refusal seems to be wrong; shown if there is a contact

	// Labels.
	Rule      string
	Contact   string
	Reference string

	// Durations, with {n}.
	Second  string // one second; without {n}
	Seconds string // 0, or 2 to 119
	Minutes string // 2 to 120
	Hours   string // 3 to 48
	Days    string // from 3

	// Texts of the waiting room only.
	Wait       string // with {wait}
	Reload     string // the page reloads itself
	KeepsPlace string // the visitor keeps its place
	Retry      string // the link to the same page
	Step       string // what the button is for
	Button     string // the label of the button
	Work       string // shown while the browser computes
}

// A Text is one of the Texts by its key in policy files.
type Text struct {
	Key  string
	Text *string

	// Hole is the placeholder that the text must contain once; "" means none.
	Hole string
	// Room means that only the waiting room shows the text.
	Room bool
}

// All returns the texts with their keys.
func (t *Texts) All() []Text {
	return []Text{
		{Key: "requests", Text: &t.Requests},
		{Key: "requests_reason", Text: &t.RequestsReason},
		{Key: "ceiling_reason", Text: &t.CeilingReason},
		{Key: "in_progress_reason", Text: &t.InProgressReason},
		{Key: "ban_reason", Text: &t.BanReason},
		{Key: "trap_reason", Text: &t.TrapReason},
		{Key: "cost", Text: &t.Cost},
		{Key: "cost_reason", Text: &t.CostReason},
		{Key: "block", Text: &t.Block},
		{Key: "block_reason", Text: &t.BlockReason},
		{Key: "operator_ban", Text: &t.OperatorBan},
		{Key: "operator_ban_reason", Text: &t.OperatorReason},
		{Key: "operator_ban_for_now", Text: &t.OperatorForNow},
		{Key: "busy", Text: &t.Busy},
		{Key: "busy_reason", Text: &t.BusyReason},
		{Key: "failed", Text: &t.Failed},
		{Key: "failed_reason", Text: &t.FailedReason},
		{Key: "please_wait", Text: &t.PleaseWait, Hole: "{wait}"},
		{Key: "then", Text: &t.Then},
		{Key: "ask", Text: &t.IfMistaken},
		{Key: "rule", Text: &t.Rule},
		{Key: "contact", Text: &t.Contact},
		{Key: "reference", Text: &t.Reference},
		{Key: "second", Text: &t.Second},
		{Key: "seconds", Text: &t.Seconds, Hole: "{n}"},
		{Key: "minutes", Text: &t.Minutes, Hole: "{n}"},
		{Key: "hours", Text: &t.Hours, Hole: "{n}"},
		{Key: "days", Text: &t.Days, Hole: "{n}"},
		{Key: "wait", Text: &t.Wait, Hole: "{wait}", Room: true},
		{Key: "reload", Text: &t.Reload, Room: true},
		{Key: "place", Text: &t.KeepsPlace, Room: true},
		{Key: "retry", Text: &t.Retry, Room: true},
		{Key: "step", Text: &t.Step, Room: true},
		{Key: "button", Text: &t.Button, Room: true},
		{Key: "work", Text: &t.Work, Room: true},
	}
}

// MaxText is the most bytes that a text may have.
const MaxText = 1000

// MaxLanguages is the most languages that [New] takes.
const MaxLanguages = 64

var braces = regexp.MustCompile(`\{[^{}]*\}?|\}`)

// CheckText returns why the text of a key cannot be used.
func CheckText(key, text string) error {
	hole := ""
	for _, t := range new(Texts).All() {
		if t.Key == key {
			hole = t.Hole
		}
	}
	switch {
	case text == "":
		return errors.New("the text is empty")
	case len(text) > MaxText:
		return fmt.Errorf("the text is longer than %d bytes", MaxText)
	case !utf8.ValidString(text):
		return errors.New("the text is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control characters and line ends are not allowed")
	case hole != "" && strings.Count(text, hole) != 1:
		return fmt.Errorf("the text must contain %s once", hole)
	}
	for _, found := range braces.FindAllString(text, -1) {
		switch {
		case found == hole:
		case hole == "":
			return fmt.Errorf("%s: this text has no placeholders, and no braces", found)
		default:
			return fmt.Errorf("%s: the only placeholder of this text is %s", found, hole)
		}
	}
	return nil
}

// A Language is a language of a [Set].
type Language struct {
	Tag    string   // BCP 47
	Dir    string   // ltr or rtl, for the attribute dir
	Header []string // the value of Content-Language, which must not be changed
	Texts
}

// A Set has all texts in all languages. It is safe for concurrent use.
type Set struct {
	languages []Language // the first is English
}

// Languages returns all languages, English first. The result must not be changed.
func (s *Set) Languages() []Language { return s.languages }

// BuiltIn returns the built-in languages.
var BuiltIn = sync.OnceValue(func() *Set {
	s, err := New(nil)
	if err != nil {
		panic(err) // no language, no error
	}
	return s
})

// New returns the built-in texts with those of own, by language tag (BCP 47), in place of them.
// Texts of own that are empty are the built-in ones of the language, or else English. It returns an
// error if a text or a tag cannot be used.
func New(own map[string]Texts) (*Set, error) {
	if len(own) > MaxLanguages {
		return nil, fmt.Errorf("texts: more than %d languages", MaxLanguages)
	}
	all, tags := maps.Clone(builtIn), map[string]string{}
	for _, tag := range slices.Sorted(maps.Keys(own)) {
		lower := strings.ToLower(tag)
		if !CheckLanguage(tag) || tags[lower] != "" {
			return nil, fmt.Errorf("texts: %q is not a language tag, or there twice", tag)
		}
		texts := own[tag]
		for _, t := range texts.All() {
			if *t.Text == "" {
				continue
			}
			if err := CheckText(t.Key, *t.Text); err != nil {
				return nil, fmt.Errorf("texts: %s in %s: %w", t.Key, tag, err)
			}
		}
		base := all[lower]
		texts.fill(&base)
		all[lower], tags[lower] = texts, tag
	}
	english := all[English]
	delete(all, English)
	s := &Set{[]Language{newLanguage(English, english)}}
	for _, lower := range slices.Sorted(maps.Keys(all)) {
		texts, tag := all[lower], tags[lower]
		texts.fill(&english)
		if tag == "" {
			tag = lower
		}
		s.languages = append(s.languages, newLanguage(tag, texts))
	}
	return s, nil
}

func newLanguage(tag string, t Texts) Language {
	return Language{Tag: tag, Dir: direction(tag), Header: []string{tag}, Texts: t}
}

// fill replaces texts that are empty.
func (t *Texts) fill(by *Texts) {
	others := by.All()
	for i, own := range t.All() {
		if *own.Text == "" {
			*own.Text = *others[i].Text
		}
	}
}

// Escaped returns all texts as escape returns them. Placeholders must stay as they are.
func (t Texts) Escaped(escape func(string) string) Texts {
	for _, text := range t.All() {
		*text.Text = escape(*text.Text)
	}
	return t
}

// AppendDuration appends a duration of whole seconds in seconds, minutes, hours or days, rounded up.
func (t *Texts) AppendDuration(b []byte, sec int64) []byte {
	n, text := sec, t.Seconds
	switch {
	case sec == 1:
		return append(b, t.Second...)
	case sec > 48*3600:
		n, text = (sec+86399)/86400, t.Days
	case sec > 120*60:
		n, text = (sec+3599)/3600, t.Hours
	case sec >= 120:
		n, text = (sec+59)/60, t.Minutes
	}
	before, after, _ := strings.Cut(text, "{n}")
	b = append(b, before...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, after...)
}
