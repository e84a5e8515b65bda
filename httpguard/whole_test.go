package httpguard_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// A wholeWriter takes whole answers, as the lane of serve does.
type wholeWriter struct {
	*httptest.ResponseRecorder
	answer string // as sent; "" if it was written in parts
	reused bool
}

func (w *wholeWriter) WriteAnswer(status int, fields, body []byte, dated bool) bool {
	if len(w.Header()) > 0 {
		return false
	}
	w.answer = fmt.Sprintf("HTTP/1.1 %d %s\r\n%s\r\n%s", status, http.StatusText(status), fields, body)
	return true
}

func (w *wholeWriter) Reuse() { w.reused = true }

// describe returns an answer without its date, with sorted fields.
func describe(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	resp.Header.Del("Date")
	var lines []string
	for name, values := range resp.Header {
		lines = append(lines, fmt.Sprintf("%s: %q", name, values))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %d %v\n%s\n%q", resp.Status, resp.ContentLength, resp.TransferEncoding,
		strings.Join(lines, "\n"), body)
}

// A whole answer is the one that net/http sends, whatever the rule answers with.
func TestWholeAnswersAreThoseOfNetHTTP(t *testing.T) {
	longName := strings.Repeat("a <b> & c ", 250)
	for name, c := range map[string]struct {
		answer  *fairshare.Answer
		inParts bool // it is not written whole
	}{
		"usual":     {},
		longName:    {},
		"blocked":   {},
		"empty":     {answer: &fairshare.Answer{Empty: true}},
		"404":       {answer: &fairshare.Answer{Status: 404}},
		"204":       {answer: &fairshare.Answer{Status: 204, Empty: true}},
		"304":       {answer: &fairshare.Answer{Status: 304}},
		"no wait":   {answer: &fairshare.Answer{RetryAfter: -1}},
		"own wait":  {answer: &fairshare.Answer{RetryAfter: time.Minute}},
		"own body":  {answer: &fairshare.Answer{Body: "wait {wait} until {until}: {rule} {id} {client}"}},
		"own JSON":  {answer: &fairshare.Answer{Body: `{"wait": {wait}}`}},
		"own HTML":  {answer: &fairshare.Answer{Body: "<p>{rule}</p>"}},
		"redirect":  {answer: &fairshare.Answer{Redirect: "https://wait.example/?{client}"}},
		"signature": {inParts: true},
		"its fields": {answer: &fairshare.Answer{Header: map[string][]string{"Cache-Control": {"private"},
			"Link": {"<a>"}}}, inParts: true},
	} {
		opts := httpguard.Options{Contact: "shop@example.org", Reuse: true, Now: func() time.Time { return noon }}
		rule := limit(name, fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour,
			Algorithm: fairshare.Quiet})
		switch name {
		case "blocked":
			rule = block(name, "/a")
		case "signature":
			opts.Bot = func(netip.Addr, string) fairshare.Bot {
				return fairshare.Bot{Name: "Examplebot", State: fairshare.Forged}
			}
			opts.CanSign = func(fairshare.Bot) bool { return true }
		}
		rule.Answer = c.answer
		h := httpguard.Middleware(newGuard(t, rule), opts)(welcome)
		server := httptest.NewServer(h)
		defer server.Close()
		const client = "127.0.0.1:9"
		first := httptest.NewRequest("GET", "/a", nil)
		first.RemoteAddr = client
		h.ServeHTTP(httptest.NewRecorder(), first)
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for _, accept := range []string{"", "text/html", "application/json"} {
				r := httptest.NewRequest(method, server.URL+"/a?b", nil)
				r.Header["Accept"] = []string{accept}
				r.RemoteAddr, r.RequestURI = client, ""
				resp, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				want := describe(t, resp)

				w := &wholeWriter{ResponseRecorder: httptest.NewRecorder()}
				h.ServeHTTP(w, r)
				if w.answer == "" != c.inParts || !w.reused {
					t.Fatalf("%.20s, %s %q: written whole: %v; memory used again: %v", name, method, accept,
						w.answer != "", w.reused)
				}
				if c.inParts {
					continue
				}
				resp, err = http.ReadResponse(bufio.NewReader(strings.NewReader(w.answer)), r)
				if err != nil {
					t.Fatal(err)
				}
				if got := describe(t, resp); got != want {
					t.Errorf("%.20s, %s %q: the whole answer is\n%.1500s\nby net/http it is\n%.1500s", name, method, accept,
						got, want)
				}
			}
		}
	}
}

