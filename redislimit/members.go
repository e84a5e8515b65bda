package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"github.com/redis/rueidis"
)

//go:embed beat.lua
var beatScript string

//go:embed probe.lua
var probeScript string

const (
	beatEach   = time.Second
	touchEach  = 2 * time.Second // what requests in progress have is reported again
	mostWindow = 5 * time.Minute
	metaTag    = "{group}"
)

// A group is what a member knows of the others.
type group struct {
	mu       sync.Mutex
	members  []Member
	counts   []counted // of the last five minutes
	policy   string
	differs  time.Time // since when policies differ
	reported bool
}

type counted struct {
	at time.Time
	n  int
}

func (g *group) setPolicy(policy string) {
	g.mu.Lock()
	g.policy, g.differs, g.reported = policy, time.Time{}, false
	g.mu.Unlock()
}

func (g *group) list() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// most notes how many members are alive, and returns the most of five minutes.
func (g *group) most(now time.Time, n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.counts) > 0 && now.Sub(g.counts[0].at) > mostWindow {
		g.counts = g.counts[1:]
	}
	for len(g.counts) > 0 && g.counts[len(g.counts)-1].n <= n { // only decreasing counts matter
		g.counts = g.counts[:len(g.counts)-1]
	}
	g.counts = append(g.counts, counted{now, n})
	return g.counts[0].n
}

func (c *core) id() string { return hex.EncodeToString(c.me[:]) }

// begin connects and starts all goroutines. It waits for the first heartbeat.
func (c *core) begin(ctx context.Context) {
	c.wg.Add(1)
	go c.pulses()
	first := &master{core: c}
	first.init()
	c.routes.Store(&routes{only: first, masters: map[string]*master{"": first}})
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := c.store.Wait(ctx)
	if err == nil {
		err = c.findMasters(ctx, client)
	}
	if err == nil {
		err = c.beat(ctx, client, c.beatAs())
	}
	c.routes.Load().start()
	if err != nil {
		for _, m := range c.routes.Load().masters {
			m.away(reason(err))
		}
	} else {
		for _, m := range c.routes.Load().masters {
			m.probe(ctx)
		}
	}
	c.wg.Add(1)
	go c.beats()
}

// beats beats until the core stops.
func (c *core) beats() {
	defer c.wg.Done()
	ticker := time.NewTicker(beatEach)
	defer ticker.Stop()
	touched := time.Now()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			c.stats.turn(now)
			c.clock.slew(now)
			if now.Sub(touched) >= touchEach {
				c.touch()
				touched = now
			}
		}
		client, err := c.store.Client()
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, beatEach)
		if c.store.topology == cluster {
			if err := c.findMasters(ctx, client); err == nil {
				c.routes.Load().start()
			}
		}
		_ = c.beat(ctx, client, c.beatAs()) // a lost one is noticed by the probes
		cancel()
	}
}

