package sessions_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/sessions"
)

// A fakeUpstream answers the next request as a test says, and records the cookies that came with
// it.
type fakeUpstream struct {
	status int
	set    []string // Set-Cookie
	got    string   // Cookie
	hold   chan struct{}
	h      *sessions.Handler
}

func newFakeUpstream(c sessions.Config) *fakeUpstream {
	f := &fakeUpstream{status: 200}
	if c.Cookies == nil {
		c.Cookies = []string{"sid", "tok*"}
	}
	c.Identify = clientOf
	f.h = sessions.New(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.got = strings.Join(r.Header["Cookie"], " | ")
		status, set, hold := f.status, f.set, f.hold
		if hold != nil {
			<-hold
		}
		w.Header()["Set-Cookie"] = slices.Clone(set)
		w.WriteHeader(status)
	}))
	return f
}

// send sends a bot's request for a URL, which is answered with set. It returns the Cookie header
// that the upstream got, and the cookies that the bot gets.
func (f *fakeUpstream) send(url string, set ...string) (got string, answered []string) {
	f.set = set
	w := httptest.NewRecorder()
	f.h.ServeHTTP(known{w, addr(here), bots["known"]}, httptest.NewRequest("GET", url, nil))
	return f.got, w.Header()["Set-Cookie"]
}

// Each step has the URL of a request, the expected Cookie header, and the answer.
func TestCookiesAreSentAsByBrowsers(t *testing.T) {
	type step struct {
		url, want string
		status    int
		set       []string
	}
	none := []string(nil)
	for name, steps := range map[string][]step{
		"two are one session": {
			{"http://a/", "", 200, []string{"sid=1", "tok1=x", "other=y"}},
			{"http://a/b/c", "sid=1; tok1=x", 200, none},
		},
		"one joins later": {
			{"http://a/", "", 200, []string{"sid=1"}},
			{"http://a/", "sid=1", 200, []string{"tok1=x"}},
			{"http://a/", "sid=1; tok1=x", 200, []string{"sid=2"}},
			{"http://a/", "tok1=x; sid=2", 200, none},
		},
		"paths": {
			{"http://a/shop/x", "", 200, []string{"sid=1; Path=/shop", "tok1=r; Path=/"}},
			{"http://a/shop", "sid=1; tok1=r", 200, none},
			{"http://a/shopping", "tok1=r", 200, []string{"sid=2; Path=/shopping"}},
			{"http://a/shopping/x?y=/shop", "sid=2; tok1=r", 200, none},
			{"http://a/shop/y", "sid=1; tok1=r", 200, []string{"sid=3; Path=/shop/y"}},
			{"http://a/shop/y/z", "sid=3; sid=1; tok1=r", 200, none},
			{"http://a/", "tok1=r", 200, none},
		},
		"the path where it was set": {
			{"http://a/x/y?z", "", 200, []string{"sid=1"}},
			{"http://a/x/z", "sid=1", 200, none},
			{"http://a/z", "", 200, none},
		},
		"over TLS": {
			{"https://a/", "", 200, []string{"sid=1; Secure", "tok1=x"}},
			{"http://a/", "tok1=x", 200, none},
			{"https://a/", "sid=1; tok1=x", 200, none},
		},
		"deleted": {
			{"http://a/", "", 200, []string{"sid=1", "tok1=x"}},
			{"http://a/", "sid=1; tok1=x", 200, []string{"sid=deleted; Max-Age=0"}},
			{"http://a/", "tok1=x", 200, []string{"tok1=; Path=/"}},
			{"http://a/", "", 200, none},
		},
		"deleted with an error": {
			{"http://a/", "", 200, []string{"sid=1"}},
			{"http://a/", "sid=1", 500, []string{"sid=; expires=Thu, 01-Jan-1970 00:00:01 GMT", "tok1=x"}},
			{"http://a/", "", 200, none},
		},
		"deleted and set again at once": {
			{"http://a/", "", 200, []string{"sid=1"}},
			{"http://a/", "sid=1", 200, []string{"sid=deleted; Max-Age=0", "sid=2"}},
			{"http://a/", "sid=2", 200, none},
		},
		"deleted before it is there": {
			{"http://a/", "", 200, []string{"sid=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT", "sid=1; path=/",
				"sid=2; path=/"}},
			{"http://a/", "sid=2", 200, none},
		},
		"redirected":  {{"http://a/", "", 302, []string{"sid=1"}}, {"http://a/", "sid=1", 200, none}},
		"not changed": {{"http://a/", "", 304, []string{"sid=1"}}, {"http://a/", "sid=1", 200, none}},
		"not found":   {{"http://a/", "", 404, []string{"sid=1"}}, {"http://a/", "sid=1", 200, none}},
		"not allowed": {{"http://a/", "", 403, []string{"sid=1"}}, {"http://a/", "", 200, none}},
		"to log in":   {{"http://a/", "", 401, []string{"sid=1"}}, {"http://a/", "", 200, none}},
		"too many":    {{"http://a/", "", 429, []string{"sid=1"}}, {"http://a/", "", 200, none}},
		"an error":    {{"http://a/", "", 500, []string{"sid=1"}}, {"http://a/", "", 200, none}},
		"a bad one":   {{"http://a/", "", 200, []string{"sid=a\x01b"}}, {"http://a/", "", 200, none}},
		"a huge one": {{"http://a/", "", 200, []string{"sid=" + strings.Repeat("x", 4096)}},
			{"http://a/", "", 200, none}},
		"many":                {{"http://a/", "", 200, many(17)}, {"http://a/", "", 200, none}},
		"its value in quotes": {{"http://a/", "", 200, []string{`sid="x y"`}}, {"http://a/", `sid="x y"`, 200, none}},
	} {
		f := newFakeUpstream(sessions.Config{})
		for i, step := range steps {
			f.status = step.status
			if got, _ := f.send(step.url, step.set...); got != step.want {
				t.Errorf("%s, step %d: the upstream gets %q, want %q", name, i, got, step.want)
			}
		}
	}
}

