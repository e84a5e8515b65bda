// Package registrar connects a running server to its registry. It counts the
// requests and costs of clients in memory and writes them in the background, writes
// bans at once, and applies the changes that operators make. No request waits for
// the disk, except in [Registrar.Settle]. Start with [New].
package registrar

import (
	"context"
	"errors"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/registry"
)

// Options configure a Registrar. Store and Prefix are required.
type Options struct {
	Store registry.Store
	// BanStore gets the bans, and Store only clients and stories; nil means that Store
	// gets all. Bans do not wait then while Store is slow or away.
	BanStore registry.Store
	// Prefix returns the addresses that count as one client with this one, as
	// [fairshare.Policy.Client] does.
	Prefix func(netip.Addr) netip.Prefix
	// Lift is called when operators have lifted a client's bans that began at a time
	// or before; may be nil.
	Lift func(id fairshare.ClientID, at time.Time)
	// Forget is called, instead of Lift, when operators have forgotten a client. at is
	// in the server's time, stored is that of [registry.LiftedClient]. If it is nil, Lift is called.
	Forget func(id fairshare.ClientID, at, stored time.Time)
	// Changed is called after operators have changed overrides, labels or the attack
	// mode, and before these are read; may be nil. After an error it is called again.
	Changed func(context.Context) error
	// Applied is called after changes of operators have taken effect; may be nil.
	Applied func()
	Now     func() time.Time // the server's clock; nil means time.Now

	// Wall converts a time of Now to the system's time, which operators' commands use;
	// FromWall converts it back. nil means that the times are equal.
	Wall, FromWall func(time.Time) time.Time

	Log func(string) // gets messages for operators, one line each; may be nil

	// Bounds of the data in memory; 0 means 65,536 clients, 16,384 stories and
	// 1,048,576 bans. A network (IPv4 /16, IPv6 /32) has at most a tenth of the clients
	// and of the stories.
	Clients, Stories, Bans int
}

// A Registrar writes and reads a registry for a server. It is safe for
// concurrent use.
type Registrar struct {
	store    registry.Store
	onLift   func(fairshare.ClientID, time.Time)
	onForget func(id fairshare.ClientID, at, stored time.Time)
	changed  func(context.Context) error
	applied  func()
	wall     func(time.Time) time.Time
	fromWall func(time.Time) time.Time
	now      func() time.Time
	log      func(string)
	seed     maphash.Seed
	prefix   atomic.Pointer[func(netip.Addr) netip.Prefix]
	current  atomic.Pointer[Overrides]
	version  registry.Version // of current; used by Start, then by follow

	clients *table[client]
	stories *table[story]
	bans    *banQueue
	wakeups chan struct{} // for the writer

	// banWriter writes the bans to a store of their own; nil: they are written with the rest.
	banWriter *Registrar

	newStories atomic.Bool // some are not written yet
	writing    health
	following  health

	written struct{ clients, stories, bans atomic.Int64 } // rows
}

// New returns a Registrar. Call Start before the first request, then Run.
func New(o Options) *Registrar {
	g := &Registrar{store: o.Store, onLift: o.Lift, onForget: o.Forget, now: o.Now, log: o.Log,
		seed: maphash.MakeSeed(), wakeups: make(chan struct{}, 1)}
	if g.onLift == nil {
		g.onLift = func(fairshare.ClientID, time.Time) {}
	}
	if g.onForget == nil {
		g.onForget = func(id fairshare.ClientID, at, _ time.Time) { g.onLift(id, at) }
	}
	if g.changed = o.Changed; g.changed == nil {
		g.changed = func(context.Context) error { return nil }
	}
	if g.applied = o.Applied; g.applied == nil {
		g.applied = func() {}
	}
	same := func(t time.Time) time.Time { return t }
	if g.wall = o.Wall; g.wall == nil {
		g.wall = same
	}
	if g.fromWall = o.FromWall; g.fromWall == nil {
		g.fromWall = same
	}
	if g.now == nil {
		g.now = time.Now
	}
	if g.log == nil {
		g.log = func(string) {}
	}
	g.Replace(o.Prefix)
	g.current.Store(NewOverrides(nil, nil))
	g.clients = newTable[client](positiveOr(o.Clients, 1<<16), 8)
	g.stories = newTable[story](positiveOr(o.Stories, 1<<14), 32) // written at once: few wait, except in a flood
	g.bans = newBanQueue(g.seed, positiveOr(o.Bans, 1<<20))
	if o.BanStore != nil {
		o.Store, o.BanStore = o.BanStore, nil
		g.banWriter = New(o)
		g.banWriter.bans = g.bans
	}
	return g
}

