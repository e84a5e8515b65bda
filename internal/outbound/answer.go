package outbound

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
)

// maxInterim bounds the interim answers (such as 103) before one answer.
const maxInterim = 100

// read reads the answer to r. At least one byte of it is in the buffer.
func (c *Call) read(conn *conn, r *Request) (*http.Response, error) {
	for interim := 0; ; interim++ {
		if interim > maxInterim {
			return nil, malformed("more than %d interim answers", maxInterim)
		}
		have, err := conn.buffer.Peek(conn.buffer.Buffered())
		if err != nil {
			return nil, err
		}
		size := conn.head.parse(have) // usually all of it is there
		if size == 0 {
			head, err := headOf(conn.buffer)
			if err != nil {
				return nil, err
			}
			if size = conn.head.parse(head); size == 0 {
				resp, err := c.readOdd(conn, r, head != nil || conn.buffer.Buffered() < conn.buffer.Size())
				if err != nil || resp != nil {
					return resp, err
				}
				continue // it was an interim answer
			}
		}
		conn.buffer.Discard(size)
		resp, h := &c.response, &conn.head
		if h.code >= 200 || h.code == http.StatusSwitchingProtocols {
			// c.response is used again only after Release.
			resp.Status, resp.StatusCode = h.status, h.code
			resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
			return resp, c.frame(conn, r)
		}
		header := make(textproto.MIMEHeader, len(h.lines))
		for i := range h.lines {
			l := &h.lines[i]
			header[l.name] = append(header[l.name], l.value)
		}
		if r.Hint != nil {
			if err := r.Hint(h.code, header); err != nil {
				return nil, err
			}
		}
		if _, err := conn.buffer.Peek(1); err != nil {
			return nil, unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// headOf returns the head at the beginning of the buffer, with its final empty line. It is nil if the head
// does not fit into the buffer, if a line of it ends without CR, and if the upstream ends within it.
func headOf(b *bufio.Reader) ([]byte, error) {
	from := 0
	for {
		have, err := b.Peek(b.Buffered())
		if err != nil {
			return nil, err
		}
		if end := headEnd(have, from); end > 0 {
			return have[:end], nil
		}
		if len(have) == b.Size() || hasBareLF(have, from) {
			return nil, nil
		}
		from = len(have)
		if _, err := b.Peek(len(have) + 1); err != nil {
			if err == io.EOF {
				return nil, nil // net/http finds the fault
			}
			return nil, err
		}
	}
}

// headEnd returns the size of the head at the beginning of b, 0 if its end is not in b[from:].
func headEnd(b []byte, from int) int {
	for i := from; ; i++ {
		at := bytes.IndexByte(b[i:], '\n')
		if at < 0 {
			return 0
		}
		if i += at; i >= 3 && string(b[i-3:i]) == "\r\n\r" {
			return i + 1
		}
	}
}

// hasBareLF reports whether b[from:] has a line feed that follows no carriage return in b.
func hasBareLF(b []byte, from int) bool {
	for i := from; ; i++ {
		at := bytes.IndexByte(b[i:], '\n')
		if at < 0 {
			return false
		}
		if i += at; i == 0 || b[i-1] != '\r' {
			return true
		}
	}
}

// frame fills in the header of the final answer and how its body ends.
func (c *Call) frame(conn *conn, r *Request) error {
	h := &conn.head
	if err := h.frame(c.pool.options.Special); err != nil {
		return err
	}
	resp := &c.response
	resp.Close = h.closes
	if r.Whole && h.isSimple && !h.chunked && h.length >= 0 && h.length <= int64(conn.buffer.Buffered()) &&
		resp.StatusCode > http.StatusSwitchingProtocols && !isBodyless(r.Method, resp.StatusCode) {
		resp.ContentLength, resp.Body = h.length, http.NoBody
		c.unfold, c.answer = conn, r.Answer
		return nil
	}
	c.unfolded(conn, r.Method, r.Answer)
	return nil
}

// isBodyless reports whether an answer has no body, whatever its fields say (RFC 9112 §6.3).
func isBodyless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// A Whole is an answer of which all is in memory.
type Whole struct {
	Status      int
	Fields      []byte // as lines, with the length of the body, without the fields of the connection
	Dated       bool   // Fields has a Date
	ContentType string // the first one; "" without one
	SetCookie   []string
	Body        []byte
}

// Whole returns the answer if Do has left it whole: see Request.Whole. It is valid until Taken, Unfold or Release is
// called.
func (c *Call) Whole(a *Whole) bool {
	if c.unfold == nil {
		return false
	}
	h := &c.unfold.head
	body, _ := c.unfold.buffer.Peek(int(h.length)) // all of it is there
	*a = Whole{Status: h.code, Fields: h.plainLines(), Dated: h.dated, ContentType: h.contentType,
		SetCookie: h.setCookie, Body: body}
	return true
}

// Taken says that the whole answer is not needed any more.
func (c *Call) Taken() {
	conn := c.unfold
	c.unfold = nil
	conn.buffer.Discard(int(conn.head.length))
	c.done(conn, !conn.head.closes)
}

// Unfold makes a whole answer one with a header and a body: it fills in the answer that Do has returned.
func (c *Call) Unfold() {
	conn := c.unfold
	c.unfold = nil
	c.unfolded(conn, http.MethodGet, c.answer) // or another method whose answers have bodies
}

// unfolded fills in the header and the body. answer is Request.Answer.
func (c *Call) unfolded(conn *conn, method string, answer http.Header) {
	resp, h := &c.response, &conn.head
	reuse := !h.closes
	resp.Header = c.header
	if answer != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Header = answer
		h.fillWithoutConnection(resp.Header)
	} else {
		h.fill(resp.Header)
	}
	if len(h.trailers) > 0 && h.chunked {
		resp.Trailer = announced(h.trailers)
		delete(resp.Header, "Trailer")
	}
	code := resp.StatusCode
	resp.ContentLength = h.length
	if isBodyless(method, code) || code == http.StatusSwitchingProtocols || !h.chunked && h.length == 0 {
		if method != http.MethodHead {
			resp.ContentLength = 0
		}
		if code == http.StatusSwitchingProtocols {
			reuse = false
		}
		resp.Body = http.NoBody
		c.done(conn, reuse)
		return
	}
	c.body = body{call: c, conn: conn, length: h.length, reuse: reuse}
	if conn.buffer.Buffered() < int(min(h.length, bufferBytes)) || h.length < 0 {
		conn.awaitBody()
	}
	switch {
	case h.chunked:
		resp.TransferEncoding = chunkedEncoding
		c.body.chunks = httputil.NewChunkedReader(conn.buffer)
	case h.length < 0:
		c.body.reuse = false
	}
	resp.Body = &c.body
}

var chunkedEncoding = []string{"chunked"}

// announced returns the trailers that a Trailer field announces.
func announced(lists []string) http.Header {
	trailer := make(http.Header)
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			switch name {
			case "", "Transfer-Encoding", "Trailer", "Content-Length":
			default:
				trailer[name] = nil
			}
		}
	}
	return trailer
}

