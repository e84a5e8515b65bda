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
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// handedOver returns a listener on the socket of another listener, as a service manager
// passes it to a process.
func handedOver(t *testing.T, holder net.Listener) net.Listener {
	t.Helper()
	file, err := holder.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	return Shared(l)
}

// Several servers follow each other on a socket that stays open, while clients connect
// and send requests all the time.
func TestSuccessorsOnASharedSocketLoseNoConnection(t *testing.T) {
	for name, listen := range drainable {
		for _, test := range []struct{ keepAlive, secure bool }{{false, false}, {true, false}, {false, true},
			{true, true}} {
			t.Run(fmt.Sprintf("%s/keepAlive=%v/TLS=%v", name, test.keepAlive, test.secure), func(t *testing.T) {
				holder := listen(t)
				defer holder.Close()
				var wg sync.WaitGroup
				var answered atomic.Int64
				over := make(chan struct{})
				clients, enough := 50, int64(500)
				if test.secure { // a handshake takes long
					clients, enough = 10, 50
				}
				for range clients {
					wg.Go(func() {
						for {
							select {
							case <-over:
								return
							default:
							}
							if !visit(t, holder.Addr(), test.secure, test.keepAlive, over, &answered) {
								return
							}
						}
					})
				}
				var served [5]int64
				for i := range served {
					srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						atomic.AddInt64(&served[i], 1)
						io.WriteString(w, "here you are")
					})}
					if test.secure {
						srv.TLSConfig = certificate(t)
					}
					in := serve(t, handedOver(t, holder), Config{}, srv)
					for atomic.LoadInt64(&served[i]) < enough && !t.Failed() {
						time.Sleep(time.Millisecond)
					}
					if i == len(served)-1 {
						close(over)
						wg.Wait()
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					in.Drain(ctx)
					if err := srv.Shutdown(ctx); err != nil {
						t.Error(err)
					}
					cancel()
				}
				var all int64
				for i := range served {
					if served[i] < enough {
						t.Errorf("server %d answered %d requests", i, served[i])
					}
					all += served[i]
				}
				if all != answered.Load() {
					t.Errorf("%d requests were answered, and %d answers came", all, answered.Load())
				}
			})
		}
	}
}

// visit sends one request on a new connection. With keepAlive it sends more until the
// connection ends or over is closed. Only a connection that has been idle may end without
// an answer.
func visit(t *testing.T, at net.Addr, secure, keepAlive bool, over <-chan struct{}, answered *atomic.Int64) bool {
	c, err := net.DialTimeout(at.Network(), at.String(), 30*time.Second)
	if err != nil {
		t.Errorf("dial: %v", err)
		return false
	}
	defer c.Close()
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	in := bufio.NewReader(c)
	for sent := 0; ; sent++ {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
		if err == nil {
			_, err = in.Peek(1)
		}
		if err != nil {
			if sent > 0 {
				return true // no byte of an answer: clients repeat the request on a new connection
			}
			t.Errorf("a request was lost: %v", err)
			return false
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("an answer was lost: %v", err)
			return false
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "here you are" {
			t.Errorf("answer: %q, %v", body, err)
			return false
		}
		answered.Add(1)
		select {
		case <-over:
			return true
		default:
		}
		if answer.Close || !keepAlive {
			return true
		}
	}
}

// When draining begins, the kernel has accepted connections that the server has not. The
// successor gets them.
func TestDrainLeavesWaitingClientsToTheSuccessor(t *testing.T) {
	for name, listen := range drainable {
		t.Run(name, func(t *testing.T) {
			holder := listen(t)
			defer holder.Close()
			in := New(handedOver(t, holder), Config{})
			if !in.IsShared() {
				t.Error("IsShared is false for a shared socket")
			}
			var all []net.Conn
			ask := func() {
				t.Helper()
				c, err := net.Dial(holder.Addr().Network(), holder.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			for range 50 {
				ask()
			}
			in.Drain(t.Context())
			for range 50 { // the kernel accepts connections now, too
				ask()
			}
			if _, err := in.inner.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("once drained, Accept: %v", err)
			}
			in.Close()
			serve(t, handedOver(t, holder), Config{}, &http.Server{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {})})
			for _, c := range all {
				if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.Close {
					t.Fatalf("answer %v, %v, want one that leaves its connection open", answer, err)
				}
			}
		})
	}
}

// The watchdog calls Accepts.
func TestAccepts(t *testing.T) {
	inBubble(t, Config{}, &http.Server{}, func(t *testing.T, p *pipes, l *Listener) {
		time.Sleep(time.Hour)
		if !l.Accepts() {
			t.Error("a server that waits for connections does not accept")
		}
		c := p.dial("192.0.2.1")
		defer c.Close()
		time.Sleep(time.Hour)
		if !l.Accepts() {
			t.Error("a server that has just accepted one does not accept")
		}
		idle := New(p, Config{}) // without calls of Accept
		if !idle.Accepts() {
			t.Error("a new listener does not accept")
		}
		time.Sleep(mayWork)
		if idle.Accepts() {
			t.Error("a listener without calls of Accept accepts")
		}
	})
}
