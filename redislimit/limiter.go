package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// Options of a Limiter. The zero value of each but Store is usable.
type Options struct {
	// Store is where the members count together. It may be shared, and is not
	// closed by the Limiter.
	Store *Store

	// Name is that of the group: programs with the same name and store count
	// together. It has 1 to 64 letters, digits, hyphens, underscores and dots. Empty
	// means "default".
	Name string

	// Slack is the part of each limit that the members may admit beyond it in
	// exchange for not asking the store each time. 0 means 1/16, and a value below 0
	// means none: all is asked. It is at most 1/2.
	Slack float64

	// Wait is the longest time that a request waits for the store. 0 means 25 ms.
	Wait time.Duration

	// Away says what a member admits while the store cannot be reached.
	Away Away

	// Memory is the size in bytes of the tables of this member: half for the
	// counters, see [memlimit.Options], and half for what is known of the store. 0
	// means memlimit.DefaultMemory. A client and limit takes about 260 bytes.
	Memory int64

	// Member names this program for people. Empty means the name of the host.
	Member string

	// Policy names the policy of this member, such as a digest of its file. Members
	// with different policies for more than five minutes are reported.
	Policy string

	// Report is called with what operators should know, one event at a time. It
	// must not block. nil means that events are written to slog's default logger.
	Report func(Event)

	// Look tries the store without becoming a member: the others do not see this
	// program, and their credit and shares stay. It is for diagnosis.
	Look bool

	fixedWait bool // in tests: each question waits for the whole Wait
	alwaysAsk bool // in tests: no view is recent enough
}

// Away says what a member admits while the store is away.
type Away uint8

const (
	// AwayShare admits a share of each limit: with M members alive in the last five
	// minutes 1/M of it, at least 1.
	AwayShare Away = iota
	// AwayWhole admits the whole of each limit. It is for members behind a balancer
	// that hashes by client, so that one member sees all requests of a client.
	AwayWhole
	// AwayOpen admits all requests that only limits in the store refuse.
	AwayOpen
)

// String returns the name in a policy file.
func (a Away) String() string {
	switch a {
	case AwayShare:
		return "share"
	case AwayWhole:
		return "whole"
	case AwayOpen:
		return "open"
	}
	return fmt.Sprintf("away %d", uint8(a))
}

// Defaults of Options.
const (
	DefaultSlack = 1.0 / 16
	DefaultWait  = 25 * time.Millisecond
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
	c.book.init(opts.Memory / 2)
	c.members.Store(1)
	c.most.Store(1)
	c.stats.init()
	c.events.report = opts.Report
	local, err := memlimit.New(limits, memlimit.Options{Memory: opts.Memory / 2})
	if err != nil {
		return nil, err
	}
	l := c.with(local, limits, opts.Policy)
	c.begin(ctx)
	return l, nil
}

func (o *Options) check() error {
	if o.Store == nil {
		return errors.New("the store is missing")
	}
	if o.Name == "" {
		o.Name = "default"
	}
	if len(o.Name) > 64 {
		return errors.New("the name of the group is longer than 64 bytes")
	}
	for _, r := range o.Name {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			continue
		}
		return fmt.Errorf("the name of the group %q contains %q: use letters, digits, dots, - and _", o.Name, r)
	}
	switch {
	case o.Slack == 0:
		o.Slack = DefaultSlack
	case o.Slack < 0:
		o.Slack = 0
	case o.Slack > 0.5:
		return fmt.Errorf("a slack of %g is above 1/2", o.Slack)
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Wait < time.Millisecond || o.Wait > 10*time.Second {
		return fmt.Errorf("a wait of %v is not between 1ms and 10s", o.Wait)
	}
	if o.Memory < 0 {
		return fmt.Errorf("memory of %d bytes", o.Memory)
	}
	if o.Memory == 0 {
		o.Memory = memlimit.DefaultMemory
	}
	if o.Away > AwayOpen {
		return fmt.Errorf("unknown %s", o.Away)
	}
	if o.Member == "" {
		o.Member, _ = os.Hostname()
	}
	if o.Report == nil {
		o.Report = func(e Event) { slog.Warn(e.String()) }
	}
	return nil
}

