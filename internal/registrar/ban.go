package registrar

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

const (
	banChunk = 1024                   // bans in a chunk of a banQueue
	maxWait  = 500 * time.Millisecond // how long a request waits until bans are written
)

// A banQueue holds bans until they are written, in the order of arrival. For each
// key and rule it holds only the latest ban, in addition to one that is being
// written.
type banQueue struct {
	seed    maphash.Seed
	most    int          // bans
	pending atomic.Int64 // queued, or being written
	slow    atomic.Bool  // the disk is slow or broken: requests do not wait for it

	// Bans are numbered in the order of arrival.
	mu sync.Mutex
	// chunks grow without copying, since the guard waits for add. A zero Client marks
	// a superseded or lifted ban.
	chunks   [][]fairshare.BanRecord
	base     uint64            // number of the first ban in chunks
	first    uint64            // number of the first ban that is not written
	next     uint64            // number of the next ban to arrive
	writing  uint64            // number of the first ban after those being written; first if none is
	latest   map[uint64]uint64 // hash of key and rule → number
	dropped  int64             // bans beyond most
	progress chan struct{}     // closed at the end of a write
}

func newBanQueue(seed maphash.Seed, most int) *banQueue {
	return &banQueue{seed: seed, most: most, latest: map[uint64]uint64{}, progress: make(chan struct{})}
}

// at returns the ban with a number.
func (q *banQueue) at(number uint64) *fairshare.BanRecord {
	i := number - q.base
	return &q.chunks[i/banChunk][i%banChunk]
}

func (q *banQueue) hash(b *fairshare.BanRecord) uint64 {
	return maphash.Comparable(q.seed, struct {
		id   fairshare.ClientID
		kind fairshare.KeyKind
		rule string
	}{b.Client, b.Kind, b.Rule})
}

// sameBan reports whether two bans have the same key and rule.
func sameBan(b, c *fairshare.BanRecord) bool {
	return b.Client == c.Client && b.Kind == c.Kind && b.Rule == c.Rule
}

// add queues a ban. It replaces a queued one of the same key and rule.
func (q *banQueue) add(b fairshare.BanRecord) {
	hash := q.hash(&b)
	q.mu.Lock()
	defer q.mu.Unlock()
	number, found := q.latest[hash]
	if found {
		earlier := q.at(number)
		found = sameBan(earlier, &b)
		if found && number >= q.writing {
			*earlier = b
			return
		}
	}
	if !found && q.next-q.first >= uint64(q.most) {
		q.dropped++
		return
	}
	if i := q.next - q.base; i/banChunk == uint64(len(q.chunks)) {
		q.chunks = append(q.chunks, make([]fairshare.BanRecord, banChunk))
	}
	*q.at(q.next) = b
	q.latest[hash] = q.next
	q.next++
	q.pending.Add(1)
}

// take returns at most n bans to write, in the order of arrival. Report the outcome
// to done.
func (q *banQueue) take(n int) (bans []fairshare.BanRecord) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing = q.first; q.writing < q.next && len(bans) < n; q.writing++ {
		b := q.at(q.writing)
		if b.Client.IsZero() {
			continue
		}
		if later, found := q.latest[q.hash(b)]; found && later > q.writing {
			if sameBan(q.at(later), b) {
				*b = fairshare.BanRecord{} // superseded while a write of it failed
				continue
			}
		}
		bans = append(bans, *b)
	}
	return bans
}

// done ends the write of the bans that take returned.
func (q *banQueue) done(written bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.progress)
	q.progress = make(chan struct{})
	if !written {
		q.writing = q.first
		return
	}
	for ; q.first < q.writing; q.first++ {
		b := q.at(q.first)
		if !b.Client.IsZero() {
			if hash := q.hash(b); q.latest[hash] == q.first {
				delete(q.latest, hash)
			}
		}
		*b = fairshare.BanRecord{}
		q.pending.Add(-1)
		if q.first+1-q.base == banChunk {
			q.chunks, q.base = q.chunks[1:], q.base+banChunk
		}
	}
	if q.first == q.next { // release the memory
		q.chunks, q.base, q.latest = nil, q.first, map[uint64]uint64{}
	}
}

// lift drops the bans of the matching clients that began at a time or before,
// except those being written.
func (q *banQueue) lift(which func(fairshare.ClientID) bool, at time.Time) {
	number := uint64(0)
	for more := true; more; {
		q.mu.Lock() // for a short time: the guard may wait
		number = max(number, q.writing)
		for range banChunk {
			if number >= q.next {
				more = false
				break
			}
			b := q.at(number)
			if !b.Client.IsZero() && !b.Began.After(at) && which(b.Client) {
				delete(q.latest, q.hash(b))
				*b = fairshare.BanRecord{}
			}
			number++
		}
		q.mu.Unlock()
	}
}

// wait waits until all queued bans are written, at most for maxWait, and not at all
// for a slow disk.
func (q *banQueue) wait(ctx context.Context) {
	if q.pending.Load() == 0 || q.slow.Load() {
		return
	}
	q.mu.Lock()
	last := q.next
	q.mu.Unlock()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for {
		q.mu.Lock()
		done, progress := q.first >= last, q.progress
		q.mu.Unlock()
		if done || q.slow.Load() {
			return
		}
		select {
		case <-progress:
		case <-timer.C:
			q.slow.Store(true)
			return
		case <-ctx.Done():
			return
		}
	}
}

// Banned queues a ban, which is written at once. It does not wait for the disk. It
// is safe for concurrent use.
func (g *Registrar) Banned(b fairshare.BanRecord) {
	g.bans.add(b)
	if g.banWriter != nil {
		g.banWriter.wake()
		return
	}
	g.wake()
}

// Settle waits until all queued bans are written, so that the kill of the process
// does not lose them. It returns at once if there are none or if the disk is known
// to be slow or broken, and after half a second at most. It is safe for concurrent
// use.
func (g *Registrar) Settle(ctx context.Context) { g.bans.wait(ctx) }
