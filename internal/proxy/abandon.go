package proxy

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxAbandoned is how many requests without clients may run at once. If there
	// are more, the oldest is cancelled.
	maxAbandoned = 1024

	// maxDropped is how many bytes of an answer are read after its client left. Then
	// the connection is closed, so that the upstream can stop.
	maxDropped = 16 << 20
)

var (
	errAbandoned = errors.New("the client is gone")
	errStopped   = errors.New("the proxy stops")
	errStuck     = errors.New("the upstream takes nothing of the body")
)

// A patience lets a request to the upstream outlive its client by a bounded time.
type patience struct {
	abandoned *abandoned
	time      time.Duration // after the client left; 0 means none

	mu    sync.Mutex
	gone  bool // the client has left
	live  bool // the answer has no end: it ends with the client
	ended bool // the handler returns
	timer *time.Timer
	entry *list.Element // of abandoned

	cancelling sync.Mutex // of what follows; taken after mu
	abort      func(error)
	cause      error // of the first call of cancel
}

// cancel ends the request to the upstream. Only the first call has an effect. It does not block.
func (p *patience) cancel(err error) {
	p.cancelling.Lock()
	defer p.cancelling.Unlock()
	if p.cause != nil {
		return
	}
	p.cause = err
	if p.abort != nil {
		p.abort(err)
	}
}

// onCancel sets what cancel calls; nil for nothing. It calls abort if cancel was called before.
func (p *patience) onCancel(abort func(error)) {
	p.cancelling.Lock()
	defer p.cancelling.Unlock()
	p.abort = abort
	if p.cause != nil && abort != nil {
		abort(p.cause)
	}
}

// cancelled returns the error of the first call of cancel, nil before it.
func (p *patience) cancelled() error {
	p.cancelling.Lock()
	defer p.cancelling.Unlock()
	return p.cause
}

// clientLeft is called when the client has left. Only the first call has an effect.
func (p *patience) clientLeft() {
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
	p.entry = p.abandoned.add(p)
}

func (p *patience) hasClientLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// setLive marks the answer as one without an end, such as an event stream.
func (p *patience) setLive() {
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
		p.abandoned.remove(p.entry)
	}
	p.cancel(context.Canceled)
}

// abandoned holds the requests whose clients have left, the oldest first.
type abandoned struct {
	mu      sync.Mutex
	list    list.List
	most    int // 0 means maxAbandoned
	stopped bool
}

func (a *abandoned) bound(most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most = most
}

func (a *abandoned) add(p *patience) *list.Element {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list.Len() >= min(nonZero(a.most, maxAbandoned), maxAbandoned) {
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
	a.list.Remove(e) // does nothing if it was removed already
}

func (a *abandoned) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	for e := a.list.Front(); e != nil; e = e.Next() {
		e.Value.(*patience).cancel(errStopped)
	}
}

// live holds the answers without an end: event streams and websockets.
type live struct {
	mu      sync.Mutex
	stopped bool
	ends    map[*patience]func()
}

// add registers p. stop calls end, which must not block. If stop was called before,
// add calls it at once.
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
