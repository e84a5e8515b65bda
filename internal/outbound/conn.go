package outbound

import (
	"bufio"
	"errors"
	"math"
	"net"
	"syscall"
	"time"
)

// bufferBytes is the memory for reading from a connection.
const bufferBytes = 4 << 10

var errHeadTooLarge = errors.New("malformed HTTP response: its header is too large")

// A conn is a connection to the upstream. One request uses it at a time.
type conn struct {
	net.Conn
	buffer    *bufio.Reader // reads from the conn
	allowed   int64         // bytes that may still be read; headBytes bounds a head
	raw       syscall.RawConn
	peek      func(fd uintptr)
	quiet     bool      // the result of peek
	idleSince time.Time // while it is idle
}

func newConn(inner net.Conn) *conn {
	c := &conn{Conn: inner, allowed: math.MaxInt64}
	c.buffer = bufio.NewReaderSize(c, bufferBytes)
	c.raw = rawConn(inner)
	c.peek = func(fd uintptr) { c.quiet = isQuiet(fd) }
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
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.allowed)])
	c.allowed -= int64(n)
	return n, err
}

// isQuiet reports whether a connection that was idle is still open, and nothing has come on it. What comes
// before a request cannot be its answer.
func (c *conn) isQuiet() bool {
	if c.raw == nil {
		return true
	}
	c.quiet = false
	return c.raw.Control(c.peek) == nil && c.quiet
}

// awaitHead bounds the time for the head of an answer. If that fails, so does reading.
func (c *conn) awaitHead(timeout time.Duration) { c.Conn.SetReadDeadline(time.Now().Add(timeout)) }

// awaitBody removes the bound of awaitHead.
func (c *conn) awaitBody() { c.Conn.SetReadDeadline(time.Time{}) }
