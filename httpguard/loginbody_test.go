package httpguard_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/httpguard"
	"fairshare/logins"
	"fairshare/memlimit"
)

// newApplication returns an application behind a rule for attempts in excess: Symfony's login, and XML-RPC that
// compresses its answers.
func newApplication(t *testing.T, got *[]string) http.Handler {
	t.Helper()
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "many", Match: fairshare.Match{Attempt: []string{"excess"}}, Limit: &fairshare.Limit{
			Resource: fairshare.Requests, N: 0, Window: 10 * time.Minute}},
	}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	opts := httpguard.Options{Logins: logins.New(logins.Options{}), Browser: new(browser.Watcher),
		Now: func() time.Time { return noon }}
	return httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = append(*got, string(body))
		if r.URL.Path == "/login" {
			fields, _ := url.ParseQuery(string(body))
			w.Header().Set("Set-Cookie", "PHPSESSID=1")
			http.Redirect(w, r, fields.Get("_failure_path"), http.StatusFound)
			return
		}
		out := io.Writer(w)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		if strings.Contains(string(body), "password") {
			for range strings.Count(string(body), "password") {
				io.WriteString(out, "<struct><member><name>faultCode</name><value><int>403</int></value></member></struct>")
			}
		}
		fmt.Fprint(out, strings.Repeat("<value>padding</value>", 1000+len(*got)))
	}))
}

func post(h http.Handler, addr, path, kind, body string, chunked bool) int {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	if chunked {
		r.ContentLength = -1
	}
	r.RemoteAddr = addr + ":4000"
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Guesses are stopped whose failures look like successes, and bodies pass unchanged.
func TestFailuresInBodiesAreSeen(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	multicall := func(n int) string {
		return strings.Repeat("<struct>admin password</struct>", n) + "<struct>padding</struct>"
	}
	for _, c := range []struct {
		name, path, kind, body string
		chunked                bool
		most                   int
	}{
		{"a page that the client names", "/login", form, "_failure_path=%2Faccount", false, 3},
		{"the same, chunked", "/login", form, "_failure_path=%2Faccount", true, 3},
		{"a body that is too long to look at", "/login", form,
			"x=" + strings.Repeat("x", logins.MaxBody) + "&_failure_path=%2Faccount", false, 40},
		{"two calls with padding", "/xmlrpc.php", "text/xml", multicall(2), false, 3},
		{"100 calls", "/xmlrpc.php", "text/xml", multicall(100), true, 0},
		{"a body that is too long to count", "/xmlrpc.php", form, multicall(4000), false, 0},
		{"calls without a password", "/xmlrpc.php", "text/xml", "<methodName>system.listMethods</methodName>", false,
			100},
	} {
		var got []string
		h, passed := newApplication(t, &got), 0
		for i := range 100 {
			if post(h, fmt.Sprintf("192.0.2.%d", i), c.path, c.kind, c.body, c.chunked) != http.StatusTooManyRequests {
				passed++
			}
		}
		if passed > c.most || c.most == 100 && passed < 100 {
			t.Errorf("%s: %d of 100 pass, want at most %d", c.name, passed, c.most)
		}
		for _, body := range got {
			if body != c.body {
				t.Fatalf("%s: the application got %d bytes of %d", c.name, len(body), len(c.body))
			}
		}
	}
}
