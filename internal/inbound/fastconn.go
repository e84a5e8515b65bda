package inbound

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare/internal/socket"
)

const (
	// watchAfter is how long a request is in progress before its client is watched, or watchLate if more than
	// manyRequests came since the timer was last set: looking costs more than a short request. It may be twice as
	// long, since the timer may have been set for an earlier request.
	watchAfter = 10 * time.Millisecond
	watchLate  = 10 * watchAfter

	// manyRequests is how many requests since the timer was last set mean that they are short.
	manyRequests = 2

	// idleSlack is how much earlier than http.Server.IdleTimeout an idle connection may be closed: setting a
	// deadline is expensive.
	idleSlack = time.Second
)

// leastBytes is how many bytes must have come before net/http looks at a further request.
const leastBytes = 4

// usualFields is how many fields the first answer of a connection is expected to have.
const usualFields = 8

var longAgo = time.Unix(1, 0)

// start is what the times of the lane count from: durations cost less than times.
var start = time.Now()

// A fastConn is a connection in the lane. One goroutine calls serve.
type fastConn struct {
	lane   *Lane
	outer  net.Conn
	tls    *tls.Conn  // is outer; nil: without TLS
	socket *tlsSocket // below tls
	conn   *conn      // inside of outer; nil: none
	raw    syscall.RawConn
	try    func(fd uintptr) bool
	active atomic.Bool // a request is in progress

	buffer   *[headBytes]byte // nil while nothing has come
	from, to int              // what was read and not yet used
	tried    error            // of try
	deadline time.Duration    // of reading, since start; 0: none
	wasPost  bool             // the last request
	host     string           // of the last request, and its user agent: often the same again; "" if long
	agent    string

	remoteAddr string // of each request
	tlsState   *tls.ConnectionState

	answerFields int // of the last answer: often as many again
	memory       any // see fastContext.Memory

	// The watch for a client that leaves during a request. It begins late: most requests are short.
	mu       sync.Mutex
	changed  sync.Cond
	current  *fastContext // nil: no request is in progress
	timer    *time.Timer  // nil: not needed yet
	armed    bool         // timer will call watch
	hangupID uint64       // of hangups; 0: the client is not watched by them
	requests uint64       // that have begun
	timed    uint64       // value of requests when timer was set: the number of the request that it is for
	gone     bool         // hungUp was called
	watching bool         // watch is reading
	early    []byte       // what watch has read: at most one byte
}

func newFastConn(f *Lane, outer net.Conn) *fastConn {
	c := &fastConn{lane: f, outer: outer, conn: connOf(outer), raw: rawOf(outer)}
	c.changed.L = &c.mu
	c.try = c.tryRead
	c.answerFields = usualFields
	if c.conn != nil {
		c.conn.fast.Store(c)
	}
	if f.tls != nil {
		c.socket = &tlsSocket{Conn: outer}
		c.tls = tls.Server(c.socket, f.tls)
		c.outer, c.try = c.tls, c.tryReadTLS
	}
	return c
}

// serve answers requests until the connection ends or is handed over.
func (c *fastConn) serve() {
	handedOver := false
	defer func() {
		if err := recover(); err != nil {
			c.logPanic(err)
		}
		c.active.Store(false)
		c.endWatch()
		if !handedOver {
			c.dropUnread()
			c.outer.Close()
		}
		c.dropBuffer()
		c.lane.remove(c)
	}()
	c.remoteAddr = c.outer.RemoteAddr().String()
	if c.tls != nil {
		if !c.shakeHands() {
			return
		}
		switch c.tlsState.NegotiatedProtocol {
		case "", "http/1.1", "http/1.0":
		default: // HTTP/2, or what a certificate authority checks
			handedOver = true
			c.handOver()
			return
		}
	}
	var head fastHead
	for isFirst := true; ; isFirst = false {
		found, err := c.readHead(&head, isFirst)
		if err != nil {
			return
		}
		var x *exchange
		if found {
			x = c.request(&head)
		}
		if x == nil {
			handedOver = true
			c.handOver()
			return
		}
		if !c.answer(x) {
			return
		}
	}
}

func (c *fastConn) logPanic(err any) {
	if err == http.ErrAbortHandler {
		return
	}
	c.logf("http: panic serving %v: %v\n%s", c.remoteAddr, err, debug.Stack())
}

