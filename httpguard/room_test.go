package httpguard_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/share"
	"fairshare/visitor"
	"fairshare/waitingroom"
)

// navigation are the headers of a browser that loads a page.
var navigation = []string{"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
	"Accept-Language", "en-US,en;q=0.5", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}

func newRoom(t testing.TB, opts waitingroom.Options) *waitingroom.Room {
	t.Helper()
	room, err := waitingroom.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return room
}

func newVisitors(t testing.TB) *visitor.Cookies {
	t.Helper()
	cookies, err := visitor.New(visitor.Options{PerNetwork: 4})
	if err != nil {
		t.Fatal(err)
	}
	return cookies
}

// fullSite returns a handler whose one slot is taken. No request waits for it.
func fullSite(t *testing.T, dryRun bool, opts httpguard.Options) http.Handler {
	t.Helper()
	rules := []fairshare.Rule{limit("many", requests(1000, time.Hour))}
	guard := guardFor(t, &fairshare.Policy{DryRun: dryRun, Rules: rules}, nil)
	opts.Share = share.New(share.Options{Capacity: 1, Wait: -1, DryRun: dryRun, Key: guard.AppendKey})
	taken := fairshare.Request{Time: time.Now()}
	claim := opts.Share.Claim(&taken)
	if _, err := opts.Share.Wait(context.Background(), &claim); err != nil {
		t.Fatal(err)
	}
	return httpguard.Middleware(guard, opts)(welcome)
}