// run runs a small script.
func run(ctx context.Context, client rueidis.Client, script string, keys []string, args ...string) (
	[]rueidis.RedisMessage, error) {
	command := client.B().Arbitrary("EVAL", script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	return client.Do(ctx, command).ToArray()
}

func (c *core) beatAs() string {
	if c.opts.Look {
		return "look"
	}
	return "beat"
}

// beat tells the others that this member is alive, and learns which others are.
func (c *core) beat(ctx context.Context, client rueidis.Client, what string) error {
	secretText := c.secret.Load()
	c.group.mu.Lock()
	info := strconv.Quote(c.opts.Member) + " " + strconv.Quote(c.group.policy)
	c.group.mu.Unlock()
	before := c.opts.Now()
	reply, err := run(ctx, client, beatScript, []string{c.prefix + metaTag + "members", c.prefix + metaTag + "meta"},
		c.id(), info, string(secretText[:]), random(), what)
	if err != nil || what == "leave" {
		return err
	}
	after := c.opts.Now()
	if len(reply) < 3 || len(reply)%2 == 0 {
		return errors.New("the heartbeat has an unknown reply")
	}
	if at, ok := timeOf(reply); ok {
		c.clock.sample(c, at, before, after)
	}
	if text, err := reply[2].ToString(); err == nil && len(text) == len(secret{}) && text != string(secretText[:]) {
		s := secret([]byte(text))
		c.secret.Store(&s)
	}
	var members []Member
	for i := 3; i+1 < len(reply); i += 2 {
		id, _ := reply[i].ToString()
		text, _ := reply[i+1].ToString()
		members = append(members, parseMember(id, text))
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	c.note(members, time.Now())
	return nil
}

// parseMember parses what a member says of itself.
func parseMember(id, text string) Member {
	m := Member{ID: id}
	_, rest, _ := strings.Cut(text, " ")
	since, rest, _ := strings.Cut(rest, " ")
	if s, err := strconv.ParseInt(since, 10, 64); err == nil {
		m.Since = time.Unix(s, 0)
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		m.Name, _ = strconv.Unquote(quoted)
		m.Policy, _ = strconv.Unquote(strings.TrimSpace(rest[len(quoted):]))
	}
	return m
}

// note takes the list of members alive.
func (c *core) note(members []Member, now time.Time) {
	n := max(1, len(members))
	c.members.Store(int64(n))
	c.most.Store(int64(c.group.most(now, n)))
	g := &c.group
	g.mu.Lock()
	before := g.members
	g.members = members
	var other string
	for i := range members {
		if members[i].Policy != g.policy && g.policy != "" && members[i].Policy != "" {
			other = members[i].Name
		}
	}
	report := false
	switch {
	case other == "":
		g.differs, g.reported = time.Time{}, false
	case g.differs.IsZero():
		g.differs = now
	case now.Sub(g.differs) > 5*time.Minute && !g.reported:
		g.reported, report = true, true
	}
	g.mu.Unlock()
	if report {
		c.events.send(OtherPolicy, "member %s has had another policy for five minutes: give all members the same file",
			prose.Printable(other))
	}
	if before == nil {
		return
	}
	for kind, lists := range map[EventKind][2][]Member{MemberJoined: {before, members}, MemberLeft: {members, before}} {
		for _, m := range lists[1] {
			if !slices.ContainsFunc(lists[0], func(o Member) bool { return o.ID == m.ID }) {
				c.events.send(kind, "%s: %s; the group has %s now", kind, prose.Printable(m.Name),
					prose.Plural(n, "member"))
			}
		}
	}
}

func timeOf(reply []rueidis.RedisMessage) (at time.Time, ok bool) {
	s, err := reply[0].AsInt64()
	us, err2 := reply[1].AsInt64()
	return time.Unix(s, us*1000), err == nil && err2 == nil
}

func random() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// touch has all that requests in progress have reported again: others ignore it
// after five seconds.
func (c *core) touch() {
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range sh.entries {
			if e := &sh.entries[j]; e.tracked && e.own-e.provisional > 0 && e.queued == unqueued && e.batch == 0 {
				e.noted = true
				c.queue(ref(i)<<32|ref(j), e, false)
			}
		}
		sh.mu.Unlock()
	}
}

// giveBack has the store forget what requests in progress have.
func (c *core) giveBack() {
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range sh.entries {
			if e := &sh.entries[j]; e.tracked && e.own > e.provisional {
				e.own = e.provisional
				c.queue(ref(i)<<32|ref(j), e, true)
			}
		}
		sh.mu.Unlock()
	}
}

// leave tells the others that this member ends.
func (c *core) leave(ctx context.Context) {
	if client, err := c.store.Client(); err == nil {
		ctx, cancel := context.WithTimeout(ctx, beatEach)
		defer cancel()
		_ = c.beat(ctx, client, "leave")
	}
}

// flush reports all that is pending.
func (c *core) flush(ctx context.Context) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		waits := 0
		for _, m := range c.routes.Load().masters {
			for _, k := range m.carriers {
				k.mu.Lock()
				for _, late := range [3]*delays{&k.lazy, &k.notes, &k.held} {
					for _, d := range late.waiting() {
						k.urgent = append(k.urgent, d.ref)
					}
					late.drop(len(late.waiting()))
				}
				waits += len(k.urgent) + len(k.inquiries)
				if k.busy {
					waits++
				}
				k.mu.Unlock()
				k.awake()
			}
		}
		if waits == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errFlush, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// routes say which master has a slot.
type routes struct {
	only    *master // unless it is a cluster
	slots   [slots]*master
	masters map[string]*master
}

func (m *master) init() {
	for i := range m.carriers {
		m.carriers[i] = &carrier{core: m.core, master: m, wake: make(chan struct{}, 1)}
	}
}

