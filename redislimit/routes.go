package redislimit

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// A master is one server that takes messages.
type master struct {
	core     *core
	addr     string // of a cluster; else empty
	carriers [carriersEach]*carrier
	breaker  breaker
	started  atomic.Bool
	offset   atomic.Int64 // of the master's clock, ns since the Unix epoch, to core.mono; 0: not known

	beat atomic.Pointer[beatKey] // nil: not known yet

	// Of the goroutine that probes.
	seq, probed int64
	epoch       string
}

// A beatKey has keys in a slot of a master, for probes: see probe.lua.
type beatKey struct {
	keys [2]string
	tag  string
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
	m.breaker.end() // what is still handed to it goes to the new master
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
