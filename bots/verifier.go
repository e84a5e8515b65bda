package bots

import (
	"net/netip"
	"slices"
	"strings"

	"fairshare"
)

// Names tells the names of addresses, as a resolver has confirmed them.
type Names interface {
	// Confirmed returns the names of an address that lead back to it, lower
	// case, without a final dot. It never waits: not known means that nobody has
	// asked yet, or that the DNS has not answered, at least about other names.
	// Known without names means that it has, and none is confirmed.
	Confirmed(addr netip.Addr) (names []string, known bool)
}

// Options are what a Verifier works with.
type Options struct {
	Table  *Table  // nil: BuiltIn
	Ranges *Ranges // nil: NewRanges
	Names  Names   // nil: no DNS

	// LocalNames says that Names knows one's own networks: without a name there,
	// an address of this machine or a private network proves a claim wrong, too.
	// Otherwise it proves nothing: it may be a proxy's that nobody named, and most
	// DNS servers answer for such addresses that they have no name (RFC 6303).
	LocalNames bool
}

// A Verifier tells what bot a client is, and whether that is true. It is safe
// for concurrent use.
type Verifier struct {
	table  *Table
	ranges *Ranges
	names  Names
	local  bool           // names knows one's own networks
	checks map[*Bot]check // of those that can be checked, or are steered
}

// A check is how a claim to be a bot is checked.
type check struct {
	ranges   rangeMask // sets with its addresses
	whole    rangeMask // those of them outside of which nobody is the bot
	networks rangeMask // sets from where it may come all the same
	domains  []string  // lower case, without dots around
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
		}
	}
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

// Look tells what a client is taken for, by its user agent, and whether that
// is true, by its address. It never waits and allocates nothing. Names are
// asked only about clients that claim to be a bot whose names can be checked,
// and whose address is in none of its published ranges.
func (v *Verifier) Look(addr netip.Addr, userAgent string) fairshare.Bot {
	b, _ := v.table.Recognise(userAgent)
	if b == nil {
		return fairshare.Bot{}
	}
	state, _ := v.verify(b, plain(addr), v.names)
	return fairshare.Bot{Name: b.Name, Categories: b.Categories, State: state, Steered: b.Steered}
}

// A because says which step of a check decided.
type because uint8

const (
	noCheck      because = iota // the bot's operator offers none that we know
	noAddr                      // the client has no address
	localAddr                   // the address is of this machine or a private network
	inRanges                    // published
	nameFits                    // confirmed, and of the bot's domain
	nameDiffers                 // the DNS answered, and no confirmed name is of the bot's domain
	nameUnknown                 // the DNS has not answered
	outside                     // of published ranges that are whole
	inNetworks                  // outside, but in a network of the operator's or near it
	notWhole                    // outside of ranges that are not said to be whole
	namesUnasked                // only the DNS could tell, and it is not asked
)

// verify checks a claim: published ranges answer first, then confirmed names,
// and only then counts what the ranges do not hold.
func (v *Verifier) verify(b *Bot, addr netip.Addr, names Names) (fairshare.BotState, because) {
	index := v.ranges.index.Load()
	c := v.checks[b]
	ranges := c.ranges & index.known
	switch {
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
// No crawler comes from there, but all clients do of a proxy that nobody named.
func isLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}

// fits reports whether a name is one of the domains or ends in one, by whole
// labels.
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
