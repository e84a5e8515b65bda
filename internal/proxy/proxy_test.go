package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/internal/proxy"
	"fairshare/limittest"
)

// serve puts a proxy for upstream behind a guard on a socket, and returns its
// address.
func serve(t *testing.T, upstream string, c proxy.Config, rules ...fairshare.Rule) string {
	t.Helper()
	return serveClients(t, upstream, c, httpguard.Options{}, rules...)
}

// serveTrusting is serve where this machine, 10.0.0.0/8 and 2001:db8:a::/48 are
// trusted proxies that name their client in c.Header.
func serveTrusting(t *testing.T, upstream string, c proxy.Config, rules ...fairshare.Rule) string {
	t.Helper()
	clients, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"loopback", "10.0.0.0/8",
		"2001:db8:a::/48", "unix"}, Header: c.Header})
	if err != nil {
		t.Fatal(err)
	}
	c.Trusts, c.ReadForwarded = clients.TrustsPeer, clients.Forwarded
	return serveClients(t, upstream, c, httpguard.Options{Client: func(r *http.Request) httpguard.Client {
		found := clients.Resolve(r.RemoteAddr, r.Header)
		return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy}
	}}, rules...)
}

func serveClients(t *testing.T, upstream string, c proxy.Config, opts httpguard.Options,
	rules ...fairshare.Rule) string {
	t.Helper()
	var err error
	if c.Upstream, err = proxy.ParseUpstream(upstream); err != nil {
		t.Fatal(err)
	}
	policy := &fairshare.Policy{Rules: rules}
	guard, err := fairshare.NewGuard(policy, limittest.NewModel(policy.Limits()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(c)
	srv := httptest.NewUnstartedServer(httpguard.Middleware(guard, opts)(p))
	srv.Config.DisableGeneralOptionsHandler = true
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(p.Close)
	return srv.Listener.Addr().String()
}

// exchange sends request, lines ended by "\n", and returns the answer.
func exchange(t *testing.T, addr, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return resp, string(body)
}

// upstreamOf starts an upstream that serves each connection so, and then closes it. It returns its URL.
func upstreamOf(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// mirror starts an upstream that answers with the head of the request, byte for byte.
func mirror(t *testing.T) string {
	return upstreamOf(t, func(conn net.Conn) {
		var head bytes.Buffer
		for r := bufio.NewReader(conn); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
			head.WriteString(line)
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", head.Len(),
			head.Bytes())
	})
}

func TestTargetTravelsUnchanged(t *testing.T) {
	addr := serve(t, mirror(t), proxy.Config{})
	for _, test := range []struct{ sent, want string }{
		{"GET /", "GET /"},
		{"GET //a", "GET //a"},
		{"GET ///a//", "GET ///a//"},
		{"GET //a%2fb?c", "GET //a%2fb?c"},
		{"GET /a%2fb%2F", "GET /a%2fb%2F"},
		{"GET /..;/x/../y/./", "GET /..;/x/../y/./"},
		{"GET /%41|\"<>^`{}\\ü", "GET /%41|\"<>^`{}\\ü"},
		{"GET /a%2f|", "GET /a%2f|"},
		{"GET /a?", "GET /a?"},
		{"GET //?", "GET //?"},
		{"GET /a?b=;&%zz&c d=|?//", ""}, // a blank ends the target
		{"GET /a?b=;&%zz&c=|?//", "GET /a?b=;&%zz&c=|?//"},
		{"GET /a:b", "GET /a:b"},
		{"OPTIONS *", "OPTIONS *"},
		{"GET http://elsewhere/a%2f?b", "GET /a%2f?b"},
		{"GET HTTP://elsewhere//a", "GET //a"},
		// net/http answers these itself, and the upstream does not get them.
		{"GET /%zz", ""},
		{"GET a", ""},
		// These have no clear path, or cannot be sent unchanged.
		{"GET *", ""},
		{"GET http://elsewhere", ""},
		{"GET http://elsewhere?/admin", ""},
		{"GET mailto:x://y/admin", ""},
		{"GET ftp://elsewhere/admin", ""},
		{"GET //a|", ""},
		// Upstreams cut at "#", and would use another path than the judged one.
		{"GET /a#b", ""},
		{"GET /expensive.php#.css", ""},
		{"GET http://elsewhere/a#b", ""},
	} {
		resp, head := exchange(t, addr, test.sent+" HTTP/1.1\nHost: site.example\nConnection: close\n\n")
		if test.want == "" {
			if resp.StatusCode != 400 {
				t.Errorf("%s: %d %q, want 400", test.sent, resp.StatusCode, head)
			}
			continue
		}
		if line, _, _ := strings.Cut(head, "\r\n"); resp.StatusCode != 200 || line != test.want+" HTTP/1.1" {
			t.Errorf("%s: %d, and the upstream got %q", test.sent, resp.StatusCode, line)
		}
	}
}

func TestHeaders(t *testing.T) {
	upstream := mirror(t)
	untrusted := serve(t, upstream, proxy.Config{Header: "cf-connecting-ip"})
	trusted := serveTrusting(t, upstream, proxy.Config{Header: "cf-connecting-ip"})
	for _, test := range []struct {
		name, addr, sent string
		want             []string // lines that the upstream gets
		not              []string // beginnings of lines that it does not get
	}{
		{"nothing forwarded", untrusted, "",
			[]string{"Host: site.example", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http",
				"X-Forwarded-Host: site.example"},
			[]string{"User-Agent", "Accept-Encoding", "Connection"}},
		{"forged", untrusted,
			"X-Forwarded-For: 192.0.2.1\nx-forwarded-for: 192.0.2.2\nX-Forwarded-Proto: https\nX-Forwarded-Host: evil\nX-Forwarded-Port: 1\nX-FORWARDED-PREFIX: /evil\n" +
				"Forwarded: for=192.0.2.1\nX-Real-IP: 192.0.2.1\nCF-Connecting-IP: 192.0.2.1\nAccept-Language: de\n",
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: site.example",
				"Accept-Language: de"},
			[]string{"X-Forwarded-For: 192", "X-Forwarded-Port", "X-Forwarded-Prefix", "Forwarded", "X-Real-Ip",
				"Cf-Connecting-Ip"}},
		{"forged for a framework", untrusted,
			"Client-IP: 192.0.2.1\nTrue-Client-IP: 192.0.2.1\nX-Client-IP: 192.0.2.1\nX-Cluster-Client-IP: 192.0.2.1\nFastly-Client-IP: 192.0.2.1\nX-Azure-ClientIP: 192.0.2.1\nCF-Connecting-IPv6: 2001:db8::1\nX-Original-URL: /admin\nX-Rewrite-URL: /admin\nX-HTTP-Method-Override: PUT\n",
			nil, []string{"X-HTTP-Method-Override", "Client-IP", "True-Client-IP", "X-Client-IP", "X-Cluster",
				"Fastly-Client-IP", "X-Azure", "CF-Connecting", "X-Original-URL", "X-Rewrite-URL"}},
		{"forged by underscore", untrusted,
			"X_Forwarded_For: 192.0.2.1\nX-Forwarded_Proto: https\nx_real_ip: 192.0.2.1\n",
			[]string{"X-Forwarded-For: 127.0.0.1"}, []string{"X_", "X-Forwarded_", "x_"}},
		{"dropped as a header of the connection", untrusted, "Connection: X-Forwarded-For, X-Forwarded-Proto, close\n",
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http"}, nil},
		{"from a trusted proxy", trusted,
			"X-Forwarded-For: 192.0.2.1\nX-Forwarded-For: 192.0.2.2\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.example\nX-Forwarded-Port: 443\nForwarded: for=192.0.2.3\nX-Real-IP: 192.0.2.4\nCF-Connecting-IP: 192.0.2.9\n",
			[]string{"X-Forwarded-For: 192.0.2.9, 127.0.0.1", "X-Forwarded-Proto: https",
				"X-Forwarded-Host: shop.example", "X-Forwarded-Port: 443",
				// the client may have set these: they get the judged address
				"X-Real-Ip: 192.0.2.9", "Cf-Connecting-Ip: 192.0.2.9"}, []string{"Forwarded"}},
		{"forged by a dot", untrusted, "X.Forwarded.For: 192.0.2.1\nX~Real~IP: 192.0.2.1\n", nil, []string{"X.", "X~"}},
		{"from a trusted proxy that sends no headers", trusted, "",
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: site.example"}, nil},
		{"a tunnel", untrusted,
			"Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\n",
			nil, []string{"Upgrade", "Connection", "Http2-Settings"}},
		{"a tunnel and a websocket in one header", untrusted, "Connection: Upgrade\nUpgrade: websocket, h2c\n", nil,
			[]string{"Upgrade", "Connection"}},
		{"a tunnel after a websocket", untrusted, "Connection: Upgrade\nUpgrade: websocket\nUpgrade: h2c\n", nil,
			[]string{"Upgrade", "Connection"}},
		{"a websocket", untrusted, "Connection: keep-alive, Upgrade\nUpgrade: WebSocket\n",
			[]string{"Upgrade: WebSocket", "Connection: Upgrade"}, nil},
	} {
		resp, head := exchange(t, test.addr, "GET / HTTP/1.1\nHost: site.example\n"+test.sent+"\n")
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", test.name, resp.StatusCode)
		}
		lines := strings.Split(head, "\r\n")
		for _, want := range test.want {
			if n := count(lines, want); n != 1 {
				t.Errorf("%s: %q occurs %d times in %q", test.name, want, n, lines)
			}
		}
		for _, not := range test.not {
			for _, line := range lines {
				if strings.HasPrefix(strings.ToLower(line), strings.ToLower(not)) {
					t.Errorf("%s: the upstream gets %q", test.name, line)
				}
			}
		}
	}
}

// A malformed body of the client is not reported as an error of the upstream.
func TestBodiesThatCannotBeRead(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // it answers when it has the complete body
	}))
	defer upstream.Close()
	var out lockedBuffer
	addr := serve(t, upstream.URL, proxy.Config{Log: log.New(&out, "", 0)})
	resp, _ := exchange(t, addr,
		"POST / HTTP/1.1\nHost: site.example\nTransfer-Encoding: chunked\nConnection: close\n\nzz\n")
	if resp.StatusCode != 400 || out.String() != "" {
		t.Errorf("a broken chunk: %d, and the log says %q; want 400 and nothing", resp.StatusCode, out.String())
	}
}

