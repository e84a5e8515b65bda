//go:build unix

package acmetest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

var program string

func TestMain(m *testing.M) {
	os.Setenv("PEBBLE_VA_NOSLEEP", "1")
	dir, err := os.MkdirTemp("", "acmetest")
	if err != nil {
		log.Fatal(err)
	}
	program = filepath.Join(dir, "fairshare")
	build := exec.Command("go", "build", "-o", program, "./cmd/fairshare")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("%v\n%s", err, out)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// authority is a CA whose every name has the address 127.0.0.1.
type authority struct {
	server   *httptest.Server
	issuer   *x509.CertPool
	roots    string // of the CA's own certificate
	requests atomic.Int64
	orders   atomic.Int64
	away     atomic.Bool
}

// newAuthority returns a CA that checks names by TLS-ALPN-01 on a port.
func newAuthority(t *testing.T, port int, life time.Duration) *authority {
	t.Helper()
	return newAuthorityAt(t, 1, port, life)
}

// newAuthorityAt returns a CA that checks names by HTTP-01 and TLS-ALPN-01 on a port each.
func newAuthorityAt(t *testing.T, httpPort, port int, life time.Duration) *authority {
	t.Helper()
	resolver, err := net.Listen("tcp", "127.0.0.1:0") // pebble asks by TCP
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: resolver, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			answer.Answer = []dns.RR{&dns.A{A: net.IPv4(127, 0, 0, 1), Hdr: dns.RR_Header{
				Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}}}
		}
		w.WriteMsg(answer)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1,
		map[string]ca.Profile{"default": {ValidityPeriod: uint64(life / time.Second)}})
	checks := va.New(quiet, httpPort, port, false, resolver.Addr().String(), store)
	front := wfe.New(quiet, store, checks, issuer, []string{"ca.test"}, false, false, 1, 1)
	handler := front.Handler()
	a := &authority{issuer: x509.NewCertPool()}
	a.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		if a.away.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/order-plz" {
			w = created{w, &a.orders}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.server.Close)
	a.issuer.AddCert(issuer.GetRootCert(0).Cert)
	a.roots = filepath.Join(t.TempDir(), "roots.pem")
	write(t, a.roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})))
	return a
}

// A created counts the answers 201. The CA also refuses some requests, so that clients repeat them.
type created struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c created) WriteHeader(status int) {
	if status == http.StatusCreated {
		c.n.Add(1)
	}
	c.ResponseWriter.WriteHeader(status)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// A process runs serve.
type process struct {
	*exec.Cmd
	addr   string
	issuer *x509.CertPool
	lines  chan string
	mu     sync.Mutex
	all    []string
}

func (a *authority) policy(upstream, more string, hosts ...string) string {
	var sites strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&sites, "  %s: %s\n", host, upstream)
	}
	return fmt.Sprintf("tls: {acme: {accept_terms: true, email: admin@example.test, directory: %s/dir, roots: %s}%s}\n"+
		"robots: off\nsites:\n%srules: [{name: all, limit: {requests: 100000, per: 1m}}]\n", a.server.URL, a.roots, more, &sites)
}

func (a *authority) start(t *testing.T, port int, policy, state string) *process {
	t.Helper()
	p := &process{addr: fmt.Sprintf("127.0.0.1:%d", port), issuer: a.issuer, lines: make(chan string, 1000)}
	p.Cmd = exec.Command(program, "serve", "-c", policy, "--listen", p.addr, "--state", state)
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.mu.Lock()
			p.all = append(p.all, s.Text())
			p.mu.Unlock()
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-read
		p.Wait()
		if t.Failed() {
			t.Log(strings.Join(p.all, "\n"))
		}
	})
	return p
}

// await waits for a line of the log.
func (p *process) await(t *testing.T, pattern string) {
	t.Helper()
	re, end := regexp.MustCompile(pattern), time.After(30*time.Second)
	for {
		select {
		case line := <-p.lines:
			if re.MatchString(line) {
				return
			}
		case <-end:
			t.Fatalf("no line matches %s", pattern)
		}
	}
}

func (p *process) count(pattern string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.all {
		if regexp.MustCompile(pattern).MatchString(line) {
			n++
		}
	}
	return n
}

