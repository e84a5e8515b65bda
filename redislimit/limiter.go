package redislimit

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// A Limiter is a [fairshare.Limiter] of one member of a group that counts
// together. It is safe for concurrent use.
type Limiter struct {
	core   *core
	local  *memlimit.Limiter // the view
	given  []fairshare.Limit
	specs  []*spec
	ids    []uint16
	policy string

	reloaded bool // limits may count from zero in the view that did not before

	away atomic.Pointer[awayTable]
}

var (
	_ fairshare.Limiter = (*Limiter)(nil)
	_ fairshare.Peeker  = (*Limiter)(nil)
)

// core is what the limiters of successive policies share.
type core struct {
	store  *Store
	opts   Options
	prefix string // of the keys that the versions of this program share
	limits string // prefix of the keys of limits
	slack  float64
	start  time.Time

	secret atomic.Pointer[secret]
	book   book

	groupKey groupHash

	mu    sync.Mutex // guards what follows
	specs atomic.Pointer[[]*spec]
	ids   map[string]uint16

	me    [memberBytes]byte
	token atomic.Uint64

	firstAt atomic.Int64 // ns since the Unix epoch; of the first take

	members atomic.Int64 // alive, with this one
	most    atomic.Int64 // most of the last five minutes
	group   group
	clock   clock
	pulse   pulse

	routes  atomic.Pointer[routes]
	finding sync.Mutex // held while the masters of a cluster are found
	stats   stats
	events  events

	awayState awayState
	away      *memlimit.Limiter // of the first limits; guarded by mu

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

const (
	memberBytes = 4
	tokenBytes  = 6
)

// Open returns a Limiter for limits. It waits for the store until ctx ends, and at
// most two seconds. If the store is away it starts without, as Options.Away says,
// and reports it. What it counts until it reaches the store for the first time is not
// handed over. The error is about the limits or the options.
func Open(ctx context.Context, limits []fairshare.Limit, opts Options) (*Limiter, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	c := &core{
		store: opts.Store, opts: opts, prefix: "fs1:" + opts.Name + ":", limits: "fs2:" + opts.Name + ":",
		slack: opts.Slack, start: time.Now(), ids: map[string]uint16{},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	var own secret
	rand.Read(own[:])
	rand.Read(c.me[:])
	c.secret.Store(&own)
	c.specs.Store(&[]*spec{})
	c.book.init(opts.Memory - opts.Memory/5)
	c.members.Store(1)
	c.most.Store(1)
	c.stats.init()
	c.events.report = opts.Report
	local, err := memlimit.New(limits, memlimit.Options{Memory: opts.Memory / 5})
	if err != nil {
		return nil, err
	}
	l := c.with(local, limits, opts.Policy)
	c.begin(ctx)
	return l, nil
}

// With returns a Limiter for another policy's limits. A limit that is in both
// keeps its counters, whatever its N. l stays usable, so that requests in
// progress can settle through it.
func (l *Limiter) With(limits []fairshare.Limit, policy string) (*Limiter, error) {
	local, err := l.local.With(limits)
	if err != nil {
		return nil, err
	}
	next := l.core.with(local, limits, policy)
	next.reloaded = true
	return next, nil
}

func (c *core) with(local *memlimit.Limiter, limits []fairshare.Limit, policy string) *Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &Limiter{core: c, local: local, given: slices.Clone(limits), policy: policy}
	specs := slices.Clone(*c.specs.Load())
	for i := range limits {
		s := newSpec(&limits[i], local, i, c.slack)
		s.viewOnly = s.viewOnly && !c.opts.alwaysAsk
		name := identity(&limits[i])
		id, ok := c.ids[name]
		if !ok {
			id = uint16(len(specs))
			c.ids[name], specs = id, append(specs, nil)
		}
		specs[id] = s
		l.specs, l.ids = append(l.specs, s), append(l.ids, id)
	}
	c.specs.Store(&specs)
	c.group.setPolicy(policy)
	return l
}

// spec returns the spec of an entry as of now.
func (c *core) spec(id uint16) *spec { return (*c.specs.Load())[id] }

// mono returns a time for differences, in ns.
func (c *core) mono() int64 { return int64(time.Since(c.start)) }

// Fresh returns the names of the limits that started from zero in this program. The
// store may have counts of them.
func (l *Limiter) Fresh() []string { return l.local.Fresh() }

// MadeFor returns an error unless the Limiter was made for these limits, in
// this order. [fairshare.NewGuard] calls it.
func (l *Limiter) MadeFor(limits []fairshare.Limit) error { return l.local.MadeFor(limits) }

// Local returns the limiter that holds this member's view: the counters of the
// group as far as this member knows them. It is for statistics.
func (l *Limiter) Local() *memlimit.Limiter { return l.local }

// Flush reports all that is pending. It waits until the store has it or ctx ends.
func (l *Limiter) Flush(ctx context.Context) error { return l.core.flush(ctx) }

// Close gives back what requests in progress have, reports what is pending, and
// leaves the group. It waits until ctx ends. Takes and charges afterwards count in
// this program alone. Limiters that With has returned are closed, too.
func (l *Limiter) Close(ctx context.Context) error {
	c := l.core
	if c.ctx.Err() != nil {
		return nil
	}
	c.giveBack()
	err := c.flush(ctx)
	c.leave(ctx)
	c.stop()
	c.wg.Wait()
	return err
}

var errFlush = errors.New("not all counts could be reported to the store")
