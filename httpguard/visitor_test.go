package httpguard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
	"fairshare/visitor"
)

// A visited is a site whose clients get cookies.
type visited struct {
	handler http.Handler
	seen    []string    // the Cookie headers that the handler got
	answer  http.Header // of the handler
}

func newVisited(t *testing.T, cookies visitor.Options, policy fairshare.Policy) *visited {
	t.Helper()
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	opts := httpguard.Options{Now: func() time.Time { return noon },
		Secure: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == "https" }}
	if opts.Visitors, err = visitor.New(cookies); err != nil {
		t.Fatal(err)
	}
	s := &visited{answer: http.Header{"Cache-Control": {"private"}}}
	s.handler = httpguard.Middleware(guard, opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.seen = r.Header["Cookie"]
		for name, values := range s.answer {
			w.Header()[name] = slices.Clone(values)
		}
		w.WriteHeader(http.StatusOK)
	}))
	return s
}

// get requests a page as a browser does, and returns the answer and the cookie that it sets.
func (s *visited) get(addr, cookie string, header ...string) (*httptest.ResponseRecorder, string) {
	r := httptest.NewRequest("GET", "/page", nil)
	r.RemoteAddr = addr + ":1"
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	set := ""
	for _, line := range w.Header()["Set-Cookie"] {
		if strings.HasPrefix(line, visitor.Name+"=") {
			set, _, _ = strings.Cut(line, ";")
		}
	}
	return w, set
}

var anyRequest = fairshare.Policy{Rules: []fairshare.Rule{limit("own", requests(1000, time.Minute))}}

func TestVisitorGetsACookieWithAPageThatNoCacheMayStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		always bool
		answer http.Header
		sent   []string
		set    bool
	}{
		{"private", true, http.Header{"Cache-Control": {"max-age=0, Private"}}, nil, true},
		{"no-store", true, http.Header{"Cache-Control": {"no-store"}}, nil, true},
		{"no directive", true, nil, nil, false},
		{"public", true, http.Header{"Cache-Control": {"public, max-age=60"}}, nil, false},
		{"one private field", true, http.Header{"Cache-Control": {`private="set-cookie", max-age=60`}}, nil, false},
		{"no-cache, which may be stored", true, http.Header{"Cache-Control": {"no-cache"}}, nil, false},
		{"stored by a CDN", true, http.Header{"Cache-Control": {"private"}, "Cdn-Cache-Control": {"max-age=60"}}, nil,
			false},
		{"stored by one CDN", true, http.Header{"Cache-Control": {"no-store"},
			"Example-Cdn-Cache-Control": {"s-maxage=60"}}, nil, false},
		{"stored by a surrogate", true, http.Header{"Cache-Control": {"private"}, "Surrogate-Control": {"max-age=60"}},
			nil, false},
		{"stored by nginx", true, http.Header{"Cache-Control": {"private"}, "X-Accel-Expires": {"60"}}, nil, false},
		{"stored by nobody", true, http.Header{"Cache-Control": {"private"}, "Cdn-Cache-Control": {"no-store"},
			"X-Accel-Expires": {"0"}}, nil, true},
		{"while nothing is busy", false, http.Header{"Cache-Control": {"private"}}, nil, false},
		{"a picture", true, http.Header{"Cache-Control": {"private"}}, []string{"Sec-Fetch-Mode", "no-cors"}, false},
		{"not a browser", true, http.Header{"Cache-Control": {"private"}}, []string{"Accept", "*/*"}, false},
	} {
		s := newVisited(t, visitor.Options{Always: c.always}, anyRequest)
		s.answer = c.answer
		if _, set := s.get("192.0.2.1", "", c.sent...); (set != "") != c.set {
			t.Errorf("%s: the cookie is %q, want one: %v", c.name, set, c.set)
		}
	}
}

