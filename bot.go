package fairshare

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A Bot is an automated client, as it is recognized. The zero Bot is a client that
// is not a known bot.
type Bot struct {
	Name       string   // such as "googlebot", in lower case; "" for no bot
	Categories []string // such as "search", the main one first; they must not be changed
	Operator   string   // the company behind it, such as "openai", in lower case without blanks; "" if unknown
	Purpose    string   // of an AI bot: "training", "search" or "user"; "" for all others
	State      BotState

	// UserTriggered says that anybody can make the bot fetch a page, such as a
	// link preview or a translator. Permissions do not hold for it.
	UserTriggered bool
}

// A BotState says whether a client is the bot that its user agent names.
type BotState uint8

const (
	NoBot    BotState = iota // the user agent names no bot
	Claimed                  // it names a bot that cannot be verified
	Pending                  // it can be verified, but the answer is not known yet, or not available
	Verified                 // the address proves it
	Forged                   // the address disproves it
)

// String returns the state as journals and reports spell it; "" for NoBot.
func (s BotState) String() string {
	switch s {
	case NoBot:
		return ""
	case Claimed:
		return "known"
	case Pending:
		return "pending"
	case Verified:
		return "verified"
	case Forged:
		return "forged"
	}
	return fmt.Sprintf("bot state %d", uint8(s))
}

// SetBot sets Bot. Set Addr, Proxy and Via first: a proxy's address, a provisional
// one and an unknown one prove nothing, so the state is then Pending at best.
func (r *Request) SetBot(b Bot) {
	r.Bot = b
	if (r.Proxy || r.Via.IsValid() || !r.Addr.IsValid()) && (b.State == Verified || b.State == Forged) {
		r.Bot.State = Pending
	}
}

// Lookups knows what the DNS says about addresses. Its methods return at once with
// what is known now, and look up the rest in the background. They are safe for
// concurrent use.
type Lookups interface {
	// Hostnames returns the host names of an address that also resolve to this
	// address, in lower case, without a final dot. They must not be changed.
	Hostnames(addr netip.Addr) []string

	// Listed returns the answers of a DNS list (RFC 5782) for an address; nil if
	// the address is not on it. They must not be changed.
	Listed(list string, addr netip.Addr) []netip.Addr
}

// A Listing says which answers of a DNS list count.
type Listing struct {
	List string // its name in the policy

	// Codes are the answers that count. nil means all of 127.0.0.0/8 except
	// 127.255.255.0/24, with which a list refuses to answer.
	Codes []netip.Prefix

	// HTTPBL says that the list is Project Honey Pot's http:BL, whose answers are
	// 127.DAYS.THREAT.TYPE. Then the fields below count instead of Codes. Type 0,
	// search engines, never counts.
	HTTPBL bool
	Types  uint8 // any of these bits: 1 suspicious, 2 harvester, 4 comment spammer; 0 means any type
	Threat uint8 // the smallest threat score that counts, 0 to 255
	Days   uint8 // how many days ago the address was last seen, at most; 0 means any number

	// Wait is how long a request may wait for the answer of the list, up to
	// MaxListWait; 0 means not at all. Requests with the methods GET, HEAD and OPTIONS
	// never wait. See [Guard.AwaitedLists].
	Wait time.Duration
}

// MaxListWait is the longest Listing.Wait.
const MaxListWait = 300 * time.Millisecond

// A ListWaiter is a Lookups whose answers can be awaited.
type ListWaiter interface {
	// KnowsListed reports whether waiting for the answer of a list about an address
	// is useless: it is known, or the list is not asked about such an address.
	KnowsListed(list string, addr netip.Addr) bool

	// WaitListed returns the answers of a list about an address after they are known,
	// or ctx has ended.
	WaitListed(ctx context.Context, list string, addr netip.Addr) (answers []netip.Addr, known bool)
}