// start starts the goroutines of masters that are new.
func (r *routes) start() {
	for _, m := range r.masters {
		if m.started.Swap(true) {
			continue
		}
		m.core.wg.Add(1 + len(m.carriers))
		for _, k := range m.carriers {
			go k.run()
		}
		go m.probes()
	}
}

// master returns the one that has a tag.
func (c *core) master(tag uint64) *master {
	r := c.routes.Load()
	if r.only != nil {
		return r.only
	}
	return r.slots[slotOfTag(tag)]
}

// isUp reports whether the master of a tag answers.
func (c *core) isUp(tag uint64) bool { return !c.master(tag).breaker.open.Load() }

// findMasters finds out which masters a cluster has and where the slots are.
func (c *core) findMasters(ctx context.Context, client rueidis.Client) error {
	if c.store.topology != cluster {
		c.routes.Load().only.beat.Store(c.newBeatKey("group"))
		return nil
	}
	c.finding.Lock()
	defer c.finding.Unlock()
	reply, err := client.Do(ctx, client.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray()
	if err != nil {
		return err
	}
	old := c.routes.Load()
	next := &routes{masters: map[string]*master{}}
	owners := [slots]string{}
	for _, part := range reply {
		fields, err := part.ToArray()
		if err != nil || len(fields) < 3 {
			continue
		}
		first, err1 := fields[0].AsInt64()
		last, err2 := fields[1].AsInt64()
		node, err3 := fields[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || len(node) < 2 || first < 0 || last >= slots {
			continue
		}
		host, _ := node[0].ToString()
		port, _ := node[1].AsInt64()
		addr := host + ":" + strconv.FormatInt(port, 10)
		for s := first; s <= last; s++ {
			owners[s] = addr
		}
	}
	moved := map[string]bool{}
	for s, addr := range owners {
		if addr == "" {
			return errors.New("the cluster has slots that no master has")
		}
		m := next.masters[addr]
		if m == nil {
			if m = old.masters[addr]; m == nil {
				m = &master{core: c, addr: addr}
				m.init()
			}
			next.masters[addr] = m
		}
		if old.only == nil && old.slots[s] != m {
			moved[addr] = true
		}
		next.slots[s] = m
	}
	for _, m := range next.masters {
		if b := m.beat.Load(); b == nil || next.slots[slotOf(b.tag)] != m {
			m.findBeatKey(next)
		}
	}
	if old.only == nil && len(moved) == 0 && len(old.masters) == len(next.masters) {
		return nil
	}
	c.routes.Store(next)
	for addr := range moved {
		next.masters[addr].breaker.floors.Store(c.mono() + floorsFor)
	}
	for addr, m := range old.masters {
		if next.masters[addr] == nil {
			m.retire()
		}
	}
	return nil
}

func (c *core) newBeatKey(tag string) *beatKey {
	key := "{" + tag + "}probe"
	return &beatKey{keys: [2]string{c.prefix + key, c.limits + key}, tag: tag}
}

// findBeatKey finds a hash tag in a slot of the master.
func (m *master) findBeatKey(r *routes) {
	for i := 0; ; i++ {
		if tag := "probe" + strconv.Itoa(i); r.slots[slotOf(tag)] == m {
			m.beat.Store(m.core.newBeatKey(tag))
			return
		}
	}
}

// retire hands what waits for a master that is gone to the others.
func (m *master) retire() {
	m.retired.Store(true)
	m.breaker.open.Store(false) // what is still handed to it goes to the new master
	c := m.core
	c.settleAwayState()
	for _, k := range m.carriers {
		k.mu.Lock()
		inquiries, refs := k.inquiries, k.urgent
		for _, late := range [3]*delays{&k.lazy, &k.notes, &k.held} {
			for _, d := range late.waiting() {
				refs = append(refs, d.ref)
			}
		}
		k.inquiries, k.urgent, k.lazy, k.notes, k.held = nil, nil, delays{}, delays{}, delays{}
		k.mu.Unlock()
		for _, a := range inquiries {
			c.hand(a)
		}
		for _, r := range refs {
			sh := &c.book[r.shard()]
			sh.mu.Lock()
			if e := c.book.at(r); e.queued != unqueued {
				e.queued = unqueued
				c.queue(r, e, true)
			}
			sh.mu.Unlock()
		}
	}
}

// probes probes a master until the core stops.
func (m *master) probes() {
	defer m.core.wg.Done()
	for {
		pause := beatEach
		if m.breaker.open.Load() {
			pause = probePause()
		}
		select {
		case <-m.core.ctx.Done():
			return
		case <-time.After(pause):
		}
		if m.retired.Load() {
			return
		}
		ctx, cancel := context.WithTimeout(m.core.ctx, beatEach)
		m.probe(ctx)
		cancel()
	}
}

// probe asks a master whether it is there and still has what was reported.
func (m *master) probe(ctx context.Context) {
	c := m.core
	client, err := c.store.Client()
	if err == nil && m.beat.Load() == nil {
		if err = c.findMasters(ctx, client); err == nil {
			c.routes.Load().start()
		}
		if m.retired.Load() {
			return
		}
	}
	var reply []rueidis.RedisMessage
	began, own := time.Now(), c.ownTime()
	m.seq++
	if err == nil {
		reply, err = run(ctx, client, probeScript, m.beat.Load().keys[:], c.id(), strconv.FormatInt(m.seq, 10),
			random())
	}
	if err == nil && len(reply) != 4 {
		err = errors.New("the probe has an unknown reply")
	}
	if err != nil {
		if c.ctx.Err() == nil && !c.stalled(own, err) {
			m.away(reason(err))
		}
		_, _ = m.breaker.probed(false)
		return
	}
	if at, ok := timeOf(reply); ok {
		m.setTime(at, began.Sub(c.start).Nanoseconds(), c.mono())
	}
	epoch, _ := reply[2].ToString()
	before, _ := reply[3].ToString()
	// Probes since the last answer may have been executed, too.
	n, err := strconv.ParseInt(before, 10, 64)
	lost := m.epoch != "" && (epoch != m.epoch || err != nil || n < m.probed || n >= m.seq)
	if m.epoch, m.probed = epoch, m.seq; lost {
		m.refill()
		c.events.send(StoreLost, "store %s has lost counts: members restore what they remember", m.name())
	}
	slow := time.Since(began) > max(c.opts.Wait, DefaultWait)
	if m.breaker.open.Load() && !slow {
		_ = c.beat(ctx, client, c.beatAs())
	}
	answers, closed := m.breaker.probed(!slow)
	if answers {
		m.refill()
	}
	if closed {
		m.recover()
	}
}

func (m *master) name() string {
	if m.addr != "" {
		return m.addr
	}
	return m.core.store.Address()
}

// away opens the breaker.
func (m *master) away(reason string) {
	if !m.breaker.breakNow(reason) {
		return
	}
	m.wentAway()
}

// wentAway tells carriers and operators that the breaker is open.
func (m *master) wentAway() {
	c := m.core
	m.offset.Store(0) // another server may take its place
	for _, k := range m.carriers {
		k.awake()
	}
	c.awayState.mu.Lock()
	first := c.awayState.since.IsZero()
	if first {
		c.awayState.since = time.Now()
		c.stats.handing.Store(0)
	}
	since := c.awayState.since
	c.awayState.mu.Unlock()
	if !first {
		return
	}
	share := "1/" + strconv.FormatInt(c.most.Load(), 10) + " of each limit"
	switch {
	case c.opts.Away == AwayOpen:
		share = "no limit that needs it"
	case c.opts.Away == AwayWhole || c.most.Load() == 1:
		share = "the whole of each limit"
	}
	c.events.send(StoreAway, "store away since %s; enforcing %s here; %s: %s", since.Format(time.TimeOnly), share,
		m.name(), m.breaker.why())
}

// refill has all that this member remembers reported, and merged by maximum. The
// states nearest to their limits come first.
func (m *master) refill() {
	c := m.core
	m.breaker.floors.Store(c.mono() + floorsFor)
	type debt struct {
		ref  ref
		part float64 // of the limit
	}
	var debts []debt
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		for j := range sh.entries {
			e := &sh.entries[j]
			if c.master(e.tag) != m {
				continue
			}
			s, key := c.spec(e.key.id), e.key.name.bytes()
			tallies := make([]fairshare.Tally, 1)
			_ = s.local.Peek(context.Background(), time.Unix(0, e.at),
				[]fairshare.Take{{Limit: s.index, Key: key[:], Every: e.every}}, tallies)
			e.lost = e.lost || e.known && s.lacks(e, tallies[0].Used, e.at)
			if tallies[0].Used == 0 && e.own == 0 && !e.lost {
				continue
			}
			e.floor = true
			debts = append(debts, debt{ref(i)<<32 | ref(j), float64(tallies[0].Used) / float64(max(1, s.allowed))})
		}
		sh.mu.Unlock()
	}
	slices.SortFunc(debts, func(a, b debt) int { return cmp.Compare(b.part, a.part) })
	for _, d := range debts {
		sh := &c.book[d.ref.shard()]
		sh.mu.Lock()
		if e := c.book.at(d.ref); e.floor {
			c.queue(d.ref, e, true)
		}
		sh.mu.Unlock()
	}
	for _, k := range m.carriers {
		k.awake()
	}
}

// recover has the carriers go on after the breaker closed.
func (m *master) recover() {
	c := m.core
	m.breaker.floors.Store(c.mono() + floorsFor)
	for _, k := range m.carriers {
		k.awake()
	}
	c.settleAwayState()
}

// settleAwayState reports that the store is back if all masters are.
func (c *core) settleAwayState() {
	for _, m := range c.routes.Load().masters {
		if m.breaker.open.Load() {
			return
		}
	}
	c.awayState.mu.Lock()
	since := c.awayState.since
	c.awayState.since = time.Time{}
	c.awayState.mu.Unlock()
	if since.IsZero() {
		return
	}
	n := c.stats.handing.Swap(0)
	c.stats.handed.Add(n)
	c.events.send(StoreBack, "store back after %s; %s handed over", prose.Duration(time.Since(since)),
		prose.Plural(n, "count"))
}

// An awayState says since when a master is away.
type awayState struct {
	mu    sync.Mutex
	since time.Time
}

func (c *core) awaySince() (away bool, since time.Time, why string) {
	c.awayState.mu.Lock()
	since = c.awayState.since
	c.awayState.mu.Unlock()
	for _, m := range c.routes.Load().masters {
		if m.breaker.open.Load() {
			return true, since, m.breaker.why()
		}
	}
	return false, time.Time{}, ""
}

// A clock corrects times to the store's clock.
type clock struct {
	offset atomic.Int64 // ns to add
	target atomic.Int64

	mu      sync.Mutex
	started bool
	best    time.Duration // trip of the best sample
	bestAt  time.Time
	off     time.Duration // by the best sample
}

const (
	clockMinute  = time.Minute
	clockStep    = time.Second           // beyond this a clock is corrected at once
	clockIgnored = 10 * time.Millisecond // clocks that are as near as this are left alone
	clockSlew    = time.Millisecond      // each second
)

// correct returns a time by the store's clock.
func (k *clock) correct(t time.Time) time.Time {
	if off := k.offset.Load(); off != 0 {
		return t.Add(time.Duration(off))
	}
	return t
}

// correction returns by how much the store's clock is ahead, as far as it is corrected.
func (k *clock) correction() time.Duration { return time.Duration(k.offset.Load()) }

// sample takes the store's time, which was read between two times of this machine's clock. If these are
// far apart, or the clock was set meanwhile, they say nothing.
func (k *clock) sample(c *core, at, began, ended time.Time) {
	began, ended = began.Round(0), ended.Round(0)
	trip := ended.Sub(began)
	if trip < 0 || trip > clockStep {
		return
	}
	off := at.Sub(began.Add(trip / 2))
	k.mu.Lock()
	jumped := (off - k.off).Abs() > clockStep+trip
	if !k.started || jumped || trip <= k.best || ended.Sub(k.bestAt).Abs() > clockMinute {
		k.best, k.bestAt, k.off = trip, ended, off
	}
	first := !k.started
	k.started = true
	target := k.off
	if target.Abs() <= clockIgnored+k.best {
		target = 0
	}
	before := time.Duration(k.offset.Load())
	k.target.Store(int64(target))
	k.mu.Unlock()
	if (target - before).Abs() <= clockStep {
		if first {
			k.offset.Store(int64(target))
		}
		return
	}
	k.offset.Store(int64(target))
	side := "behind"
	if target < 0 {
		side = "ahead of"
	}
	c.events.send(ClockWrong, "the clock of this machine is %s %s the store's and is corrected here: synchronize it",
		prose.Duration(target.Abs()), side)
}

// slew brings the offset nearer to its target. It is called each second.
func (k *clock) slew(time.Time) {
	off, target := k.offset.Load(), k.target.Load()
	k.offset.Store(off + max(-int64(clockSlew), min(int64(clockSlew), target-off)))
}
