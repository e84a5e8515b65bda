package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startH2C runs nghttpx in front of a site: a server that switches to HTTP/2 on
// Upgrade: h2c.
func startH2C(t *testing.T, site string) string {
	t.Helper()
	nghttpx := need(t, "nghttpx", "nghttp2-proxy")
	listen := freeAddr(t)
	spec := func(addr string) string { return strings.Replace(addr, ":", ",", 1) }
	startServer(t, syscall.SIGTERM, []string{nghttpx, "--conf=/dev/null", "--workers=1", "--accesslog-file=",
		"--errorlog-file=/dev/stderr",
		"--frontend=" + spec(listen) + ";no-tls", "--backend=" + spec(site)}, listen)
	return listen
}

const (
	h2cRequest = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
	// What a client sends once the server has switched: the preface, an empty
	// SETTINGS frame, and a request for /secret in a HEADERS frame.
	h2cPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x19\x01\x05\x00\x00\x00\x03\x82\x86\x04\x07/secret\x01\x0cshop.example"
)

// exchange sends bytes and returns the status of the first answer and the rest.
// The rest ends when the other side closes, or with the answer of /secret.
func exchange(t *testing.T, addr, first, then string) (status, rest string) {
	t.Helper()
	method, _, _ := strings.Cut(first, " ")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, first)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return err.Error(), ""
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		io.WriteString(conn, then)
		for !strings.HasSuffix(rest, "asked for /secret") {
			b, err := r.ReadByte()
			if err != nil {
				break
			}
			rest += string(rune(b))
		}
		return resp.Status, rest
	}
	io.Copy(io.Discard, resp.Body)
	io.WriteString(conn, then)
	conn.(*net.TCPConn).CloseWrite()
	after, _ := io.ReadAll(r)
	return resp.Status, string(after)
}

// No form of an upgrade request makes the upstream switch to HTTP/2. Otherwise
// requests on that connection would not be judged.
func TestUpgradeToHTTP2DoesNotReachTheUpstream(t *testing.T) {
	t.Parallel()
	var secrets atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {

		if r.URL.Path == "/secret" {
			secrets.Add(1)
		}
		fmt.Fprintf(w, "upgrade %q settings %q asked for %s", r.Header.Values("Upgrade"),
			r.Header.Values("HTTP2-Settings"), r.URL.Path)
	}))
	defer site.Close()
	upstream := startH2C(t, site.Listener.Addr().String())

	// Asked directly it switches, and answers on the stream.
	if status, rest := exchange(t, upstream, h2cRequest, h2cPreface); status != "101 Switching Protocols" ||
		!strings.Contains(rest, "upgrade") {
		t.Fatalf("the upstream does not switch to h2c: %s, %q", status, rest)
	}
	if secrets.Load() != 1 {
		t.Fatalf("%d requests came through the tunnel, want 1", secrets.Load())
	}

	s := startServe(t, "rules: [{name: secret, match: {path: /secret}, block: true}]\n", "--upstream",
		"http://"+upstream)
	settings := "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
	for _, headers := range []string{
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + settings,
		"connection: uPGRADE, http2-settings\r\nUPGRADE: H2C\r\nhttp2-SETTINGS: AAMAAABkAARAAAAAAAIAAAAA\r\n",
		"Connection: HTTP2-Settings\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + settings,
		"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: \th2c \r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c,\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade:\r\n h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade : h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c/2\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings, Upgrade, close\r\nUpgrade: h2c\r\n" + settings,
		"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + settings + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 5\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n" + settings,
		"Upgrade: h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2_Settings\r\nUpgrade: h2c\r\nHTTP2_Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
		"Proxy-Connection: Upgrade\r\nUpgrade: h2c\r\n" + settings,
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n" + settings,
		"Connection: Upgrade\r\nUpgrade: h2\r\n", "Connection: Upgrade\r\nUpgrade: TLS/1.2, HTTP/2.0\r\n",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "HEAD"} {
			body := ""
			switch {
			case strings.Contains(headers, "Content-Length"):
				body = "hello"
			case strings.Contains(headers, "chunked"):
				body = "5\r\nhello\r\n0\r\n\r\n"
			}
			status, rest := exchange(t, s.addr, method+" / HTTP/1.1\r\nHost: shop.example\r\n"+headers+"\r\n"+body,
				h2cPreface)
			if strings.HasPrefix(status, "101") || strings.HasPrefix(rest, "\x00") ||
				strings.Contains(rest, "upgrade [") {
				t.Errorf("%s with %q: %s, then %q", method, headers, status, rest)
			}
			if !strings.HasPrefix(status, "200") && !strings.HasPrefix(status, "400") {
				t.Errorf("%s with %q: %s", method, headers, status)
			}
		}
	}
	// HTTP/2 from the first byte needs h2c: true.
	if status, rest := exchange(t, s.addr, h2cPreface, ""); strings.HasPrefix(status, "200") ||
		strings.Contains(rest, "upgrade") {
		t.Errorf("the preface of HTTP/2: %s, then %q", status, rest)
	}
	if secrets.Load() != 1 {
		t.Errorf("%d requests reached /secret", secrets.Load()-1)
	}

	// No upgrade reached the site itself.
	curl := need(t, "curl", "curl")
	ask := func(addr string) string {
		out, err := exec.Command(curl, "-sS", "--max-time", "20", "--http2", "-w", " over HTTP/%{http_version}",
			"http://"+addr+"/").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := ask(upstream); !strings.HasSuffix(got, "over HTTP/2") {
		t.Errorf("curl --http2 at the upstream: %s", got)
	}
	if got, want := ask(s.addr), "upgrade [] settings [] asked for / over HTTP/1.1"; got != want {
		t.Errorf("curl --http2 at fairshare: %s, want %s", got, want)
	}
}
