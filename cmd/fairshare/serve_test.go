package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A watched writer lets tests wait for what is written to it.
type watched struct {
	mu   sync.Mutex
	more *sync.Cond
	text bytes.Buffer
}

func newWatched() *watched {
	w := &watched{}
	w.more = sync.NewCond(&w.mu)
	return w
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more.Broadcast()
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// wait returns what pattern's group fits, once it was written.
func (w *watched) wait(pattern string) string {
	re := regexp.MustCompile(pattern)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if m := re.FindSubmatch(w.text.Bytes()); m != nil {
			return string(m[len(m)-1])
		}
		w.more.Wait()
	}
}

// A running serve.
type running struct {
	addr   string
	stderr *watched
	stop   func() int // ends it and returns the exit code
}

// startServe runs serve with a policy on a port of the kernel's choice.
func startServe(t *testing.T, policy string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &running{stderr: newWatched()}
	args = append([]string{"serve", "--listen", "127.0.0.1:0"}, ownState(t, args)...)
	if policy != "" {
		args = append(args, "-c", writeFile(t, "site.yaml", policy))
	}
	exit := make(chan int, 1)
	go func() { exit <- run(args, &cli.Environment{Context: ctx, Stdout: io.Discard, Stderr: s.stderr}) }()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-exit
	})
	t.Cleanup(func() { s.stop() })
	s.addr = s.stderr.wait(`(?:https?://)?(\S+) protects`)
	return s
}

// ownState adds a state folder to the arguments of a serve that has none, so
// that tests do not remember each other's clients.
func ownState(t *testing.T, args []string) []string {
	if slices.Contains(args, "--state") {
		return args
	}
	return append([]string{"--state", filepath.Join(t.TempDir(), "state")}, args...)
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// askFrom asks as a client behind a proxy on this machine.
func askFrom(t *testing.T, url, client string) *http.Response {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", client)
	req.Header.Set("User-Agent", "hammer/1 \u202e")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

const threeInAnHour = `
clients: {trusted_proxies: loopback}
contact: shop@example.org
rules:
  - name: three
    limit: {requests: 3, per: 1h, by: addr, algorithm: quiet}
`

func TestServeSlowsOneAndPassesTheOther(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, "welcome")
	}))
	defer site.Close()
	s := startServe(t, threeInAnHour, "--upstream", site.URL)
	for i := range 6 {
		want, after := 200, ""
		if i >= 3 {
			want, after = 429, "3600"
		}
		if resp := askFrom(t, "http://"+s.addr+"/page?secret=1", "203.0.113.1"); resp.StatusCode != want ||
			resp.Header.Get("Retry-After") != after {
			t.Errorf("request %d of the hammering client: %d %v", i, resp.StatusCode, resp.Header)
		}
	}
	if resp := askFrom(t, "http://"+s.addr+"/", "203.0.113.2"); resp.StatusCode != 200 {
		t.Errorf("the other client: %d", resp.StatusCode)
	}
	if code := s.stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	said := s.stderr.String()
	for _, want := range []string{
		"fairshare: http://" + s.addr + " protects " + site.URL + ", enforcing\n",
		"site.yaml, 1 rule, 64MiB of memory for counters\n",
		"fairshare: clients: by X-Forwarded-For of loopback; clients that another local peer names in a header count provisionally\n",
		"fairshare: journal: refusals, as lines of json, here; to load the policy again: kill -HUP ",
		"fairshare: stopping; requests in progress have 10s to end; a second SIGTERM or SIGINT stops at once\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("not said: %s", want)
		}
	}
	lines := 0
	var id any
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		lines++
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if lines == 2 { // the others, at the end of their minute
			if e["client"] != "203.0.113.1" || e["path"] != "/page" || e["rule"] != "three" || e["repeated"] != 2.0 ||
				e["id"] != id {
				t.Errorf("journal: %s", line)
			}
			continue
		}
		id = e["id"]
		if e["client"] != "203.0.113.1" || e["method"] != "GET" || e["host"] != s.addr || e["path"] != "/page" ||
			e["rule"] != "three" || e["action"] != "refuse" ||
			e["dry_run"] != false || e["cookies"] != 0.0 || e["status"] != 429.0 || e["retry_after"] != 3600.0 ||
			e["used"] != 3.0 || e["allowed"] != 3.0 || len(e["id"].(string)) != 10 ||
			e["user_agent"] != "hammer/1 \u202e" || strings.Contains(line, "\u202e") {
			t.Errorf("journal: %s", line)
		}
	}
	if lines != 2 {
		t.Errorf("%d lines in the journal, want 2:\n%s", lines, said)
	}
	if strings.Contains(said, "secret") {
		t.Error("the journal holds the query")
	}
}