// cookieOf returns the Cookie header with which a browser sends back what an answer has set.
func cookieOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || cookies[0].Name != visitor.Name {
		t.Fatalf("the answer sets the cookies %v", cookies)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

func holder(t *testing.T, cookies *visitor.Cookies, w *httptest.ResponseRecorder) fairshare.Visitor {
	t.Helper()
	_, value, _ := strings.Cut(cookieOf(t, w), "=")
	found := cookies.Read(value, time.Now(), time.Now())
	if found.ID == 0 {
		t.Fatal("the cookie is not valid")
	}
	return found.Visitor
}

func with(headers []string, more ...string) []string {
	return append(append([]string{}, headers...), more...)
}

func TestOnlyPagesOfBrowsersGetTheWaitingRoom(t *testing.T) {
	opts := httpguard.Options{WaitingRoom: newRoom(t, waitingroom.Options{}), Contact: "shop@example.org",
		Bot: func(_ netip.Addr, agent string) fairshare.Bot {
			if strings.Contains(agent, "Googlebot") {
				return fairshare.Bot{Name: "googlebot"}
			}
			return fairshare.Bot{}
		}}
	h := fullSite(t, false, opts)
	const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, test := range []struct {
		name, method string
		header       []string
		page         bool
	}{
		{"a browser", "GET", navigation, true},
		{"an old browser", "GET", []string{"Accept", accept}, true},
		{"a frame", "GET", []string{"Accept", accept, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, true},
		{"an embedded object", "GET",
			[]string{"Accept", accept, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "embed"}, false},
		{"a form", "POST", navigation, false},
		{"HEAD", "HEAD", navigation, false},
		{"fetch", "GET", []string{"Accept", "*/*", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, false},
		{"fetch of a page", "GET", []string{"Accept", accept, "Sec-Fetch-Mode", "same-origin"}, false},
		{"web view of Android", "GET", with(navigation, "X-Requested-With", "org.example.app"), true},
		{"XHR of an old browser", "GET", []string{"Accept", accept, "X-Requested-With", "XMLHttpRequest"}, false},
		{"an image", "GET", []string{"Accept", "image/avif,image/webp,*/*;q=0.8", "Sec-Fetch-Mode", "no-cors"}, false},
		{"an API", "GET", []string{"Accept", "application/json"}, false},
		{"a program", "GET", nil, false},
		{"a program that prefers JSON", "GET", []string{"Accept", "text/html;q=0.5, application/json"}, false},
		{"a prefetch", "GET", with(navigation, "Sec-Purpose", "prefetch;prerender"), false},
		{"an old prefetch", "GET", with(navigation, "Purpose", "prefetch"), false},
		{"a bot", "GET", with(navigation, "User-Agent", "Mozilla/5.0 (compatible; Googlebot/2.1)"), false},
	} {
		w := request(h, test.method, "/page?id=1", test.header...)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: answered %d %v", test.name, w.Code, w.Header())
		}
		if page := w.Header().Get("Refresh") != ""; page != test.page {
			t.Errorf("%s: page %v\n%v %s", test.name, page, w.Header(), w.Body)
		}
	}
	if w := request(h, "GET", "/robots.txt", navigation...); w.Header().Get("Refresh") != "" {
		t.Errorf("robots.txt: %v", w.Header())
	}
}

func TestWaitingRoomIsNeitherStoredNorIndexed(t *testing.T) {
	var report httpguard.Report
	h := fullSite(t, false, httpguard.Options{WaitingRoom: newRoom(t, waitingroom.Options{}),
		Contact: "shop@example.org", Refused: func(r *httpguard.Report) { report = *r }})
	w := request(h, "GET", "/page?id=1", navigation...)
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Robots-Tag": "noindex", "Content-Type": "text/html; charset=utf-8",
		"Content-Language": "en", "Retry-After": w.Header().Get("Refresh"),
		"Content-Length": strconv.Itoa(w.Body.Len()),
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	reload, err := strconv.Atoi(w.Header().Get("Refresh"))
	if err != nil || reload < 2 || reload > 30 {
		t.Errorf("Refresh: %q", w.Header().Get("Refresh"))
	}
	body := w.Body.String()
	for _, text := range []string{"This site is busy", `<a href="mailto:shop@example.org">`, report.ID} {
		if !strings.Contains(body, text) {
			t.Errorf("no %q in %s", text, body)
		}
	}
	if strings.Contains(body, "keep your place") || len(w.Result().Cookies()) > 0 {
		t.Errorf("without cookies: %v %s", w.Result().Cookies(), body)
	}
	if !report.WaitingRoom || report.Status != 503 || report.RetryAfter != int64(reload) ||
		report.Finding.Rule != fairshare.BusyUpstream || len(report.ID) != 10 {
		t.Errorf("reported %+v", report)
	}
}

// A page waits for a shorter time than other requests. Its visitor comes back with the cookie and
// keeps its place until it gets in.
func TestWaitingRoomKeepsTheVisitorsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cookies := newVisitors(t)
		s := newBusySite(t, share.Options{Capacity: 1, Wait: 5 * time.Minute}, httpguard.Options{
			WaitingRoom: newRoom(t, waitingroom.Options{After: 4 * time.Second}), Visitors: cookies,
			HandlerAwaits: true,
		}, work(20*time.Second))
		s.request(t.Context(), "192.0.2.1", "/works")
		s.request(t.Context(), "192.0.2.1", "/asset") // waits, so that the site is busy
		began := time.Now()
		navigate := func(client, path string, header ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr = client + ":1234"
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			return w
		}
		w := navigate("198.51.100.1", "/page", navigation...)
		if took := time.Since(began); w.Code != 503 || took != 4*time.Second {
			t.Fatalf("answered %d after %v", w.Code, took)
		}
		first := holder(t, cookies, w)
		if waited := time.Since(first.Waits); waited.Round(time.Second/16) != 4*time.Second {
			t.Errorf("waits for %v", waited)
		}
		if !strings.Contains(w.Body.String(), "You keep your place in the line.") {
			t.Error("the page says nothing about the place")
		}
		cookie := cookieOf(t, w)
		time.Sleep(2 * time.Second)
		w = navigate("198.51.100.1", "/page", with(navigation, "Cookie", cookie)...)
		again := holder(t, cookies, w)
		if w.Code != 503 || again.ID != first.ID || first.Waits.Sub(again.Waits).Abs() > time.Second/16 {
			t.Errorf("came back: %d, %+v, want the place of %+v", w.Code, again, first)
		}
		// Without the cookie the client starts again.
		w = navigate("203.0.113.1", "/page", navigation...)
		other := holder(t, cookies, w)
		if w.Code != 503 || other.ID == first.ID || time.Since(other.Waits) > 5*time.Second {
			t.Errorf("without the cookie: %d, %+v", w.Code, other)
		}
		// Another address of the same visitor.
		w = navigate("198.51.100.7", "/page", with(navigation, "Cookie", cookie)...)
		for range 12 {
			if w.Code == 200 {
				break
			}
			cookie = cookieOf(t, w)
			time.Sleep(2 * time.Second)
			w = navigate("198.51.100.7", "/page", with(navigation, "Cookie", cookie)...)
		}
		if w.Code != 200 {
			t.Errorf("in the end: %d", w.Code)
		}
		if asset := s.answers["/asset"]; asset.Code != 200 {
			t.Errorf("the asset: %d", asset.Code)
		}
		s.all.Wait()
		if stats := s.queue.Stats(); stats.Inside != 0 || stats.Waiting != 0 {
			t.Errorf("left behind: %+v", stats)
		}
	})
}

