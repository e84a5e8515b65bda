package httpguard

import (
	"sync"
	"sync/atomic"
	"time"
)

// How often requests in progress are looked at, and from which age on they are
// charged: each at least once a second.
const (
	lookEvery = 500 * time.Millisecond
	longAfter = 500 * time.Millisecond
)

// running are the requests in progress under limits that are charged
// meanwhile. While there are some, a timer looks at them.
type running struct {
	shards [8]runners
	next   atomic.Uint32
	armed  atomic.Bool
}

// runners are some of the requests in progress, the latest first.
type runners struct {
	mu    sync.Mutex
	first *exchange
	_     [40]byte // a cache line each
}

// A place is where an exchange stands among its runners.
type place struct {
	in         *runners // nil: nowhere
	next, prev *exchange
}

func (r *running) add(x *exchange) {
	in := &r.shards[r.next.Add(1)%uint32(len(r.shards))]
	in.mu.Lock()
	p := &x.work.running
	p.in, p.next = in, in.first
	if in.first != nil {
		in.first.work.running.prev = x
	}
	in.first = x
	in.mu.Unlock()
	r.arm()
}

func (r *running) remove(x *exchange) {
	p := &x.work.running
	if p.in == nil {
		return
	}
	p.in.mu.Lock()
	if p.prev != nil {
		p.prev.work.running.next = p.next
	} else {
		p.in.first = p.next
	}
	if p.next != nil {
		p.next.work.running.prev = p.prev
	}
	p.in.mu.Unlock()
	*p = place{}
}

// arm sets the timer if it is not.
func (r *running) arm() {
	if !r.armed.Load() && r.armed.CompareAndSwap(false, true) {
		time.AfterFunc(lookEvery, r.look)
	}
}

// look charges those in progress for long, and comes again while there are
// any.
func (r *running) look() {
	var now time.Time
	var long []*exchange
	some := false
	for i := range r.shards {
		in := &r.shards[i]
		in.mu.Lock()
		for x := in.first; x != nil; x = x.work.running.next {
			if some = true; now.IsZero() {
				now = x.h.Now()
			}
			if now.UnixNano()-x.work.began >= int64(longAfter) {
				long = append(long, x)
			}
		}
		in.mu.Unlock()
	}
	for _, x := range long {
		x.soFar(x.h.Now())
	}
	if some {
		time.AfterFunc(lookEvery, r.look)
		return
	}
	r.armed.Store(false)
	for i := range r.shards { // one may have come since
		in := &r.shards[i]
		in.mu.Lock()
		some = some || in.first != nil
		in.mu.Unlock()
	}
	if some {
		r.arm()
	}
}