// With returns a Limiter for another policy's limits. A limit that is in both
// keeps its counters, whatever its N. l stays usable, so that requests in
// progress can settle through it.
func (l *Limiter) With(limits []fairshare.Limit, policy string) (*Limiter, error) {
	local, err := l.local.With(limits)
	if err != nil {
		return nil, err
	}
	return l.core.with(local, limits, policy), nil
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

// A request is one call of Take or Settle on its way.
type request struct {
	names   []name
	keys    [][16]byte
	takes   []fairshare.Take
	charges []fairshare.Charge
	used    []int64
	refs    []ref
	set     uint64 // shards
	given   []part
	away    bool // a master of one of the keys is away
}

var requests = sync.Pool{New: func() any { return new(request) }}

const none ref = -1

// name hashes the keys of a request, each once.
func (r *request) name(s *secret, count int, key func(int) []byte) {
	r.names, r.keys, r.refs, r.set, r.away = r.names[:0], r.keys[:0], r.refs[:0], 0, false
	r.keys = slices.Grow(r.keys, count)[:count]
	for i := range count {
		k := key(i)
		n, known := name{}, false
		for j := i - 1; j >= 0 && j >= i-4; j-- {
			if other := key(j); len(other) == len(k) && len(k) > 0 && &other[0] == &k[0] {
				n, known = r.names[j], true
				break
			}
		}
		if !known {
			n = s.name(k)
		}
		r.names = append(r.names, n)
		r.keys[i] = n.bytes()
		r.set |= 1 << n.shard()
	}
}

// entries finds the entries of a request. The shards are locked.
func (l *Limiter) entries(r *request, now int64, limit func(int) int, key func(int) []byte, create bool) {
	c := l.core
	s := c.secret.Load()
	for i := range r.names {
		place := limit(i)
		if sp := l.specs[place]; sp.private || sp.viewOnly && create {
			r.refs = append(r.refs, none)
			continue
		}
		r.refs = append(r.refs, c.book.get(bookKey{r.names[i], l.ids[place]}, now,
			func() uint64 { return s.tag(key(i)) }, c.drop))
	}
}

// drop has the view forget what other members have of an entry that goes.
func (c *core) drop(e *entry) {
	if e.others > 0 {
		s, key := c.spec(e.key.id), e.key.name.bytes()
		s.local.AddHeld(s.index, key[:], -e.others)
	}
}

// Take implements [fairshare.Limiter]. A request may name a limit and key only
// once. It waits for the store only if the view does not suffice, and at most
// for Options.Wait; it ignores ctx, since a charge that is on its way cannot be
// called back.
func (l *Limiter) Take(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if len(takes) != len(tallies) {
		return fmt.Errorf("%d takes and %d tallies", len(takes), len(tallies))
	}
	if len(takes) == 0 {
		return nil
	}
	c := l.core
	at := c.clock.correct(now)
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.name(c.secret.Load(), len(takes), func(i int) []byte { return takes[i].Key })
	r.takes = append(r.takes[:0], takes...)
	r.used = slices.Grow(r.used[:0], len(takes))[:len(takes)]
	for i := range r.takes {
		r.takes[i].Key = r.keys[i][:]
	}
	if c.opts.alwaysAsk && slices.ContainsFunc(takes, func(t fairshare.Take) bool { return t.DryRun }) {
		if err := l.Peek(context.Background(), now, takes, tallies); err != nil { // else nobody waits for dry takes
			return err
		}
	}
	q, read := l.decide(r, at, takes, tallies, true)
	if read {
		l.read(q)
		r.refs = r.refs[:0]
		q, _ = l.decide(r, at, takes, tallies, false)
	}
	if q != nil {
		return l.await(r, q, at, tallies)
	}
	return nil
}

// decide decides by the view. If that does not suffice it returns a question. With
// read it inquiries for states only, and nothing was charged.
func (l *Limiter) decide(r *request, at time.Time, takes []fairshare.Take, tallies []fairshare.Tally, first bool) (
	q *question, read bool) {
	c := l.core
	c.book.lock(r.set)
	defer c.book.unlock(r.set)
	l.entries(r, at.UnixNano(), func(i int) int { return takes[i].Limit },
		func(i int) []byte { return takes[i].Key }, true)
	if err := l.local.TakeRoom(at, r.takes, tallies, r.used); err != nil {
		panic(err) // the lengths are equal
	}
	pass, dryPass := true, true
	for i := range tallies {
		if tallies[i].Over && r.takes[i].DryRun {
			dryPass = false
		} else if tallies[i].Over {
			pass = false
		}
	}
	if !pass && l.isOpen(r, tallies) {
		c.stats.away.Add(1)
		clear(tallies)
		return nil, false
	}
	ns := at.UnixNano()
	if c.firstAt.Load() == 0 {
		c.firstAt.CompareAndSwap(0, ns)
	}
	r.given = r.given[:0]
	members := c.members.Load()
	asked, old := false, false
	for i := range r.takes {
		if r.refs[i] == none {
			continue
		}
		t, e, s := &r.takes[i], c.book.at(r.refs[i]), l.specs[r.takes[i].Limit]
		e.at, e.every = ns, t.Every
		if !pass || t.DryRun && !dryPass {
			if s.kind == quiet && !e.noted {
				e.noted = true
				c.queueNote(r.refs[i], e)
			}
			if tallies[i].Over && !e.reading && c.isOld(e, s) && c.isUp(e.tag) {
				old = old || first && !pass && !t.DryRun || pass && t.DryRun
			}
			continue
		}
		p := part{ref: r.refs[i], key: e.key, tag: e.tag, take: int32(i), dry: t.DryRun, spec: s, every: t.Every,
			views: e.views}
		p.cost = t.Cost
		if s.held {
			p.cost = tallies[i].Held
		} else if s.settled {
			if !c.opts.alwaysAsk {
				continue
			}
			p.cost = 0
		}
		p.amount = s.amount(p.cost, t.Every)
		share := s.share(members)
		pending := e.unacked
		if s.tracked {
			pending = max(0, pending+e.own-e.acked)
		}
		up := c.isUp(e.tag)
		p.credit = !up || (e.known || c.remembers(p.ref, s, ns)) && share > 0 && pending+p.cost <= share &&
			r.used[i]+p.cost <= s.allowed-members*share
		r.away = r.away || !up
		if s.tracked {
			e.own += p.cost
		}
		switch {
		case !p.credit:
			asked = true
			e.provisional += p.amount
		case !s.tracked:
			e.pend.charge(s, p.amount, ns, ns)
			e.unacked = addSaturated(e.unacked, p.cost)
			fallthrough
		default:
			c.queue(r.refs[i], e, pending+p.cost >= (share+1)/2)
		}
		r.given = append(r.given, p)
	}
	if old {
		q = l.readAll(r, pass)
		if !pass {
			return q, true
		}
		c.stats.reads.Add(1) // nobody waits for what a dry run says
		q.state.Store(abandonedPass)
		l.submit(q)
		q = nil
	}
	if asked || r.away {
		q = newQuestion()
		q.parts = append(q.parts, r.given...)
		q.needsStore = asked
	} else if pass {
		c.stats.credit.Add(1)
	} else {
		c.stats.refused.Add(1)
	}
	return q, false
}

// isOpen reports whether a refused request passes because the store is away and
// Options.Away says so. The shards are locked.
func (l *Limiter) isOpen(r *request, tallies []fairshare.Tally) bool {
	c := l.core
	if c.opts.Away != AwayOpen {
		return false
	}
	for i := range tallies {
		if tallies[i].Over && !r.takes[i].DryRun && (r.refs[i] == none || c.isUp(c.book.at(r.refs[i]).tag)) {
			return false
		}
	}
	return true
}

// readAll returns a question for the states of a group that the view refuses. The
// shards are locked.
func (l *Limiter) readAll(r *request, dry bool) *question {
	q := newQuestion()
	for i := range r.takes {
		if r.refs[i] == none || r.takes[i].DryRun != dry {
			continue
		}
		e := l.core.book.at(r.refs[i])
		e.reading = true
		q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, reads: true})
	}
	return q
}

