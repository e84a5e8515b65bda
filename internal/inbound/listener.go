// Package inbound holds the connections of clients, for an [http.Server]:
// bounded in number, cut when their clients are too slow or too wild, closed
// without losing a request. Start with [New] and [Listener.Attach].
package inbound

import (
	"context"
	"errors"
	"log"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds that hold where a Config has none.
const (
	maxConnections   = 16384
	minConnections   = 64
	otherDescriptors = 256 // for files, the journal, idle upstream connections
	defaultPerAddr   = 512
)

// Config says how many connections there may be. Its zero value is good.
type Config struct {
	// Connections bounds them in all; 0 means half of the file descriptors
	// that the process may have, less 256, at most 16384: each may need
	// another one to the upstream.
	Connections int
	// PerAddr bounds those of one IPv4 address or IPv6 /64; 0 means 512.
	// Unix sockets have no addresses, and so no bound but the one in all.
	// HTTP/2 streams are bounded with them, see streamsPerConn.
	PerAddr int
	// Exempt names addresses without a bound of their own, as trusted
	// proxies; nil means none. It is asked when a bound is met, with a lock
	// held: it must be quick and not call the Listener.
	Exempt func(netip.Addr) bool
	// Log takes what was closed and why, at most once a minute; nil means
	// that nothing is said.
	Log *log.Logger
}

func (c *Config) fill() {
	if c.Connections <= 0 {
		c.Connections = maxConnections
		if files := openFiles(); files > 0 {
			files = min(files, 4*maxConnections)
			c.Connections = min(maxConnections, max(minConnections, (int(files)-otherDescriptors)/2))
		}
	}
	if c.PerAddr <= 0 {
		c.PerAddr = defaultPerAddr
	}
	c.PerAddr = min(c.PerAddr, c.Connections)
}

// A Listener accepts connections within bounds. It never stops accepting for
// good: a new connection beyond a bound is taken in the place of one that has
// been idle longest, or closed. It is safe for concurrent use.
//
// It stands below whatever wraps connections further, as TLS and the PROXY
// protocol do: its bounds count those who really connect.
type Listener struct {
	inner   net.Listener
	shared  bool // see Shared
	notices notices

	mu   sync.Mutex // held for moments, never while reading, writing or closing
	book *book

	streams        atomic.Int64 // of HTTP/2 that are not answered yet
	streamsPerAddr atomic.Int64 // bounds
	streamsInAll   atomic.Int64

	draining   atomic.Bool
	drainOnce  sync.Once
	accepting  atomic.Bool   // Accept is being called
	lastAccept atomic.Int64  // Unix nanoseconds; at first, when the Listener was made
	ended      chan struct{} // closed when Accept has met the end of a socket that is drained
	endOnce    sync.Once
	changed    chan struct{} // a connection was accepted or closed; holds one
	closed     chan struct{}
	closeOnce  sync.Once
	closeInner func() error
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on a TCP address, without Multipath TCP: what keeps new
// connections from coming during Drain works for plain TCP sockets alone.
func Listen(addr string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp", addr)
}

// Shared marks a listener whose socket others hold too, as systemd does, and
// will listen on after us: Drain leaves those who wait to be accepted to them.
func Shared(l net.Listener) net.Listener { return sharedListener{l} }

type sharedListener struct{ net.Listener }

// New wraps l. The result has to be closed instead of l.
func New(l net.Listener, c Config) *Listener {
	c.fill()
	_, shared := l.(sharedListener)
	n := &Listener{
		inner:      l,
		shared:     shared,
		ended:      make(chan struct{}),
		book:       newBook(c.Connections, c.PerAddr, c.Exempt),
		changed:    make(chan struct{}, 1),
		closed:     make(chan struct{}),
		closeInner: sync.OnceValue(l.Close),
	}
	n.lastAccept.Store(time.Now().UnixNano())
	n.notices.setLog(c.Log)
	n.boundStreams(c)
	return n
}

// Replace changes bounds, Exempt and Log. Connections beyond lower bounds stay
// until others want their places.
func (l *Listener) Replace(c Config) {
	c.fill()
	l.notices.setLog(c.Log)
	l.boundStreams(c)
	l.mu.Lock()
	l.book.setBounds(c.Connections, c.PerAddr, c.Exempt)
	l.mu.Unlock()
}

func (l *Listener) boundStreams(c Config) {
	l.streamsPerAddr.Store(int64(max(leastStreams, streamsPerConn*c.PerAddr)))
	l.streamsInAll.Store(int64(c.Connections))
}

// Open returns the number of connections now.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.open
}

// IsShared reports whether others hold the socket too, see Shared.
func (l *Listener) IsShared() bool { return l.shared }

// mayWork is how long whoever calls Accept may do something else in between.
const mayWork = 10 * time.Second

// Accepts reports whether connections are accepted: Accept waits for one, or
// has returned one within ten seconds. It takes the lock that accepting takes,
// and hangs where that does.
func (l *Listener) Accepts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepting.Load() || l.sinceAccept() < mayWork
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Accept returns the next connection within the bounds. Transient errors, as
// too many open files, are not returned but tried again; the longest idle
// connection is closed for a descriptor. Once the Listener has been drained,
// it waits to be closed.
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
				<-l.closed // so that Serve goes on until Shutdown
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

// isTransient reports whether accepting may work again: always, unless the
// socket itself is of no use any more.
func isTransient(err error) bool {
	for _, lasting := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}

// admit takes in a connection, or closes it and returns nil.
func (l *Listener) admit(raw net.Conn) *conn {
	c := newConn(l, raw)
	addr := addrOf(raw.RemoteAddr())
	l.mu.Lock()
	victim, met := l.book.admit(&c.entry, addr)
	bounds := [...]int{boundPerAddr: l.book.perAddr, boundInAll: l.book.connections}
	l.mu.Unlock()
	l.lastAccept.Store(time.Now().UnixNano())
	switch met {
	case boundPerAddr:
		l.notices.closedPerAddr(peerKey(addr), bounds[met])
	case boundInAll:
		l.notices.closedInAll(bounds[met])
	}
	if victim != nil {
		victim.conn.Close()
	}
	if victim == &c.entry {
		return nil
	}
	l.noteChange()
	return c
}

// makeRoom closes the longest idle connection for its file descriptor.
func (l *Listener) makeRoom() {
	l.mu.Lock()
	victim := l.book.longestIdle()
	if victim != nil {
		l.book.remove(victim)
	}
	l.mu.Unlock()
	if victim != nil {
		victim.conn.Close()
	}
}

// forget takes a connection that is being closed out of the book.
func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	l.book.remove(&c.entry)
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

// addrOf returns the peer's address, invalid for a Unix socket.
func addrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func (l *Listener) setIdle(c *conn, idle bool) {
	c.waiting.Store(false)
	if idle {
		c.heard.Store(false)
	}
	l.mu.Lock()
	l.book.setIdle(&c.entry, idle)
	l.mu.Unlock()
}

// wait notes that a connection in use waits for its client, or that it does no
// more. While it waits it may give way to a new connection, as an idle one may;
// with each call it is the last to do so.
func (l *Listener) wait(c *conn, waits bool) {
	c.waiting.Store(waits)
	l.mu.Lock()
	l.book.setIdle(&c.entry, false)
	if waits {
		l.book.setIdle(&c.entry, true)
	}
	l.mu.Unlock()
}
