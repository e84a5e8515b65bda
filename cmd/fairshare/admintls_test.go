package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(template, nil)
	a.key, a.file = key, writeFile(t, "ca.pem", pemText("CERTIFICATE", der))
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign signs a certificate with the key of the authority, or with its own if signer is nil.
func (a *authority) sign(template, signer *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.key
	if signer == nil {
		signer, by = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, by); err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue returns the files of a new certificate for 127.0.0.1.
func (a *authority) issue(usage x509.ExtKeyUsage, until time.Time) (certFile, keyFile string) {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		a.t.Fatal(err)
	}
	der, key := a.sign(&x509.Certificate{SerialNumber: serial, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage}}, a.cert)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return writeFile(a.t, "cert.pem", pemText("CERTIFICATE", der)), writeFile(a.t, "key.pem",
		pemText("PRIVATE KEY", keyDER))
}

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// askTLS asks for a path on a new connection, with a certificate if certFile is not "".
func askTLS(t *testing.T, url string, ca *authority, certFile, keyFile, token string) (status int, body string,
	err error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	config := &tls.Config{RootCAs: roots}
	if certFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// On an address of all machines, a certificate of the right authority counts as the token, and nothing else does.
func TestAdminWithClientCertificates(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	site, clients, other := newAuthority(t), newAuthority(t), newAuthority(t)
	serverCert, serverKey := site.issue(x509.ExtKeyUsageServerAuth, hour)
	right, rightKey := clients.issue(x509.ExtKeyUsageClientAuth, hour)
	expired, expiredKey := clients.issue(x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Minute))
	server, otherKey := clients.issue(x509.ExtKeyUsageServerAuth, hour)
	wrong, wrongKey := other.issue(x509.ExtKeyUsageClientAuth, hour)
	files := []string{"--admin-cert", serverCert, "--admin-key", serverKey, "--admin-client-ca", clients.file}
	const token = "0123456789abcdef0123456789abcdef"
	tokenFile := writeFile(t, "token", token+"\n")
	for _, withToken := range []bool{false, true} {
		args := append([]string{"--upstream", "http://127.0.0.1:9", "--admin", "0.0.0.0:0"}, files...)
		if withToken {
			args = append(args, "--admin-token-file", tokenFile)
		}
		s := startServe(t, "rules: []\n", args...)
		_, port, _ := net.SplitHostPort(s.stderr.wait(`admin: https://(\S+): /metrics`))
		url := "https://127.0.0.1:" + port
		byToken := 401
		if withToken {
			byToken = 200
		}
		for _, c := range []struct {
			name, path, cert, key, token string
			want                         int // 0: the connection fails
		}{
			{"a certificate", "/metrics", right, rightKey, "", 200},
			{"a certificate", "/api/v1/now", right, rightKey, "", 200},
			{"a certificate, a wrong token", "/metrics", right, rightKey, "wrong", 200},
			{"nothing", "/metrics", "", "", "", 401},
			{"nothing", "/api/v1/now", "", "", "", 401},
			{"nothing", "/healthz", "", "", "", 200},
			{"a certificate", "/", right, rightKey, "", 200}, // with a token: the page that asks for it
			{"the token", "/metrics", "", "", token, byToken},
			{"an empty token", "/metrics", "", "", " ", 401},
			{"an expired certificate", "/metrics", expired, expiredKey, token, 0},
			{"a certificate of a server", "/metrics", server, otherKey, token, 0},
			{"the wrong authority", "/metrics", wrong, wrongKey, token, 0},
		} {
			status, body, err := askTLS(t, url+c.path, site, c.cert, c.key, c.token)
			if status != c.want || (err != nil) != (c.want == 0) {
				t.Errorf("%s (token file: %v): %d %v, want %d: %s", c.name, withToken, status, err, c.want, body)
			}
		}
		if status, body, err := askTLS(t, url+"/rules", site, "", "", ""); status != 401 && !withToken ||
			strings.Contains(body, "<table") {
			t.Errorf("pages without a certificate (token file: %v): %d %v %s", withToken, status, err, body)
		}
		if resp, err := http.Get("http://127.0.0.1:" + port + "/metrics"); err != nil || resp.StatusCode != 400 {
			t.Errorf("without TLS: %v %v", resp, err)
		}
		if withToken {
			continue
		}
		for _, c := range []struct {
			args []string
			want string // on stderr; "": it works
		}{
			{[]string{"--admin", url, "--admin-ca", site.file, "--admin-cert", right, "--admin-key", rightKey}, ""},
			{[]string{"--admin", url, "--admin-ca", site.file}, "no client certificate was sent|--admin-cert FILE"},
			{[]string{"--admin", url, "--admin-ca", other.file}, "is not valid: x509: |hint: --admin-ca FILE"},
			{[]string{"--admin", url, "--admin-ca", site.file, "--admin-cert", expired, "--admin-key", expiredKey},
				"refuses the connection|has to be valid"},
			{[]string{"--admin", "127.0.0.1:" + port}, "write --admin https://127.0.0.1:" + port},
			{[]string{"--admin", "https://" + s.addr}, "write --admin http://" + s.addr},
			{[]string{"--admin", s.addr, "--admin-ca", site.file}, "write https:// before the address"},
			{[]string{"--admin", url, "--admin-cert", right}, "belong together"},
			{[]string{"--admin", url, "--admin-ca", rightKey}, "has no certificate"},
		} {
			var out, errs bytes.Buffer
			code := run(append([]string{"status"}, c.args...), &cli.Environment{Context: t.Context(), Stdout: &out,
				Stderr: &errs})
			if (code == 0) != (c.want == "") || c.want == "" && !strings.Contains(out.String(), "enforcing") {
				t.Errorf("status %v: %d %s%s", c.args, code, out.String(), errs.String())
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("status %v: %q is missing in: %s", c.args, want, errs.String())
				}
			}
		}
	}
}

