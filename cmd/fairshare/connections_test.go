//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startLimited runs serve as a process with a limit of open files.
func startLimited(t *testing.T, files int, policy string, args ...string) *serving {
	t.Helper()
	args = append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), programLink(t, shortDir(t)),
		"serve", "--listen", "127.0.0.1:0", "-c", writeFile(t, "site.yaml", policy)}, ownState(t, args)...)
	p := launch(t, exec.Command("/bin/sh", args...))
	p.awaitStart(t)
	go io.Copy(io.Discard, p.lines)
	return p
}

// crowdedSite returns a site with a page, an endless request, a large file and
// WebSockets.
func crowdedSite(t *testing.T) *httptest.Server {
	large := make([]byte, 8<<20)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Write(large)
		case "/endless":
			<-r.Context().Done()
		case "/socket":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				io.Copy(io.Discard, c)
				c.Close()
			}
		default:
			io.WriteString(w, "a page")
		}
	}))
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
	})
	return site
}

// holds are ways to hold a connection: the bytes that are sent on it. With TLS
// they are encrypted, except for handshakes.
var holds = map[string]string{
	"slow readers":      "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
	"endless requests":  "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n",
	"slow posts":        "POST /endless HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nx",
	"WebSockets":        "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
	"idle":              "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"half a header":     "GET / HTTP/1.1\r\nHost: a\r\nX-Long: ",
	"stalled handshake": "\x16\x03\x01\x02\x00\x01",
	"streams":           "",
}

func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	small := func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF,
				4096)
		})
		return err
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Control: small}
	return d.DialContext(ctx, "tcp", to)
}

// holdConnections holds connections from each address until ctx ends, and
// replaces those that are closed. It returns when all have been opened once.
func holdConnections(t *testing.T, ctx context.Context, to string, secure bool, how string, from []string, each int) {
	t.Helper()
	var all sync.WaitGroup
	var opened atomic.Int64
	hold := func(from string) {
		c, err := dialFrom(ctx, from, to)
		if err != nil {
			return
		}
		defer c.Close()
		opened.Add(1)
		if how == "streams" {
			holdStreams(ctx, c, secure)
			return
		}
		if secure && how != "stalled handshake" {
			s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			if s.HandshakeContext(ctx) != nil {
				return
			}
			io.WriteString(s, holds[how])
		} else {
			io.WriteString(c, holds[how])
		}
		// A client that does not read does not see the end of the connection.
		select {
		case <-ctx.Done():
		case <-time.After(1500 * time.Millisecond):
		}
	}
	for _, from := range from {
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					hold(from)
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
		}
	}
	t.Cleanup(all.Wait)
	for deadline := time.Now().Add(time.Minute); opened.Load() < int64(len(from)*each); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d connections were opened", opened.Load())
		}
	}
}

// holdStreams holds many HTTP/2 requests of one connection in progress.
func holdStreams(ctx context.Context, c net.Conn, secure bool) {
	used := atomic.Bool{}
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, net.ErrClosed
			}
			return c, nil
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols:       new(http.Protocols),
	}
	scheme := "http"
	if secure {
		scheme = "https"
		transport.Protocols.SetHTTP2(true)
	} else {
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", scheme+"://a/endless", nil)
			if resp, err := transport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	all.Wait()
	transport.CloseIdleConnections()
}

// A crowdVisitor requests a page three times on its own connection. Like every
// client, it repeats a request on another connection if a used one was closed.
// It leaves when serve has closed the connection.
type crowdVisitor struct {
	secure bool
	addr   string
	conn   net.Conn // nil: none is open
	in     *bufio.Reader
}

