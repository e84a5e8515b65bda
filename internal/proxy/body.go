package proxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"
)

const (
	bodyAhead  = 64 << 10 // bytes of a request's body that are read before it is forwarded
	bodyBudget = 64 << 20 // bytes for all bodies together, besides the first 4 KiB of each

	bodyWatch = 4 << 10 // more bytes, read while the request waits for its turn

	// watchAfter is how long a request waits before its client is watched.
	watchAfter = 10 * time.Millisecond

	// linger is how long net/http may read the rest of an unused body, so that the
	// connection can be reused.
	linger = 5 * time.Second
)

var (
	errNoSpace = errors.New("no memory for another request body")
	errEnded   = errors.New("the request is over")
	longAgo    = time.Unix(1, 0)
)

// A body is the body of a client's request. Its beginning is read ahead, so that a
// slow client does not occupy the upstream. The rest is forwarded as it comes, at
// the minimum rate of pace. It is safe for use by the transport, which may still
// read after RoundTrip has returned.
type body struct {
	proxy  *Proxy
	src    io.Reader
	client *http.ResponseController
	http1  bool
	free   bool   // no minimum rate: client and upstream send at the same time
	gone   func() // called if the client does not send the rest
	stuck  func() // called if the upstream takes nothing for timeout, and has not answered

	mu       sync.Mutex
	quiet    sync.Cond     // reading changed
	upstream *conn         // nil: shared by other requests, or unknown
	over     chan struct{} // closed when the upstream is done; nil: it is done, or the body is whole
	space    *[]byte       // nil: no memory is held
	class    int           // of space, in bodySizes
	n        int           // bytes in space
	whole    bool          // these are the complete body
	pace     pace
	err      error // of reading from the client; io.EOF at its end
	reading  bool  // from the client, without mu
	sentAll  bool  // space was sent completely
	answered bool  // the request will not be sent again
	timeout  time.Duration
	taking   *time.Timer // runs while the upstream takes a part of the body; nil: not needed yet
	ended    bool        // the handler returns: the client can no longer be read

	watching  bool // watch is reading into space
	unwatched bool // watch has to end after the present read
}

func (p *Proxy) newBody(w http.ResponseWriter, r *http.Request, free bool) *body {
	b := &body{proxy: p, src: r.Body, client: http.NewResponseController(w), http1: r.ProtoMajor == 1, free: free}
	b.quiet.L = &b.mu
	return b
}

// bothAtOnce reports whether the client may wait for parts of the answer before it
// sends the rest of its body. Reading such a body ahead would block forever. Only
// gRPC over HTTP/2 is known to do that.
func (p *pool) bothAtOnce(r *http.Request) bool {
	const grpc = "application/grpc"
	if p.scheme != "h2c" || r.ProtoMajor != 2 {
		return false
	}
	kind := r.Header.Get("Content-Type")
	return len(kind) >= len(grpc) && strings.EqualFold(kind[:len(grpc)], grpc) &&
		(len(kind) == len(grpc) || kind[len(grpc)] == '+' || kind[len(grpc)] == ';')
}

// readAhead reads the first 64 KiB, or the complete body if it is shorter. Its error
// is errNoSpace or an error of the client.
func (b *body) readAhead() error {
	if b.free {
		return nil
	}
	b.space = b.proxy.spaces.get(0)
	for b.err == nil {
		if b.n == bodyAhead {
			return nil
		}
		if b.n == len(*b.space) && !b.grow() {
			return errNoSpace
		}
		n, _ := b.read((*b.space)[b.n:min(len(*b.space), bodyAhead)])
		b.n += n
	}
	if b.err != io.EOF {
		return b.err
	}
	b.whole = true
	return nil
}

// watch reads more until space is full or unwatch is called. net/http notices that
// a client has left only while its body is read. watch is called once, after
// readAhead, by any goroutine.
func (b *body) watch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := b.proxy.spaces.get(0)
	defer b.proxy.spaces.put(0, more)
	for b.err == nil && !b.unwatched && !b.ended && b.n < len(*b.space) {
		b.watching = true
		b.mu.Unlock()
		n, err := b.read((*more)[:bodyAhead+bodyWatch-b.n])
		b.mu.Lock()
		b.watching = false
		if b.space != nil {
			b.n += copy((*b.space)[b.n:], (*more)[:n])
		}
		if err == io.EOF && !b.unwatched {
			b.whole = true
		}
		b.quiet.Broadcast()
	}
}

// unwatch ends watch after its present read. Afterwards whole does not change.
func (b *body) unwatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwatched = true
}

func (b *body) grow() bool {
	if !b.proxy.bodies.take(bodySizes[b.class+1] - bodySizes[b.class]) {
		return false
	}
	more := b.proxy.spaces.get(b.class + 1)
	copy(*more, *b.space)
	b.proxy.spaces.put(b.class, b.space)
	b.space, b.class = more, b.class+1
	return true
}

// drop frees the space. mu is held, or b is not shared yet.
func (b *body) drop() {
	if b.space != nil {
		b.proxy.spaces.put(b.class, b.space)
		b.proxy.bodies.give(bodySizes[b.class] - bodySizes[0])
		b.space = nil
	}
}

