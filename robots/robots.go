// Package robots reads robots.txt files (RFC 9309) and judges the requests of bots
// by them. Start with [Parse] and [File.Judge].
//
// Besides the rules of the RFC it reads Crawl-delay and Request-rate, and it
// reports Content-Signal, Content-Usage and License (RSL) lines.
package robots

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fairshare"
)

// Bounds of a file.
const (
	MaxBytes = 500 << 10 // of a file; the rest is ignored (RFC 9309 §2.5)
	maxLine  = 16 << 10  // of a line; the rest is ignored
	maxNotes = 100       // faults and statements that are kept of each kind
	maxRules = 100_000   // of all groups; a line counts for each group that it belongs to
)

// MaxDelay is the longest time between two requests that a file can ask for. A
// longer one counts as this.
const MaxDelay = 24 * time.Hour

// A File is a robots.txt that was read. It is immutable and safe for concurrent
// use.
type File struct {
	Faults     []Note   // lines that were not understood or have no effect; at most 100
	Statements []Note   // Content-Signal, Content-Usage and License lines, with their group; at most 100
	Sitemaps   []string // addresses; at most 100

	groups []*Group
	star   *Group             // nil if no group is for all
	tokens map[string][]token // the tokens by their first word, in lower case
	cut    bool
	seed   maphash.Seed
	cache  []atomic.Uint64 // nil without tokens: 48 bits of a hash of bot and user agent, and an index of groups + 2
	named  map[string][]int
}

// A Note is a remark about one line.
type Note struct {
	Line int // from 1
	Text string
}

// A token is the product token of a group.
type token struct {
	text  string // in lower case
	group int    // index in groups
	first bool   // only the first word of what the file says: it must look like a product
}

// A Group holds what the file says to the bots of one product token. Several
// groups of the file with the same token are one Group.
type Group struct {
	Token string // as written; "*" for all
	Line  int    // of its first user-agent line

	// Delay is the time from one request to the next, by Crawl-delay and
	// Request-rate, at most MaxDelay; the longest if there are several. 0 means that
	// the file says nothing.
	Delay     time.Duration
	DelayRule Rule

	rules []*pattern // in the order of their lines
	paths pathRules
}

// A Rule is one line of the file.
type Rule struct {
	Line int    // from 1; 0 means no line
	Text string // such as "Disallow: /private"
}

// Rules returns how many Allow and Disallow lines the group has.
func (g *Group) Rules() int { return len(g.rules) }

// Groups returns the groups of the file in their order.
func (f *File) Groups() []*Group { return slices.Clone(f.groups) }

// Truncated reports whether the file was longer than MaxBytes.
func (f *File) Truncated() bool { return f.cut }

// crawling are the main categories of bots for which the group "*" holds. RFC 9309 is
// for crawlers, which fetch page after page by themselves. Feed readers, link
// previews, monitors and fetchers that act for a person do not usually read
// robots.txt, advertising crawlers document that they ignore "*", and tools and
// libraries are used for anything.
var crawling = []string{"search", "ai", "seo", "archive", "academic"}

// IsCrawler reports whether the group "*" holds for a bot: it fetches pages by
// itself, not on behalf of a person.
func IsCrawler(b *fairshare.Bot) bool {
	return !b.UserTriggered && len(b.Categories) > 0 && slices.Contains(crawling, b.Categories[0]) &&
		!slices.Contains(b.Categories, "fetcher") && !slices.Contains(b.Categories, "preview")
}

// aliases are bots whose operators document that they obey the group of another
// token if none names them. See https://support.apple.com/119829 for Applebot; Bing's
// crawler obeys its former name.
var aliases = map[string]string{"applebot": "googlebot", "bingbot": "msnbot"}

// withoutAgent are product tokens that no user agent has. They say what may be
// done with pages that other bots of the operator fetch.
var withoutAgent = []string{"google-extended", "applebot-extended"}

// browserWords are words of browsers' user agents. As product tokens they name
// no bot.
var browserWords = strings.Fields(`mozilla applewebkit khtml gecko chrome chromium safari firefox opera presto msie
	trident edge edg version mobile compatible like windows macintosh linux android iphone ipad x11 u http https`)

// Group returns the group that holds for a bot with this user agent, and whether it
// names the bot. It returns nil if no group holds. It allocates nothing.
//
// A group names a bot if its token is among the product tokens of the user agent,
// in any case; the longest one counts. Otherwise it names the bot if the token is
// the bot's name, or begins a product token of the user agent and names the same
// bot in the table of bots: "Googlebot" for Googlebot-Image. The group "*" holds for
// crawlers that no group names.
func (f *File) Group(bot *fairshare.Bot, userAgent string) (g *Group, named bool) {
	if bot.State == fairshare.NoBot {
		return nil, false
	}
	if i := f.cached(bot, userAgent); i >= 0 {
		return f.groups[i], true
	}
	if f.star != nil && IsCrawler(bot) {
		return f.star, false
	}
	return nil, false
}

