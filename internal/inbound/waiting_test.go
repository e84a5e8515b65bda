package inbound

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Connections with slow posts are not idle, and still do not exclude other clients: a new
// connection replaces the one whose client has sent nothing for longest.
func TestSlowPostsAreReplaced(t *testing.T) {
	var work chan struct{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-work
		}
	})}
	inBubble(t, Config{PerAddr: 3}, srv, func(t *testing.T, p *pipes, l *Listener) {
		work = make(chan struct{})
		post := func(body string) net.Conn {
			c := p.dial("192.0.2.1")
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10000\r\n\r\n%s", body)
			synctest.Wait()
			time.Sleep(time.Second)
			return c
		}
		whole := post(strings.Repeat("x", 10000)) // the handler works on it
		lively, silent := post("a"), post("a")
		io.WriteString(lively, strings.Repeat("x", progressBytes))
		synctest.Wait()
		time.Sleep(time.Second)
		dripping := post("a") // replaces the silent one
		if isOpen(silent) || !isOpen(lively) || !isOpen(whole) {
			t.Error("the client that has been silent for longest was not replaced")
		}
		for range 3 {
			io.WriteString(dripping, "x")
			time.Sleep(time.Second)
		}
		io.WriteString(lively, strings.Repeat("x", progressBytes))
		synctest.Wait()
		other := post("a")
		if isOpen(dripping) || !isOpen(lively) || !isOpen(whole) {
			t.Error("a byte from time to time counts as progress")
		}

		// Draining waits for the clients that still send.
		drained := make(chan struct{})
		go func() {
			l.Drain(context.Background())
			close(drained)
		}()
		<-drained
		io.WriteString(lively, strings.Repeat("x", 10000-1-2*progressBytes))
		io.WriteString(other, strings.Repeat("x", 9999))
		close(work)
		for _, c := range []net.Conn{whole, lively, other} {
			c.SetReadDeadline(time.Time{})
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Errorf("a post in progress was cut: %v", err)
			}
			c.Close()
		}
	})
}

// A slow post makes no progress by what the server writes meanwhile, such as 100 Continue. In HTTP/2 a connection waits
// for its client while it has only such requests.
func TestSlowPostsAreReplacedWhateverIsWritten(t *testing.T) {
	post := func(stream uint32) []byte { return encode(frameHeaders, endHeaders, stream, getHeaders...) }
	for _, test := range []struct {
		name string
		send []byte // by the first of two clients; the second sends the same later
		want bool   // it is replaced
	}{
		{"HTTP/1", []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\nx"), true},
		{"a post", slices.Concat(hello(), post(1)), true},
		{"two posts", slices.Concat(hello(), post(1), post(3)), true},
		{"a byte of a post, and a ping", slices.Concat(hello(), post(1), encode(frameData, 0, 1, 'x'),
			encode(kindPing, 0, 0, make([]byte, 8)...)), true},
		{"a whole post", slices.Concat(hello(), post(1), encode(frameData, endStream, 1, 'x')), false},
		{"a post next to a request", slices.Concat(hello(), post(1), get(3)), false},
		{"a post after a request", slices.Concat(hello(), get(1), post(3)), false},
		{"a request", slices.Concat(hello(), get(1)), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var work chan struct{}
			srv := &http.Server{Protocols: allProtocols(),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						<-work
					}
				})}
			inBubble(t, Config{PerAddr: 2}, srv, func(t *testing.T, p *pipes, l *Listener) {
				work = make(chan struct{})
				var all [3]net.Conn
				ended := make(chan int, len(all))
				for i := range all {
					all[i] = p.dial("192.0.2.1")
					go func() {
						io.Copy(io.Discard, all[i])
						ended <- i
					}()
					all[i].Write(test.send)
					synctest.Wait()
					time.Sleep(time.Second)
				}
				want := 2 // the new one
				if test.want {
					want = 0
				}
				select {
				case i := <-ended:
					if i != want {
						t.Errorf("connection %d was closed, want %d", i, want)
					}
				default:
					t.Error("no connection was closed")
				}
				close(work)
				for _, c := range all {
					c.Close()
				}
				synctest.Wait()
			})
		})
	}
}

// A client that reads its answer slowly can be replaced, too, before it is cut off.
func TestSlowReadersAreReplaced(t *testing.T) {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, 100_000))
	})}
	inBubble(t, Config{PerAddr: 2}, srv, func(t *testing.T, p *pipes, l *Listener) {
		dial := func() net.Conn {
			c := p.dial("192.0.2.1")
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
			synctest.Wait()
			time.Sleep(time.Second)
			return c
		}
		first, second := dial(), dial()
		if third := dial(); isOpen(third) {
			t.Error("a connection was replaced although none was slow yet")
		}
		time.Sleep(leaseTime + time.Second)
		third := dial()
		for c, want := range map[net.Conn]bool{first: false, second: true, third: true} {
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := io.ReadFull(c, make([]byte, 50_000)); (err == nil) != want {
				t.Errorf("a connection that should be served (%v): %v", want, err)
			}
			c.Close()
		}
	})
}
