package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare/internal/httpfield"
)

// A Request is what Do sends.
type Request struct {
	Method string
	Target string // in origin form, or "*"
	Host   string // "" means Options.Host; not used with Lines
	// Header has canonical names. Host, Content-Length, Transfer-Encoding and Trailer
	// are not sent, and only the first User-Agent is.
	Header http.Header
	Fields []Field // further ones
	Lines  []byte  // what AppendHead has made of them; then only these are sent. nil: Do calls it
	Body   []byte  // the complete body; it should fit into the buffers of the kernel
	// Answer, which is empty, gets the header of the answer, if it is a plain one without an error and no switch of
	// protocols. Then the fields of the connection (RFC 9110 §7.6.1) are left out, except a Connection that may
	// name further ones. nil, and for other answers: another map gets all fields.
	Answer http.Header
	// Whole lets Do leave a short answer whole, if all of it is there and no field is special: then it has neither a
	// header nor a body yet. The caller then calls Call.Whole, and one of Call.Taken and Call.Unfold.
	Whole bool
	Hint  func(code int, header textproto.MIMEHeader) error
}

// A Field is one line of a header.
type Field struct {
	Name, Value string
}

// A Call is one request and its answer. Except for Stop, one goroutine uses it at a time.
type Call struct {
	pool *Pool
	stop func(error) // is Stop
	out  []byte      // the head of the request

	mu      sync.Mutex // of what follows
	conn    *conn      // nil: it is idle or closed
	dialing context.CancelCauseFunc
	stopped error

	// The answer.
	response http.Response
	header   http.Header
	body     body
	unfold   *conn       // has the answer, which is whole; nil: none is
	answer   http.Header // Request.Answer, while it is
}

// ErrUnfit is the error of a request that Do does not send.
var ErrUnfit = errors.New("the request is not a plain one")

// StopFunc returns Stop as a function, without memory for it.
func (c *Call) StopFunc() func(error) { return c.stop }

// Stop ends the call with an error. Any goroutine may call it until Release.
func (c *Call) Stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return
	}
	c.stopped = err
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	if c.dialing != nil {
		c.dialing(err)
	}
}

// attach connects the call with a connection.
func (c *Call) attach(conn *conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		conn.Close()
		return c.stopped
	}
	c.conn = conn
	return nil
}

// drop closes the connection and returns why the call failed: the error of Stop, or err.
func (c *Call) drop(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	if c.stopped != nil {
		return c.stopped
	}
	return err
}

func (c *Call) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped != nil
}

// done makes the connection idle, or closes it.
func (c *Call) done(conn *conn, reuse bool) {
	c.mu.Lock()
	open := c.conn == conn
	c.conn = nil
	c.mu.Unlock()
	switch {
	case !open: // Stop has closed it
	case reuse && conn.buffer.Buffered() == 0:
		conn.head.forget()
		c.pool.give(conn)
	default:
		conn.Close()
	}
}

// Release ends the use of the call, its answer included. Stop must not be called any more.
func (c *Call) Release() {
	c.drop(nil)
	c.stopped, c.dialing, c.response, c.body, c.unfold, c.answer = nil, nil, http.Response{}, body{}, nil, nil
	if cap(c.out) > 16<<10 {
		c.out = nil
	}
	if len(c.header) > 64 {
		c.header = make(http.Header)
	} else {
		clear(c.header)
	}
	c.pool.calls.Put(c)
}

// Do sends a request and returns its answer, which is valid until Release. Its body must be closed
// before. An error of ErrUnfit means that nothing was sent.
//
// A request is sent again on another connection only if nothing of it was sent, or if its
// connection was idle before, no byte of an answer came, and the request may be repeated.
func (c *Call) Do(r *Request) (*http.Response, error) {
	if !c.write(r) {
		return nil, ErrUnfit
	}
	for {
		now := time.Since(start)
		conn := c.pool.take(now)
		reused := conn != nil
		if !reused {
			var err error
			if conn, err = c.dial(); err != nil {
				return nil, err
			}
		}
		if err := c.attach(conn); err != nil {
			return nil, err
		}
		n, err := conn.send(c.out, now, c.pool.options.Timeout, reused)
		if err != nil {
			err = c.drop(err)
			if reused && (n == 0 || mayRepeat(r)) && !c.isStopped() && !isTimeout(err) {
				continue
			}
			if err == io.EOF {
				err = errNoAnswer
			}
			return nil, err
		}
		resp, err := c.read(conn, r)
		if err != nil {
			return nil, c.drop(err)
		}
		return resp, nil
	}
}

var errNoAnswer = errors.New("it closed the connection without an answer")

// mayRepeat reports whether the upstream may get a request twice: its method is safe (RFC 9110 §9.2.1), or
// the client says so. http.Transport has the same rule.
func mayRepeat(r *Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func (c *Call) dial() (*conn, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c.mu.Lock()
	if c.stopped != nil {
		c.mu.Unlock()
		return nil, c.stopped
	}
	c.dialing = cancel
	c.mu.Unlock()
	inner, err := c.pool.options.Dial(ctx)
	c.mu.Lock()
	c.dialing = nil
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return newConn(inner), nil
}

// write prepares the request. It returns false if a part of it could be read as something else.
func (c *Call) write(r *Request) bool {
	if !isPlain(r.Target) || !httpfield.IsToken(r.Method) || r.Target == "" {
		return false
	}
	b := append(c.out[:0], r.Method...)
	b = append(append(b, ' '), r.Target...)
	if r.Lines != nil {
		b = append(b, r.Lines...)
	} else {
		host := r.Host
		if host == "" {
			host = c.pool.options.Host
		}
		if b = AppendHead(b, host, r.Header, r.Fields); b == nil {
			return false
		}
	}
	if len(r.Body) > 0 {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.Body)), 10)
		b = append(b, "\r\n"...)
	} else if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b = append(b, "Content-Length: 0\r\n"...)
	}
	b = append(b, "\r\n"...)
	c.out = append(b, r.Body...)
	return true
}

// AppendHead appends what follows the target in a head: the version, the host, and the lines of Request.Header and
// Request.Fields. It returns nil if a part of them could be read as something else.
func AppendHead(b []byte, host string, header http.Header, fields []Field) []byte {
	if !isPlain(host) || host == "" {
		return nil
	}
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), host...), "\r\n"...)
	for name, values := range header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		case "User-Agent":
			if len(values) > 0 && values[0] == "" {
				continue
			}
			values = values[:min(len(values), 1)]
		}
		if len(values) > 0 && !httpfield.IsToken(name) {
			return nil
		}
		for _, v := range values {
			if !isLine(v) {
				return nil
			}
			b = httpfield.AppendValid(b, name, v)
		}
	}
	for i := range fields {
		f := &fields[i]
		if !isLine(f.Value) || !httpfield.IsToken(f.Name) {
			return nil
		}
		b = httpfield.AppendValid(b, f.Name, f.Value)
	}
	return b
}

// isLine reports whether a value does not end its line.
func isLine(v string) bool {
	return strings.IndexByte(v, '\n') < 0 && strings.IndexByte(v, '\r') < 0 && strings.IndexByte(v, 0) < 0
}

// isPlain reports whether a text has only visible ASCII characters.
func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7F {
			return false
		}
	}
	return true
}

// malformed returns an error of an answer.
func malformed(format string, args ...any) error {
	return fmt.Errorf("malformed HTTP response: "+format, args...)
}
