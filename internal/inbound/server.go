package inbound

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Attach connects srv to l: srv reports the states of its connections, and l watches the
// answers. It sets ConnState, ConnContext and BaseContext, and wraps Handler. Call it
// once, after srv has its Handler and TLSConfig, and before srv serves l or a listener
// that wraps l. WriteTimeout and ReadTimeout must stay 0, since l sets deadlines itself.
func (l *Listener) Attach(srv *http.Server) {
	srv.ConnState = l.connState
	srv.ConnContext = func(ctx context.Context, outer net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, connOf(outer))
	}
	var once sync.Once
	srv.BaseContext = func(net.Listener) context.Context {
		// net/http has installed its HTTP/2 handlers, and does not serve connections yet.
		once.Do(func() { wrapHTTP2(srv) })
		return context.Background()
	}
	next := srv.Handler
	if next == nil {
		next = http.DefaultServeMux
	}
	srv.Handler = &trackingHandler{l, next}
}

type connKey struct{}

// connOfRequest returns the connection by which a request came, or nil.
func connOfRequest(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// connState records the state of a connection.
func (l *Listener) connState(outer net.Conn, state http.ConnState) {
	c := connOf(outer)
	if c == nil || c.l != l {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked:
		l.setState(c, busy)
	case http.StateIdle:
		l.setState(c, idle)
	case http.StateClosed:
		c.Close()
	}
}

// connOf returns the accepted connection inside of its wrappers, or nil.
func connOf(outer net.Conn) *conn {
	for {
		switch c := outer.(type) {
		case *conn:
			return c
		case interface{ NetConn() net.Conn }:
			outer = c.NetConn()
		case interface{ Raw() net.Conn }:
			outer = c.Raw()
		default:
			return nil
		}
	}
}

// A trackingHandler watches bodies and answers for the listener.
type trackingHandler struct {
	l    *Listener
	next http.Handler
}

func (h *trackingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		if r.ContentLength != 0 {
			if c := connOfRequest(r); c != nil {
				b := &incoming{ReadCloser: r.Body, c: c}
				r.Body = b
				b.begin()
				defer b.end()
			}
		}
		a := answer{ResponseWriter: w, l: h.l}
		h.next.ServeHTTP(&a, r)
		a.begin(http.StatusOK)
		return
	}
	if c := connOfRequest(r); c != nil {
		if s := c.h2.Load(); s != nil {
			if !c.mayOpenStream() {
				h.l.notices.resetStream()
				panic(http.ErrAbortHandler) // resets the stream
			}
			h.serveStream(w, r, s)
			return
		}
	}
	h.next.ServeHTTP(w, r)
}

// An incoming body marks its connection as waiting for the client until the body is
// complete. Progress counts in steps of progressBytes, so that a client cannot make
// progress with single bytes.
type incoming struct {
	io.ReadCloser
	c    *conn
	s    *streams // nil: HTTP/1
	n    int      // bytes since the last progress
	over atomic.Bool
}

const progressBytes = 4 << 10

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch b.n += n; {
	case err != nil:
		b.end()
	case b.n >= progressBytes && !b.over.Load():
		b.n = 0
		b.count(0)
	}
	return n, err
}

func (b *incoming) begin() { b.count(+1) }

// end is called when the body is complete or has failed, or the handler returns.
func (b *incoming) end() {
	if !b.over.Swap(true) {
		b.count(-1)
	}
}

// count counts bodies that come, or notes progress if by is 0.
func (b *incoming) count(by int) {
	if b.s != nil {
		b.s.countBodies(by)
		return
	}
	b.c.receiving.Store(by >= 0)
	b.c.l.wait(b.c, by >= 0)
}

// An answer is an answer of HTTP/1. After draining has begun, it ends its connection.
type answer struct {
	http.ResponseWriter
	l     *Listener
	begun bool
}

// begin is called before the header is written.
func (a *answer) begin(status int) {
	if a.begun {
		return
	}
	if status >= 200 {
		a.begun = true
		if a.l.draining.Load() {
			a.Header().Set("Connection", "close")
		}
	}
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

func (a *answer) Flush() { a.FlushError() }

func (a *answer) FlushError() error {
	a.begin(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	a.begin(http.StatusOK)
	return io.Copy(a.ResponseWriter, src)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

var _ interface { // as HTTP/1 answers of net/http
	http.Flusher
	http.Hijacker
	io.ReaderFrom
} = (*answer)(nil)
