// Package fleets finds fleets: clients at many addresses that behave as one
// program. Start with [New]. Call [Finder.Arrived] for each request,
// [Finder.Answered] after its answer, and [Finder.Changes] every few seconds.
//
// Clients with the user agent of a browser are grouped by signature, in three
// ways: by user agent and headers, by the owner of the address, and by which
// headers are present. A signature is a fleet if its clients
// read pages and almost never fetch what belongs to a page: style sheets, scripts,
// images. The site's other browsers must do so at the same time. judge.go describes
// the test and its error. A client belongs to a fleet if it has the signature and has
// not asked for an asset of a page. People may share the signature: a person
// leaves the fleet with the first style sheet.
//
// Bots that are known by name, clients that operators have labeled or allowed,
// clients that only an untrusted proxy names, and programs that do not claim to be
// browsers never belong to a fleet.
package fleets

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/offheap"
)

// Options of a Finder. The zero Options are usable.
type Options struct {
	// Client returns a client's prefix, as Policy.Client does; nil: as a zero Policy.
	Client func(netip.Addr) netip.Prefix
}

// A Finder finds fleets. It is safe for concurrent use.
//
// Its memory is fixed, for any number of clients and user agents: 7.5 MiB,
// allocated at the first request. It stores no address, only seeded hashes.
type Finder struct {
	client func(netip.Addr) netip.Prefix
	seed   maphash.Seed
	agents agentCache

	mu       sync.Mutex
	clients  []client // nil before the first request
	heads    []head
	slots    []slot
	touched  [2]slotSet // in the present period and in the one before; other slots have no counts and no fleet
	base     time.Time  // times are seconds since base
	latest   uint32
	judgedAt uint32
	periodAt uint32
	habit    habit
	fleets   []*fleet
	found    []Fleet // since the last Changes
	ended    []Fleet
}

// New returns a Finder without fleets.
func New(opts Options) *Finder {
	f := &Finder{client: opts.Client, seed: maphash.MakeSeed()}
	if f.client == nil {
		f.client = new(fairshare.Policy).Client
	}
	return f
}

// Arrived records that a request has arrived, and sets Request.Fleet and
// Request.FleetNew. Requests for assets belong to no fleet, so that a person's
// browser can always fetch them.
//
// A time before the latest one counts as the latest one.
func (f *Finder) Arrived(req *fairshare.Request) {
	s := f.Sight(req)
	f.ArrivedAs(s, req, s.kind == page && req.Bot.Name == "" && f.agents.claimsBrowser(f.seed, req.UserAgent))
}

// A Sighting is what Arrived and Answered find out about a request at first. The zero Sighting is of one that
// they do not look at.
type Sighting struct {
	hash uint64 // of the client
	kind kind
}

// Sight returns the Sighting of a request.
func (f *Finder) Sight(req *fairshare.Request) Sighting {
	if req.Proxy || req.Via.IsValid() {
		return Sighting{}
	}
	return f.sight(req.Addr, req.Method, req.Path)
}

func (f *Finder) sight(addr netip.Addr, method, path string) Sighting {
	kind := kindOf(method, path)
	if kind == other || !addr.IsValid() {
		return Sighting{}
	}
	return Sighting{f.hash(addr), kind}
}

// Expect reads the memory of the clients of some requests that come next. The processor overlaps these reads,
// but not those of several requests. The result is of no use, except that it makes the compiler keep the reads.
func (f *Finder) Expect(next []Sighting) (sum uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients == nil {
		return 0
	}
	for i := range next {
		set := f.clients[next[i].hash%clientSets*clientWays:][:clientWays:clientWays]
		sum += set[0].tag + set[clientWays-1].tag
	}
	return sum
}

// ArrivedAs is Arrived for a request whose Sighting is known, and whether its user agent is that of a browser:
// see [browser.ClaimOf].
func (f *Finder) ArrivedAs(s Sighting, req *fairshare.Request, browser bool) {
	req.Fleet, req.FleetNew = f.arrived(s, req, browser)
}