func (p *process) dial(host string) (*tls.Conn, error) {
	return tls.Dial("tcp", p.addr, &tls.Config{ServerName: host, RootCAs: p.issuer})
}

func (p *process) serial(t *testing.T, host string) string {
	t.Helper()
	conn, err := p.dial(host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// client returns a function that asks for a page of a host, on one connection.
func (p *process) client(host string) func() (string, error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.issuer},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		},
	}}
	return func() (string, error) {
		resp, err := client.Get("https://" + host + "/")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
}

func newSite(t *testing.T) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "site "+r.Host)
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// Hosts of the policy get certificates. They are stored, and served while the CA is
// away. Clients cannot have the CA asked for anything.
func TestCertificatesOfSites(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	a, site := newAuthority(t, port, 90*24*time.Hour), newSite(t)
	policy, state := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "state")
	write(t, policy, a.policy(site, "", "one.example.test", "two.example.test"))
	p := a.start(t, port, policy, state)
	p.await(t, "certificate of .*: obtained")
	p.await(t, "certificate of .*: obtained")
	for _, host := range []string{"one.example.test", "two.example.test"} {
		if text, err := p.client(host)(); err != nil || text != "site "+host {
			t.Errorf("%s: %q %v", host, text, err)
		}
	}
	before := a.requests.Load()
	for _, host := range []string{"other.example.test", "x.one.example.test", ""} {
		if conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: host, InsecureSkipVerify: true}); err == nil {
			conn.Close()
			t.Errorf("%q has a certificate", host)
		}
	}
	if conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: "one.example.test", InsecureSkipVerify: true,
		NextProtos: []string{"acme-tls/1"}}); err == nil {
		conn.Close()
		t.Error("a challenge is answered that the CA did not set")
	}
	if n := a.requests.Load(); n != before {
		t.Errorf("handshakes sent %d requests to the CA", n-before)
	}
	files := 0
	filepath.Walk(filepath.Join(state, "acme"), func(name string, info os.FileInfo, err error) error {
		want := os.FileMode(0o600)
		if err != nil || info.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v", name, info.Mode().Perm(), want)
		}
		return nil
	})
	if files < 3 { // the account's key and two certificates
		t.Errorf("%d files", files)
	}
	serial := p.serial(t, "one.example.test")
	p.Process.Kill()
	p.Wait()

	a.away.Store(true)
	p = a.start(t, port, policy, state)
	p.await(t, "protects")
	if got := p.serial(t, "one.example.test"); got != serial {
		t.Errorf("certificate %s, want the stored one %s", got, serial)
	}

	// A reload adds hosts while the CA is away; connections continue.
	old := p.client("one.example.test")
	if _, err := old(); err != nil {
		t.Fatal(err)
	}
	write(t, policy, a.policy(site, "", "one.example.test", "three.example.test", "four.example.test"))
	p.Process.Signal(syscall.SIGHUP)
	p.await(t, "warning: no certificate for .*the CA at 127.0.0.1:.* does not answer")
	before = a.requests.Load()
	for range 50 {
		if conn, err := p.dial("three.example.test"); err == nil {
			conn.Close()
			t.Fatal("a handshake without a certificate succeeded")
		}
	}
	if n := a.requests.Load() - before; n > 2 { // the attempt for the other new host
		t.Errorf("50 handshakes: %d requests to the CA", n)
	}
	if conn, err := p.dial("two.example.test"); err == nil {
		conn.Close()
		t.Error("a host that is gone still has a certificate")
	}
	if text, err := old(); err != nil || text != "site one.example.test" {
		t.Errorf("after the reload: %q %v", text, err)
	}
	if n := p.count("no certificate|TLS handshake error.*no certificates"); n != 1 {
		t.Errorf("%d lines for missing certificates, want 1", n)
	}
	a.away.Store(false)
	p.Process.Signal(syscall.SIGHUP) // tries at once
	p.await(t, "certificate of .*: obtained")
	p.await(t, "certificate of .*: obtained")
	if text, err := p.client("three.example.test")(); err != nil || text != "site three.example.test" {
		t.Errorf("%q %v", text, err)
	}
}

