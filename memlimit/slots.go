package memlimit

import (
	"hash/maphash"
	"sync"

	"fairshare"
)

// slots counts exactly what the requests in progress have of each key: slots
// of a concurrent limit, or what is held of a limit that is settled. It grows
// with what is in progress and with nothing else. What keys cost lately is
// remembered beside it.
//
// A shard is locked before any set of the table, several in ascending order.
type slots struct {
	second maphash.Seed // the second half of a key's 128 bits
	shards [64]shard
	means  int // that each shard remembers
}

type shard struct {
	mu    sync.Mutex
	taken map[slotKey]int64 // slots, or what is held; above zero, and at most twice what a limit allows
	means []mean            // nil until there is one
	_     [24]byte          // a cache line of its own
}

// A slotKey names a key under a limit. It holds a hash of 128 bits in place
// of the key, so that taking a slot copies nothing.
type slotKey struct {
	first, second uint64
	id            uint16
}

// name returns a key's name. hash is salted.
func (s *slots) name(l *limit, hash uint64, key []byte) slotKey {
	return slotKey{hash, maphash.Bytes(s.second, key), l.id}
}

func newSlots() *slots {
	s := &slots{second: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].taken = map[slotKey]int64{}
	}
	return s
}

// of returns the shard that a key is in. hash is salted.
func (s *slots) of(hash uint64) *shard { return &s.shards[shardOf(hash)] }

func shardOf(hash uint64) int { return int(hash >> 58) }

// giveBack takes n off, as far as there is so much. The shard is locked.
func (sh *shard) giveBack(k slotKey, n int64) {
	switch taken := sh.taken[k]; {
	case n <= 0:
	case taken > n:
		sh.taken[k] = taken - n
	case taken > 0:
		delete(sh.taken, k)
	}
}

// inProgress returns how many slots of concurrent limits are taken.
func (l *Limiter) inProgress() int64 {
	limits := *l.table.limits.Load()
	var sum int64
	for i := range l.slots.shards {
		sh := &l.slots.shards[i]
		sh.mu.Lock()
		for k, n := range sh.taken {
			if int(k.id) < len(limits) && limits[k.id].resource == fairshare.Concurrent {
				sum += n
			}
		}
		sh.mu.Unlock()
	}
	return sum
}

// forget gives everything back and forgets all means.
func (s *slots) forget() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		clear(sh.taken)
		sh.means = nil
		sh.mu.Unlock()
	}
}