// A silentMeter never reports.
type silentMeter struct{}

func (silentMeter) Begin(string) httpguard.Metering { return silentMeter{} }
func (silentMeter) Spent() time.Duration            { return 0 }
func (silentMeter) End(func(time.Duration))         {}

// The memory of a request is used again only if the program allows it, and the request was refused or its handler
// keeps nothing.
func TestMemoryIsUsedAgainOnlyIfNothingIsKept(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "welcome")
		switch r.URL.Path {
		case "/unkept", "/robots.txt":
			httpguard.NothingKept(w)
		case "/panics":
			httpguard.NothingKept(w)
			panic(http.ErrAbortHandler)
		}
	})
	for name, c := range map[string]struct {
		opts httpguard.Options
		want []string // paths of the requests whose memory is used again
	}{
		"not allowed":      {httpguard.Options{}, nil},
		"allowed":          {httpguard.Options{Reuse: true}, []string{"/no", "/unkept"}},
		"with contexts":    {httpguard.Options{Reuse: true, Context: true}, []string{"/no"}},
		"with a late cost": {httpguard.Options{Reuse: true, Meter: silentMeter{}}, []string{"/no"}},
	} {
		c.opts.Now = func() time.Time { return noon }
		inner := httpguard.Middleware(newGuard(t), httpguard.Options{})(handler)
		h := httpguard.Middleware(newGuard(t, block("no", "/no")), c.opts)(inner)
		for _, path := range []string{"/no", "/yes", "/unkept", "/panics", "/robots.txt"} {
			w := &wholeWriter{ResponseRecorder: httptest.NewRecorder()}
			func() {
				defer func() { recover() }()
				h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			}()
			if want := slices.Contains(c.want, path); w.reused != want {
				t.Errorf("%s, %s: used again: %v", name, path, w.reused)
			}
		}
	}
}

// After Replace, a client gets the reference by the new key, also from a rule of the same name.
func TestReferencesAfterReplace(t *testing.T) {
	var got []string
	opts := httpguard.Options{Refused: func(r *httpguard.Report) { got = append(got, r.ID) }}
	h := httpguard.New(newGuard(t, block("no", "/")), opts, nil)
	for i := range 8 {
		policy := &fairshare.Policy{Rules: []fairshare.Rule{block("no", "/")}}
		opts.ReferenceKey = []byte{byte(i & 1)}
		h.Replace(guardFor(t, policy, nil), opts)
		for range 2 {
			r := httptest.NewRequest("GET", "/", nil)
			got = nil
			h.ServeHTTP(httptest.NewRecorder(), r)
			req := &fairshare.Request{Addr: netip.MustParseAddrPort(r.RemoteAddr).Addr()}
			want := httpguard.Reference(opts.ReferenceKey, policy, req, &policy.Rules[0])
			if !slices.Equal(got, []string{want}) {
				t.Errorf("after Replace %d: %q, want %q", i, got, want)
			}
		}
	}
}

// Refused clients get their own references, however the refusals of several clients and rules follow each other.
func TestReferencesOfAlternatingRefusals(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{block("one", "/1"), block("two", "/2")}}
	key := []byte("secret")
	bot := fairshare.Bot{}
	h := httpguard.Middleware(guardFor(t, policy, nil), httpguard.Options{
		ReferenceKey: key,
		Bot:          func(netip.Addr, string) fairshare.Bot { return bot },
		Refused: func(r *httpguard.Report) {
			if want := httpguard.Reference(key, policy, r.Request, r.Finding.Rule); r.ID != want {
				t.Errorf("%v %s by %s: %s, not %s", r.Request.Addr, bot.Name, r.Finding.Rule.Name, r.ID, want)
			}
		},
	})(welcome)
	for i := range 64 {
		bot = fairshare.Bot{}
		if i&8 != 0 {
			bot = fairshare.Bot{Name: "Examplebot", State: fairshare.Verified, UserTriggered: i&16 != 0}
		}
		r := httptest.NewRequest("GET", fmt.Sprint("/", 1+i>>2&1), nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:9", 1+i>>1&1)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
