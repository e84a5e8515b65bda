// Package registrar stands between requests and the registry: it counts what
// clients have had, in memory, and has it written behind the requests; it has
// bans written at once; and it follows what operators say. No disk ever slows a
// request down. Start with [New].
package registrar

import (
	"context"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

// A Store is the part of a [sqlregistry.Registry] that is needed.
//
// A Write happens whole or not at all. One that fails is done again: if it
// happened nevertheless, what it counted of clients counts twice. A Story is
// written in place of the one that is known; a Store that has
// [sqlregistry.Registry.Story] is asked for that one before, so that it goes on.
type Store interface {
	Write(context.Context, sqlregistry.Batch) error
	Changes(ctx context.Context, since sqlregistry.Version) (sqlregistry.Changes, error)
	Overrides(context.Context) ([]fairshare.OverrideRecord, []fairshare.Label, error)
	Prune(ctx context.Context, now time.Time, rows int) (more bool, err error)
}

var _ Store = (*sqlregistry.Registry)(nil)

// Options say what a registrar does. Store and Prefix are needed.
type Options struct {
	Store Store
	// the addresses that are one client with this one, as [fairshare.Policy.Client]
	Prefix func(netip.Addr) netip.Prefix
	// told that operators lifted the bans of a client that began until at; nil: nobody
	Lift func(id fairshare.ClientID, at time.Time)
	// Forget is told, instead of Lift, that operators have forgotten a client, and
	// the time as it is stored; nil: Lift is.
	Forget func(id fairshare.ClientID, at, stored time.Time)
	Now    func() time.Time // the server's clock; nil means time.Now

	// Wall turns a time of Now into the system's time, which operators' commands go
	// by, and FromWall turns it back; nil: they are the same.
	Wall, FromWall func(time.Time) time.Time

	Log func(string) // told what an operator should know, a line each; nil: nobody

	// Bounds of what waits in memory; 0 means 65,536 clients, 16,384 stories
	// and 1,048,576 bans. Of clients and stories a network, an IPv4 /16 or an
	// IPv6 /32, has at most a tenth.
	Clients, Stories, Bans int
}

// A Registrar writes and reads a registry for a server. It is safe for
// concurrent use.
type Registrar struct {
	store    Store
	lift     func(fairshare.ClientID, time.Time)
	undo     func(id fairshare.ClientID, at, stored time.Time) // Options.Forget
	wall     func(time.Time) time.Time
	fromWall func(time.Time) time.Time
	now      func() time.Time
	log      func(string)
	seed     maphash.Seed
	prefix   atomic.Pointer[func(netip.Addr) netip.Prefix]
	words    atomic.Pointer[Overrides]
	version  sqlregistry.Version // of the words; the follower's

	clients *table[client]
	stories *table[story]
	bans    *banQueue
	awake   chan struct{}

	storyWaits atomic.Bool // a new story does
	writing    health
	following  health

	written struct{ clients, stories, bans atomic.Int64 } // rows
}

// New returns a registrar. Start it before the first request, and Run it.
func New(o Options) *Registrar {
	g := &Registrar{store: o.Store, lift: o.Lift, undo: o.Forget, now: o.Now, log: o.Log, seed: maphash.MakeSeed(),
		awake: make(chan struct{}, 1)}
	if g.lift == nil {
		g.lift = func(fairshare.ClientID, time.Time) {}
	}
	if g.undo == nil {
		g.undo = func(id fairshare.ClientID, at, _ time.Time) { g.lift(id, at) }
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
	g.words.Store(NewOverrides(nil, nil))
	g.clients = newTable[client](or(o.Clients, 1<<16), 8)
	g.stories = newTable[story](or(o.Stories, 1<<14), 32) // they are written at once: few wait, but in a flood
	g.bans = newBanQueue(g.seed, or(o.Bans, 1<<20))
	return g
}

func or(n, usual int) int {
	if n <= 0 {
		return usual
	}
	return n
}

// Replace replaces Options.Prefix, as when a policy is read again.
func (g *Registrar) Replace(prefix func(netip.Addr) netip.Prefix) { g.prefix.Store(&prefix) }

// Override returns what operators have said of who sends a request.
func (g *Registrar) Override(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	if w := g.words.Load(); !w.none {
		return w.find(addr, bot.Name, trusted(&bot), g.wall(now))
	}
	return fairshare.Override{}
}

// wake has the writer look what there is to do.
func (g *Registrar) wake() {
	select {
	case g.awake <- struct{}{}:
	default:
	}
}

// Start reads what operators have said. Call it before the first request is
// judged, and before the bans of the registry are read: those that are lifted
// meanwhile are then lifted by Run.
func (g *Registrar) Start(ctx context.Context) error {
	changes, err := g.store.Changes(ctx, g.version)
	if err != nil {
		return err
	}
	said, labels, err := g.store.Overrides(ctx)
	if err != nil {
		return err
	}
	g.words.Store(NewOverrides(said, labels))
	g.version = changes.Version
	return nil
}

// Run writes and follows until ctx is done. Then it writes what there is, in
// at most 5 seconds; the error tells what could not be written. Call it once.
func (g *Registrar) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { g.follow(ctx) })
	wg.Go(func() { g.tellLeftOut(ctx) })
	err := newWriter(g).run(ctx)
	wg.Wait()
	return err
}

// Stats are figures of a registrar, since it was made.
type Stats struct {
	Clients, Stories           int   // in memory
	DirtyClients, DirtyStories int   // of these, not written
	QueuedBans                 int   // not written
	WrittenClients             int64 // rows
	WrittenStories             int64
	WrittenBans                int64
	LeftOut                    int64 // requests of clients for which there was no place
	LeftOutStories             int64 // refusals that are in no story, likewise
	LostBans                   int64 // not queued, as there was no place
	WriteErrors, ReadErrors    int64
	Failing                    bool // the last write failed
}

// Stats returns figures as they are now.
func (g *Registrar) Stats() Stats {
	var s Stats
	s.Clients, s.DirtyClients, s.LeftOut = g.clients.count()
	s.Stories, s.DirtyStories, s.LeftOutStories = g.stories.count()
	s.QueuedBans = int(g.bans.pending.Load())
	g.bans.mu.Lock()
	s.LostBans = g.bans.lost
	g.bans.mu.Unlock()
	s.WrittenClients, s.WrittenStories, s.WrittenBans = g.written.clients.Load(), g.written.stories.Load(),
		g.written.bans.Load()
	s.WriteErrors, s.ReadErrors = g.writing.errors.Load(), g.following.errors.Load()
	s.Failing = g.writing.failing.Load()
	return s
}
