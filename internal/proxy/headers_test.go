package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fairshare/internal/proxy"
)

func TestHeadersAreBounded(t *testing.T) {
	upstream := mirror(t)
	usual := serve(t, upstream, proxy.Config{})
	wide := serve(t, upstream, proxy.Config{Fields: 200, HeaderBytes: 100 << 10})
	for _, test := range []struct {
		name, addr, sent string
		want             int
	}{
		{"as many fields as are allowed", usual, strings.Repeat("X-A: b\n", 99), 200}, // and Host
		{"one more", usual, strings.Repeat("X-A: b\n", 100), 431},
		{"names all different", usual, fields(100), 431},
		{"as many bytes as are allowed", usual, "X-A: " + strings.Repeat("b", 32<<10-len("Host: a\r\nX-A: \r\n")) +
			"\n", 200},
		{"one byte more", usual, "X-A: " + strings.Repeat("b", 32<<10-len("Host: a\r\nX-A: \r\n")+1) + "\n", 431},
		{"cookies", usual, strings.Repeat("Cookie: "+strings.Repeat("c", 999)+"\n", 40), 431},
		{"more as configured", wide, strings.Repeat("X-A: "+strings.Repeat("b", 400)+"\n", 199), 200},
		{"yet more fields", wide, strings.Repeat("X-A: b\n", 200), 431},
		{"yet more bytes", wide, "X-A: " + strings.Repeat("b", 100<<10) + "\n", 431},
	} {
		resp, body := exchange(t, test.addr, "GET / HTTP/1.1\nHost: a\n"+test.sent+"\n")
		if resp.StatusCode != test.want {
			t.Errorf("%s: %d, want %d", test.name, resp.StatusCode, test.want)
		}
		if test.want == 431 && (!resp.Close || !strings.Contains(body, "<h1>")) {
			t.Errorf("%s: the connection stays open, or there is no page: %v %q", test.name, resp.Header, body)
		}
	}
}

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: b\n", i)
	}
	return b.String()
}

func TestUnderscoresPassUnlessTheyForgeAHeader(t *testing.T) {
	addr := serve(t, mirror(t), proxy.Config{Header: "CF-Connecting-IP", KeepUnderscores: true,
		Trusts: func(string) bool { return true }})
	for sent, want := range map[string]bool{
		"api_key":                true,
		"X_Custom_Name":          true,
		"X_Forwarded":            false,
		"X_Forwarded_Other":      false,
		"X_Original_URL":         false,
		"X-HTTP_Method-Override": false,
		"My_Client_IP":           false,
		"X_Forwarded_For":        false,
		"x-forwarded_for":        false,
		"X_FORWARDED-PROTO":      false,
		"X_Forwarded_Anew":       false,
		"X_Real_IP":              false,
		"CF_Connecting_IP":       false,
		"cf-connecting_ip":       false,
		"User_Agent":             false,
		"Content_Length":         false,
		"Transfer_Encoding":      false,
		"Proxy_Connection":       false,
		"HTTP2_Settings":         false,
		"X.Custom":               false,
		"X_Custom.Name":          false,
		"X_Forwarded.For":        false,
		"X~Forwarded_For":        false,
		"_X_Forwarded_For":       false,
		"X__Forwarded_For":       false,
		"_X_User_Agent":          true, // another name after folding
		"X_Forwarded_For_":       false,
		"Forwarded":              false, // the trusted proxy sends another header
		"X-Custom":               true,
		"Sec-WebSocket-Key":      true,
		"Proxy-Authorization":    false,
	} {
		resp, head := exchange(t, addr, "GET / HTTP/1.1\nHost: a\n"+sent+": here\n\n")
		if got := strings.Contains(head, ": here\r\n"); got != want || resp.StatusCode != 200 {
			t.Errorf("%s: passed %v, want %v; %d, %q", sent, got, want, resp.StatusCode, head)
		}
	}
}

