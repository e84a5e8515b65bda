package outbound

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"

	"fairshare/internal/socket"
)

// start is what the times of connections count from: durations cost less than times.
var start = time.Now()

// bufferBytes is the memory for reading from a connection.
const bufferBytes = 4 << 10

var errHeadTooLarge = errors.New("malformed HTTP response: its header is too large")

// A conn is a connection to the upstream. One request uses it at a time.
type conn struct {
	net.Conn
	buffer    *bufio.Reader // reads from the conn
	allowed   int64         // bytes that may still be read; headBytes bounds a head
	deadline  time.Duration // of reading, since start; 0: none
	idleSince time.Duration // since start, while it is idle
	head      head          // of the last answer

	raw    syscall.RawConn // nil: turn cannot be used
	turn   turn
	onTurn func(fd uintptr) bool
}

// A turn is the first part of a request on a connection that was idle: it looks whether the connection is still quiet,
// sends the request, waits, and reads the beginning of the answer. All of that together costs one wait for the socket,
// and no more system calls than are necessary.
type turn struct {
	out  []byte // the request; nil: no turn is in progress
	in   []byte // where to read to
	sent int    // bytes of out
	read int    // bytes of in
	err  error
}

func newConn(inner net.Conn) *conn {
	c := &conn{Conn: inner, allowed: math.MaxInt64}
	c.buffer = bufio.NewReaderSize(c, bufferBytes)
	c.raw = rawConn(inner)
	c.onTurn = c.takeTurn
	return c
}

// rawConn returns the descriptor of a connection; nil if it has none, as in tests.
func rawConn(c net.Conn) syscall.RawConn {
	for {
		switch inner := c.(type) {
		case syscall.Conn:
			raw, err := inner.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// Read is for buffer.
func (c *conn) Read(b []byte) (int, error) {
	if c.allowed <= 0 {
		return 0, errHeadTooLarge
	}
	b = b[:min(int64(len(b)), c.allowed)]
	var n int
	var err error
	if c.turn.out != nil {
		n, err = c.readTurn(b)
	} else {
		n, err = c.Conn.Read(b)
	}
	c.allowed -= int64(n)
	return n, err
}

var (
	errNotQuiet = errors.New("bytes came before the request, or the upstream has closed the connection")
	errPartly   = errors.New("the kernel has not taken all of the request at once")
)

// send sends a request, and waits for the first byte of its answer. It returns how many bytes it has sent. If the
// connection was idle and is not quiet, nothing is sent: what comes before a request cannot be its answer.
func (c *conn) send(out []byte, now, timeout time.Duration, wasIdle bool) (sent int, err error) {
	if wasIdle && c.raw != nil {
		c.awaitHead(now, timeout)
		c.turn = turn{out: out}
		_, err = c.buffer.Peek(1)
		sent = c.turn.sent
		c.turn = turn{}
		if err != errPartly {
			return sent, err
		}
		c.buffer.Reset(c)
	}
	n, err := c.Conn.Write(out[sent:])
	if sent += n; err != nil {
		return sent, err
	}
	c.awaitHead(time.Since(start), timeout)
	_, err = c.buffer.Peek(1)
	return sent, err
}

// readTurn takes a turn that ends with reading into b.
func (c *conn) readTurn(b []byte) (int, error) {
	c.turn.in = b
	if err := c.raw.Read(c.onTurn); err != nil {
		return 0, err
	}
	n, err := c.turn.read, c.turn.err
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// takeTurn goes on with a turn as far as it can without waiting. It returns false to wait for the socket.
func (c *conn) takeTurn(fd uintptr) bool {
	t := &c.turn
	t.read, t.err = socket.Read(fd, t.in)
	if t.sent > 0 {
		return t.err != socket.ErrAgain
	}
	if t.err != socket.ErrAgain {
		t.read, t.err = 0, errNotQuiet
		return true
	}
	for t.sent < len(t.out) {
		n, err := socket.Write(fd, t.out[t.sent:])
		t.sent += n
		if err == socket.ErrAgain {
			err = errPartly
		}
		if err != nil {
			t.err = err
			return true
		}
	}
	return false
}

// headSlack is how much earlier than the timeout a head may have to come: setting a deadline is expensive.
const headSlack = 100 * time.Millisecond

// awaitHead bounds the time for the head of an answer, from now on. If that fails, so does reading.
func (c *conn) awaitHead(now, timeout time.Duration) {
	until := now + timeout
	if early := until - c.deadline; early >= 0 && early < min(headSlack, timeout/16) && c.deadline != 0 {
		return
	}
	c.deadline = until
	c.Conn.SetReadDeadline(start.Add(until))
}

// awaitBody removes the bound of awaitHead.
func (c *conn) awaitBody() {
	c.deadline = 0
	c.Conn.SetReadDeadline(time.Time{})
}
