package serve

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Requests of many connections wait for few turns, get answers of all kinds, and some of their clients leave. The
// memory of each request is used for others. Nothing of one appears in another, neither at the site nor in an answer.
func TestRequestsAreNotMixedUp(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		id, kind, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if got := r.Header.Values("X-Id"); len(got) != 1 || got[0] != id || r.UserAgent() != "agent "+id ||
			(r.Header.Get("X-Odd") != "") != (kind == "odd") {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "%s got the header %v", r.URL.Path, r.Header)
			return
		}
		body, _ := io.ReadAll(r.Body)
		text := id + string(body)
		w.Header().Set("X-Id", id)
		switch kind {
		case "long":
			text = strings.Repeat(id+"\n", 20_000)
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		case "slow":
			time.Sleep(5 * time.Millisecond)
			w.(http.Flusher).Flush()
		case "odd":
			w.Header().Set("X-Odd", id)
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(site.Close)
	s := startServer(t, fmt.Sprintf(`
upstream: %s
share: {capacity: 3}
rules:
  - {name: no, match: {path: /refused}, limit: {requests: 1, per: 1h}}
  - {name: all, limit: {requests: 1000000, per: 1m}}
`, site.URL), nil)
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	var clients sync.WaitGroup
	for c := range 24 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			var conn net.Conn
			var answers *bufio.Reader
			for i := range rounds {
				if conn == nil {
					var err error
					if conn, err = net.Dial("tcp", s.listener.Addr().String()); err != nil {
						t.Error(err)
						return
					}
					answers = bufio.NewReader(conn)
				}
				kind := []string{"plain", "plain", "long", "slow", "odd", "post", "leave", "refused"}[rng.IntN(8)]
				id := fmt.Sprintf("%d-%d", c, i)
				target, method, more, body := "/"+id+"/"+kind, "GET", "", ""
				switch kind {
				case "refused":
					target = "/refused"
				case "odd":
					more = "X-Odd: " + id + "\r\n"
				case "post":
					method, body = "POST", "body of "+id
					more = fmt.Sprintf("Content-Length: %d\r\n", len(body))
				}
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\nX-Id: %s\r\nUser-Agent: agent %s\r\n%s\r\n%s", method, target,
					id, id, more, body)
				if kind == "leave" {
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
					conn.Close()
					conn = nil
					continue
				}
				resp, err := http.ReadResponse(answers, &http.Request{Method: method})
				if err != nil {
					t.Errorf("%s: %v", target, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				want := id + body
				if kind == "long" {
					want = strings.Repeat(id+"\n", 20_000)
				}
				switch {
				case err != nil:
					t.Errorf("%s: %v", target, err)
				case kind == "refused":
					if resp.StatusCode == http.StatusOK || resp.Header.Get("X-Odd") != "" {
						t.Errorf("%s: %d %v %.100q", target, resp.StatusCode, resp.Header, got)
					}
				case resp.StatusCode != http.StatusOK || string(got) != want || resp.Header.Get("X-Id") != id ||
					(resp.Header.Get("X-Odd") != "") != (kind == "odd"):
					t.Errorf("%s: %d %v %.100q", target, resp.StatusCode, resp.Header, got)
				}
			}
			if conn != nil {
				conn.Close()
			}
		})
	}
	clients.Wait()
	if n := reached.Load(); n < int64(8*rounds) {
		t.Errorf("only %d requests reached the site", n)
	}
}
