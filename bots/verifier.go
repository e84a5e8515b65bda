package bots

import (
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/botauth"
)

// Names returns the host names of addresses that a resolver has confirmed.
type Names interface {
	// Confirmed returns the host names of an address that resolve to it again, in
	// lower case, without a final dot. It never waits. If known is false, the DNS
	// has not answered yet, at least about some names. If known is true, names are
	// all confirmed names; there may be none.
	Confirmed(addr netip.Addr) (names []string, known bool)
}

// Options are the sources of a Verifier.
type Options struct {
	Table  *Table  // nil: BuiltIn
	Ranges *Ranges // nil: NewRanges
	Names  Names   // nil: no DNS

	// LocalNames says that Names knows the names of private networks. Then a
	// private address without a name of the bot's domains makes a claim forged.
	// Otherwise such an address proves nothing: it may belong to a proxy that the
	// configuration does not name, and most DNS servers have no names for private
	// addresses (RFC 6303).
	LocalNames bool

	// Signatures verifies the signatures of bots. nil means that LookSigned must not be
	// called.
	Signatures *botauth.Verifier

	// Agents are agents of a policy, with the name of the bot that each proves to be. They
	// take precedence over those of the table.
	Agents map[string]string
}

// A Verifier identifies the bot that a client claims to be, and checks the claim.
// It is safe for concurrent use.
type Verifier struct {
	table  *Table
	ranges *Ranges
	names  Names
	local  bool           // names knows the names of private networks
	checks map[*Bot]check // of bots that can be checked or are user-triggered

	published rangeMask // sets with addresses of any bot

	signers signers
}

// A check holds the facts to check a claim to be a bot.
type check struct {
	ranges   rangeMask // sets with its addresses
	whole    rangeMask // sets that are complete: the bot has no other addresses
	networks rangeMask // wider sets, from which the bot may come, too
	domains  []string  // lower case, without leading or final dots
}

// NewVerifier returns a Verifier for all bots of a table.
func NewVerifier(o Options) *Verifier {
	v := &Verifier{table: o.Table, ranges: o.Ranges, names: o.Names, local: o.LocalNames, checks: map[*Bot]check{}}
	if v.table == nil {
		v.table = BuiltIn()
	}
	if v.ranges == nil {
		v.ranges = NewRanges()
	}
	for b := range v.table.Bots {
		if len(b.Ranges) > 0 || len(b.Domains) > 0 {
			v.checks[b] = newCheck(b)
			v.published |= v.checks[b].ranges
		}
	}
	v.signers = newSigners(v.table, o.Signatures, o.Agents)
	return v
}

func newCheck(b *Bot) check {
	var c check
	for _, name := range b.Ranges {
		i := setIndex(name)
		if i < 0 {
			continue
		}
		bit := rangeMask(1) << i
		c.ranges |= bit
		if rangeDefs[i].whole {
			c.whole |= bit
		}
		c.networks |= masked(rangeDefs[i].near)
	}
	c.networks |= masked(b.Networks)
	for _, domain := range b.Domains {
		if domain = strings.ToLower(strings.Trim(domain, ".")); domain != "" {
			c.domains = append(c.domains, domain)
		}
	}
	return c
}