// remembers reports whether this member has forgotten no state of the limit's last
// window. Then a state that it does not know has no counts of it. Without this,
// clients could have credit again by having their states evicted.
func (c *core) remembers(r ref, s *spec, ns int64) bool {
	return ns-max(c.firstAt.Load(), c.book[r.shard()].evicted) > s.forgets
}

// isOld reports whether a view that refuses is to be read again.
func (c *core) isOld(e *entry, s *spec) bool {
	return !e.known || c.opts.alwaysAsk || c.mono()-e.seen > s.refresh
}

// read waits until the states of a question are in the view.
func (l *Limiter) read(q *question) {
	c := l.core
	c.stats.reads.Add(1)
	l.submit(q)
	if q.wait(c, c.deadline(q)) == late {
		if q.state.CompareAndSwap(waiting, abandonedPass) {
			return // its last answer releases it
		}
		<-q.done
	}
	q.release()
}

// await waits for the answer to a question and fills in tallies.
func (l *Limiter) await(r *request, q *question, at time.Time, tallies []fairshare.Tally) error {
	c := l.core
	q.at = at
	verdict := noAnswer
	if q.needsStore {
		q.began = c.mono()
		c.stats.questions.Add(1)
		l.submit(q)
		if verdict = q.wait(c, c.deadline(q)); verdict == late {
			c.stats.late.Add(1)
			c.missed(q)
		}
	}
	want := verdict
	if verdict == noAnswer || verdict == late || r.away && verdict != refused {
		want = l.takeAway(r, q, at, tallies)
		switch verdict {
		case late:
			abandoned := [...]int32{abandonedPass, abandonedDry, abandonedRefuse}[want-passed]
			if !q.state.CompareAndSwap(waiting, abandoned) { // the answer came just now
				<-q.done
				q.resolve(c, want)
				q.release()
			}
		default:
			q.resolve(c, want)
			q.release()
		}
		return nil
	}
	q.resolve(c, want)
	q.release()
	if want != passed {
		l.explain(r, at, tallies, want)
	}
	return nil
}

