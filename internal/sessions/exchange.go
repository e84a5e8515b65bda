package sessions

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// An exchange reads the head of the answer to a bot's request before the bot gets it. Each request
// has its own.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	names    names
	table    *table
	entry    *entry
	offered  []cookie
	path     string
	secure   bool
	opens    chan struct{} // closed after the answer; nil if no request waits for it
	answered bool
}

// begin finds the key's session and returns the text of its cookies. opener is closed after the
// answer to another request that may open the session; nil if there is none.
func (x *exchange) begin(k key) (text string, opener <-chan struct{}) {
	x.entry, x.offered, text, x.opens, opener = x.table.begin(k, x.path, x.secure, time.Now())
	return text, opener
}

// opened wakes the requests that wait for this answer.
func (x *exchange) opened() {
	if x.opens != nil {
		x.table.opened(x.entry, x.opens)
		x.opens = nil
	}
}

// answer reads the head of the final answer.
func (x *exchange) answer(status int) {
	if x.answered {
		return
	}
	x.answered = true
	defer x.opened()
	now := time.Now()
	if len(x.offered) > 0 && mayBeSessionFault(status) {
		x.table.reportFailure(x.entry, now)
	}
	lines := x.w.Header()["Set-Cookie"]
	if len(lines) == 0 {
		return
	}
	var set, spent []cookie // cookies to keep if all may be kept; cookies to delete in any case
	shared, may := false, learnable(status)
	for _, line := range lines {
		c, ok := parseSetCookie(line, x.path, x.secure, now)
		if !ok || !x.names.match(c.name) {
			continue
		}
		set = append(set, c)
		switch {
		case x.wasOffered(c):
			shared = true
		case c.gone(now):
			spent = append(spent, c)
		default:
			may = may && !echoes(x.r, c)
		}
	}
	if !may {
		set = spent
	}
	if len(set) > 0 {
		x.table.learn(x.entry, x.offered, set, now)
	}
	if shared {
		x.w.Header()["Set-Cookie"] = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			c, ok := parseSetCookie(line, x.path, x.secure, now)
			return ok && x.wasOffered(c)
		})
	}
}

// wasOffered reports whether a cookie was sent to the upstream and is now set again. The client
// does not get it, because others share it.
func (x *exchange) wasOffered(c cookie) bool {
	return slices.ContainsFunc(x.offered, func(o cookie) bool { return o.name == c.name && o.value == c.value })
}

// learnable reports whether an answer with this status may open a shared session.
func learnable(status int) bool {
	return status < 400 || status == http.StatusNotFound || status == http.StatusGone
}

// mayBeSessionFault reports whether the session may have caused this answer.
func mayBeSessionFault(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, 419, 440: // 419 and 440: session expired
		return true
	}
	return status >= 500
}

// writer returns the exchange with exactly the optional methods of the writer below it.
func (x *exchange) writer() http.ResponseWriter {
	_, flush := x.w.(http.Flusher)
	_, hijack := x.w.(http.Hijacker)
	_, read := x.w.(io.ReaderFrom)
	_, push := x.w.(http.Pusher)
	switch {
	case flush && hijack && read:
		return http1Writer{hijackWriter{flushWriter{x}}}
	case flush && push:
		return http2Writer{flushWriter{x}}
	case flush && hijack:
		return hijackWriter{flushWriter{x}}
	case flush:
		return flushWriter{x}
	}
	return x
}

type (
	flushWriter  struct{ *exchange }
	hijackWriter struct{ flushWriter }
	http1Writer  struct{ hijackWriter }
	http2Writer  struct{ flushWriter }
)

func (x *exchange) Header() http.Header { return x.w.Header() }

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

func (x *exchange) WriteHeader(status int) {
	if status >= 200 {
		x.answer(status)
	}
	x.w.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.answer(http.StatusOK)
	return x.w.Write(p)
}

func (x *exchange) WriteString(s string) (int, error) {
	x.answer(http.StatusOK)
	return io.WriteString(x.w, s)
}

func (w flushWriter) Flush() { w.FlushError() }

func (w flushWriter) FlushError() error {
	w.answer(http.StatusOK)
	return http.NewResponseController(w.w).Flush()
}

func (w hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.answered = true
	return w.w.(http.Hijacker).Hijack()
}

// ReadFrom lets the kernel send files.
func (w http1Writer) ReadFrom(src io.Reader) (int64, error) {
	w.answer(http.StatusOK)
	return w.w.(io.ReaderFrom).ReadFrom(src)
}

func (w http2Writer) Push(target string, opts *http.PushOptions) error {
	return w.w.(http.Pusher).Push(target, opts)
}
