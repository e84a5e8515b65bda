package redislimit_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// certify writes a certificate for 127.0.0.1, which signs itself, and its key to files.
func certify(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
}

// A group counts over TLS with certificates on both sides and a password. A server that lacks one of them does
// not reach the store, and learns why without seeing a secret.
func TestMutualTLS(t *testing.T) {
	cert, key := certify(t, "server")
	own, ownKey := certify(t, "member")
	stranger, strangerKey := certify(t, "stranger")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", own,
		"--tls-auth-clients", "yes", "--requirepass", "the secret")
	right := redislimit.Connection{URL: "rediss://" + addr, CA: cert, Cert: own, Key: ownKey, Password: "the secret"}

	member := func() *redislimit.Limiter {
		store, err := redislimit.Connect(right)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return open(t, store, hundred, redislimit.Patient(redislimit.Options{Name: "tls"}))
	}
	a, b := member(), member()
	n, _ := admit(t, a, "k", 70)
	if m, _ := admit(t, b, "k", 70); n+m != 100 {
		t.Errorf("%d and %d of 100 were admitted", n, m)
	}

	for _, test := range []struct {
		name, why string
		change    func(c *redislimit.Connection)
	}{
		{"no own certificate", "certificate", func(c *redislimit.Connection) { c.Cert, c.Key = "", "" }},
		{"a certificate that the store does not know", "",
			func(c *redislimit.Connection) { c.Cert, c.Key = stranger, strangerKey }},
		{"another authority", "certificate", func(c *redislimit.Connection) { c.CA = stranger }},
		{"without TLS", "rediss",
			func(c *redislimit.Connection) { *c = redislimit.Connection{URL: "redis://" + addr} }},
		{"a wrong password", "WRONGPASS", func(c *redislimit.Connection) { c.Password = "another secret" }},
		{"no password", "NOAUTH", func(c *redislimit.Connection) { c.Password = "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := right
			test.change(&c)
			store, err := redislimit.Connect(c)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := store.Wait(ctx); err == nil {
				t.Error("connected")
			} else if !strings.Contains(err.Error(), test.why) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}