// missed notes for the breakers that a question had no answer in time.
func (c *core) missed(q *question) {
	for i := range q.parts {
		p := &q.parts[i]
		if i > 0 && q.parts[i-1].tag == p.tag || p.credit {
			continue
		}
		if m := c.master(p.tag); m.breaker.missed(c.ownTime()) {
			m.wentAway()
		}
	}
}

// explain fills in the tallies of the group that the store refused.
func (l *Limiter) explain(r *request, at time.Time, tallies []fairshare.Tally, verdict int32) {
	peeked := make([]fairshare.Tally, len(tallies))
	if err := l.local.Peek(context.Background(), at, r.takes, peeked); err != nil {
		panic(err)
	}
	over, worst := false, -1
	for i := range tallies {
		dry := r.takes[i].DryRun
		switch {
		case verdict == refused && dry:
			tallies[i] = fairshare.Tally{}
		case verdict == refused || dry:
			tallies[i] = peeked[i]
			over = over || peeked[i].Over
			room := func(i int) int64 { return l.specs[r.takes[i].Limit].allowed - peeked[i].Used }
			if r.refs[i] != none && (worst < 0 || room(i) < room(worst)) {
				worst = i
			}
		}
	}
	if !over && worst >= 0 { // there is room again by now
		tallies[worst].Over, tallies[worst].Wait = true, time.Millisecond
	}
}