// AwaitedLists calls found with each DNS list for whose answer a request may wait, and
// for how long. These are the lists with a Wait of rules that restrict, if all other
// conditions of the rule hold. Rules in dry run do not count. Answers that are known are not left out. It changes
// nothing. Call it for requests that Decide has allowed, and decide them again after
// waiting.
func (g *Guard) AwaitedLists(req *Request, found func(list string, wait time.Duration)) {
	if req.Method == "GET" || req.Method == "HEAD" || req.Method == "OPTIONS" {
		return
	}
	d := g.decisions.Get().(*decision)
	defer g.release(d, d.gen.Load())
	if d.reset(req, req.Time); len(d.set.awaiting) == 0 {
		d.req = nil
		return
	}
	if g.standing && req.Addr.IsValid() {
		d.client = g.clientOf(req)
	}
	for _, i := range d.set.awaiting {
		m, others := g.rules[i].match, true
		for k := range m {
			others = others && (m[k].field == listedField || m[k].holds(d))
		}
		for k := range m {
			if c := &m[k]; others && c.field == listedField && c.looksUp(req) {
				for j := range c.listed {
					if c.listed[j].Wait > 0 {
						found(c.listed[j].List, c.listed[j].Wait)
					}
				}
			}
		}
	}
	d.req = nil
}

// holds reports whether one of the answers counts.
func (l *Listing) holds(answers []netip.Addr) bool {
	for _, answer := range answers {
		if !answer.Is4() {
			continue
		}
		a := answer.As4()
		switch {
		case a[0] != 127 || a[1] == 255 && a[2] == 255 && !l.HTTPBL:
		case l.HTTPBL:
			if a[3]&7 != 0 && (l.Types == 0 || a[3]&l.Types != 0) && a[2] >= l.Threat &&
				(l.Days == 0 || a[1] <= l.Days) {
				return true
			}
		case l.Codes == nil || Prefixes(l.Codes).Contains(answer):
			return true
		}
	}
	return false
}

// A botTest is a compiled Match.Bot.
type botTest struct {
	any                     bool // every bot that the other conditions hold for
	known, verified, forged bool
	names                   []pattern // of bots and categories
	operators               []pattern // nil means all
	states                  uint8     // bit s: BotState s; 0 means all

	// favorable marks a permission. It needs a verified bot that is not
	// user-triggered.
	favorable bool
}

// newBotTest compiles the conditions on bots of a match; nil if it has none.
func newBotTest(m *Match, favorable bool) (*botTest, error) {
	if !m.TestsBots() {
		return nil, nil
	}
	t := &botTest{favorable: favorable, any: m.Bot == nil}
	for _, text := range m.State {
		i := slices.IndexFunc(botStates[:], func(s BotState) bool { return s.String() == text })
		if i < 0 {
			return nil, fmt.Errorf("state: %q is not verified, pending, forged or known", text)
		}
		t.states |= 1 << botStates[i]
	}
	if m.State != nil && t.states == 0 {
		t.states = 1 << NoBot // an empty list holds for nobody
	}
	var names []string
	for _, text := range m.Bot {
		switch text {
		case "known":
			t.known = true
		case "verified":
			t.verified = true
		case "forged":
			t.forged = true
		default:
			names = append(names, text)
		}
	}
	var err, err2 error
	t.names, err = newPatterns(names, equalFold)
	if m.Operator != nil {
		t.operators, err2 = newPatterns(m.Operator, equalFold)
	}
	return t, cmp.Or(err, err2)
}

// TestsBots reports whether m itself, without Not, looks at the bot that a client claims to be.
func (m *Match) TestsBots() bool { return m.Bot != nil || m.State != nil || m.Operator != nil }

// botStates are the states that Match.State names.
var botStates = [...]BotState{Claimed, Pending, Verified, Forged}

func (t *botTest) holds(b *Bot) bool {
	switch {
	case b.State == NoBot || t.favorable && (b.State != Verified || b.UserTriggered),
		t.states != 0 && t.states>>b.State&1 == 0,
		t.operators != nil && (b.Operator == "" || !matchAny(t.operators, b.Operator, "")):
		return false
	case t.any, t.known, t.verified && b.State == Verified, t.forged && b.State == Forged:
		return true
	case matchAny(t.names, b.Name, ""):
		return true
	}
	for _, category := range b.Categories {
		if matchAny(t.names, category, "") {
			return true
		}
	}
	return false
}