func (c *fastConn) logf(format string, args ...any) {
	if l := c.lane.server.ErrorLog; l != nil {
		l.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}

// handOver gives the connection to the server, together with what was read.
func (c *fastConn) handOver() {
	if c.deadline != 0 {
		c.outer.SetReadDeadline(time.Time{})
	}
	if c.conn != nil {
		c.conn.fast.Store(nil)
	}
	outer := c.outer
	if c.from < c.to || len(c.early) > 0 {
		var read []byte
		if c.buffer != nil {
			read = append(read, c.buffer[c.from:c.to]...)
		}
		replayed := replayedConn{outer, append(read, c.early...)}
		if outer = &replayed; c.tls != nil {
			outer = &replayedTLSConn{replayed, c.tls}
		}
	}
	c.dropBuffer()
	c.lane.handOver(outer)
}

func (c *fastConn) dropBuffer() {
	if c.buffer != nil {
		headBuffers.Put(c.buffer)
		c.buffer, c.from, c.to = nil, 0, 0
	}
}

// readHead reads the next request. It returns false if the server must read it, and an error if the connection ends.
func (c *fastConn) readHead(h *fastHead, isFirst bool) (found bool, err error) {
	waits := false // the time for the beginning is set
	if c.from == c.to {
		waits = true
		c.forgetText(h)
		timeout, slack := c.lane.server.IdleTimeout, idleSlack
		if isFirst {
			timeout, slack = c.lane.server.ReadHeaderTimeout, 0
		}
		c.awaitUntil(timeout, slack)
		if err := c.read(); err != nil {
			return false, err
		}
	}
	for timed, begun := isFirst, isFirst; ; {
		if !begun && c.to-c.from >= leastBytes {
			begun = true
			if c.wasPost { // net/http ignores the line end that old clients send after a body
				for end := c.from + leastBytes; c.from < end && isLineEnd(c.buffer[c.from]); {
					c.from++
				}
			}
		}
		found, more := false, true
		if begun {
			found, more = h.scan(c.buffer[c.from:c.to])
		}
		if found || !more {
			return found, nil
		}
		if c.from > 0 {
			c.to = copy(c.buffer[:], c.buffer[c.from:c.to])
			c.from = 0
		}
		if c.to == len(c.buffer) {
			return false, nil
		}
		switch {
		case begun && !timed:
			timed = true
			c.awaitUntil(c.lane.server.ReadHeaderTimeout, 0)
		case !begun && !waits:
			waits = true
			c.awaitUntil(c.lane.server.IdleTimeout, idleSlack)
		}
		if err := c.read(); err == io.EOF && begun { // the client may still read
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

func isLineEnd(c byte) bool { return c == '\r' || c == '\n' }

// awaitUntil sets the time for the next reads; 0 means no bound. It keeps a deadline that is at most slack earlier.
func (c *fastConn) awaitUntil(timeout, slack time.Duration) {
	if timeout <= 0 {
		if c.deadline != 0 {
			c.deadline = 0
			c.outer.SetReadDeadline(time.Time{})
		}
		return
	}
	until := time.Since(start) + timeout
	if early := until - c.deadline; early >= 0 && early < slack && c.deadline != 0 {
		return
	}
	c.deadline = until
	c.outer.SetReadDeadline(start.Add(until)) // if it fails, so does reading
}

// read waits for bytes and reads them. A connection that waits, and has nothing, holds no buffer, unless something
// wraps it.
func (c *fastConn) read() error {
	if len(c.early) > 0 {
		c.takeBuffer()
		c.to += copy(c.buffer[c.to:], c.early)
		c.early = c.early[:0]
		return nil
	}
	if c.raw != nil {
		if err := c.raw.Read(c.try); err != nil {
			return err
		}
		return c.tried
	}
	c.takeBuffer()
	n, err := c.outer.Read(c.buffer[c.to:])
	if c.to += n; n > 0 {
		return nil
	}
	return err
}

// dropUnread reads what the client has sent after its last request, such as the end of TLS. Otherwise closing would
// reset the connection, and the client could lose the end of its answer.
func (c *fastConn) dropUnread() {
	if c.raw != nil {
		c.takeBuffer()
		c.raw.Control(func(fd uintptr) { socket.Read(fd, c.buffer[:]) })
	}
}

func (c *fastConn) takeBuffer() {
	if c.buffer == nil {
		c.buffer = headBuffers.Get().(*[headBytes]byte)
	}
}

// tryRead reads what has come. It returns false if nothing has.
func (c *fastConn) tryRead(fd uintptr) bool {
	c.takeBuffer()
	n, err := socket.Read(fd, c.buffer[c.to:])
	switch {
	case err == socket.ErrAgain:
		if c.from == c.to {
			c.dropBuffer()
		}
		return false
	case err != nil:
		c.tried = os.NewSyscallError("read", err)
	case n == 0:
		c.tried = io.EOF
	default:
		c.to, c.tried = c.to+n, nil
		c.conn.readSinceIdle.Store(true)
	}
	return true
}

// answer answers a request. It returns false if the connection must be closed.
func (c *fastConn) answer(x *exchange) (open bool) {
	c.active.Store(true)
	c.setState(busy)
	c.begin(&x.fastContext)
	open = c.handle(&x.fastAnswer, x.r)
	isFree := c.end(&x.fastContext)
	if n := len(x.header); n > 0 {
		c.answerFields = n
	}
	isPost := x.r.Method == http.MethodPost
	x.release()
	if x.mayReuse && isFree && x.r.Body == http.NoBody { // bodies may have readers of their own
		x.reuse()
	}
	if !open || c.lane.isEnding.Load() {
		return false
	}
	c.wasPost = isPost
	if c.from == c.to {
		c.from, c.to = 0, 0
	}
	c.setState(idle)
	c.active.Store(false)
	return true
}

func (c *fastConn) setState(s state) {
	if c.conn != nil {
		c.conn.l.setState(c.conn, s)
	}
}

// handle calls the handler. If that panics, what it wrote is sent, and the connection ends in the middle of the answer.
func (c *fastConn) handle(a *fastAnswer, r *http.Request) (open bool) {
	defer func() {
		if err := recover(); err != nil {
			c.logPanic(err)
			a.abort()
			open = false
		}
	}()
	c.lane.handler.ServeHTTP(a, r)
	return a.finish()
}

// begin makes a request the current one.
func (c *fastConn) begin(x *fastContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = x
	c.requests++
	switch {
	case c.gone:
		x.cancel()
	case c.hangupID == 0 && !c.armed:
		c.arm()
	}
}

// arm has watch called for the current request. mu is held.
func (c *fastConn) arm() {
	after := watchAfter
	if c.requests-c.timed > manyRequests {
		after = watchLate
	}
	c.armed, c.timed = true, c.requests
	if c.timer == nil {
		c.timer = time.AfterFunc(after, c.watch)
	} else {
		c.timer.Reset(after)
	}
}

// end ends the watch and the context of the request. It returns false if something may still refer to the context.
func (c *fastConn) end(x *fastContext) (isFree bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.watching {
		c.outer.SetReadDeadline(longAgo)
		c.deadline = longAgo.Sub(start)
		c.changed.Wait()
	}
	c.current = nil
	x.cancel()
	return !x.used
}

// watch is called when a request has been in progress for watchAfter. If possible, it lets the kernel report that the
// client leaves, from then on. Otherwise it reads from the client, as net/http does during each request, and only the
// end of a client that has sent nothing more is noticed.
func (c *fastConn) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	x := c.current
	if x == nil || c.watching || len(c.early) > 0 {
		return
	}
	if c.timed != c.requests { // it began after the timer
		c.arm()
		return
	}
	if c.conn != nil && c.conn.raw != nil {
		if c.hangupID = c.lane.hangups.add(c, c.conn.raw); c.hangupID != 0 {
			return
		}
	}
	c.watching = true
	c.outer.SetReadDeadline(time.Time{})
	c.deadline = 0 // the next read sets its own
	c.mu.Unlock()
	var one [1]byte
	n, err := c.outer.Read(one[:])
	c.mu.Lock()
	c.watching = false
	c.early = append(c.early, one[:n]...)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		x.cancel()
	}
	c.changed.Broadcast()
}

// hungUp is called when the client has left, or the connection is closed.
func (c *fastConn) hungUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.current != nil {
		c.current.cancel()
	}
}

// endWatch is called when there are no further requests.
func (c *fastConn) endWatch() {
	c.mu.Lock()
	id := c.hangupID
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if id != 0 {
		c.lane.hangups.remove(id)
	}
}
