package inbound

import (
	"context"
	"net"
	"syscall"
	"time"
)

const (
	// lameDuck is how long idle connections still get answers, each of which announces
	// the end of its connection; lameDuckShared if new clients wait for a successor
	// meanwhile.
	lameDuck       = time.Second
	lameDuckShared = 250 * time.Millisecond
	// quiet is how long no connection may come until the wait ends.
	quiet = 100 * time.Millisecond
	// lateRequests bounds the wait for requests that arrive at the end.
	lateRequests = 500 * time.Millisecond
	// settling is the time for the handler to take requests that have been read.
	settling = 50 * time.Millisecond
)

// Drain prepares for http.Server.Shutdown, which the caller must call next, so that
// no received request is lost:
//
//   - New connections are refused if the system allows it (Linux). Connections in
//     the kernel's queue are still accepted and served.
//   - Each HTTP/1 answer ends its connection, and HTTP/2 clients are asked to open no
//     more streams.
//   - Idle connections stay open for a second, or for a third of the remaining time
//     of ctx if that is less.
//   - Then Drain stops listening and closes connections that are still idle.
//
// It returns earlier if there is no connection, or ctx ends.
//
// A shared socket stays open: clients that wait to be accepted wait for the
// successor. Drain stops accepting at once, and idle connections stay open for only
// a quarter of a second.
//
// http.Server.Serve continues to run, and returns http.ErrServerClosed after
// Shutdown or Close.
func (l *Listener) Drain(ctx context.Context) {
	l.drainOnce.Do(func() {
		l.lastAccept.Store(int64(time.Since(l.began)))
		l.draining.Store(true)
		if l.shared {
			l.stopAccepting(ctx)
		} else {
			refuseNew(l.inner)
		}
		l.each(func(c *conn) {
			if s := c.h2.Load(); s != nil {
				go s.goAway() // ends at the latest when the connection does
			}
		})
		l.serveRemaining(ctx)
		l.closeInner()
		l.closeIdle(ctx)
	})
}

// stopAccepting stops accepting, and waits until the caller of Accept has taken all
// accepted connections: http.Server.Shutdown misses a connection that comes later.
func (l *Listener) stopAccepting(ctx context.Context) {
	l.closeInner()
	late := time.NewTimer(lateRequests) // perhaps there is no caller of Accept
	defer late.Stop()
	select {
	case <-l.ended:
	case <-late.C:
	case <-l.closed:
	case <-ctx.Done():
	}
}

// serveRemaining continues to answer requests, and to accept connections unless the
// socket is shared, for the time of lameDuck.
func (l *Listener) serveRemaining(ctx context.Context) {
	span := lameDuck
	if l.shared {
		span = lameDuckShared
	}
	if deadline, ok := ctx.Deadline(); ok {
		span = min(span, time.Until(deadline)/3)
	}
	end := time.NewTimer(span)
	defer end.Stop()
	for over := false; !over; {
		wait := time.Minute // until something changes
		if l.Open() == 0 {
			if wait = quiet - l.sinceAccept(); wait <= 0 || l.shared {
				break
			}
		}
		alone := time.NewTimer(wait)
		select {
		case <-end.C:
			over = true
		case <-alone.C:
		case <-l.changed:
		case <-l.closed:
			over = true
		case <-ctx.Done():
			over = true
		}
		alone.Stop()
	}
	if l.shared {
		return
	}
	// Accept the connections that the kernel has accepted.
	for late := time.Now().Add(lateRequests); (hasQueued(l.inner) || l.sinceAccept() < quiet/2) &&
		time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
}

func (l *Listener) sinceAccept() time.Duration {
	return time.Since(l.began) - time.Duration(l.lastAccept.Load())
}

// closeIdle closes HTTP/1 connections that wait for a request. A new connection, or
// one whose request is arriving, first gets time for it: Shutdown drops requests
// that http.Server has not begun to handle. HTTP/2 connections end by GOAWAY.
func (l *Listener) closeIdle(ctx context.Context) {
	for late := time.Now().Add(lateRequests); ; time.Sleep(time.Millisecond) {
		last := time.Now().After(late) || ctx.Err() != nil
		var open []*conn
		l.mu.Lock()
		l.table.settle()
		for _, s := range []state{idle, pending} {
			for e := l.table.lines[s].first; e != nil; e = e.links[ofAll].next {
				if e.conn.h2.Load() == nil && !e.conn.waiting.Load() {
					open = append(open, e.conn)
				}
			}
		}
		l.mu.Unlock()
		waiting := false
		for _, c := range open {
			n, _ := unread(c.raw)
			switch {
			case !last && (n > 0 || c.readSinceIdle.Load() || time.Since(c.began) < lateRequests):
				waiting = true
			case n == 0:
				c.Close()
			}
		}
		if !waiting || last {
			break
		}
	}
	if l.Open() > 0 && ctx.Err() == nil {
		time.Sleep(settling)
	}
}

// each calls do for each connection, without a lock.
func (l *Listener) each(do func(*conn)) {
	l.mu.Lock()
	all := make([]*conn, 0, l.table.open)
	for e := l.table.all.first; e != nil; e = e.links[ofOpen].next {
		all = append(all, e.conn)
	}
	l.mu.Unlock()
	for _, c := range all {
		do(c)
	}
}

// control calls do with the descriptor of a listening socket.
func control(l net.Listener, do func(fd int)) {
	if sc, ok := l.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { do(int(fd)) })
		}
	}
}
