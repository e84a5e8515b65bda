package inbound

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"fairshare/internal/httpfield"
)

const (
	// answerBytes is the memory for an answer: its head, and the beginning of its body.
	answerBytes = 16 << 10
	// headRoom is the part of it that the head and what follows it may take.
	headRoom = answerBytes - countedBytes

	// countedBytes is how long a body may be whose length the handler does not give, so that it is counted. A longer
	// one is sent in chunks. Net/http has the same bound.
	countedBytes = 2 << 10

	// sendBytes is how many bytes are sent at once, unless Flush is called.
	sendBytes = 4 << 10
)

var (
	errAnswerEnded = errors.New("http: the handler has returned already")
	errHijack      = fmt.Errorf("http: a simple request cannot be hijacked: %w", http.ErrNotSupported)
)

// A fastAnswer is the answer to a request in the lane, and its context. It writes what net/http would write.
// Each request has its own: a handler that writes too late reaches no other answer.
type fastAnswer struct {
	fastContext
	header http.Header
	status int // 0: WriteHeader was not called

	buffer   *[answerBytes]byte
	out      []byte // to be sent: the head without its end, or what follows it
	counted  []byte // the body before the head has its end
	length   int64  // of the body, as the handler gives it; −1: unknown
	written  int64
	isHead   bool
	bodyless bool // the status allows no body
	closes   bool // the connection is closed after the answer
	headed   bool // the head has its end
	chunked  bool
	typed    bool // the head has a type of the body, or needs none
	dated    bool
	trailers []string // that the head announces
	trailing bool     // there are trailers
	finished bool
	err      error // of sending

	mayReuse bool // Reuse was called
}

func (a *fastAnswer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header, a.conn.answerFields)
	}
	return a.header
}

