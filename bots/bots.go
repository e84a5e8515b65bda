// Package bots knows automated clients: who a client says it is ([Table]), and
// whether that is true ([Verifier]).
//
// A [Table] is one list of bots with the texts that tell them in a user agent.
// [BuiltIn] is the one that the program carries; [LoadTable] reads another from
// a file. [Table.Recognise] is the way in.
package bots

import (
	"slices"
	"strings"
)

// A Bot is an automated client, or a kind of them that has no name of its own.
// Its slices are shared and never changed.
type Bot struct {
	Name       string   // what a policy calls it: lower case, letters, digits, "." "-" "_", at most 40 bytes
	Categories []string // of Categories(), the main one first, at least one
	Operator   string   // who runs it; "" when not known
	URL        string   // where its operator describes it; "" when not known
	Steered    bool     // anybody can make it fetch a page: on behalf of a person, previews, translators

	// How its addresses are told. With all three empty a claim cannot be
	// checked.
	Ranges   []string // names of address sets that its operator publishes for it
	Domains  []string // names of its addresses end in one of these, by whole labels
	Networks []string // names of wider sets: all networks of its operator
}

// Names of the kinds that are told by more than a text.
const (
	Empty     = "empty"      // no user agent, or nothing but blanks, or "-"
	Oversized = "oversized"  // longer than MaxUserAgent
	NoBrowser = "no-browser" // nothing in it that browsers, phones or their apps say, or a word that desktop browsers do not
)

// MaxUserAgent is the length in bytes of the longest user agent that is read.
// Those of browsers have at most about 500.
const MaxUserAgent = 1024

// Main is the category that says best what it is.
func (b *Bot) Main() string { return b.Categories[0] }

// A Category says what a bot is for.
type Category struct{ Name, Means string }

// Categories is the closed list of categories, in the order of the docs.
func Categories() []Category { return slices.Clone(categories) }

var categories = []Category{
	{"search", "crawlers of search engines"},
	{"ai", "crawlers and fetchers of AI companies: training, answers, agents"},
	{"seo", "search engine optimisation: ranks, links back, site audits"},
	{"advertising", "advertising: landing pages, brand safety, ads.txt"},
	{"preview", "link previews and image proxies of chats, mail and social networks"},
	{"feed", "feed and podcast readers"},
	{"monitor", "uptime, speed and health checks"},
	{"archive", "web archives and site copiers"},
	{"academic", "research"},
	{"scanner", "security scanners and censuses of hosts, wanted or not"},
	{"exploit", "tools that look for holes and say so, and attacks that stand in the user agent itself"},
	{"fetcher", "one page at a time because somebody asked: webhooks, tools, translators"},
	{"tool", "programs for the command line and developers' tools: curl, wget, git, Postman"},
	{"library", "HTTP libraries and language runtimes that name nobody"},
	{"headless", "browsers run by a program"},
	{Empty, "no user agent at all"},
	{Oversized, "a user agent of over 1 KiB"},
	{"other", "bots of another kind, or of which no more is known"},
}

func isCategory(name string) bool {
	return slices.ContainsFunc(categories, func(c Category) bool { return c.Name == name })
}

// Names lists the names of all bots and all categories, sorted, each once:
// what a policy can ask for.
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

// Bot is the bot with that name, in any case; nil when there is none.
func (t *Table) Bot(name string) *Bot {
	i, found := t.byName[strings.ToLower(name)]
	if !found {
		return nil
	}
	return &t.bots[i]
}

// Bots yields every bot of the table in its order.
func (t *Table) Bots(yield func(*Bot) bool) {
	for i := range t.bots {
		if !yield(&t.bots[i]) {
			return
		}
	}
}
