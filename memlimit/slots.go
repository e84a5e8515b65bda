package memlimit

import (
	"math/bits"
	"sync"

	"fairshare"
)

// slots counts exactly what the requests in progress have of each key: slots
// of a concurrent limit, or what is held of a limit that is settled. It grows
// with what is in progress and with nothing else. The mean costs of keys are
// stored next to it.
//
// All limits of a key are in one shard. A shard is locked before any set of the
// table, several in ascending order.
type slots struct {
	second secret // of the second half of a key's 128 bits
	shards [64]shard
	means  int // that each shard remembers
}

type shard struct {
	mu    sync.Mutex
	taken holdings
	means means    // nil until there is one
	_     [16]byte // to two cache lines of its own
}

func newSlots() *slots { return &slots{second: newSeed().secret()} }

// shardOf returns the number of the shard that a key is in. hash is that of the
// key alone, without a limit's salt.
func shardOf(hash uint64) int { return int(hash >> 58) }

// lock locks shards, one bit each, in ascending order.
func (s *slots) lock(shards uint64) {
	for ; shards != 0; shards &= shards - 1 {
		s.shards[bits.TrailingZeros64(shards)].mu.Lock()
	}
}

func (s *slots) unlock(shards uint64) {
	for ; shards != 0; shards &= shards - 1 {
		s.shards[bits.TrailingZeros64(shards)].mu.Unlock()
	}
}

// inProgress returns how many slots of concurrent limits are taken.
func (l *Limiter) inProgress() int64 {
	limits := *l.table.limits.Load()
	var sum int64
	for i := range l.slots.shards {
		sh := &l.slots.shards[i]
		sh.mu.Lock()
		for k, n := range sh.taken.all() {
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
		sh.taken = holdings{}
		sh.means = nil
		sh.mu.Unlock()
	}
}