// Certificates are renewed while requests are answered.
func TestRenewal(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	a := newAuthority(t, port, 20*time.Second)
	policy := filepath.Join(dir, "policy.yaml")
	write(t, policy, a.policy(newSite(t), "", "one.example.test"))
	p := a.start(t, port, policy, filepath.Join(dir, "state"))
	p.await(t, "certificate of one.example.test: obtained")
	serial := p.serial(t, "one.example.test")
	p.await(t, "certificate of one.example.test: renewed")
	if p.serial(t, "one.example.test") == serial {
		t.Error("the old certificate is still served")
	}
}

// Two processes with one state folder order one certificate for each host, and each
// answers challenges of the other.
func TestProcessesShareCertificates(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	a, site := newAuthority(t, port, 90*24*time.Hour), newSite(t)
	policy := filepath.Join(dir, "policy.yaml")
	write(t, policy, a.policy(site, "", "one.example.test", "two.example.test", "three.example.test"))
	first := a.start(t, freePort(t), policy, filepath.Join(dir, "state")) // the CA does not reach it
	second := a.start(t, port, policy, filepath.Join(dir, "state"))
	for _, p := range []*process{first, second} {
		for _, host := range []string{"one.example.test", "two.example.test", "three.example.test"} {
			for end := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				if conn, err := p.dial(host); err == nil {
					conn.Close()
					break
				} else if time.Now().After(end) {
					t.Fatalf("%s: %v", host, err)
				}
			}
		}
	}
	if n := a.orders.Load(); n != 3 {
		t.Errorf("%d orders, want 3", n)
	}
}

// The operator's certificate is served for the names that it contains; the CA is not
// asked for them.
func TestOwnCertificateNextToACME(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	a := newAuthority(t, port, 90*24*time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(4711), DNSNames: []string{"*.example.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "own.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, filepath.Join(dir, "own.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	policy := filepath.Join(dir, "policy.yaml")
	write(t, policy, a.policy(newSite(t), ", cert: own.pem, key: own.key", "one.example.test", `"*.example.test"`,
		"other.test"))
	p := a.start(t, port, policy, filepath.Join(dir, "state"))
	p.await(t, "certificate of other.test: obtained")
	for host, own := range map[string]bool{"one.example.test": true, "x.example.test": true, "unknown.test": true,
		"other.test": false} {
		conn, err := tls.Dial("tcp", p.addr, &tls.Config{ServerName: host, InsecureSkipVerify: true})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if serial := conn.ConnectionState().PeerCertificates[0].SerialNumber; (serial.Int64() == 4711) != own {
			t.Errorf("%s: certificate %v, own %t", host, serial, own)
		}
		conn.Close()
	}
	// The CA may turn an order down, for example because of an old nonce. Then it is sent again.
	err = filepath.WalkDir(filepath.Join(dir, "state"), func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "example.test") {
			t.Errorf("%s: a certificate was asked for a host that has one", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A CA that cannot check a name by TLS-ALPN-01 checks it by HTTP-01.
func TestCertificateByHTTP(t *testing.T) {
	port, plain, dir := freePort(t), freePort(t), t.TempDir()
	a := newAuthorityAt(t, plain, freePort(t), 90*24*time.Hour)
	policy := filepath.Join(dir, "policy.yaml")
	write(t, policy, fmt.Sprintf("listen_http: 127.0.0.1:%d\n", plain)+a.policy(newSite(t), "", "one.example.test"))
	p := a.start(t, port, policy, filepath.Join(dir, "state"))
	p.await(t, "certificate of one.example.test: obtained")
	if text, err := p.client("one.example.test")(); err != nil || text != "site one.example.test" {
		t.Errorf("%q %v", text, err)
	}
}

// The log says why the CA refused a name, once.
func TestRefusedName(t *testing.T) {
	port, dir := freePort(t), t.TempDir()
	a := newAuthority(t, freePort(t), 90*24*time.Hour) // it checks names on a port where nothing listens
	policy := filepath.Join(dir, "policy.yaml")
	write(t, policy, a.policy(newSite(t), "", "one.example.test"))
	p := a.start(t, port, policy, filepath.Join(dir, "state"))
	p.await(t, "warning: no certificate for one.example.test: the CA could not check the name: .*connect")
}