func many(n int) (set []string) {
	for i := range n {
		set = append(set, fmt.Sprintf("tok%d=x", i))
	}
	return set
}

// Only the bot that opens a session gets its cookie. Bots that share it do not, even if the cookie is
// set again.
func TestOnlyTheOpenerGetsTheCookie(t *testing.T) {
	f := newFakeUpstream(sessions.Config{})
	for i, step := range []struct{ set, want []string }{
		{[]string{"theme=dark", "sid=1; Path=/"}, []string{"theme=dark", "sid=1; Path=/"}},
		{nil, nil},
		{[]string{"theme=dark", "sid=1; Max-Age=60"}, []string{"theme=dark"}},
		{[]string{"sid=1; Path=/deep"}, []string{}},
		{[]string{"sid=2; Path=/"}, []string{"sid=2; Path=/"}},
		{[]string{"sid=2; Path=/"}, []string{}},
	} {
		if _, got := f.send("http://a/", step.set...); !slices.Equal(got, step.want) {
			t.Errorf("step %d: the bot gets %q, want %q", i, got, step.want)
		}
	}
}

// held starts a request, and returns a function that answers it. Call it in a synctest bubble.
func (f *fakeUpstream) held(url string, set ...string) (release func()) {
	hold, done := make(chan struct{}), make(chan struct{})
	f.hold = hold
	go func() {
		defer close(done)
		f.send(url, set...)
	}()
	synctest.Wait()
	f.hold = nil
	return func() {
		close(hold)
		<-done
	}
}