const cacheSize = 512

// cached is find with a cache for recent user agents.
func (f *File) cached(bot *fairshare.Bot, userAgent string) int {
	if f.cache == nil {
		return -1
	}
	hash := maphash.String(f.seed, userAgent) ^ bits.RotateLeft64(maphash.String(f.seed, bot.Name), 1)
	entry := &f.cache[hash%cacheSize]
	if e := entry.Load(); e>>16 == hash>>16 && e&0xFFFF != 0 {
		return int(e&0xFFFF) - 2
	}
	i := f.find(bot, userAgent)
	if i < 0xFFFF-2 {
		entry.Store(hash&^0xFFFF | uint64(i+2))
	}
	return i
}

// maxAgent is how many bytes of a user agent are read.
const maxAgent = 1024

// find returns the index of the group that names a bot, or −1.
func (f *File) find(bot *fairshare.Bot, userAgent string) int {
	if len(userAgent) > maxAgent {
		userAgent = userAgent[:maxAgent]
	}
	best, length := -1, 0
	eachWord(userAgent, func(word []byte, rest string) {
		for _, t := range f.tokens[string(word)] {
			if len(t.text) > length && t.begins(rest) {
				best, length = t.group, len(t.text)
			}
		}
	})
	if best >= 0 {
		return best
	}
	if i := f.tokenNamed(bot.Name); i >= 0 {
		return i
	}
	for _, i := range f.named[bot.Name] {
		text := f.groups[i].Token
		eachWord(userAgent, func(word []byte, rest string) {
			if len(text) > length && len(rest) >= len(text) && strings.EqualFold(rest[:len(text)], text) {
				best, length = i, len(text)
			}
		})
	}
	if best < 0 && aliases[bot.Name] != "" {
		return f.tokenNamed(aliases[bot.Name])
	}
	return best
}

// begins reports whether a user agent's rest begins with the product token t.
func (t *token) begins(rest string) bool {
	n := len(t.text)
	switch {
	case len(rest) < n || !strings.EqualFold(rest[:n], t.text):
		return false
	case len(rest) == n || rest[n] == '/':
		return true
	}
	return !t.first && endsToken(rest[n])
}

// tokenNamed returns the index of the group whose whole token is name, in lower
// case, or −1.
func (f *File) tokenNamed(name string) int {
	first, _, _ := strings.Cut(name, " ")
	for _, t := range f.tokens[first] {
		if t.text == name && !t.first {
			return t.group
		}
	}
	return -1
}

func beginsToken(c byte) bool { return strings.IndexByte(" \t;(,[", c) >= 0 }
func endsToken(c byte) bool   { return strings.IndexByte(" \t;),]/:+", c) >= 0 }

// eachWord calls do for each place in a user agent where a product token may begin, with
// the word there in lower case, and the text from there on. Words of more than 64
// bytes are skipped.
func eachWord(userAgent string, do func(word []byte, rest string)) {
	var lower [64]byte
	for i := 0; i < len(userAgent); i++ {
		if i > 0 && !beginsToken(userAgent[i-1]) || beginsToken(userAgent[i]) {
			continue
		}
		n := i
		for n < len(userAgent) && !endsToken(userAgent[n]) {
			n++
		}
		if n == i || n-i > len(lower) {
			continue
		}
		for j := i; j < n; j++ {
			c := userAgent[j]
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			lower[j-i] = c
		}
		do(lower[:n-i], userAgent[i:])
	}
}

// Judge returns what the file says about a request of a bot. target is the request
// target as sent. The zero result means that the file says nothing about it. Judge
// allocates nothing, except for long targets with percent escapes.
func (f *File) Judge(bot *fairshare.Bot, userAgent, target string) fairshare.Robots {
	g, named := f.Group(bot, userAgent)
	if g == nil {
		return fairshare.Robots{}
	}
	r := fairshare.Robots{Group: g.Token, Named: named, Delay: g.Delay}
	if g.Delay > 0 {
		r.DelayLine = g.DelayRule.Line
	}
	if rule, disallowed := g.Match(target); rule != nil {
		r.Disallowed, r.Line, r.Rule = disallowed, rule.Line, rule.Text
	}
	return r
}

// Allows reports whether a bot may fetch a target, and the line that decides; a
// zero Rule if none does.
func (f *File) Allows(bot *fairshare.Bot, userAgent, target string) (bool, Rule) {
	if g, _ := f.Group(bot, userAgent); g != nil {
		if rule, disallowed := g.Match(target); rule != nil {
			return !disallowed, *rule
		}
	}
	return true, Rule{}
}
