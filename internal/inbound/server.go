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

// Attach has srv tell l about its connections, and l watch over what srv
// answers: it sets ConnState, ConnContext and BaseContext, and wraps Handler.
// It is called once, when srv has its Handler and TLS, and before srv serves l
// or what wraps l. WriteTimeout and ReadTimeout must stay 0: l sets deadlines
// itself.
func (l *Listener) Attach(srv *http.Server) {
	srv.ConnState = l.connState
	srv.ConnContext = func(ctx context.Context, outer net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, connOf(outer))
	}
	var once sync.Once
	srv.BaseContext = func(net.Listener) context.Context {
		// By now net/http has put in its HTTP/2, and serves nobody yet.
		once.Do(func() { watchHTTP2(srv) })
		return context.Background()
	}
	next := srv.Handler
	if next == nil {
		next = http.DefaultServeMux
	}
	srv.Handler = &handler{l, next}
}

type connKey struct{}

// connOfRequest returns the connection by which a request came, or nil.
func connOfRequest(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// connState follows what connections do.
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

// connOf finds the accepted connection below those that wrap it.
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

// A handler sees to what answers need of their connections.
type handler struct {
	l    *Listener
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		if r.ContentLength != 0 {
			if c := connOfRequest(r); c != nil {
				b := &incoming{ReadCloser: r.Body, c: c}
				r.Body = b
				h.l.wait(c, true)
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
			if !c.mayAsk() {
				h.l.notices.resetStream()
				panic(http.ErrAbortHandler) // resets the stream
			}
			h.serveStream(w, r, s)
			return
		}
	}
	h.next.ServeHTTP(w, r)
}

// An incoming body has its connection wait for its client until all of it is
// there. Some kB are a sign of life, a byte now and then is none.
type incoming struct {
	io.ReadCloser
	c    *conn
	n    int // bytes since the last sign
	over atomic.Bool
}

const signOfLife = 4 << 10

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch b.n += n; {
	case err != nil:
		b.end()
	case b.n >= signOfLife && !b.over.Load():
		b.n = 0
		b.c.l.wait(b.c, true)
	}
	return n, err
}

// end is called when the body is over, or the handler returns.
func (b *incoming) end() {
	if !b.over.Swap(true) {
		b.c.l.wait(b.c, false)
	}
}

// An answer is HTTP/1. It ends its connection once draining has begun.
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

var _ interface { // what an HTTP/1 answer of net/http can do
	http.Flusher
	http.Hijacker
	io.ReaderFrom
} = (*answer)(nil)
