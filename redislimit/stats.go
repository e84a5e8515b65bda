package redislimit

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// stats counts what a member does.
type stats struct {
	questions, credit, refused, reads, away, late, crowded atomic.Int64
	handing, handed, batches, unreadable, swapped, stale   atomic.Int64
	p50, p99                                               atomic.Int64 // ns, of the last minute

	mu    sync.Mutex
	trips [2]histogram // of this half minute and the one before
	begun time.Time
}

// A histogram counts times: each power of two of ns has eight buckets.
type histogram [64 * 8]uint32

func bucketOf(ns int64) int {
	v := uint64(max(ns, 8))
	n := bits.Len64(v) - 1
	return n*8 + int(v>>(n-3)&7)
}

// fewTrips is how many trips say nothing about the next yet.
const fewTrips = 20

// upper returns the longest time of a bucket.
func upper(bucket int) int64 {
	n, part := bucket/8, bucket%8
	return int64(1)<<n + int64(part+1)<<(n-3) - 1
}

func (s *stats) init() {
	s.begun = time.Now()
}

// trip notes how long a request waited.
func (s *stats) trip(ns int64) {
	s.mu.Lock()
	s.trips[0][bucketOf(ns)]++
	s.mu.Unlock()
}

// turn computes the quantiles. It is called each second.
func (s *stats) turn(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := uint64(0)
	for i := range s.trips[0] {
		total += uint64(s.trips[0][i]) + uint64(s.trips[1][i])
	}
	if total >= fewTrips {
		s.p50.Store(s.quantile(total, 50))
		s.p99.Store(s.quantile(total, 99))
	}
	if now.Sub(s.begun) > 30*time.Second {
		s.trips[1], s.trips[0], s.begun = s.trips[0], histogram{}, now
	}
}

func (s *stats) quantile(total uint64, percent uint64) int64 {
	want, seen := (total*percent+99)/100, uint64(0)
	for i := range s.trips[0] {
		if seen += uint64(s.trips[0][i]) + uint64(s.trips[1][i]); seen >= want {
			return upper(i)
		}
	}
	return 0
}

// A Status is the state of a member.
type Status struct {
	Group, Member, ID string
	Store, Topology   string

	Members []Member // alive, as of the last heartbeat; with this one
	Most    int      // most of the last five minutes

	Away      bool // a master cannot be reached
	AwaySince time.Time
	Reason    string // why it is away

	// Since the start: requests that waited for the store; that passed without; that
	// were refused without; that were decided while the store was away or late.
	Questions, Credit, Refused, DecidedAway int64
	Late                                    int64 // had no answer in time
	Crowded                                 int64 // were not asked, since too many waited
	Reads                                   int64 // of states that a view did not have or that were old
	HandedOver                              int64 // counts that were reported after the store was away
	Unreadable                              int64 // states in the store that made no sense and were dropped
	Batches                                 int64 // pipelines sent
	Replaced, Contended                     int64 // updates without a decision there; that others preceded

	RTT50, RTT99 time.Duration // how long requests waited in the last minute
	Pending      int           // states with something to report
	States       int           // that are known of
	ClockAhead   time.Duration // by how much the store's clock is ahead of this one's
}

// A Member is one program of a group.
type Member struct {
	ID, Name string
	Policy   string
	Since    time.Time // by the store's clock
}

// Correction returns by how much the store's clock is ahead of that of Options.Now, as far
// as times are corrected.
func (l *Limiter) Correction() time.Duration { return l.core.clock.correction() }

// Status returns the state of this member. It asks nobody.
func (l *Limiter) Status() Status {
	c := l.core
	s := &c.stats
	st := Status{
		Group: c.opts.Name, Member: c.opts.Member, ID: c.id(), Store: c.store.Address(), Topology: c.store.String(),
		Members: c.group.list(), Most: int(c.most.Load()),
		Questions: s.questions.Load(), Credit: s.credit.Load(), Refused: s.refused.Load(), DecidedAway: s.away.Load(),
		Late: s.late.Load(), Crowded: s.crowded.Load(), Reads: s.reads.Load(), HandedOver: s.handed.Load(),
		Unreadable: s.unreadable.Load(), Batches: s.batches.Load(),
		Replaced: s.swapped.Load(), Contended: s.stale.Load(),
		RTT50: time.Duration(s.p50.Load()), RTT99: time.Duration(s.p99.Load()), ClockAhead: c.clock.correction(),
	}
	st.Away, st.AwaySince, st.Reason = c.awaySince()
	for i := range c.book {
		sh := &c.book[i]
		sh.mu.Lock()
		st.States += len(sh.entries)
		for j := range sh.entries {
			if sh.entries[j].queued != unqueued || sh.entries[j].batch != 0 {
				st.Pending++
			}
		}
		sh.mu.Unlock()
	}
	return st
}