// read reads from the client, at the minimum rate of pace.
func (b *body) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return 0, errEnded
	case b.err != nil:
		return 0, b.err
	case b.reading:
		return 0, errors.New("a body is read twice at once")
	}
	b.reading = true
	if !b.free {
		if until, set := b.pace.begin(time.Now()); set {
			b.client.SetReadDeadline(until)
		}
	}
	b.mu.Unlock()
	n, err := b.src.Read(p)
	b.mu.Lock()
	b.reading, b.err = false, err
	if b.ended {
		b.quiet.Broadcast()
		return n, err
	}
	if !b.free {
		b.pace.end(time.Now(), n)
		if err == io.EOF {
			b.client.SetReadDeadline(time.Time{}) // from here on net/http notices that the client leaves
		}
	}
	return n, err
}

// end is called before the handler returns. Afterwards b no longer uses net/http.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.taken()
	b.quiet.Broadcast()
	if b.reading && b.client.SetReadDeadline(longAgo) == nil {
		for b.reading {
			b.quiet.Wait()
		}
	}
	b.endWait()
	if b.err != io.EOF && b.http1 {
		b.client.SetReadDeadline(time.Now().Add(linger))
	}
	b.drop()
}

// setAnswered is called when the upstream has answered or failed.
func (b *body) setAnswered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken()
	if b.answered = true; b.sentAll && !b.watching {
		b.drop()
	}
}

// take is called when the upstream gets a part of the body. mu is held.
func (b *body) take() {
	switch {
	case b.answered || b.ended || b.free:
	case b.taking == nil:
		b.taking = time.AfterFunc(b.timeout, b.stuck)
	default:
		b.taking.Reset(b.timeout)
	}
}

// taken is called when it has taken that part. mu is held.
func (b *body) taken() {
	if b.taking != nil {
		b.taking.Stop()
	}
}

// setWritten is called when the upstream has taken the body, or nothing more is sent to it.
func (b *body) setWritten(httptrace.WroteRequestInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken()
}

// sent reports whether the client has sent the complete body.
func (b *body) sent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF
}

// failed returns the error of reading from the client, nil if there is none.
func (b *body) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == io.EOF {
		return nil
	}
	return b.err
}

// A bodyReader reads a body once from its beginning, for the transport.
type bodyReader struct {
	*body
	at     int // index in space
	closed bool
}

func (t *bodyReader) Read(p []byte) (n int, err error) {
	t.mu.Lock()
	t.taken()
	t.mu.Unlock()
	if n, err = t.next(p); n > 0 {
		t.mu.Lock()
		t.take()
		t.mu.Unlock()
	}
	return n, err
}

// next is Read.
func (t *bodyReader) next(p []byte) (int, error) {
	t.mu.Lock()
	for t.at == t.n && t.watching && !t.closed && !t.ended {
		t.quiet.Wait()
	}
	switch {
	case t.closed || t.ended:
		t.mu.Unlock()
		return 0, errEnded
	case t.at < t.n && t.space == nil:
		t.mu.Unlock()
		return 0, errors.New("the beginning of the body has been dropped")
	case t.at < t.n:
		defer t.mu.Unlock()
		n := copy(p, (*t.space)[t.at:t.n])
		t.at += n
		if t.at < t.n {
			return n, nil
		}
		if t.sentAll = true; (t.answered || !t.whole) && !t.watching {
			t.drop()
		}
		if t.whole {
			return n, io.EOF
		}
		return n, nil
	case t.whole:
		t.mu.Unlock()
		return 0, io.EOF
	}
	t.drop()
	t.mu.Unlock()
	n, err := t.read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case n > 0:
		return n, nil // the next read returns the error
	}
	t.breakOff()
	return 0, err
}

// breakOff is called if the client does not send the rest of the body. The upstream
// may be working already; if its connection were closed, the end of its work would
// be unknown. So breakOff closes only the sending side, and waits for the upstream
// as for any answer without a client. It sends nothing on a connection that other
// requests share.
func (t *bodyReader) breakOff() {
	t.mu.Lock()
	upstream, over := t.upstream, t.over
	t.mu.Unlock()
	if over == nil {
		return
	}
	t.gone()
	var closed chan struct{}
	if upstream != nil {
		upstream.CloseWrite()
		closed = upstream.closed
	}
	select {
	case <-over:
	case <-closed:
	}
}

func (t *bodyReader) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.quiet.Broadcast()
	t.endWait()
	return nil
}

// endWait ends the wait for the upstream. mu is held.
func (b *body) endWait() {
	if b.over != nil {
		close(b.over)
		b.over = nil
	}
}

// complete returns the bytes of a complete body. They are valid until setAnswered.
func (b *body) complete() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sentAll = true
	return (*b.space)[:b.n]
}

// setConn records the connection that the request is sent by.
func (b *body) setConn(c httptrace.GotConnInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upstream = connOf(c.Conn)
}

// attach sets the body of the request for the upstream.
func (b *body) attach(out *http.Request) {
	out.TransferEncoding = nil
	if b.whole {
		out.ContentLength = int64(b.n)
		if b.n == 0 {
			out.Body = nil
			return
		}
		// The transport may send the request again on another connection.
		out.GetBody = func() (io.ReadCloser, error) { return &bodyReader{body: b}, nil }
	}
	if !b.whole {
		b.over = make(chan struct{})
	}
	out.Body = &bodyReader{body: b}
}
