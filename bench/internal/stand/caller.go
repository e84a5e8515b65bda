//go:build linux

package stand

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"
)

// A Caller is one connection of a client, from its own address.
type Caller struct {
	From netip.Addr
	To   string

	// Header are further header lines, each with \r\n, in place of "Accept: */*".
	Header string

	conn net.Conn
	r    *bufio.Reader
}

// An Answer is an answer to a request.
type Answer struct {
	Status int
	Header http.Header
}

var errGone = errors.New("the connection was closed before an answer began")

// Get sends a GET request and reads the answer. If the connection was closed while it was
// idle, it opens a new one, as every client does. It closes the connection if the answer
// is late, or when ctx is done.
func (c *Caller) Get(ctx context.Context, path string, within time.Duration) (Answer, error) {
	kept := c.conn != nil
	answer, err := c.once(ctx, path, within)
	if kept && errors.Is(err, errGone) && ctx.Err() == nil {
		c.Close()
		answer, err = c.once(ctx, path, within)
	}
	if err != nil {
		c.Close()
	}
	return answer, err
}

func (c *Caller) once(ctx context.Context, path string, within time.Duration) (Answer, error) {
	deadline := time.Now().Add(within)
	if c.conn == nil {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.From, 0)), Deadline: deadline}
		conn, err := dialer.Dial("tcp", c.To)
		if err != nil {
			return Answer{}, err
		}
		c.conn = conn
		if c.r == nil {
			c.r = bufio.NewReaderSize(conn, 1024)
		} else {
			c.r.Reset(conn)
		}
	}
	conn := c.conn
	conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	header := c.Header
	if header == "" {
		header = "Accept: */*\r\n"
	}
	if _, err := fmt.Fprintf(c.conn,
		"GET %s HTTP/1.1\r\nHost: site.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n%s\r\n", path, header); err != nil {
		return Answer{}, errGone
	}
	if _, err := c.r.Peek(1); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Answer{}, err
		}
		return Answer{}, errGone
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return Answer{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.Close {
		c.Close()
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{resp.StatusCode, resp.Header}, nil
}

// Close closes the connection; the next Get opens another.
func (c *Caller) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
