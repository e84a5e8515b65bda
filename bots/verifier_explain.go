package bots

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
)

// A waiter is a Names that can also wait for the DNS.
type waiter interface {
	Wait(ctx context.Context, addr netip.Addr) (names []string, known bool)
}

// An Explanation is the bot that a client claims to be, and each step of the check.
type Explanation struct {
	Bot   fairshare.Bot
	Token string   // the part of the user agent that names the bot; "" if there is none
	Steps []string // in order, each a sentence without a full stop
}

// Explain does the same as Look and explains each step. If the Verifier's Names
// have a method Wait(ctx, addr) with the results of Confirmed, it waits for the
// DNS until ctx ends.
func (v *Verifier) Explain(ctx context.Context, addr netip.Addr, userAgent string) Explanation {
	b, token := v.table.Recognise(userAgent)
	if b == nil {
		return Explanation{Steps: []string{"its user agent names no known bot"}}
	}
	addr = plain(addr)
	e := Explanation{Token: token}
	e.addStep("%s", describeClaim(b, token))
	c := v.checks[b]
	index := v.ranges.index.Load()
	names := v.names
	if w, ok := names.(waiter); ok && addr.IsValid() && len(c.domains) > 0 && index.lookup(addr)&c.ranges == 0 {
		confirmed, known := w.Wait(ctx, addr)
		names = answered{confirmed, known}
	}
	state, why := v.verify(b, addr, names)
	e.Bot = b.withState(state)

	switch why {
	case noCheck:
		e.addStep("no ranges or names of %s are known to check the claim", b.Name)
	case unsigned:
		e.addStep("no ranges or names of %s are known to check the claim; only a signature proves it", b.Name)
	case noAddr:
		e.addStep("without an address the claim cannot be checked")
	default:
		v.explainRanges(&e, b, addr)
	}
	switch why {
	case nameFits, nameDiffers, nameUnknown:
		e.explainNames(&c, addr, names)
	case inNetworks:
		e.addStep("%s is in a network of %s, where the bot may get addresses before its list has them", addr,
			v.widerSets(&c, addr))
	case localAddr:
		e.addStep("%s is of this machine or a private network: it may be a proxy, so it proves nothing", addr)
	case notWhole:
		e.addStep("the list of %s may be incomplete, so an address outside of it proves nothing", b.Name)
	case namesUnasked:
		e.addStep("the host name of %s would decide (%s), but DNS lookups are off", addr, either(c.domains))
	}
	if agents := v.signers.of(b.Name); len(agents) > 0 && state != fairshare.Verified {
		e.addStep("a signature of %s would prove it (Web Bot Auth); fairshare check --try verifies one in --header",
			either(agents))
	}
	switch state {
	case fairshare.Verified:
		e.addStep("verified")
	case fairshare.Forged:
		e.addStep("forged: the client is not %s", b.Name)
	case fairshare.Claimed:
		e.addStep("known: the claim cannot be checked")
	default:
		e.addStep("pending: treated as an ordinary client until the check is complete")
	}
	if b.UserTriggered {
		e.addStep("rules give it no advantage: anybody can make %s fetch a page", b.Name)
	}
	return e
}

func (e *Explanation) addStep(format string, args ...any) {
	e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
}

// answered is a Names with one fixed answer.
type answered struct {
	names []string
	known bool
}

func (a answered) Confirmed(netip.Addr) ([]string, bool) { return a.names, a.known }

func describeClaim(b *Bot, token string) string {
	switch {
	case b.Name == emptyName:
		return "it has no user agent"
	case b.Name == oversizedName:
		return fmt.Sprintf("its user agent is longer than %d bytes", MaxUserAgent)
	case token == "":
		return fmt.Sprintf("its user agent is recognised as %s (%s)", b.Name, strings.Join(b.Categories, ", "))
	}
	return fmt.Sprintf("it claims to be %s (%s), by %q", b.Name, strings.Join(b.Categories, ", "), token)
}

// explainRanges adds a step for each published set: whether the address is in it.
func (v *Verifier) explainRanges(e *Explanation, b *Bot, addr netip.Addr) {
	sets := v.ranges.Sets()
	for _, name := range b.Ranges {
		i := setIndex(name)
		if i < 0 {
			e.addStep("ranges %s are not known", name)
			continue
		}
		set := sets[i]
		if set.Prefixes == 0 {
			e.addStep("the ranges of %s are published, but have not been downloaded yet", name)
			continue
		}
		age := "snapshot of " + set.At.Format("2006-01-02")
		if set.Refreshed {
			age = "refreshed " + set.At.UTC().Format("2006-01-02 15:04 UTC")
		}
		if p := v.ranges.covering(i, addr); p.IsValid() {
			e.addStep("%s is in the published ranges of %s (%s; %s)", addr, name, p, age)
		} else {
			e.addStep("%s is in none of the %d published ranges of %s (%s)", addr, set.Prefixes, name, age)
		}
	}
}

func (e *Explanation) explainNames(c *check, addr netip.Addr, names Names) {
	confirmed, known := names.Confirmed(addr)
	switch {
	case !known:
		e.addStep("the DNS has not answered for the host name of %s, which proves nothing", addr)
	case len(confirmed) == 0:
		e.addStep("%s has no host name that resolves to it; a real one has a name under %s", addr, either(c.domains))
	case c.fits(confirmed):
		e.addStep("its host name %s resolves to %s, and is under %s",
			confirmed[slices.IndexFunc(confirmed, func(n string) bool { return c.fits([]string{n}) })], addr,
			either(c.domains))
	default:
		e.addStep("its host name %s resolves to %s, but is not under %s", strings.Join(confirmed, ", "), addr,
			either(c.domains))
	}
}

// widerSets names the wider sets that an address is in.
func (v *Verifier) widerSets(c *check, addr netip.Addr) string {
	in := v.ranges.index.Load().lookup(addr) & c.networks
	var names []string
	for i := range rangeDefs {
		if in&(1<<i) != 0 {
			names = append(names, rangeDefs[i].name)
		}
	}
	return either(names)
}

func either(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, "")
}

// covering returns the longest prefix of a set that contains an address.
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
