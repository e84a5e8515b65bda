package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/fleets"
	"fairshare/httpguard"
	"fairshare/internal/inbound"
	"fairshare/internal/proxy"
	"fairshare/limittest"
	"fairshare/membans"
)

// wholeAnswers are what the upstream of TestWholeAnswersAreAsOthers sends for the paths /0, /1 and so on.
var wholeAnswers = []string{
	"HTTP/1.1 200 OK\r\nDate: Sat, 01 Jan 2022 00:00:00 GMT\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nDate: Sat, 01 Jan 2022 00:00:01 GMT\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhallo",
	"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a:  1 \r\nX-A: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d; Path=/\r\n\r\nno",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n",
	"HTTP/1.1 302 Found\r\nLocation: /0\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 404 Nowhere\r\nContent-Length: 4\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\nlost",
	"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nhelp",
	"HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 40\r\n\r\n",
	"HTTP/1.1 299 Own\r\nContent-Length: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n1",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend",
	"HTTP/1.1 200 OK\r\nFairshare-Visitor: member\r\nContent-Length: 6\r\nCache-Control: no-store\r\n\r\nmember",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: 1\n\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("abc", 1000),
	"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n" + strings.Repeat("abcdefghij", 3000),
	"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 3000) + "\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nno",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", // more than it says
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
}

// A wholeServer is a guard and a proxy, with the lane or without.
type wholeServer struct {
	addr  string
	mu    sync.Mutex
	ended []string // what Options.Passed and Options.Answered said

	inside sync.WaitGroup // requests in progress
}

// inParts hides that the lane takes whole answers.
type inParts struct{ http.ResponseWriter }