// SetReadDeadline is for http.ResponseController. The request has been read completely, so it does nothing.
func (a *fastAnswer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController.
func (a *fastAnswer) SetWriteDeadline(t time.Time) error { return a.conn.outer.SetWriteDeadline(t) }

// EnableFullDuplex is for http.ResponseController.
func (a *fastAnswer) EnableFullDuplex() error { return nil }

// Hijack always fails: upgrades are not simple.
func (a *fastAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHijack }

func (a *fastAnswer) WriteHeader(status int) {
	if a.status != 0 || a.finished {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	a.takeBuffer()
	if status < 200 && status != http.StatusSwitchingProtocols {
		a.out = appendStatus(a.out, status)
		for name, values := range a.header {
			if name != "Content-Length" && name != "Transfer-Encoding" {
				a.out = httpfield.AppendAll(a.out, name, values)
			}
		}
		a.out = append(a.out, "\r\n"...)
		a.send()
		return
	}
	a.setStatus(status)
	a.writeFields()
}

func (a *fastAnswer) takeBuffer() {
	if a.buffer == nil {
		a.buffer = answerBuffers.Get().(*[answerBytes]byte)
		a.out, a.counted = a.buffer[:0:headRoom], a.buffer[headRoom:headRoom]
	}
}

func (a *fastAnswer) setStatus(status int) {
	a.status = status
	a.bodyless = status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if a.conn.lane.l.draining.Load() {
		a.closes = true
		delete(a.header, "Connection")
	}
}

// longestFrame bounds what WriteAnswer adds to the fields and the body, in bytes.
const longestFrame = 256

// WriteAnswer writes a whole answer, as Header, WriteHeader and Write would, but at less cost. Its fields are the lines
// of its head, with the length of the body and without Connection. They have a Date if dated says so. A body is not
// sent if the request is HEAD or the status allows none. WriteAnswer does nothing and returns false if the answer has
// begun, has fields already, or is too long.
func (a *fastAnswer) WriteAnswer(status int, fields, body []byte, dated bool) bool {
	if a.status != 0 || a.finished || len(a.header) > 0 || status < 200 || status > 999 ||
		len(fields)+len(body) > headRoom-longestFrame {
		return false
	}
	a.takeBuffer()
	a.setStatus(status)
	a.headed, a.length, a.written = true, int64(len(body)), int64(len(body))
	if a.isHead || a.bodyless {
		body = nil
	}
	b := append(appendStatus(a.out, status), fields...)
	if a.closes {
		b = append(b, closeField...)
	}
	if !dated {
		b = append(b, dateField(time.Now())...)
	}
	a.out = append(append(b, "\r\n"...), body...)
	return true
}

// Reuse says that nothing but texts of the request is kept after its handler has returned: neither the request, its
// Header and URL, nor its context, a and the Header of a. So their memory may be used for another request.
func (a *fastAnswer) Reuse() { a.mayReuse = true }

// writeFields writes the fields that the handler gives. They cannot change afterwards.
func (a *fastAnswer) writeFields() {
	if c := a.header["Connection"]; len(c) > 0 && c[0] == "close" {
		a.closes = true
	}
	hasClose, encoded := false, false
	b := appendStatus(a.out, a.status)
	for name, values := range a.header {
		switch name {
		case "Content-Length":
			if len(values) == 0 {
				continue
			}
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil || n < 0 {
				continue
			}
			a.length = n
			if a.bodyless {
				continue
			}
		case "Transfer-Encoding":
			continue
		case "Content-Type":
			a.typed = true
			if a.status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			encoded = len(values) > 0 && values[0] != ""
		case "Date":
			a.dated = true
		case "Connection":
			hasClose = hasToken(values, "close")
			if a.closes && !hasClose {
				continue
			}
		case "Trailer":
			a.trailing = true
			for _, list := range values {
				for item := range strings.SplitSeq(list, ",") {
					item = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(item))
					switch item {
					case "", "Transfer-Encoding", "Content-Length", "Trailer":
					default:
						a.trailers = append(a.trailers, item)
					}
				}
			}
		default:
			if strings.HasPrefix(name, http.TrailerPrefix) {
				a.trailing = true
				continue
			}
		}
		b = httpfield.AppendAll(b, name, values)
	}
	if a.closes && !hasClose {
		b = append(b, closeField...)
	}
	a.typed = a.typed || encoded || a.bodyless
	a.out = b
}

const closeField = "Connection: close\r\n"

func hasToken(values []string, token string) bool {
	for _, list := range values {
		if httpfield.HasToken(list, token) {
			return true
		}
	}
	return false
}

// endHead completes the head. body is the beginning of the body, and all of it if isWhole.
func (a *fastAnswer) endHead(body []byte, isWhole bool) {
	a.headed = true
	b := a.out
	if isWhole && !a.trailing && !a.bodyless && a.length < 0 && (!a.isHead || len(body) > 0) {
		a.length = int64(len(body))
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, a.length, 10)
		b = append(b, "\r\n"...)
	}
	if !a.typed && len(body) > 0 {
		b = append(b, "Content-Type: "...)
		b = append(append(b, http.DetectContentType(body)...), "\r\n"...)
	}
	if !a.dated {
		b = append(b, dateField(time.Now())...)
	}
	if !a.isHead && !a.bodyless && a.length < 0 {
		a.chunked = true
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	a.out = append(b, "\r\n"...)
}

func (a *fastAnswer) Write(p []byte) (int, error) {
	switch {
	case a.finished:
		return 0, errAnswerEnded
	case a.err != nil:
		return 0, a.err
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if a.bodyless {
		return 0, http.ErrBodyNotAllowed
	}
	a.written += int64(len(p))
	if a.length >= 0 && a.written > a.length {
		return 0, http.ErrContentLength
	}
	if !a.headed {
		if !(a.typed && a.length >= 0) && len(a.counted)+len(p) <= countedBytes {
			a.counted = append(a.counted, p...)
			return len(p), nil
		}
		if len(a.counted) > 0 {
			a.endHead(a.counted, false)
			a.writeBody(a.counted)
			a.counted = nil
		} else {
			a.endHead(p, false)
		}
	}
	a.writeBody(p)
	return len(p), a.err
}

func (a *fastAnswer) WriteString(s string) (int, error) { return a.Write([]byte(s)) }

// ReadFrom is for handlers that send files.
func (a *fastAnswer) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{a}, src)
}