// A renewed certificate and another authority are used without
// a restart.
func TestAdminCertificatesAreLoadedAgain(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	site, clients, next := newAuthority(t), newAuthority(t), newAuthority(t)
	certFile, keyFile := site.issue(x509.ExtKeyUsageServerAuth, hour)
	right, rightKey := clients.issue(x509.ExtKeyUsageClientAuth, hour)
	later, laterKey := next.issue(x509.ExtKeyUsageClientAuth, hour)
	caFile := filepath.Join(t.TempDir(), "clients.pem")
	replace := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err == nil {
			err = os.Chtimes(to, hour, hour) // differs from before for sure
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(clients.file, caFile)
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--admin", "127.0.0.1:0",
		"--admin-cert", certFile, "--admin-key", keyFile, "--admin-client-ca", caFile)
	url := "https://" + s.stderr.wait(`admin: https://(\S+): /metrics`)
	if status, _, err := askTLS(t, url+"/metrics", site, right, rightKey, ""); status != 200 {
		t.Fatal(status, err)
	}
	replace(next.file, caFile)
	if err := os.Chtimes(caFile, hour.Add(time.Hour), hour.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	newCert, newKey := next.issue(x509.ExtKeyUsageServerAuth, hour)
	replace(newKey, keyFile)
	replace(newCert, certFile)
	s.stderr.wait(`(was loaded again; it is valid until)`)
	if status, _, err := askTLS(t, url+"/metrics", next, later, laterKey, ""); status != 200 {
		t.Error("the new certificates:", status, err)
	}
	if status, _, err := askTLS(t, url+"/metrics", next, right, rightKey, ""); err == nil {
		t.Error("a certificate of the authority before:", status)
	}
	if _, _, err := askTLS(t, url+"/metrics", site, later, laterKey, ""); err == nil {
		t.Error("the listener still shows its old certificate")
	}
}

// TLS alone does not authorize clients on other machines, and faulty files are named.
func TestAdminRefusesFaultyFiles(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.issue(x509.ExtKeyUsageServerAuth, time.Now().Add(time.Hour))
	for _, c := range []struct{ cert, key, clientCA, want string }{
		{cert, key, "", "other machines could read it|--admin-client-ca FILE"},
		{cert, key, writeFile(t, "empty", "hello"), "empty has no certificate|authorities that sign those"},
		{cert, key, key, `has a block of type "PRIVATE KEY"`},
		{cert, key, "/nowhere", "open /nowhere"},
		{a.file, key, a.file, "private key does not match public key"},
	} {
		args := []string{"serve", "--state", t.TempDir(), "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9",
			"--admin", "0.0.0.0:0", "--admin-cert", c.cert, "--admin-key", c.key}
		if c.clientCA != "" {
			args = append(args, "--admin-client-ca", c.clientCA)
		}
		var out bytes.Buffer
		code := run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out})
		for want := range strings.SplitSeq(c.want, "|") {
			if code == 0 || !strings.Contains(out.String(), want) {
				t.Errorf("%v: %d, %q is missing in: %s", c, code, want, out.String())
			}
		}
	}
}
