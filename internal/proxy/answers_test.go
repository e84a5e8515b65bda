package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairshare/internal/proxy"
)

// rawUpstream starts an upstream that answers with these bytes and then closes the
// connection. A part behind "…" is repeated without end.
func rawUpstream(t *testing.T, answer string) string {
	return upstreamOf(t, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		begin, again, found := strings.Cut(answer, "…")
		io.WriteString(conn, begin)
		for found {
			if _, err := io.WriteString(conn, again); err != nil {
				return
			}
		}
	})
}

// A malformed answer of the upstream becomes a page for the client and a line in the
// operator's log.
func TestMalformedAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"not HTTP":                "220 mail.internal ESMTP\r\n\r\n",
		"nothing":                 "",
		"half a head":             "HTTP/1.1 200 OK\r\nX-Secret: 1",
		"no colon":                "HTTP/1.1 200 OK\r\nsecret\r\n\r\n",
		"status of letters":       "HTTP/1.1 two OK\r\n\r\n",
		"a status below 100":      "HTTP/1.1 099 OK\r\nContent-Length: 6\r\n\r\nsecret",
		"two lengths":             "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a negative length":       "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"an unknown coding":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n",
		"a header bomb":           "HTTP/1.1 200 OK\r\nX-Secret: " + strings.Repeat("x", 300<<10) + "\r\n\r\n",
		"an endless header":       "HTTP/1.1 200 OK\r\n…X-Secret: secret\r\n",
		"an endless line":         "HTTP/1.1 200 OK\r\nX-Secret: …secret",
		"endless interim answers": "…HTTP/1.1 102 Processing\r\n\r\n",
		"endless interim answers, 100": "…HTTP/1.1 100 Continue\r\nX-Secret: " + strings.Repeat("x", 10_000) +
			"\r\n\r\n",
	} {
		var out lockedBuffer
		// HTTP/1.0 gets no interim answers, HTTP/1.1 some of them.
		for _, proto := range []string{"1.0", "1.1"} {
			addr := serve(t, rawUpstream(t, answer), proxy.Config{Log: proxy.NewLog(&out, ""),
				Timeout: 10 * time.Second})
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET / HTTP/"+proto+"\r\nHost: a\r\n\r\n")
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			for err == nil && resp.StatusCode < 200 {
				resp, err = http.ReadResponse(r, nil)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 502 || err != nil || !strings.Contains(string(body), "<h1>Bad Gateway</h1>") {
				t.Errorf("%s: %s %.100q %v, want 502", name, resp.Status, body, err)
			}
			for _, leak := range []string{"127.0.0.1", "ecret", "malformed", "ESMTP", "net/http"} {
				if strings.Contains(string(body), leak) ||
					strings.Contains(strings.Join(resp.Header["X-Secret"], ""), leak) {
					t.Errorf("%s: the answer contains %q", name, leak)
				}
			}
		}
		if !strings.Contains(out.String(), "upstream 127.0.0.1:") {
			t.Errorf("%s: logged %q", name, out.String())
		}
	}
}

// Headers of the upstream's connection are not forwarded to the client.
func TestAnswersOwnHeadersStay(t *testing.T) {
	addr := serve(t,
		rawUpstream(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x-own\r\nX-Own: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nX-Other: 1\r\nX-Other: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\nhi"), proxy.Config{})
	resp, body := exchange(t, addr, "GET / HTTP/1.1\nHost: a\n\n")
	for name, want := range map[string]string{"X-Own": "", "Keep-Alive": "", "Proxy-Connection": "", "X-Other": "1|2",
		"Set-Cookie": "a=b|c=d", "Content-Length": "2", "Content-Type": ""} {
		if got := strings.Join(resp.Header[name], "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if body != "hi" {
		t.Errorf("body %q", body)
	}
}

// Answers without a body; some have the length of the body that a GET would get.
func TestAnswersWithoutABody(t *testing.T) {
	for _, test := range []struct {
		method, answer string
		status         int
		length         string
	}{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", 200, "12345"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, ""},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\n\r\n", 304, ""},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "0"},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "0 or none"},
		{"GET", "HTTP/1.0 200 OK\r\n\r\n", 200, "0 or none"}, // the head is sent soon, even if nothing follows it
	} {
		addr := serve(t, rawUpstream(t, test.answer), proxy.Config{})
		req, _ := http.NewRequest(test.method, "http://"+addr, nil)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s %q: %v", test.method, test.answer, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		length := resp.Header.Get("Content-Length")
		if test.length == "0 or none" && (length == "" || length == "0") {
			length = test.length
		}
		if resp.StatusCode != test.status || length != test.length || len(body) > 0 || err != nil {
			t.Errorf("%s %q: %s %v %q %v", test.method, test.answer, resp.Status, resp.Header, body, err)
		}
	}
}

// Fields that frame a message have no effect in a trailer, and are not forwarded.
func TestTrailersFrameNothing(t *testing.T) {
	addr := serve(t,
		rawUpstream(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nX-Sum: 1\r\n\r\n"), proxy.Config{})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(conn)
	if _, rest, _ := strings.Cut(string(got), "\r\n\r\n"); rest != "2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n" || err != nil {
		t.Errorf("got %q %v", got, err)
	}
}

// Interim answers are forwarded, and add nothing to the final one.
func TestHints(t *testing.T) {
	addr := serve(t,
		rawUpstream(t, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x-own\r\nX-Own: 1\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), proxy.Config{})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(got), "\r\n\r\n")
	if head != "HTTP/1.1 103 Early Hints\r\nLink: </a.css>" || !strings.HasPrefix(rest, "HTTP/1.1 200 OK\r\n") ||
		strings.Contains(rest, "Link") || !strings.HasSuffix(rest, "\r\n\r\nhi") {
		t.Errorf("got %q", got)
	}
}