// writeBody writes a part of the body after the head.
func (a *fastAnswer) writeBody(p []byte) {
	if a.isHead {
		return
	}
	if a.chunked {
		a.out = strconv.AppendUint(a.out, uint64(len(p)), 16)
		a.out = append(a.out, "\r\n"...)
	}
	if len(a.out)+len(p) > headRoom-len("\r\n") {
		a.send()
		a.write(p)
	} else {
		a.out = append(a.out, p...)
	}
	if a.chunked {
		a.out = append(a.out, "\r\n"...)
	}
	if len(a.out) >= sendBytes {
		a.send()
	}
}

func (a *fastAnswer) Flush() { a.FlushError() }

func (a *fastAnswer) FlushError() error {
	if a.finished {
		return errAnswerEnded
	}
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.headed {
		a.endHead(a.counted, false)
		if len(a.counted) > 0 {
			a.writeBody(a.counted)
			a.counted = nil
		}
	}
	a.send()
	return a.err
}

// send sends what is in out.
func (a *fastAnswer) send() {
	a.write(a.out)
	a.out = a.buffer[:0:headRoom]
}

func (a *fastAnswer) write(p []byte) {
	if a.err != nil || len(p) == 0 {
		return
	}
	if _, a.err = a.conn.outer.Write(p); a.err != nil {
		a.conn.mu.Lock()
		a.cancel()
		a.conn.mu.Unlock()
	}
}

// finish ends the answer. It returns false if the connection must be closed.
func (a *fastAnswer) finish() (open bool) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.headed {
		a.endHead(a.counted, true)
		if len(a.counted) > 0 {
			a.writeBody(a.counted)
		}
	}
	if a.chunked {
		a.out = append(a.out, "0\r\n"...)
		a.writeTrailers()
		a.out = append(a.out, "\r\n"...)
	}
	a.send()
	if !a.isHead && !a.bodyless && a.length >= 0 && a.length != a.written {
		return false
	}
	return a.err == nil && !a.closes
}

func (a *fastAnswer) writeTrailers() {
	for _, name := range a.trailers {
		a.out = httpfield.AppendAll(a.out, name, a.header[name])
	}
	for name, values := range a.header {
		if name, found := strings.CutPrefix(name, http.TrailerPrefix); found {
			a.out = httpfield.AppendAll(a.out, name, values)
		}
	}
}

// abort sends what the handler wrote before it panicked.
func (a *fastAnswer) abort() {
	if a.headed {
		a.send()
	}
}

// release gives the memory back.
func (a *fastAnswer) release() {
	a.finished = true
	if a.buffer != nil {
		answerBuffers.Put(a.buffer)
		a.buffer, a.out, a.counted = nil, nil, nil
	}
}

// usualLines are the first lines of answers with a status up to 599.
var usualLines = func() (lines [600]string) {
	for status := range lines {
		if http.StatusText(status) != "" {
			lines[status] = string(appendOddStatus(nil, status))
		}
	}
	return
}()

// appendStatus appends the first line of an answer.
func appendStatus(b []byte, status int) []byte {
	if status < len(usualLines) && usualLines[status] != "" {
		return append(b, usualLines[status]...)
	}
	return appendOddStatus(b, status)
}

func appendOddStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else {
		b = append(b, "status code "...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	return append(b, "\r\n"...)
}

// A date is the field Date of one second.
type date struct {
	second int64
	field  string
}

var lastDate atomic.Pointer[date]

// dateField returns the field Date of a time.
func dateField(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.field
	}
	d := &date{now.Unix(), "Date: " + now.UTC().Format(http.TimeFormat) + "\r\n"}
	lastDate.Store(d)
	return d.field
}

var _ interface { // as HTTP/1 answers of net/http
	http.Flusher
	http.Hijacker
	io.ReaderFrom
	io.StringWriter
} = (*fastAnswer)(nil)
