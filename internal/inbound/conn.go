package inbound

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare/internal/socket"
)

// errSlow is the error of a Write whose client reads too slowly.
var errSlow = errors.New("the client takes less than 1 kB/s")

// A conn is an accepted connection of a client.
type conn struct {
	net.Conn
	l     *Listener
	entry entry // guarded by l.mu, except entry.noted
	raw   syscall.RawConn
	began time.Time
	sent  atomic.Int64 // bytes the kernel accepted

	waiting       atomic.Bool   // in use, and pending in the table: see Listener.wait
	before        atomic.Uint32 // the state before it waited
	receiving     atomic.Bool   // it waits for bodies of requests, whatever is written: see incoming
	readSinceIdle atomic.Bool   // data was read after the last request
	h2            atomic.Pointer[streams]
	fast          atomic.Pointer[fastConn] // nil: it is not in the lane

	closing sync.Once
	gone    atomic.Bool // Close was called
	closed  error

	// Held during a Write. Close does not take it, since a Write may block.
	writing sync.Mutex
	out     directWrite
	pace    pace
	slow    bool // a Write ended with errSlow: the connection is being closed

	deadlines      sync.Mutex
	serverDeadline time.Time // the write deadline of net/http; zero: none
	lease          time.Time // the write deadline of the pace
}

func newConn(l *Listener, inner net.Conn) *conn {
	c := &conn{Conn: inner, l: l, began: time.Now()}
	c.entry.conn = c
	if sc, ok := inner.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	switch inner.(type) {
	case *net.TCPConn, *net.UnixConn:
		if socket.Supported {
			c.out.raw, c.out.try = c.raw, c.out.advance
		}
	}
	return c
}

// A directWrite writes to a socket at the least cost: see [socket.Write].
type directWrite struct {
	raw   syscall.RawConn // nil: it cannot be used
	try   func(fd uintptr) bool
	bytes []byte // to be written
	taken int    // of bytes
	waits bool   // for the socket to take all
	err   error
}

// run writes b, or what can be written until the deadline. Without waits it writes what the socket takes at once.
func (d *directWrite) run(b []byte, waits bool) (int, error) {
	d.bytes, d.taken, d.waits, d.err = b, 0, waits, nil
	err := d.raw.Write(d.try)
	d.bytes = nil
	if err == nil {
		err = d.err
	}
	return d.taken, err
}

// advance is called by raw. It writes as much as it can without waiting, and returns false to wait for the socket.
func (d *directWrite) advance(fd uintptr) bool {
	for d.taken < len(d.bytes) {
		n, err := socket.Write(fd, d.bytes[d.taken:])
		d.taken += n
		if err == socket.ErrAgain {
			return !d.waits
		}
		if err != nil {
			d.err = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// writeOrWait is one attempt of Write: it waits for the socket, and ends at the deadline for writing.
func (c *conn) writeOrWait(b []byte) (int, error) {
	if c.out.raw != nil {
		return c.out.run(b, true)
	}
	return c.Conn.Write(b)
}

// NetConn returns the kernel's connection.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.readSinceIdle.Load() {
		c.readSinceIdle.Store(true)
	}
	return n, err
}

// Write writes all of b, as long as the client takes it fast enough.
func (c *conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.slow {
		return 0, errSlow
	}
	if n = c.writeAtOnce(b); n == len(b) {
		if c.waiting.Load() {
			c.taken()
		}
		return n, nil
	}
	now := time.Since(c.began)
	for {
		if err := c.renew(now); err != nil {
			return n, err
		}
		m, err := c.writeOrWait(b[n:])
		n += m
		c.sent.Add(int64(m))
		before := now
		now = time.Since(c.began)
		slow := c.pace.wrote(m, now-before, c.confirmed)
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || c.pastServerDeadline()) {
			return n, err
		}
		if slow {
			c.slow = true
			c.l.notices.closedSlow()
			c.dropUnsent()
			go c.Close() // TLS may write while it reads from the raw connection, for whose end Close waits
			return n, errSlow
		}
		if err == nil {
			if c.waiting.Load() {
				c.taken()
			}
			return n, nil
		}
		c.pace.blocked(c.confirmed)
		if !c.waiting.Load() {
			c.l.wait(c, true)
		}
	}
}

