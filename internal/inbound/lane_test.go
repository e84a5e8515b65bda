package inbound

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// requests are beginnings of connections, simple ones and others. Their lines end in "\n", "\\n" is a bare one.
var requests = []string{
	"GET / HTTP/1.1\nHost: a\n\n",
	"GET /a%20b?c=d&e=%zz HTTP/1.1\nHost: a.example:8080\nUser-Agent: one\nuser-agent: two\naccept:*/*\nX-A: b \t\nX-a:c\n\n",
	"HEAD / HTTP/1.1\nHost: a\n\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhel",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
	"POST / HTTP/1.1\nHost: a\n\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi\nGET /next HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
	"GET / HTTP/1.1\nHost: a\nConnection: close\n\n",
	"GET / HTTP/1.1\nHost: a\nConnection: Keep-Alive\n\n",
	"GET / HTTP/1.1\nHost: a\nConnection: close, x\n\n",
	"GET / HTTP/1.1\nHost: a\nPragma: no-cache\n\n",
	"GET / HTTP/1.1\nHost: a\nPragma: no-cache\nCache-Control: max-age=0\n\n",
	"OPTIONS * HTTP/1.1\nHost: a\n\n",
	"BREW /pot HTTP/1.1\nHost: a\n\n",
	"GET //a//b HTTP/1.1\nHost: a\n\n",
	"GET /a#b HTTP/1.1\nHost: a\n\n",
	"GET /[a]{b}|\\^\"<>` HTTP/1.1\nHost: a\n\n",
	"GET /%zz HTTP/1.1\nHost: a\n\n",
	"GET /\xc3\xa4 HTTP/1.1\nHost: a\n\n",
	"GET http://b/c HTTP/1.1\nHost: a\n\n",
	"GET a HTTP/1.1\nHost: a\n\n",
	"CONNECT a:443 HTTP/1.1\nHost: a\n\n",
	"CONNECT /a HTTP/1.1\nHost: a\n\n",
	"TRACE / HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.0\n\n",
	"GET / HTTP/1.0\nHost: a\nConnection: keep-alive\n\n",
	"GET / HTTP/1.2\nHost: a\n\n",
	"GET / HTTP/2.0\nHost: a\n\n",
	"GET / http/1.1\nHost: a\n\n",
	"GET /\nHost: a\n\n",
	"GET  / HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.1 \nHost: a\n\n",
	"GET /\tb HTTP/1.1\nHost: a\n\n",
	" GET / HTTP/1.1\nHost: a\n\n",
	"\nGET / HTTP/1.1\nHost: a\n\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi\n\nGET /next HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.1\n\n",
	"GET / HTTP/1.1\nHost:\n\n",
	"GET / HTTP/1.1\nHost: a\nHost: a\n\n",
	"GET / HTTP/1.1\nHost: a/b\n\n",
	"GET / HTTP/1.1\nHost: a b\n\n",
	"GET / HTTP/1.1\nHost: [::1]:80\n\n",
	"GET / HTTP/1.1\nHost: a@b\n\n",
	"GET / HTTP/1.1\\nHost: a\\n\\n",
	"GET / HTTP/1.1\nHost: a\\nX: y\n\n",
	"GET / HTTP/1.1\nHost: a\nX: y\rz\n\n",
	"GET / HTTP/1.1\nHost: a\nX: y\x00z\n\n",
	"GET / HTTP/1.1\nHost: a\nX: y\x7fz\n\n",
	"GET / HTTP/1.1\nHost: a\nX: \xff\n\n",
	"GET / HTTP/1.1\nHost: a\nX : y\n\n",
	"GET / HTTP/1.1\nHost: a\n X: y\n\n",
	"GET / HTTP/1.1\n X: y\nHost: a\n\n",
	"GET / HTTP/1.1\nHost: a\nX: y\n z\n\n",
	"GET / HTTP/1.1\nHost: a\nX\n\n",
	"GET / HTTP/1.1\nHost: a\n: y\n\n",
	"GET / HTTP/1.1\nHost: a\nX(: y\n\n",
	"GET / HTTP/1.1\nHost: a\nX\xc3\xa4: y\n\n",
	"GET / HTTP/1.1\nHost: a\nHo\x00st: b\n\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Length: 5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5\nContent-Length: 6\n\nhello!",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5, 5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: +5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 0x5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 00005\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: -5\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: \n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 99999999999999999999\n\nhello",
	"POST / HTTP/1.1\nHost: a\nContent_Length: 5\n\nGET /next HTTP/1.1\nHost: a\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nContent-Length: 3\n\n5\nhello\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding: xchunked\n\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding : chunked\n\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nTransfer-Encoding:\x0bchunked\n\n0\n\n",
	"POST / HTTP/1.1\nHost: a\nContent-Length: 5\nTransfer_Encoding: chunked\n\nhello",
	"POST / HTTP/1.1\nHost: a\nTrailer: X\nTransfer-Encoding: chunked\n\n0\nX: y\n\n",
	"POST / HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 5\n\nhello",
	"GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n\n",
	"GET / HTTP/1.1\nHost: a\nUpgrade: h2c\nHTTP2-Settings: AA\nConnection: Upgrade, HTTP2-Settings\n\n",
	"PRI * HTTP/2.0\n\nSM\n\n",
	"GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: b\nUser-Agent: x\n\nGET /3 HTTP/1.1\nHost: b\nUser-Agent: x\n\n",
	"GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: a\nExpect: x\n\nGET /3 HTTP/1.1\nHost: a\n\n",
	"GET /1 HTTP/1.1\nHost: a\n\nnonsense\n\n",
	"GET /1 HTTP/1.1\nhost: a\nX: y\nx: z\n\nHEAD /longer HTTP/1.1\nhost: a\nX: y\nx: z\n\n" +
		"GET / HTTP/1.1\nhost: a\nX: y\nx: w\n\n",
	"GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: a\nX: y\n\nGET /3 HTTP/1.1\nHost: a\n\n",
	"GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.0\nHost: a\n\nGET /3 HTTP/1.1\nHost: a\n\n",
	"POST /1 HTTP/1.1\nHost: a\nContent-Length: 2\n\nhiPOST /2 HTTP/1.1\nHost: a\nContent-Length: 2\n\nho" +
		"POST /3 HTTP/1.1\nHost: a\nContent-Length: 2\n\nh",
	"GET /1 HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: a",
	"GET / HTTP/1.1\nHost: a\nX: " + strings.Repeat("x", 3000) + "\n\n",
	"GET / HTTP/1.1\nHost: a\nX: " + strings.Repeat("x", 9000) + "\n\n",
	"GET / HTTP/1.1\nHost: a\nX: " + strings.Repeat("x", 70_000) + "\n\n",
	"GET / HTTP/1.1\nHost: a\n" + strings.Repeat("X: y\n", 70) + "\n",
	"GET /" + strings.Repeat("x", 7000) + " HTTP/1.1\nHost: a\n\nGET /2 HTTP/1.1\nHost: a\n\n",
	"0 / HTTP/1.1\nHost:0\nContent-Length:5\n\n000000",
	"GET / HTTP/1.1\nHost: a\n\nGET",
	"GET / HTTP/1.1\nHost: a\n\nGET /",
	"GET / HTTP/1.1\nHost: a\n\n0\\n",
	"POST / HTTP/1.1\nHost:0\nContent-Length:2\n\n00\r000",
	"GET / HTT",
	"\x16\x03\x01\x00\x05hello",
	"",
}

