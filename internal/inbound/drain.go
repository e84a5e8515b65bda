package inbound

import (
	"context"
	"net"
	"syscall"
	"time"
)

const (
	// lameDuck is how long idle connections still get answers while clients
	// are told with each answer that it is the last; lameDuckShared if new
	// clients wait for a successor meanwhile.
	lameDuck       = time.Second
	lameDuckShared = 250 * time.Millisecond
	// quiet is how long nothing may come before nobody is waited for.
	quiet = 100 * time.Millisecond
	// lateRequests bounds the wait for requests that come at the end.
	lateRequests = 500 * time.Millisecond
	// settling is time for requests that have been read to be handled.
	settling = 50 * time.Millisecond
)

// Drain prepares for http.Server.Shutdown, which its caller calls next, so
// that no request that reached us is lost. It keeps new connections from
// coming where the system allows that (Linux), while those that wait are still
// accepted and served; each HTTP/1 answer from now on ends its connection, and
// HTTP/2 clients are asked to open no more streams; idle connections stay open
// for a second, or a third of what is left of ctx if that is less. Then it
// stops listening and closes connections that are idle still. It returns
// earlier if there is no connection left, or ctx ends.
//
// A socket that is shared stays as it is: nobody is turned away, and who waits
// to be accepted waits on, for the successor. It is let go at once, and idle
// connections stay open for a quarter of a second only.
//
// http.Server.Serve keeps running, and returns http.ErrServerClosed once
// Shutdown or Close is called.
func (l *Listener) Drain(ctx context.Context) {
	l.drainOnce.Do(func() {
		l.lastAccept.Store(time.Now().UnixNano())
		l.draining.Store(true)
		if l.shared {
			l.letGo(ctx)
		} else {
			turnAway(l.inner)
		}
		l.each(func(c *conn) {
			if s := c.h2.Load(); s != nil {
				go s.goAway() // ends at the latest when the connection does
			}
		})
		l.limp(ctx)
		l.closeInner()
		l.closeIdle(ctx)
	})
}

// letGo stops accepting, and waits until whoever calls Accept has taken up all
// that was accepted: http.Server.Shutdown overlooks a connection that comes
// later.
func (l *Listener) letGo(ctx context.Context) {
	l.closeInner()
	late := time.NewTimer(lateRequests) // nobody may call Accept
	defer late.Stop()
	select {
	case <-l.ended:
	case <-late.C:
	case <-l.closed:
	case <-ctx.Done():
	}
}

// limp goes on accepting, unless the socket is shared, and answering, as a lame
// duck.
func (l *Listener) limp(ctx context.Context) {
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
	// What has been accepted by the kernel is ours.
	for late := time.Now().Add(lateRequests); (someoneWaits(l.inner) || l.sinceAccept() < quiet/2) && time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
}

func (l *Listener) sinceAccept() time.Duration {
	return time.Since(time.Unix(0, l.lastAccept.Load()))
}

// closeIdle closes HTTP/1 connections that wait for a request. One that is new,
// or whose request is coming in, gets time for it first: http.Server drops
// what it has not begun to handle when Shutdown is called. HTTP/2 has its own
// way to say goodbye.
func (l *Listener) closeIdle(ctx context.Context) {
	for late := time.Now().Add(lateRequests); ; time.Sleep(time.Millisecond) {
		last := time.Now().After(late) || ctx.Err() != nil
		var idle []*conn
		l.mu.Lock()
		for e := l.book.idle.first; e != nil; e = e.links[ofAll].next {
			if e.conn.h2.Load() == nil && !e.conn.waiting.Load() {
				idle = append(idle, e.conn)
			}
		}
		l.mu.Unlock()
		waiting := false
		for _, c := range idle {
			n, _ := unread(c.raw)
			switch {
			case !last && (n > 0 || c.heard.Load() || time.Since(c.began) < lateRequests):
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
	all := make([]*conn, 0, l.book.open)
	for e := l.book.all.first; e != nil; e = e.links[ofOpen].next {
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
