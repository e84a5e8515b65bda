// Package share gives each client a fair share of a busy upstream. Start with
// [New]. Each request makes a [Queue.Claim], has a [Queue.Wait] for its turn,
// and says [Turn.Done] when the upstream is done.
//
// While the upstream has room, a request has its turn at once. When it works
// on as many as it can, requests wait, and each free slot goes to the waiting
// client whose network, and then who itself, had the least of the upstream's
// time lately: hierarchical start-time fair queueing over measured time. Above
// the networks stand two sides, clients with standing and newcomers; each
// keeps half of the slots and of the queue, and lends what it does not use.
//
// Memory is bounded: beside who waits and who is inside, some 16,000 clients
// and networks that had the upstream's time in the last minutes are
// remembered, about 10 MB, and since when clients are known, see
// Options.Remember.
package share

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Options of a Queue.
type Options struct {
	Capacity int                 // requests that the upstream works on at once; 0: found by watching its latency
	Min, Max int                 // bounds of what is found; 0: 1 and 1024
	By       []fairshare.KeyPart // what shares, from the top: up to MaxParts; empty: networks, then addresses
	Wait     time.Duration       // the longest a request waits for its turn; 0: 10 s; below 0: none waits
	Queue    int                 // requests that wait, in all; 0: 1024; below 0: none waits

	// KnownAfter is for how long a client must have been known to have
	// standing. Verified bots, clients with a label and whom an operator allows
	// have it at once. 0:
	// everybody has it.
	KnownAfter time.Duration

	// Remember bounds the clients of which is remembered since when they are
	// known, 8 bytes each, taken at first need; half as many have room for
	// sure. 0: two million.
	Remember int

	// Labels and Bots have weights: how many shares a client with the label, or
	// a verified bot of the name or category, has among the networks. The
	// greatest of a client's labels counts, of a bot its name, then its
	// first category that stands here. Kept between 1/1024 and 1024; the maps
	// are not to be changed.
	Labels, Bots map[string]float64

	// DryRun lets everybody in at once; Stats tells who would have waited or
	// been refused. A capacity is not found meanwhile.
	DryRun bool

	Key    func(b []byte, req *fairshare.Request, part fairshare.KeyPart) []byte // as Guard.AppendKey; nil: by address or network alone
	Client func(netip.Addr) netip.Prefix                                         // as Policy.Client; nil: as for a zero Policy
}

// MaxParts is how many parts Options.By may have.
const MaxParts = 4

const (
	defaultWait  = 10 * time.Second
	defaultQueue = 1024
)

// filled returns the options with what their zeros mean.
func (o Options) filled() Options {
	if len(o.By) == 0 {
		o.By = []fairshare.KeyPart{{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr}}
	}
	o.By = slices.Clone(o.By[:min(len(o.By), MaxParts)])
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	o.Queue = max(o.Queue, 0)
	if o.Wait < 0 {
		o.Queue = 0
	}
	if o.Client == nil {
		o.Client = new(fairshare.Policy).Client
	}
	if o.Key == nil {
		o.Key = appendAddr
	}
	return o
}

// A Queue is where requests wait for a busy upstream. It is safe for
// concurrent use.
type Queue struct {
	terms atomic.Pointer[terms]
	known known
	base  time.Time
	rooms sync.Pool // of *[]byte: to make keys in

	mu       sync.Mutex
	schedule *scheduler
	capacity slots
}

// New returns a Queue in which nobody waits.
func New(opts Options) *Queue {
	q := &Queue{base: time.Now(), schedule: newScheduler()}
	q.rooms.New = func() any { return new([]byte) }
	q.Replace(opts)
	return q
}

// Replace changes the options. Who waits and who is inside stay: with the key
// that they came with, and for as long as it was to be at most then. What a
// shorter queue has no room for is refused. What was found of the capacity
// stays, within Min and Max; Remember is that of the first Options.
func (q *Queue) Replace(opts Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	opts = opts.filled()
	last := q.terms.Load()
	next := newTerms(opts, last)
	q.known.size(opts.Remember)
	q.capacity = capacityOf(opts, q.capacity)
	q.terms.Store(next)
	q.schedule.set(q.capacity.Slots(), opts.Queue, opts.DryRun, q.now())
}

// TurnAway refuses all that wait, and has nobody wait from now on, until
// Replace.
func (q *Queue) TurnAway() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.schedule.set(q.schedule.slots, 0, q.schedule.dry, q.now())
}

// now returns the time since the Queue was made, in ns.
func (q *Queue) now() int64 { return int64(time.Since(q.base)) }

// Known says since when a client is known, as the registry has it. Who was
// seen last is to be told first: what there is no room for is passed over.
func (q *Queue) Known(client netip.Prefix, first time.Time) {
	t := q.terms.Load()
	q.known.tell(t.known(client), first, time.Now(), t.KnownAfter)
}

// Stats is what a Queue has to say. Counts are since it was made.
type Stats struct {
	Capacity int // slots now
	Inside   int // requests that the upstream works on now
	Waiting  int // requests that wait now

	// Of clients with standing and of newcomers.
	Standing, Newcomers Side

	// LongestWait is of the requests that had waited in this minute of the
	// Queue and the one before it.
	LongestWait time.Duration
}

// A Side counts what became of the requests of one side. In dry run Waited and Refused count
// those that would have.
type Side struct {
	Turns   int64 // had their turn
	Waited  int64 // of these, after waiting
	Refused int64 // for a full queue
	Expired int64 // for having waited too long
	Left    int64 // their clients were gone before the turn came
}

// Stats tells what there is and was.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	s.pass(q.now())
	s.turnMinute()
	return Stats{
		Capacity: s.slots, Inside: s.inside, Waiting: s.waiting,
		Standing: s.tally[standing], Newcomers: s.tally[newcomers],
		LongestWait: time.Duration(max(s.longest.this, s.longest.ago)),
	}
}

// A Busy says that there is no turn for a request.
type Busy struct {
	RetryAfter time.Duration // when there may be one; 1 s to 76 s: longer with a longer queue, and the more are turned away
	Waited     bool          // it waited for as long as it may; else the queue was full
}

func (b *Busy) Error() string {
	if b.Waited {
		return fmt.Sprintf("no turn within the longest wait, come back in %v", b.RetryAfter)
	}
	return fmt.Sprintf("the queue is full, come back in %v", b.RetryAfter)
}
