package lookup

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// terms are the durations and sizes of a line.
type terms struct {
	positive time.Duration // how long values are valid
	renew    time.Duration // age from which a request renews them
	hold     time.Duration // how long they are valid in all while renewals fail
	negative time.Duration // how long the absence of values is valid
	entries  int           // most stored addresses
	limits   [lanes]int    // look-ups at once
}

const (
	patience   = 2 * time.Second        // most time of a look-up
	impatience = 500 * time.Millisecond // most time of a look-up while others wait
	maxCalls   = 1024                   // calls of wait that run at once; further calls wait for them
)

// backoff returns the pause after the nth failed look-up of an address in a row.
func backoff(n uint8) time.Duration {
	return min(time.Minute<<min(n-1, 3), 5*time.Minute)
}

// A line looks up one kind of value for addresses in the background, and stores the results.
type line[T any] struct {
	terms terms
	look  func(context.Context, netip.Addr) ([]T, error) // values with an error are incomplete
	rate  func([]T) rank
	mute  func() bool // the DNS server does not answer, so no network is at fault
	began time.Time
	table *table[T]
	calls chan struct{}

	ctx    context.Context // the line ends with it
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	queue  queue
	closed bool
	tryAt  int64  // while the server does not answer, a call of wait tries again from this time on
	looked uint64 // look-ups that ended
	failed uint64 // those without an answer
}

func newLine[T any](t terms, look func(context.Context, netip.Addr) ([]T, error), rate func([]T) rank,
	mute func() bool) *line[T] {
	l := &line[T]{
		terms: t, look: look, rate: rate, mute: mute,
		began: time.Now(),
		table: newTable[T](t.entries),
		calls: make(chan struct{}, maxCalls),
		queue: newQueue(t.limits),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *line[T]) now() int64 { return int64(time.Since(l.began)) }

// get returns what is known of an address, and starts a look-up if one is due. It never waits.
func (l *line[T]) get(addr netip.Addr, now int64) (values []T, known bool) {
	e := l.table.find(addr)
	if e == nil || now >= e.askAt {
		l.request(addr)
	}
	if e == nil || now >= e.until {
		return nil, false
	}
	return e.values, e.known
}

func (l *line[T]) request(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueue(addr, false)
}

// enqueue returns the item of an address and creates it if needed. It returns nil if there is
// nothing to look up: the line is closed, the queue is full, or another call has just done it.
func (l *line[T]) enqueue(addr netip.Addr, must bool) *item {
	if l.closed {
		return nil
	}
	if it := l.queue.items[addr]; it != nil {
		return it
	}
	e, now := l.table.find(addr), l.now()
	if e != nil && now < e.askAt {
		return nil
	}
	as := fresh
	switch {
	case e == nil:
	case e.known && len(e.values) > 0 && now < e.until:
		as = renewal
	case e.failures > 0:
		as = retrial
	}
	it := l.queue.push(addr, as, must)
	l.start()
	return it
}

// start starts look-ups while there are free places.
func (l *line[T]) start() {
	for k := range lanes {
		for !l.closed {
			it := l.queue.next(k)
			if it == nil {
				break
			}
			var ctx context.Context
			ctx, it.cancel = context.WithTimeout(l.ctx, patience)
			if k != doubtful {
				it.hurry = time.AfterFunc(impatience, func() { l.hurry(it) })
			}
			l.ended.Add(1)
			go l.run(ctx, it)
		}
	}
}

func (l *line[T]) run(ctx context.Context, it *item) {
	defer l.ended.Done()
	values, err := l.look(ctx, it.addr)
	found := &entry[T]{addr: it.addr, values: values, known: err == nil, rank: l.rate(values)}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.ended(it)
	switch {
	case l.closed:
		l.abandon(it)
		return
	case err != nil && it.hurried:
		l.queue.requeue(it)
	default:
		e := l.remember(found)
		l.queue.finished(it, e.rank, err == nil, !l.mute())
		if it.done != nil {
			it.result = e
			close(it.done)
		}
	}
	l.start()
}

// hurry frees the place of a look-up that is slow while others wait. The look-up continues in the
// doubtful lane, or ends if that is full.
func (l *line[T]) hurry(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !it.running, it.hurry == nil:
	case l.queue.crowded(it.lane):
		if l.queue.moveOver(it) {
			l.start()
			return
		}
		it.hurried = true
		it.cancel()
	default:
		it.hurry.Reset(impatience)
	}
}

// remember stores the result of a look-up in the table, with its validity.
func (l *line[T]) remember(e *entry[T]) *entry[T] {
	now := l.now()
	l.looked++
	old := l.table.find(e.addr)
	e.since = now
	switch {
	case e.known && len(e.values) > 0:
		e.until, e.askAt = now+int64(l.terms.positive), now+int64(l.terms.renew)
	case e.known:
		e.until = now + int64(l.terms.negative)
		e.askAt = e.until
	default:
		l.failed++
		e.failures = 1
		if old != nil {
			e.failures = min(old.failures, 100) + 1
		}
		e.askAt = now + int64(backoff(e.failures))
		e.until = e.askAt
		if old != nil && old.known && len(old.values) > 0 && now < old.until {
			// A server that does not answer does not make confirmed names invalid.
			e.values, e.known, e.rank, e.since = old.values, true, old.rank, old.since
			e.until = max(old.until, old.since+int64(l.terms.hold))
		}
	}
	l.table.put(now, e)
	return e
}

// wait returns what is known of an address after it has been looked up. It returns early, with
// known false, when the context or the line ends, and while the server does not answer. In the last
// case one call in ten seconds asks the server again.
func (l *line[T]) wait(ctx context.Context, addr netip.Addr) (values []T, known bool) {
	select {
	case l.calls <- struct{}{}:
		defer func() { <-l.calls }()
	case <-ctx.Done():
		return nil, false
	case <-l.ctx.Done():
		return nil, false
	}
	if e := l.table.find(addr); e != nil && l.now() < e.until {
		l.get(addr, l.now()) // may start a renewal
		return e.values, e.known
	}
	l.mu.Lock()
	var it *item
	if now := l.now(); !l.mute() || now >= l.tryAt {
		l.tryAt = now + int64(recently)
		it = l.enqueue(addr, true)
	}
	if it == nil {
		l.mu.Unlock()
		if e := l.table.find(addr); e != nil && l.now() < e.until {
			return e.values, e.known
		}
		return nil, false
	}
	if it.done == nil {
		it.done = make(chan struct{})
	}
	it.waiters++
	l.mu.Unlock()

	select {
	case <-it.done:
		if e, ok := it.result.(*entry[T]); ok {
			return e.values, e.known
		}
	case <-ctx.Done():
		l.mu.Lock()
		it.waiters--
		l.mu.Unlock()
	}
	return nil, false
}

// abandon ends an item that will not be looked up.
func (l *line[T]) abandon(it *item) {
	delete(l.queue.items, it.addr)
	if it.done != nil {
		close(it.done)
	}
}

// close cancels all look-ups and waits for their end.
func (l *line[T]) close() {
	l.mu.Lock()
	l.closed = true
	for _, it := range l.queue.waiting {
		l.abandon(it)
	}
	l.queue.waiting = nil
	l.mu.Unlock()
	l.cancel()
	l.ended.Wait()
}

// stats adds the line's counts.
func (l *line[T]) stats(s *Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.LookedUp += l.looked
	s.Failed += l.failed
	s.Dropped += l.queue.dropped
	s.Waiting += len(l.queue.waiting)
	s.Running += l.queue.running()
}