// net/http accepts more hosts in HTTP/2 than in HTTP/1. A host that cannot be sent as it
// was judged is not sent.
func TestHostsThatCannotBeSent(t *testing.T) {
	u, err := proxy.ParseUpstream(mirror(t))
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: u})
	defer p.Close()
	for host, want := range map[string]int{"site.example:80": 200, "[::1]:80": 200, "": 200,
		"b\u00fccher.example": 400, "a/b": 400, "A B": 400, "[fe80::1%25en0]": 400} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
	for _, test := range []struct {
		host string // in addition to :authority, which is site.example
		want int
	}{{"site.example", 200}, {"evil.example", 400}, {"SITE.example", 400}, {"", 400}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host, r.Header["Host"] = "site.example", []string{"site.example", test.host}
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != test.want || test.want == 200 &&
			strings.Count(w.Body.String(), "\nHost:") != 1 {
			t.Errorf("HTTP/2 with host %q and :authority: %d %s, want %d", test.host, w.Code, w.Body, test.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Method = "G T"
	w := httptest.NewRecorder()
	if p.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("method %q: %d, want 400", r.Method, w.Code)
	}
}

// A target in absolute form names the host, and the Host header is ignored
// (RFC 9112 §3.2.2). The site gets the host that was judged.
func TestHostOfAnAbsoluteTargetCounts(t *testing.T) {
	addr := serve(t, mirror(t), proxy.Config{Hosts: []string{"site.example", "*.site.example"}})
	for _, test := range []struct {
		target, host string
		status       int
		want         string // the Host that the site gets
	}{
		{"http://site.example/a", "site.example", 200, "site.example"},
		{"http://site.example/a", "evil.example", 200, "site.example"},
		{"http://WWW.Site.Example.:8080/a", "evil.example", 200, "WWW.Site.Example.:8080"},
		{"http://site.example/a", "", 200, "site.example"},
		{"http://evil.example/a", "site.example", 421, ""},
		{"http://evil.example:80/a", "site.example", 421, ""},
		{"http://site.example@evil.example/a", "site.example", 421, ""},
		{"http://evil.example@site.example/a", "site.example", 200, "site.example"},
		{"http://evil;.site.example/a", "site.example", 400, ""},
		{"http://..site.example/a", "site.example", 400, ""},
		{"http:///a", "site.example", 200, "site.example"}, // names no host
		{"http:///a", "evil.example", 421, ""},
		{"/a", "evil';.site.example", 400, ""},
		{"/a", "SITE.example.", 200, "SITE.example."},
	} {
		resp, head := exchange(t, addr, "GET "+test.target+" HTTP/1.1\nHost: "+test.host+"\nConnection: close\n\n")
		lines := strings.Split(head, "\r\n")
		if resp.StatusCode != test.status {
			t.Errorf("%s with Host %q: %d, want %d", test.target, test.host, resp.StatusCode, test.status)
		}
		if test.want != "" && (lines[0] != "GET /a HTTP/1.1" || count(lines, "Host: "+test.want) != 1 ||
			count(lines, "X-Forwarded-Host: "+test.want) != 1 ||
			strings.Count(strings.ToLower(head), "\r\nhost:") != 1) {
			t.Errorf("%s with Host %q: the site gets %q", test.target, test.host, head)
		}
	}
	for _, hosts := range []string{"Host: site.example\nHost: site.example\n",
		"Host: site.example\nHost: evil.example\n", "Host: site.example, evil.example\n",
		"Host: site.example evil.example\n", ""} {
		if resp, _ := exchange(t, addr, "GET /a HTTP/1.1\n"+hosts+"Connection: close\n\n"); resp.StatusCode != 400 {
			t.Errorf("%q: %d, want 400", hosts, resp.StatusCode)
		}
	}
}

func count(lines []string, want string) (n int) {
	for _, line := range lines {
		if line == want {
			n++
		}
	}
	return n
}

func TestMethodsThatAreNotForwarded(t *testing.T) {
	addr := serve(t, mirror(t), proxy.Config{})
	for _, line := range []string{"CONNECT evil:443", "TRACE /", "CONNECT /"} {
		resp, body := exchange(t, addr, line+" HTTP/1.1\nHost: evil:443\nConnection: close\n\n")
		if resp.StatusCode != 405 || resp.Header.Get("Allow") == "" || strings.Contains(body, line) {
			t.Errorf("%s: %d %v %q, want 405", line, resp.StatusCode, resp.Header, body)
		}
	}
}

func TestWebsocket(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		rw.Flush()
		io.Copy(conn, rw) // an echo
	}))
	defer upstream.Close()
	one := fairshare.Rule{Name: "one", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}}
	addr := serve(t, upstream.URL, proxy.Config{}, one)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	io.WriteString(conn,
		"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	for _, text := range []string{"hello\n", "again\n"} {
		io.WriteString(conn, text)
		if got, err := r.ReadString('\n'); got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	}
	if resp, _ := exchange(t, addr, "GET / HTTP/1.1\nHost: a\n\n"); resp.StatusCode != 429 {
		t.Errorf("while a websocket is open: %d, want 429", resp.StatusCode)
	}
}

