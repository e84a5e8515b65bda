package proxy

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxAbandoned is how many requests whose clients are gone are awaited at
	// once. The oldest makes room for one more.
	maxAbandoned = 1024

	// maxDropped is how much of an answer is read for nobody, in bytes. An
	// upstream that still writes then hears by the closed connection that it
	// may stop.
	maxDropped = 16 << 20
)

var (
	errAbandoned = errors.New("the client is gone")
	errStopped   = errors.New("the proxy stops")
)

// A patience is the detached life of a request to the upstream: it does not
// end when the client leaves, but some time later.
type patience struct {
	cancel    context.CancelCauseFunc
	abandoned *abandoned
	time      time.Duration // after the client left; 0 means none

	mu    sync.Mutex
	gone  bool // the client
	live  bool // an answer without end: it is over with the client
	ended bool // the handler returns
	timer *time.Timer
	place *list.Element // among the abandoned
}

// left is called when the client is gone, by whoever sees it; at most once
// counts.
func (p *patience) left() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.ended {
		return
	}
	p.gone = true
	if p.live || p.time <= 0 {
		p.cancel(errAbandoned)
		return
	}
	p.timer = time.AfterFunc(p.time, func() { p.cancel(errAbandoned) })
	p.place = p.abandoned.add(p)
}

// goesOn tells that the answer has no end of its own.
func (p *patience) goesOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = true
	if p.gone {
		p.cancel(errAbandoned)
	}
}

// end is called before the handler returns.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
		p.abandoned.remove(p.place)
	}
	p.cancel(context.Canceled)
}

// abandoned are the requests whose clients are gone, the oldest first.
type abandoned struct {
	mu      sync.Mutex
	list    list.List
	stopped bool
}

func (a *abandoned) add(p *patience) *list.Element {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list.Len() >= maxAbandoned {
		oldest := a.list.Front()
		oldest.Value.(*patience).cancel(errAbandoned)
		a.list.Remove(oldest)
	}
	if a.stopped {
		p.cancel(errStopped)
	}
	return a.list.PushBack(p)
}

func (a *abandoned) remove(e *list.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list.Remove(e) // does nothing when it is out already
}

func (a *abandoned) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	for e := a.list.Front(); e != nil; e = e.Next() {
		e.Value.(*patience).cancel(errStopped)
	}
}

// live are the answers without an end: event streams and websockets.
type live struct {
	mu      sync.Mutex
	stopped bool
	ends    map[*patience]func()
}

// add notes how p is to be ended when all are; end must not wait for anybody.
// When all were ended already, p is at once.
func (l *live) add(p *patience, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		end()
		return
	}
	if l.ends == nil {
		l.ends = make(map[*patience]func())
	}
	l.ends[p] = end
}

func (l *live) remove(p *patience) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, p)
}

func (l *live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, end := range l.ends {
		end()
	}
}
