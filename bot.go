package fairshare

import (
	"fmt"
	"net/netip"
)

// A Bot is what a client is taken for. The zero Bot is nobody known.
type Bot struct {
	Name       string   // as "googlebot", in lower case; "" when it is taken for no bot
	Categories []string // the main one first, as "search"; shared, not to be changed
	State      BotState

	// UserTriggered says that anybody can have the bot fetch a page: fetchers that
	// people trigger, previews, translators. Nothing kind is done for it.
	UserTriggered bool
}

// A BotState tells what is known of a bot's claim to be one.
type BotState uint8

const (
	NoBot    BotState = iota // no claim
	Claimed                  // by its user agent, and there is no way to check it
	Pending                  // it can be checked; there is no answer yet, or none was to be had
	Verified                 // by its address
	Forged                   // it can be checked, and is not true
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

// SetBot fills in Bot, after Addr, Proxy and Via. A provisional address proves
// no claim of a bot: it stays pending.
func (r *Request) SetBot(b Bot) {
	r.Bot = b
	if (r.Proxy || r.Via.IsValid() || !r.Addr.IsValid()) && (b.State == Verified || b.State == Forged) {
		r.Bot.State = Pending
	}
}

// Lookups tells what others know of an address. Both methods return at once
// with what is known now, and have the rest looked up meanwhile. They are safe
// for concurrent use.
type Lookups interface {
	// Hostnames returns the names of an address that also lead back to it:
	// lower case, no final dot. They are not to be changed.
	Hostnames(addr netip.Addr) []string

	// Listed returns what a DNS list (RFC 5782) answers for an address; nil
	// when that is not on it. The answers are not to be changed.
	Listed(list string, addr netip.Addr) []netip.Addr
}

// A Listing says which answers of a DNS list count.
type Listing struct {
	List string // its name in the policy
	// that count; nil means all in 127.0.0.0/8 but 127.255.255.0/24, by which a list refuses to
	// answer
	Codes []netip.Prefix

	// HTTPBL has answers read as Project Honey Pot's http:BL gives them,
	// 127.DAYS.THREAT.TYPE, in place of Codes. Its type 0, search engines,
	// never counts.
	HTTPBL bool
	Types  uint8 // any of these bits: 1 suspicious, 2 harvester, 4 comment spammer; 0 means any type
	Threat uint8 // at least
	Days   uint8 // since the address was seen, at most; 0 means any
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
	known, verified, forged bool
	names                   []pattern // of bots and categories

	// favorable marks a permission: a claim is not enough for it, nor is a
	// bot that fetches what anybody tells it to.
	favorable bool
}

func newBotTest(texts []string, favorable bool) (*botTest, error) {
	t := &botTest{favorable: favorable}
	var names []string
	for _, text := range texts {
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
	var err error
	t.names, err = newPatterns(names, equalFold)
	return t, err
}

func (t *botTest) holds(b *Bot) bool {
	switch {
	case b.State == NoBot || t.favorable && (b.State != Verified || b.UserTriggered):
		return false
	case t.known, t.verified && b.State == Verified, t.forged && b.State == Forged:
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
