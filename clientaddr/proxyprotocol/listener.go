// Package proxyprotocol takes the client's address from the PROXY protocol,
// versions 1 and 2, as HAProxy and other balancers of TCP connections send
// it. Start with [Listener].
package proxyprotocol

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// headerTimeout is how long a trusted peer may take to send its whole header;
// the protocol asks for at least 3 s.
const headerTimeout = 5 * time.Second

// Listener wraps a listener whose trusted peers open each connection with a
// PROXY header; trusts is given a peer as net.Addr prints it, as
// clientaddr's Resolver.TrustsPeer takes it.
//
// Nothing is guessed. A trusted peer that sends no header, half of one, or
// anything else gets no answer: reading from and writing to its connection
// fail, and refused, unless nil, is told when it is read, from the goroutine
// that reads. From anybody else a connection is passed as it is, its first
// bytes unread, so that a forged header is only a bad request.
//
// RemoteAddr is the address in the header. It is the peer's own where the
// header holds none: in LOCAL and UNKNOWN ones (a balancer's health checks),
// and for clients on a Unix socket of the balancer. Accept never waits for a
// header; the first Read, Write, RemoteAddr or LocalAddr does, for 5 s at
// most.
func Listener(inner net.Listener, trusts func(peer string) bool, refused func(peer net.Addr, err error)) net.Listener {
	return &listener{inner, trusts, refused}
}

type listener struct {
	net.Listener
	trusts  func(peer string) bool
	refused func(peer net.Addr, err error)
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil || !l.trusts(raw.RemoteAddr().String()) {
		return raw, err
	}
	return &conn{l: l, Conn: proxyproto.NewConn(raw,
		proxyproto.WithPolicy(proxyproto.REQUIRE),
		proxyproto.ValidateHeader(validate),
		proxyproto.SetReadHeaderTimeout(headerTimeout),
	)}, nil
}

// A conn is a trusted peer's. Its header is read on first use.
type conn struct {
	*proxyproto.Conn
	l    *listener
	said sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.l.refused != nil && c.ProxyHeader() == nil {
		c.said.Do(func() { c.l.refused(c.Raw().RemoteAddr(), err) })
	}
	return n, err
}

var errDatagram = errors.New("PROXY header speaks of datagrams on a stream")

func validate(h *proxyproto.Header) error {
	if h.TransportProtocol.IsDatagram() {
		return errDatagram
	}
	if h.TransportProtocol.IsUnix() {
		// The name of a socket elsewhere must not pass for a peer on ours.
		h.Command = proxyproto.LOCAL
	}
	return nil
}
