package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare/internal/acmecerts"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// writeCertificate writes NAME.pem and NAME.key for some hosts.
func writeCertificate(t *testing.T, dir, name string, hosts ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(30 * 24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: cert},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Each name gets the certificate of its site; all others get that of the whole file, or none.
func TestSitesHaveCertificates(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir, "all", "www.example.org", "*.example.org")
	writeCertificate(t, dir, "shop", "shop.example.org")
	const sites = `sites:
  www: {hosts: [www.example.org], upstream: "http://127.0.0.1:9"}
  shop: {hosts: [shop.example.org, "*.shop.example.org"], upstream: "http://127.0.0.1:9", tls: {cert: shop.pem, key: shop.key}}
  too: {hosts: [too.example.org], upstream: "http://127.0.0.1:9", tls: {cert: shop.pem, key: shop.key}}
rules: []
`
	for _, c := range []struct {
		policy string
		want   map[string]string // the first name of the certificate, by the name in the handshake
	}{
		{"tls: {cert: all.pem, key: all.key}\n" + sites, map[string]string{"www.example.org": "www.example.org",
			"shop.example.org": "shop.example.org", "SHOP.example.org": "shop.example.org",
			"x.shop.example.org": "shop.example.org", "too.example.org": "shop.example.org",
			"other.example": "www.example.org", "": "www.example.org"}},
		{sites, map[string]string{"www.example.org": "", "shop.example.org": "shop.example.org", "": ""}},
	} {
		file, err := policyfile.Options{Bots: setup.BotNames}.Parse(filepath.Join(dir, "site.yaml"), []byte(c.policy))
		if err != nil {
			t.Fatal(err)
		}
		certs, err := loadSiteCertificates(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{acme: acmecerts.New(func(line string) { t.Log(line) }, time.Now)}
		s.certs.Store(certs)
		for name, want := range c.want {
			got := ""
			cert, err := s.certificate(&tls.ClientHelloInfo{ServerName: name})
			if err != nil {
				t.Errorf("%q: %v", name, err)
			} else if cert != nil {
				got = cert.Leaf.DNSNames[0]
			}
			if got != want {
				t.Errorf("%q: the certificate of %q, want %q", name, got, want)
			}
		}
		warnings := certs.uncovered(file)
		slices.Sort(warnings)
		if len(warnings) != 2 || !strings.Contains(warnings[0], "the host *.shop.example.org") ||
			!strings.Contains(warnings[1], "the host too.example.org") {
			t.Errorf("warnings: %q", warnings)
		}
		files := 0
		certs.each(func(*certificates) { files++ })
		if want := 1 + strings.Count(c.policy, "all.pem"); files != want {
			t.Errorf("%d files are read, want %d", files, want)
		}
	}
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse(filepath.Join(dir, "site.yaml"),
		[]byte(strings.ReplaceAll(sites, "shop.key", "none.key")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadSiteCertificates(file); err == nil || !strings.Contains(err.Error(), "site shop: certificate ") {
		t.Errorf("a missing key: %v", err)
	}
	for _, wrong := range []string{"{cert: shop.pem}", "{}", "{cert: a, key: b, acme: {}}", "x"} {
		text := fmt.Sprintf("sites: {a: {hosts: [a.example], upstream: \"http://127.0.0.1:9\", tls: %s}}\nrules: []\n", wrong)
		if _, err := (policyfile.Options{Bots: setup.BotNames}).Parse("site.yaml", []byte(text)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