// readOdd reads an answer as net/http does. It returns nil after an interim answer. After an answer that is not
// a plain one, the connection is not used again.
func (c *Call) readOdd(conn *conn, r *Request, odd bool) (*http.Response, error) {
	conn.allowed = int64(headBytes - conn.buffer.Buffered())
	resp, err := http.ReadResponse(conn.buffer, &http.Request{Method: r.Method})
	conn.allowed = math.MaxInt64
	if err != nil {
		return nil, unexpected(err)
	}
	if code := resp.StatusCode; code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		if r.Hint != nil {
			err = r.Hint(code, textproto.MIMEHeader(resp.Header))
		}
		if err == nil {
			_, err = conn.buffer.Peek(1)
		}
		return nil, unexpected(err)
	}
	reuse := !odd && !resp.Close
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = http.NoBody
		c.done(conn, reuse && resp.StatusCode != http.StatusSwitchingProtocols)
		return resp, nil
	}
	conn.awaitBody()
	c.body = body{call: c, conn: conn, odd: resp.Body, reuse: reuse}
	resp.Body = &c.body
	return resp, nil
}

// A body is the body of an answer. Its connection becomes idle when the body has been read completely, and is closed
// when the body is closed before.
type body struct {
	call   *Call
	conn   *conn // nil: it is read or closed
	length int64 // bytes to come; below 0: until the connection ends
	chunks io.Reader
	odd    io.Reader // of net/http
	reuse  bool
	err    error // of reading
}

var errClosed = errors.New("the body of an answer is read after its end")

// Read returns io.EOF together with the last bytes if it knows the length.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.read(p)
	if err == nil {
		return n, nil
	}
	b.err = err
	if err == io.EOF {
		b.call.done(b.conn, b.reuse)
	} else {
		b.err = b.call.drop(err)
	}
	b.conn = nil
	return n, b.err
}

func (b *body) read(p []byte) (int, error) {
	switch {
	case b.odd != nil:
		return b.odd.Read(p)
	case b.chunks != nil:
		n, err := b.chunks.Read(p)
		if err == io.EOF {
			if err = b.readTrailer(); err == nil {
				err = io.EOF
			}
		}
		return n, err
	case b.length < 0:
		return b.conn.buffer.Read(p)
	}
	n, err := b.conn.buffer.Read(p[:min(int64(len(p)), b.length)])
	if b.length -= int64(n); b.length == 0 {
		return n, io.EOF
	}
	return n, unexpected(err)
}

// readTrailer reads what comes after the last chunk.
func (b *body) readTrailer() error {
	end, err := b.conn.buffer.Peek(2)
	if err != nil {
		return unexpected(err)
	}
	if string(end) == "\r\n" {
		b.conn.buffer.Discard(2)
		return nil
	}
	head, err := headOf(b.conn.buffer)
	if err != nil {
		return unexpected(err)
	}
	if head == nil {
		return malformed("a trailer that is too large or incomplete")
	}
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(head))).ReadMIMEHeader()
	if err != nil {
		return unexpected(err)
	}
	b.conn.buffer.Discard(len(head))
	resp := &b.call.response
	if resp.Trailer == nil {
		resp.Trailer = make(http.Header, len(header))
	}
	for name, values := range header {
		resp.Trailer[name] = values
	}
	return nil
}

// Close closes the connection, unless the body was read completely.
func (b *body) Close() error {
	if b.err == nil {
		b.err = errClosed
	}
	if b.conn != nil {
		b.call.done(b.conn, false)
		b.conn = nil
	}
	return nil
}

// Buffered returns how many bytes can be read without waiting.
func (b *body) Buffered() int {
	if b.conn == nil || b.odd != nil {
		return 0
	}
	return b.conn.buffer.Buffered()
}