func rawRequest(text string) string {
	text = strings.ReplaceAll(text, `\n`, "\x01")
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\r\n"), "\x01", "\n")
}

// A lanePair is two servers with the same handler: one has a lane.
type lanePair struct {
	t     testing.TB
	tls   *tls.Config // of the client; nil: without TLS
	stays bool        // the client waits until the server closes the connection
	addr  [2]string
	mu    sync.Mutex
	seen  [2][]string // what the handler got
	fast  atomic.Int64
	close func()

	fastOnes func(*http.Request) // is called for requests that take the lane, if it is not nil; guarded by mu
}

// seenRequest is all that a handler can see of a request, except what differs by connection.
func seenRequest(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	u := *r.URL
	u.User = nil
	secure := ""
	if r.TLS != nil {
		secure = fmt.Sprint(r.TLS.HandshakeComplete, r.TLS.ServerName, r.TLS.NegotiatedProtocol, r.TLS.Version,
			len(r.TLS.PeerCertificates))
	}
	return fmt.Sprintf("%s %s %#v %v %q %v %q %d %v %v %v %v %q %v", r.Method, r.RequestURI, u, r.URL.User,
		r.Host, r.Header, r.Proto, r.ContentLength, r.TransferEncoding, r.Close, r.Trailer, secure, body, err)
}

