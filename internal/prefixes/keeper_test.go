package prefixes

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A notebook takes down what a Keeper does.
type notebook struct {
	mu    sync.Mutex
	lists map[string]string // as words
	said  []string
	calls int
}

func (n *notebook) options(o Options) Options {
	n.lists = map[string]string{}
	o.Change = func(u Update) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lists[u.Name] = words(u.Prefixes)
		n.calls++
	}
	o.Log = func(text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.said = append(n.said, text)
	}
	return o
}

// expect checks a list, and what has been said since the last time.
func (n *notebook) expect(t *testing.T, when, list string, said ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lists["drop"] != list {
		t.Errorf("%s: the list is %q, want %q", when, n.lists["drop"], list)
	}
	if got, want := strings.Join(n.said, "\n"), strings.Join(said, "\n"); got != want {
		t.Errorf("%s: said\n%s\nwant\n%s", when, got, want)
	}
	n.said = nil
}

// write makes a file with a time of its own: the clock of a test stands still
// for a file system.
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

func TestOpenNamesWhatIsMissingOrBroken(t *testing.T) {
	dir := t.TempDir()
	missing, broken, empty := filepath.Join(dir, "missing.txt"), filepath.Join(dir, "broken.txt"), filepath.Join(dir, "empty.txt")
	write(t, broken, "192.0.2.1\nevil\n", 0)
	write(t, empty, "# nobody yet\n", 0)
	var n notebook
	_, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: missing}, {Name: "bad", File: broken}, {Name: "empty", File: empty}, {Name: "folder", File: dir}}}))
	want := "list drop: file " + missing + ": no such file or directory\nlist bad: file " + broken + `: line 2: "evil" is no address and no prefix` + "\nlist folder: file " + dir + ": it is no regular file"
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
		{[]Source{{Name: "drop", URL: "ftp://me:secret@a.example/"}}, "list drop: its URL has to begin with https:// or http://, and a host"},
		{[]Source{{Name: "drop", URL: "https://me:sec ret@a.example/%zz"}}, "list drop: its URL has to begin with https:// or http://, and a host"},
		{[]Source{{Name: "drop", File: empty}, {Name: "drop", File: empty}}, "list drop: there are two of this name"},
	} {
		if _, err := Open(t.Context(), Options{Sources: c.sources}); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.sources, err, c.want)
		}
	}
}