func (f *Finder) arrived(s Sighting, req *fairshare.Request, browser bool) (fleet string, isNew bool) {
	if s.kind == other {
		return "", false
	}
	if s.kind == page && (req.Bot.Name != "" || !browser || len(req.Override.Labels) > 0 ||
		req.Override.Action == fairshare.Allow) {
		return "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock(req.Time)
	c := f.find(s.hash, now, s.kind == page)
	if c == nil {
		return "", false
	}
	if s.kind == asset {
		f.askAsset(c, now)
		return "", false
	}
	f.visit(c, req, now)
	if fleet = f.join(c, req, s.hash, now); fleet == "" {
		return "", false
	}
	return fleet, c.flags&readPage == 0
}

// An Answer is the site's answer to a request.
type Answer struct {
	Addr   netip.Addr // as in the fairshare.Request
	Method string
	Path   string // as judged
	Status int    // 0 if there was none
	// Type is the Content-Type of the answer; "" means that it is not known, as in
	// a log. The path then tells whether it was a page.
	Type string
}

// Answered records the answer to a request of [Finder.Arrived], at time now. Do
// not call it for requests that were refused, nor for clients that a peer named
// which is not trusted.
func (f *Finder) Answered(a *Answer, now time.Time) {
	f.AnsweredAs(f.sight(a.Addr, a.Method, a.Path), a, now)
}

// AnsweredAs is Answered for a request whose Sighting is known.
func (f *Finder) AnsweredAs(s Sighting, a *Answer, now time.Time) {
	if s.kind == other {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.clock(now)
	c := f.find(s.hash, at, false)
	if c == nil {
		return
	}
	if s.kind == asset {
		f.answeredAsset(c, a, at)
		return
	}
	if c.flags&waiting == 0 || a.Status != 200 || !isPage(a) {
		return
	}
	c.flags = c.flags&^waiting | readPage
	f.enter(c, s.hash, a.Addr)
}

// Refused records that a request of a fleet was refused or blocked.
func (f *Finder) Refused(name string) {
	if name == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range f.fleets {
		if fl.Name == name {
			fl.Refused++
		}
	}
}

// Fleets returns the present fleets, the one with the most requests first.
func (f *Finder) Fleets(now time.Time) []Fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients != nil {
		f.clock(now)
	}
	all := make([]Fleet, 0, len(f.fleets))
	for _, fl := range f.fleets {
		all = append(all, f.describe(fl))
	}
	sortFleets(all)
	return all
}

// Changes returns the fleets that were found and those that ended since the last
// call, as they were then. At most 64 of each are remembered.
func (f *Finder) Changes(now time.Time) (found, ended []Fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients == nil {
		return nil, nil
	}
	f.clock(now)
	found, ended = f.found, f.ended
	f.found, f.ended = nil, nil
	return found, ended
}

// clock returns a time in seconds since base, and judges the signatures if that
// is due. The lock is held.
func (f *Finder) clock(t time.Time) uint32 {
	if f.clients == nil {
		f.clients = offheap.Slice[client](f, clientSets*clientWays)
		f.heads, f.slots = make([]head, slots), make([]slot, slots)
		f.base = t.Add(-time.Second) // no time is 0
		f.latest = 1
		f.judgedAt, f.periodAt = f.latest, f.latest
	}
	if d := t.Sub(f.base); d > 0 {
		f.latest = max(f.latest, uint32(min(d/time.Second, 1<<32-1)))
	}
	if f.latest-f.judgedAt >= judgeEvery {
		f.judge(f.latest)
	}
	return f.latest
}

// time returns the time of some seconds since base.
func (f *Finder) time(at uint32) time.Time { return f.base.Add(time.Duration(at) * time.Second) }

// hash returns the hash of a client.
func (f *Finder) hash(addr netip.Addr) uint64 {
	a := f.client(addr).Addr().As16()
	return maphash.Bytes(f.seed, a[:])
}

// networkHash returns the hash of the /24 or /48 of an address.
func (f *Finder) networkHash(addr netip.Addr) uint64 {
	a := network.Of(addr).Addr().As16()
	return maphash.Bytes(f.seed, a[:])
}
