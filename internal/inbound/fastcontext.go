package inbound

import (
	"context"
	"net/http"
	"time"
)

// A fastContext is the context of a request in the lane. It ends when the client leaves, and when the handler returns.
type fastContext struct {
	conn *fastConn

	// What follows is guarded by conn.mu.
	used   bool          // something may still refer to the context
	done   chan struct{} // nil: nothing has asked for it
	ended  bool
	onEnd  func()    // of OnEnd; nil: OffEnd was called, or it has begun
	afters []*func() // of AfterFunc
}

// Memory returns a place for what the handler remembers from one request of the connection to the next. Only the
// handler's own goroutine may use it. It is nil if so many connections are open that each must need little memory.
func (x *fastContext) Memory() *any {
	if x.conn.lane.open.Load() > mostTexts {
		return nil
	}
	return &x.conn.memory
}

func (x *fastContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (x *fastContext) Done() <-chan struct{} {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.used = true
	if x.done == nil {
		x.done = make(chan struct{})
		if x.ended {
			close(x.done)
		}
	}
	return x.done
}

func (x *fastContext) Err() error {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if x.ended {
		return context.Canceled
	}
	return nil
}

func (x *fastContext) Value(key any) any {
	switch key {
	case connKey{}:
		if x.conn.conn != nil {
			return x.conn.conn
		}
	case http.ServerContextKey:
		return x.conn.lane.server
	case http.LocalAddrContextKey:
		return x.conn.outer.LocalAddr()
	}
	return nil
}

// OnEnd does what AfterFunc does, at less cost, for the handler itself: OffEnd is called before that returns, and
// nothing else refers to the context. It returns false if there is another function already.
func (x *fastContext) OnEnd(f func()) bool {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	switch {
	case x.onEnd != nil:
		return false
	case x.ended:
		go f()
	default:
		x.onEnd = f
	}
	return true
}

// OffEnd returns false if the function of OnEnd has begun. Otherwise it will not be called.
func (x *fastContext) OffEnd() bool {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	stopped := x.onEnd != nil
	x.onEnd = nil
	return stopped
}

// AfterFunc is what context.AfterFunc calls. It is much cheaper than Done.
func (x *fastContext) AfterFunc(f func()) (stop func() bool) {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.used = true
	if x.ended {
		go f()
		return func() bool { return false }
	}
	after := new(func())
	*after = f
	x.afters = append(x.afters, after)
	return func() bool {
		x.conn.mu.Lock()
		defer x.conn.mu.Unlock()
		for i, other := range x.afters {
			if other == after {
				x.afters = append(x.afters[:i], x.afters[i+1:]...)
				return true
			}
		}
		return false
	}
}

// cancel ends the context. conn.mu is held.
func (x *fastContext) cancel() {
	if x.ended {
		return
	}
	x.ended = true
	if x.done != nil {
		close(x.done)
	}
	if x.onEnd != nil {
		go x.onEnd()
		x.onEnd = nil
	}
	for _, f := range x.afters {
		go (*f)()
	}
	x.afters = nil
}