// taken is called when a Write is complete. The client may still have to send the body of a request.
func (c *conn) taken() {
	if !c.receiving.Load() {
		c.l.wait(c, false)
	}
}

// writeAtOnce writes as much of b as the socket takes at once: usually all, so that no clock is needed. It drops its
// error on purpose: Write tries the rest again, and finds the error then, such as a deadline that has passed.
func (c *conn) writeAtOnce(b []byte) int {
	if c.out.raw == nil {
		return 0
	}
	n, _ := c.out.run(b, false)
	c.sent.Add(int64(n))
	c.pace.wrote(n, 0, nil) // not slow: that depends on the time of blocked writes
	return n
}

// confirmed returns how many bytes the client has acknowledged.
func (c *conn) confirmed() (int64, bool) {
	waiting, ok := unacknowledged(c.raw)
	return c.sent.Load() - int64(waiting), ok
}

// renew sets the deadline of a Write that begins at now, measured from c.began. It
// keeps a deadline that is far enough in the future.
func (c *conn) renew(now time.Duration) error {
	c.deadlines.Lock()
	defer c.deadlines.Unlock()
	left := min(leaseTime, max(runTime-c.pace.spent, time.Second))
	at := c.began.Add(now)
	if d := c.lease.Sub(at); d > left/2 && d <= left {
		return nil
	}
	c.lease = at.Add(left)
	return c.apply()
}

// apply sets the earlier one of both deadlines.
func (c *conn) apply() error {
	d := c.lease
	if !c.serverDeadline.IsZero() && (d.IsZero() || c.serverDeadline.Before(d)) {
		d = c.serverDeadline
	}
	return c.Conn.SetWriteDeadline(d)
}

// pastServerDeadline reports whether the server's own deadline has passed.
func (c *conn) pastServerDeadline() bool {
	c.deadlines.Lock()
	defer c.deadlines.Unlock()
	return !c.serverDeadline.IsZero() && !time.Now().Before(c.serverDeadline)
}

// SetWriteDeadline sets a deadline in addition to that of the pace.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.deadlines.Lock()
	defer c.deadlines.Unlock()
	if t.IsZero() && c.serverDeadline.IsZero() {
		return nil // net/http removes it after each request
	}
	c.serverDeadline = t
	return c.apply()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// isExempt reports whether the client may be a proxy of many clients: an exempt
// address, or a process of this machine on a Unix socket.
func (c *conn) isExempt() bool {
	addr := addrOf(c.RemoteAddr())
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return !addr.IsValid() || c.l.table.isExempt(addr)
}

// CloseWrite closes only the sending side, for net/http, so that an early answer is not
// lost.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection. It does not block.
func (c *conn) Close() error {
	c.closing.Do(func() {
		c.l.forget(c)
		c.gone.Store(true)
		if s := c.h2.Load(); s != nil {
			s.end()
		}
		c.closed = c.Conn.Close()
		if f := c.fast.Load(); f != nil {
			f.hungUp() // the kernel does not report the end of a closed socket
		}
	})
	return c.closed
}

// closeReplaced closes a connection that another one replaces. It resets it, since data that the
// client has not read would occupy memory; TLS sends no close notification.
func (c *conn) closeReplaced() {
	if c.entry.state == idle {
		c.Close()
		return
	}
	c.reset()
}

// reset closes the connection, and makes the kernel drop the data that the client
// has not read.
func (c *conn) reset() {
	c.dropUnsent()
	c.Close()
}

// dropUnsent makes the next Close drop the data that the client has not read.
func (c *conn) dropUnsent() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}