func TestServeWithoutAFileStopsHammering(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	for i := range 1300 {
		resp, err := http.Get("http://" + s.addr + "/page")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == 429 {
			if i == 0 || resp.Header.Get("Retry-After") == "" {
				t.Errorf("request %d: %v", i, resp.Header)
			}
			return
		}
	}
	t.Error("1300 misses in a row were let through")
}

func TestServeDryRun(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer site.Close()
	s := startServe(t, threeInAnHour, "--upstream", site.URL, "--dry-run")
	for i := range 5 {
		if resp := askFrom(t, "http://"+s.addr, "203.0.113.1"); resp.StatusCode != 200 {
			t.Errorf("request %d: %d", i, resp.StatusCode)
		}
	}
	s.stop()
	if said := s.stderr.String(); !strings.Contains(said, "dry run: every request passes") ||
		strings.Count(said, `"dry_run":true`) != 2 {
		t.Errorf("said:\n%s", said)
	}
}

func TestServeDrains(t *testing.T) {
	arrived, leave := make(chan bool), make(chan bool)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-leave
		fmt.Fprint(w, "done")
	}))
	defer site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	got := make(chan string)
	go func() {
		resp, err := http.Get("http://" + s.addr)
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got <- string(body)
	}()
	<-arrived
	code := make(chan int)
	go func() { code <- s.stop() }()
	s.stderr.wait(`(stopping)`)
	leave <- true
	if body := <-got; body != "done" {
		t.Errorf("the request in progress got %q", body)
	}
	if c := <-code; c != cli.ExitOK {
		t.Errorf("exit code %d", c)
	}
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		conn.Close()
		t.Error("the address is still taken")
	}
}

func TestServeCutsOffAfterGrace(t *testing.T) {
	arrived, leave := make(chan bool), make(chan bool)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-leave
	}))
	defer site.Close()
	defer close(leave)
	s := startServe(t, "grace: 1ms\nrules: [{use: default}]\n", "--upstream", site.URL)
	failed := make(chan error)
	go func() {
		_, err := http.Get("http://" + s.addr)
		failed <- err
	}()
	<-arrived
	if code := s.stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if err := <-failed; err == nil {
		t.Error("the request got an answer")
	}
	if said := s.stderr.String(); !strings.Contains(said, "have been cut off") {
		t.Errorf("said:\n%s", said)
	}
}

func TestServeWithoutItsUpstream(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	s.stderr.wait(`(warning: upstream \S+ does not answer: .*refused)`)
	if resp := askFrom(t, "http://"+s.addr, "203.0.113.1"); resp.StatusCode != 502 {
		t.Errorf("%d, want 502", resp.StatusCode)
	}
	s.stderr.wait(`(upstream \S+ does not answer: .*refused)`)
}

