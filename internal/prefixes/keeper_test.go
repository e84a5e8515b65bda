package prefixes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A notebook records the calls of a Keeper.
type notebook struct {
	mu    sync.Mutex
	lists map[string]string // separated by spaces
	lines []string
	calls int
}

func (n *notebook) options(o Options) Options {
	n.lists = map[string]string{}
	o.Change = func(u Update) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lists[u.Name] = asText(u.Prefixes)
		n.calls++
	}
	o.Log = func(text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lines = append(n.lines, text)
	}
	return o
}

// expect checks a list, and the log lines since the last call.
func (n *notebook) expect(t *testing.T, when, list string, lines ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lists["drop"] != list {
		t.Errorf("%s: the list is %q, want %q", when, n.lists["drop"], list)
	}
	if got, want := strings.Join(n.lines, "\n"), strings.Join(lines, "\n"); got != want {
		t.Errorf("%s: logged\n%s\nwant\n%s", when, got, want)
	}
	n.lines = nil
}

// write writes a file with its own modification time, because file systems do not use the test's
// clock.
func write(t *testing.T, file, text string, tick int) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 12, tick, 0, 0, time.UTC)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// running runs a Keeper until the test ends.
func running(t *testing.T, k *Keeper) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func TestOpenReportsMissingAndBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	missing, broken, empty := filepath.Join(dir, "missing.txt"), filepath.Join(dir, "broken.txt"),
		filepath.Join(dir, "empty.txt")
	write(t, broken, "192.0.2.1\nevil\n", 0)
	write(t, empty, "# nobody yet\n", 0)
	var n notebook
	_, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: missing},
		{Name: "bad", File: broken}, {Name: "empty", File: empty}, {Name: "folder", File: dir}}}))
	want := "list drop: file " + missing + ": no such file or directory\nlist bad: file " + broken +
		`: line 2: "evil" is neither an address nor a prefix` + "\nlist folder: file " + dir +
		": it is not a regular file"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	var fault *ParseError
	if !errors.As(err, &fault) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("causes of %v", err)
	}
	for _, c := range []struct {
		sources []Source
		want    string
	}{
		{[]Source{{Name: "drop"}}, "list drop: it needs either a file or a URL"},
		{[]Source{{Name: "drop", File: empty, URL: "https://a.example"}}, "list drop: it needs either a file or a URL"},
		{[]Source{{File: empty}}, "list : it has no name"},
		{[]Source{{Name: "drop", URL: "ftp://me:secret@a.example/"}},
			"list drop: its URL has to begin with https:// or http://, and a host"},
		{[]Source{{Name: "drop", URL: "https://me:sec ret@a.example/%zz"}},
			"list drop: its URL has to begin with https:// or http://, and a host"},
		{[]Source{{Name: "drop", File: empty}, {Name: "drop", File: empty}}, "list drop: there are two with this name"},
	} {
		if _, err := Open(t.Context(), Options{Sources: c.sources}); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.sources, err, c.want)
		}
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "drop.txt")
		write(t, file, "192.0.2.1\n", 0)
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: file}}}))
		if err != nil {
			t.Fatal(err)
		}
		n.expect(t, "at start", "192.0.2.1/32")
		running(t, k)
		time.Sleep(time.Hour + time.Second) // between two checks
		n.expect(t, "nothing new", "192.0.2.1/32")

		write(t, file, "192.0.2.1\n192.0", 1) // the file is written in two steps
		time.Sleep(2 * time.Second)
		write(t, file, "192.0.2.1\n192.0.2.2\n", 2)
		time.Sleep(5 * time.Second)
		n.expect(t, "changed", "192.0.2.1/32 192.0.2.2/32", "list drop: file "+file+" was read again: 2 prefixes")

		write(t, file, "<html>\n", 3)
		time.Sleep(time.Hour)
		n.expect(t, "broken", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+
				": a page of HTML or XML, not a list of addresses; the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		if got := k.Status()[0]; got.Prefixes != 2 || !strings.Contains(got.Problem, "HTML") || got.From != file ||
			got.At.Minute() != 2 {
			t.Errorf("status %+v", got)
		}
		write(t, file, "\n", 4)
		time.Sleep(time.Hour)
		n.expect(t, "empty", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+
				": it contains no address now (to empty it on purpose, reload the policy); the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		n.expect(t, "gone", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+": no such file or directory; the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		write(t, file, "2001:db8::/32\n", 5)
		time.Sleep(5 * time.Second)
		n.expect(t, "well again", "2001:db8::/32", "list drop: file "+file+" can be read again: 1 prefix")
		if got := k.Status()[0]; got.Problem != "" || got.Prefixes != 1 {
			t.Errorf("status %+v", got)
		}

		// As editors do: another file with the same size and time replaces it.
		write(t, file+".new", "2001:db9::/32\n", 5)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		n.expect(t, "replaced", "2001:db9::/32", "list drop: file "+file+" was read again: 1 prefix")

		// The same content with another time is not a new version.
		write(t, file, "2001:db9::/32\n", 6)
		time.Sleep(time.Minute)
		n.expect(t, "touched", "2001:db9::/32")
	})
}

func TestReloadReadsFilesAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drop.txt")
	write(t, file, "192.0.2.1\n", 0)
	var n notebook
	k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: file}}}))
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "nonsense\n", 1)
	if err := k.Reload(); err == nil || err.Error() != "list drop: file "+file+
		`: line 1: "nonsense" is neither an address nor a prefix; the 1 prefix of 2026-11-20 12:00 UTC stay in use` {
		t.Errorf("broken: %v", err)
	}
	n.expect(t, "broken", "192.0.2.1/32")
	write(t, file, "192.0.2.2\n", 2)
	if err := k.Reload(); err != nil {
		t.Error(err)
	}
	n.expect(t, "changed", "192.0.2.2/32")
	write(t, file, "# nobody\n", 3)
	if err := k.Reload(); err != nil {
		t.Error(err)
	}
	n.expect(t, "emptied on purpose", "")
}

// serving is a server that answers with one step after the other, and then repeats the last.
type serving struct {
	mu    sync.Mutex
	steps []func(w http.ResponseWriter, r *http.Request)
	seen  []*http.Request
}

func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r)
	step := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	step(w, r)
}

// requests returns the requests so far.
func (s *serving) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[:len(s.seen):len(s.seen)]
}

// RoundTrip answers without a network, as synctest requires. It returns the complete answer.
func (s *serving) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, r.Context().Err()
}

