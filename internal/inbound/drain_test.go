package inbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// serve serves h behind a Listener on l, and shuts down at the end.
func serve(t *testing.T, l net.Listener, c Config, srv *http.Server) *Listener {
	t.Helper()
	in := New(l, c)
	in.Attach(srv)
	lane := in.NewLane(in, srv)
	ended := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			ended <- srv.ServeTLS(in, "", "")
		} else {
			ended <- srv.Serve(lane)
		}
	}()
	t.Cleanup(func() {
		srv.Close()
		lane.CloseAll()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v, want ErrServerClosed", err)
		}
		for in.Open() > 0 { // TLS sends its close notification by itself
			time.Sleep(time.Millisecond)
		}
	})
	return in
}

// drainable has a listener for each kind of socket.
var drainable = map[string]func(t *testing.T) net.Listener{
	"TCP": func(t *testing.T) net.Listener { return listenTCP(t, ":0") }, // IPv4 and IPv6
	"Unix": func(t *testing.T) net.Listener {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	},
}

func listenTCP(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// refused reports whether a connection was never accepted by the kernel.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, os.ErrNotExist) // the file of a Unix socket is removed with its listener
}

func TestDrainLosesNoRequest(t *testing.T) {
	if !canRefuse {
		t.Skip("this system cannot refuse new connections")
	}
	for name, listen := range drainable {
		for _, test := range []struct{ keepAlive, secure bool }{{false, false}, {true, false}, {false, true},
			{true, true}} {
			t.Run(fmt.Sprintf("%s/keepAlive=%v/TLS=%v", name, test.keepAlive, test.secure), func(t *testing.T) {
				l := listen(t)
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "here you are")
				})}
				if test.secure {
					srv.TLSConfig = certificate(t)
				}
				in := serve(t, l, Config{}, srv)
				var wg sync.WaitGroup
				var answered, announced atomic.Int64
				clients, enough := 200, int64(2000)
				if test.secure { // a handshake takes long
					clients, enough = 40, 200
				}
				for range clients {
					wg.Go(func() {
						for hammer(t, l.Addr(), test.secure, test.keepAlive, &answered, &announced) {
						}
					})
				}
				for answered.Load() < enough {
					time.Sleep(time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				in.Drain(ctx)
				if err := srv.Shutdown(ctx); err != nil {
					t.Error(err)
				}
				wg.Wait()
				if announced.Load() == 0 {
					t.Error("no answer announced the end of its connection")
				}
			})
		}
	}
}

// hammer sends requests on one connection until an answer announces its end. It reports
// whether the caller may open another one.
func hammer(t *testing.T, at net.Addr, secure, keepAlive bool, answered, announced *atomic.Int64) bool {
	c, err := net.DialTimeout(at.Network(), at.String(), 500*time.Millisecond)
	if err != nil {
		if !refused(err) {
			t.Errorf("dial: %v", err)
		}
		return false
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	in := bufio.NewReader(c)
	for {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
			t.Errorf("request: %v", err)
			return false
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("a request was lost: %v", err)
			return false
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "here you are" {
			t.Errorf("answer: %q, %v", body, err)
			return false
		}
		answered.Add(1)
		if answer.Close {
			announced.Add(1)
			return true
		}
		if !keepAlive {
			return true
		}
	}
}

// Clients of HTTP/2 open streams until they get GOAWAY. Each stream that they opened is
// answered.
func TestDrainLetsHTTP2End(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%v", secure), func(t *testing.T) {
			srv := &http.Server{Protocols: allProtocols(),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "here you are")
				})}
			if secure {
				srv.TLSConfig = certificate(t)
			}
			in := serve(t, listenTCP(t, "127.0.0.1:0"), Config{}, srv)
			var wg sync.WaitGroup
			var answered atomic.Int64
			for range 20 {
				wg.Go(func() { hammerHTTP2(t, in.Addr().String(), secure, &answered) })
			}
			for answered.Load() < 2000 {
				time.Sleep(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			in.Drain(ctx)
			if err := srv.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			wg.Wait()
		})
	}
}

func hammerHTTP2(t *testing.T, addr string, secure bool, answered *atomic.Int64) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	if _, err := c.Write(hello()); err != nil {
		t.Error(err)
		return
	}
	open := make(chan struct{}, 20)
	leave := make(chan struct{})
	var asked, got atomic.Int64
	read := make(chan struct{})
	go func() {
		defer close(read)
		var in scanner
		left := false
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			in.scan(b[:n], func(f *frame) {
				switch {
				case f.kind == frameGoAway && !left:
					left = true
					close(leave)
				case f.kind == frameReset:
					t.Errorf("stream %d was reset: %d", f.stream, f.first)
				case f.kind == frameData && f.flags&flagEndStream != 0:
					got.Add(1)
					answered.Add(1)
					<-open
				}
			})
		}
	}()
	for stream := uint32(1); ; stream += 2 {
		select {
		case <-leave:
			<-read // until the server closes
			if asked.Load() != got.Load() {
				t.Errorf("%d of %d requests were answered", got.Load(), asked.Load())
			}
			return
		case open <- struct{}{}:
		case <-read:
			t.Error("the connection ended without GOAWAY")
			return
		}
		// WINDOW_UPDATE for the bytes of the answer.
		if _, err := c.Write(append(get(stream), encode(kindWindow, 0, 0, 0, 0, 0, 12)...)); err != nil {
			t.Errorf("request: %v", err)
			return
		}
		asked.Add(1)
	}
}

