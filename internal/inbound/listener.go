// Package inbound accepts the connections of clients for an [http.Server]. It bounds
// their number, cuts off clients that are too slow or abuse HTTP/2, and drains
// connections without losing a request. Start with [New] and [Listener.Attach].
package inbound

import (
	"context"
	"errors"
	"log"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The defaults of a Config.
const (
	maxConnections   = 16384
	minConnections   = 16
	otherDescriptors = 256 // for files, the journal, idle upstream connections; half of all if that is less
	defaultPerAddr   = 512
)

// Config bounds the connections. Its zero value is useful.
type Config struct {
	// Connections bounds all connections. 0 means half of the file descriptors that the
	// process may have, after 256 or half of them are set aside, and at most 16384. A
	// connection may need a second descriptor for the upstream.
	Connections int
	// PerAddr bounds the connections of one client; 0 means 512. It is never more than a
	// quarter of Connections. Unix sockets have no addresses, so only Connections bounds
	// them. HTTP/2 streams have a bound in proportion, see streamsPerConn.
	PerAddr int
	// IPv4Prefix and IPv6Prefix are the bits of an address that are one client;
	// 0 means 32 and 64. IPv6 addresses are never counted by more than 64: a
	// customer has a /64 at least.
	IPv4Prefix, IPv6Prefix int
	// Exempt reports addresses without a bound of their own, such as trusted proxies;
	// nil means none. It is called at a bound, with a lock held: it must be fast and
	// must not call the Listener.
	Exempt func(netip.Addr) bool
	// Log gets the number of closed connections and the reasons, at most once a minute;
	// nil means no log.
	Log *log.Logger
}

// Filled returns c with its defaults, and with values within their bounds.
func (c Config) Filled() Config {
	c.fill()
	return c
}

// Descriptors returns how many file descriptors the process may need with c,
// and how many it may have, 0 if that is unknown.
func (c Config) Descriptors() (needed, allowed int) {
	c.fill()
	return 2*c.Connections + min(otherDescriptors, 2*c.Connections), int(min(openFiles(), math.MaxInt32))
}

func (c *Config) fill() {
	if c.Connections <= 0 {
		c.Connections = maxConnections
		if files := openFiles(); files > 0 {
			files := int(min(files, 4*maxConnections))
			c.Connections = min(maxConnections, max(minConnections, (files-min(otherDescriptors, files/2))/2))
		}
	}
	if c.PerAddr <= 0 {
		c.PerAddr = defaultPerAddr
	}
	c.PerAddr = min(c.PerAddr, max(1, c.Connections/4))
	if c.IPv4Prefix <= 0 {
		c.IPv4Prefix = 32
	}
	if c.IPv6Prefix <= 0 {
		c.IPv6Prefix = 64
	}
	c.IPv6Prefix = min(c.IPv6Prefix, 64)
}

func (c *Config) bounds() bounds {
	return bounds{connections: c.Connections, perAddr: c.PerAddr, ipv4Bits: c.IPv4Prefix, ipv6Bits: c.IPv6Prefix,
		exempt: c.Exempt}
}

// A Listener accepts connections within bounds. At a bound it continues to accept: a
// new connection replaces another one, or is closed. It is safe for concurrent use.
//
// Other wrappers, such as TLS and the PROXY protocol, wrap the Listener, so that its
// bounds count the actual peers.
type Listener struct {
	inner   net.Listener
	shared  bool // see Shared
	notices notices

	mu    sync.Mutex // held for moments, never while reading, writing or closing
	table *connTable

	clients        atomic.Int64 // with connections
	streams        atomic.Int64 // of HTTP/2, not answered yet
	streamsPerAddr atomic.Int64 // bounds
	streamsInAll   atomic.Int64

	draining   atomic.Bool
	drainOnce  sync.Once
	accepting  atomic.Bool // Accept is being called
	began      time.Time
	lastAccept atomic.Int64  // ns since began, by the monotonic clock
	ended      chan struct{} // closed when Accept has reached the end of a drained socket
	endOnce    sync.Once
	changed    chan struct{} // a connection was accepted or closed; holds one
	closed     chan struct{}
	closeOnce  sync.Once
	closeInner func() error
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on a TCP address, without Multipath TCP: Drain can refuse new
// connections only on plain TCP sockets.
func Listen(addr string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp", addr)
}

// Shared marks a listener whose socket another process also holds, such as systemd.
// Drain leaves the clients in the kernel's queue to that process.
func Shared(l net.Listener) net.Listener { return sharedListener{l} }

type sharedListener struct{ net.Listener }

// New wraps l. The caller must close the result instead of l.
func New(l net.Listener, c Config) *Listener {
	c.fill()
	_, shared := l.(sharedListener)
	n := &Listener{
		inner:      l,
		began:      time.Now(),
		shared:     shared,
		ended:      make(chan struct{}),
		table:      newConnTable(c.bounds()),
		changed:    make(chan struct{}, 1),
		closed:     make(chan struct{}),
		closeInner: sync.OnceValue(l.Close),
	}
	n.notices.setLog(c.Log)
	n.boundStreams(c)
	return n
}

// Replace changes bounds, Exempt and Log. Connections beyond lower bounds stay open
// until new connections replace them.
func (l *Listener) Replace(c Config) {
	c.fill()
	l.notices.setLog(c.Log)
	l.boundStreams(c)
	l.mu.Lock()
	l.table.setBounds(c.bounds())
	l.mu.Unlock()
}

func (l *Listener) boundStreams(c Config) {
	l.streamsPerAddr.Store(int64(max(leastStreams, streamsPerConn*c.PerAddr)))
	l.streamsInAll.Store(int64(c.Connections))
}

// Open returns the number of open connections.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.open
}

// IsShared reports whether another process holds the socket, see Shared.
func (l *Listener) IsShared() bool { return l.shared }

// mayWork is how long the caller of Accept may do other work between two calls.
const mayWork = 10 * time.Second

// Accepts reports whether connections are accepted: Accept waits for one, or has
// returned one within ten seconds. It takes the same lock as Accept, so it also
// detects a deadlock by blocking.
func (l *Listener) Accepts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepting.Load() || l.sinceAccept() < mayWork
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Accept returns the next connection within the bounds. After a transient error, such
// as too many open files, it closes a connection for its descriptor and tries again.
// After Drain it blocks until Close.
func (l *Listener) Accept() (net.Conn, error) {
	l.accepting.Store(true)
	defer l.accepting.Store(false)
	pause := time.Duration(0)
	for {
		raw, err := l.inner.Accept()
		switch {
		case err == nil:
			pause = 0
			if c := l.admit(raw); c != nil {
				return c, nil
			}
			continue
		case !isTransient(err):
			if l.draining.Load() {
				l.endOnce.Do(func() { close(l.ended) })
				<-l.closed // Serve must run until Shutdown
			}
			return nil, err
		}
		l.notices.acceptFailed(err)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.makeRoom()
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(pause):
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// isTransient reports whether accepting may succeed later: always, unless the socket
// itself is unusable.
func isTransient(err error) bool {
	for _, lasting := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK,
		syscall.EOPNOTSUPP} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}

// admit adds a connection, or closes it and returns nil.
func (l *Listener) admit(raw net.Conn) *conn {
	c := newConn(l, raw)
	addr := addrOf(raw.RemoteAddr())
	now := time.Since(l.began)
	l.mu.Lock()
	l.table.relax(now)
	victim, met := l.table.admit(&c.entry, addr)
	l.clients.Store(int64(len(l.table.peers)))
	bounds := [...]int{boundPerAddr: l.table.perAddr, boundInAll: l.table.connections}
	client := netip.Prefix{}
	if met == boundPerAddr {
		client = l.table.clientOf(addr)
	}
	l.mu.Unlock()
	l.lastAccept.Store(int64(now))
	switch met {
	case boundPerAddr:
		l.notices.closedPerAddr(client, bounds[met])
	case boundInAll:
		l.notices.closedInAll(bounds[met])
	}
	if victim != nil {
		victim.conn.closeReplaced()
	}
	if victim == &c.entry {
		return nil
	}
	l.noteChange()
	return c
}

// firstWait is how long a new connection may wait for its first request before
// makeRoom may close it.
const firstWait = 5 * time.Second

// makeRoom closes a connection for its file descriptor, as for a client without a
// connection: the next client is unknown before it is accepted.
func (l *Listener) makeRoom() {
	l.mu.Lock()
	l.table.settle()
	victim := l.table.yieldingTo(0, nil, pending)
	if victim != nil && victim.state == pending && time.Since(victim.conn.began) < firstWait {
		victim = nil
	}
	if victim != nil {
		l.table.remove(victim)
	}
	l.mu.Unlock()
	if victim != nil {
		victim.conn.closeReplaced()
	}
}

// forget removes a connection that is being closed from the table.
func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	l.table.remove(&c.entry)
	l.clients.Store(int64(len(l.table.peers)))
	l.mu.Unlock()
	l.noteChange()
}

func (l *Listener) noteChange() {
	if !l.draining.Load() {
		return
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Close stops listening. Connections stay.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.notices.flush()
	})
	return l.closeInner()
}

