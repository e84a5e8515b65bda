package inbound

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/clientaddr/proxyprotocol"
)

// isOpen reports whether the server has not closed a connection.
func isOpen(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// request sends a request on a connection and reads the answer.
func request(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, answer.Body)
	c.SetDeadline(time.Time{})
}

// A new connection of an address at its bound replaces one that is between two requests,
// otherwise the one that has waited longest for its first request.
func TestAddressAtItsBound(t *testing.T) {
	var logged logText
	var busy chan struct{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			<-busy
		}
	})}
	exempt := func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.9") }
	inBubble(t, Config{PerAddr: 4, Exempt: exempt, Log: logged.log()}, srv, func(t *testing.T, p *pipes, l *Listener) {
		busy = make(chan struct{})
		var all []net.Conn
		dial := func(from string) net.Conn {
			c := p.dial(from)
			all = append(all, c)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			return c
		}
		first, second, third, fourth := dial("192.0.2.1"), dial("192.0.2.1"), dial("192.0.2.1"), dial("192.0.2.1")
		request(t, first) // idle since now
		io.WriteString(third, "GET /busy HTTP/1.1\r\nHost: here\r\n\r\n")
		synctest.Wait()
		other := dial("192.0.2.2")
		for i, gone := range []net.Conn{first, second, fourth} {
			dial("192.0.2.1")
			if isOpen(gone) {
				t.Fatalf("new connection %d: the one that it should replace is still open", i)
			}
		}
		if !isOpen(third) || !isOpen(other) {
			t.Error("a connection in use, or one of another address, was closed")
		}
		for range 10 {
			dial("192.0.2.9")
		}
		if n := l.Open(); n != 4+1+10 {
			t.Errorf("%d connections are open, want 15", n)
		}
		// All are busy: the new one is closed.
		for _, c := range all[len(all)-13 : len(all)-10] {
			io.WriteString(c, "GET /busy HTTP/1.1\r\nHost: here\r\n\r\n")
		}
		synctest.Wait()
		if c := dial("192.0.2.1"); isOpen(c) {
			t.Error("a fifth connection stayed open in addition to four busy ones")
		}
		close(busy)
		for _, c := range all {
			c.Close()
		}
		time.Sleep(2 * noticeEvery)
	})
	if got, want := logged.String(), "4 connections of 192.0.2.1 were closed: more than 4 at once\n"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// At the bound of all connections, a new one replaces one of the address with the most.
func TestAllConnectionsAtTheBound(t *testing.T) {
	var logged logText
	inBubble(t, Config{Connections: 16, Log: logged.log()}, &http.Server{}, func(t *testing.T, p *pipes, l *Listener) {
		var all []net.Conn
		dial := func(from string) net.Conn {
			c := p.dial(from)
			all = append(all, c)
			time.Sleep(time.Millisecond)
			return c
		}
		eldest := dial("192.0.2.1")
		greedy := []net.Conn{dial("192.0.2.2"), dial("192.0.2.2"), dial("192.0.2.2"), dial("192.0.2.2")}
		for i := range 11 {
			dial(fmt.Sprintf("203.0.%d.3", i))
		}
		for i := range 3 {
			dial(fmt.Sprintf("192.0.2.%d", 10+i))
			if isOpen(greedy[i]) || !isOpen(eldest) {
				t.Fatal("the address with the most connections lost none")
			}
		}
		dial("192.0.2.20")
		if isOpen(eldest) {
			t.Error("all have one, and the longest idle is still open")
		}
		time.Sleep(2 * noticeEvery)
		for _, c := range all {
			c.Close()
		}
	})
	if got, want := logged.String(), "4 connections were closed: more than 16 at once in all\n"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// The bounds are reached all the time, by more and more addresses.
func TestNoticesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged logText
		var n notices
		n.setLog(logged.log())
		for i := range 5 * 60 * 1000 / 11 {
			n.closedPerAddr(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32), 512)
			n.closedPerAddr(netip.MustParsePrefix("2001:db8::/64"), 512)
			n.acceptFailed(syscall.EMFILE)
			n.mu.Lock()
			apart := len(n.perAddr)
			n.mu.Unlock()
			if apart > maxOffenders+1 {
				t.Fatalf("%d addresses are counted separately", apart)
			}
			time.Sleep(11 * time.Millisecond) // not at the moments of its lines
		}
		n.flush()
		lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
		if len(lines) != 2*6 {
			t.Errorf("%d lines in five minutes and at their end, want 12:\n%s", len(lines), logged.String())
		}
		if want := "91 connections of 2001:db8::/64, and 91 of other addresses were closed: more than 512 at once"; lines[0] != want {
			t.Errorf("logged %q, want %q", lines[0], want)
		}
		if want := "accepting failed 91 times, and is tried again: too many open files"; lines[1] != want {
			t.Errorf("logged %q, want %q", lines[1], want)
		}
	})
}

