package httpguard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"

	"fairshare"
)

// An exchange notes what a handler answers. One is made for each request and
// not used again: a handler's goroutine that writes too late must not reach
// another client's answer.
type exchange struct {
	w        http.ResponseWriter
	bytes    int64 // of the body, as written
	status   int   // the final one; 0 before it is written
	head     bool  // a HEAD request: what is written goes nowhere
	own      bool  // the answer is not the upstream's
	returned bool  // the handler returned and did not panic
	hijacked bool
	copy     *robotsCopy // the body is kept here; nil for almost all

	h       *handler
	verdict fairshare.Verdict
	passage Passage
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
		x.status = status
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
		x.status = http.StatusOK
	}
	if !x.head {
		x.bytes += n
	}
}

func (x *exchange) flush() error {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	if f, ok := x.w.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	x.w.(http.Flusher).Flush()
	return nil
}

func (x *exchange) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := x.w.(http.Hijacker).Hijack()
	x.hijacked = x.hijacked || err == nil
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

// NotUpstream tells the middleware around a handler that what is answered to w
// is not the upstream's word: a gateway's own 502 must not count among the
// client's errors. Other writers are left alone.
func NotUpstream(w http.ResponseWriter) {
	for w != nil {
		switch x := w.(type) {
		case interface{ notUpstream() }:
			x.notUpstream()
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return
		}
	}
}

func (x *exchange) notUpstream() { x.own = true }

// UpstreamDone gives the slots of concurrent limits back before the handler
// returns: the upstream's work is done, the client still takes the answer. It
// may be called from any goroutine, but not after the handler returned. Other
// writers are left alone.
func UpstreamDone(w http.ResponseWriter) {
	for w != nil {
		switch x := w.(type) {
		case interface{ upstreamDone() }:
			x.upstreamDone()
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return
		}
	}
}

// An Asker is who sent a request, as it was judged.
type Asker struct {
	Addr  netip.Addr // of the client; invalid when unknown
	Proxy bool       // Addr is a proxy's, or likely to be one's: many may stand behind it
	Bot   fairshare.Bot
}

// Who tells the handler that a guard let w through to who asks; false when no
// guard did.
func Who(w http.ResponseWriter) (Asker, bool) {
	for w != nil {
		switch x := w.(type) {
		case interface{ who() Asker }:
			return x.who(), true
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return Asker{}, false
		}
	}
	return Asker{}, false
}

func (x *exchange) who() Asker { return x.passage.Asker }

func (x *exchange) upstreamDone() {
	now := x.h.Now()
	x.passage.Took = now.Sub(x.passage.Time)
	x.settle(fairshare.Outcome{Time: now, Part: fairshare.SlotsOnly})
}

// end settles all that is left, and tells whoever listens.
func (x *exchange) end() {
	out := fairshare.Outcome{Time: x.h.Now(), Status: x.outcome(), Bytes: x.bytes}
	x.settle(out)
	if x.h.Passed == nil {
		return
	}
	p := &x.passage
	if p.Took == 0 {
		p.Took = out.Time.Sub(p.Time)
	}
	p.Status, p.Bytes = out.Status, out.Bytes
	x.h.Passed(p)
}

// settle settles the verdict. The client may be gone and its context with it;
// what it spent stays spent.
func (x *exchange) settle(out fairshare.Outcome) {
	if err := x.h.guard.Settle(context.Background(), &x.verdict, out); err != nil && x.h.Failed != nil {
		x.h.Failed(err)
	}
}