func TestFilesAreReadAnewWhenTheyChange(t *testing.T) {
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
		time.Sleep(time.Hour + time.Second) // between two looks
		n.expect(t, "nothing new", "192.0.2.1/32")

		write(t, file, "192.0.2.1\n192.0", 1) // somebody writes it in two steps
		time.Sleep(2 * time.Second)
		write(t, file, "192.0.2.1\n192.0.2.2\n", 2)
		time.Sleep(5 * time.Second)
		n.expect(t, "changed", "192.0.2.1/32 192.0.2.2/32", "list drop: file "+file+" was read anew: 2 prefixes")

		write(t, file, "<html>\n", 3)
		time.Sleep(time.Hour)
		n.expect(t, "broken", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+": a page of HTML or XML, not a list of addresses; the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		if got := k.Status()[0]; got.Prefixes != 2 || !strings.Contains(got.Problem, "HTML") || got.From != file || got.At.Minute() != 2 {
			t.Errorf("status %+v", got)
		}
		write(t, file, "\n", 4)
		time.Sleep(time.Hour)
		n.expect(t, "empty", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+": it holds no address now (to empty it on purpose, have the policy read anew); the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		n.expect(t, "gone", "192.0.2.1/32 192.0.2.2/32",
			"list drop: file "+file+": no such file or directory; the 2 prefixes of 2026-11-20 12:02 UTC stay in use")
		write(t, file, "2001:db8::/32\n", 5)
		time.Sleep(5 * time.Second)
		n.expect(t, "well again", "2001:db8::/32", "list drop: file "+file+" is well again: 1 prefix")
		if got := k.Status()[0]; got.Problem != "" || got.Prefixes != 1 {
			t.Errorf("status %+v", got)
		}

		// As editors do it: another file of the same size and time takes its place.
		write(t, file+".new", "2001:db9::/32\n", 5)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		n.expect(t, "replaced", "2001:db9::/32", "list drop: file "+file+" was read anew: 1 prefix")

		// The same again under another time is nothing new.
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
	if err := k.Reload(); err == nil || err.Error() != "list drop: file "+file+`: line 1: "nonsense" is no address and no prefix; the 1 prefix of 2026-11-20 12:00 UTC stay in use` {
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

// serving is a server that answers as its steps say, one after the other; the
// last goes on.
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

// asked returns the requests so far.
func (s *serving) asked() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[:len(s.seen):len(s.seen)]
}

// RoundTrip answers without a network, so that time can stand still. The
// answer is whole before it is handed over.
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

func TestURLsAreAskedAgain(t *testing.T) {
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
			Sources:   []Source{{Name: "drop", URL: "https://me:secret@lists.example/drop?key=secret", Every: time.Hour}},
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
			t.Errorf("that it is still so was said at %v", at.Sub(began))
		}
		if r := server.asked()[2]; r.Header.Get("If-None-Match") != `"v2"` || r.Header.Get("If-Modified-Since") != "Fri, 20 Nov 2026 10:00:00 GMT" || r.Header.Get("User-Agent") != "fairshare/test" {
			t.Errorf("asked with %v", r.Header)
		}
		at := k.Status()[0].At.UTC().Format("2006-01-02 15:04 UTC")
		time.Sleep(102 * time.Minute) // all of these within half an hour of one another
		n.expect(t, "failures", "192.0.2.2/32",
			"list drop: https://lists.example: status 503; the 1 prefix of "+at+" stay in use",
			"list drop: https://lists.example: a page of HTML or XML, not a list of addresses; the 1 prefix of "+at+" stay in use",
			"list drop: https://lists.example: it holds no address; the 1 prefix of "+at+" stay in use",
			"list drop: https://lists.example answers again: 1 prefix")
		time.Sleep(2 * time.Hour)
		n.expect(t, "a newer version", "192.0.2.3/32")
		if server.asked()[8].Header.Get("If-None-Match") != `"v2"` {
			t.Errorf("after refusing what it sent, asked with %v", server.asked()[8].Header)
		}
	})
}

func TestEveryIsBounded(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Second: time.Minute, time.Hour: time.Hour} {
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
			if wait := s.retry(); wait < time.Minute || wait > 66*time.Minute || wait > want+want/10 || i == 0 && wait > 66*time.Second {
				t.Errorf("every %v: tries again after %v", want, wait)
			}
		}
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1800")
				w.WriteHeader(429)
			},
			text("192.0.2.1\n"),
		}}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", URL: "https://lists.example/"}}, Transport: server}))
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

// hanging is a transport that takes its time for everything.
type hanging struct {
	header, piece time.Duration
	pieces        int // 0: without end
}

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := sleep(r.Context(), h.header); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&dripping{h, r.Context(), 0}), ContentLength: -1, Request: r}, nil
}

type dripping struct {
	hanging
	ctx context.Context
	n   int
}