// Answers may come in any order. A session that ended meanwhile stays ended.
func TestLateAnswers(t *testing.T) {
	sendOwn := func(f *fakeUpstream, change func(*http.Request)) {
		r := httptest.NewRequest("GET", "http://a/", nil)
		change(r)
		f.set = nil
		f.h.ServeHTTP(known{httptest.NewRecorder(), addr(near), bots["known"]}, r)
	}
	for name, test := range map[string]func(f *fakeUpstream) (want string){
		"two open at once, the first answer is kept": func(f *fakeUpstream) string {
			one, two := f.held("http://a/", "sid=1", "tok1=1"), f.held("http://a/", "sid=2", "tok1=2")
			two()
			one()
			return "sid=2; tok1=2"
		},
		"half of another's is not": func(f *fakeUpstream) string {
			one, two := f.held("http://a/", "sid=1", "tok1=1"), f.held("http://a/", "tok1=2", "tok2=2")
			one()
			two()
			return "sid=1; tok1=1"
		},
		"two applications": func(f *fakeUpstream) string {
			one, two := f.held("http://a/", "sid=1"), f.held("http://a/", "tok1=2")
			one()
			two()
			return "sid=1; tok1=2"
		},
		"opened before a POST": func(f *fakeUpstream) string {
			one := f.held("http://a/", "sid=1")
			sendOwn(f, func(r *http.Request) { r.Method = "POST" })
			one()
			return ""
		},
		"opened before a cookie, with another request between": func(f *fakeUpstream) string {
			one := f.held("http://a/", "sid=1")
			sendOwn(f, func(r *http.Request) { r.Header.Set("Cookie", "a=b") })
			two := f.held("http://a/", "sid=2")
			one()
			two()
			return "sid=2"
		},
		"set again after it was used": func(f *fakeUpstream) string {
			f.send("http://a/", "sid=1")
			one := f.held("http://a/", "sid=1")
			sendOwn(f, func(r *http.Request) { r.Header.Set("Cookie", "sid=1") })
			one()
			return ""
		},
		"set again for the next, after it was used": func(f *fakeUpstream) string {
			f.send("http://a/", "sid=1")
			sendOwn(f, func(r *http.Request) { r.Header.Set("Cookie", "sid=1") })
			f.send("http://a/", "sid=1")
			return ""
		},
		"replaced by two at once": func(f *fakeUpstream) string {
			f.send("http://a/", "sid=1")
			one, two := f.held("http://a/", "sid=2"), f.held("http://a/", "sid=3")
			two()
			one()
			return "sid=3"
		},
		"deleted after it was replaced": func(f *fakeUpstream) string {
			f.send("http://a/", "sid=1")
			one := f.held("http://a/", "sid=gone; Max-Age=0")
			f.send("http://a/", "sid=2")
			one()
			return "sid=2"
		},
		"after sharing was turned off and on": func(f *fakeUpstream) string {
			one := f.held("http://a/", "sid=1")
			f.h.Replace(sessions.Config{})
			f.h.Replace(sessions.Config{Cookies: []string{"sid"}, Identify: clientOf})
			one()
			return ""
		},
		"after its name was taken away": func(f *fakeUpstream) string {
			one := f.held("http://a/", "sid=1", "tok1=2")
			f.h.Replace(sessions.Config{Cookies: []string{"sid"}, Identify: clientOf})
			one()
			return "sid=1"
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeUpstream(sessions.Config{})
			want := test(f)
			if got, _ := f.send("http://a/"); got != want {
				t.Errorf("%s: the upstream is offered %q, want %q", name, got, want)
			}
		})
	}
}

func TestSessionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeUpstream(sessions.Config{Idle: 10 * time.Minute, Age: time.Hour})
		expect := func(after time.Duration, want string, set ...string) {
			t.Helper()
			time.Sleep(after)
			if got, _ := f.send("http://a/", set...); got != want {
				t.Errorf("%v later the upstream is offered %q, want %q", after, got, want)
			}
		}
		expect(0, "", "sid=1")
		for range 6 {
			expect(10*time.Minute-time.Second, "sid=1")
		}
		expect(6*time.Second, "", "sid=2") // sid=1 is an hour old
		expect(10*time.Minute, "", "sid=3")
		expect(0, "sid=3", "tok1=x; Max-Age=60")
		expect(59*time.Second, "sid=3; tok1=x")
		expect(time.Second, "sid=3", "tok1=x; Max-Age=60")
		expect(50*time.Second, "sid=3; tok1=x", "tok1=x; Max-Age=60") // the bot continues to use it
		expect(50*time.Second, "sid=3; tok1=x")
	})
}

// A session with which the upstream fails is dropped, but not for every error of a page.
func TestFailingSessionIsDropped(t *testing.T) {
	for status, want := range map[int]string{400: "", 401: "", 403: "", 404: "sid=1", 419: "", 429: "sid=1", 440: "",
		500: "", 503: ""} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeUpstream(sessions.Config{})
			f.send("http://a/", "sid=1")
			f.status = status
			f.send("http://a/")
			if got, _ := f.send("http://a/"); got != "sid=1" {
				t.Errorf("after a %d at once: %q is offered", status, got)
			}
			time.Sleep(5 * time.Minute)
			f.send("http://a/")
			if got, _ := f.send("http://a/"); got != want {
				t.Errorf("after a %d of an old session: %q is offered, want %q", status, got, want)
			}
		})
	}
}

// A reload keeps the sessions of cookies that are still named.
func TestReplaceKeepsNamedCookies(t *testing.T) {
	f := newFakeUpstream(sessions.Config{})
	f.send("http://a/", "sid=1", "tok1=x")
	for _, step := range []struct {
		cookies []string
		want    string
	}{{[]string{"tok1", "sid"}, "sid=1; tok1=x"}, {[]string{"tok*"}, "tok1=x"}, {[]string{"sid", "tok*"}, "tok1=x"},
		{nil, ""}, {[]string{"tok*"}, ""}} {
		f.h.Replace(sessions.Config{Cookies: step.cookies, Identify: clientOf})
		if got, _ := f.send("http://a/"); got != step.want {
			t.Errorf("with %q: %q is offered, want %q", step.cookies, got, step.want)
		}
	}
	f.send("http://a/", "tok1=y")
	f.h.Replace(sessions.Config{Cookies: []string{"tok1"}, Identify: clientOf, Memory: 1})
	if got, _ := f.send("http://a/"); got != "" {
		t.Errorf("without memory: %q is offered", got)
	}
}