// A member that the site's own cookie names keeps its place by the visitor's cookie, which does not make its
// holder a member: the site's cookie ends earlier.
func TestMemberKeepsItsPlaceAndStaysOneOnlyByTheSitesCookie(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	members, err := visitor.NewMembers("member", secret)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		text := fmt.Sprintf("ann:%d", time.Now().Add(time.Hour).Unix())
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		login := fmt.Sprintf("member=%s.%x", text, mac.Sum(nil))
		cookies := newVisitors(t)
		site := fullSite(t, false, httpguard.Options{Visitors: cookies, Members: members,
			WaitingRoom: newRoom(t, waitingroom.Options{})})
		first := request(site, "GET", "/page", with(navigation, "Cookie", login)...)
		place := holder(t, cookies, first)
		if place.Member || place.Waits.IsZero() {
			t.Errorf("the cookie of the waiting room says %+v", place)
		}
		time.Sleep(20 * time.Second)
		both := login + "; " + cookieOf(t, first)
		again := holder(t, cookies, request(site, "GET", "/page", with(navigation, "Cookie", both)...))
		if again.ID != place.ID || again.Member || time.Since(again.Waits).Round(time.Second) != 20*time.Second {
			t.Errorf("20 s later: %+v, before it was %+v", again, place)
		}
	})
}

// Of visitors that come back at the same time, the one that came first gets in first, although it comes
// back last.
func TestVisitorThatCameFirstGetsInFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, Wait: 30 * time.Second, Ages: true}, httpguard.Options{
			WaitingRoom: newRoom(t, waitingroom.Options{After: time.Second}), Visitors: newVisitors(t),
		}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/works" {
				time.Sleep(21*time.Second + 500*time.Millisecond)
			} else {
				time.Sleep(50 * time.Millisecond)
			}
		})
		s.request(t.Context(), "192.0.2.1", "/works")
		s.request(t.Context(), "192.0.2.1", "/asset")
		time.Sleep(time.Second)
		navigate := func(n int, cookie string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", fmt.Sprint("/", n), nil)
			r.RemoteAddr = fmt.Sprintf("198.51.%d.1:1234", n)
			for i := 0; i < len(navigation); i += 2 {
				r.Header.Set(navigation[i], navigation[i+1])
			}
			if cookie != "" {
				r.Header.Set("Cookie", cookie)
			}
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			return w
		}
		const visitors = 6
		var cookies [visitors + 2]string
		for n := 1; n <= visitors; n++ {
			cookies[n] = cookieOf(t, navigate(n, "")) // a second later
		}
		cookies[2] = "" // it has cookies turned off
		time.Sleep(20*time.Second - visitors*time.Second)
		for n := visitors; n > 0; n-- {
			s.all.Go(func() {
				if w := navigate(n, cookies[n]); w.Code != 200 {
					t.Errorf("visitor %d is answered %d", n, w.Code)
				}
			})
			synctest.Wait()
		}
		s.all.Wait()
		// Every second turn goes by arrival, and the client without a cookie is in a class of its own.
		got := strings.Replace(s.order(), " /asset", "", 1)
		if !strings.HasPrefix(got, "/works /1 ") || strings.Index(got, "/3") > strings.Index(got, "/4") ||
			len(got) != len("/works /1 /2 /3 /4 /5 /6") {
			t.Errorf("the upstream worked for %s", got)
		}
	})
}

func TestNobodyGetsTheWaitingRoomInDryRun(t *testing.T) {
	for _, step := range []waitingroom.Step{waitingroom.NoStep, waitingroom.Button} {
		h := fullSite(t, true, httpguard.Options{WaitingRoom: newRoom(t, waitingroom.Options{Step: step}),
			Visitors: newVisitors(t), RoomFirst: func(*fairshare.Request) bool { return true }})
		for _, path := range []string{"/page", waitingroom.StepPath} {
			if w := request(h, "GET", path, navigation...); w.Code != 200 || w.Header().Get("Refresh") != "" {
				t.Errorf("%s: %d %v", path, w.Code, w.Header())
			}
		}
	}
}

