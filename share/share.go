// Package share gives each client a fair share of a busy upstream. Start with [New]. For each
// request call [Queue.Claim] on arrival, [Queue.Wait] to wait for its turn, and [Turn.Done] when
// the upstream has finished.
//
// While the upstream has free slots, a request gets its turn at once. Otherwise requests wait. Each
// free slot goes to the network that used the least upstream time recently, and within it to the
// client that used the least. The algorithm is hierarchical start-time fair queueing over measured
// time. Above the networks are classes of clients by age: clients whose first request is at least a
// day ago, an hour, ten minutes, a minute, ten seconds, a second, and newer ones. Each class that
// waits is guaranteed half of the slots and of the queue that the older classes leave, and uses what
// the others do not. Every second turn of a class goes to the network that has waited longest, for up
// to eight requests in a row, if it used no more than others before. So a first request waits at
// most about twice as long as in order of arrival, among the requests of its class. That holds even
// if other clients share its owner, unless these use a sixteenth of the upstream more than their part.
//
// A visitor (Request.Visitor) is one client, whatever its address, in the class of its cookie's age.
// If it was refused and comes back, it has the place that it had: its turns by arrival come before
// those of requests that came later. See Queue.Claim for what copies of a cookie get.
//
// Memory is bounded. Besides the requests in the queue and in progress, a Queue stores some 16,000
// clients and networks that used upstream time in the last minutes, about 10 MB. It also stores
// since when clients are known, see Options.Remember.
package share

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// Options of a Queue.
type Options struct {
	Capacity int                 // requests that the upstream processes at once; 0: found from its latency
	Min, Max int                 // bounds of the capacity that is found; 0: 1 and 1024
	By       []fairshare.KeyPart // levels that share, from the top: up to MaxParts; empty: DefaultBy
	Wait     time.Duration       // longest wait of a request for its turn; 0: 10 s; below 0: no request waits
	Queue    int                 // most requests that wait at once; 0: 1024; below 0: no request waits

	// Ages divides clients into classes by the time since their first request. Verified bots,
	// clients with a label and clients that an operator allows are in the oldest class. False: all
	// clients are.
	Ages bool

	// Remember is the number of clients whose first request is remembered, rounded up to a power of
	// two, at most 2^27. Each takes 8 bytes, allocated at first use. If half as many clients come,
	// some 1 % of them do not fit. 0: 2^21, two million.
	Remember int

	// Labels and Bots have weights: how many shares a client with the label, or a verified bot with
	// the name or category, has among the networks. If a client has several labels, the greatest
	// weight counts. For a bot the weight of its name counts, else that of its first category in
	// Bots. Weights are limited to 1/1024 to 1024. The maps must not be changed.
	Labels, Bots map[string]float64

	// DryRun gives every request its turn at once. Stats counts the requests that would have waited
	// or been refused. The capacity is not searched for in dry run.
	DryRun bool

	// Key appends a key part, as Guard.AppendKey does; nil: only by address or network.
	Key func(b []byte, req *fairshare.Request, part fairshare.KeyPart) []byte

	// Hash is a keyed hash that the members of a group have in common, see Report. It says that the
	// upstream's capacity is one for all of them. nil: no other program has this upstream.
	Hash func(b []byte) uint64

	// Client returns a client's prefix, as Policy.Client does; nil: as a zero Policy.
	Client func(netip.Addr) netip.Prefix
}

// MaxParts is the most parts that Options.By may have.
const MaxParts = 5

// DefaultBy returns the levels of a share by default: fleets, the owners of addresses (if known),
// networks /16 and /32, networks /24 and /48, and addresses. A client outside a fleet has no level
// for it. An address without a known owner counts by its wider network.
func DefaultBy() []fairshare.KeyPart {
	return []fairshare.KeyPart{
		{Kind: fairshare.ByFleet}, {Kind: fairshare.ByASN}, {Kind: fairshare.ByNetwork, Bits4: 16, Bits6: 32},
		{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr},
	}
}

const (
	defaultWait  = 10 * time.Second
	defaultQueue = 1024
)