func TestVisitorsCookieIsNoneOfTheSite(t *testing.T) {
	none := fairshare.Rule{Name: "no cookie", Action: fairshare.Block, Match: fairshare.Match{Cookie: []string{"none"}}}
	s := newVisited(t, visitor.Options{Always: true}, fairshare.Policy{Rules: []fairshare.Rule{none}})
	w, _ := s.get("192.0.2.1", "a=b")
	_, own := s.get("192.0.2.1", "a=b")
	if own == "" || w.Code != http.StatusOK {
		t.Fatalf("the cookie is %q, status %d", own, w.Code)
	}
	for _, c := range []struct {
		sent string
		want []string
		code int
	}{
		{own, nil, http.StatusForbidden}, // it must not lower what a rule asks of clients without a cookie
		{visitor.Name + "=forged", nil, http.StatusForbidden},
		{own + "; a=b", []string{"a=b"}, http.StatusOK},
		{"a=b; " + own + "; c=d", []string{"a=b; c=d"}, http.StatusOK},
	} {
		s.seen = nil
		if w, _ := s.get("192.0.2.1", c.sent); w.Code != c.code || !slices.Equal(s.seen, c.want) {
			t.Errorf("with %q: status %d, the handler sees %q; want %d and %q", c.sent, w.Code, s.seen, c.code, c.want)
		}
	}
}

func TestVisitorKeepsItsLimitWhereverItIs(t *testing.T) {
	rule := limit("visitor", requests(4, time.Minute))
	rule.Limit.By = []fairshare.KeyPart{{Kind: fairshare.ByVisitor}}
	s := newVisited(t, visitor.Options{}, fairshare.Policy{Rules: []fairshare.Rule{rule}})
	var own string
	for i := range 4 { // the fourth is near the limit
		if _, own = s.get("192.0.2.1", ""); (own != "") != (i == 3) {
			t.Errorf("request %d: the cookie is %q", i, own)
		}
	}
	w, other := s.get("192.0.2.1", "")
	if w.Code != http.StatusTooManyRequests || other == "" || other == own {
		t.Fatalf("another client of that address: status %d, cookie %q; want a refusal with a cookie", w.Code, other)
	}
	for range 4 {
		if w, set := s.get("192.0.2.1", other); w.Code != http.StatusOK || set != "" {
			t.Errorf("it comes again: status %d, cookie %q", w.Code, set)
		}
	}
	if w, _ := s.get("198.51.100.1", other); w.Code != http.StatusTooManyRequests {
		t.Errorf("a copy of the cookie: status %d", w.Code)
	}
	if w, _ := s.get("198.51.100.1", own); w.Code != http.StatusOK {
		t.Errorf("the first visitor in another network: status %d", w.Code)
	}
	if _, set := s.get("203.0.113.1", "", "Sec-Fetch-Mode", "cors"); set != "" {
		t.Errorf("not a page: %q", set)
	}
}

func TestSiteSaysWhoIsLoggedIn(t *testing.T) {
	s := newVisited(t, visitor.Options{PerNetwork: 1}, anyRequest)
	s.answer = http.Header{"Cache-Control": {"private"}, httpguard.VisitorField: {"member"}}
	var own string
	for i := range 3 { // as many as log in
		w, set := s.get("192.0.2.1", "", "Accept", "application/json")
		if set == "" || w.Header().Get(httpguard.VisitorField) != "" {
			t.Fatalf("login %d: cookie %q, header %q", i, set, w.Header())
		}
		own = set
	}
	if _, set := s.get("192.0.2.1", own); set != "" {
		t.Errorf("a member gets a second cookie: %q", set)
	}
	s.answer.Set(httpguard.VisitorField, "guest")
	_, guest := s.get("192.0.2.1", own)
	if guest == "" || guest == own {
		t.Errorf("after the logout: %q", guest)
	}
	if w, set := s.get("192.0.2.1", guest); set != "" || w.Header().Get(httpguard.VisitorField) != "" {
		t.Errorf("a guest: cookie %q, header %q", set, w.Header())
	}
	s.answer = http.Header{httpguard.VisitorField: {"member"}}
	if w, set := s.get("192.0.2.1", ""); set != "" || w.Header().Get(httpguard.VisitorField) != "" {
		t.Errorf("a page that a cache may store: cookie %q, header %q", set, w.Header())
	}
}

