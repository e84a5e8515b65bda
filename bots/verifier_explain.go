package bots

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
)

// A Waiter is a Names that can also be waited for.
type Waiter interface {
	Wait(ctx context.Context, addr netip.Addr) (names []string, known bool)
}

// An Explanation is what a client is taken for, and why.
type Explanation struct {
	Bot   fairshare.Bot
	Token string   // what told it in the user agent; "": no text did
	Steps []string // in order, each a sentence without full stop
}

// Explain does what Look does and tells each step. If the Verifier's names are
// a Waiter, it waits for the DNS until ctx ends.
func (v *Verifier) Explain(ctx context.Context, addr netip.Addr, userAgent string) Explanation {
	b, token := v.table.Recognise(userAgent)
	if b == nil {
		return Explanation{Steps: []string{"its user agent is no bot's that we know"}}
	}
	addr = plain(addr)
	e := Explanation{Token: token}
	e.say("%s", claims(b, token))
	c := v.checks[b]
	index := v.ranges.index.Load()
	names := v.names
	if waiter, ok := names.(Waiter); ok && addr.IsValid() && len(c.domains) > 0 && index.lookup(addr)&c.ranges == 0 {
		confirmed, known := waiter.Wait(ctx, addr)
		names = waited{confirmed, known}
	}
	state, why := v.verify(b, addr, names)
	e.Bot = fairshare.Bot{Name: b.Name, Categories: b.Categories, State: state, Steered: b.Steered}

	switch why {
	case noCheck:
		e.say("we know of no ranges and no names of %s to check that by", b.Name)
	case noAddr:
		e.say("no address is given to check that by")
	default:
		v.sayRanges(&e, b, addr)
	}
	switch why {
	case nameFits, nameDiffers, nameUnknown:
		e.sayNames(&c, addr, names)
	case inNetworks:
		e.say("%s is in a network of %s: its operator may come from there before its list says so", addr, v.around(&c, addr))
	case localAddr:
		e.say("%s is of this machine or a private network: it may be a proxy's, and proves nothing", addr)
	case notWhole:
		e.say("the list may not be all that %s has, so an address outside proves nothing", b.Name)
	case namesUnasked:
		e.say("the name of %s would tell (%s), but the DNS is not asked", addr, either(c.domains))
	}
	switch state {
	case fairshare.Verified:
		e.say("verified")
	case fairshare.Forged:
		e.say("forged: it is somebody else")
	case fairshare.Claimed:
		e.say("known by its claim alone")
	default:
		e.say("pending: an ordinary client until more is known")
	}
	if b.Steered {
		e.say("nothing kind is done for it: anybody can make %s fetch a page", b.Name)
	}
	return e
}

func (e *Explanation) say(format string, args ...any) {
	e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
}

// waited is a Names that has been asked.
type waited struct {
	names []string
	known bool
}

func (w waited) Confirmed(netip.Addr) ([]string, bool) { return w.names, w.known }

func claims(b *Bot, token string) string {
	switch {
	case b.Name == Empty:
		return "it has no user agent"
	case b.Name == Oversized:
		return fmt.Sprintf("its user agent is longer than %d bytes", MaxUserAgent)
	case token == "":
		return fmt.Sprintf("its user agent is taken for %s (%s)", b.Name, strings.Join(b.Categories, ", "))
	}
	return fmt.Sprintf("it claims to be %s (%s), by %q", b.Name, strings.Join(b.Categories, ", "), token)
}

// sayRanges tells what each published set says of an address.
func (v *Verifier) sayRanges(e *Explanation, b *Bot, addr netip.Addr) {
	sets := v.ranges.Sets()
	for _, name := range b.Ranges {
		i := setIndex(name)
		if i < 0 {
			e.say("ranges %s are not known", name)
			continue
		}
		set := sets[i]
		if set.Prefixes == 0 {
			e.say("the ranges of %s are published, but not here yet", name)
			continue
		}
		age := "snapshot of " + set.At.Format("2006-01-02")
		if set.Refreshed {
			age = "refreshed " + set.At.UTC().Format("2006-01-02 15:04 UTC")
		}
		if p := v.ranges.covering(i, addr); p.IsValid() {
			e.say("%s is in the published ranges of %s (%s; %s)", addr, name, p, age)
		} else {
			e.say("%s is in none of the %d published ranges of %s (%s)", addr, set.Prefixes, name, age)
		}
	}
}

func (e *Explanation) sayNames(c *check, addr netip.Addr, names Names) {
	confirmed, known := names.Confirmed(addr)
	switch {
	case !known:
		e.say("the DNS has not said what the name of %s is, which proves nothing", addr)
	case len(confirmed) == 0:
		e.say("%s has no name that leads back to it; one under %s would", addr, either(c.domains))
	case c.fits(confirmed):
		e.say("its name %s leads back to %s, and is under %s", confirmed[slices.IndexFunc(confirmed, func(n string) bool { return c.fits([]string{n}) })], addr, either(c.domains))
	default:
		e.say("its name %s leads back to %s, but is not under %s", strings.Join(confirmed, ", "), addr, either(c.domains))
	}
}

// around names the wider sets that an address is in.
func (v *Verifier) around(c *check, addr netip.Addr) string {
	in := v.ranges.index.Load().lookup(addr) & c.networks
	var names []string
	for i := range rangeDefs {
		if in&(1<<i) != 0 {
			names = append(names, rangeDefs[i].name)
		}
	}
	return either(names)
}

func either(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// covering returns the longest prefix of a set that holds an address.
func (r *Ranges) covering(set int, addr netip.Addr) (longest netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.sets[set].prefixes() {
		if p.Contains(addr) && p.Bits() > longest.Bits() {
			longest = p
		}
	}
	return longest
}