func TestServeFaults(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const policy = "rules: [{use: default}]\n"
	cert := writeFile(t, "cert.pem", "no certificate")
	for _, test := range []struct {
		name   string
		policy string
		args   []string
		code   int
		want   []string
	}{
		{"no upstream", "", nil, cli.ExitUsage, []string{"fairshare: no upstream is given\n",
			"hint: fairshare serve --upstream http://127.0.0.1:3000"}},
		{"no scheme", "", []string{"--upstream", "127.0.0.1:3000"}, cli.ExitUsage,
			[]string{`upstream "127.0.0.1:3000" is not a URL`, "hint: "}},
		{"port in use", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", taken.Addr().String()},
			cli.ExitFailed, []string{taken.Addr().String() + " is in use\n", "hint: another program"}},
		{"no port", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", "127.0.0.1"}, cli.ExitUsage,
			[]string{"missing port", "hint: an address is a host and a port"}},
		{"not ours", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", "192.0.2.1:8080"}, cli.ExitFailed,
			[]string{"192.0.2.1:8080 is not an address of this machine\n", "hint: "}},
		{"bad certificate", fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, cert) + policy,
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed,
			[]string{"certificate " + cert, "hint: both are PEM files"}},
		{"no certificate", "tls: {cert: /nowhere/a, key: /nowhere/b}\n" + policy,
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed,
			[]string{"/nowhere/a", "no such file", "hint: "}},
		{"faulty policy", "rules:\n  - {name: a, alow: true}\n  - {name: a, block: 7}\n",
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed, []string{`:2:`, `hint: `, `:3:`}},
		{"unknown flag", "", []string{"--upstraem", "x"}, cli.ExitUsage, []string{"hint: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"serve"}, test.args...)
			if test.policy != "" {
				args = append(args, "-c", writeFile(t, "site.yaml", test.policy))
			}
			var stdout, stderr bytes.Buffer
			code := run(args, &cli.Environment{Context: t.Context(), Stdout: &stdout, Stderr: &stderr})
			if code != test.code || stdout.Len() > 0 {
				t.Errorf("exit code %d, want %d; stdout %q", code, test.code, stdout.String())
			}
			for _, want := range test.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q in:\n%s", want, stderr.String())
				}
			}
		})
	}
}

func TestServeTLS(t *testing.T) {
	seen := make(chan *http.Request, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r }))
	defer site.Close()
	certFile, keyFile, roots := newCertificate(t)
	policy := writeFile(t, "site.yaml", fmt.Sprintf("tls: {cert: %s, key: %s}\nrules: [{use: default}]\n", certFile,
		filepath.Join("..", filepath.Base(filepath.Dir(keyFile)), "key.pem")))
	s := startServe(t, "", "--upstream", site.URL, "-c", policy) // the key's path begins at the policy
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + s.addr + "/a%2f|b")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		r := <-seen
		if resp.StatusCode != 200 || resp.ProtoAtLeast(2, 0) != http2 || r.Proto != "HTTP/1.1" ||
			r.Header.Get("X-Forwarded-Proto") != "https" || r.Host != s.addr {
			t.Errorf("HTTP/2 %v: %s; the upstream got %s %s %v", http2, resp.Proto, r.Proto, r.Host, r.Header)
		}
	}
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11,
		MinVersion: tls.VersionTLS10})
	if err == nil {
		conn.Close()
		t.Error("TLS 1.1 was taken")
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

func TestServePROXYProtocol(t *testing.T) {
	seen := make(chan string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		seen <- r.Header.Get("X-Forwarded-For")
	}))
	defer site.Close()
	s := startServe(t, "proxy_protocol: true\n"+threeInAnHour, "--upstream", site.URL)
	ask := func(first string) string {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn,
			first+"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.9\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		status, _, _ := strings.Cut(string(answer), "\r\n")
		return status
	}
	for range 3 {
		if status := ask("PROXY TCP4 203.0.113.1 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 200 OK" {
			t.Errorf("answer %q", status)
		}
		if got := <-seen; got != "203.0.113.1" {
			t.Errorf("X-Forwarded-For: %s", got)
		}
	}
	if status := ask("PROXY TCP4 203.0.113.1 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("fourth: %q", status)
	}
	if status := ask("PROXY TCP4 203.0.113.2 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 200 OK" {
		t.Errorf("another: %q", status)
	}
	if status := ask(""); strings.Contains(status, "200") {
		t.Errorf("without the header: %q", status)
	}
}

// echo answers with the headers that tell who asks.
func echo(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "fairshare") &&
				!slices.Contains([]string{"Fairshare-Client", "Fairshare-Bot", "Fairshare-Bot-State",
					"Fairshare-Session-Ttl"}, name) {
				fmt.Fprintf(w, "strange header %s ", name)
			}
		}
		fmt.Fprint(w, r.Header["Fairshare-Client"], r.Header["Fairshare-Bot"], r.Header["Fairshare-Bot-State"],
			r.Header["Fairshare-Session-Ttl"])
	}))
	t.Cleanup(site.Close)
	return site
}
