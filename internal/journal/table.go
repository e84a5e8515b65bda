package journal

import (
	"math"
	"math/bits"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Bounds of the table. Each shard is allocated at the first entry of its networks, and never grows.
const (
	shards   = 64
	setSize  = 8  // entries where one hash may be
	slotSets = 32 // of a shard: 16384 clients and rules in all
	cellSets = 8  // of a shard: 4096 networks and rules in all
	maxRules = 16 // of a shard; sums of further rules have no rule
	pathRoom = 64 // bytes of the path of a repeat
)

// A slot counts the repeats of one client and rule for a minute.
type slot struct {
	client            netip.Addr // of the first
	through           netip.Addr
	rule, action, id  string
	ban               Ban
	dryRun            bool
	pathLen           uint8
	path              [pathRoom]byte // of the last; pathLen over pathRoom means cut
	n                 int64          // after the first
	firstMs, latestMs int64
}

// A sum counts the entries of one rule, action and dry run.
type sum struct {
	rule, action      string
	dryRun            bool
	n                 int64
	firstMs, latestMs int64
}

func (s *sum) same(t *sum) bool {
	return s.dryRun == t.dryRun && s.action == t.action && s.rule == t.rule
}

func (s *sum) merge(t *sum) {
	if s.n == 0 || t.firstMs < s.firstMs {
		s.firstMs = t.firstMs
	}
	if s.n == 0 || t.latestMs > s.latestMs {
		s.latestMs = t.latestMs
	}
	s.n += t.n
}

// A cell is the sum of a network.
type cell struct {
	sum
	network netip.Prefix
	members [4]uint64 // bits of tableKey.member
}

// clients returns the number of clients of a cell: exact for IPv4, and by linear
// counting for IPv6 (Whang and others, 1990).
func (c *cell) clients() int64 {
	set := 0
	for _, m := range c.members {
		set += bits.OnesCount64(m)
	}
	if c.network.Addr().Is4() || set == 0 {
		return int64(set)
	}
	const all = 256
	return min(c.n, int64(math.Round(all*math.Log(all/max(float64(all-set), 0.5)))))
}

// A shard is the part of the table for some networks.
type shard struct {
	mu       sync.Mutex
	closed   bool
	summed   bool  // cells or others are not empty
	*entries       // nil until there is one
	others   []sum // of networks without a cell; the last of maxRules is for all further rules
}

// entries are the clients and networks of a shard.
type entries struct {
	slotTags [slotSets][setSize]uint64
	cellTags [cellSets][setSize]uint64
	slots    [slotSets * setSize]slot
	cells    [cellSets * setSize]cell
}

// n returns how many refusals an entry stands for.
func (e *Entry) n() int64 { return max(e.N, 1) }

// latest returns the time and path of the latest of them.
func (e *Entry) latest() (ms int64, path string) {
	if e.N > 1 {
		return e.Latest.UnixMilli(), e.LatestPath
	}
	return e.Time.UnixMilli(), e.Path
}

// repeat counts repeats.
func (sl *slot) repeat(n, ms int64, path string) {
	sl.n += n
	sl.latestMs = max(sl.latestMs, ms)
	if sl.pathLen = pathRoom + 1; len(path) <= pathRoom {
		sl.pathLen = uint8(len(path))
	}
	copy(sl.path[:], path)
}

// repeat counts an entry in the slot of its client and rule, if there is one.
// Otherwise free is the index of a free slot, -1 if there is none.
func (s *shard) repeat(p *tableKey, e *Entry) (done bool, free int) {
	set := int(p.client >> 8 % slotSets)
	free = -1
	for i, tag := range &s.slotTags[set] {
		switch tag {
		case p.client:
			ms, path := e.latest()
			s.slots[set*setSize+i].repeat(e.n(), ms, path)
			return true, -1
		case 0:
			if free < 0 {
				free = set*setSize + i
			}
		}
	}
	return false, free
}

// begin takes a free slot.
func (s *shard) begin(i int, p *tableKey, e *Entry) {
	ms := e.Time.UnixMilli()
	s.slotTags[i/setSize][i%setSize] = p.client
	s.slots[i] = slot{
		client: e.Client, through: e.Through, rule: e.Rule, action: e.Action, id: strings.Clone(e.ID), ban: e.Ban,
		dryRun:  e.DryRun,
		firstMs: ms, latestMs: ms,
	}
	if e.N > 1 {
		s.slots[i].repeat(e.N-1, e.Latest.UnixMilli(), e.LatestPath)
	}
}

// end frees a slot and returns what it held.
func (s *shard) end(i int) slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slotTags[i/setSize][i%setSize] = 0
	sl := s.slots[i]
	s.slots[i] = slot{}
	return sl
}

// sum counts an entry for its network and rule. A network without a cell takes
// the smallest one of its set; what that held is then counted by its rule alone.
func (s *shard) sum(p *tableKey, e *Entry) {
	s.summed = true
	firstMs := e.Time.UnixMilli()
	latestMs, _ := e.latest()
	set := int(p.network >> 8 % cellSets)
	least := set * setSize
	for i, tag := range &s.cellTags[set] {
		c := &s.cells[set*setSize+i]
		if tag == p.network {
			c.n += e.n()
			c.firstMs, c.latestMs = min(c.firstMs, firstMs), max(c.latestMs, latestMs)
			c.members[p.member>>6] |= 1 << (p.member & 63)
			return
		}
		if c.n < s.cells[least].n {
			least = set*setSize + i
		}
	}
	c := &s.cells[least]
	if c.n > 0 {
		s.addOther(&c.sum)
	}
	s.cellTags[set][least%setSize] = p.network
	*c = cell{sum: sum{rule: e.Rule, action: e.Action, dryRun: e.DryRun, n: e.n(), firstMs: firstMs,
		latestMs: latestMs},
		network: p.prefix()}
	c.members[p.member>>6] = 1 << (p.member & 63)
}

func (s *shard) addOther(t *sum) { s.others = addSum(s.others, t, maxRules) }

// addSum adds t to the sum of its rule; of at most limit sums, the last is for
// all further rules and has none.
func addSum(sums []sum, t *sum, limit int) []sum {
	for i := range sums {
		if sums[i].same(t) {
			sums[i].merge(t)
			return sums
		}
	}
	switch {
	case len(sums) < limit-1:
		return append(sums, *t)
	case len(sums) < limit:
		sums = append(sums, sum{})
	}
	sums[limit-1].merge(t)
	return sums
}

// take empties the sums of a shard into cells and sums.
func (s *shard) take(cells []cell, sums []sum) ([]cell, []sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.summed {
		return cells, sums
	}
	s.summed = false
	for i := range s.cells {
		if s.cells[i].n > 0 {
			cells = append(cells, s.cells[i])
			s.cells[i] = cell{}
		}
	}
	clear(s.cellTags[:])
	sums = append(sums, s.others...)
	clear(s.others)
	s.others = s.others[:0]
	return cells, sums
}

func fromMs(ms int64) time.Time { return time.UnixMilli(ms) }
