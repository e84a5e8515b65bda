package inbound

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare/internal/socket"
)

// A Lane answers simple HTTP/1.1 requests by itself, each connection in one goroutine. It is a listener
// for the http.Server: Accept returns a connection when its first request comes that is not a simple
// one, and the server reads the same bytes again. From then on the connection belongs to the server.
//
// A request is simple if its head fits into 8 KiB and has no line that could be read in two ways, and its
// body came with the head. It needs neither an upgrade, nor a trailer, nor "Expect".
type Lane struct {
	net.Listener // what the server would accept from

	tls     *tls.Config // nil: no TLS
	server  *http.Server
	l       *Listener
	handler http.Handler
	off     atomic.Bool

	start    sync.Once
	accepted chan net.Conn // for the server
	failed   chan error
	closed   chan struct{}
	closing  sync.Once

	hangups hangups

	mu       sync.Mutex
	conns    map[*fastConn]struct{}
	open     atomic.Int64  // number of conns
	isEnding atomic.Bool   // there are no more requests; changed with mu
	changed  chan struct{} // a connection ended; holds one
}

// NewLane returns a Lane that accepts from outer, which is l or wraps it without TLS. Attach must have been called with
// srv. The caller calls Serve of srv with the Lane, and Wait after Shutdown or Close.
//
// If srv has a TLSConfig, the Lane speaks TLS. Then NextProtos must name what the server speaks, such as h2 and
// http/1.1. Connections with another protocol than HTTP/1 go to the server after the handshake.
func (l *Listener) NewLane(outer net.Listener, srv *http.Server) *Lane {
	f := &Lane{Listener: outer, server: srv, l: l, handler: srv.Handler, accepted: make(chan net.Conn),
		failed: make(chan error), closed: make(chan struct{}), conns: make(map[*fastConn]struct{}),
		changed: make(chan struct{}, 1)}
	if srv.TLSConfig != nil {
		f.tls = srv.TLSConfig.Clone()
	}
	if tracking, ok := f.handler.(*trackingHandler); ok {
		f.handler = tracking.next
	}
	return f
}

// Use turns the lane on, or off for new connections. It is on at first.
func (f *Lane) Use(on bool) { f.off.Store(!on) }

// Accept returns a connection for the server.
func (f *Lane) Accept() (net.Conn, error) {
	f.start.Do(func() { go f.acceptAll() })
	select {
	case c := <-f.accepted:
		return c, nil
	case err := <-f.failed:
		return nil, err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *Lane) acceptAll() {
	for {
		outer, err := f.Listener.Accept()
		if err != nil {
			select {
			case f.failed <- err:
				continue // it may be a transient error
			case <-f.closed:
				return
			}
		}
		if f.off.Load() {
			if f.tls != nil {
				outer = tls.Server(outer, f.tls)
			}
			f.handOver(outer)
			continue
		}
		c := newFastConn(f, outer)
		if !f.add(c) {
			outer.Close()
			continue
		}
		go c.serve()
	}
}

// handOver gives a connection to the server. The server is gone after Close.
func (f *Lane) handOver(c net.Conn) {
	select {
	case f.accepted <- c:
	case <-f.closed:
		c.Close()
	}
}

func (f *Lane) add(c *fastConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isEnding.Load() {
		return false
	}
	f.conns[c] = struct{}{}
	f.open.Store(int64(len(f.conns)))
	return true
}

func (f *Lane) remove(c *fastConn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.open.Store(int64(len(f.conns)))
	f.closeHangups()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// closeHangups ends the watch when the last connection has ended. mu is held.
func (f *Lane) closeHangups() {
	if f.isEnding.Load() && len(f.conns) == 0 {
		f.hangups.close()
	}
}

// Close stops listening. The connections of the lane stay.
func (f *Lane) Close() error {
	f.closing.Do(func() { close(f.closed) })
	return f.Listener.Close()
}

// Wait waits until all requests of the lane have ended, and closes its idle connections. It returns the error of ctx
// if that ends before. Close must have been called, such as by http.Server.Shutdown.
func (f *Lane) Wait(ctx context.Context) error {
	for {
		f.mu.Lock()
		f.isEnding.Store(true)
		open := len(f.conns)
		f.closeHangups()
		for c := range f.conns {
			if !c.active.Load() {
				c.close()
			}
		}
		f.mu.Unlock()
		if open == 0 {
			return nil
		}
		again := time.NewTimer(shutdownPoll) // a connection may become idle
		select {
		case <-f.changed:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
		again.Stop()
	}
}

// shutdownPoll is how often Wait looks for connections that have become idle.
const shutdownPoll = 20 * time.Millisecond

// CloseAll closes all connections of the lane at once, as http.Server.Close does with its own.
func (f *Lane) CloseAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isEnding.Store(true)
	f.closeHangups()
	for c := range f.conns {
		c.cut()
	}
}

// A replayedConn is a connection of which some bytes have been read already.
type replayedConn struct {
	net.Conn
	read []byte
}

func (c *replayedConn) Read(b []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(b, c.read)
		if c.read = c.read[n:]; len(c.read) == 0 {
			c.read = nil
		}
		return n, nil
	}
	return c.Conn.Read(b)
}

// NetConn is for connOf.
func (c *replayedConn) NetConn() net.Conn { return c.Conn }

func (c *replayedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// headBytes bounds the head of a simple request together with its body.
const headBytes = 8 << 10

var (
	headBuffers   = sync.Pool{New: func() any { return new([headBytes]byte) }}
	answerBuffers = sync.Pool{New: func() any { return new([answerBytes]byte) }}
)

// rawOf returns the descriptor of a connection that nothing wraps; otherwise nil, and on systems where
// sockets cannot be read directly.
func rawOf(outer net.Conn) syscall.RawConn {
	if c, ok := outer.(*conn); ok && socket.Supported {
		return c.raw
	}
	return nil
}
