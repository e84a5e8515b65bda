package prefixes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a transport with a delay before each step.
type hanging struct {
	header, piece time.Duration
	pieces        int // 0: without end
}

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := sleep(r.Context(), h.header); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&dripping{h, r.Context(), 0}),
		ContentLength: -1, Request: r}, nil
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
		{"stands still", hanging{time.Second, time.Hour, 1}, 11 * time.Second, "the answer stalled for 10s"},
		{"drips", hanging{time.Second, 5 * time.Second, 0}, time.Minute, "the answer did not end within 1m0s"},
		{"endless and fast", hanging{0, 0, 0}, 0, "it is larger than 1 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &Keeper{options: Options{Noun: "list", MaxSize: 1 << 20}, client: newClient(c.hanging)}
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

// fetched fetches from a real server once.
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
		fmt.Fprintf(w, "192.0.2.9 # authorization %q, referer %q\n", r.Header.Get("Authorization"),
			r.Header.Get("Referer"))
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
	bomb := packed(t, strings.Repeat("\n", 50<<20))
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, bomb)
	})
	mux.HandleFunc("/bomb.gz", text(bomb))
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
	mux.HandleFunc("/loop", func(w http.ResponseWriter,
		r *http.Request) {
		http.Redirect(w, r, "/loop", http.StatusFound)
	})
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
		{plain.URL + "/brotli", "", "the answer has an encoding that was not requested"},
		{plain.URL + "/large", "", "it is larger than 1 MiB"},
		{plain.URL + "/cut", "", "the answer is incomplete"},
		{plain.URL + "/missing", "", "status 404"},
		{withUser + "/to-other?key=k", "192.0.2.9 # authorization \"\", referer \"\"\n", ""},
		{plain.URL + "/hop/", "192.0.2.5\n", ""},
		{plain.URL + "/loop", "", "more than 5 redirects"},
		{plain.URL + "/to-file", "", "it redirects to a URL that is neither https nor http"},
		{secure.URL + "/to-plain", "", "it redirects from https to http"},
		{plain.URL + "/unchanged", "", "status 304"}, // there was no version before
		{plain.URL + "/validators", "192.0.2.1\n", ""},
		{plain.URL + "/hang-up", "", "the answer is incomplete"},
		{closed.URL, "", "connection refused"},
	} {
		got, err := fetched(t, trusting, c.url)
		if c.fault == "" && (err != nil || string(got.body) != c.want) ||
			c.fault != "" && (err == nil || err.Error() != c.fault) {
			t.Errorf("%s: %q, %v; want %q, %s", c.url, got.body, err, c.want, c.fault)
		}
		if got.validators != (validators{}) {
			t.Errorf("%s: kept %+v", c.url, got.validators)
		}
	}
	// Certificates are checked, and errors contain no part of a URL.
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

func TestReasonsAreStable(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "http://me:secret@a.example/",
		Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 12345}, Err: os.ErrDeadlineExceeded}}
	if got := reason(context.Background(), err).Error(); got != "i/o timeout" {
		t.Error(got)
	}
	if got := reason(context.Background(), fmt.Errorf("what: %w",
		errors.New(`bad Location "http://a/?key=secret" and https://b/secret`))).
		Error(); got != `bad Location … and …` {
		t.Error(got)
	}
}