func TestRoomFirstHoldsClientsWithoutACookie(t *testing.T) {
	cookies := newVisitors(t) // four for a network
	var rules []string
	guard := newGuard(t, limit("two", requests(2, time.Hour)))
	h := httpguard.Middleware(guard, httpguard.Options{WaitingRoom: newRoom(t, waitingroom.Options{}),
		Visitors: cookies, RoomFirst: func(r *fairshare.Request) bool { return r.UserAgent != "partner" },
		Refused: func(r *httpguard.Report) { rules = append(rules, r.Finding.Rule.Name) }})(welcome)
	w := request(h, "GET", "/page", navigation...)
	if w.Code != 503 || w.Header().Get("Refresh") != "2" || len(w.Result().Cookies()) != 1 {
		t.Fatalf("a newcomer: %d %v", w.Code, w.Header())
	}
	page := cookieOf(t, w)
	w = request(h, "GET", "/feed", "Accept", "application/json")
	if w.Code != 503 || w.Header().Get("Refresh") != "" || w.Header().Get("Retry-After") != "1" {
		t.Errorf("another newcomer: %d %v", w.Code, w.Header())
	}
	feed := cookieOf(t, w)
	if !slices.Equal(rules, []string{fairshare.AttackMode.Name, fairshare.AttackMode.Name}) {
		t.Errorf("they are reported under the rules %q", rules)
	}
	preview := httptest.NewRequest("GET", "/page", nil) // loaded ahead: one cookie, too
	preview.RemoteAddr = "198.51.100.200:1"
	preview.Header = http.Header{"Accept": {"text/html"}, "Sec-Purpose": {"prefetch"}, "Sec-Fetch-Mode": {"navigate"}}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, preview)
	cookieOf(t, rec)
	for _, test := range []struct {
		name, method string
		header       []string
	}{
		{"the browser", "GET", with(navigation, "Cookie", page)},
		{"the program", "GET", []string{"Cookie", feed}},
	} {
		if w := request(h, test.method, "/page", test.header...); w.Code != 200 {
			t.Errorf("%s comes back and gets %d", test.name, w.Code)
		}
	}
	// Held requests count for no limit: two passed, and no third one does.
	if w := request(h, "POST", "/hook"); w.Code != 429 {
		t.Errorf("beyond the limit: %d", w.Code)
	}
	other := func(agent, method string) int {
		r := httptest.NewRequest(method, "/page", nil)
		r.RemoteAddr = "198.51.100.1:1"
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	if hook, partner := other("", "POST"), other("partner", "GET"); hook != 200 || partner != 200 {
		t.Errorf("a POST gets %d, a client that RoomFirst does not hold %d", hook, partner)
	}
	for i := range 5 { // four cookies; then the network gets none, and its clients are not locked out
		r := httptest.NewRequest("GET", "/page", nil)
		r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", i)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if want := map[bool]int{true: 503, false: 200}[i < 4]; w.Code != want {
			t.Errorf("newcomer %d of a network: %d, want %d", i, w.Code, want)
		}
	}
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// formOf returns the hidden fields of a page.
func formOf(w *httptest.ResponseRecorder) url.Values {
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(w.Body.String(), -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	return form
}

func send(h http.Handler, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", waitingroom.StepPath, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// solve returns the answer to a proof of work.
func solve(challenge string, bits int) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(challenge + strconv.Itoa(n)))
		if uint32(sum[0])<<24|uint32(sum[1])<<16|uint32(sum[2])<<8|uint32(sum[3]) < 1<<(32-bits) {
			return strconv.Itoa(n)
		}
	}
}

