package reports

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// A Recorder counts or logs requests. Its methods are called by several goroutines at once. They keep
// nothing that they get, except names of rules, bots, owners and fleets, and references. They must not
// call Flush. After a panic, the rest of a batch is lost.
type Recorder interface {
	Refused(*Refusals)
	Passed(*Passages)
}

// Options configure a Collector. All are required.
type Options struct {
	Now    func() time.Time
	Wall   func(time.Time) time.Time     // turns a time of Now into the system's time
	Client func(netip.Addr) netip.Prefix // the addresses that count as one client with this one
	Person func(*httpguard.Report) bool  // whether a request looks like one of a person's browser, if that matters
	Failed func(error)                   // gets a panic of a Recorder with its stack
}

// A Collector merges reports and hands them to recorders: after a [Delay] at most, or when Flush is called. A
// reader of what recorders know calls Flush first, and so does the end of a program. It is safe for concurrent
// use. Its memory is bounded: 140 KiB for each processor.
type Collector struct {
	options   Options
	recorders []Recorder
	seed      maphash.Seed
	seeds     [2]uint64
	shards    []shard
	near      sync.Pool // of *shard: mostly one for each processor
	next      atomic.Uint32
}

// Delay is how long a report waits for others at most.
const Delay = 20 * time.Millisecond

// Bounds of a shard. Whatever exceeds one ends the batch.
const (
	groups    = 32
	events    = 128
	slots     = 4 * groups // of an index
	textBytes = 16 << 10
	mostText  = 2 << 10 // of one request: those with more are handed on at once
)

// A shard has the reports of a batch.
type shard struct {
	mu      sync.Mutex
	collect *Collector
	waits   bool // a timer will end the batch
	*batch       // nil until the first report

	_ [64]byte // no two locks in one cache line
}

type batch struct {
	texts    []byte
	refused  table[refusedGroup]
	refusal  [events]refusal
	refusals int
	passed   table[passedGroup]
	passage  [events]passage
	passages int
}

// A table has groups, which an index finds by their hash.
type table[G any] struct {
	index  [slots]uint8 // one more than the number of a group; 0: free
	hashes [groups]uint64
	groups [groups]G
	n      int
}

// find returns the group with a hash for which same returns true, or a new one; nil if there is no space.
func (t *table[G]) find(hash uint64, same func(*G) bool) (g *G, isNew bool) {
	at := hash % slots
	for ; t.index[at] != 0; at = (at + 1) % slots {
		i := t.index[at] - 1
		if t.hashes[i] == hash && same(&t.groups[i]) {
			return &t.groups[i], false
		}
	}
	if t.n == groups {
		return nil, false
	}
	g = &t.groups[t.n]
	t.hashes[t.n] = hash
	t.n++
	t.index[at] = uint8(t.n)
	return g, true
}

func (t *table[G]) reset() {
	clear(t.index[:])
	t.n = 0
}

// A text is a part of batch.texts.
type text struct{ from, to uint32 }

// senderTexts are the texts of a Sender.
type senderTexts struct{ method, host, agent text }

type refusedGroup struct {
	Refusals
	senderTexts
	latest *refusal
}

type refusal struct {
	Refused
	path, query text
}

type passedGroup struct {
	Passages
	senderTexts
}

type passage struct {
	Passed
	path text
}

// New returns a Collector for recorders.
func New(o Options, recorders ...Recorder) *Collector {
	c := &Collector{options: o, recorders: recorders, seed: maphash.MakeSeed(),
		shards: make([]shard, max(2, runtime.GOMAXPROCS(0)))}
	for i := range c.seeds {
		c.seeds[i] = maphash.Comparable(c.seed, i)
	}
	for i := range c.shards {
		c.shards[i].collect = c
	}
	return c
}

// Use adds recorders. Call it before the first report.
func (c *Collector) Use(recorders ...Recorder) { c.recorders = append(c.recorders, recorders...) }

// lock locks a shard that this processor mostly has for itself. unlock unlocks it.
func (c *Collector) lock() *shard {
	s, _ := c.near.Get().(*shard)
	if s == nil {
		s = &c.shards[c.next.Add(1)%uint32(len(c.shards))]
	}
	s.mu.Lock()
	if s.batch == nil {
		s.batch = &batch{texts: make([]byte, 0, textBytes)}
	}
	return s
}

