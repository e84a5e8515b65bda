package site_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/serve"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/site"
	"fairshare/sqlregistry"
)

const policy = `
clients: {trusted_proxies: [loopback]}
dns: {server: "127.0.0.1:1"}
lists: {listed: {file: listed.txt}}
asn: {file: asn.csv}
rules:
  - {name: listed, match: {addr: listed}, block: true}
  - {name: forged, match: {bot: forged}, block: true}
  - {name: labelled, match: {label: bad}, block: true}
  - {name: owned, match: {asn: "Example*"}, block: true}
  - {name: three, limit: {requests: 3, per: 1h}}
`

// A request and its expected status, before and after a reload that adds the rule
// "hidden".
var requests = []struct {
	client, userAgent, path string
	before, after           int
}{
	{"192.0.2.1", "", "/", 403, 403},                  // on the list
	{"203.0.113.1", "", "/", 403, 403},                // has that owner
	{"198.51.100.1", "GPTBot/1.2", "/", 403, 403},     // not from a published range of the bot
	{"198.51.100.2", "", "/", 403, 403},               // has the label
	{"198.51.100.3", "", "/", 403, 403},               // an operator has banned it
	{"198.51.100.4", "", "/", 200, 429},               // the reload keeps the count of each client
	{"198.51.100.5", "", "/", 200, 200},               //
	{"198.51.100.4", "", "/hidden", 200, 403},         // the reload adds a rule
	{"198.51.100.4", "Mozilla/5.0", "/a", 200, 429},   // its third request
	{"198.51.100.4", "Mozilla/5.0", "/a", 429, 429},   //
	{"198.51.100.5", "Mozilla/5.0", "/ok/", 200, 429}, //
}

// The same policy file gives the same verdicts in a program and in serve.
func TestVerdictsAreThoseOfServe(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, path, state string) (ask func(*http.Request) int,
		reload func()){"site": startSite, "serve": startServe} {
		t.Run(name, func(t *testing.T) {
			dir, state := t.TempDir(), t.TempDir()
			path := filepath.Join(dir, "policy.yaml")
			write(t, path, policy)
			write(t, filepath.Join(dir, "listed.txt"), "192.0.2.0/24\n")
			write(t, filepath.Join(dir, "asn.csv"), "203.0.113.0/24,64500,Example Hosting\n")
			decide(t, state)
			ask, reload := start(t, path, state)
			for round, want := range []func(i int) int{
				func(i int) int { return requests[i].before }, func(i int) int { return requests[i].after },
			} {
				for i, r := range requests {
					req := httptest.NewRequest("GET", r.path, nil)
					req.RemoteAddr = "127.0.0.1:1234"
					req.Header.Set("X-Forwarded-For", r.client)
					req.Header.Set("User-Agent", r.userAgent)
					if got := ask(req); got != want(i) {
						t.Errorf("round %d, request %d from %s: %d, want %d", round, i, r.client, got, want(i))
					}
				}
				write(t, path, policy+"  - {name: hidden, match: {path: /hidden}, block: true}\n")
				reload()
			}
		})
	}
}

// decide writes an operator's ban and label to the registry.
func decide(t *testing.T, state string) {
	t.Helper()
	ctx := t.Context()
	store, err := sqlregistry.Open(ctx, filepath.Join(state, "registry.db"), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	banned, _ := fairshare.ParseClientID("198.51.100.3")
	if err := store.SetOverride(ctx, registry.OverrideRecord{Client: banned, Action: fairshare.Block,
		Since: time.Now()}); err != nil {
		t.Fatal(err)
	}
	labelled, _ := fairshare.ParseClientID("198.51.100.2")
	if err := store.Label(ctx, registry.Label{Client: labelled, Name: "bad"}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") })

func startSite(t *testing.T, path, state string) (func(*http.Request) int, func()) {
	s, err := site.Open(t.Context(), path, site.Options{State: state, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	h := s.Handler(page)
	ask := func(r *http.Request) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	reload := func() {
		if err := s.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return ask, reload
}

// A syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// find waits for a match of a pattern and returns its first group.
func (b *syncBuffer) find(t *testing.T, pattern string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.mu.Lock()
		found := regexp.MustCompile(pattern).FindStringSubmatch(b.buf.String())
		b.mu.Unlock()
		if found != nil {
			return found[1]
		}
	}
	t.Fatalf("no %q in the log:\n%s", pattern, b.buf.String())
	return ""
}

func startServe(t *testing.T, path, state string) (func(*http.Request) int, func()) {
	upstream := httptest.NewServer(page)
	t.Cleanup(upstream.Close)
	ctx, stop := context.WithCancel(context.Background())
	log, reloads, ended := new(syncBuffer), make(chan os.Signal), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, serve.Options{Flags: serve.Flags{Policy: path, Listen: "127.0.0.1:0",
			Upstream: upstream.URL}, State: state, Now: time.Now, Stderr: log, Reload: reloads})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	addr := log.find(t, `http://(\S+) protects`)
	ask := func(r *http.Request) int {
		sent, _ := http.NewRequest(r.Method, "http://"+addr+r.URL.Path, nil)
		sent.Header = r.Header
		resp, err := http.DefaultTransport.RoundTrip(sent)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	return ask, func() {
		reloads <- os.Interrupt
		log.find(t, `(SIGHUP: .* was loaded again)`)
	}
}

func TestErrorsHaveThePositionAndAHint(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	for text, want := range map[string]string{
		"rules: [{name: a, alow: true}]\n": path +
			`:1:19: unknown key: "alow"`,
		"lists: {l: {file: gone.txt}}\nrules: [{match: {addr: l}, block: true, name: a}]\n": path +
			":1:19: list l: file ",
	} {
		write(t, path, text)
		s, err := site.Open(t.Context(), path, site.Options{})
		if err == nil {
			s.Close()
			t.Fatal("no error")
		}
		if !strings.HasPrefix(err.Error(), want) || len(policyfile.Faults(err)) != 1 {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	if _, err := site.Open(t.Context(), "", site.Options{Guard: httpguard.Options{FailOpen: true}}); err == nil ||
		!strings.Contains(err.Error(), "Options.Guard.FailOpen") {
		t.Errorf("a field that the policy file sets: %v", err)
	}
}

// A reload with an error changes nothing, and after Close there is none.
func TestReloadWithAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, "rules: [{name: a, match: {path: /a}, block: true}]\n")
	var log syncBuffer
	s, err := site.Open(t.Context(), path, site.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := s.Handler(page)
	write(t, path, "rules: [{name: a, match: {path: /a}, blok: true}]\n")
	if err := s.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "(hint: ") {
		t.Errorf("error %v", err)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("GET", "/a", nil)); w.Code != 403 {
		t.Errorf("after the error: %d", w.Code)
	}
	write(t, path, "upstream: http://127.0.0.1:3000\ntls: {cert: a, key: b}\nrules: []\n")
	if err := s.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	log.find(t, `(settings="\[tls upstream\]")`)
	s.Close()
	s.Close()
	if err := s.Reload(t.Context()); err != site.ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}