// Floods of networks, sites and cookies stay within the memory bound, and do not remove the
// sessions of verified bots.
func TestFloodsAreBounded(t *testing.T) {
	const memory = 1 << 20
	for name, flood := range map[string]func(i int) (client, host string, set []string){
		"networks": func(i int) (string, string, []string) {
			return fmt.Sprintf("%d.%d.%d.1", 1+i>>16, i>>8&255, i&255), "a",
				[]string{fmt.Sprintf("sid=session-number-%d", i)}
		},
		"sites": func(i int) (string, string, []string) {
			return here, fmt.Sprintf("%d.%s", i, strings.Repeat("x", 100)), []string{fmt.Sprintf("sid=%d", i)}
		},
		"nothing opened": func(i int) (string, string, []string) {
			return fmt.Sprintf("2001:db8:%x::1", i&0xFFFF),
				"a", nil
		},
		"huge cookies": func(i int) (string, string, []string) {
			return fmt.Sprintf("%d.%d.%d.1", 1+i>>16, i>>8&255, i&255), "a",
				[]string{fmt.Sprintf("sid=%d", i) + strings.Repeat("x", 3000+i%2000)}
		},
		"many cookies": func(i int) (string, string, []string) {
			set := many(20)
			for j := range set {
				set[j] += fmt.Sprint(i)
			}
			return here, fmt.Sprint(i), set[:10+i%11]
		},
	} {
		var set []string
		h := sessions.New(sessions.Config{Cookies: []string{"sid", "tok*"}, Identify: clientOf, Memory: memory},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Set-Cookie"] = set
				w.Header()["Got"] = r.Header["Cookie"]
			}))
		send := func(agent, client, host string) []string {
			r := httptest.NewRequest("GET", "http://a/", nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(known{w, addr(client), bots[agent]}, r)
			return w.Header()["Got"]
		}
		set = []string{"sid=of-the-real-crawler"}
		send("verified", here, "a")
		before := heap()
		for i := range 15_000 {
			var client, host string
			client, host, set = flood(i)
			send("known", client, host)
		}
		if grown := heap() - before; grown > memory*3/2 {
			t.Errorf("%s: %d KiB are taken, want at most about %d", name, grown>>10, memory>>10)
		}
		set = nil
		if got := send("verified", there, "a"); !slices.Equal(got, []string{"sid=of-the-real-crawler"}) {
			t.Errorf("%s: the verified bot's session is gone: %q", name, got)
		}
		runtime.KeepAlive(h)
	}
}

// heap returns how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A value that all clients have does not identify a session, for example Lucee's CFTOKEN.
func TestShortValuesDoNotIdentifyASession(t *testing.T) {
	f := newFakeUpstream(sessions.Config{Cookies: []string{"cfid", "cftoken", "n"}})
	sent := func(cookie string) {
		r := httptest.NewRequest("GET", "http://a/?q=7", nil)
		r.Header.Set("Cookie", cookie)
		f.set = nil
		f.h.ServeHTTP(known{ResponseWriter: httptest.NewRecorder()}, r)
	}
	sent("cfid=aaaaaaaa-bbbb-cccc; cftoken=0")
	f.send("http://a/", "cfid=1f2a3b4c-5d6e", "cftoken=0")
	sent("cfid=aaaaaaaa-bbbb-dddd; cftoken=0; q=7")
	if got, _ := f.send("http://a/"); got != "cfid=1f2a3b4c-5d6e; cftoken=0" {
		t.Errorf("%q is offered", got)
	}
	sent("n=8")
	f.send("http://b/", "n=7") // the only cookie
	if got, _ := f.send("http://b/"); got != "n=7" {
		t.Errorf("%q is offered", got)
	}
	sent("n=7")
	if got, _ := f.send("http://b/"); got != "" {
		t.Errorf("%q is offered after it was sent", got)
	}
}

// Two bots never share a session that the upstream set for one of them.
func TestTwoBotsNeverShareOneSession(t *testing.T) {
	f := newFakeUpstream(sessions.Config{})
	f.send("http://a/", "sid=the-same-for-everybody")
	f.send("http://b/", "sid=the-same-for-everybody")
	if got, _ := f.send("http://b/"); got != "" {
		t.Errorf("%q is offered", got)
	}
	if got, _ := f.send("http://a/"); got != "sid=the-same-for-everybody" {
		t.Errorf("%q is offered", got)
	}
}

