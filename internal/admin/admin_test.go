package admin

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
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

// A refused request learns what is wrong, and what to do.
func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts        Options
		path, host  string
		status      int
		text, other string
	}{
		{Options{TokenFile: token}, "/api/v1/now", "localhost", 401, `"error":"the token is missing or wrong"`,
			`"hint":"Authorization: Bearer TOKEN"`},
		{Options{TokenFile: token}, "/metrics", "localhost", 401, "the token is missing or wrong: ", "Bearer TOKEN"},
		{Options{Private: true}, "/api/v1/now", "evil.example", 403, "no other name than localhost",
			`"hint":"use an address`},
	} {
		none := http.NotFoundHandler()
		s, err := Listen(c.opts, func(string) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
			Handlers{Metrics: none, API: func(func(*http.Request) bool) http.Handler { return none },
				Pages: func(func(string) bool) http.Handler { return none }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		go s.Serve()
		req, err := http.NewRequest("GET", "http://"+s.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.text) ||
			!strings.Contains(string(body), c.other) {
			t.Errorf("%s at %s: %d %s", c.path, c.host, resp.StatusCode, body)
		}
	}
}