func TestClientNeverSeesWhatTheSiteSaysOfIt(t *testing.T) {
	t.Run("ServeHTTP", func(t *testing.T) {
		testSiteIsNotSeen(t, func(h http.HandlerFunc, guard *fairshare.Guard, opts httpguard.Options) http.Handler {
			return httpguard.New(guard, opts, h)
		})
	})
	t.Run("in a writer without optional methods", func(t *testing.T) {
		testSiteIsNotSeen(t, func(h http.HandlerFunc, guard *fairshare.Guard, opts httpguard.Options) http.Handler {
			g := httpguard.New(guard, opts, h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.ServeHTTP(wrapped{w}, r) })
		})
	})
	t.Run("Do", func(t *testing.T) {
		testSiteIsNotSeen(t, func(h http.HandlerFunc, guard *fairshare.Guard, opts httpguard.Options) http.Handler {
			g := httpguard.New(guard, opts, nil)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				g.Do(w, r, func(w http.ResponseWriter, r *http.Request) error {
					h(w, r)
					return nil
				})
			})
		})
	})
}

func testSiteIsNotSeen(t *testing.T, guarded func(http.HandlerFunc, *fairshare.Guard, httpguard.Options) http.Handler) {
	for name, answer := range map[string]http.HandlerFunc{
		"without a body or status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
		},
		"with a body and no status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			w.Write([]byte("page"))
		},
		"with a text and no status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			io.WriteString(w, "page")
		},
		"flushed and no status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			http.NewResponseController(w).Flush()
		},
		"with a file and no status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			io.Copy(w, strings.NewReader("page"))
		},
		"in an interim answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		},
		"in an announced trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", httpguard.VisitorField)
			w.WriteHeader(http.StatusOK)
			w.Write([]byte("page"))
			w.Header().Set(httpguard.VisitorField, "member")
		},
		"in another trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("page"))
			w.Header().Set(http.TrailerPrefix+httpguard.VisitorField, "member")
		},
		"when the protocol changes": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(httpguard.VisitorField, "member")
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\n")
			w.Header().Write(rw)
			rw.WriteString("\r\n")
			rw.Flush()
		},
	} {
		guard, err := memlimit.NewGuard(&anyRequest, memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(guarded(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "private")
			answer(w, r)
		}, guard, httpguard.Options{Visitors: newVisitors(t)}))
		interim := http.Header{}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
				interim = http.Header(header)
				return nil
			}})
		r, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		server.Close()
		for _, header := range []http.Header{interim, resp.Header, resp.Trailer} {
			if len(header[httpguard.VisitorField]) > 0 {
				t.Errorf("%s: the client sees %q", name, header)
			}
		}
		final := name == "in an interim answer" || name == "without a body or status" ||
			strings.HasSuffix(name, "no status")
		if set := len(resp.Header["Set-Cookie"]) == 1; set != final {
			t.Errorf("%s: a member's cookie: %v", name, set)
		}
	}
}

func TestVisitorsCookieIsSecureOverTLS(t *testing.T) {
	s := newVisited(t, visitor.Options{Always: true}, anyRequest)
	for proto, want := range map[string]bool{"https": true, "http": false} {
		w, _ := s.get("192.0.2.1", "", "X-Forwarded-Proto", proto)
		if line := w.Header().Get("Set-Cookie"); strings.HasSuffix(line, "; Secure") != want ||
			!strings.Contains(line, "; HttpOnly; SameSite=Lax") {
			t.Errorf("%s: %q", proto, line)
		}
	}
}

func TestNobodyGetsACookieInDryRun(t *testing.T) {
	policy := fairshare.Policy{DryRun: true, Rules: []fairshare.Rule{limit("one", requests(1, time.Minute))}}
	s := newVisited(t, visitor.Options{Always: true}, policy)
	for range 3 {
		if w, set := s.get("192.0.2.1", ""); set != "" || w.Code != http.StatusOK {
			t.Errorf("cookie %q, status %d", set, w.Code)
		}
	}
}
