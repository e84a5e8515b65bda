package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/console"
)

// openServer returns a server that answers no request. Its log goes to w.
func openServer(t *testing.T, policy, state string, w io.Writer) *server {
	t.Helper()
	opts := Options{Flags: Flags{Policy: policy, Listen: "127.0.0.1:0"}, State: state, Now: time.Now, Stderr: w}
	file, err := opts.load(opts.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(t.Context(), file, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What an operator has confirmed is put in force, or nothing is: whichever file of the policy is written between
// the look and the reload.
func TestReloadRefusesAFileThatWasNotShown(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "site.yaml", "sites: {a: {hosts: [a.example.org], upstream: http://127.0.0.1:9, policy: a.yaml}}\n")
	dir := filepath.Dir(policy)
	included, answer := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "text.txt")
	const rules = "rules: [{name: a, match: {path: /a}, block: true, answer: {body_file: text.txt}}, {use: default}]\n"
	overwrite(t, answer, "one")
	overwrite(t, included, rules)
	s := openServer(t, policy, t.TempDir(), io.Discard)
	for _, c := range []struct{ file, was, now string }{
		{included, rules, strings.Replace(rules, "/a", "/b", 1)},
		{included, rules, strings.Replace(rules, "{use: default}",
			"{use: default, override: {pages: {answer: {body: another}}}}", 1)},
		{answer, "one", "two"},
	} {
		overwrite(t, c.file, c.was)
		shown, sum := s.look(t.Context())
		if len(shown.Faults) > 0 {
			t.Fatal(shown.Faults)
		}
		overwrite(t, c.file, c.now)
		before := s.runtime.Load()
		if err := s.reload(t.Context(), "reload", hasSum(sum)); !errors.Is(err, console.ErrChanged) {
			t.Errorf("%s with %q: error %v", c.file, c.now, err)
		}
		if s.runtime.Load() != before {
			t.Errorf("%s with %q: what nobody has seen is in force", c.file, c.now)
		}
	}
	_, sum := s.look(t.Context())
	if err := s.reload(t.Context(), "reload", hasSum(sum)); err != nil {
		t.Error(err)
	}
}

// A look at what a reload would change fetches no list: the question needs no token.
func TestLookFetchesNothing(t *testing.T) {
	t.Parallel()
	var fetched atomic.Int64
	lists := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		io.WriteString(w, "192.0.2.0/24\n")
	}))
	t.Cleanup(lists.Close)
	policy := writeFile(t, "site.yaml", "upstream: http://127.0.0.1:9\nrules: []\n")
	s := openServer(t, policy, t.TempDir(), io.Discard)
	overwrite(t, policy, "upstream: http://127.0.0.1:9\nlists: {office: {url: '"+lists.URL+"'}}\n"+
		"rules: [{name: office, match: {addr: office}, allow: true}]\n")
	changes, _ := s.look(t.Context())
	if len(changes.Faults) > 0 || len(changes.Added) != 1 {
		t.Errorf("%+v", changes)
	}
	if n := fetched.Load(); n != 0 {
		t.Errorf("%d requests for the list", n)
	}
	if err := s.reload(t.Context(), "reload", nil); err != nil || fetched.Load() != 1 {
		t.Errorf("the reload: error %v, %d requests for the list", err, fetched.Load())
	}
}

// However many ask, one version is tried at a time, and trials use a fifth of the time at most. Everybody gets the
// result of a trial that began after the question.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const trial = 100 * time.Millisecond
		start := time.Now()
		trials, atOnce := 0, 0
		began := map[*console.Reload]time.Time{}
		l := newLooks(func() *console.Reload {
			if trials, atOnce = trials+1, atOnce+1; atOnce > 1 {
				t.Error("two trials at once")
			}
			r := new(console.Reload)
			began[r] = time.Now()
			time.Sleep(trial)
			atOnce--
			return r
		})
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				asked := time.Now()
				got, err := l.changes(t.Context())
				if err != nil {
					t.Error(err)
				} else if began[got].Before(asked) {
					t.Error("the trial began before the question")
				}
				if took := time.Since(asked); took > 6*trial {
					t.Errorf("an answer took %v", took)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); trials < 2 || time.Duration(trials-1)*5*trial > took {
			t.Errorf("%d trials of %v in %v", trials, trial, took)
		}
		// A client that has gone away waits no longer, and neither does the end of the server.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.changes(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		l.stop()
		if _, err := l.changes(t.Context()); !errors.Is(err, errStopping) {
			t.Errorf("error %v", err)
		}
	})
}

// A problem of the private socket is logged once, and the socket is opened when the problem has ended.
func TestPrivateSocketIsRetried(t *testing.T) {
	t.Parallel()
	if goruntime.GOOS == "windows" {
		t.Skip("there is no such socket")
	}
	state, err := os.MkdirTemp("", "fs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	socket := filepath.Join(state, "admin.sock")
	overwrite(t, socket, "not a socket")
	var stderr lockedBuffer
	s := openServer(t, writeFile(t, "site.yaml", "upstream: http://127.0.0.1:9\nrules: []\n"), state, &stderr)
	for range 3 {
		s.takePrivate()
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	s.takePrivate()
	if s.private == nil {
		t.Error("the socket is not opened")
	}
	s.closeAdmin()
	s.serving.Wait()
	s.journal.Close()
	if n := strings.Count(stderr.String(), "no admin socket"); n != 1 {
		t.Errorf("the problem is logged %d times:\n%s", n, stderr.String())
	}
	if !strings.Contains(stderr.String(), "admin: unix:"+socket) {
		t.Errorf("the log does not say that there is a socket:\n%s", stderr.String())
	}
}

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