func (c *Collector) unlock(s *shard) {
	if !s.waits {
		s.waits = true
		time.AfterFunc(Delay, s.expire)
	}
	s.mu.Unlock()
	c.near.Put(s)
}

func (s *shard) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = false
	s.flush()
}

// Flush hands on all reports of calls that have returned.
func (c *Collector) Flush() {
	for i := range c.shards {
		c.shards[i].flushNow()
	}
}

func (s *shard) flushNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}

// hash returns the hash of a client with its user agent.
func (c *Collector) hash(addr, via netip.Addr, agent string) uint64 {
	a := addr.As16()
	h, l := bits.Mul64(binary.LittleEndian.Uint64(a[:8])^c.seeds[0], binary.LittleEndian.Uint64(a[8:])^c.seeds[1])
	h ^= l ^ maphash.String(c.seed, agent)
	if via.IsValid() {
		return h ^ c.hash(via, netip.Addr{}, "")
	}
	return h
}

// Refused collects a refusal.
func (c *Collector) Refused(r *httpguard.Report) {
	req := r.Request
	path := LoggablePath(req)
	if len(req.Method)+len(req.Host)+len(req.UserAgent)+len(path)+len(req.Query) > mostText {
		g := OfReport(r)
		g.Person = req.Fleet == "" && c.options.Person(r)
		c.complete(&g.Sender)
		_, g.ClockAhead = c.now()
		for _, to := range c.recorders {
			to.Refused(g)
		}
		return
	}
	hash := c.hash(req.Addr, req.Via, req.UserAgent)
	robots := req.Robots.Reason(r.Finding.Rule)
	s := c.lock()
	defer c.unlock(s)
	g := s.refusedGroup(hash, r)
	if e := g.latest; e != nil && s.is(e.path, path) {
		e.add(r)
	} else {
		e = &s.refusal[s.refusals]
		s.refusals++
		*e = refusal{path: s.copyText(path), query: s.copyText(req.Query)}
		e.Robots = robots
		e.add(r)
		g.latest = e
		g.Paths = append(g.Paths, &e.Refused)
	}
	if !g.Person && req.Fleet == "" { // last: after a panic, the group is whole
		g.Person = c.options.Person(r)
	}
}

// refusedGroup returns the group of a refusal, which is counted in it, and makes space for one more path.
func (s *shard) refusedGroup(hash uint64, r *httpguard.Report) *refusedGroup {
	req, f := r.Request, &r.Finding
	same := func(g *refusedGroup) bool {
		return g.Rule == f.Rule && g.Limit == f.Limit && g.Action == f.Action && g.Ban == f.Ban &&
			g.Ceiling == f.Ceiling && g.DryRun == r.DryRun && g.Room == r.WaitingRoom && g.Status == r.Status &&
			g.Proxy == req.Proxy && g.isNear(req.Time) && s.isFrom(&g.Sender, &g.senderTexts, req.Addr, req.Via,
			&req.Bot, &req.Owner, req.Fleet, req.Method, req.Host, req.UserAgent)
	}
	if s.refusals == events || len(s.texts)+mostText > textBytes {
		s.flush()
	}
	g, isNew := s.refused.find(hash, same)
	if g == nil {
		s.flush()
		g, isNew = s.refused.find(hash, same)
	}
	if isNew {
		g.begin(r)
		g.senderTexts = s.take(&g.Sender)
	} else {
		g.add(req.Time)
	}
	return g
}

// Passed collects a request that was let through and has ended.
func (c *Collector) Passed(p *httpguard.Completion) {
	path := passedPath(p)
	if len(p.Method)+len(p.Host)+len(p.UserAgent)+len(path) > mostText {
		g := OfCompletion(p)
		c.complete(&g.Sender)
		g.Reported, _ = c.now()
		for _, to := range c.recorders {
			to.Passed(g)
		}
		return
	}
	hash := c.hash(p.Addr, p.Via, p.UserAgent)
	s := c.lock()
	defer c.unlock(s)
	same := func(g *passedGroup) bool {
		return g.Proxy == p.Proxy && s.isFrom(&g.Sender, &g.senderTexts, p.Addr, p.Via, &p.Bot, &p.Owner, p.Fleet,
			p.Method, p.Host, p.UserAgent)
	}
	if s.passages == events || len(s.texts)+mostText > textBytes {
		s.flush()
	}
	g, isNew := s.passed.find(hash, same)
	if g == nil {
		s.flush()
		g, isNew = s.passed.find(hash, same)
	}
	if isNew {
		g.Passages = Passages{Sender: senderOf(p), First: p.Time, Last: p.Time, Requests: g.Requests[:0]}
		g.senderTexts = s.take(&g.Sender)
	} else if p.Time.Before(g.First) {
		g.First = p.Time
	} else if p.Time.After(g.Last) {
		g.Last = p.Time
	}
	e := &s.passage[s.passages]
	s.passages++
	e.Passed, e.path = passedOf(p), s.copyText(path)
	g.Requests = append(g.Requests, &e.Passed)
}