// Writers with the optional methods of net/http.
type (
	plainWriter  struct{ http.ResponseWriter }
	flushWriter  struct{ *httptest.ResponseRecorder }
	hijackWriter struct{ flushWriter }
	http1Writer  struct{ hijackWriter }
	http2Writer  struct{ flushWriter }
)

var errHijacked = errors.New("hijacked")

func (hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHijacked }
func (w http1Writer) ReadFrom(src io.Reader) (int64, error)       { return io.Copy(w.ResponseRecorder, src) }
func (http2Writer) Push(string, *http.PushOptions) error          { return errHijacked }

// The writer for a handler has the optional methods of the writer below it. A session is learnt
// however the handler writes its answer.
func TestWriters(t *testing.T) {
	for name, below := range map[string]func(*httptest.ResponseRecorder) http.ResponseWriter{
		"plain":  func(r *httptest.ResponseRecorder) http.ResponseWriter { return plainWriter{r} },
		"flush":  func(r *httptest.ResponseRecorder) http.ResponseWriter { return flushWriter{r} },
		"hijack": func(r *httptest.ResponseRecorder) http.ResponseWriter { return hijackWriter{flushWriter{r}} },
		"http/1": func(r *httptest.ResponseRecorder) http.ResponseWriter {
			return http1Writer{hijackWriter{flushWriter{r}}}
		},
		"http/2": func(r *httptest.ResponseRecorder) http.ResponseWriter { return http2Writer{flushWriter{r}} },
	} {
		for how, answer := range map[string]func(http.ResponseWriter){
			"nothing":     func(http.ResponseWriter) {},
			"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(201) },
			"hints": func(w http.ResponseWriter) {
				final := w.Header()["Set-Cookie"]
				w.Header()["Set-Cookie"] = []string{"sid=of-a-hint"}
				w.WriteHeader(103)
				w.Header()["Set-Cookie"] = final
				w.WriteHeader(200)
			},
			"Write":       func(w http.ResponseWriter) { w.Write([]byte("x")) },
			"WriteString": func(w http.ResponseWriter) { io.WriteString(w, "x") },
			"Flush":       func(w http.ResponseWriter) { http.NewResponseController(w).Flush(); w.Write([]byte("x")) },
			"ReadFrom":    func(w http.ResponseWriter) { io.Copy(w, strings.NewReader("x")) },
		} {
			var has, want [4]bool
			var got string
			var set []string
			c := sessions.Config{Cookies: []string{"sid"},
				Identify: func(http.ResponseWriter) (netip.Addr, fairshare.Bot, bool) {
					return addr(here), bots["known"], true
				}}
			h := sessions.New(c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, has = r.Header.Get("Cookie"), optional(w)
				w.Header()["Set-Cookie"] = set
				answer(w)
				if how != "nothing" {
					w.Header()["Set-Cookie"] = []string{"sid=2"} // too late
				}
			}))
			set = []string{"sid=1"}
			w := below(httptest.NewRecorder())
			want = optional(w)
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://a/", nil))
			if set = nil; has != want {
				t.Errorf("%s: flush, hijack, read, push: %v, want %v", name, has, want)
			}
			if h.ServeHTTP(w, httptest.NewRequest("GET", "http://a/", nil)); got != "sid=1" {
				t.Errorf("%s, %s: %q is offered, want sid=1", name, how, got)
			}
		}
	}
}

// optional returns which optional methods a writer has.
func optional(w http.ResponseWriter) (has [4]bool) {
	_, has[0] = w.(http.Flusher)
	_, has[1] = w.(http.Hijacker)
	_, has[2] = w.(io.ReaderFrom)
	_, has[3] = w.(http.Pusher)
	return has
}

// A hijacked or broken answer opens no session.
func TestBrokenAnswersOpenNoSession(t *testing.T) {
	var answer func(http.ResponseWriter)
	var got string
	h := sessions.New(sessions.Config{Cookies: []string{"sid"}, Identify: clientOf},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Cookie")
			w.Header().Set("Set-Cookie", "sid=1")
			answer(w)
		}))
	send := func() {
		defer func() { recover() }()
		w := known{httptest.NewRecorder(), addr(here), bots["known"]}
		h.ServeHTTP(hijackKnown{w}, httptest.NewRequest("GET", "http://a/", nil))
	}
	for name, answer1 := range map[string]func(http.ResponseWriter){
		"hijacked": func(w http.ResponseWriter) { http.NewResponseController(w).Hijack() },
		"broken":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		answer = answer1
		send()
		if send(); got != "" {
			t.Errorf("%s: %q is offered", name, got)
		}
	}
}
