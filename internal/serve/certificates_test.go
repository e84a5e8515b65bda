package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A certificate is renewed by writing over its files, one after the other.
func TestCertificatesAreReadAnew(t *testing.T) {
	certFile, keyFile, _ := newCertificate(t)
	certs, err := loadCertificates(certFile, keyFile, "")
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		cert, err := certs.get(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return string(cert.Certificate[0])
	}
	refresh := func(changed, ok bool) {
		t.Helper()
		if got, err := certs.refresh(); got != changed || (err == nil) != ok {
			t.Errorf("refresh: changed %v, error %v", got, err)
		}
	}
	first := serial()
	refresh(false, true)

	newCert, newKey, _ := newCertificate(t)
	later := time.Now().Add(time.Hour)
	replace := func(from, to string) {
		t.Helper()
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}
	replace(newCert, certFile)
	refresh(true, false) // the key does not match yet
	if serial() != first {
		t.Error("the certificate changed without its key")
	}
	refresh(false, true) // reported once
	replace(newKey, keyFile)
	refresh(true, true)
	second := serial()
	if second == first {
		t.Error("the old certificate is still handed out")
	}

	os.Remove(keyFile)
	refresh(true, false)
	if serial() != second {
		t.Error("the certificate is lost with its file")
	}
	var hinted *cli.HintError
	if err := certs.load(); !errors.As(err, &hinted) || hinted.Hint == "" {
		t.Errorf("no hint in %v", err)
	}
}

func newCertificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return writeFile(t, "cert.pem", string(certPEM)),
		writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))), roots
}