func (d *dripping) Read(b []byte) (int, error) {
	if d.n++; d.pieces > 0 && d.n > d.pieces {
		return 0, io.EOF
	}
	if err := sleep(d.ctx, d.piece); err != nil {
		return 0, err
	}
	return copy(b, fmt.Sprintf("192.0.2.%d\n", d.n%256)), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func TestSlowAndEndlessServers(t *testing.T) {
	for _, c := range []struct {
		name string
		hanging
		took time.Duration
		want string
	}{
		{"slow, but it answers", hanging{9 * time.Second, 9 * time.Second, 3}, 36 * time.Second, ""},
		{"never answers", hanging{time.Hour, 0, 1}, 10 * time.Second, "no answer within 10s"},
		{"stands still", hanging{time.Second, time.Hour, 1}, 11 * time.Second, "the answer stood still for 10s"},
		{"drips", hanging{time.Second, 5 * time.Second, 0}, time.Minute, "the answer did not end within 1m0s"},
		{"endless and fast", hanging{0, 0, 0}, 0, "it is larger than 1 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &Keeper{options: Options{What: "list", MaxSize: 1 << 20}, client: newClient(c.hanging)}
				s := &source{Source: Source{Name: "drop", URL: "https://lists.example/"}}
				began := time.Now()
				_, err := k.get(t.Context(), s)
				if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}

// Nobody waits at start longer than ten seconds, for however many lists.
func TestStartDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sources []Source
		for i := range 20 {
			sources = append(sources, Source{Name: fmt.Sprintf("list%d", i), URL: "https://lists.example/"})
		}
		var n notebook
		began := time.Now()
		k, err := Open(t.Context(), n.options(Options{Sources: sources, Transport: hanging{9 * time.Second, time.Second, 0}}))
		if err != nil || time.Since(began) != 10*time.Second || len(n.said) != 20 {
			t.Errorf("%v after %v: %q", err, time.Since(began), n.said)
		}
		if !strings.HasSuffix(n.said[0], ": https://lists.example: no whole answer within 10s, and a start waits no longer; it is empty until it answers") {
			t.Errorf("said %s", n.said[0])
		}
		// And ends at once, in the midst of a fetch.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(70*time.Second, cancel)
		began, n.said = time.Now(), nil
		k.Run(ctx)
		if took := time.Since(began); took != 70*time.Second || len(n.said) > 0 {
			t.Errorf("ended after %v, said %q", took, n.said)
		}
	})
}

func TestLaterAsksNobodyAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n")}}
		var n notebook
		k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", URL: "https://lists.example/"}}, Transport: server, Later: true}))
		if err != nil || len(server.asked()) > 0 {
			t.Errorf("%v, asked %d times", err, len(server.asked()))
		}
		n.expect(t, "at start", "")
		running(t, k)
		synctest.Wait()
		n.expect(t, "at once", "192.0.2.1/32")
	})
}

// fetched asks a real server once.
func fetched(t *testing.T, transport http.RoundTripper, address string) (answer, error) {
	t.Helper()
	k := &Keeper{options: Options{MaxSize: 1 << 20}, client: newClient(transport)}
	return k.get(t.Context(), &source{Source: Source{Name: "drop", URL: address}})
}

