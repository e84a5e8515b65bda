package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Headers by which a client would choose its address, and the host, path and
// method that the site takes. All have "forged" or 203.0.113.66 in their values.
var forgedHeaders = func() map[string]string {
	all := map[string]string{"Forwarded": "for=203.0.113.66;host=forged.example;proto=https",
		"X-Forwarded": "for=203.0.113.66", "X-Forwarded-Proto": "forged", "X-Forwarded-Port": "1;forged",
		"X-Forwarded-Prefix": "//forged"}
	for value, names := range map[string]string{
		"203.0.113.66": `X-Forwarded-For Forwarded-For X-Original-Forwarded-For X-Forwarded-By X-Forwarded-Client-IP X-Real-IP Client-IP X-Client-IP True-Client-IP X-Cluster-Client-IP
			Proxy-Client-IP WL-Proxy-Client-IP Fly-Client-IP Fastly-Client-IP CF-Connecting-IP CF-Connecting-IPv6 CF-Pseudo-IPv4 DO-Connecting-IP X-Appengine-User-IP X-Envoy-External-Address
			X-Azure-ClientIP X-Azure-SocketIP X-Originating-IP X-Remote-IP X-Remote-Addr X-ProxyUser-Ip X-Custom-IP-Authorization`,
		"forged.example": "X-Forwarded-Host X-Host X-Forwarded-Server X-Original-Host X-HTTP-Host-Override",
		"/forged":        "X-Original-URL X-Rewrite-URL X-Original-Uri X-Envoy-Original-Path X-Forwarded-Uri X-Middleware-Subrequest",
		"FORGED":         "X-HTTP-Method-Override X-HTTP-Method X-Method-Override X-Forwarded-Method",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = value
		}
	}
	return all
}()

// The upstream never takes an address from headers or trailers of a client, by
// HTTP/1.1 or HTTP/2. It is so behind nginx as in deploy/nginx, behind nginx
// with the usual two lines, and without nginx.
func TestForgedHeadersDoNotReachTheUpstream(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[http.Request]
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buffer := make([]byte, 100)
		for n, err := 1, error(nil); n > 0 && err == nil; { // trailers come after the body
			n, err = r.Body.Read(buffer)
		}
		if r.URL.Path != "/robots.txt" { // the server asks for it at its start
			seen.Store(r)
		}
	}))
	defer site.Close()
	siteAddr := site.Listener.Addr().String()
	// A path that is refused, so that an override of it would show.
	policy := "h2c: true\nbounds: {fields: 300}\nrules: [{name: closed, match: {path: /forged*}, block: true}]\n"

	behind := startServe(t, "hosts: [shop.example]\nclients: {trusted_proxies: 127.0.0.1}\n"+policy, "--upstream",
		site.URL)
	bare := startServe(t, policy, "--upstream", site.URL)
	usual := freeAddr(t)
	startNginx(t, usual,
		"underscores_in_headers on;\nlarge_client_header_buffers 8 32k;\nlocation / {\nproxy_pass http://"+behind.addr+
			";\nproxy_set_header Host $host;\nproxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}")

	public, plain, deployedServe := freeAddr(t), freeAddr(t), freeAddr(t)
	cert, key, _ := newCertificate(t)
	startNginxWith(t, deployed(t, map[string]string{
		"listen 80;":                  "listen " + plain + ";",
		"listen [::]:80;":             "",
		"listen 443 ssl http2;":       "listen " + public + " ssl http2;",
		"listen [::]:443 ssl http2;":  "",
		"127.0.0.1:8080":              deployedServe,
		"127.0.0.1:8081":              siteAddr,
		"/var/www/shop.example":       t.TempDir(),
		"/var/log/nginx/shop.example": t.TempDir() + "/log",
		"/etc/letsencrypt/live/shop.example/fullchain.pem": cert,
		"/etc/letsencrypt/live/shop.example/privkey.pem":   key,
	}, "nginx/fairshare.conf", "nginx/public.conf"), public, plain)
	startServe(t, deployed(t, map[string]string{"127.0.0.1:8080": deployedServe, "127.0.0.1:8081": siteAddr},
		"nginx/fairshare.yaml"), "--listen", deployedServe)

	for _, front := range []struct {
		name, url, peer string // peer: what X-Forwarded-For ends in, "" none
		client, proto   string
		http2           bool
	}{
		{"deploy/nginx", "https://" + public, ", 127.0.0.1", "127.0.0.2", "https", false},
		{"deploy/nginx by HTTP/2", "https://" + public, ", 127.0.0.1", "127.0.0.2", "https", true},
		{"nginx with two lines", "http://" + usual, ", 127.0.0.1", "127.0.0.2", "http", false},
		{"a trusted peer that passes everything on", "http://" + behind.addr, "", "127.0.0.1", "http", false},
		{"the same by HTTP/2", "http://" + behind.addr, "", "127.0.0.1", "http", true},
		{"another client", "http://" + bare.addr, "", "127.0.0.2", "http", false},
		{"another client by HTTP/2", "http://" + bare.addr, "", "127.0.0.2", "http", true},
	} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!front.http2)
		protocols.SetHTTP2(front.http2)
		protocols.SetUnencryptedHTTP2(front.http2)
		transport := &http.Transport{
			Protocols: protocols,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(front.client)}}).
					DialContext(ctx, network, addr)
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}
		defer transport.CloseIdleConnections()
		for spelling, spell := range map[string]func(string) string{
			"as it is":    func(s string) string { return s },
			"upper case":  strings.ToUpper,
			"underscores": func(s string) string { return strings.ReplaceAll(s, "-", "_") },
			"mixed":       func(s string) string { return strings.ToLower(strings.Replace(s, "-", "_", 1)) },
			"Connection":  func(s string) string { return s },
			"trailers":    func(s string) string { return s },
		} {
			if front.http2 && (spelling == "Connection" || spelling == "upper case") {
				continue // HTTP/2 has neither
			}
			if front.http2 && spelling == "trailers" && strings.HasPrefix(front.url, "https") {
				continue // nginx refuses them by HTTP/2
			}
			what := front.name + ", " + spelling
			req, err := http.NewRequest("POST", front.url+"/a", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "shop.example"
			into := &req.Header
			if spelling == "trailers" {
				req.ContentLength, req.Trailer = -1, http.Header{}
				into = &req.Trailer
			}
			for name, value := range forgedHeaders {
				if front.peer == "" && front.client == "127.0.0.1" &&
					strings.EqualFold(spell(name), "X-Forwarded-For") {
					continue // such a peer may name its client
				}
				(*into)[spell(name)] = []string{value, value}
				if spelling == "Connection" {
					req.Header.Add("Connection", name)
				}
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			resp.Body.Close()
			r := seen.Swap(nil)
			if r == nil {
				t.Fatalf("%s: %d, and the site was not asked", what, resp.StatusCode)
			}
			if got := strings.ToLower(fmt.Sprint(r.Method, r.Host, r.RequestURI, r.Header,
				r.Trailer)); strings.Contains(got, "forged") || strings.Contains(got, "203.0.113.66") {
				t.Errorf("%s: the site gets %s", what, got)
			}
			for name, want := range map[string]string{"X-Forwarded-For": front.client + front.peer,
				"X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": front.proto,
				"Fairshare-Client": front.client} {
				if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
					t.Errorf("%s: %s is %q, want %q", what, name, got, want)
				}
			}
			if r.Method != "POST" || r.RequestURI != "/a" || r.Host != "shop.example" {
				t.Errorf("%s: the site was asked %s %s of %s", what, r.Method, r.RequestURI, r.Host)
			}
		}
	}
}
