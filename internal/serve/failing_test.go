package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
)

// brokenLimiter is a limiter whose counters cannot be reached.
type brokenLimiter struct{ fairshare.Limiter }

var errNoCounters = errors.New("the counters are out of reach")

func (brokenLimiter) Take(context.Context, time.Time, []fairshare.Take, []fairshare.Tally) error {
	return errNoCounters
}

// startBroken starts a server with a limiter that fails.
func startBroken(t *testing.T, policy string) *server {
	t.Helper()
	return startServer(t, policy, func(s *server) {
		rt := s.runtime.Load()
		var err error
		if rt.Guard, err = fairshare.NewGuard(&rt.File.Policy, brokenLimiter{rt.Limiter}, membans.New(0)); err != nil {
			t.Fatal(err)
		}
		s.guard.Replace(rt.Guard, s.guardOptions(rt))
	})
}

// startServer starts a server after change, which may be nil.
func startServer(t *testing.T, policy string, change func(*server)) *server {
	t.Helper()
	return startServerTo(t, policy, io.Discard, change)
}

// startServerTo is startServer with a log.
func startServerTo(t *testing.T, policy string, stderr io.Writer, change func(*server)) *server {
	t.Helper()
	opts := Options{Flags: Flags{Policy: writeFile(t, "site.yaml", policy), Listen: "127.0.0.1:0"},
		State: t.TempDir(), Now: time.Now, Stderr: stderr}
	file, err := opts.load(opts.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := newServer(ctx, file, opts)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.close()
	})
	return s
}

func TestServeWithFailingCounters(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "a page")
	}))
	t.Cleanup(site.Close)
	for _, test := range []struct {
		setting string
		want    int
		logged  string
	}{
		{"", 503, "3 requests were answered 503"},
		{"fail: closed", 503, "3 requests were answered 503"},
		{"fail: open", 200, "3 requests passed without being judged"},
		{"dry_run: true", 200, "3 requests passed without being judged"},
	} {
		t.Run(test.setting, func(t *testing.T) {
			t.Parallel()
			s := startBroken(t, fmt.Sprintf(`
upstream: %s
%s
rules:
  - {name: hidden, match: {path: /admin}, block: true}
  - {name: ceiling, limit: {requests: 100, per: 1h}}
`, site.URL, test.setting))
			ask := func(path string) (int, string) {
				t.Helper()
				resp, err := http.Get("http://" + s.listener.Addr().String() + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(body)
			}
			for range 3 {
				if code, body := ask("/"); code != test.want || code == 200 && body != "a page" {
					t.Errorf("answered %d %q, want %d", code, body, test.want)
				}
			}
			if code, _ := ask("/admin"); code != 403 && !strings.Contains(test.setting, "dry_run") {
				t.Errorf("a blocked page is answered %d, want 403", code)
			}
			lines := strings.Join(s.policy.FrequentReport(), "\n")
			if !strings.Contains(lines, test.logged) || !strings.HasSuffix(lines, "(the counters are out of reach)") &&
				!strings.Contains(lines, "the counters are out of reach") {
				t.Errorf("reported %q, want %q", lines, test.logged)
			}
		})
	}
}