func text(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestURLsAreFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){
			text("192.0.2.1\n"),
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"v2"`)
				w.Header().Set("Last-Modified", "Fri, 20 Nov 2026 10:00:00 GMT")
				io.WriteString(w, "192.0.2.2\n")
			},
			status(304),
			status(503), status(503), status(503),
			text("<html>we are sorry</html>"),
			text("\n"),
			status(304),
			text("192.0.2.3\n"),
		}}
		var n notebook
		began := time.Now()
		k, err := Open(t.Context(), n.options(Options{
			Sources: []Source{{Name: "drop", URL: "https://me:secret@lists.example/drop?key=secret",
				Every: time.Hour}},
			Transport: server, Agent: "fairshare/test",
		}))
		if err != nil {
			t.Fatal(err)
		}
		n.expect(t, "at start", "192.0.2.1/32")
		running(t, k)
		time.Sleep(59 * time.Minute)
		n.expect(t, "before its time", "192.0.2.1/32")
		time.Sleep(8 * time.Minute)
		n.expect(t, "a new version", "192.0.2.2/32")
		time.Sleep(time.Hour + 6*time.Minute)
		n.expect(t, "unchanged", "192.0.2.2/32")
		if at := k.Status()[0].At; at.Sub(began) < 2*time.Hour {
			t.Errorf("the same problem was logged again at %v", at.Sub(began))
		}
		if r := server.requests()[2]; r.Header.Get("If-None-Match") != `"v2"` ||
			r.Header.Get("If-Modified-Since") != "Fri, 20 Nov 2026 10:00:00 GMT" ||
			r.Header.Get("User-Agent") != "fairshare/test" {
			t.Errorf("requested with %v", r.Header)
		}
		at := k.Status()[0].At.UTC().Format("2006-01-02 15:04 UTC")
		time.Sleep(102 * time.Minute) // all retries are at most half an hour apart
		n.expect(t, "failures", "192.0.2.2/32",
			"list drop: https://lists.example: status 503; the 1 prefix of "+at+" stay in use",
			"list drop: https://lists.example: a page of HTML or XML, not a list of addresses; the 1 prefix of "+at+
				" stay in use",
			"list drop: https://lists.example: it contains no address; the 1 prefix of "+at+" stay in use",
			"list drop: https://lists.example answers again: 1 prefix")
		time.Sleep(2 * time.Hour)
		n.expect(t, "a newer version", "192.0.2.3/32")
		if server.requests()[8].Header.Get("If-None-Match") != `"v2"` {
			t.Errorf("after an answer that was refused, requested with %v", server.requests()[8].Header)
		}
	})
}

func TestEveryIsBounded(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Second: time.Minute,
		time.Hour: time.Hour} {
		s := source{Source: Source{Name: "drop", URL: "https://a.example", Every: given}}
		if err := s.check(); err != nil || s.Every != want {
			t.Errorf("every %v: %v, %v", given, s.Every, err)
		}
		for range 100 {
			if pause := s.pause(); pause < want || pause > want+want/10 {
				t.Errorf("every %v: waits %v", want, pause)
			}
		}
		for i := range 100 {
			if wait := s.retry(); wait < time.Minute || wait > 66*time.Minute || wait > want+want/10 ||
				i == 0 && wait > 66*time.Second {
				t.Errorf("every %v: tries again after %v", want, wait)
			}
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1800")
				w.WriteHeader(429)
			},
			text("192.0.2.1\n"),
		}}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop",
			URL: "https://lists.example/"}}, Transport: server}))
		if err != nil {
			t.Fatal(err)
		}
		n.expect(t, "at start", "", "list drop: https://lists.example: status 429; it is empty until it answers")
		running(t, k)
		time.Sleep(29 * time.Minute)
		n.expect(t, "before that", "")
		time.Sleep(2 * time.Minute)
		n.expect(t, "after that", "192.0.2.1/32", "list drop: https://lists.example answers again: 1 prefix")
	})
}

// A start waits at most ten seconds, for any number of lists.
func TestStartDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sources []Source
		for i := range 20 {
			sources = append(sources, Source{Name: fmt.Sprintf("list%d", i), URL: "https://lists.example/"})
		}
		var n notebook
		began := time.Now()
		k, err := Open(t.Context(), n.options(Options{Sources: sources,
			Transport: hanging{9 * time.Second, time.Second, 0}}))
		if err != nil || time.Since(began) != 10*time.Second || len(n.lines) != 4 {
			t.Errorf("%v after %v: %q", err, time.Since(began), n.lines)
		}
		if !strings.HasSuffix(n.lines[3],
			", and perhaps others, have the same problem: no complete answer within 10s, the longest wait at a start") {
			t.Errorf("logged %s", n.lines[3])
		}
		for _, s := range k.Status() {
			if s.Problem == "" {
				t.Errorf("%s has no problem", s.Name)
			}
		}
		if !strings.HasSuffix(n.lines[0],
			": https://lists.example: no complete answer within 10s, the longest wait at a start; it is empty until it answers") {
			t.Errorf("logged %s", n.lines[0])
		}
		// Run ends at once, even during a fetch.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(70*time.Second, cancel)
		began, n.lines = time.Now(), nil
		k.Run(ctx)
		if took := time.Since(began); took != 70*time.Second || len(n.lines) > 0 {
			t.Errorf("ended after %v, logged %q", took, n.lines)
		}
	})
}

func TestLaterFetchesNothingInOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n")}}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop",
			URL: "https://lists.example/"}}, Transport: server, Later: true}))
		if err != nil || len(server.requests()) > 0 {
			t.Errorf("%v, requested %d times", err, len(server.requests()))
		}
		n.expect(t, "at start", "")
		running(t, k)
		synctest.Wait()
		n.expect(t, "at once", "192.0.2.1/32")
	})
}

// A program that starts must not wait for URLs, and many that start together must not ask at once.
func TestDelayIsBeforeTheFirstFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n")}}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop",
			URL: "https://lists.example/"}}, Transport: server, Later: true, Delay: time.Minute}))
		if err != nil {
			t.Fatal(err)
		}
		running(t, k)
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		if asked := len(server.requests()); asked > 0 {
			t.Errorf("%d requests within the delay", asked)
		}
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		n.expect(t, "after the delay", "192.0.2.1/32")
	})
}

// Without a copy the version that was in use before stays. It also replaces an older copy. The URL
// is fetched at once, in the background.
func TestVersionInUseStaysWithoutACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		source := Source{Name: "drop", URL: "https://lists.example/"}
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n"), status(500),
			status(500), text("192.0.2.3\n")}}
		var n notebook
		options := n.options(Options{Sources: []Source{source}, Transport: server, Folder: folder})
		if _, err := Open(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "first", "192.0.2.1/32")

		time.Sleep(time.Hour)
		at := time.Now()
		options.Had = func(s Source) (Update, bool) {
			return Update{Name: s.Name, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}, At: at},
				s.URL == source.URL
		}
		for _, options.Folder = range []string{folder, ""} {
			if _, err := Open(t.Context(), options); err != nil {
				t.Fatal(err)
			}
			n.expect(t, "folder "+options.Folder, "192.0.2.2/32")
		}
		k, err := Open(t.Context(), options)
		if err != nil || len(server.requests()) != 1 {
			t.Errorf("%v, requested %d times", err, len(server.requests()))
		}
		running(t, k)
		synctest.Wait()
		n.expect(t, "dead", "192.0.2.2/32",
			"list drop: https://lists.example: status 500; the 1 prefix of 2000-01-01 01:00 UTC stay in use")
		time.Sleep(time.Hour)
		n.expect(t, "alive", "192.0.2.3/32", "list drop: https://lists.example answers again: 1 prefix")
	})
}

func TestCheckCanRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n"), text("192.0.2.66\n")}}
		var n notebook
		o := n.options(Options{Sources: []Source{{Name: "drop", URL: "http://lists.example", Every: time.Minute}},
			Transport: server})
		o.Check = func(u Update) error {
			if u.Prefixes[0] == netip.MustParsePrefix("192.0.2.66/32") {
				return errors.New("not this one")
			}
			return nil
		}
		k, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		running(t, k)
		time.Sleep(time.Hour)
		n.expect(t, "refused", "192.0.2.1/32",
			"list drop: http://lists.example: not this one; the 1 prefix of 2000-01-01 00:00 UTC stay in use")
	})
}

// A thousand calls of Status do not race with changes of the list.
func TestStatusWhileItChanges(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(text("192.0.2.1\n")))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "drop.txt")
	write(t, file, "192.0.2.1\n", 0)
	var n notebook
	k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: file},
		{Name: "web", URL: server.URL}}, Later: true, Folder: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	running(t, k)
	for i := range 1000 {
		if i%100 == 0 {
			write(t, file, strings.Repeat("192.0.2.1\n", 1+i/100), i%50)
			if err := k.Reload(); err != nil && !errors.Is(err, errChanges) {
				t.Error(err)
			}
		}
		if got := k.Status(); len(got) != 2 || got[0].Prefixes == 0 {
			t.Fatalf("%+v", got)
		}
	}
}
