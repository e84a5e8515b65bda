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
	used     bool          // something may still refer to the context
	done     chan struct{} // nil: nothing has asked for it
	ended    bool
	hasFirst bool      // AfterFunc was called
	first    func()    // the first function of AfterFunc; nil: it was stopped or has begun
	afters   []*func() // the later ones
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

// AfterFunc is what context.AfterFunc calls. It is much cheaper than Done.
func (x *fastContext) AfterFunc(f func()) (stop func() bool) {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.used = true
	if x.ended {
		go f()
		return func() bool { return false }
	}
	if !x.hasFirst { // most requests have one, which needs less memory
		x.hasFirst, x.first = true, f
		return x.stopFirst
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

// stopFirst is what the first call of AfterFunc returns.
func (x *fastContext) stopFirst() bool {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	stopped := x.first != nil
	x.first = nil
	return stopped
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
	if x.first != nil {
		go x.first()
		x.first = nil
	}
	for _, f := range x.afters {
		go (*f)()
	}
	x.afters = nil
}
