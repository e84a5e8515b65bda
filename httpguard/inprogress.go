package httpguard

import (
	"sync"
	"sync/atomic"
	"time"
)

// Requests in progress are looked at so often, and charged from this age on: each
// at least once a second.
const (
	lookEvery = 500 * time.Millisecond
	longAfter = 500 * time.Millisecond
)

// inProgress holds the requests in progress under limits that are charged
// meanwhile. While there are some, a timer looks at them.
type inProgress struct {
	shards [8]requestList
	next   atomic.Uint32
	armed  atomic.Bool
}

// A requestList holds some of the requests in progress, the latest first.
type requestList struct {
	mu    sync.Mutex
	first *Exchange
	_     [40]byte // a cache line each
}

// links are the neighbors of a request in its list.
type links struct {
	in         *requestList // nil: it is in none
	next, prev *Exchange
}

func (p *inProgress) add(x *Exchange) {
	in := &p.shards[p.next.Add(1)%uint32(len(p.shards))]
	in.mu.Lock()
	own := &x.work.running
	own.in, own.next = in, in.first
	if in.first != nil {
		in.first.work.running.prev = x
	}
	in.first = x
	in.mu.Unlock()
	p.arm()
}

func (p *inProgress) remove(x *Exchange) {
	own := &x.work.running
	if own.in == nil {
		return
	}
	own.in.mu.Lock()
	if own.prev != nil {
		own.prev.work.running.next = own.next
	} else {
		own.in.first = own.next
	}
	if own.next != nil {
		own.next.work.running.prev = own.prev
	}
	own.in.mu.Unlock()
	*own = links{}
}

// arm starts the timer if it does not run.
func (p *inProgress) arm() {
	if !p.armed.Load() && p.armed.CompareAndSwap(false, true) {
		time.AfterFunc(lookEvery, p.look)
	}
}

// look charges the requests that are in progress for long. The timer runs on
// while there are requests.
func (p *inProgress) look() {
	var now time.Time
	var long []*Exchange
	some := false
	for i := range p.shards {
		in := &p.shards[i]
		in.mu.Lock()
		for x := in.first; x != nil; x = x.work.running.next {
			if some = true; now.IsZero() {
				now = x.gen.Now()
			}
			if now.UnixNano()-x.work.began >= int64(longAfter) {
				long = append(long, x)
			}
		}
		in.mu.Unlock()
	}
	for _, x := range long {
		x.settleSoFar(x.gen.Now())
	}
	if some {
		time.AfterFunc(lookEvery, p.look)
		return
	}
	p.armed.Store(false)
	for i := range p.shards { // one may have come since
		in := &p.shards[i]
		in.mu.Lock()
		some = some || in.first != nil
		in.mu.Unlock()
	}
	if some {
		p.arm()
	}
}