// failing returns some errors of Accept first.
type failing struct {
	*pipes
	times atomic.Int64
	err   error
}

func (f *failing) Accept() (net.Conn, error) {
	if f.times.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", f.err)}
	}
	return f.pipes.Accept()
}

func TestAcceptingContinuesAfterErrors(t *testing.T) {
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ECONNABORTED, syscall.EPERM} {
		synctest.Test(t, func(t *testing.T) {
			var logged logText
			f := &failing{pipes: newPipes(), err: err}
			l := New(f, Config{Log: logged.log()})
			idle := make(chan net.Conn, 1)
			go func() { idle <- f.dial("192.0.2.1") }()
			if _, err := l.Accept(); err != nil {
				t.Fatal(err)
			}
			f.times.Store(200)
			go f.dial("192.0.2.2")
			c, failure := l.Accept()
			if failure != nil || addrOf(c.RemoteAddr()) != netip.MustParseAddr("192.0.2.2") {
				t.Fatalf("%v: after 200 failures %v, %v", err, c, failure)
			}
			// No descriptor is free: an idle connection is closed for its own.
			if short := err == syscall.EMFILE || err == syscall.ENFILE; isOpen(<-idle) == short {
				t.Errorf("%v: the idle connection is open: %v", err, !short)
			}
			c.Close()
			l.Close()
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("accepting from a closed listener: %v", err)
			}
			if n := strings.Count(logged.String(), "\n"); n > 5 || n < 2 {
				t.Errorf("%v: %d lines in over three minutes:\n%s", err, n, logged.String())
			}
		})
	}
}

// The PROXY protocol, which names other addresses, and TLS wrap the listener.
func TestBoundsCountPeers(t *testing.T) {
	in := New(listenTCP(t, "127.0.0.1:0"), Config{PerAddr: 3})
	srv := &http.Server{TLSConfig: certificate(t), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.RemoteAddr)
		})}
	in.Attach(srv)
	outer := proxyprotocol.Listener(in, func(string) bool { return true }, nil)
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(outer, "", "") }()
	var all []*tls.Conn
	for i := range 5 {
		raw, err := net.Dial("tcp", in.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(raw, "PROXY TCP4 203.0.113.%d 192.0.2.1 1024 443\r\n", i)
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		all = append(all, c)
		request(t, c)
		// The answer comes before the connection is idle.
		for isBusy(in) {
			time.Sleep(time.Millisecond)
		}
	}
	for i, c := range all {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if i < 2 {
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("connection %d is open: %v", i, err)
			}
		} else {
			request(t, c)
		}
	}
	srv.Close()
	<-ended
	for in.Open() > 0 { // TLS sends its close notification by itself
		time.Sleep(time.Millisecond)
	}
}

// isBusy reports whether a connection is not idle.
func isBusy(l *Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.settle()
	for e := l.table.all.first; e != nil; e = e.links[ofOpen].next {
		if e.state == busy {
			return true
		}
	}
	return false
}

// Hijacked connections are busy until they are closed.
func TestHijackedConnectionsAreBusy(t *testing.T) {
	taken := make(chan net.Conn, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		taken <- c
	})}
	in := serve(t, listenTCP(t, "127.0.0.1:0"), Config{PerAddr: 1}, srv)
	client, err := net.Dial("tcp", in.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	c := <-taken
	if !isBusy(in) || in.Open() != 1 {
		t.Error("a hijacked connection is idle or missing")
	}
	c.Close()
	if in.Open() != 0 {
		t.Error("a closed connection is in the table")
	}
}

func TestConfigHasDefaults(t *testing.T) {
	var c Config
	c.fill()
	if c.PerAddr != min(defaultPerAddr, c.Connections/4) || c.Connections < minConnections ||
		c.Connections > maxConnections {
		t.Errorf("defaults are %+v", c)
	}
	if files := openFiles(); files > 0 && files < 2*maxConnections && files >= 512 &&
		c.Connections != int(files-otherDescriptors)/2 {
		t.Errorf("%d files make %d connections", files, c.Connections)
	}
	for _, test := range []struct{ connections, perAddr, want int }{
		{10, 20, 2}, {300, 300, 75}, {300, 0, 75}, {64, 6, 6}, {3, 0, 1}, {16384, 0, 512}, {16384, 16384, 4096},
		{2000, 512, 500},
	} {
		c := Config{Connections: test.connections, PerAddr: test.perAddr}
		c.fill()
		if c.Connections != test.connections || c.PerAddr != test.want {
			t.Errorf("%+v: %d connections of one client, of %d", test, c.PerAddr, c.Connections)
		}
	}
}