func TestEventStreamPassesAsItComes(t *testing.T) {
	next := make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; <-next; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	}))
	defer upstream.Close()
	addr := serve(t, upstream.URL, proxy.Config{})
	next2 := next
	go func() { next2 <- true }()
	resp, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := r.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		r.ReadString('\n')
		next <- i < 2
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestBodiesAndTrailers(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusEarlyHints)
		n, err := io.Copy(w, r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Sum", fmt.Sprint(n))
	}))
	defer upstream.Close()
	addr := serve(t, upstream.URL, proxy.Config{})
	sent := strings.Repeat("x", 3<<20)
	// with a length, and chunked
	for _, body := range []io.Reader{strings.NewReader(sent), struct{ io.Reader }{strings.NewReader(sent)}} {
		req, _ := http.NewRequest("POST", "http://"+addr, body)
		req.Header.Set("Expect", "100-continue")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != sent || resp.Trailer.Get("X-Sum") != fmt.Sprint(len(sent)) {
			t.Errorf("%d bytes, %v, trailer %v", len(got), err, resp.Trailer)
		}
	}
}

func TestUpstreamDownOrSlow(t *testing.T) {
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(conn, "220 mail.internal ESMTP\r\n")
		conn.Close()
	}))
	defer garbage.Close()
	// The upstream's errors are counted, and the proxy's own are not.
	errors := fairshare.Rule{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 1,
		Window: time.Hour}}
	errors.Limit.Statuses.Add(400, 599)
	for _, test := range []struct {
		name, upstream string
		timeout        time.Duration
		want           int
		said           string
	}{
		{"down", "http://127.0.0.1:1", time.Minute, 502, "refused"},
		{"slow", "http://" + slow.Addr().String(), time.Millisecond, 504, "did not begin its answer within 1ms"},
		{"not HTTP", garbage.URL, time.Minute, 502, "malformed"},
	} {
		var out lockedBuffer
		addr := serve(t, test.upstream, proxy.Config{Log: proxy.NewLog(&out, "fairshare: "), Timeout: test.timeout},
			errors)
		for range 3 {
			resp, body := exchange(t, addr, "GET /<b> HTTP/1.1\nHost: a\n\n")
			if resp.StatusCode != test.want || resp.Header.Get("Cache-Control") != "no-store" ||
				!strings.Contains(body, "<h1>") {
				t.Errorf("%s: %d %v %q", test.name, resp.StatusCode, resp.Header, body)
			}
			for _, leak := range []string{"127.0.0.1", "tcp", "refused", "timeout", "malformed", "ESMTP", "net/http",
				"<b>"} {
				if strings.Contains(body, leak) {
					t.Errorf("%s: the page contains %q", test.name, leak)
				}
			}
		}
		if !strings.HasPrefix(out.String(), "fairshare: upstream 127.0.0.1:") ||
			!strings.Contains(out.String(), test.said) {
			t.Errorf("%s: the log contains %q", test.name, out.String())
		}
	}
}

func TestUpstreamThatComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var out lockedBuffer
	addr := serve(t, "http://"+l.Addr().String(), proxy.Config{Log: proxy.NewLog(&out, "")})
	ask := func(want int) {
		t.Helper()
		if resp, _ := exchange(t, addr, "GET / HTTP/1.1\nHost: a\n\n"); resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	ask(502)
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Skip(err) // another process uses the port
	}
	site := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler()}}
	site.Start()
	defer site.Close()
	ask(404)
	ask(404)
	if got := strings.Count(out.String(), "answers again"); got != 1 {
		t.Errorf("the log reports %d times that the upstream answers again:\n%s", got, out.String())
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestIncompleteAnswerIsAborted(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "200000")
		io.WriteString(w, strings.Repeat("half", 25_000))
	}))
	defer upstream.Close()
	upstream.Config.ErrorLog = proxy.NewLog(io.Discard, "")
	var out lockedBuffer
	resp, err := http.Get("http://" + serve(t, upstream.URL, proxy.Config{Log: proxy.NewLog(&out, "fairshare: ")}) +
		"/secret")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%d bytes arrived as if they were complete", len(body))
	}
	if want := "fairshare: upstream " + upstream.Listener.Addr().String() +
		" ended in the middle of an answer: unexpected EOF\n"; out.String() != want {
		t.Errorf("logged %q, want %q", out.String(), want)
	}
}

func TestReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, _ := proxy.ParseUpstream("http://" + l.Addr().String())
	p := proxy.New(proxy.Config{Upstream: u})
	if err := p.Reach(context.Background()); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := p.Reach(context.Background()); err == nil {
		t.Error("a closed port was reached")
	}
}

func TestParseUpstream(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:3000":  "http://127.0.0.1:3000",
		"https://site.example/":  "https://site.example",
		"http://[::1]:80":        "http://[::1]:80",
		"h2c://127.0.0.1:50051":  "h2c://127.0.0.1:50051",
		"127.0.0.1:3000":         "",
		"localhost:3000":         "",
		"site.example":           "",
		"ftp://site.example":     "",
		"http://":                "",
		"http://:3000":           "",
		"http://site/base":       "",
		"http://site?x":          "",
		"http://me:secret@site/": "",
		"http://site:port":       "",
		"":                       "",
	} {
		u, err := proxy.ParseUpstream(text)
		if want == "" && err == nil || want != "" && (err != nil || u.String() != want) {
			t.Errorf("%q: %v, %v; want %q", text, u, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}
