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
	banChunk = 1024                   // of a banQueue
	maxWait  = 500 * time.Millisecond // of a request for bans to be written
)

// A banQueue holds bans until they are written: in the order in which they
// came, and of one key and rule only the latest, but for one that is just
// being written.
type banQueue struct {
	seed    maphash.Seed
	most    int
	pending atomic.Int64 // queued, or being written
	slow    atomic.Bool  // the disk is known to be: nobody waits for it

	// Bans have numbers in the order in which they came.
	mu sync.Mutex
	// grows without being moved: the guard waits; a zero Client means superseded or lifted
	chunks   [][]fairshare.Banned
	base     uint64            // number of the first of chunks
	first    uint64            // number of the first that is not written
	next     uint64            // number of the next to come
	writing  uint64            // number of the first that is not being written; first when none is
	latest   map[uint64]uint64 // hash of key and rule → number
	lost     int64             // there was no place
	progress chan struct{}     // closed when a write has ended
}

func newBanQueue(seed maphash.Seed, most int) *banQueue {
	return &banQueue{seed: seed, most: most, latest: map[uint64]uint64{}, progress: make(chan struct{})}
}

// at returns the ban with a number.
func (q *banQueue) at(number uint64) *fairshare.Banned {
	i := number - q.base
	return &q.chunks[i/banChunk][i%banChunk]
}

func (q *banQueue) hash(b *fairshare.Banned) uint64 {
	return maphash.Comparable(q.seed, struct {
		id   fairshare.ClientID
		kind fairshare.KeyKind
		rule string
	}{b.Client, b.Kind, b.Rule})
}

// sameBan reports whether two bans are of one key and rule.
func sameBan(b, c *fairshare.Banned) bool {
	return b.Client == c.Client && b.Kind == c.Kind && b.Rule == c.Rule
}

// add queues a ban.
func (q *banQueue) add(b fairshare.Banned) {
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
		q.lost++
		return
	}
	if i := q.next - q.base; i/banChunk == uint64(len(q.chunks)) {
		q.chunks = append(q.chunks, make([]fairshare.Banned, banChunk))
	}
	*q.at(q.next) = b
	q.latest[hash] = q.next
	q.next++
	q.pending.Add(1)
}

// take returns at most n bans to be written, the first first. Hand the outcome
// to done.
func (q *banQueue) take(n int) (bans []fairshare.Banned) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing = q.first; q.writing < q.next && len(bans) < n; q.writing++ {
		b := q.at(q.writing)
		if b.Client.IsZero() {
			continue
		}
		if later, found := q.latest[q.hash(b)]; found && later > q.writing {
			if sameBan(q.at(later), b) {
				*b = fairshare.Banned{} // that one came while this one was being written, in vain
				continue
			}
		}
		bans = append(bans, *b)
	}
	return bans
}

// done ends what take began.
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
		*b = fairshare.Banned{}
		q.pending.Add(-1)
		if q.first+1-q.base == banChunk {
			q.chunks, q.base = q.chunks[1:], q.base+banChunk
		}
	}
	if q.first == q.next { // give memory back
		q.chunks, q.base, q.latest = nil, q.first, map[uint64]uint64{}
	}
}

// lift drops the bans of a client that began until at and are not being
// written.
func (q *banQueue) lift(which func(fairshare.ClientID) bool, at time.Time) {
	number := uint64(0)
	for more := true; more; {
		q.mu.Lock() // not for long: the guard may wait
		number = max(number, q.writing)
		for range banChunk {
			if number >= q.next {
				more = false
				break
			}
			b := q.at(number)
			if !b.Client.IsZero() && !b.Began.After(at) && which(b.Client) {
				delete(q.latest, q.hash(b))
				*b = fairshare.Banned{}
			}
			number++
		}
		q.mu.Unlock()
	}
}

// wait waits until all that was queued is written, but not for long, and not
// at all for a slow disk.
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

// Banned queues a ban, to be written at once. It is quick and does not block;
// it is safe for concurrent use.
func (g *Registrar) Banned(b fairshare.Banned) {
	g.bans.add(b)
	g.wake()
}

// Settle waits until all bans that were begun so far are on disk: then not
// even kill -9 loses them. It returns at once when there are none, after half a
// second at most, and does not wait for a disk that is known to be slow or broken.
func (g *Registrar) Settle(ctx context.Context) { g.bans.wait(ctx) }