// filled returns the options with zeros replaced by the defaults.
func (o Options) filled() Options {
	if len(o.By) == 0 {
		o.By = DefaultBy()
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

// A Queue holds requests that wait for a busy upstream. It is safe for concurrent use.
type Queue struct {
	terms      atomic.Pointer[terms]
	known      known
	base       time.Time
	keyBuffers sync.Pool    // of *[]byte: buffers for keys
	waiters    sync.Pool    // of *waiter
	busyUntil  atomic.Int64 // see IsBusy

	mu       sync.Mutex
	schedule *scheduler
	capacity slots
	stirred  int64       // when a request last began at once or finished, or a stall was found
	sampled  int64       // time of the last sample for the capacity
	stalls   *time.Timer // looks for stalls; nil if no request waits

	pressed chan struct{} // see Pressed
}

// New returns an empty Queue.
func New(opts Options) *Queue {
	q := &Queue{base: time.Now(), schedule: newScheduler(), pressed: make(chan struct{}, 1)}
	q.waiters.New = func() any { return newWaiter(q) }
	q.keyBuffers.New = func() any { return new([]byte) }
	q.Replace(opts)
	return q
}

// Replace changes the options. Requests that wait or are in progress stay, with their old keys and
// their old longest wait. Requests beyond the length of a shorter queue are refused. A capacity
// that was found stays, within Min and Max. Remember keeps the value of the first Options.
func (q *Queue) Replace(opts Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	opts = opts.filled()
	last := q.terms.Load()
	next := newTerms(opts, last)
	q.known.size(opts.Remember)
	q.useCapacity(opts)
	q.terms.Store(next)
	q.useSlots()
	q.schedule.set(q.schedule.slots, opts.Queue, opts.DryRun, q.now())
	q.noteBusy()
}

// RefuseWaiting refuses all requests that wait, and lets no request wait until the next Replace.
func (q *Queue) RefuseWaiting() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.schedule.set(q.schedule.slots, 0, q.schedule.dry, q.now())
	q.noteBusy()
}

// now returns the time since New, in ns.
func (q *Queue) now() int64 { return int64(time.Since(q.base)) }

// busyFor is how long a Queue counts as busy after the last request waited, in ns.
const busyFor = 5e9

// IsBusy reports whether requests wait for a turn, or waited within the last 5 seconds. In dry run
// requests count that would have waited. It takes no lock and allocates nothing: some 2 ns, and
// while the Queue is busy the time to read the clock.
func (q *Queue) IsBusy() bool {
	until := q.busyUntil.Load()
	return until != 0 && q.now() < until
}

// noteBusy updates what IsBusy returns. It is called with the lock held, after each change of the
// requests that wait.
func (q *Queue) noteBusy() {
	s, until := q.schedule, int64(0)
	switch {
	case s.waiting > 0:
		until = math.MaxInt64
	case s.waited >= 0 && s.now < s.waited+busyFor:
		until = s.waited + busyFor
	}
	if until != q.busyUntil.Load() { // most calls change nothing, and leave the cache line to its readers
		q.busyUntil.Store(until)
	}
}

// Known records when the registry first saw a client. first and now are of the clock of
// Request.Time. A client that comes again stays known; until then new clients may replace it.
func (q *Queue) Known(client netip.Prefix, first, now time.Time) {
	t := q.terms.Load()
	if t.Ages {
		q.known.record(t.client(client, netip.Addr{}), first, now)
	}
}

// Stats describes a Queue. Counts are since New.
type Stats struct {
	Capacity int // slots now, of this program
	Inside   int // requests that the upstream processes now
	Waiting  int // requests that wait now

	Classes [7]Class // counts of each class, oldest first

	// LongestWait is the longest wait that ended in this minute of the Queue or in the minute
	// before.
	LongestWait time.Duration

	Group GroupStats
}

// A Class counts the requests of one class of clients by their result. In dry run Waited and
// Refused count requests that would have waited or been refused.
type Class struct {
	Age     time.Duration // the clients' first requests are at least so long ago; those of the next older class longer
	Turns   int64         // got their turn
	Waited  int64         // of these, after waiting
	Refused int64         // because the queue was full
	Expired int64         // because they waited too long
	Gone    int64         // their clients disconnected before the turn came, or just when it came
}

// Stats returns the present state and the counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	s.pass(q.now())
	s.turnMinute()
	return Stats{
		Group:    s.group.stats(),
		Capacity: s.slots, Inside: s.inside, Waiting: s.waiting,
		Classes:     s.tally,
		LongestWait: time.Duration(max(s.longest.this, s.longest.ago)),
	}
}

// A Busy is the error of a request that gets no turn.
type Busy struct {
	RetryAfter time.Duration // 1 s to 76 s: longer with a longer queue and with more refusals
	Waited     bool          // it waited for the longest allowed time; false: the queue was full

	// Expected is about how long the client still has to wait for a turn if it comes back and keeps
	// its place, 1 s to 10 minutes. It is for the text of a page, not a promise.
	Expected time.Duration
}

func (b *Busy) Error() string {
	if b.Waited {
		return fmt.Sprintf("no turn within the longest wait, retry after %v", b.RetryAfter)
	}
	return fmt.Sprintf("the queue is full, retry after %v", b.RetryAfter)
}