func newLanePair(t testing.TB, answer http.HandlerFunc) *lanePair {
	return newTLSLanePair(t, nil, answer)
}

// newTLSLanePair returns servers with TLS, unless config is nil.
func newTLSLanePair(t testing.TB, config *tls.Config, answer http.HandlerFunc) *lanePair {
	p := &lanePair{t: t}
	if config != nil {
		p.tls = &tls.Config{InsecureSkipVerify: true, ServerName: "one.example"}
	}
	var closers []func()
	for i := range p.addr {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.addr[i] = inner.Addr().String()
		l := New(inner, Config{Connections: 10_000, PerAddr: 10_000})
		srv := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
			ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true, TLSConfig: config.Clone(),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, fast := w.(*fastAnswer); fast {
					p.fast.Add(1)
					p.mu.Lock()
					fastOnes := p.fastOnes
					p.mu.Unlock()
					if fastOnes != nil {
						body, _ := io.ReadAll(r.Body)
						r.Body = io.NopCloser(bytes.NewReader(body))
						fastOnes(r)
						r.Body = io.NopCloser(bytes.NewReader(body))
					}
				}
				seen := seenRequest(r)
				p.mu.Lock()
				p.seen[i] = append(p.seen[i], seen)
				p.mu.Unlock()
				answer(w, r)
			})}
		l.Attach(srv)
		outer := net.Listener(l)
		var lane *Lane
		if i == 0 {
			lane = l.NewLane(l, srv)
			outer = lane
		}
		done := make(chan error, 1)
		go func() {
			if i == 1 && config != nil {
				done <- srv.ServeTLS(outer, "", "")
			} else {
				done <- srv.Serve(outer)
			}
		}()
		closers = append(closers, func() {
			srv.Close()
			if lane != nil {
				lane.CloseAll()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if err := lane.Wait(ctx); err != nil {
					t.Errorf("the lane does not end: %v", err)
				}
			}
			<-done
		})
	}
	p.close = func() {
		for _, c := range closers {
			c()
		}
	}
	t.Cleanup(p.close)
	return p
}

// dial connects to one of the servers.
func (p *lanePair) dial(i int) net.Conn {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr[i])
	if err != nil {
		p.t.Fatal(err)
	}
	if p.tls == nil {
		return conn
	}
	secure := tls.Client(conn, p.tls)
	if err := secure.Handshake(); err != nil {
		p.t.Fatal(err)
	}
	return secure
}

// send sends bytes in pieces, closes the sending side, and returns all answers.
func (p *lanePair) send(i int, raw string, piece int) []byte {
	conn := p.dial(i)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		for part := range slices.Chunk([]byte(raw), piece) {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
		if !p.stays {
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}
	}()
	all, _ := io.ReadAll(conn) // an error if the server resets the connection
	return all
}

// sameAnswers describes answers so that those of both lanes can be compared.
func sameAnswers(all []byte, methods []string) string {
	var b strings.Builder
	r := bufio.NewReader(bytes.NewReader(all))
	for i := 0; ; i++ {
		req := &http.Request{Method: "GET"}
		if i < len(methods) {
			req.Method = methods[i]
		}
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			rest, _ := io.ReadAll(r)
			fmt.Fprintf(&b, "rest %q", rest)
			return b.String()
		}
		body, err := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		fmt.Fprintf(&b, "%s %s %v %d %v %q %v %v %v\n", resp.Proto, resp.Status, resp.Header, resp.ContentLength,
			resp.TransferEncoding, body, err, resp.Trailer, resp.Close)
		if resp.StatusCode >= 100 && resp.StatusCode < 200 {
			methods = slices.Insert(slices.Clone(methods), i, "")
		}
	}
}