func TestPassedStepRaisesTheVisitor(t *testing.T) {
	for _, test := range []struct {
		step  waitingroom.Step
		raise time.Duration
	}{{waitingroom.Button, 10 * time.Second}, {waitingroom.ProofOfWork, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			cookies := newVisitors(t)
			h := fullSite(t, false, httpguard.Options{Visitors: cookies,
				WaitingRoom: newRoom(t, waitingroom.Options{Step: test.step, Difficulty: 10})})
			w := request(h, "GET", "/page?a=1&b=<2>", navigation...)
			cookie, before, form := cookieOf(t, w), holder(t, cookies, w), formOf(w)
			if form.Get("to") != "/page?a=1&b=<2>" && form.Get("to") != "/page?a=1&b=%3C2%3E" {
				t.Errorf("%v: returns to %q", test.step, form.Get("to"))
			}
			if test.step == waitingroom.ProofOfWork {
				if w := send(h, form, "Cookie", cookie); len(w.Result().Cookies()) > 0 {
					t.Error("no answer passes")
				}
				form.Set("answer", solve(form.Get("challenge"), 10))
			}
			wrong := url.Values{"challenge": {strings.Repeat("0", 64)}, "answer": {form.Get("answer")}}
			for name, w := range map[string]*httptest.ResponseRecorder{
				"without a cookie":    send(h, form),
				"of another visitor":  send(h, form, "Cookie", cookieOf(t, request(h, "GET", "/", navigation...))),
				"with another signum": send(h, wrong, "Cookie", cookie),
			} {
				if w.Code != 303 || len(w.Result().Cookies()) > 0 {
					t.Errorf("%v %s: %d %v", test.step, name, w.Code, w.Header())
				}
			}
			w = send(h, form, "Cookie", cookie)
			if w.Code != 303 || w.Header().Get("Location") != form.Get("to") ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%v: %d %v", test.step, w.Code, w.Header())
			}
			after := holder(t, cookies, w)
			if after.ID != before.ID || time.Since(after.Since).Round(time.Second/8) != test.raise ||
				after.Waits.Sub(before.Waits).Abs() > time.Second/16 {
				t.Errorf("%v: from %+v to %+v", test.step, before, after)
			}
			// Once more gains nothing, and the page offers no step any more.
			again := holder(t, cookies, send(h, form, "Cookie", cookie))
			if time.Since(again.Since).Round(time.Second/8) != test.raise {
				t.Errorf("%v: again %+v", test.step, again)
			}
			raised := cookieOf(t, w)
			if w := request(h, "GET", "/", with(navigation, "Cookie", raised)...); w.Code != 503 || len(formOf(w)) > 0 {
				t.Errorf("%v: after the step %d %s", test.step, w.Code, w.Body)
			}
			time.Sleep(11 * time.Minute)
			if w := send(h, form, "Cookie", cookie); len(w.Result().Cookies()) > 0 {
				t.Errorf("%v: a challenge has no end", test.step)
			}
		})
	}
}

func TestStepPathIsNeverForwarded(t *testing.T) {
	guard := newGuard(t, limit("three", requests(3, time.Hour)))
	room := newRoom(t, waitingroom.Options{Step: waitingroom.Button})
	h := httpguard.Middleware(guard, httpguard.Options{WaitingRoom: room})(welcome)
	for _, method := range []string{"GET", "PUT"} {
		if w := request(h, method, waitingroom.StepPath); w.Code != 303 || w.Header().Get("Location") != "/" {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
	long := url.Values{"to": {"/" + strings.Repeat("x", 20<<10)}}
	if w := send(h, long); w.Code != 303 || w.Header().Get("Location") != "/" {
		t.Errorf("a long form: %d %v", w.Code, w.Header())
	}
	if w := send(h, long); w.Code != 429 { // it counts like other requests
		t.Errorf("beyond the limit: %d", w.Code)
	}
}

// A request in the waiting room gives its slot back, even if a hook panics.
func TestPanicOfAHookInTheWaitingRoomSettles(t *testing.T) {
	guard := newGuard(t, limit("slots", fairshare.Limit{Resource: fairshare.Concurrent, N: 1}))
	for name, opts := range map[string]httpguard.Options{
		"asking": {RoomFirst: func(*fairshare.Request) bool { panic("hook") }},
		"reporting": {RoomFirst: func(*fairshare.Request) bool { return true },
			Refused: func(*httpguard.Report) { panic("hook") }},
	} {
		opts.WaitingRoom, opts.Visitors = newRoom(t, waitingroom.Options{}), newVisitors(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			request(httpguard.New(guard, opts, welcome), "GET", "/", "Accept", "text/html")
		}()
		if w := request(httpguard.New(guard, httpguard.Options{}, welcome), "GET", "/"); w.Code != http.StatusOK {
			t.Errorf("%s: %d: the slot was not given back", name, w.Code)
		}
	}
}
