package outbound

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func sortStrings(s []string) { slices.Sort(s) }

// An upstream accepts connections, and answers by a function. It counts connections.
type upstream struct {
	net.Listener
	conns    atomic.Int32
	requests atomic.Int32
}

// listen starts an upstream. serve gets each connection; n is its number.
func listen(t *testing.T, serve func(up *upstream, n int, conn net.Conn, r *bufio.Reader)) (*upstream, *Pool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := &upstream{Listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := int(up.conns.Add(1))
			all.Go(func() {
				defer conn.Close()
				serve(up, n, conn, bufio.NewReader(conn))
			})
		}
	})
	p := NewPool(Options{Host: "upstream", Timeout: 10 * time.Second, IdleTime: time.Minute,
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", l.Addr().String())
		}})
	t.Cleanup(func() {
		l.Close()
		p.CloseIdle()
		all.Wait()
	})
	return up, p
}

// next reads a request.
func (up *upstream) next(r *bufio.Reader) (*http.Request, bool) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, false
	}
	up.requests.Add(1)
	io.Copy(io.Discard, req.Body)
	return req, true
}

func do(p *Pool, r *Request) (string, error) {
	c := p.Call()
	defer c.Release()
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	up, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
		for {
			req, ok := up.next(r)
			if !ok {
				return
			}
			switch req.URL.Path {
			case "/length":
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			case "/chunks":
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
			default:
				fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	})
	for range 5 {
		for path, want := range map[string]string{"/length": "hi", "/chunks": "hi", "/none": ""} {
			if got, err := do(p, &Request{Method: "POST", Target: path, Body: []byte("x")}); got != want || err != nil {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		}
	}
	if n := up.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	c := p.Call() // its answer is not read
	if _, err := c.Do(&Request{Method: "GET", Target: "/length"}); err != nil {
		t.Error(err)
	}
	c.Release()
	if _, err := do(p, &Request{Method: "GET", Target: "/length"}); err != nil {
		t.Error(err)
	}
	if n := up.conns.Load(); n != 2 {
		t.Errorf("%d connections after an answer that was not read, want 2", n)
	}
}

// A request is sent whole on a connection that was idle, even if it takes several writes, or the kernel does not take
// all of it at once.
func TestLongRequests(t *testing.T) {
	up, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			hash := sha256.New()
			io.Copy(hash, req.Body)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n%x", hash.Sum(nil))
		}
	})
	for i, n := range []int{1, 64 << 10, 200_000, 16 << 20, 1} {
		body := make([]byte, n)
		for j := range body {
			body[j] = byte(j * j >> 8)
		}
		want := fmt.Sprintf("%x", sha256.Sum256(body))
		if got, err := do(p, &Request{Method: "POST", Target: "/", Body: body}); got != want || err != nil {
			t.Errorf("request %d with %d bytes: %q, %v", i, n, got, err)
		}
	}
	if n := up.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// The upstream closes a connection, or sends something on it, while it is idle. No request gets what came
// before it, and even a POST is answered.
func TestStaleConnectionsAreNotUsed(t *testing.T) {
	for _, unasked := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"} {
		done := make(chan bool)
		up, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
			for {
				if _, ok := up.next(r); !ok {
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
				if n == 1 {
					<-done
					fmt.Fprint(conn, unasked)
					if unasked == "" {
						conn.Close()
					}
					done <- true
				}
			}
		})
		for i := range 3 {
			got, err := do(p, &Request{Method: "POST", Target: "/", Body: []byte("x")})
			if got != "good" || err != nil {
				t.Errorf("%q, request %d: %q, %v", unasked, i, got, err)
			}
			if i == 0 {
				done <- true
				<-done
			}
		}
		if n := up.requests.Load(); n != 3 {
			t.Errorf("%q: the upstream got %d requests, want 3", unasked, n)
		}
	}
}

// An upstream closes a connection after it has read the second request.
func TestWhatIsSentAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		r     Request
		part  string // of an answer that the upstream sends before it closes
		again bool
	}{
		{"GET", Request{Method: "GET"}, "", true},
		{"HEAD", Request{Method: "HEAD"}, "", true},
		{"OPTIONS", Request{Method: "OPTIONS"}, "", true},
		{"POST", Request{Method: "POST"}, "", false},
		{"POST with a body", Request{Method: "POST", Body: []byte("x")}, "", false},
		{"PUT", Request{Method: "PUT"}, "", false},
		{"DELETE", Request{Method: "DELETE"}, "", false},
		{"a method that is not known", Request{Method: "SEARCH"}, "", false},
		{"a POST that may be repeated", Request{Method: "POST",
			Header: http.Header{"Idempotency-Key": {"1"}}}, "", true},
		{"GET, a byte of an answer came", Request{Method: "GET"}, "H", false},
		{"GET, half a head came", Request{Method: "GET"}, "HTTP/1.1 200 OK\r\n", false},
	} {
		up, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
			for i := 0; ; i++ {
				if _, ok := up.next(r); !ok {
					return
				}
				if n == 1 && i == 1 {
					fmt.Fprint(conn, test.part)
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		})
		test.r.Target = "/"
		if _, err := do(p, &Request{Method: "GET", Target: "/"}); err != nil {
			t.Fatal(err)
		}
		_, err := do(p, &test.r)
		if again := err == nil; again != test.again {
			t.Errorf("%s: %v", test.name, err)
		}
		if want := map[bool]int32{false: 2, true: 3}[test.again]; up.requests.Load() != want {
			t.Errorf("%s: the upstream got %d requests, want %d", test.name, up.requests.Load(), want)
		}
	}
}

