package httpguard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"fairshare"
)

// An exchange notes what a handler answers. One is made for each request and
// not used again: a handler's goroutine that writes too late must not reach
// another client's answer.
type exchange struct {
	w        http.ResponseWriter
	bytes    atomic.Int64 // of the body, as written
	status   int          // the final one; 0 before it is written
	head     bool         // a HEAD request: what is written goes nowhere
	own      bool         // the answer is not the upstream's
	returned bool         // the handler returned and did not panic
	hijacked bool
	copy     *robotsCopy // the body is kept here; nil for almost all

	h       *handler
	verdict fairshare.Verdict
	passage Passage
	work    work
}

// writer returns the exchange with the optional methods that the writer below
// it has, and no others.
func (x *exchange) writer() http.ResponseWriter {
	_, flush := x.w.(http.Flusher)
	_, hijack := x.w.(http.Hijacker)
	_, read := x.w.(io.ReaderFrom)
	_, push := x.w.(http.Pusher)
	switch {
	case flush && hijack && read:
		return http1Writer{x}
	case flush && push:
		return http2Writer{x}
	case flush && hijack:
		return hijackWriter{x}
	case flush:
		return flushWriter{x}
	}
	return x
}

type (
	http1Writer  struct{ *exchange }
	http2Writer  struct{ *exchange }
	hijackWriter struct{ *exchange }
	flushWriter  struct{ *exchange }
)

var (
	_ interface {
		http.Flusher
		http.Hijacker
		io.ReaderFrom
	} = http1Writer{}
	_ interface {
		http.Flusher
		http.Pusher
	} = http2Writer{}
)

func (x *exchange) Header() http.Header { return x.w.Header() }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		x.begins(status)
	}
	x.w.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	n, err := x.w.Write(p)
	x.wrote(int64(n))
	if x.copy != nil {
		x.copy.add(p[:n])
	}
	return n, err
}

func (x *exchange) WriteString(s string) (int, error) {
	if x.copy != nil {
		return x.Write([]byte(s))
	}
	n, err := io.WriteString(x.w, s)
	x.wrote(int64(n))
	return n, err
}

// wrote counts n bytes of the body, which the status 200 precedes if none was
// given.
func (x *exchange) wrote(n int64) {
	if x.status == 0 {
		x.begins(http.StatusOK)
	}
	if !x.head {
		x.bytes.Add(n)
	}
}

// begins notes the final status of the answer. One that has no end of its own
// needs no turn any more.
func (x *exchange) begins(status int) {
	x.status = status
	if kind := x.w.Header()["Content-Type"]; len(kind) == 1 && isEventStream(kind[0]) {
		x.endless()
	}
}

func isEventStream(kind string) bool {
	const stream = "text/event-stream"
	return len(kind) >= len(stream) && strings.EqualFold(kind[:len(stream)], stream) &&
		(len(kind) == len(stream) || strings.IndexByte("; \t,", kind[len(stream)]) >= 0)
}

func (x *exchange) flush() error {
	if x.status == 0 {
		x.begins(http.StatusOK)
	}
	if f, ok := x.w.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	x.w.(http.Flusher).Flush()
	return nil
}

func (x *exchange) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := x.w.(http.Hijacker).Hijack()
	if err == nil {
		x.hijacked = true
		x.endless()
	}
	return conn, rw, err
}

// outcome returns the status that the upstream answered with; 0 when there was
// none or it was not the upstream that answered.
func (x *exchange) outcome() int {
	switch {
	case x.own:
		return 0
	case x.status != 0:
		return x.status
	case x.hijacked:
		return http.StatusSwitchingProtocols
	case x.returned: // net/http answers so for a handler that wrote nothing
		return http.StatusOK
	}
	return 0
}

func (w http1Writer) Flush()            { w.flush() }
func (w http1Writer) FlushError() error { return w.flush() }

func (w http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// ReadFrom lets the kernel send files.
func (w http1Writer) ReadFrom(src io.Reader) (int64, error) {
	if w.copy != nil {
		return io.Copy(struct{ io.Writer }{w.exchange}, src)
	}
	n, err := w.w.(io.ReaderFrom).ReadFrom(src)
	w.wrote(n)
	return n, err
}

func (w http2Writer) Flush()            { w.flush() }
func (w http2Writer) FlushError() error { return w.flush() }

func (w http2Writer) Push(target string, opts *http.PushOptions) error {
	return w.w.(http.Pusher).Push(target, opts)
}

func (w hijackWriter) Flush()            { w.flush() }
func (w hijackWriter) FlushError() error { return w.flush() }

func (w hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w flushWriter) Flush()            { w.flush() }
func (w flushWriter) FlushError() error { return w.flush() }

// NotUpstream tells the middlewares around a handler that what is answered to w
// is not the upstream's word: a gateway's own 502 must not count among the
// client's errors. Other writers are left alone.
func NotUpstream(w http.ResponseWriter) {
	each(w, func(x interface{ notUpstream() }) bool {
		x.notUpstream()
		return true
	})
}

func (x *exchange) notUpstream() { x.own = true }

// An Asker is who sent a request, as it was judged.
type Asker struct {
	Addr  netip.Addr // of the client; invalid when unknown
	Proxy bool       // Addr is a proxy's, or likely to be one's: many may stand behind it
	Bot   fairshare.Bot
}

// Who tells the handler that a guard let w through to who asks; false when no
// guard did. Of several it is the one next to the handler.
func Who(w http.ResponseWriter) (asker Asker, known bool) {
	each(w, func(x interface{ who() Asker }) bool {
		asker, known = x.who(), true
		return false
	})
	return asker, known
}

func (x *exchange) who() Asker { return x.passage.Asker }

// tell tells whoever listens, when all is known.
func (x *exchange) tell() {
	if x.h.Passed == nil {
		return
	}
	x.passage.Status, x.passage.Bytes = x.outcome(), x.bytes.Load()
	x.h.Passed(&x.passage)
}

// settle settles the verdict. The client may be gone and its context with it;
// what it spent stays spent.
func (x *exchange) settle(out fairshare.Outcome) {
	if err := x.h.guard.Settle(context.Background(), &x.verdict, out); err != nil && x.h.Failed != nil {
		x.h.Failed(err)
	}
}