// isFrom reports whether a sender and its texts are these.
func (s *shard) isFrom(g *Sender, t *senderTexts, addr, via netip.Addr, bot *fairshare.Bot, owner *fairshare.Owner,
	fleet, method, host, agent string) bool {
	return g.Addr == addr && g.Via == via && g.Bot.State == bot.State && g.Bot.Name == bot.Name &&
		g.Owner.ASN == owner.ASN && g.Fleet == fleet && s.is(t.method, method) && s.is(t.host, host) &&
		s.is(t.agent, agent)
}

// copyText copies a text.
func (s *shard) copyText(of string) text {
	from := uint32(len(s.texts))
	s.texts = append(s.texts, of...)
	return text{from, uint32(len(s.texts))}
}

// take copies the texts of a sender, which then has none: they would keep the memory of the whole request.
func (s *shard) take(g *Sender) senderTexts {
	t := senderTexts{s.copyText(g.Method), s.copyText(g.Host), s.copyText(g.UserAgent)}
	g.Method, g.Host, g.UserAgent = "", "", ""
	return t
}

func (s *shard) is(t text, of string) bool { return string(s.texts[t.from:t.to]) == of }

// flush hands on what the shard has. The caller holds its lock. A panic of a recorder ends neither the server nor
// the request that happens to fill a batch.
func (s *shard) flush() {
	if s.batch == nil || s.refused.n+s.passed.n == 0 {
		return
	}
	defer func() {
		s.batch.reset()
		if v := recover(); v != nil {
			s.collect.options.Failed(fmt.Errorf("panic while requests were recorded: %v\n%s", v, debug.Stack()))
		}
	}()
	c, all := s.collect, string(s.texts)
	of := func(t text) string { return all[t.from:t.to] }
	complete := func(g *Sender, t *senderTexts) {
		g.Method, g.Host, g.UserAgent = of(t.method), of(t.host), of(t.agent)
		c.complete(g)
	}
	refused, passed := s.refused.groups[:s.refused.n], s.passed.groups[:s.passed.n]
	for i := range s.refusal[:s.refusals] {
		e := &s.refusal[i]
		e.Path, e.Query = of(e.path), of(e.query)
	}
	for i := range s.passage[:s.passages] {
		s.passage[i].Path = of(s.passage[i].path)
	}
	now, ahead := c.now()
	for i := range refused {
		complete(&refused[i].Sender, &refused[i].senderTexts)
		refused[i].ClockAhead = ahead
	}
	for i := range passed {
		complete(&passed[i].Sender, &passed[i].senderTexts)
		passed[i].Reported = now
	}
	for _, to := range c.recorders {
		for i := range refused {
			to.Refused(&refused[i].Refusals)
		}
		for i := range passed {
			to.Passed(&passed[i].Passages)
		}
	}
}

// reset empties a batch. Nothing of it stays in memory but its capacity: a rule belongs to a whole policy.
func (b *batch) reset() {
	for i := range b.refused.groups[:b.refused.n] {
		g := &b.refused.groups[i]
		*g = refusedGroup{Refusals: Refusals{Paths: g.Paths[:0]}}
	}
	for i := range b.passed.groups[:b.passed.n] {
		g := &b.passed.groups[i]
		*g = passedGroup{Passages: Passages{Requests: g.Requests[:0]}}
	}
	clear(b.refusal[:b.refusals])
	clear(b.passage[:b.passages])
	b.refused.reset()
	b.passed.reset()
	b.texts, b.refusals, b.passages = b.texts[:0], 0, 0
}

func (c *Collector) complete(g *Sender) { g.Client = c.options.Client(g.Addr) }

// now returns the time, and by how much the system's clock is ahead.
func (c *Collector) now() (now time.Time, ahead time.Duration) {
	now = c.options.Now()
	return now, c.options.Wall(now).Sub(now)
}
