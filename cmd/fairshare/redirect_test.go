//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// certificateFor writes a certificate for a host and its key to files.
func certificateFor(t *testing.T, host string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

// askPlain sends a request as it is on a connection of its own, and returns the status, the header Location and
// whether the server closed the connection after its answer.
func askPlain(t *testing.T, addr, request string) (status int, location string, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, request)
	answer, err := io.ReadAll(conn)
	head, _, _ := strings.Cut(string(answer), "\r\n\r\n")
	var minor int
	fmt.Sscanf(head, "HTTP/1.%d %d", &minor, &status)
	for _, line := range strings.Split(head, "\r\n") {
		if value, found := strings.CutPrefix(line, "Location: "); found {
			location = value
		}
	}
	return status, location, err == nil
}

// Each site is served with its certificate. Requests without TLS are redirected to https for the hosts of the
// policy and for no other.
func TestSitesWithTLSAndRedirect(t *testing.T) {
	plain := freeAddr(t)
	oneCert, oneKey := certificateFor(t, "one.example")
	shopCert, shopKey := certificateFor(t, "*.shop.example")
	const policy = `
listen_http: %s
tls: {cert: %s, key: %s}
robots: off
sites:
  one.example: %s
  shop: {hosts: ["*.shop.example"], upstream: "%s", tls: {cert: %s, key: %s}}
  rest: {hosts: [%s], upstream: "%s"}
rules: [{name: all, limit: {requests: 100000, per: 1m}}]
`
	one, shop := namedSite(t, "one"), namedSite(t, "shop")
	text := func(host string) string {
		return fmt.Sprintf(policy, plain, oneCert, oneKey, one, shop, shopCert, shopKey, host, one)
	}
	p, path := serveFile(t, text(`"*"`))
	for host, want := range map[string]string{"one.example": "one.example", "a.shop.example": "*.shop.example",
		"shop.example": "one.example", "other.example": "one.example"} {
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: host, InsecureSkipVerify: true})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if names := conn.ConnectionState().PeerCertificates[0].DNSNames; names[0] != want {
			t.Errorf("%s: certificate for %s, want %s", host, names, want)
		}
		conn.Close()
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequest("GET", "https://"+p.addr+"/", nil)
	req.Host = "a.shop.example"
	if resp, err := client.Do(req); err != nil {
		t.Error(err)
	} else if body, _ := io.ReadAll(resp.Body); string(body) != "shop a.shop.example" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}

	for _, test := range []struct {
		request  string
		status   int
		location string
	}{
		{"GET /a/b?c=d&e HTTP/1.1\r\nHost: one.example\r\n\r\n", 308, "https://one.example/a/b?c=d&e"},
		{"HEAD / HTTP/1.1\r\nHost: ONE.example.:8080\r\n\r\n", 308, "https://one.example/"},
		{"POST /x? HTTP/1.1\r\nHost: a.shop.example\r\nContent-Length: 2\r\n\r\nab", 308, "https://a.shop.example/x?"},
		{"GET //evil.example/%2f..%0d%0aX:y HTTP/1.1\r\nHost: one.example\r\n\r\n", 308,
			"https://one.example//evil.example/%2f..%0d%0aX:y"},
		{"GET /\\evil.example HTTP/1.1\r\nHost: one.example\r\n\r\n", 308, "https://one.example/%5Cevil.example"},
		{"GET http://one.example HTTP/1.1\r\nHost: evil.example\r\n\r\n", 308, "https://one.example/"},
		{"GET /.well-known/acme-challenge/abc HTTP/1.1\r\nHost: one.example\r\n\r\n", 308,
			"https://one.example/.well-known/acme-challenge/abc"},
		{"GET / HTTP/1.0\r\n\r\n", 421, ""},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, ""},
		{"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n", 421, ""},
		{"GET / HTTP/1.1\r\nHost: one.example@evil.example\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost: evil.example/.shop.example\r\n\r\n", 400, ""},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: one.example\r\n\r\n", 421, ""},
		{"OPTIONS * HTTP/1.1\r\nHost: one.example\r\n\r\n", 400, ""},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: one.example\r\n\r\n", 405, ""},
		{"GET / HTTP/1.1\r\nHost: one.example\r\nHost: one.example\r\n\r\n", 400, ""},
		{"GET /" + strings.Repeat("a", 40<<10) + " HTTP/1.1\r\nHost: one.example\r\n\r\n", 431, ""},
	} {
		status, location, closed := askPlain(t, plain, test.request)
		if status != test.status || location != test.location || !closed {
			t.Errorf("%.80q: %d %q, closed %t, want %d %q", test.request, status, location, closed, test.status,
				test.location)
		}
	}

	writeOver(t, path, text("new.example"))
	p.reload(t, "(?m)^fairshare: (changed .*new.example.*)$")
	if status, location, _ := askPlain(t, plain, "GET / HTTP/1.1\r\nHost: new.example\r\n\r\n"); status != 308 ||
		location != "https://new.example/" {
		t.Errorf("after the reload: %d %q", status, location)
	}
	writeOver(t, path, strings.Replace(text("new.example"), plain, "127.0.0.1:1", 1))
	p.reload(t, "(?m)^fairshare: (warning: changes of listen_http take effect after a restart)$")

	// A stop lets a request end that has begun.
	conn, err := net.Dial("tcp", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, "GET /late HTTP/1.1\r\n")
	p.Process.Signal(syscall.SIGTERM)
	p.read(t, "(?m)^fairshare: (stopping; .*)$")
	io.WriteString(conn, "Host: one.example\r\n\r\n")
	if answer, err := io.ReadAll(conn); !strings.Contains(string(answer), "Location: https://one.example/late") {
		t.Errorf("at the stop: %q %v", answer, err)
	}
}