// positiveOr returns n if it is positive, else the default.
func positiveOr(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Replace replaces Options.Prefix, such as after a reload of the policy. It is safe
// for concurrent use.
func (g *Registrar) Replace(prefix func(netip.Addr) netip.Prefix) { g.prefix.Store(&prefix) }

// Override returns the operators' override for a client, as [Overrides.Override]
// does; now is a time of Options.Now.
func (g *Registrar) Override(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	if o := g.current.Load(); !o.empty {
		return o.find(addr, bot.Name, trusted(&bot), g.wall(now))
	}
	return fairshare.Override{}
}

// Overrides calls yield with each override of operators for addresses or a bot that is in
// force at time now of the system's clock, in no order. It is safe for concurrent use.
func (g *Registrar) Overrides(now time.Time, yield func(registry.OverrideRecord)) {
	o := g.current.Load()
	for _, d := range o.addrs.All() {
		if d.inForce(now) {
			yield(d.OverrideRecord)
		}
	}
	for _, d := range o.bots {
		if d.inForce(now) {
			yield(d.OverrideRecord)
		}
	}
}

// wake makes the writer check its queues.
func (g *Registrar) wake() {
	select {
	case g.wakeups <- struct{}{}:
	default:
	}
}

// Start reads the overrides and labels of operators. Call it before the first
// request is judged, and before the bans of the registry are read: Run then lifts
// bans that operators lift in the meantime.
func (g *Registrar) Start(ctx context.Context) error {
	changes, err := g.store.Changes(ctx, g.version)
	if err != nil {
		return err
	}
	overrides, labels, err := g.store.Overrides(ctx)
	if err != nil {
		return err
	}
	g.current.Store(NewOverrides(overrides, labels))
	g.version = changes.Version
	return nil
}

// Run writes to the registry and applies operators' changes until ctx is done. Then
// it writes the rest, for at most 5 seconds; the error says how much could not be
// written. Call it once.
func (g *Registrar) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { g.follow(ctx) })
	wg.Go(func() { g.reportDropped(ctx) })
	w := newWriter(g)
	var bansErr error
	if g.banWriter != nil {
		w.bans = newBanQueue(g.seed, 1) // stays empty
		wg.Go(func() { bansErr = newWriter(g.banWriter).run(ctx) })
	}
	err := w.run(ctx)
	wg.Wait()
	return errors.Join(err, bansErr)
}

// Stats are figures of a Registrar. Counts are totals since New.
type Stats struct {
	Clients, Stories           int   // in memory
	DirtyClients, DirtyStories int   // of these, not written yet
	QueuedBans                 int   // not written yet
	WrittenClients             int64 // rows
	WrittenStories             int64
	WrittenBans                int64
	DroppedRequests            int64 // not counted, since their clients exceeded a bound
	DroppedRefusals            int64 // in no story, since it exceeded a bound
	DroppedBans                int64 // not queued, since they exceeded a bound
	WriteErrors, ReadErrors    int64
	Failing                    bool // the last write failed
}

// Stats returns the present figures. It is safe for concurrent use.
func (g *Registrar) Stats() Stats {
	var s Stats
	s.Clients, s.DirtyClients, s.DroppedRequests = g.clients.count()
	s.Stories, s.DirtyStories, s.DroppedRefusals = g.stories.count()
	s.QueuedBans = int(g.bans.pending.Load())
	g.bans.mu.Lock()
	s.DroppedBans = g.bans.dropped
	g.bans.mu.Unlock()
	s.WrittenClients, s.WrittenStories, s.WrittenBans = g.written.clients.Load(), g.written.stories.Load(),
		g.written.bans.Load()
	s.WriteErrors, s.ReadErrors = g.writing.errors.Load(), g.following.errors.Load()
	s.Failing = g.writing.failing.Load()
	if b := g.banWriter; b != nil {
		s.WrittenBans = b.written.bans.Load()
		s.WriteErrors += b.writing.errors.Load()
		s.Failing = s.Failing || b.writing.failing.Load()
	}
	return s
}