func (p *lanePair) compare(raw string, piece int) {
	p.t.Helper()
	p.mu.Lock()
	p.seen = [2][]string{}
	p.mu.Unlock()
	var answers [2][]byte
	for i := range answers {
		answers[i] = p.send(i, raw, piece)
	}
	p.mu.Lock()
	seen := p.seen
	p.mu.Unlock()
	if !reflect.DeepEqual(seen[0], seen[1]) {
		p.t.Errorf("%.300q in pieces of %d: the handler got\n%q\nwithout the lane\n%q", raw, piece, seen[0], seen[1])
		return
	}
	var methods []string
	for _, s := range seen[0] {
		method, _, _ := strings.Cut(s, " ")
		methods = append(methods, method)
	}
	got, want := sameAnswers(answers[0], methods), sameAnswers(answers[1], methods)
	if got != want && !(len(answers[1]) == 0 && len(seen[0]) == 0) {
		p.t.Errorf("%.300q in pieces of %d: answers\n%s\nwithout the lane\n%s", raw, piece, got, want)
	}
}

// echo answers with what the handler got.
func echo(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI) }

// The handler gets the same requests in both lanes, and the client the same answers.
func TestLanesGetTheSameRequests(t *testing.T) {
	p := newLanePair(t, echo)
	for _, text := range requests {
		for _, piece := range []int{1 << 20, 11} {
			p.compare(rawRequest(text), piece)
		}
	}
	if p.fast.Load() < 30 {
		t.Errorf("only %d requests took the lane", p.fast.Load())
	}
}

func FuzzLanes(f *testing.F) {
	for i, text := range requests {
		if len(text) < 10_000 {
			f.Add(rawRequest(text), 1+i%50)
		}
	}
	p := newLanePair(f, echo)
	f.Fuzz(func(t *testing.T, raw string, piece int) {
		if len(raw) > 20_000 || strings.Contains(raw, "HTTP/2") {
			return
		}
		p.t = t
		p.compare(raw, 1+int(uint(piece)%1000))
	})
}

