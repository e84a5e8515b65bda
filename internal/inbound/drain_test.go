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
	ended := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			ended <- srv.ServeTLS(in, "", "")
		} else {
			ended <- srv.Serve(in)
		}
	}()
	t.Cleanup(func() {
		srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v, want ErrServerClosed", err)
		}
		if n := in.Open(); n != 0 {
			t.Errorf("%d connections are in the book of a closed server", n)
		}
	})
	return in
}

// drainable says where the tests listen.
var drainable = map[string]func(t *testing.T) (net.Listener, *tls.Config){
	"TCP": func(t *testing.T) (net.Listener, *tls.Config) { return listenTCP(t, "127.0.0.1:0"), nil },
	"Unix": func(t *testing.T) (net.Listener, *tls.Config) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		return l, nil
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
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

func TestDrainLosesNoRequest(t *testing.T) {
	if !canTurnAway {
		t.Skip("this system cannot keep connections from coming")
	}
	for name, listen := range drainable {
		for _, keepAlive := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/keepAlive=%v", name, keepAlive), func(t *testing.T) {
				l, _ := listen(t)
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "here you are")
				})}
				in := serve(t, l, Config{}, srv)
				var wg sync.WaitGroup
				var answered, told atomic.Int64
				for range 200 {
					wg.Go(func() {
						for hammer(t, l.Addr(), keepAlive, &answered, &told) {
						}
					})
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
				if told.Load() == 0 {
					t.Error("no client was told that its connection ends")
				}
			})
		}
	}
}

// hammer asks on one connection until it is told to leave, and reports
// whether another one may be tried.
func hammer(t *testing.T, at net.Addr, keepAlive bool, answered, told *atomic.Int64) bool {
	c, err := net.DialTimeout(at.Network(), at.String(), 500*time.Millisecond)
	if err != nil {
		if !refused(err) {
			t.Errorf("dial: %v", err)
		}
		return false
	}
	defer c.Close()
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
			told.Add(1)
			return true
		}
		if !keepAlive {
			return true
		}
	}
}
