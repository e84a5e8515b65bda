// Package proxyprotocol reads the client's address from the PROXY protocol,
// versions 1 and 2, which HAProxy and other TCP load balancers send. Start with
// [Listener].
package proxyprotocol

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// headerTimeout is how long a trusted peer may take to send its whole header.
// The protocol recommends at least 3 s.
const headerTimeout = 5 * time.Second

// Listener wraps a listener whose trusted peers open each connection with a
// PROXY header. trusts gets a peer in the form of net.Addr.String; the method
// TrustsPeer of a clientaddr.Resolver takes this form.
//
// A trusted peer must send a complete, valid header. If it does not, reading
// from and writing to its connection fail, and the first Read calls refused,
// unless that is nil. Connections of other peers are returned unchanged and
// unread, so that a forged header is only a malformed request.
//
// RemoteAddr is the address in the header. It is the peer's own if the header
// has none: in LOCAL and UNKNOWN headers (a balancer's health checks), and for
// clients on a Unix socket of the balancer. Accept never waits for a header; the
// first Read, Write, RemoteAddr or LocalAddr waits for at most 5 s.
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

// A conn is the connection of a trusted peer. Its header is read on first use.
type conn struct {
	*proxyproto.Conn
	l      *listener
	report sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.l.refused != nil && c.ProxyHeader() == nil {
		c.report.Do(func() { c.l.refused(c.Raw().RemoteAddr(), err) })
	}
	return n, err
}

var errDatagram = errors.New("PROXY header declares datagrams on a stream connection")

func validate(h *proxyproto.Header) error {
	if h.TransportProtocol.IsDatagram() {
		return errDatagram
	}
	if h.TransportProtocol.IsUnix() {
		// The name of a socket on another machine must not pass for a local peer.
		h.Command = proxyproto.LOCAL
	}
	return nil
}
