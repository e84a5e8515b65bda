package lookup

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// An queryFunc asks DNS for the records of one kind of a rooted name. No records and no error: the
// server says that there are none. Every other failure is an error, which never contains the name.
type queryFunc func(ctx context.Context, name string, kind dnsmessage.Type) (records, error)

// Timeouts of a client. All end with the context.
const (
	resendAfter = 700 * time.Millisecond // the question is sent again, in case a datagram was lost
	nextAfter   = 500 * time.Millisecond // the next server is asked too
	maxServers  = 3                      // resolv.conf(5): MAXNS
)

// A client asks recursive servers. It is stricter than net.Resolver where proof depends on it. Only
// NXDOMAIN and an empty answer mean that there are no records (net accepts REFUSED for AAAA alone).
// A first server that does not answer leaves time for the second. /etc/hosts is not used. Thousands
// of addresses in an answer do not cost a system call each.
type client struct {
	server string // host:port; "": the servers of the system
}

// newClient checks the server: an address with or without a port (53).
func newClient(server string) (*client, error) {
	if server == "" {
		return &client{}, nil
	}
	if addr, err := netip.ParseAddr(server); err == nil {
		return &client{netip.AddrPortFrom(addr, 53).String()}, nil
	}
	at, err := netip.ParseAddrPort(server)
	if err != nil || at.Port() == 0 {
		return nil, fmt.Errorf("DNS server %q: want an address, or address:port", server)
	}
	return &client{at.String()}, nil
}

// String names the server for people.
func (c *client) String() string {
	if c.server == "" {
		return "the system's DNS server"
	}
	return "the DNS server " + c.server
}

// errNoServer means that the system has no DNS server.
var errNoServer = errors.New("no DNS server is configured")

// servers returns the servers to ask, in order. net.Resolver knows the system's configuration,
// follows its changes and passes the addresses to its Dial function.
func (c *client) servers() []string {
	if c.server != "" {
		return []string{c.server}
	}
	var found []string
	system := net.Resolver{PreferGo: true, Dial: func(_ context.Context, _, server string) (net.Conn, error) {
		if len(found) < maxServers && !slices.Contains(found, server) {
			found = append(found, server)
		}
		return nil, errNoServer
	}}
	system.LookupMX(context.Background(), "localhost.") // uses only DNS; fails on purpose
	return found
}

func (c *client) query(ctx context.Context, name string, kind dnsmessage.Type) (records, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return records{}, errors.New("the name is too long for DNS")
	}
	q := dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET}
	servers := c.servers()
	switch len(servers) {
	case 0:
		return records{}, errNoServer
	case 1:
		return exchange(ctx, servers[0], q)
	}
	return queryEach(ctx, servers, q)
}

// queryEach asks the first server, and also the next one when a server fails or is slow. The first
// good answer counts.
func queryEach(ctx context.Context, servers []string, q dnsmessage.Question) (records, error) {
	type result struct {
		records
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result, len(servers))
	running := 0
	defer func() {
		cancel()
		for ; running > 0; running-- {
			<-results
		}
	}()
	next := func() {
		if len(servers) > 0 {
			server := servers[0]
			servers = servers[1:]
			running++
			go func() {
				found, err := exchange(ctx, server, q)
				results <- result{found, err}
			}()
		}
	}
	next()
	slow := time.NewTicker(nextAfter)
	defer slow.Stop()
	for {
		select {
		case r := <-results:
			running--
			if r.err == nil {
				return r.records, nil
			}
			next()
			if running == 0 {
				return records{}, r.err
			}
		case <-slow.C:
			next()
		}
	}
}

// exchange asks one server, over UDP, and over TCP when the answer is too long
// for that. Each question has its own socket, hence its own random port.
func exchange(ctx context.Context, server string, q dnsmessage.Question) (records, error) {
	var random [2]byte
	rand.Read(random[:])
	id := binary.BigEndian.Uint16(random[:])
	message, err := appendQuery(make([]byte, 2, 300), id, q)
	if err != nil {
		return records{}, errMalformed
	}
	binary.BigEndian.PutUint16(message, uint16(len(message)-2))
	found, err := overUDP(ctx, server, message[2:], id, q)
	if err == errTruncated {
		found, err = overTCP(ctx, server, message, id, q)
	}
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	return found, err
}

// dial connects, and ends all reading and writing with the context.
func dial(ctx context.Context, network, server string) (conn net.Conn, release func(), err error) {
	var d net.Dialer
	conn, err = d.DialContext(ctx, network, server)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return conn, func() {
		if stop() {
			conn.Close()
		}
	}, nil
}

func overUDP(ctx context.Context, server string, message []byte, id uint16, q dnsmessage.Question) (records, error) {
	conn, release, err := dial(ctx, "udp", server)
	if err != nil {
		return records{}, err
	}
	defer release()
	buffer := make([]byte, 4096)
	for {
		if _, err := conn.Write(message); err != nil {
			return records{}, err
		}
		conn.SetReadDeadline(time.Now().Add(resendAfter))
		for {
			n, err := conn.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return records{}, err
			}
			// A message with other values may be forged: the real answer may still come.
			if found, err := parse(buffer[:n], id, q); err != errForeign {
				return found, err
			}
		}
	}
}

// overTCP sends message, which starts with its length.
func overTCP(ctx context.Context, server string, message []byte, id uint16, q dnsmessage.Question) (records, error) {
	conn, release, err := dial(ctx, "tcp", server)
	if err != nil {
		return records{}, err
	}
	defer release()
	if _, err := conn.Write(message); err != nil {
		return records{}, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return records{}, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return records{}, err
	}
	return parse(answer, id, q)
}
