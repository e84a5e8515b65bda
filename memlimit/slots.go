package memlimit

import (
	"hash/maphash"
	"sync"
)

// slots counts the requests in progress of each key, exactly. It grows with
// what is in progress and with nothing else.
type slots struct {
	second maphash.Seed // the second half of a key's 128 bits
	shards [64]shard
}

type shard struct {
	mu    sync.Mutex
	taken map[slotKey]int64
	_     [48]byte // a cache line of its own
}

// A slotKey names a key under a limit. It holds a hash of 128 bits in place
// of the key, so that taking a slot copies nothing.
type slotKey struct {
	first, second uint64
	id            uint16
}

func newSlots() *slots {
	s := &slots{second: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].taken = map[slotKey]int64{}
	}
	return s
}

// key returns the key's name and the shard that it is in. hash is salted.
func (s *slots) key(l *limit, hash uint64, key []byte) (slotKey, int) {
	return slotKey{hash, maphash.Bytes(s.second, key), l.id}, int(hash >> 58)
}

// giveBack frees one slot, if one is taken.
func (s *slots) giveBack(k slotKey, shard int) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	switch n := sh.taken[k]; {
	case n > 1:
		sh.taken[k] = n - 1
	case n == 1:
		delete(sh.taken, k)
	}
	sh.mu.Unlock()
}

// inProgress returns how many slots are taken.
func (s *slots) inProgress() int64 {
	var sum int64
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, n := range sh.taken {
			sum += n
		}
		sh.mu.Unlock()
	}
	return sum
}

// forget gives all slots back.
func (s *slots) forget() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		clear(sh.taken)
		sh.mu.Unlock()
	}
}
