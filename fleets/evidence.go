package fleets

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"fairshare"
)

// A Fleet is a group of clients that behave as one program, with the evidence.
// All counts of clients and networks are estimates, usually within 10 %.
type Fleet struct {
	Name  string // the same for the same signature, also after a restart
	Since time.Time
	Last  time.Time // its latest request

	// UserAgent, Owner and Headers say what the clients share: the user agent and
	// headers; or the owner of their addresses; or, with Headers, only which headers
	// they send. UserAgent is cut to 120 bytes.
	UserAgent string
	Owner     fairshare.Owner
	Headers   bool

	Addresses int64
	Networks  int64 // IPv4 /24 and IPv6 /48
	Requests  int64 // for pages
	Refused   int64 // requests that were refused or blocked

	Judged int64   // clients that were judged when the fleet was found
	Assets int64   // of Judged: asked for an asset
	Usual  float64 // share of the site's other browsers that did, from 0 to 1

	Paths int64  // different first pages of a visit
	Entry string // the first page of most clients, cut to 64 bytes; "" if there is none
	Most  string // the owner of most addresses; "" if there is none

	Gap time.Duration // between the requests of a client, if it is nearly the same for all; else 0
}

// A fleet is a Fleet while it lasts.
type fleet struct {
	Fleet
	last      uint32
	slot      *slot
	addresses sketch
	networks  sketch
	paths     sketch
}

func newFleet(v view, s *slot, usual float64, now uint32) *fleet {
	n, k := s.settled()
	fl := &fleet{last: now, slot: s, Fleet: Fleet{
		Name: fmt.Sprintf("fleet-%04x", s.id>>16^s.id&0xFFFF), Judged: int64(n), Assets: int64(k), Usual: usual,
	}}
	switch v {
	case byAgent:
		fl.UserAgent = strings.ToValidUTF8(string(s.agent[:s.agentLen]), "?")
	case byOwner:
		fl.Owner = s.owner.value
	case byHeaders:
		fl.Headers = true
	}
	for i := range s.periods {
		fl.Requests += int64(s.periods[i].requests)
		fl.addresses.join(&s.periods[i].addresses)
		fl.networks.join(&s.periods[i].networks)
		fl.paths.join(&s.periods[i].paths)
	}
	return fl
}

// describe returns a fleet with its evidence up to now.
func (f *Finder) describe(fl *fleet) Fleet {
	d := fl.Fleet
	d.Last = f.time(fl.last)
	d.Addresses = fl.addresses.estimate()
	d.Networks = min(fl.networks.estimate(), d.Addresses)
	paths := fl.paths
	paths.join(&fl.slot.periods[0].paths)
	d.Paths = paths.estimate()
	if fl.slot.entry.share() > 0.5 {
		d.Entry = strings.ToValidUTF8(string(bytes.TrimRight(fl.slot.entry.value[:], "\x00")), "?")
	}
	if o := &fl.slot.owner; o.share() > 0.5 {
		d.Most = o.value.String()
	}
	d.Gap = fl.slot.gaps.regular()
	return d
}

// Shared describes what the clients of a fleet have in common.
func (f *Fleet) Shared() string {
	switch {
	case f.Owner.ASN != 0:
		return "all from " + f.Owner.String()
	case f.Headers:
		return "the same set of headers, with changing user agents"
	}
	return fmt.Sprintf("the same headers and user agent %q", f.UserAgent)
}

// Evidence describes why the clients are a fleet, without their number.
func (f *Fleet) Evidence() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %d clients fetched the assets of a page, as %.0f %% of the site's other browsers do",
		few(f.Assets), f.Judged, 100*f.Usual)
	if f.Entry != "" {
		fmt.Fprintf(&b, "; most began at %q", f.Entry)
	} else if f.Paths > 1 {
		fmt.Fprintf(&b, "; they began at about %d different pages", f.Paths)
	}
	if f.Gap > 0 {
		fmt.Fprintf(&b, "; a client sends a request every %v", f.Gap)
	}
	if f.Most != "" && f.Owner.ASN == 0 {
		fmt.Fprintf(&b, "; most are from %s", f.Most)
	}
	return b.String()
}

func few(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func sortFleets(all []Fleet) {
	slices.SortFunc(all, func(a, b Fleet) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
}

// gaps sums up the times between the requests of single clients, in seconds.
type gaps struct {
	n            uint32
	sum, squares float64
}

func (g *gaps) add(seconds uint32) {
	g.n++
	g.sum += float64(seconds)
	g.squares += float64(seconds) * float64(seconds)
}

// regular returns the mean gap if the gaps differ from it by less than a quarter on
// average; else 0.
func (g *gaps) regular() time.Duration {
	if g.n < fewestClients {
		return 0
	}
	mean := g.sum / float64(g.n)
	if spread := math.Sqrt(max(g.squares/float64(g.n)-mean*mean, 0)); mean < 1 || spread > mean/4 {
		return 0
	}
	return time.Duration(math.Round(mean)) * time.Second
}
