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
	bodyAhead  = 64 << 10 // of a request's body, read before the upstream is asked
	bodyBudget = 64 << 20 // for all bodies together, beside the first 4 KiB of each

	bodyWatch = 4 << 10 // more of it, read while the request waits for its turn

	// watchAfter is how long a request has waited when its client is watched.
	watchAfter = 10 * time.Millisecond

	// linger is how long net/http may read on in a body that nobody wants,
	// so that the connection can be used again.
	linger = 5 * time.Second
)

var (
	errNoSpace = errors.New("no space for another request body")
	errEnded   = errors.New("the request is over")
	longAgo    = time.Unix(1, 0)
)

// A body is what a client sends. Its beginning is read ahead, so that a slow
// client does not hold the upstream; the rest passes as it comes, and not
// slower than pace allows. It is safe for use by the transport, which may read
// on after it answered.
type body struct {
	proxy  *Proxy
	src    io.Reader
	client *http.ResponseController
	http1  bool
	free   bool   // as slow as it likes: both sides speak at once
	gone   func() // called when the client does not send the rest

	mu       sync.Mutex
	quiet    sync.Cond     // reading changed
	upstream *conn         // nil: shared by other requests, or not known
	over     chan struct{} // closed when the upstream is done; nil: it is, or the body is whole
	space    *[]byte       // nil: nothing is held
	class    int           // of space, in bodySizes
	n        int           // bytes of space that were read
	whole    bool          // that is all
	pace     pace
	err      error // of reading from the client; io.EOF at its end
	reading  bool  // from the client, with mu free
	told     bool  // space was read to its end
	answered bool  // the upstream is not asked again
	ended    bool  // the handler returns: the client is out of reach

	watching  bool // more is read into space
	unwatched bool // nothing more is, after what is read now
}

func (p *Proxy) newBody(w http.ResponseWriter, r *http.Request, free bool) *body {
	b := &body{proxy: p, src: r.Body, client: http.NewResponseController(w), http1: r.ProtoMajor == 1, free: free}
	b.quiet.L = &b.mu
	return b
}

// bothAtOnce reports whether a body is a conversation, whose answers the
// client waits for before it goes on: one that is read ahead would never get
// on. Only gRPC is known to be such, and only where HTTP/2 is spoken.
func (s *setup) bothAtOnce(r *http.Request) bool {
	const grpc = "application/grpc"
	if s.Upstream.Scheme != "h2c" || r.ProtoMajor != 2 {
		return false
	}
	kind := r.Header.Get("Content-Type")
	return len(kind) >= len(grpc) && strings.EqualFold(kind[:len(grpc)], grpc) &&
		(len(kind) == len(grpc) || kind[len(grpc)] == '+' || kind[len(grpc)] == ';')
}

// readAhead reads the first 64 KiB, or all if that is less. Its error is
// errNoSpace or the client's fault.
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

// watch reads on, into what room is left, until that is full or unwatch is
// called. net/http ends the context of a request whose client leaves only where
// somebody reads. It is called once, after readAhead, by any goroutine.
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

// unwatch has watch end, after what it reads now. A body that is whole then, or
// is not, stays so.
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

// drop gives the space back. mu is held, or nobody else knows b yet.
func (b *body) drop() {
	if b.space != nil {
		b.proxy.spaces.put(b.class, b.space)
		b.proxy.bodies.give(bodySizes[b.class] - bodySizes[0])
		b.space = nil
	}
}

// read reads from the client, who has to keep pace.
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
			b.client.SetReadDeadline(time.Time{}) // net/http looks for the client's leaving now
		}
	}
	return n, err
}

// end is called before the handler returns: net/http does not hear of b any
// more.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.quiet.Broadcast()
	if b.reading && b.client.SetReadDeadline(longAgo) == nil {
		for b.reading {
			b.quiet.Wait()
		}
	}
	b.letGo()
	if b.err != io.EOF && b.http1 {
		b.client.SetReadDeadline(time.Now().Add(linger))
	}
	b.drop()
}

// asked tells that the upstream has answered or will not.
func (b *body) asked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered = true; b.told && !b.watching {
		b.drop()
	}
}

// sent reports whether the client has sent all.
func (b *body) sent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF
}

// failed returns what was wrong with the client's sending; nil for nothing.
func (b *body) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == io.EOF {
		return nil
	}
	return b.err
}

// A telling is a body told to the upstream, once from its beginning.
type telling struct {
	*body
	at     int // in space
	closed bool
}

func (t *telling) Read(p []byte) (int, error) {
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
		return 0, errors.New("a body is read again that is gone")
	case t.at < t.n:
		defer t.mu.Unlock()
		n := copy(p, (*t.space)[t.at:t.n])
		t.at += n
		if t.at < t.n {
			return n, nil
		}
		if t.told = true; (t.answered || !t.whole) && !t.watching {
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
		return n, nil // the error comes again
	}
	t.breakOff()
	return 0, err
}

// breakOff is called when the client does not send the rest. The upstream may
// be at work already, and if its connection were closed nobody would know when
// it is done. So it hears that no more comes by a half close, and is waited
// for as long as for any answer to a client that is gone. On a connection that
// other requests share it hears nothing.
func (t *telling) breakOff() {
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

func (t *telling) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.quiet.Broadcast()
	t.letGo()
	return nil
}

// letGo ends the wait for the upstream. mu is held.
func (b *body) letGo() {
	if b.over != nil {
		close(b.over)
		b.over = nil
	}
}

// sentOver tells by which connection the upstream is asked.
func (b *body) sentOver(c httptrace.GotConnInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upstream = connOf(c.Conn)
}

// tell gives the body to the request for the upstream. gone is called when the
// client does not send all of it.
func (b *body) tell(out *http.Request, gone func()) {
	b.gone = gone
	out.TransferEncoding = nil
	if b.whole {
		out.ContentLength = int64(b.n)
		if b.n == 0 {
			out.Body = nil
			return
		}
		// The transport may begin again on another connection.
		out.GetBody = func() (io.ReadCloser, error) { return &telling{body: b}, nil }
	}
	if !b.whole {
		b.over = make(chan struct{})
	}
	out.Body = &telling{body: b}
}