// addrOf returns the peer's address; it is invalid for a Unix socket.
func addrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// setState records that a connection is between two requests, or in use.
func (l *Listener) setState(c *conn, s state) {
	if c.waiting.Load() {
		c.waiting.Store(false)
	}
	if s == idle {
		c.readSinceIdle.Store(false)
		if streams := c.h2.Load(); streams != nil && !streams.hasRequests() {
			s = pending // for net/http it is idle before its first request
		}
	}
	l.changeState(c, s)
}

func (l *Listener) changeState(c *conn, s state) {
	if !l.table.note(&c.entry, s) {
		return
	}
	l.mu.Lock()
	l.table.setState(&c.entry, s)
	l.mu.Unlock()
}

// wait records that a connection in use waits for its client, or no longer does. While
// it waits, it is closed earlier for other connections; each call puts it last among
// the waiting ones. Afterwards it has the state from before again: a connection of HTTP/2
// may become idle meanwhile, or may be idle while something is written.
func (l *Listener) wait(c *conn, waits bool) {
	if waits && !c.waiting.Load() {
		c.before.Store(uint32(c.entry.noted.state()))
	}
	switch waited := c.waiting.Swap(waits); {
	case waits:
		l.changeState(c, pending)
	case waited: // otherwise the server has reported another state since
		l.changeState(c, state(c.before.Load()))
	}
}