// answerWhole writes an answer at once in the lane, and in the ordinary way elsewhere.
func answerWhole(w http.ResponseWriter, status int, fields, body string) {
	if a, ok := w.(*fastAnswer); ok {
		lines := ""
		if status != http.StatusNoContent {
			lines = fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
		if a.WriteAnswer(status, []byte(fields+lines), []byte(body), strings.Contains(fields, "Date: ")) {
			a.Reuse()
			return
		}
	}
	for line := range strings.Lines(fields) {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Set(name, strings.TrimSpace(value))
	}
	if status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// A request that uses the memory of earlier ones shows nothing of them, and the texts of those stay.
func TestLaneUsesMemoryAgain(t *testing.T) {
	var mu sync.Mutex
	var kept, copies []string
	seen := map[*http.Request]bool{} // the pool may drop any of them
	used := 0
	p := newLanePair(t, func(w http.ResponseWriter, r *http.Request) {
		if _, fast := w.(*fastAnswer); fast {
			mu.Lock()
			if seen[r] {
				used++
			}
			seen[r] = true
			for _, text := range append([]string{r.Method, r.Host, r.RequestURI, r.URL.Path}, r.Header["X"]...) {
				kept, copies = append(kept, text), append(copies, strings.Clone(text))
			}
			mu.Unlock()
			r.Header["X-Of-Another"], r.Form, r.Pattern = []string{"a"}, url.Values{"a": {"b"}}, "/"
			r.SetPathValue("a", "b")
		}
		answerWhole(w, 429, "Content-Type: text/plain\r\n", r.Method+" "+r.RequestURI)
	})
	for range 3 {
		for _, text := range requests {
			p.compare(rawRequest(text), 1<<20)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(kept, copies) {
		t.Error("texts that were kept have changed")
	}
	if used == 0 {
		t.Error("no memory was used again")
	}
}

// Without Reuse, and if something waits for the end of the context, the memory of a request is left alone.
func TestLaneLeavesMemoryAlone(t *testing.T) {
	var mu sync.Mutex
	var kept []*http.Request
	var paths []string
	p := newLanePair(t, func(w http.ResponseWriter, r *http.Request) {
		if a, fast := w.(*fastAnswer); fast {
			mu.Lock()
			kept, paths = append(kept, r), append(paths, r.RequestURI)
			mu.Unlock()
			switch r.URL.Path {
			case "/waited":
				context.AfterFunc(r.Context(), func() {})
				a.Reuse()
			case "/done":
				r.Context().Done()
				a.Reuse()
			case "/body":
				a.Reuse()
			}
		}
		echo(w, r)
	})
	for i := range 20 {
		for _, one := range []string{"GET /plain?%d HTTP/1.1\nHost: a\n\n", "GET /waited?%d HTTP/1.1\nHost: a\n\n",
			"GET /done?%d HTTP/1.1\nHost: a\n\n", "POST /body?%d HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi"} {
			p.compare(rawRequest(fmt.Sprintf(one, i)), 1<<20)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, r := range kept {
		if r.RequestURI != paths[i] || r.URL.Path == "" || r.Header == nil {
			t.Errorf("request %d was %s and is %s", i, paths[i], r.RequestURI)
		}
	}
}

// answers of handlers, in the ways in which they can be written.
var laneAnswers = map[string]http.HandlerFunc{
	"nothing": func(w http.ResponseWriter, r *http.Request) {},
	"whole": func(w http.ResponseWriter, r *http.Request) {
		answerWhole(w, 429, "Content-Type: text/x\r\nRetry-After: 7\r\n", "hello")
	},
	"whole without a body": func(w http.ResponseWriter, r *http.Request) { answerWhole(w, 303, "Location: /\r\n", "") },
	"whole 204":            func(w http.ResponseWriter, r *http.Request) { answerWhole(w, 204, "X-A: b\r\n", "") },
	"whole after fields": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		answerWhole(w, 429, "Content-Type: text/x\r\n", "hello")
	},
	"whole, long": func(w http.ResponseWriter, r *http.Request) {
		answerWhole(w, 429, "Content-Type: text/x\r\n", strings.Repeat("x", 20_000))
	},
	"more than whole": func(w http.ResponseWriter, r *http.Request) {
		answerWhole(w, 429, "Content-Type: text/x\r\n", "hello")
		if _, err := io.WriteString(w, "!"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
		w.WriteHeader(500)
		w.(http.Flusher).Flush()
	},
	"status":    func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) },
	"204":       func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) },
	"unknown":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(599) },
	"short":     func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") },
	"html":      func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html><body>") },
	"two parts": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "he"); io.WriteString(w, "llo") },
	"304": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("ETag", "a")
		w.WriteHeader(304)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	},
	"204 with a length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(204)
	},
	"fields": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-A"] = []string{"b", " c ", "d\r\ne: f"}
		w.Header()["Bad Name"] = []string{"x"}
		w.Header()["Set-Cookie"] = []string{"a=b", "c=d"}
		w.Header()["Content-Type"] = nil
		w.Header().Set("Date", "never")
		io.WriteString(w, "hello")
		w.Header().Set("X-Late", "1")
	},
	"late fields": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.Header().Set("X-Late", "1")
		io.WriteString(w, "hello")
	},
	"encoded": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "hello")
	},
	"length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
	},
	"too short": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		io.WriteString(w, "hello")
	},
	"too long": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		if _, err := io.WriteString(w, "hello"); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, "!"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	},
	"exactly counted": func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte("x"), 2048)) },
	"just chunked":    func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte("x"), 2049)) },
	"long":            func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte("x"), 300_000)) },
	"long, typed": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/x")
		w.Header().Set("Content-Length", "300000")
		for range 3000 {
			w.Write(bytes.Repeat([]byte("x"), 100))
		}
	},
	"large fields": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", strings.Repeat("a", 30_000))
		w.Write(bytes.Repeat([]byte("x"), 1000))
	},
	"flushed": func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		io.WriteString(w, "he")
		w.(http.Flusher).Flush()
		w.(http.Flusher).Flush()
		io.WriteString(w, "llo")
	},
	"written, then flushed": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "he")
		w.(http.Flusher).Flush()
	},
	"close": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "hello")
	},
	"close and more": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "x, close")
		io.WriteString(w, "hello")
	},
	"hints": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		w.WriteHeader(103)
		w.Header().Set("X-A", "b")
		io.WriteString(w, "hello")
	},
	"trailers": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Late")
		io.WriteString(w, "hello")
		w.Header().Set("X-Late", "1")
		w.Header().Set(http.TrailerPrefix+"X-More", "2")
	},
	"unannounced trailers": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-More", "2")
	},
	"panic": func(w http.ResponseWriter, r *http.Request) { panic("oh") },
	"late panic": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "50")
		w.Header().Set("Content-Type", "text/x")
		io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"panic in chunks": func(w http.ResponseWriter, r *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), 10_000))
		panic(http.ErrAbortHandler)
	},
	"a file": func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), strings.NewReader(strings.Repeat("x", 50_000)))
	},
	"twice": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		w.WriteHeader(404)
		io.WriteString(w, "hello")
	},
}