func masked(sets []string) (mask rangeMask) {
	for _, name := range sets {
		if i := setIndex(name); i >= 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// Look returns the bot that a client claims to be by its user agent, and the
// state of the claim by its address. It never waits and allocates nothing. It
// uses Names only for a bot with domains, if the address is in none of the bot's
// published ranges.
func (v *Verifier) Look(addr netip.Addr, userAgent string) fairshare.Bot {
	b, _ := v.table.Recognise(userAgent)
	if b == nil {
		return fairshare.Bot{}
	}
	state, _ := v.verify(b, plain(addr), v.names)
	return b.withState(state)
}

// Claim returns the state of an address's claim to be the named bot, as Look does. It is
// NoBot if the table has no such bot.
func (v *Verifier) Claim(bot string, addr netip.Addr) fairshare.BotState {
	b := v.table.Bot(bot)
	if b == nil {
		return fairshare.NoBot
	}
	state, _ := v.verify(b, plain(addr), v.names)
	return state
}

// Publishes reports whether an address in the prefix, IPv4 as IPv4, is published for a bot.
func (v *Verifier) Publishes(prefix netip.Prefix) bool {
	index := v.ranges.index.Load()
	if in, _ := index.table.LookupPrefix(prefix); in&v.published != 0 {
		return true
	}
	for _, in := range index.table.Subnets(prefix) {
		if in&v.published != 0 {
			return true
		}
	}
	return false
}

// withState returns the bot as rules see it.
func (b *Bot) withState(state fairshare.BotState) fairshare.Bot {
	return fairshare.Bot{Name: b.Name, Categories: b.Categories, Operator: b.operator, Purpose: b.Purpose,
		State: state, UserTriggered: b.UserTriggered}
}

// A reason is the step of a check that decided.
type reason uint8

const (
	noCheck      reason = iota // the bot has no known ranges or names
	unsigned                   // likewise, but it could sign its requests
	noAddr                     // the client has no address
	localAddr                  // the address is of this machine or a private network
	inRanges                   // the address is published
	nameFits                   // a confirmed name is of the bot's domains
	nameDiffers                // the DNS answered, and no confirmed name is of the bot's domains
	nameUnknown                // the DNS has not answered
	outside                    // the address is outside of complete ranges
	inNetworks                 // likewise, but in a network that the bot's operator owns or rents
	notWhole                   // the address is outside of ranges that may be incomplete
	namesUnasked               // only the DNS could decide, and it is not asked
)

// verify checks a claim. Published ranges verify it first, then confirmed names.
// Only then may an address outside of the ranges make it forged.
func (v *Verifier) verify(b *Bot, addr netip.Addr, names Names) (fairshare.BotState, reason) {
	index := v.ranges.index.Load()
	c := v.checks[b]
	ranges := c.ranges & index.known
	switch {
	case ranges == 0 && len(c.domains) == 0 && v.signers.signs[b.Name]:
		return fairshare.Pending, unsigned
	case ranges == 0 && len(c.domains) == 0:
		return fairshare.Claimed, noCheck
	case !addr.IsValid():
		return fairshare.Pending, noAddr
	}
	in := index.lookup(addr)
	if in&ranges != 0 {
		return fairshare.Verified, inRanges
	}
	if len(c.domains) > 0 && names != nil {
		switch confirmed, known := names.Confirmed(addr); {
		case c.fits(confirmed):
			return fairshare.Verified, nameFits
		case !known: // not all of them
			return fairshare.Pending, nameUnknown
		case isLocal(addr) && !v.local:
			return fairshare.Pending, localAddr
		}
		return fairshare.Forged, nameDiffers
	}
	switch {
	case isLocal(addr):
		return fairshare.Pending, localAddr
	case ranges == 0:
		return fairshare.Pending, namesUnasked
	case ranges&^c.whole != 0:
		return fairshare.Pending, notWhole
	case in&c.networks != 0:
		return fairshare.Pending, inNetworks
	case len(c.domains) > 0 && c.networks&index.known == 0:
		return fairshare.Pending, namesUnasked
	}
	return fairshare.Forged, outside
}

// isLocal reports whether an address is of this machine or a private network.
// Crawlers have no such addresses, but all clients of a proxy do that the
// configuration does not name.
func isLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}

// fits reports whether one of the names is one of the domains or ends in one, by
// whole labels.
func (c *check) fits(names []string) bool {
	for _, name := range names {
		if slices.ContainsFunc(c.domains, func(domain string) bool { return underDomain(name, domain) }) {
			return true
		}
	}
	return false
}

func underDomain(name, domain string) bool {
	rest, found := strings.CutSuffix(name, domain)
	return found && (rest == "" || rest[len(rest)-1] == '.' && rest != ".")
}