func TestFetchFromRealServers(t *testing.T) {
	mux := http.NewServeMux()
	plain, secure := httptest.NewServer(mux), httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "192.0.2.9 # authorization %q, referer %q\n", r.Header.Get("Authorization"), r.Header.Get("Referer"))
	}))
	defer other.Close()
	elsewhere, _ := url.Parse(other.URL)
	elsewhere.Host = "localhost:" + elsewhere.Port() // another host than 127.0.0.1

	mux.HandleFunc("/list", func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		fmt.Fprintf(w, "192.0.2.1 # %s %s %s\n", name, password, r.URL.RawQuery)
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.WriteHeader(500)
		}
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, packed(t, "192.0.2.1\n"))
	})
	mux.HandleFunc("/file.gz", text(packed(t, "192.0.2.1\n")))
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, packed(t, strings.Repeat("\n", 50<<20)))
	})
	mux.HandleFunc("/bomb.gz", text(packed(t, strings.Repeat("\n", 50<<20))))
	mux.HandleFunc("/brotli", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "x")
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2000000")
		io.WriteString(w, "1")
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "192.0.2.1\n")
	})
	mux.HandleFunc("/to-other", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.String()+"/x", http.StatusFound)
	})
	mux.HandleFunc("/to-file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(302)
	})
	mux.HandleFunc("/to-nowhere", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://[secret")
		w.WriteHeader(302)
	})
	mux.HandleFunc("/to-plain", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+"/list", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/hop/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hop/xxxxx" {
			io.WriteString(w, "192.0.2.5\n")
			return
		}
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	})
	mux.HandleFunc("/unchanged", status(304))
	mux.HandleFunc("/validators", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", strings.Repeat("x", maxValidator+1))
		w.Header().Set("Last-Modified", "caf\xc3\xa9")
		io.WriteString(w, "192.0.2.1\n")
	})
	mux.HandleFunc("/hang-up", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	closed := httptest.NewServer(nil)
	closed.Close()

	trusting := secure.Client().Transport
	withUser := strings.Replace(plain.URL, "http://", "http://me:secret@", 1)
	for _, c := range []struct {
		url, want, fault string
	}{
		{withUser + "/list?key=k", "192.0.2.1 # me secret key=k\n", ""},
		{secure.URL + "/list", "192.0.2.1 #   \n", ""},
		{plain.URL + "/gzip", "192.0.2.1\n", ""},
		{plain.URL + "/file.gz", "192.0.2.1\n", ""},
		{plain.URL + "/bomb", "", "it is larger than 1 MiB"},
		{plain.URL + "/bomb.gz", "", "it is larger than 1 MiB"},
		{plain.URL + "/brotli", "", "an encoding that was not asked for"},
		{plain.URL + "/large", "", "it is larger than 1 MiB"},
		{plain.URL + "/cut", "", "the answer breaks off"},
		{plain.URL + "/missing", "", "status 404"},
		{withUser + "/to-other?key=k", "192.0.2.9 # authorization \"\", referer \"\"\n", ""},
		{plain.URL + "/hop/", "192.0.2.5\n", ""},
		{plain.URL + "/loop", "", "more than 5 redirects"},
		{plain.URL + "/to-file", "", "it redirects to a URL that is neither https nor http"},
		{secure.URL + "/to-plain", "", "it redirects from https to http"},
		{plain.URL + "/unchanged", "", "status 304"}, // nothing was there to be unchanged
		{plain.URL + "/validators", "192.0.2.1\n", ""},
		{plain.URL + "/hang-up", "", "the answer breaks off"},
		{closed.URL, "", "connection refused"},
	} {
		got, err := fetched(t, trusting, c.url)
		if c.fault == "" && (err != nil || string(got.body) != c.want) || c.fault != "" && (err == nil || err.Error() != c.fault) {
			t.Errorf("%s: %q, %v; want %q, %s", c.url, got.body, err, c.want, c.fault)
		}
		if got.validators != (validators{}) {
			t.Errorf("%s: kept %+v", c.url, got.validators)
		}
	}
	// Certificates are checked, and nothing of a URL is in an error.
	quiet := secure.Client().Transport.(*http.Transport).Clone()
	quiet.TLSClientConfig = &tls.Config{}
	for _, address := range []string{
		strings.Replace(secure.URL, "https://", "https://me:secret@", 1) + "/list?key=secret",
		withUser + "/to-nowhere?key=secret", "http://me:secret@name.invalid/secret",
	} {
		_, err := fetched(t, quiet, address)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "://") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestReasonsDoNotChangeFromTryToTry(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "http://me:secret@a.example/", Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 12345}, Err: os.ErrDeadlineExceeded}}
	if got := reason(context.Background(), err).Error(); got != "i/o timeout" {
		t.Error(got)
	}
	if got := reason(context.Background(), fmt.Errorf("what: %w", errors.New(`bad Location "http://a/?key=secret" and https://b/secret`))).Error(); got != `bad Location … and …` {
		t.Error(got)
	}
}

func TestCheckCanRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n"), text("192.0.2.66\n")}}
		var n notebook
		o := n.options(Options{Sources: []Source{{Name: "drop", URL: "http://lists.example", Every: time.Minute}}, Transport: server})
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
		n.expect(t, "refused", "192.0.2.1/32", "list drop: http://lists.example: not this one; the 1 prefix of 2000-01-01 00:00 UTC stay in use")
	})
}

// A thousand requests of a list's state do not race with its changes.
func TestStatusWhileItChanges(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(text("192.0.2.1\n")))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "drop.txt")
	write(t, file, "192.0.2.1\n", 0)
	var n notebook
	k, err := Open(t.Context(), n.options(Options{Sources: []Source{{Name: "drop", File: file}, {Name: "web", URL: server.URL}}, Later: true, Folder: t.TempDir()}))
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

func TestCopyKeepsBytesAsTheyCame(t *testing.T) {
	body := []byte("\xef\xbb\xbf192.0.2.1\r\n\x00\n")
	k := &Keeper{folder: t.TempDir(), options: Options{MaxSize: 1 << 20}}
	s := &source{Source: Source{Name: "a/b", URL: "https://a.example"}}
	if err := k.writeCopy(s, body, time.Now()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(k.copyFile(s))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := splitCopy(data); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%q, %v", got, err)
	}
}