// Handlers that write in all possible ways give the same answers in both lanes.
func TestLanesGiveTheSameAnswers(t *testing.T) {
	p := newLanePair(t, func(w http.ResponseWriter, r *http.Request) {
		laneAnswers[strings.ReplaceAll(r.URL.Path[1:], "_", " ")](w, r)
	})
	for name := range laneAnswers {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			target := "/" + strings.ReplaceAll(name, " ", "_")
			one := method + " " + target + " HTTP/1.1\r\nHost: a\r\n"
			p.compare(one+"\r\n"+one+"Connection: close\r\n\r\n"+one+"\r\n", 1<<20)
		}
	}
}

// Both lanes get the same of ambiguous requests, as attackers send them: see testdata/README.md.
// FAIRSHARE_REQUESTS may name a larger file in the same form.
func TestLanesGetTheSameOfAmbiguousRequests(t *testing.T) {
	p := newLanePair(t, echo)
	for _, raw := range ambiguousRequests(t) {
		p.compare(raw, 1<<20)
	}
}

func ambiguousRequests(t *testing.T) (texts []string) {
	data, err := os.ReadFile(cmp.Or(os.Getenv("FAIRSHARE_REQUESTS"), "testdata/requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var request struct{ Raw string }
		if err := json.Unmarshal(line, &request); err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, 0, len(request.Raw))
		for _, r := range request.Raw {
			raw = append(raw, byte(r))
		}
		texts = append(texts, string(raw))
	}
	if len(texts) < 200 {
		t.Errorf("only %d requests", len(texts))
	}
	return texts
}

// A client that leaves while its request is in progress ends the context of the request, and the next request that was
// read meanwhile is not lost.
func TestLaneNoticesThatAClientLeaves(t *testing.T) {
	for _, how := range []string{"Done", "AfterFunc", "context.AfterFunc"} {
		ended, began := make(chan bool, 1), make(chan bool, 1)
		p := newLanePair(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/wait" {
				echo(w, r)
				return
			}
			left := make(chan bool)
			began <- true
			switch how {
			case "Done":
				<-r.Context().Done()
			case "AfterFunc":
				r.Context().(interface{ AfterFunc(func()) func() bool }).AfterFunc(func() { close(left) })
				<-left
			default:
				stop := context.AfterFunc(r.Context(), func() { panic("it was stopped") })
				if !stop() {
					t.Error("stop returned false")
				}
				context.AfterFunc(r.Context(), func() { close(left) })
				<-left
			}
			ended <- r.Context().Err() == context.Canceled
		})
		conn, err := net.Dial("tcp", p.addr[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
		<-began
		conn.Close()
		if !<-ended {
			t.Errorf("%s: the context has no error", how)
		}
		if p.fast.Load() != 2 {
			t.Errorf("%s: %d requests took the lane", how, p.fast.Load())
		}
	}
}