// A client cannot remove the headers that report it to the upstream by listing them in
// Connection.
func TestConnectionRemovesNoJudgedHeader(t *testing.T) {
	upstream := mirror(t)
	for _, test := range []struct {
		name         string
		c            proxy.Config
		trusted      bool
		sent         string
		want, absent []string
	}{
		{"an untrusted peer", proxy.Config{}, false,
			"Connection: X-Forwarded-For, x-forwarded-proto , X-FORWARDED-HOST,close\nX-Forwarded-For: 192.0.2.1\nX-Own: 1\nConnection: x-own\n",
			[]string{"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n", "X-Forwarded-Host: a\r\n"},
			[]string{"X-Own", "Connection"}},
		{"a trusted proxy that forwards the header unchanged", proxy.Config{Header: "X-Client"}, true,
			"Connection: X-Client, X-Forwarded-For\nX-Client: 192.0.2.1\nX-Forwarded-For: 192.0.2.7\n",
			[]string{"X-Client: 192.0.2.1\r\n", "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n"}, []string{"Connection"}},
		{"empty names", proxy.Config{}, false, "Connection: , ,,\n", []string{"X-Forwarded-For: 127.0.0.1\r\n"},
			[]string{"Connection"}},
		{"a header that a CGI reads as an environment variable", proxy.Config{}, false, "Proxy: http://a\n", nil,
			[]string{"Proxy"}},
		{"headers of one connection", proxy.Config{}, false,
			"Keep-Alive: 1\nProxy-Connection: x\nProxy-Authenticate: x\nProxy-Authorization: x\nTE: gzip\nTrailer: X-A\nExpect: 100-continue\n",
			nil, []string{"Keep-Alive", "Proxy-", "Te:", "Trailer", "Expect"}},
		{"trailers are accepted", proxy.Config{}, false, "Connection: TE\nTE: deflate, trailers;q=0.5\n",
			[]string{"Te: trailers\r\n"}, []string{"Connection"}},
	} {
		site := serve
		if test.trusted {
			site = serveTrusting
		}
		_, head := exchange(t, site(t, upstream, test.c), "GET / HTTP/1.1\nHost: a\n"+test.sent+"\n")
		for _, want := range test.want {
			if !strings.Contains(head, want) {
				t.Errorf("%s: %q is not in %q", test.name, want, head)
			}
		}
		for _, absent := range test.absent {
			if strings.Contains(head, "\r\n"+absent) {
				t.Errorf("%s: %q is in %q", test.name, absent, head)
			}
		}
	}
}

func TestOnlyWebsocketsMayUpgrade(t *testing.T) {
	addr := serve(t, mirror(t), proxy.Config{})
	const line = "GET / HTTP/1.1\nHost: a\n"
	for sent, want := range map[string]bool{
		line + "Connection: Upgrade\nUpgrade: websocket\n":                         true,
		line + "Connection: keep-alive\nConnection: uPgRaDe\nuPGRADE: WebSocket\n": true,
		// without the settings
		line + "Connection: Upgrade, HTTP2-Settings\nUpgrade: websocket\nHTTP2-Settings: AA\n": true,
		line + "Upgrade: websocket\n":                                                  false,
		line + "Connection: Upgrade\nUpgrade: h2c\n":                                   false,
		line + "Connection: Upgrade\nUpgrade: H2C\n":                                   false,
		line + "Connection: Upgrade\nUpgrade: h2c, websocket\n":                        false,
		line + "Connection: Upgrade\nUpgrade: websocket, h2c\n":                        false,
		line + "Connection: Upgrade\nUpgrade: websocket\nUpgrade: h2c\n":               false,
		line + "Connection: Upgrade\nUpgrade: h2c\nUpgrade: websocket\n":               false,
		line + "Connection: Upgrade\nUpgrade: websocket/13\n":                          false,
		line + "Connection: Upgrade\nUpgrade: TLS/1.0\n":                               false,
		line + "Connection: Upgrade\nUpgrade:\n":                                       false,
		line + "Connection: Upgrade\nUpgrade: websocket\nContent-Length: 1\n":          false,
		line + "Connection: Upgrade\nUpgrade: websocket\nTransfer-Encoding: chunked\n": false,
		"POST / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n":          false,
		"GET / HTTP/1.0\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n":           false,
	} {
		rest := "\n"
		if strings.Contains(sent, "chunked") {
			rest = "\n1\nx\n0\n\n"
		} else if strings.Contains(sent, "Length") {
			rest = "\nx"
		}
		resp, head := exchange(t, addr, sent+rest)
		got := strings.Contains(strings.ToLower(head), "\r\nupgrade: websocket\r\n") &&
			strings.Contains(head, "\r\nConnection: Upgrade\r\n")
		if got != want || !want && strings.Contains(strings.ToLower(head), "upgrade") ||
			strings.Contains(strings.ToLower(head), "settings") || resp.StatusCode != 200 {
			t.Errorf("%q: %d and the upstream gets %q, upgrade %v, want %v", sent, resp.StatusCode, head, got, want)
		}
	}
}

// If the upstream changes to a protocol that was not requested, the request fails.
func TestUnrequestedUpgrade(t *testing.T) {
	for _, test := range []struct{ sent, answered string }{
		{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
		{"", ""},
		{"Connection: Upgrade\nUpgrade: h2c\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"},
		{"Connection: Upgrade\nUpgrade: websocket\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"},
		{"Connection: Upgrade\nUpgrade: websocket\n", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n"},
		{"Connection: Upgrade\nUpgrade: websocket\n", "Upgrade: websocket\r\n"},
		{"Connection: Upgrade\nUpgrade: websocket\n", ""},
	} {
		upstream := rawUpstream(t, "HTTP/1.1 101 Switching Protocols\r\n"+test.answered+"\r\nsecret")
		resp, body := exchange(t, serve(t, upstream,
			proxy.Config{}), "GET / HTTP/1.1\nHost: a\n"+test.sent+"\n")
		if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "secret") {
			t.Errorf("%q, answered %q: %d %q, want 502", test.sent, test.answered, resp.StatusCode, body)
		}
	}
}