// Settle implements [fairshare.Limiter]. It never waits.
func (l *Limiter) Settle(_ context.Context, now time.Time, charges []fairshare.Charge) error {
	if len(charges) == 0 {
		return nil
	}
	c := l.core
	at := c.clock.correct(now)
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.name(c.secret.Load(), len(charges), func(i int) []byte { return charges[i].Key })
	r.charges = append(r.charges[:0], charges...)
	c.book.lock(r.set)
	l.entries(r, at.UnixNano(), func(i int) int { return charges[i].Limit },
		func(i int) []byte { return charges[i].Key }, false)
	members, ns := c.members.Load(), at.UnixNano()
	away := false
	for i := range r.charges {
		ch := &r.charges[i]
		ch.Key = r.keys[i][:]
		if !ch.At.IsZero() {
			ch.At = c.clock.correct(ch.At)
		}
		if r.refs[i] == none {
			continue
		}
		e, s := c.book.at(r.refs[i]), l.specs[ch.Limit]
		e.at = ns
		share := s.share(members)
		urgent := false
		if !c.isUp(e.tag) {
			away = true
			c.stats.handing.Add(1)
		}
		switch {
		case s.kind == concurrent:
			if ch.Cost >= 0 || e.own <= 0 {
				ch.Cost = 0
			} else {
				e.own--
			}
		default:
			if s.held {
				ch.Held = min(max(0, ch.Held), e.own) // whatever is on its way
				e.own -= ch.Held
			}
			if ch.Cost != 0 {
				e.pend.charge(s, s.amount(ch.Cost, ch.Every), ns, ch.At.UnixNano())
				e.unacked = addSaturated(e.unacked, max(0, ch.Cost))
				urgent = e.unacked >= (share+1)/2
			}
		}
		c.queue(r.refs[i], e, urgent)
	}
	err := l.local.Settle(context.Background(), at, r.charges)
	c.book.unlock(r.set)
	if away {
		l.settleAway(r, at)
	}
	return err
}

// Peek implements [fairshare.Peeker]. States that this member has not seen yet
// are read from the store.
func (l *Limiter) Peek(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if len(takes) != len(tallies) {
		return fmt.Errorf("%d takes and %d tallies", len(takes), len(tallies))
	}
	if len(takes) == 0 {
		return nil
	}
	c := l.core
	at := c.clock.correct(now)
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.name(c.secret.Load(), len(takes), func(i int) []byte { return takes[i].Key })
	r.takes = append(r.takes[:0], takes...)
	var q *question
	c.book.lock(r.set)
	l.entries(r, at.UnixNano(), func(i int) int { return takes[i].Limit },
		func(i int) []byte { return takes[i].Key }, true)
	for i := range r.takes {
		r.takes[i].Key = r.keys[i][:]
		if r.refs[i] == none {
			continue
		}
		e := c.book.at(r.refs[i])
		if (!e.known || c.opts.alwaysAsk) && !e.reading && c.isUp(e.tag) {
			if q == nil {
				q = newQuestion()
			}
			e.reading, e.at = true, at.UnixNano()
			q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, reads: true})
		}
	}
	c.book.unlock(r.set)
	if q != nil {
		l.read(q)
	}
	return l.local.Peek(ctx, at, r.takes, tallies)
}

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

// A question is what one request inquiries the store.
type question struct {
	parts       []part // by tag, those of a tag together
	outstanding atomic.Int32
	state       atomic.Int32
	done        chan struct{}
	at          time.Time
	began       int64 // monotonic ns
	needsStore  bool  // else all parts have credit
}

// A part is one take of a question.
type part struct {
	ref    ref // pinned until the answer
	key    bookKey
	tag    uint64
	take   int32
	dry    bool
	credit bool   // not asked
	reads  bool   // inquiries for the state only
	views  uint32 // of the entry when the view was charged
	inView bool   // after the answer: the view contains it
	spec   *spec
	every  time.Duration
	cost   int64 // or what is held
	amount int64 // cost in the unit of deltas

	verdict int32 // of the parts with this tag
	state   int   // its place in the batch
}

// States of a question, and verdicts.
const (
	waiting int32 = iota
	answered
	abandonedPass
	abandonedDry
	abandonedRefuse

	passed     int32 = 100 + iota
	dryRefused       // the dry group was refused
	refused
	noAnswer
	late
)

var questions = sync.Pool{New: func() any { return &question{done: make(chan struct{}, 1)} }}

func newQuestion() *question {
	q := questions.Get().(*question)
	*q = question{parts: q.parts[:0], done: q.done}
	return q
}

func (q *question) release() {
	clear(q.parts)
	questions.Put(q)
}