func TestStop(t *testing.T) {
	errLeft := errors.New("the client has left")
	for _, test := range []struct {
		name string
		part string // of the answer, before the upstream hangs
	}{
		{"before the answer", ""},
		{"in the head", "HTTP/1.1 200 OK\r\nConte"},
		{"in the body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi"},
		{"in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi"},
		{"in a body without a length", "HTTP/1.1 200 OK\r\n\r\nhi"},
	} {
		sent := make(chan bool)
		_, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
			if _, ok := up.next(r); ok {
				fmt.Fprint(conn, test.part)
				sent <- true
				io.Copy(io.Discard, conn) // until the call is stopped
			}
		})
		c := p.Call()
		go func() {
			<-sent
			c.Stop(errLeft)
			c.Stop(io.EOF) // no effect
		}()
		resp, err := c.Do(&Request{Method: "GET", Target: "/"})
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err != errLeft {
			t.Errorf("%s: %v", test.name, err)
		}
		c.Release()
	}
	p := NewPool(Options{Host: "a", Timeout: time.Minute, IdleTime: time.Minute,
		Dial: func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}})
	c := p.Call()
	go c.Stop(errLeft)
	if _, err := c.Do(&Request{Method: "GET", Target: "/"}); err != errLeft {
		t.Errorf("while connecting: %v", err)
	}
	c.Release()
}

func TestHeadHasToComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		p := NewPool(Options{Host: "a", Timeout: time.Minute, IdleTime: 4 * time.Second,
			Dial: func(context.Context) (net.Conn, error) { return client, nil }})
		go func() {
			r := bufio.NewReader(server)
			http.ReadRequest(r)
			time.Sleep(59 * time.Second)
			fmt.Fprint(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
			time.Sleep(10 * time.Minute) // the body may take longer
			fmt.Fprint(server, "hi")
			http.ReadRequest(r)
		}()
		if got, err := do(p, &Request{Method: "GET", Target: "/"}); got != "hi" || err != nil {
			t.Errorf("a slow body: %q, %v", got, err)
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		_, err := do(p, &Request{Method: "GET", Target: "/"})
		if !isTimeout(err) || time.Since(began) != time.Minute {
			t.Errorf("no head: %v after %v", err, time.Since(began))
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 10)
		p := NewPool(Options{Host: "a", Timeout: time.Minute, IdleTime: 4 * time.Second, MaxIdle: 3,
			Dial: func(context.Context) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					began := time.Now()
					for r := bufio.NewReader(server); ; {
						if _, err := http.ReadRequest(r); err != nil {
							ended <- time.Since(began)
							return
						}
						fmt.Fprint(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
					}
				}()
				return client, nil
			}})
		var calls []*Call
		for range 5 {
			c := p.Call()
			resp, err := c.Do(&Request{Method: "GET", Target: "/"})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
			defer resp.Body.Close()
		}
		for _, c := range calls {
			io.ReadAll(c.response.Body)
			time.Sleep(900 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var all []time.Duration
		for range 5 {
			all = append(all, <-ended)
		}
		slices.Sort(all)
		if got := fmt.Sprint(all); got != "[2.7s 3.6s 4s 4.9s 5.8s]" {
			t.Errorf("connections were closed after %v", got)
		}
		if p.timer != nil || len(p.idle) > 0 {
			t.Error("the pool does not rest")
		}
	})
}

// Many requests at once, some of which are stopped, get their own answers.
func TestManyCalls(t *testing.T) {
	_, p := listen(t, func(up *upstream, n int, conn net.Conn, r *bufio.Reader) {
		for {
			req, ok := up.next(r)
			if !ok {
				return
			}
			text := strings.Repeat(req.URL.Path, 100)
			if len(req.URL.Path)%2 == 0 {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			} else {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(text), text)
			}
		}
	})
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for j := range 100 {
				path := fmt.Sprintf("/%d/%d", i, j*j)
				c := p.Call()
				var stopping sync.WaitGroup
				stops := j%7 == 3
				if stops {
					stopping.Go(func() { c.Stop(io.EOF) })
				}
				resp, err := c.Do(&Request{Method: "GET", Target: path})
				var body []byte
				if err == nil {
					body, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if err == nil && string(body) != strings.Repeat(path, 100) {
					t.Errorf("%s got %.40q", path, body)
				}
				if err != nil && !stops {
					t.Errorf("%s: %v", path, err)
				}
				stopping.Wait()
				c.Release()
			}
		})
	}
	all.Wait()
}

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http reports bytes that nobody asked for
	os.Exit(m.Run())
}
