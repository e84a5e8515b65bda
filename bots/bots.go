// Package bots identifies automated clients. A [Table] recognises the bot that a
// client claims to be, by its user agent. A [Verifier] checks the claim, by the
// client's address. Start with [NewVerifier] and [Verifier.Look].
//
// [BuiltIn] is the table that is part of the program; [LoadTable] reads another
// from a file. [Ranges] are the addresses that operators publish for their bots.
package bots

import (
	"slices"
	"strings"
)

// A Bot is an automated client, or a group of automated clients without names of
// their own. Its slices are shared: do not change them.
type Bot struct {
	Name          string   // in policies: lower case, letters, digits, "." "-" "_", at most 40 bytes
	Categories    []string // names of Categories, the main one first, at least one
	Operator      string   // its company, project or person; "" if unknown
	Purpose       string   // of an AI bot, one of Purposes: what its pages are for; "" for all others
	URL           string   // where its operator describes it; "" if unknown
	UserTriggered bool     // anybody can make it fetch a page: fetchers for a person, previews, translators

	// How a claim is checked. If all are empty, it cannot be.
	Ranges   []string // names of address sets that its operator publishes for it
	Domains  []string // suffixes of its host names, by whole labels
	Networks []string // names of wider sets: all networks of its operator
	Signers  []string // hosts of the agents with whose keys it signs requests, as botauth.NormalAgent returns them

	operator string // see OperatorName
	general  bool   // a kind of bots: any bot with a name of its own wins over it
}

// Names of bots that a table recognises without a pattern.
const (
	emptyName     = "empty"     // no user agent, only blanks, or "-"
	oversizedName = "oversized" // longer than MaxUserAgent
	// without any text of browsers, phones or their apps, or with a product that desktop browsers do not have
	noBrowserName = "no-browser"
)

// MaxUserAgent is the length in bytes of the longest user agent that is read.
// The user agents of browsers have at most about 500.
const MaxUserAgent = 1024

// Main returns the category that describes the bot best.
func (b *Bot) Main() string { return b.Categories[0] }

// A Category is a purpose of bots. Means describes it.
type Category struct{ Name, Means string }

// Categories returns all categories, in the order of the docs.
func Categories() []Category { return slices.Clone(categories) }

var categories = []Category{
	{"search", "crawlers of search engines"},
	{"ai", "crawlers and fetchers of AI companies: training, answers, agents"},
	{"ai-training", "of these: crawlers that collect pages for training, or for an unknown purpose"},
	{"ai-search", "of these: crawlers of AI search and answers"},
	{"ai-user", "of these: fetchers and agents that act for a person"},
	{"seo", "search engine optimisation: ranks, backlinks, site audits"},
	{"advertising", "advertising: landing pages, brand safety, ads.txt"},
	{"preview", "link previews and image proxies of chats, mail and social networks"},
	{"feed", "feed and podcast readers"},
	{"monitor", "uptime, speed and health checks"},
	{"archive", "web archives and site copiers"},
	{"academic", "research"},
	{"scanner", "security scanners and Internet-wide scans, wanted or not"},
	{"exploit", "attack tools that name themselves, and attacks in the user agent itself"},
	{"fetcher", "one page at a time on a user's request: webhooks, tools, translators"},
	{"tool", "command-line programs and developers' tools: curl, wget, git, Postman"},
	{"library", "HTTP libraries and language runtimes that do not name their user"},
	{"headless", "browsers run by a program"},
	{emptyName, "no user agent at all"},
	{oversizedName, "a user agent of over 1 KiB"},
	{"other", "bots with another purpose, or an unknown one"},
}

func isCategory(name string) bool {
	return slices.ContainsFunc(categories, func(c Category) bool { return c.Name == name })
}

// Purposes are the purposes of AI bots: "training" stands for unknown ones too,
// "user" for the request of a person. "ai-" and the purpose is a category.
var Purposes = []string{"training", "search", "user"}

// purposeOf returns the purpose of a bot without a stated one: that of a bot whose
// main category is AI follows from its other categories. A search engine whose
// pages may also serve AI, such as Applebot, has none.
func purposeOf(categories []string, userTriggered bool) string {
	switch {
	case len(categories) == 0 || categories[0] != "ai":
		return ""
	case userTriggered:
		return "user"
	case slices.Contains(categories, "search"):
		return "search"
	}
	return "training"
}

// OperatorName returns the name of the bot's operator as policies write it: in
// lower case, with "-" for everything but letters, digits and dots, at most 40 bytes, such as
// "mistral-ai". It is "" if the operator is unknown.
func (b *Bot) OperatorName() string { return b.operator }

// OperatorName returns the name of an operator as policies write it.
func OperatorName(operator string) string {
	var s strings.Builder
	for i := range len(operator) {
		switch c := operator[i]; {
		case c-'a' < 26 || c-'0' < 10 || c == '.' && s.Len() > 0:
			s.WriteByte(c)
		case c-'A' < 26:
			s.WriteByte(c | 0x20)
		case s.Len() > 0 && !strings.HasSuffix(s.String(), "-"):
			s.WriteByte('-')
		}
	}
	name := s.String()
	return strings.TrimRight(name[:min(len(name), 40)], "-.")
}

// Names returns the names of all bots and all categories, sorted, each once.
// These are the values that a policy can match, besides known, verified and
// forged.
func (t *Table) Names() []string {
	names := make([]string, 0, len(t.bots)+len(categories))
	for i := range t.bots {
		names = append(names, t.bots[i].Name)
	}
	for _, c := range categories {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Bot returns the bot with that name, in any case; nil if there is none.
func (t *Table) Bot(name string) *Bot {
	i, found := t.byName[strings.ToLower(name)]
	if !found {
		return nil
	}
	return &t.bots[i]
}

// Bots yields every bot of the table, in the table's order.
func (t *Table) Bots(yield func(*Bot) bool) {
	for i := range t.bots {
		if !yield(&t.bots[i]) {
			return
		}
	}
}
