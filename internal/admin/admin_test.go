package admin

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A pipeListener accepts connections that dial makes.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "admin.sock", Net: "unix"} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// startAt serves at a listener until the function that it returns is called. Its API reads the body.
func startAt(t *testing.T, l *pipeListener) (stop func()) {
	t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, "the body is late", http.StatusRequestTimeout)
			return
		}
		io.WriteString(w, "done")
	})
	s, err := Listen(Options{Private: true, Log: log.New(t.Output(), "", 0)},
		func(string) (net.Listener, error) { return l, nil },
		Handlers{Metrics: answer, API: func(func(*http.Request) bool) http.Handler { return answer },
			Pages: func(func(string) bool) http.Handler { return answer }, Ready: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	return func() {
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Slow clients are cut off: in the header, in the body, while they read the answer, and between requests.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	const post = "POST /api/v1/actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
	for _, c := range []struct {
		name, sent string
		within     time.Duration
		answer     string
	}{
		{"nothing", "", timeout, ""},
		{"half a header", "GET /healthz HTTP/1.1\r\nHost: loc", timeout, ""},
		{"half a body", post + "{", timeout, "408"},
		{"the next request does not come", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", idleTimeout, "200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
				stop := startAt(t, l)
				conn := l.dial()
				began := time.Now()
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				answer, _ := io.ReadAll(conn) // until the server ends the connection
				if took := time.Since(began); took < c.within || took > c.within+2*time.Second {
					t.Errorf("the connection ends after %v, not after %v", took, c.within)
				}
				if !strings.HasPrefix(string(answer), strings.TrimSpace("HTTP/1.1 "+c.answer)) && c.answer != "" {
					t.Errorf("the answer is %q", answer)
				}
				stop()
			})
		})
	}
	t.Run("nobody reads the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
			stop := startAt(t, l)
			conn := l.dial()
			if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3*timeout + time.Second)
			if answer, err := io.ReadAll(conn); len(answer) > 0 || err != nil {
				t.Errorf("the answer still comes: %q, %v", answer, err)
			}
			stop()
		})
	})
}

// Many connections that send nothing cannot keep an operator out, and their number is bounded.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
		stop := startAt(t, l)
		var open sync.WaitGroup
		ended := make(chan int, 4*connections)
		for i := range 2 * connections {
			conn := l.dial()
			open.Go(func() {
				fmt.Fprint(conn, []string{"", "GET /"}[i%2])
				io.Copy(io.Discard, conn)
				ended <- i
			})
			synctest.Wait()
		}
		conn := l.dial()
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("the operator gets %v, %v", resp, err)
		}
		synctest.Wait()
		if n := len(ended); n < connections {
			t.Errorf("only %d of %d connections have ended", n, 2*connections)
		}
		conn.Close()
		stop()
		open.Wait()
	})
}