func (v *crowdVisitor) visit() error {
	defer v.leave()
	for i, head := range []string{"", "", "Connection: close\r\n"} {
		used := v.conn != nil
		err := v.request(head)
		if err != nil && used {
			v.leave()
			err = v.request("Connection: close\r\n")
		}
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	if _, err := v.in.ReadByte(); err != io.EOF {
		return fmt.Errorf("at the end: %w", err)
	}
	if s, ok := v.conn.(*tls.Conn); ok { // TLS announced the end; the connection itself is still open
		io.Copy(io.Discard, s.NetConn())
	}
	return nil
}

func (v *crowdVisitor) request(head string) error {
	if v.conn == nil {
		c, err := net.Dial("tcp", v.addr)
		if err != nil {
			return err
		}
		if v.conn = c; v.secure {
			v.conn = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		v.conn.SetDeadline(time.Now().Add(time.Minute))
		v.in = bufio.NewReader(v.conn)
	}
	if _, err := io.WriteString(v.conn, "GET / HTTP/1.1\r\nHost: a\r\n"+head+"\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || string(body) != "a page" {
		return fmt.Errorf("%s %q %w", resp.Status, body, err)
	}
	return nil
}

func (v *crowdVisitor) leave() {
	if v.conn != nil {
		v.conn.Close()
		v.conn = nil
	}
}

func loopbacks(format string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i+2))
	}
	return all
}

// A visitor always gets a connection, while attackers hold as many as they can.
func TestVisitorsGetConnections(t *testing.T) {
	exhaustive := os.Getenv("FAIRSHARE_EXHAUSTIVE") == "1"
	for row, test := range []struct {
		files  int
		bounds string
		from   []string
		each   int
	}{
		{256, "", loopbacks("127.0.0.%d", 1), 150},
		{100, "", loopbacks("127.0.0.%d", 1), 90},
		{4096, "bounds: {connections: 300, connections_per_addr: 300}", loopbacks("127.0.0.%d", 1), 350},
		{256, "", loopbacks("127.0.%d.1", 8), 24},
		{512, "bounds: {connections: 40, connections_per_addr: 40}", loopbacks("127.0.%d.1", 19), 4},
		{256, "", loopbacks("127.9.9.%d", 100), 1}, // one network
	} {
		for column, how := range slices.Sorted(maps.Keys(holds)) {
			usual := how == "slow readers" && test.files == 256
			if !required() && !usual {
				continue // more of them: FAIRSHARE_REQUIRE_SERVICES=1
			}
			for layer, secure := range []bool{false, true} {
				if required() && !exhaustive && !usual && (row+column+4*layer)%8 != 0 {
					continue // all of them take minutes: FAIRSHARE_EXHAUSTIVE=1 as well
				}
				if testing.Short() && secure != (row == 0) {
					continue // under the race detector each takes as long as ten others
				}
				t.Run(fmt.Sprintf("files=%d/addrs=%d/%s/TLS=%v", test.files, len(test.from),
					strings.ReplaceAll(how, " ", "_"), secure), func(t *testing.T) {
					policy := "h2c: true\n"
					if secure {
						cert, key, _ := newCertificate(t)
						policy = fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key)
					}
					p := startLimited(t, test.files, policy+test.bounds+"\nrules: []\n", "--upstream",
						crowdedSite(t).URL)
					ctx, cancel := context.WithCancel(context.Background())
					t.Cleanup(cancel)
					holdConnections(t, ctx, p.addr, secure, how, test.from, test.each)
					for i := range 10 {
						if err := (&crowdVisitor{secure: secure, addr: p.addr}).visit(); err != nil {
							t.Errorf("visit %d: %v", i, err)
						}
					}
					cancel()
				})
			}
		}
	}
}

// serve warns of bounds that the machine or other bounds do not allow.
func TestServeWarnsOfBoundsThatHaveNoEffect(t *testing.T) {
	site := crowdedSite(t)
	s := startServe(t, "bounds: {connections: 40, connections_per_addr: 30}\nrules: []\n", "--upstream", site.URL)
	s.stderr.wait(`warning: (connections_per_addr: 30 is more than a quarter of 40 connections: 10 is used)`)
	s = startServe(t, "bounds: {connections: 1000000}\nrules: []\n", "--upstream", site.URL)
	s.stderr.wait(`warning: (1000000 connections may need 2000256 open files, and the limit is \d+)`)
}