// A client that leaves is noticed even if it has sent more than its request, together with it or later.
func TestLaneNoticesThatAClientLeavesAfterSendingMore(t *testing.T) {
	if !canSeeHangups {
		t.Skip("this system does not show it")
	}
	for _, later := range []bool{false, true} {
		began, ended := make(chan bool, 1), make(chan error, 1)
		p := newLanePair(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/wait" {
				return // the next request is answered, but nobody reads that
			}
			began <- true
			select {
			case <-r.Context().Done():
				ended <- nil
			case <-time.After(10 * time.Second):
				ended <- errors.New("the context of the request did not end")
			}
		})
		conn, err := net.Dial("tcp", p.addr[0])
		if err != nil {
			t.Fatal(err)
		}
		const wait, more = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", "GET /more HTTP/1.1\r\nHost: a\r\n\r\nG"
		if later {
			io.WriteString(conn, wait)
			<-began
			time.Sleep(3 * watchAfter) // it is watched
			io.WriteString(conn, more)
			time.Sleep(watchAfter)
		} else {
			io.WriteString(conn, wait+more)
			<-began
		}
		conn.Close()
		if err := <-ended; err != nil {
			t.Errorf("more came later: %v: %v", later, err)
		}
	}
}

// A connection that another one replaces ends the context of its request, in both lanes.
func TestReplacedConnectionEndsItsRequest(t *testing.T) {
	for _, fast := range []bool{true, false} {
		inner, err := Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := New(inner, Config{Connections: 8, PerAddr: 2})
		began, ended := make(chan bool), make(chan bool, 2)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began <- true
			select {
			case <-r.Context().Done():
				ended <- true
			case <-time.After(10 * time.Second):
				ended <- false
			}
		})}
		l.Attach(srv)
		lane := l.NewLane(l, srv)
		lane.Use(fast)
		go srv.Serve(lane)
		dial := func(from string) net.Conn {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Skip(err) // some systems have only 127.0.0.1
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		for range 2 {
			io.WriteString(dial("127.0.0.1"), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			<-began
		}
		time.Sleep(3 * watchAfter) // they are watched
		for i := range 7 {
			dial(fmt.Sprintf("127.0.0.%d", i+2))
		}
		if !<-ended {
			t.Errorf("in the lane: %v: the context of the request did not end", fast)
		}
		srv.Close()
		lane.CloseAll()
	}
}

// A request that comes while another one is in progress is answered after it.
func TestLaneAnswersAPipelinedRequestAfterALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newPipes()
		l := New(in, Config{})
		srv := &http.Server{IdleTimeout: time.Minute, ReadHeaderTimeout: 10 * time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				echo(w, r)
			})}
		l.Attach(srv)
		lane := l.NewLane(l, srv)
		go srv.Serve(lane)
		c := in.dial("192.0.2.1")
		r := bufio.NewReader(c)
		go func() {
			for i := range 3 {
				fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
				time.Sleep(500 * time.Millisecond)
			}
		}()
		for i := range 3 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(resp.Body); string(body) != fmt.Sprintf("GET /%d", i) {
				t.Errorf("answer %d: %q", i, body)
			}
		}
		time.Sleep(59 * time.Second) // a second less than the idle timeout
		fmt.Fprint(c, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(r, nil); err == nil {
			t.Log("still open, as it may be")
		}
		c.Close()
		srv.Close()
		lane.CloseAll()
		synctest.Wait()
	})
}

// Shutdown waits for requests in the lane, and closes its idle connections.
func TestLaneWaitsForRequests(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(inner, Config{})
	began, goOn := make(chan bool), make(chan bool)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- true
			<-goOn
		}
		echo(w, r)
	})}
	l.Attach(srv)
	lane := l.NewLane(l, srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lane) }()
	var idle, active net.Conn
	for _, c := range []*net.Conn{&idle, &active} {
		if *c, err = net.Dial("tcp", inner.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer (*c).Close()
	}
	fmt.Fprint(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(active, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
	<-began
	ended := make(chan error, 1)
	go func() {
		l.Drain(context.Background())
		err := srv.Shutdown(context.Background())
		ended <- errors.Join(err, lane.Wait(context.Background()))
	}()
	if _, err := io.Copy(io.Discard, idle); err != nil { // it is closed
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Errorf("it did not wait: %v", err)
	default:
	}
	goOn <- true
	resp, err := http.ReadResponse(bufio.NewReader(active), nil)
	if err != nil || !resp.Close {
		t.Errorf("%+v, %v", resp, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

func BenchmarkLanes(b *testing.B) {
	p := newLanePair(b, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	for i, name := range []string{"lane", "net/http"} {
		b.Run(name, func(b *testing.B) {
			conn, err := net.Dial("tcp", p.addr[i])
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			for b.Loop() {
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\n\r\n")
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}