// When draining begins, the kernel has accepted connections that the server has not.
func TestDrainAcceptsQueuedConnections(t *testing.T) {
	for name, listen := range drainable {
		t.Run(name, func(t *testing.T) {
			if !canRefuse {
				t.Skip("this system cannot refuse new connections")
			}
			in := New(listen(t), Config{})
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})}
			in.Attach(srv)
			var all []net.Conn
			for range 100 {
				c, err := net.Dial(in.Addr().Network(), in.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				in.Drain(context.Background())
			}()
			for !in.draining.Load() {
				time.Sleep(time.Millisecond)
			}
			ended := make(chan error, 1)
			go func() { ended <- srv.Serve(in.NewLane(in, srv)) }()
			for _, c := range all {
				if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || !answer.Close {
					t.Fatalf("answer %v, %v, want one that ends its connection", answer, err)
				}
			}
			<-drained
			if err := srv.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve: %v, want ErrServerClosed", err)
			}
		})
	}
}

// When draining begins, some connections are idle and others wait for an answer.
func TestDrainServesWaitingClients(t *testing.T) {
	for name, listen := range drainable {
		t.Run(name, func(t *testing.T) {
			in := New(listen(t), Config{})
			goOn := make(chan struct{})
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					<-goOn
				}
				io.WriteString(w, "here you are")
			})}
			in.Attach(srv)
			dial := func() (net.Conn, *bufio.Reader) {
				c, err := net.Dial(in.Addr().Network(), in.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c, bufio.NewReader(c)
			}
			send := func(c net.Conn, path string) {
				if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
			}
			check := func(who string, in *bufio.Reader, ends bool) {
				t.Helper()
				answer, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("%s: %v", who, err)
				}
				if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "here you are" ||
					answer.Close != ends {
					t.Errorf("%s: %q, %v; ends its connection: %v, want %v", who, body, err, answer.Close, ends)
				}
			}
			ended := make(chan error, 1)
			var late []*bufio.Reader
			go func() { ended <- srv.Serve(in.NewLane(in, srv)) }()
			waiting, fromWaiting := dial()
			send(waiting, "/wait")
			var idle []net.Conn
			for range 20 {
				c, r := dial()
				send(c, "/")
				check("keep-alive", r, false)
				idle, late = append(idle, c), append(late, r)
			}
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				in.Drain(context.Background())
			}()
			for !in.draining.Load() {
				time.Sleep(time.Millisecond)
			}
			for i, c := range idle[:10] {
				send(c, "/")
				check("idle", late[i], true)
			}
			<-drained
			for i := range idle[10:] {
				if _, err := late[10+i].ReadByte(); !errors.Is(err, io.EOF) {
					t.Errorf("an idle connection at the end: %v, want EOF", err)
				}
			}
			select {
			case err := <-ended:
				t.Fatalf("Serve ended before Shutdown: %v", err)
			default:
			}
			stopped := make(chan error, 1)
			go func() { stopped <- srv.Shutdown(context.Background()) }()
			close(goOn)
			check("in progress", fromWaiting, true)
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve: %v, want ErrServerClosed", err)
			}
			if _, err := net.Dial(in.Addr().Network(), in.Addr().String()); err == nil {
				t.Error("the socket still accepts connections")
			}
		})
	}
}

// Drain returns at once without connections, and early if there is little time.
func TestDrainWithoutConnectionsIsImmediate(t *testing.T) {
	inBubble(t, Config{}, &http.Server{}, func(t *testing.T, p *pipes, l *Listener) {
		began := time.Now()
		l.Drain(t.Context())
		if took := time.Since(began); took != quiet {
			t.Errorf("an idle server drained in %v, want %v", took, quiet)
		}
	})
	inBubble(t, Config{}, &http.Server{}, func(t *testing.T, p *pipes, l *Listener) {
		c := p.dial("192.0.2.1")
		defer c.Close()
		time.Sleep(time.Minute)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		l.Drain(ctx)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("a grace of 300 ms drained in %v, want 100 ms", took)
		}
		if isOpen(c) {
			t.Error("an idle connection is still open")
		}
	})
}
