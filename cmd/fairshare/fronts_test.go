package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Behind each server of deploy/front, clients are identified by the address
// that this server saw. The Host header and websockets pass.
func TestClientsAreIdentifiedBehindOtherServers(t *testing.T) {
	t.Parallel()
	for _, front := range []struct {
		name, debian, file string
		changes            map[string]string // in addition to 127.0.0.1:8080; %s is the address, %p the port
		args               func(t *testing.T, config, listen string) []string
	}{
		{"caddy", "caddy", "front/Caddyfile",
			map[string]string{"shop.example {": "{\nadmin off\nauto_https off\nhttp_port %p\ndefault_bind 127.0.0.1\n}\nhttp://shop.example {"},
			func(t *testing.T, config, _ string) []string {
				return []string{need(t, "caddy", "caddy"), "run", "--adapter", "caddyfile", "--config",
					writeFile(t, "Caddyfile", config)}
			}},
		{"haproxy", "haproxy", "front/haproxy.cfg",
			map[string]string{":443 ssl crt /etc/haproxy/shop.example.pem alpn h2,http/1.1": "%s"},
			func(t *testing.T, config, _ string) []string {
				return []string{need(t, "haproxy", "haproxy"), "-db", "-f", writeFile(t, "haproxy.cfg", config)}
			}},
		{"apache", "apache2", "front/apache.conf", map[string]string{"*:443": "%s", "SSLEngine on": "",
			"SSLCertificateFile /etc/letsencrypt/live/shop.example/fullchain.pem":  "",
			"SSLCertificateKeyFile /etc/letsencrypt/live/shop.example/privkey.pem": ""},
			func(t *testing.T, config, listen string) []string {
				return apacheWith(t, listen, config)
			}},
	} {
		t.Run(front.name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Pointer[http.Request]
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/socket") {
					echoSocket(w, r)
					return
				}
				seen.Store(r)
			}))
			defer site.Close()
			s := startServe(t,
				"clients: {trusted_proxies: 127.0.0.1}\nrules: [{name: three, match: {not: {path: /socket}}, limit: {requests: 3, per: 1h, algorithm: quiet}}]\n", "--upstream", site.URL)
			listen := freeAddr(t)
			changes := map[string]string{"127.0.0.1:8080": s.addr}
			for old, new := range front.changes {
				_, port, _ := strings.Cut(listen, ":")
				changes[old] = strings.NewReplacer("%s", listen, "%p", port).Replace(new)
			}
			config := deployed(t, changes, front.file)
			startServer(t, syscall.SIGTERM, front.args(t, config, listen), listen)

			ask := func(addr, forged string) int {
				t.Helper()
				req, err := http.NewRequest("GET", "http://"+listen+"/a%2Fb?c=%20d", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "shop.example"
				for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "X_Forwarded_For",
					"X-Forwarded-Host"} {
					req.Header.Set(name, forged)
				}
				resp, err := clientAt(t, addr).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return resp.StatusCode
			}
			for i := range 3 {
				if status := ask("127.0.0.2", fmt.Sprintf("203.0.113.%d", i)); status != 200 {
					t.Fatalf("request %d: %d", i, status)
				}
				r := seen.Swap(nil)
				if r == nil {
					t.Fatal("the site was not asked")
				}
				if !strings.HasSuffix(r.Header.Get("X-Forwarded-For"), "127.0.0.2, 127.0.0.1") ||
					r.Host != "shop.example" || r.RequestURI != "/a%2Fb?c=%20d" {
					t.Errorf("the site was asked %s of %s for %v", r.RequestURI, r.Host, r.Header)
				}
			}
			if status := ask("127.0.0.2", "203.0.113.99"); status != 429 {
				t.Errorf("the fourth request: %d", status)
			}
			if status := ask("127.0.0.3", "203.0.113.99"); status != 200 {
				t.Errorf("another client: %d", status)
			}

			conn, err := net.Dial("tcp", listen)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			io.WriteString(conn,
				"GET /socket HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp, err)
			}
			io.WriteString(conn, "\x81\x85\x01\x02\x03\x04igohn") // "hello", masked
			var frame [7]byte
			if _, err := io.ReadFull(r, frame[:]); err != nil || string(frame[:]) != "\x81\x05hello" {
				t.Errorf("the websocket: %q, %v", frame, err)
			}
		})
	}
}

// apacheWith returns the command of an Apache with that configuration, and more modules than the usual ones.
func apacheWith(t *testing.T, listen, config string, more ...string) []string {
	apache := need(t, "apache2", "apache2")
	dir := shortDir(t)
	var modules strings.Builder
	for _, name := range append([]string{"mpm_event", "authz_core", "headers", "proxy", "proxy_http"}, more...) {
		fmt.Fprintf(&modules, "LoadModule %s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", name)
	}
	return []string{apache, "-D", "FOREGROUND", "-f", writeFile(t, "apache.conf", fmt.Sprintf(
		"ServerRoot %[1]s\nPidFile %[1]s/pid\nDefaultRuntimeDir %[1]s\nErrorLog /dev/stderr\nServerName shop.example\nListen %[2]s\n%[3]s%[4]s",
		dir, listen, modules.String(), config))}
}
