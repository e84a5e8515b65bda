package httpguard

import (
	"bufio"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"fairshare/logins"
)

// A response passes the answer of a handler on and records it. Each request has
// its own: a goroutine of a handler that writes too late must not reach another
// client's answer.
type response struct {
	w        http.ResponseWriter
	x        *Exchange    // is called when the answer begins
	bytes    atomic.Int64 // of the body, as written
	status   atomic.Int32 // the final one; 0 before it is written
	head     bool         // a HEAD request: its body is not sent
	own      bool         // the answer is not the upstream's
	unkept   bool         // NothingKept was called
	returned bool         // the handler returned and did not panic
	alone    bool         // there is no guard around this one
	hijacked bool
	tap      *tap // gets the body too; nil for almost all requests
}

// A tap gets the body of an answer while it is sent.
type tap struct {
	copy   *robotsCopy    // nil unless it is a robots.txt
	faults *logins.Faults // nil unless it is an answer of XML-RPC
}

func (t *tap) add(p []byte) {
	if t.copy != nil {
		t.copy.add(p)
	}
	if t.faults != nil {
		t.faults.Add(p)
	}
}

// writer returns the response with the optional methods that the writer below
// it has, and no others.
func (res *response) writer() http.ResponseWriter {
	if _, all := res.w.(http1); all {
		return http1Writer{res}
	}
	_, flush := res.w.(http.Flusher)
	_, hijack := res.w.(http.Hijacker)
	_, push := res.w.(http.Pusher)
	switch {
	case flush && push:
		return http2Writer{res}
	case flush && hijack:
		return hijackWriter{res}
	case flush:
		return flushWriter{res}
	}
	return res
}

type (
	http1Writer  struct{ *response }
	http2Writer  struct{ *response }
	hijackWriter struct{ *response }
	flushWriter  struct{ *response }
)

// http1 is what writers of HTTP/1 have.
type http1 interface {
	http.Flusher
	http.Hijacker
	io.ReaderFrom
}

var (
	_ http1 = http1Writer{}
	_ interface {
		http.Flusher
		http.Pusher
	} = http2Writer{}
)

// responseOf returns the response of a writer; nil if it is not one of writer.
func responseOf(w http.ResponseWriter) *response {
	switch w := w.(type) {
	case http1Writer:
		return w.response
	case http2Writer:
		return w.response
	case hijackWriter:
		return w.response
	case flushWriter:
		return w.response
	case control:
		return w.response
	case *response:
		return w
	}
	return nil
}

func (res *response) Header() http.Header { return res.w.Header() }

// Unwrap is for http.ResponseController.
func (res *response) Unwrap() http.ResponseWriter { return control{res} }

// A control is what an http.ResponseController finds above the writer below: methods of writers further below must not
// pass the response by. It is not the writer of a handler, because it has methods that the writer below may lack.
type control struct{ *response }

func (c control) Unwrap() http.ResponseWriter { return c.w }
func (c control) FlushError() error           { return c.flush() }

func (c control) Hijack() (net.Conn, *bufio.ReadWriter, error) { return c.hijack() }

// canFlush reports whether an http.ResponseController can flush a writer.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch below := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = below.Unwrap()
		default:
			return false
		}
	}
}

func (res *response) WriteHeader(status int) {
	if res.status.Load() == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		res.begins(status)
	}
	if header := res.w.Header(); status < 200 && header[VisitorField] != nil { // it is for the final answer
		field := header[VisitorField]
		delete(header, VisitorField)
		defer func() { header[VisitorField] = field }()
	}
	res.w.WriteHeader(status)
}

func (res *response) Write(p []byte) (int, error) {
	res.beginBody()
	n, err := res.w.Write(p)
	res.wrote(int64(n))
	if res.tap != nil {
		res.tap.add(p[:n])
	}
	return n, err
}

func (res *response) WriteString(s string) (int, error) {
	if res.tap != nil {
		return res.Write([]byte(s))
	}
	res.beginBody()
	n, err := io.WriteString(res.w, s)
	res.wrote(int64(n))
	return n, err
}

// beginBody is called before the body is written. The status 200 precedes it if none was given.
func (res *response) beginBody() {
	if res.status.Load() == 0 {
		res.begins(http.StatusOK)
	}
}

// wrote counts n bytes of the body.
func (res *response) wrote(n int64) {
	if !res.head {
		res.bytes.Add(n)
	}
}

// begins records the final status of the answer and settles what depends on it.
// An answer without an end, such as an event stream, gives its turn back.
func (res *response) begins(status int) {
	res.status.Store(int32(status))
	x, header := res.x, res.w.Header()
	now, contentType := x.gen.Now(), contentTypeOf(header)
	if !res.own {
		x.noteSigns(status, contentType, header["Set-Cookie"])
		x.noteLogin(status, header)
		x.answerVisitor(header)
		x.noteFleet(now, status, contentType)
	}
	if isEventStream(contentType) {
		x.endless()
	}
	x.settleHead(now)
}

// contentTypeOf returns the first Content-Type; "" without one.
func contentTypeOf(header http.Header) string {
	if types := header["Content-Type"]; len(types) > 0 {
		return types[0]
	}
	return ""
}

func isEventStream(kind string) bool {
	const stream = "text/event-stream"
	return len(kind) >= len(stream) && strings.EqualFold(kind[:len(stream)], stream) &&
		(len(kind) == len(stream) || strings.IndexByte("; \t,", kind[len(stream)]) >= 0)
}

func (res *response) flush() error {
	if !canFlush(res.w) {
		return http.ErrNotSupported
	}
	res.beginBody()
	return http.NewResponseController(res.w).Flush()
}

func (res *response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(res.w).Hijack()
	if err == nil {
		res.hijacked = true
		delete(res.w.Header(), VisitorField)
		res.x.endless()
		res.x.settleHead(res.x.gen.Now())
	}
	return conn, rw, err
}

// outcome returns the status that the upstream answered with. It is 0 if there
// was none, and if the answer is not the upstream's.
func (res *response) outcome() int {
	switch {
	case res.own:
		return 0
	case res.status.Load() != 0:
		return int(res.status.Load())
	case res.hijacked:
		return http.StatusSwitchingProtocols
	case res.returned: // net/http answers so for a handler that wrote nothing
		return http.StatusOK
	}
	return 0
}

func (w http1Writer) Flush()            { w.flush() }
func (w http1Writer) FlushError() error { return w.flush() }

func (w http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// ReadFrom lets the kernel send files.
func (w http1Writer) ReadFrom(src io.Reader) (int64, error) {
	if w.tap != nil {
		return io.Copy(struct{ io.Writer }{w.response}, src)
	}
	all, limited := src.(*io.LimitedReader)
	if !limited {
		all = &io.LimitedReader{R: src, N: math.MaxInt64}
	}
	w.beginBody()
	sent := int64(0)
	for {
		piece := io.LimitedReader{R: all.R, N: min(all.N, pieceOfFile)}
		n, err := w.w.(io.ReaderFrom).ReadFrom(&piece)
		w.wrote(n)
		sent, all.N = sent+n, all.N-n
		if err != nil || piece.N > 0 || all.N <= 0 {
			return sent, err
		}
	}
}

// pieceOfFile is how many bytes of a file the kernel sends before they are
// counted.
const pieceOfFile = 1 << 20

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