func (w inParts) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func newWholeServer(t *testing.T, upstream string, rules []fairshare.Rule, fast, hidden bool,
	wholes *atomic.Int64) *wholeServer {
	t.Helper()
	p := &fairshare.Policy{Rules: rules}
	guard, err := fairshare.NewGuard(p, limittest.NewModel(p.Limits()), membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	s := new(wholeServer)
	note := func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, text)
	}
	forward := proxy.New(proxy.Config{Upstream: mustParse(t, upstream)})
	opts := httpguard.Options{Now: func() time.Time { return time.Unix(1e9, 0) }, HandlerAwaits: true, Reuse: true,
		ReferenceKey: []byte("key"), Fleets: fleets.New(fleets.Options{}), Browser: new(browser.Watcher),
		Passed: func(c *httpguard.Completion) {
			note(fmt.Sprint("passed ", c.Method, c.Path, c.Status, c.Bytes, c.Addr))
		},
		Answered: func(a *httpguard.Access) { note(fmt.Sprint("answered ", a.Status, a.Bytes, a.Action)) }}
	h := httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpguard.AwaitsWhole(w) {
			wholes.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = inner.Addr().String()
	l := inbound.New(inner, inbound.Config{Connections: 100, PerAddr: 100})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.inside.Add(1)
		defer s.inside.Done()
		if hidden {
			w = inParts{w}
		}
		h.ServeHTTP(w, r)
	})}
	l.Attach(srv)
	outer := net.Listener(l)
	if fast {
		outer = l.NewLane(l, srv)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(outer)
	}()
	t.Cleanup(func() {
		srv.Close()
		if lane, ok := outer.(*inbound.Lane); ok {
			lane.CloseAll()
			lane.Wait(context.Background())
		}
		<-done
		forward.Close()
	})
	return s
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := proxy.ParseUpstream(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// answersTo sends requests on one connection, and returns the answers.
func (s *wholeServer) answersTo(t *testing.T, requests []string) (answers []string) {
	t.Helper()
	conn, r := net.Conn(nil), (*bufio.Reader)(nil)
	for _, request := range requests {
		if conn == nil {
			var err error
			if conn, err = net.Dial("tcp", s.addr); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			r = bufio.NewReader(conn)
		}
		method, _, _ := strings.Cut(request, " ")
		io.WriteString(conn, request)
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		for err == nil && resp.StatusCode < 200 {
			answers = append(answers, fmt.Sprint(resp.StatusCode, resp.Header))
			resp, err = http.ReadResponse(r, &http.Request{Method: method})
		}
		if err != nil {
			answers = append(answers, "no answer")
			conn = nil
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if _, dated := resp.Header["Date"]; !dated {
			t.Errorf("%q: an answer without Date", request)
		}
		if !strings.HasPrefix(resp.Header.Get("Date"), "Sat, 01 Jan 2022") {
			delete(resp.Header, "Date") // it is the server's own
		}
		if resp.Trailer == nil && string(body) == "abc" { // of chunks: the length is known if all of it came at once
			resp.ContentLength, resp.TransferEncoding = -1, nil
			delete(resp.Header, "Content-Length")
		}
		answers = append(answers, fmt.Sprintf("%s %d %v %v %v %q %v", resp.Status, resp.ContentLength,
			resp.TransferEncoding, resp.Header, resp.Trailer, body, err != nil))
		if resp.Close || err != nil {
			conn = nil
		}
	}
	return answers
}

// Whole answers look as others to the client, count as others, and are reported as others.
func TestWholeAnswersAreAsOthers(t *testing.T) {
	upstream := upstreamOf(t, func(conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			request, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, request.Body)
			answer := ""
			for i, one := range wholeAnswers {
				if request.URL.Path == fmt.Sprint("/", i) {
					answer = one
				}
			}
			if request.Method == "HEAD" { // without the body
				final := strings.LastIndex(answer, "HTTP/1.1")
				answer = answer[:final+strings.Index(answer[final:], "\r\n\r\n")+4]
			}
			io.WriteString(conn, answer)
			if strings.HasSuffix(answer, "until the end") || strings.Contains(answer, "Connection: close") {
				return
			}
		}
	})
	var redirects fairshare.StatusSet
	redirects.Add(300, 399)
	rules := func(n int64) []fairshare.Rule {
		return []fairshare.Rule{
			{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: n, Window: time.Hour}},
			{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 3000 * n, Window: time.Hour}},
			{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 3}},
			{Name: "refunded", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3 * n, Window: time.Hour},
				Refund: redirects},
		}
	}
	var requests []string
	for _, head := range []string{"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%d HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\n\r\n",
		"HEAD /%d HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"GET /%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	} {
		for i := range wholeAnswers {
			requests = append(requests, fmt.Sprintf(head, i), fmt.Sprintf(head, i))
		}
	}
	for _, n := range []int64{1000, 9, 2} {
		var wholes [3]atomic.Int64
		var want, wantEnded []string
		for i, kind := range []struct{ fast, hidden bool }{{false, false}, {true, true}, {true, false}} {
			s := newWholeServer(t, upstream, rules(n), kind.fast, kind.hidden, &wholes[i])
			got := s.answersTo(t, requests)
			s.inside.Wait() // a client has its answer before the report
			s.mu.Lock()
			ended := slices.Sorted(slices.Values(s.ended))
			s.mu.Unlock()
			if i == 0 {
				want, wantEnded = got, ended
				continue
			}
			if len(got) != len(want) {
				t.Fatalf("%d answers, without the lane %d", len(got), len(want))
			}
			for j := range got {
				if got[j] != want[j] {
					t.Errorf("answer %d, of N %d, fast %v, hidden %v:\n%s\nwithout the lane\n%s", j, n, kind.fast, kind.hidden,
						got[j], want[j])
				}
			}
			if !slices.Equal(ended, wantEnded) {
				for j := range min(len(ended), len(wantEnded)) {
					if ended[j] != wantEnded[j] {
						t.Errorf("report %d: %s, without the lane %s", j, ended[j], wantEnded[j])
					}
				}
				t.Errorf("%d reports, without the lane %d", len(ended), len(wantEnded))
			}
		}
		if wholes[0].Load() != 0 || wholes[1].Load() != 0 || wholes[2].Load() == 0 {
			t.Errorf("whole answers were awaited %d, %d, %d times", wholes[0].Load(), wholes[1].Load(),
				wholes[2].Load())
		}
	}
}
