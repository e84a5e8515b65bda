package redislimit

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"github.com/redis/rueidis"
)

//go:embed probe.lua
var probeScript string

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
		if m.breaker.ended.Load() {
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
		if m.breaker.ended.Load() {
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
	if m.breaker.ended.Load() { // meanwhile; nobody notices later that it is back
		c.settleAwayState()
	}
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
