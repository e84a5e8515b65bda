package memlimit

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// A mean is what the requests of one key cost lately under one limit.
type mean struct {
	hash uint64 // of the key, salted
	cost float64
	at   int64  // ns since the Unix epoch; when a request ended last
	id   uint16 // of the limit; 0: nothing is remembered here
}

const (
	meanWays = 8       // places that a key's mean may be at
	maxMeans = 1 << 10 // of a shard: 2 MiB in all
)

// meansFor returns how many means a shard remembers beside a table of so many
// bytes: a thirty-second part of them.
func meansFor(memory int64) int {
	return int(min(max(memory>>16, meanWays), maxMeans)) &^ (meanWays - 1)
}

// places returns where the mean of a key may be.
func (sh *shard) places(hash uint64) []mean {
	n, _ := bits.Mul64(hash<<6, uint64(len(sh.means)/meanWays)) // the shard has the bits above
	return sh.means[n*meanWays:][:meanWays]
}

// meanOf returns what is remembered of a key, or nil. The shard is locked.
func (sh *shard) meanOf(hash uint64) *mean {
	if sh.means == nil {
		return nil
	}
	places := sh.places(hash)
	for i := range places {
		if m := &places[i]; m.hash == hash && m.id != 0 {
			return m
		}
	}
	return nil
}

// learn moves a key's mean an eighth of the way towards cost. The shard, which
// is locked, remembers size means; for a new one it forgets the one that
// matters least, unless the new one matters less: many cheap requests from
// everywhere must not have dear ones forgotten.
func (sh *shard) learn(l *limit, limits []*limit, hash uint64, cost float64, at int64, size int) {
	if sh.means == nil {
		sh.means = make([]mean, size)
	}
	if m := sh.meanOf(hash); m != nil {
		m.cost += (cost - m.cost) / 8
		m.at, m.id = max(m.at, at), l.id
		return
	}
	fresh := mean{hash, cost, at, l.id}
	least, victim := fresh.weight(limits, at), -1
	places := sh.places(hash)
	for i := range places {
		if w := places[i].weight(limits, at); w <= least {
			least, victim = w, i
		}
	}
	if victim >= 0 {
		places[victim] = fresh
	}
}

// weight tells how much a mean matters: what part a request takes of what its
// limit allows at once, fading with the time since there was one.
func (m *mean) weight(limits []*limit, now int64) float64 {
	if m.id == 0 {
		return -1
	}
	l := limits[m.id]
	age := max(0, float64(now)-float64(m.at))
	return m.cost / float64(l.allowed) / (1 + age/float64(l.w))
}

// A limitMean is what requests under one limit cost: the mean of the first
// 256, then moving.
type limitMean struct {
	mu   sync.Mutex
	n    float64
	cost float64
	told atomic.Uint64 // cost, as its bits, or noMean
}

const noMean = 1<<64 - 1 // before the first; the bits of no number

func newLimitMean() *limitMean {
	m := &limitMean{}
	m.told.Store(noMean)
	return m
}

func (m *limitMean) learn(cost float64) {
	m.mu.Lock()
	m.n = min(m.n+1, 256)
	m.cost += (cost - m.cost) / m.n
	m.told.Store(math.Float64bits(m.cost))
	m.mu.Unlock()
}

func (m *limitMean) forget() {
	m.mu.Lock()
	m.n, m.cost = 0, 0
	m.told.Store(noMean)
	m.mu.Unlock()
}

// expected returns what is held for a request that passes, in the unit of
// fairshare.Tally.Held. The shard is locked.
func (l *limit) expected(sh *shard, hash uint64) int64 {
	allowed := float64(l.allowed)
	cost := allowed / 64 // none has settled since the start
	if m := sh.meanOf(hash); m != nil {
		cost = m.cost
	} else if told := l.mean.told.Load(); told != noMean {
		cost = math.Float64frombits(told)
	}
	return int64(math.Round(min(cost, allowed) * float64(uint64(1)<<l.fraction)))
}
