package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/outbound"
)

// idleTime is how long a connection to the upstream stays open without a request.
// Many servers close it after five seconds; a POST at that moment cannot be sent
// again, and would be answered 502.
const idleTime = 4 * time.Second

// dialTimeout is how long the upstream may take to accept a connection.
const dialTimeout = 5 * time.Second

// ParseUpstream reads the URL of an upstream: http, https or h2c and a host, with or
// without a port. h2c is HTTP/2 by prior knowledge, which gRPC needs; such an
// upstream cannot have websockets.
func ParseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		text = "…" + text[i:] // the text before it may contain a password
	}
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Opaque != "":
		return nil, fmt.Errorf("upstream %q is not a URL like http://127.0.0.1:3000", text)
	case u.Hostname() == "":
		return nil, fmt.Errorf("upstream %q has no host", text)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("upstream %q has more than a scheme, a host and a port", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// urlScheme returns the scheme of an upstream for net/http.
func urlScheme(u *url.URL) string {
	if u.Scheme == "h2c" {
		return "http"
	}
	return u.Scheme
}

func newUpstream(u *url.URL, timeout time.Duration) *upstream {
	up := &upstream{url: u, scheme: urlScheme(u), timeout: timeout, transport: newTransport(u, timeout)}
	if u.Scheme == "http" && outbound.Supported {
		up.direct = outbound.NewPool(outbound.Options{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return up.transport.DialContext(ctx, "tcp", up.addr())
			},
			Host: u.Host, Timeout: timeout, IdleTime: idleTime,
			Special: func(name string) bool { return name == httpguard.VisitorField },
		})
	}
	return up
}

// addr returns the host and the port of the upstream.
func (up *upstream) addr() string {
	if up.url.Port() == "" {
		return net.JoinHostPort(up.url.Hostname(), up.scheme)
	}
	return up.url.Host
}

// closeIdle closes the connections without a request.
func (up *upstream) closeIdle() {
	up.transport.CloseIdleConnections()
	if up.direct != nil {
		up.direct.CloseIdle()
	}
}

func newTransport(u *url.URL, timeout time.Duration) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(u.Scheme != "h2c")
	protocols.SetUnencryptedHTTP2(u.Scheme == "h2c")
	return &http.Transport{
		DialContext:            wrapDial((&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext),
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second},
		DisableCompression:     true, // the client's Accept-Encoding decides
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        idleTime,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// wrapDial makes a dial function return conns.
func wrapDial(d dial) dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, closed: make(chan struct{})}, nil
	}
}

// A conn is a connection to the upstream. closed is closed by Close.
type conn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// NetConn returns the connection of the kernel.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the data for the upstream.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// connOf returns the conn inside of outer, with or without TLS, or nil.
func connOf(outer net.Conn) *conn {
	if c, ok := outer.(*tls.Conn); ok {
		outer = c.NetConn()
	}
	c, _ := outer.(*conn)
	return c
}

// reach returns nil if the upstream accepts a connection, with TLS if configured.
func (up *upstream) reach(ctx context.Context) error {
	conn, err := up.transport.DialContext(ctx, "tcp", up.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if up.url.Scheme == "https" {
		return tls.Client(conn, &tls.Config{ServerName: up.url.Hostname()}).HandshakeContext(ctx)
	}
	return nil
}

// Reach returns nil if every upstream accepts a connection, with TLS if configured.
func (p *Proxy) Reach(ctx context.Context) error {
	if problems := p.Unreachable(ctx); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