// submit hands a question to the carriers.
func (l *Limiter) submit(q *question) {
	slices.SortStableFunc(q.parts, func(a, b part) int {
		if n := cmp.Compare(a.tag, b.tag); n != 0 {
			return n
		}
		return order(a) - order(b)
	})
	tags := int32(0)
	for i := range q.parts {
		if !q.parts[i].credit && (i == 0 || q.parts[i].tag != q.parts[i-1].tag || q.parts[i-1].credit) {
			tags++
		}
	}
	q.outstanding.Store(tags)
	for i := 0; i < len(q.parts); {
		from, tag := i, q.parts[i].tag
		for i < len(q.parts) && q.parts[i].tag == tag && !q.parts[i].credit {
			i++
		}
		if to := i; to > from {
			l.core.hand(inquiry{q, from, to, tag})
		}
		for i < len(q.parts) && q.parts[i].tag == tag {
			i++
		}
	}
}

// order sorts the parts of a tag: those that are asked first, and dry ones last.
func order(p part) int {
	n := 0
	if p.credit {
		n = 2
	}
	if p.dry {
		n++
	}
	return n
}

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// wait waits for the answer.
func (q *question) wait(c *core, limit time.Duration) int32 {
	t := timers.Get().(*time.Timer)
	t.Reset(limit)
	defer func() {
		t.Stop()
		timers.Put(t)
	}()
	select {
	case <-q.done:
		return q.outcome()
	case <-t.C:
		return late
	}
}

// outcome returns the verdict when all parts are answered.
func (q *question) outcome() int32 {
	verdict := passed
	for i := range q.parts {
		p := &q.parts[i]
		if p.credit {
			continue
		}
		switch p.verdict {
		case noAnswer:
			return noAnswer
		case refused:
			verdict = refused
		case dryRefused:
			if verdict == passed {
				verdict = dryRefused
			}
		}
	}
	return verdict
}

// answer notes that the parts of one tag are answered. When all are, it has the
// request go on, or ends the question if the request does not wait any more.
func (q *question) answer(c *core) {
	if q.outstanding.Add(-1) > 0 {
		return
	}
	if q.needsStore && q.outcome() != noAnswer {
		c.stats.trip(c.mono() - q.began)
	}
	if q.state.CompareAndSwap(waiting, answered) {
		q.done <- struct{}{}
		return
	}
	want := q.state.Load() - abandonedPass + passed
	q.resolve(c, want)
	q.release()
}

// resolve makes view and store agree with a verdict.
func (q *question) resolve(c *core, want int32) {
	for i := range q.parts {
		p := &q.parts[i]
		if p.reads {
			continue
		}
		wanted := want == passed || want == dryRefused && !p.dry
		if p.inView == wanted && !p.credit || p.credit && wanted {
			continue
		}
		sh := &c.book[p.key.shard()]
		sh.mu.Lock()
		at := c.book.get(p.key, q.at.UnixNano(), func() uint64 { return p.tag }, c.drop) // it may have gone
		e := c.book.at(at)
		key := e.key.name.bytes()
		sign := int64(1)
		if !wanted {
			sign = -1
		}
		if p.spec.tracked {
			e.own = max(0, e.own+sign*p.cost)
			p.spec.local.AddHeld(p.spec.index, key[:], sign*p.cost)
		} else {
			ns := q.at.UnixNano()
			p.spec.charge(key[:], sign*p.cost, p.every, q.at)
			e.pend.charge(p.spec, sign*p.amount, ns, ns)
		}
		c.queue(at, e, false)
		sh.mu.Unlock()
	}
}

// charge charges the view, or refunds it if cost is below zero.
func (s *spec) charge(key []byte, cost int64, every time.Duration, at time.Time) {
	charge := [1]fairshare.Charge{{Limit: s.index, Key: key, Cost: cost, Every: every, At: at}}
	_ = s.local.Settle(context.Background(), at, charge[:])
}

// deadline returns how long a request waits.
func (c *core) deadline(q *question) time.Duration {
	if c.opts.fixedWait {
		return c.opts.Wait
	}
	p99 := time.Duration(c.stats.p99.Load())
	if p99 == 0 { // nothing is known yet
		return c.opts.Wait
	}
	return min(max(4*p99, 2*time.Millisecond), c.opts.Wait)
}

var errFlush = errors.New("not all counts could be reported to the store")
