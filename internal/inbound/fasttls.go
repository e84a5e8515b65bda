package inbound

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"fairshare/internal/socket"
)

// A tlsSocket is a connection below TLS. In tries it does not wait, so that a connection that waits for a request
// needs no buffer: crypto/tls goes on with what it has at the next try.
type tlsSocket struct {
	net.Conn
	fd    uintptr
	tries bool
}

// errWait is the error of a try that needs more bytes. It is temporary, so crypto/tls does not remember it.
var errWait net.Error = waitError{}

type waitError struct{}

func (waitError) Error() string   { return "more bytes are needed" }
func (waitError) Timeout() bool   { return false }
func (waitError) Temporary() bool { return true }

func (s *tlsSocket) Read(b []byte) (int, error) {
	if !s.tries {
		return s.Conn.Read(b)
	}
	n, err := socket.Read(s.fd, b)
	switch {
	case err == socket.ErrAgain:
		return 0, errWait
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	if c, ok := s.Conn.(*conn); ok && n > 0 {
		c.readSinceIdle.Store(true) // also if the record is not complete
	}
	return n, nil
}

// NetConn is for connOf.
func (s *tlsSocket) NetConn() net.Conn { return s.Conn }

func (s *tlsSocket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// A replayedTLSConn is a connection with TLS of which some bytes have been read already. Net/http asks it for its
// ConnectionState.
type replayedTLSConn struct {
	replayedConn
	tls *tls.Conn
}

func (c *replayedTLSConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// shakeHands does the handshake of TLS as net/http does. It returns false if the connection ends.
func (c *fastConn) shakeHands() bool {
	if timeout := c.lane.server.ReadHeaderTimeout; timeout > 0 {
		c.outer.SetDeadline(time.Now().Add(timeout))
		defer c.outer.SetDeadline(time.Time{})
	}
	if err := c.tls.Handshake(); err != nil {
		reason := err.Error()
		var odd tls.RecordHeaderError
		if errors.As(err, &odd) && odd.Conn != nil && isHTTP(odd.RecordHeader) {
			io.WriteString(odd.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
			odd.Conn.Close()
			reason = "client sent an HTTP request to an HTTPS server"
		}
		c.logf("http: TLS handshake error from %s: %v", c.remoteAddr, reason)
		return false
	}
	state := c.tls.ConnectionState()
	c.tlsState = &state
	return true
}

// isHTTP reports whether a client sent HTTP in place of a TLS record.
func isHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// tryReadTLS is tryRead for a connection with TLS.
func (c *fastConn) tryReadTLS(fd uintptr) bool {
	c.takeBuffer()
	c.socket.fd, c.socket.tries = fd, true
	n, err := c.tls.Read(c.buffer[c.to:])
	c.socket.tries = false
	if err == errWait && n == 0 {
		if c.from == c.to {
			c.dropBuffer()
		}
		return false
	}
	if c.to += n; n > 0 {
		err = nil
	}
	c.tried = err
	return true
}

// close closes the connection, and does not wait for a client that takes no message about it.
func (c *fastConn) close() {
	if c.tls != nil {
		go func() {
			cut := time.AfterFunc(time.Second, c.cut)
			c.tls.Close()
			cut.Stop()
		}()
		return
	}
	c.outer.Close()
}

// cut closes the connection below TLS, without a message about it.
func (c *fastConn) cut() {
	if c.socket != nil {
		c.socket.Close()
		return
	}
	c.outer.Close()
}
