package logins

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairshare"
)

var begin = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// send sends a request at a time and returns what became of it. A request that exceeds a
// budget is refused.
func send(w *Watcher, at time.Time, addr, method, target string, answer Answer,
	change ...func(*fairshare.Request)) (fairshare.Attempt, bool, Result) {
	req := fairshare.Request{Time: at, Addr: netip.MustParseAddr(addr), Method: method, Host: "example.org"}
	req.SetTarget(target)
	for _, c := range change {
		c(&req)
	}
	a := w.Arrived(&req, nil)
	if a == nil || req.Excess {
		return req.Attempt, req.Excess, Unknown
	}
	a.Passed()
	answer.Time = at
	return req.Attempt, req.Excess, a.Answered(&answer)
}

func TestAnswersTellWhetherAnAttemptFailed(t *testing.T) {
	cookie := []string{"session=1; Path=/"}
	for _, c := range []struct {
		name, target string
		answer       Answer
		kind         fairshare.Attempt
		want         Result
	}{
		{"WordPress shows the form again", "/wp-login.php", Answer{Status: 200, Bytes: 5000, Live: true},
			fairshare.LoginAttempt, Failed},
		{"WordPress redirects, with its cookie", "/blog/wp-login.php", Answer{Status: 302, Live: true,
			Location: "/wp-admin/", SetCookie: []string{"wordpress_logged_in_1=anna%7C1; path=/"}},
			fairshare.LoginAttempt,
			Succeeded},
		{"WordPress redirects without its cookie", "/wp-login.php?action=postpass", Answer{Status: 302, Live: true,
			Location: "/", SetCookie: cookie}, fairshare.LoginAttempt, Unknown},
		{"a login in a window of WordPress", "/wp-login.php?interim-login=1", Answer{Status: 200,
			Bytes: 900, Live: true,
			SetCookie: []string{"wordpress_logged_in_1=anna%7C1; path=/"}}, fairshare.LoginAttempt, Succeeded},
		{"a redirect in a log", "/wp-login.php", Answer{Status: 302}, fairshare.LoginAttempt, Succeeded},
		{"a redirect back to the form", "/login", Answer{Status: 302, Live: true,
			Location:  "https://example.org/login?error",
			SetCookie: cookie}, fairshare.LoginAttempt, Failed},
		{"a redirect to another login", "/session", Answer{Status: 302, Live: true, Location: "/login#again",
			SetCookie: cookie}, fairshare.LoginAttempt, Failed},
		{"a redirect elsewhere", "/login", Answer{Status: 303, Live: true, Location: "/account", SetCookie: cookie},
			fairshare.LoginAttempt, Succeeded},
		{"a redirect elsewhere without a session", "/login", Answer{Status: 303, Live: true, Location: "/account"},
			fairshare.LoginAttempt, Unknown},
		{"not allowed", "/api/login", Answer{Status: 401, Live: true}, fairshare.LoginAttempt, Failed},
		{"a wrong password as 422", "/users/sign_in", Answer{Status: 422, Live: true},
			fairshare.LoginAttempt, Failed},
		{"the site is down", "/login", Answer{Status: 502, Live: true}, fairshare.LoginAttempt, Unknown},
		{"no answer", "/wp-login.php", Answer{Live: true}, fairshare.LoginAttempt, Unknown},
		{"200 at a login about which nothing is known", "/login", Answer{Status: 200, Bytes: 500, Live: true},
			fairshare.LoginAttempt, Unknown},
		{"a fault of XML-RPC", "/xmlrpc.php", Answer{Status: 200, Bytes: 403, Live: true},
			fairshare.LoginAttempt, Failed},
		{"a long answer of XML-RPC", "/xmlrpc.php", Answer{Status: 200, Bytes: 8000, Live: true},
			fairshare.LoginAttempt,
			Unknown},
		{"a comment", "/wp-comments-post.php", Answer{Status: 302, Live: true, Location: "/post/"},
			fairshare.CommentAttempt, Unknown},
		{"a comment that is turned down", "/wp-comments-post.php", Answer{Status: 409, Live: true},
			fairshare.CommentAttempt, Failed},
		{"a payment", "/pay/callback", Answer{Status: 403, Live: true}, fairshare.NoAttempt, Unknown},
		{"the site's own call", "/wp-cron.php", Answer{Status: 200}, fairshare.NoAttempt, Unknown},
	} {
		kind, excess, got := send(New(Options{}), begin, "192.0.2.1", "POST", c.target, c.answer)
		if kind != c.kind || got != c.want || excess {
			t.Errorf("%s: %v, result %d, excess %v; want %v, %d", c.name, kind, got, excess, c.kind, c.want)
		}
	}
}

func credentialsOf(text string) func(*fairshare.Request) {
	return func(r *fairshare.Request) { r.Header = http.Header{"Authorization": {text}} }
}

func TestRepeatedCredentialsFailOnce(t *testing.T) {
	w := New(Options{})
	for i, c := range []struct {
		text   string
		status int
		want   Result
	}{{"Basic b2xk", 401, Failed}, {"Basic b2xk", 401, Unknown}, {"Basic b2xk", 401, Unknown},
		{"Basic bmV3", 401, Failed}, {"Basic b2xk", 401, Failed}, {"Bearer abc", 401, Failed},
		{"Bearer abc", 401, Unknown},
		{"Basic Zm9v", 200, Unknown}, {"Basic Zm9v", 403, Unknown}} {
		kind, _, got := send(w, begin, "192.0.2.1", "GET", "/private", Answer{Status: c.status},
			credentialsOf(c.text))
		if got != c.want || kind != fairshare.CredentialsAttempt {
			t.Errorf("%d: %s with %d: %d, want %d", i, c.text, c.status, got, c.want)
		}
	}
	if kind, _, _ := send(w, begin, "192.0.2.1", "GET", "/", Answer{Status: 401},
		credentialsOf("Negotiate YII=")); kind != fairshare.NoAttempt {
		t.Errorf("a scheme with several steps is an attempt")
	}
}

// A form that nobody knows is learned, and forms of other kinds are not.
func TestFormsAreLearned(t *testing.T) {
	for _, c := range []struct {
		name    string
		form    int64 // length of a GET of the path; 0: there is none
		answers func(i int) Answer
		agents  fairshare.Browser
		want    bool
	}{
		{"the form again", 2000, func(int) Answer { return Answer{Status: 200, Bytes: 2080} },
			fairshare.BrowserClaimed, true},
		{"403", 0, func(int) Answer { return Answer{Status: 403, Bytes: 90} }, fairshare.BrowserClaimed, true},
		{"answers of one length where people are redirected", 0, func(i int) Answer {
			if i%4 == 0 {
				return Answer{Status: 302}
			}
			return Answer{Status: 200, Bytes: 900}
		}, fairshare.BrowserClaimed, true},
		{"a search by POST", 2000, func(i int) Answer { return Answer{Status: 200, Bytes: int64(300 + 4000*i)} },
			fairshare.BrowserClaimed, false},
		{"calls of an application", 0, func(int) Answer { return Answer{Status: 200, Bytes: 2} },
			fairshare.BrowserClaimed,
			false},
		{"a chat in browsers", 2000, func(int) Answer { return Answer{Status: 200, Bytes: 2080} },
			fairshare.BrowserLikely,
			false},
		{"errors of the server", 2000, func(int) Answer { return Answer{Status: 500, Bytes: 2080} },
			fairshare.BrowserClaimed, false},
	} {
		w := New(Options{})
		learned := false
		for i := range 60 {
			at := begin.Add(time.Duration(i) * time.Minute)
			if c.form > 0 {
				send(w, at, "198.51.100.7", "GET", "/enter", Answer{Status: 200, Bytes: c.form})
			}
			kind, _, _ := send(w, at, fmt.Sprintf("192.0.2.%d", i), "POST", "/enter", c.answers(i),
				func(r *fairshare.Request) { r.Browser = c.agents })
			learned = learned || kind == fairshare.LoginAttempt
		}
		if learned != c.want {
			t.Errorf("%s: learned %v, want %v", c.name, learned, c.want)
		}
	}
}

// One client cannot make a path a login.
func TestOneClientTeachesNothing(t *testing.T) {
	w := New(Options{})
	for i := range 1000 {
		if kind, _, _ := send(w, begin.Add(time.Duration(i)*time.Second), "192.0.2.1", "POST", "/pay",
			Answer{Status: 403}); kind != fairshare.NoAttempt {
			t.Fatalf("request %d: %v", i, kind)
		}
	}
}

// A site with many logins keeps room for people who mistype, whatever their clients are.
func TestABusyLoginStaysOpen(t *testing.T) {
	w := New(Options{})
	random := rand.New(rand.NewPCG(1, 2))
	refused, n := 0, 0
	for i := range 20_000 { // a client a second for five hours; one in ten gives up after a wrong password
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		at := begin.Add(time.Duration(i) * time.Second)
		n++
		status := []int{401, 302}[min(random.IntN(10), 1)]
		if _, excess, _ := send(w, at, addr, "POST", "/api/login", Answer{Status: status}); excess {
			refused++
		}
	}
	if refused > 0 {
		t.Errorf("%d of %d are refused", refused, n)
	}
}

// A link to reset a password that the site accepts lets its holder log in during an attack.
func TestResetLinksPassDuringAnAttack(t *testing.T) {
	w := New(Options{})
	send(w, begin.Add(-48*time.Hour), "198.51.100.9", "POST", "/wp-login.php", Answer{Status: 302}) // it is WordPress
	for i := range 50 {
		send(w, begin, fmt.Sprintf("192.0.2.%d", i), "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000})
	}
	login := func(addr string) bool {
		_, excess, _ := send(w, begin.Add(time.Minute), addr, "POST", "/wp-login.php", Answer{Status: 302})
		return !excess
	}
	if login("198.51.100.1") {
		t.Error("an unknown client logs in during the attack")
	}
	send(w, begin, "198.51.100.2", "GET", "/wp-login.php?action=rp", Answer{Status: 302}) // the key is wrong
	send(w, begin, "198.51.100.3", "GET", "/wp-login.php?action=rp", Answer{Status: 200})
	if login("198.51.100.2") {
		t.Error("a wrong key opens the login")
	}
	if !login("198.51.100.3") {
		t.Error("a valid key does not open the login")
	}
	attacks := w.Attacks()
	if len(attacks) != 1 || attacks[0].Path != "/wp-login.php" || attacks[0].Excess < 40 {
		t.Errorf("attacks %+v", attacks)
	}
}

func TestSnapshotsContinue(t *testing.T) {
	w := New(Options{})
	send(w, begin.Add(-48*time.Hour), "198.51.100.1", "POST", "/wp-login.php", Answer{Status: 302})
	for i := range 50 {
		send(w, begin, fmt.Sprintf("192.0.2.%d", i), "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000})
	}
	var saved bytes.Buffer
	if err := w.Save(&saved); err != nil {
		t.Fatal(err)
	}
	later := New(Options{})
	if err := later.Load(bytes.NewReader(saved.Bytes()), begin.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	at := begin.Add(2 * time.Minute)
	if _, excess, _ := send(later, at, "203.0.113.9", "POST", "/wp-login.php", Answer{Status: 200}); !excess {
		t.Error("unknown clients have a new budget after a restart")
	}
	if _, excess, _ := send(later, at, "198.51.100.1", "POST", "/wp-login.php", Answer{Status: 200}); excess {
		t.Error("a known client is not known after a restart")
	}
	req := fairshare.Request{Time: at, Addr: netip.MustParseAddr("198.51.100.1")}
	if !later.HasLoggedIn(&req) {
		t.Error("HasLoggedIn after a restart: false")
	}
	for i := range saved.Len() { // each byte that is wrong is found
		bad := bytes.Clone(saved.Bytes())
		bad[i] ^= 1
		if err := New(Options{}).Load(bytes.NewReader(bad), begin); !errors.Is(err, ErrUnusable) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for i := range saved.Len() {
		if err := New(Options{}).Load(bytes.NewReader(saved.Bytes()[:i]), begin); !errors.Is(err, ErrUnusable) {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
	if strings.Contains(saved.String(), "198.51.100.1") {
		t.Error("a snapshot holds an address")
	}
}

// After a snapshot of a clock that was a year ahead, the facts about clients count from now on, and end as usual.
func TestSnapshotOfAClockThatWasAhead(t *testing.T) {
	w, ahead := New(Options{}), begin.AddDate(1, 0, 0)
	send(w, ahead, "198.51.100.1", "POST", "/wp-login.php", Answer{Status: 302})
	for i := range 50 {
		send(w, ahead, fmt.Sprintf("10.0.%d.1", i), "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000})
	}
	refused := fairshare.Request{Addr: netip.MustParseAddr("10.0.40.1")}
	soft := fairshare.Request{Addr: netip.MustParseAddr("198.51.100.2")}
	w.put(w.keyOf(&soft), ahead.Unix()).soft = minutes(ahead.Unix()) + softFor
	var saved bytes.Buffer
	if err := w.Save(&saved); err != nil {
		t.Fatal(err)
	}
	later := New(Options{})
	if err := later.Load(bytes.NewReader(saved.Bytes()), begin); err != nil {
		t.Fatal(err)
	}
	at := begin.Add(2 * 24 * time.Hour)
	if e := later.find(later.keyOf(&refused)); e == nil || e.refused == 0 ||
		minutes(at.Unix()) <= e.refused+countedFor {
		t.Errorf("two days later a client counts as refused: %+v", e)
	}
	known := fairshare.Request{Time: at, Addr: netip.MustParseAddr("198.51.100.1")}
	if !later.HasLoggedIn(&known) {
		t.Error("the client that logged in is not known")
	}
	if e := later.find(later.keyOf(&known)); minutes(at.Unix()) < e.first+trustAfter {
		t.Error("two days later, it still counts as one that has just logged in")
	}
	known.Time = begin.Add((successFor + 1) * time.Minute)
	if later.HasLoggedIn(&known) {
		t.Error("after 60 days, the client that logged in is still known")
	}
	if e := later.find(later.keyOf(&soft)); e == nil || e.soft > minutes(begin.Unix())+softFor {
		t.Errorf("a client counts as likely for more than 30 days: %+v", e)
	}
}

// Where only the status 200 tells that an attempt succeeded, the client is known at that place alone. Any path may
// answer so, such as an API that answers 404 to one method and 200 to another.
func TestLoginByStatusCountsAtItsPlace(t *testing.T) {
	for _, target := range []string{"/api/login", "/?q=user/login", "/members/enter"} { // by path, by query, learned
		w := New(Options{})
		denied := func() {
			for i := range 12 {
				send(w, begin, fmt.Sprintf("10.%d.0.1", i), "POST", target, Answer{Status: 401, Bytes: 80})
				for _, f := range w.forms {
					f.level = noClients // all of them may fail
				}
			}
		}
		known := func(w *Watcher, at time.Time, addr, target string) bool {
			req := fairshare.Request{Time: at, Addr: netip.MustParseAddr(addr), Method: "POST", Host: "example.org"}
			req.SetTarget(target)
			return w.HasLoggedIn(&req)
		}
		logIn := func(addr string) { send(w, begin, addr, "POST", target, Answer{Status: 200, Bytes: 500}) }
		for range 2 { // the second time it has a budget of its own
			denied()
			logIn("192.0.2.1")
		}
		logIn("192.0.2.2")
		var saved bytes.Buffer
		w.Save(&saved)
		later := New(Options{})
		if err := later.Load(&saved, begin); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*Watcher{w, later} {
			for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
				if !known(w, begin, addr, target) || known(w, begin, addr, "/wp-login.php") {
					t.Errorf("%s: %s is known there: %v, and at another login: %v", target, addr,
						known(w, begin, addr, target), known(w, begin, addr, "/wp-login.php"))
				}
			}
		}
		for i := range 9 { // an attack on another login
			send(w, begin, fmt.Sprintf("10.9.%d.1", i), "POST", "/wp-login.php", Answer{Status: 200, Bytes: 5000})
		}
		_, excess, _ := send(w, begin, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 200, Bytes: 5000})
		if !excess {
			t.Errorf("%s: a client that is known there may guess at another login", target)
		}
		send(w, begin, "192.0.2.2", "POST", "/wp-login.php", Answer{Status: 302})
		logIn("192.0.2.2")
		if known(w, begin, "192.0.2.2", "/wp-login.php") {
			t.Errorf("%s: an attempt that was refused counts as a login", target)
		}
		for _, f := range w.forms {
			f.level = noClients
		}
		send(w, begin, "192.0.2.2", "POST", "/wp-login.php", Answer{Status: 302})
		logIn("192.0.2.2")
		if !known(w, begin, "192.0.2.2", "/wp-login.php") || !known(w, begin, "192.0.2.2", target) {
			t.Errorf("%s: a client that was redirected after a login is not known everywhere", target)
		}
	}
}

// A client can make any path look like a login. A redirect there, such as that of a cart, makes it known at that place
// alone, and so the visitor's cookie that the answer sets.
func TestAnyPathThatLooksLikeALogin(t *testing.T) {
	for target, everywhere := range map[string]bool{"/cart/?q=user/login": false, "/cart/login/..": false,
		"/cart/login;/..": false, "/login": true} {
		w := New(Options{})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST",
			Host: "example.org"}
		req.SetTarget(target)
		a := w.Arrived(&req, nil)
		a.Passed()
		answer := Answer{Time: begin, Status: 302, Live: true, Location: "/checkout/", SetCookie: []string{"items=1"}}
		if got := a.Answered(&answer); got != Succeeded {
			t.Fatalf("%s: result %d", target, got)
		}
		visitor := fairshare.Visitor{ID: 7}
		w.RememberVisitor(a, &visitor)
		there, elsewhere := req, req
		elsewhere.SetTarget("/wp-login.php")
		for range 2 {
			if !w.HasLoggedIn(&there) || w.HasLoggedIn(&elsewhere) != everywhere {
				t.Errorf("%s: visitor %d is known there: %v, and at another login: %v", target, there.Visitor.ID,
					w.HasLoggedIn(&there), w.HasLoggedIn(&elsewhere))
			}
			for _, r := range []*fairshare.Request{&there, &elsewhere} {
				r.Addr, r.Visitor = netip.MustParseAddr("198.51.100.1"), visitor
			}
		}
	}
}

// An attacker cannot displace clients that have logged in, and memory stays bounded.
func TestGuessersDoNotDisplaceKnownClients(t *testing.T) {
	w := New(Options{})
	editor := "198.51.100.1"
	send(w, begin, editor, "POST", "/wp-login.php", Answer{Status: 302})
	for i := range 40_000 {
		addr := netip.AddrFrom4([4]byte{byte(1 + i>>16), byte(i >> 8), byte(i), byte(i * 7)}).String()
		if i%4 == 0 {
			addr = fmt.Sprintf("198.51.100.%d", 2+i/4%250) // the editor's network
		}
		send(w, begin, addr, "POST", fmt.Sprintf("/x%d/wp-login.php", i%5000), Answer{Status: 200, Bytes: 4000})
		send(w, begin, addr, "POST", fmt.Sprintf("/y%d", i), Answer{Status: 200})
	}
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr(editor)}
	if !w.HasLoggedIn(&req) {
		t.Error("the editor is forgotten")
	}
	if len(w.forms) > maxForms || len(w.established) > maxEstablished || len(w.clients) != clientSets*clientWays {
		t.Errorf("%d forms, %d established, %d clients", len(w.forms), len(w.established), len(w.clients))
	}
}

// Requests that have ended hold no place in a budget.
func TestPlacesAreReleased(t *testing.T) {
	w := New(Options{})
	for i := range 100 {
		send(w, begin, fmt.Sprintf("192.0.2.%d", i), "POST", "/login", Answer{Status: 0})
	}
	for _, f := range w.forms {
		for c, n := range f.inFlight {
			if n != 0 {
				t.Errorf("%s: %d of class %d", f.name, n, c)
			}
		}
	}
}

func TestOrdinaryRequestsAllocateNothing(t *testing.T) {
	w := New(Options{})
	send(w, begin, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 200})
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET",
		Header: http.Header{}}
	req.SetTarget("/page")
	if n := testing.AllocsPerRun(1000, func() { w.Arrived(&req, nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArrivedGet(b *testing.B) {
	w := New(Options{})
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET",
		Header: http.Header{"User-Agent": {"x"}, "Accept": {"*/*"}}}
	req.SetTarget("/page")
	for b.Loop() {
		w.Arrived(&req, nil)
	}
}

func FuzzRecognize(f *testing.F) {
	for _, target := range []string{"/wp-login.php", "//wp-login.php/x", "/a;b/wp-login.php?action=rp", "*", "",
		"/index.php?title=Special:UserLogin", "/%2e%2e/login", "/\xff.php/"} {
		f.Add("POST", target)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		w := New(Options{})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: method, Host: target}
		req.SetTarget(target)
		if a := w.Arrived(&req, nil); a != nil {
			a.Passed()
			a.Answered(&Answer{Time: begin, Status: 302, Live: true, Location: target, SetCookie: []string{target}})
		}
		resetOf(&req, []byte(req.Path))
	})
}

// isLoginQuery is the same as a search for each of its texts at each place, in both readings.
func FuzzLoginQuery(f *testing.F) {
	for _, query := range loginQueries {
		f.Add(query)
		f.Add("a=b&" + strings.ToUpper(query) + "&c=d")
		f.Add(query[:len(query)-1])
		f.Add(query[1:])
	}
	f.Add("title=Special%3AUserLogin")
	f.Add("title=Special%3a%20_+%55serLogin")
	f.Add("route=account%2Flogin")
	f.Add("q=user%2flogin%")
	f.Add("%login/login")
	f.Add("title=Special: UserLogin")
	f.Add("login/Login")
	f.Add("tas\u212a=user.login")
	escape, spaces := regexp.MustCompile("(?i)%[0-9a-f]{2}"), regexp.MustCompile(":[ _]+")
	f.Fuzz(func(t *testing.T, query string) {
		plain := escape.ReplaceAllStringFunc(strings.ReplaceAll(query, "+", " "), func(s string) string {
			c, _ := strconv.ParseUint(s[1:], 16, 8)
			return string([]byte{byte(c)})
		})
		plain = spaces.ReplaceAllString(plain, ":")
		want := slices.ContainsFunc(loginQueries, func(text string) bool {
			return containsFold("?"+query, text) || containsFold("?"+plain, text)
		})
		if got := isLoginQuery(query); got != want {
			t.Errorf("isLoginQuery(%q) = %v, want %v", query, got, want)
		}
	})
}

// Logins are known however their queries are spelled, if the application decodes that to the same.
func TestSpellingsOfLoginQueries(t *testing.T) {
	for _, text := range loginQueries {
		query := strings.TrimPrefix(text, "?")
		all := ""
		for i := range len(query) {
			lower, upper := fmt.Sprintf("%%%02x", query[i]), fmt.Sprintf("%%%02X", query[i]&^0x20)
			all += lower
			spelled := []string{query[:i] + lower + query[i+1:]}
			if query[i] >= 'a' && query[i] <= 'z' {
				spelled = append(spelled, query[:i]+upper+query[i+1:])
			}
			for _, s := range spelled {
				if !isLoginQuery(s) {
					t.Errorf("%s: not a login", s)
				}
			}
		}
		if !isLoginQuery(all) {
			t.Errorf("%s: not a login", all)
		}
		for n := unescapedSize - 40; n < unescapedSize+40 && text[0] != '?'; n++ { // behind and across a window
			if s := strings.Repeat("x", n) + "&" + all + "%"; !isLoginQuery(s) {
				t.Errorf("%s behind %d bytes: not a login", text, n)
			}
		}
	}
	for query, want := range map[string]bool{
		"title=Special%3aUserLogin":                                true,
		"title=Special:%55serLogin":                                true,
		"title=%%53pecial%:%3aUserLogin%4":                         true,
		"title=Special:_UserLogin":                                 true,
		"title=Special:++UserLogin":                                true,
		"title=Special%3A%20%5fUserLogin":                          true,
		"title=Special:" + strings.Repeat("_", 9000) + "UserLogin": true,
		"title=Special%253AUserLogin":                              false, // decoded once
		"title=Special:%5gserLogin":                                false,
		"title=Special:UserLogi%6":                                 false,
		"title=Special:User_Login":                                 false,
		"title=Special%3AUserLogout":                               false,
	} {
		if got := isLoginQuery(query); got != want {
			t.Errorf("%.60s: %v, want %v", query, got, want)
		}
	}
	for _, target := range []string{"/index.php?title=Special%3aUserLogin", "/?q=user%2flogin", "/ucp.php?mode=%6cogin",
		"/index.php?route=account%2flogin", "/index.php?option=com_users&task=%75ser.login",
		"/wiki/Special:_UserLogin/x", "/wiki/:Special:UserLogin/a:b"} {
		kind, _, _ := send(New(Options{}), begin, "192.0.2.1", "POST", target, Answer{Status: 403})
		if kind != fairshare.LoginAttempt {
			t.Errorf("%s: %v", target, kind)
		}
	}
}

func FuzzLoad(f *testing.F) {
	w := New(Options{})
	send(w, begin, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 200})
	var saved bytes.Buffer
	w.Save(&saved)
	f.Add(saved.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		w := New(Options{})
		if w.Load(bytes.NewReader(data), begin) == nil {
			send(w, begin, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 200})
		}
	})
}

// What a client makes up changes nothing: a header, a port, an extension of the path, a Referer.
func TestWhatClientsMakeUpChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name, path string
		with       func(i int) func(*fairshare.Request)
		answer     Answer
	}{
		{"a Bearer token", "/wp-login.php", func(int) func(*fairshare.Request) {
			return func(r *fairshare.Request) { r.Header = http.Header{"Authorization": {"Bearer x"}} }
		}, Answer{Status: 200, Bytes: 4000}},
		{"ports", "/wp-login.php", func(i int) func(*fairshare.Request) {
			return func(r *fairshare.Request) { r.Host = fmt.Sprintf("site.example:%d", i+1) }
		}, Answer{Status: 200, Bytes: 4000}},
		{"extensions", "/users/sign_in.x%d", nil, Answer{Status: 401}},
		{"further segments", "/account/login/%d", nil, Answer{Status: 401}},
	} {
		w, passed := New(Options{}), 0
		for i := range 100 {
			path := c.path
			if strings.Contains(path, "%d") {
				path = fmt.Sprintf(path, i)
			}
			var with []func(*fairshare.Request)
			if c.with != nil {
				with = append(with, c.with(i))
			}
			addr := fmt.Sprintf("192.0.2.%d", i)
			kind, excess, _ := send(w, begin.Add(time.Duration(i)*time.Second), addr, "POST", path, c.answer, with...)
			if kind != fairshare.LoginAttempt {
				t.Fatalf("%s: attempt %v", c.name, kind)
			}
			if !excess {
				passed++
			}
		}
		if passed > 10 {
			t.Errorf("%s: %d of 100 guesses pass", c.name, passed)
		}
	}
}

// A redirect to the Referer does not prove a login: some applications redirect failed attempts there.
func TestRedirectToTheRefererProvesNothing(t *testing.T) {
	for referer, want := range map[string]Result{"": Succeeded, "https://site.example/": Unknown,
		"https://site.example/?x=1": Unknown, "https://site.example/other": Succeeded} {
		w := New(Options{})
		_, _, got := send(w, begin, "192.0.2.1", "POST", "/login", Answer{Status: 302, Live: true,
			Location: "https://site.example/", SetCookie: []string{"session=1"}}, func(r *fairshare.Request) {
			if referer != "" {
				r.Header = http.Header{"Referer": {referer}}
			}
		})
		if got != want {
			t.Errorf("Referer %q: %v, want %v", referer, got, want)
		}
	}
}

// A known client that fails at one form after the other holds one place of the budget of known clients.
func TestKnownClientHoldsOnePlace(t *testing.T) {
	w := New(Options{})
	for _, addr := range []string{"192.0.2.1", "198.51.100.1"} {
		send(w, begin.Add(-48*time.Hour), addr, "POST", "/wp-login.php", Answer{Status: 302})
	}
	for i := range 400 {
		path := []string{"/wp-login.php", "/wp-login.php?action=x", "/login"}[i%3]
		send(w, begin.Add(time.Duration(i)*time.Second), "192.0.2.1", "POST", path, Answer{Status: 401})
	}
	if _, excess, _ := send(w, begin.Add(10*time.Minute), "198.51.100.1", "POST", "/wp-login.php",
		Answer{Status: 302}); excess {
		t.Error("another known client is locked out")
	}
}

// Logging in with an own account gives back one day's failures once, not after each guess.
func TestOwnAccountForgivesOnceInADay(t *testing.T) {
	w, passed := New(Options{}), 0
	for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		send(w, begin.Add(-48*time.Hour), addr, "POST", "/wp-login.php", Answer{Status: 302})
	}
	for round := range 300 {
		at := begin.Add(time.Duration(round) * time.Minute)
		for i := range 60 { // as many known clients fail, each once
			addr := fmt.Sprintf("198.51.100.%d", i)
			if round == 0 {
				send(w, at.Add(-47*time.Hour), addr, "POST", "/wp-login.php", Answer{Status: 302})
			}
			if _, excess, _ := send(w, at, addr, "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000}); !excess {
				passed++
			}
			send(w, at, addr, "POST", "/wp-login.php", Answer{Status: 302}) // its own account
		}
	}
	if passed > 1000 { // of 18,000
		t.Errorf("%d of %d guesses pass", passed, 300*60)
	}
}

// An attacker with an account cannot multiply the budget by logging in at hosts that it makes up.
func TestMadeUpHostsDoNotMultiplyBudgets(t *testing.T) {
	w, passed := New(Options{}), 0
	hosts := 0
	for i := range 300 {
		at := begin.Add(time.Duration(i) * time.Minute)
		host := func(r *fairshare.Request) { r.Host = fmt.Sprintf("x%d.example.org", i) }
		send(w, at, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 302}, host) // its own account
		before := passed
		for n := range 5 {
			addr := fmt.Sprintf("198.51.%d.%d", i%250, n+i/250*10)
			_, excess, _ := send(w, at, addr, "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000}, host)
			if !excess {
				passed++
			}
		}
		if passed > before {
			hosts++
		}
	}
	if passed > 60 {
		t.Errorf("%d of 1500 guesses pass, at %d hosts", passed, hosts)
	}
}

// A site whose users log in with Basic credentials has a budget of its own: an attack at
// another host does not use it up.
func TestBasicCredentialsOfAnotherHost(t *testing.T) {
	w := New(Options{})
	at := func(host, text string) func(*fairshare.Request) {
		return func(r *fairshare.Request) {
			credentialsOf(text)(r)
			r.Host = host
		}
	}
	before := begin.Add(-time.Hour)
	send(w, before, "192.0.2.1", "GET", "/private", Answer{Status: 401}, at("b.example:443", "Basic b2xk"))
	send(w, before, "192.0.2.1", "GET", "/private", Answer{Status: 200}, at("b.example", "Basic bmV3"))
	for i := range 100 {
		send(w, begin, fmt.Sprintf("198.51.100.%d", i), "GET", "/private", Answer{Status: 401},
			at("a.example", fmt.Sprintf("Basic %d", i)))
	}
	if _, excess, _ := send(w, begin, "203.0.113.1", "GET", "/private", Answer{Status: 401},
		at("B.example", "Basic bmV3")); excess {
		t.Error("an attack at one host uses up the budget of another one")
	}
	if _, excess, _ := send(w, begin, "203.0.113.1", "GET", "/private", Answer{Status: 401},
		at("made-up.example", "Basic bmV3")); !excess {
		t.Error("a host that is made up has a budget of its own")
	}
}

// A fleet that shares the cookie of one reset link does not become known as a whole.
func TestAResetLinkMakesFewClientsKnown(t *testing.T) {
	w, passed := New(Options{}), 0
	send(w, begin.Add(-48*time.Hour), "198.51.100.9", "POST", "/wp-login.php", Answer{Status: 302})
	for i := range 400 {
		at, addr := begin.Add(time.Duration(i)*time.Second), fmt.Sprintf("192.0.2.%d", i%200)
		if i >= 200 {
			send(w, at, addr, "GET", "/wp-login.php?action=rp", Answer{Status: 200})
		}
		_, excess, _ := send(w, at, addr, "POST", "/wp-login.php", Answer{Status: 200, Bytes: 4000})
		if !excess {
			passed++
		}
	}
	if passed > 20 {
		t.Errorf("%d of 400 guesses pass", passed)
	}
}

// A watcher does the same when targets are looked at before requests arrive, and attempts are used again.
func TestTargetsFoundBefore(t *testing.T) {
	targets := []string{"/wp-login.php", "/wp-login.php?action=lostpassword", "/xmlrpc.php", "/login", "/login/1",
		"/api/items", "/api//items", "/a/..%2flogin", "/login;x", "/wp-comments-post.php",
		"/index.php?title=Special%3AUserLogin", "/wiki/Special:UserLogin", "/reset/a1b2c3d4e5f6a7b8c9d0e1",
		"/wp-login.php?action=rp", "/Account/Enter", "*", "/"}
	plain, early := New(Options{}), New(Options{})
	early.secret = plain.secret
	rnd := rand.New(rand.NewPCG(7, 7))
	looked := 0
	for i := range 20_000 {
		req := fairshare.Request{Time: begin.Add(time.Duration(i) * 2 * time.Second), Host: "example.org",
			Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(40))}), UserAgent: fmt.Sprint("agent", rnd.IntN(3)),
			Method:  []string{"GET", "POST", "POST", "HEAD"}[rnd.IntN(4)],
			Browser: []fairshare.Browser{fairshare.BrowserClaimed, fairshare.BrowserLikely}[rnd.IntN(2)]}
		req.SetTarget(targets[rnd.IntN(len(targets))])
		other, target := req, Target{}
		if early.LooksAt(&other) {
			target = TargetOf(&other)
			looked++
		}
		a, b := plain.Arrived(&req, nil), early.ArrivedAs(&other, nil, &target)
		answer := Answer{Time: req.Time, Status: []int{200, 302, 401, 403, 404}[rnd.IntN(5)],
			Bytes: int64(rnd.IntN(5)) * 500}
		want, got := Unknown, Unknown
		if a != nil && !req.Excess && rnd.IntN(20) > 0 {
			a.Passed()
			want = a.Answered(&answer)
			b.Passed()
			got = b.Answered(&answer)
		}
		if b != nil {
			early.Reuse(b)
		}
		if (a == nil) != (b == nil) || req.Attempt != other.Attempt || req.Excess != other.Excess || got != want {
			t.Fatalf("request %d, %s %s: %v %v %v, want %v %v %v", i, req.Method, req.Path, other.Attempt, other.Excess,
				got, req.Attempt, req.Excess, want)
		}
	}
	if looked < 10_000 || !early.closed.Load() {
		t.Errorf("only %d targets were looked at", looked)
	}
}

// If servers may read a path in several ways and one of them is a login, it is a login, also if another one is a script
// for all pages.
func TestOneReadingIsALogin(t *testing.T) {
	for _, target := range []string{"/wp-login.php%3f/index.php", "/wp-login.php%00/index.php", "/wp-login.php%2f..",
		"/login%3f/graphql", "/login%23/api.php", "/wp-login.php%3f/wp-cron.php", "/x/wp-login.php%3f/shop"} {
		kind, _, _ := send(New(Options{}), begin, "192.0.2.1", "POST", target, Answer{Status: 200, Bytes: 5000})
		if kind != fairshare.LoginAttempt {
			t.Errorf("%s: %v", target, kind)
		}
	}
}

// A POST request that stands for another method is not a login, so its success tells nothing: in Rails and Laravel,
// DELETE /session logs out, redirects and sets a cookie. Failures count all the same.
func TestOverriddenMethodsProveNothing(t *testing.T) {
	out := Answer{Status: 302, Live: true, Location: "/", SetCookie: []string{"_session=1"}, BodyType: formType}
	form := func(body string) Answer {
		a := out
		a.Body = body
		return a
	}
	cut, multipart := form("x="+strings.Repeat("x", MaxBody-2)), form("--x\r\n… name=\"_method\"\r\n\r\ndelete")
	cut.BodyCut, multipart.BodyType = true, "multipart/form-data; boundary=x"
	header := func(name, value string) func(*fairshare.Request) {
		return func(r *fairshare.Request) { r.Header = http.Header{name: {value}} }
	}
	none := func(*fairshare.Request) {}
	for _, c := range []struct {
		name, target string
		answer       Answer
		change       func(*fairshare.Request)
		want         Result
	}{
		{"a login", "/session", form("user=a&password=b"), none, Succeeded},
		{"a login whose form names its own method", "/session", form("_method=POST&user=a"), none, Succeeded},
		{"a body", "/session", form("x=1&_method=delete"), none, Unknown},
		{"the end of a long body", "/session", cut, none, Unknown},
		{"another form of body", "/session", multipart, none, Unknown},
		{"an escaped name", "/session", form("%5fmethod=DELETE"), none, Unknown},
		{"a query", "/session?_method=delete", form(""), none, Unknown},
		{"a header", "/session", form(""), header("X-Http-Method-Override", "DELETE"), Unknown},
		{"another header", "/session", form(""), header("X-Method-Override", "GET"), Unknown},
		{"a failed login with a header", "/session", Answer{Status: 302, Live: true, Location: "/session"},
			header("X-Http-Method-Override", "DELETE"), Failed},
	} {
		w := New(Options{})
		if _, _, got := send(w, begin, "192.0.2.1", "POST", c.target, c.answer, c.change); got != c.want {
			t.Errorf("%s: result %d, want %d", c.name, got, c.want)
		}
	}
	for _, before := range []bool{false, true} { // before and after it is known what 200 means
		w := New(Options{})
		get := func() {
			send(w, begin, "192.0.2.1", "POST", "/api/login", Answer{Status: 200, Bytes: 90, Live: true},
				header("X-Http-Method-Override", "GET"))
		}
		if before {
			get()
		}
		for i := range 4 {
			send(w, begin, fmt.Sprintf("10.0.%d.1", i%2), "POST", "/api/login", Answer{Status: 401, Live: true})
		}
		if !before {
			get()
		}
		send(w, begin, "192.0.2.1", "POST", "/api/login", Answer{Status: 401, Live: true})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST",
			Host: "example.org"}
		req.SetTarget("/api/login")
		if w.HasLoggedIn(&req) {
			t.Errorf("200 to another method counts as a login, before %v", before)
		}
	}
}

// While others spam, a client may write more if it wrote a comment a day before, unless the site turned that down.
func TestARefusedCommentProvesNothing(t *testing.T) {
	for status, want := range map[int]bool{302: false, 200: false, 403: true, 404: true, 409: true} {
		w := New(Options{})
		send(w, begin, "192.0.2.1", "POST", "/wp-comments-post.php", Answer{Status: status, Live: true})
		later := begin.Add(25 * time.Hour)
		for i := range 20 {
			send(w, later, fmt.Sprintf("10.0.%d.1", i), "POST", "/wp-comments-post.php",
				Answer{Status: 302, Live: true})
		}
		_, excess, _ := send(w, later, "192.0.2.1", "POST", "/wp-comments-post.php", Answer{Status: 302, Live: true})
		if excess != want {
			t.Errorf("a comment was answered with %d: the next one exceeds the budget: %v, want %v", status, excess, want)
		}
	}
}

// Parameters end with their segment: what follows may be the path of something else than a login.
func TestParametersOfSegments(t *testing.T) {
	for target, isLogin := range map[string]bool{"/login;jsessionid=1A": true, "/login;jsessionid=1A/": true,
		"/login;/../cart/": false, "/login;x=1/../cart": false, "/login/..;/cart": false,
		"/login;/%2e%2e/cart": false} {
		w := New(Options{})
		send(w, begin, "192.0.2.1", "POST", target, Answer{Status: 302, Live: true, Location: "/checkout/",
			SetCookie: []string{"items=1"}})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST",
			Host: "example.org"}
		req.SetTarget("/login")
		if w.HasLoggedIn(&req) != isLogin {
			t.Errorf("%s: a client that was redirected there is known at the login: %v", target, !isLogin)
		}
	}
	for _, target := range []string{"/x;y/login", "/login;a;b", "/wp-login.php;x/", "/;x/wp-login.php"} {
		if kind, _, _ := send(New(Options{}), begin, "192.0.2.1", "POST", target, Answer{Status: 403}); kind !=
			fairshare.LoginAttempt {
			t.Errorf("%s: %v", target, kind)
		}
	}
}

// A fleet does not hide its user agent by a redirect of a path that looks like a login.
func TestWeakSuccessDoesNotHideAFleet(t *testing.T) {
	for _, c := range []struct {
		name, target string
		hidden       bool
	}{{"no success", "", false}, {"a cart", "/cart/?q=user/login", false}, {"a login", "/login", true}} {
		w := New(Options{})
		agent := func(r *fairshare.Request) { r.UserAgent = "Mozilla/5.0 (fleet)" }
		for i := range 20 {
			addr := fmt.Sprintf("10.0.%d.1", i)
			send(w, begin, addr, "POST", "/wp-login.php", Answer{Status: 200, Bytes: 5000}, agent)
		}
		if c.target != "" {
			send(w, begin, "10.1.0.1", "POST", c.target, Answer{Status: 302, Live: true, Location: "/checkout/",
				SetCookie: []string{"items=1"}}, agent)
		}
		_, excess, _ := send(w, begin, "10.2.0.1", "GET", "/wp-login.php", Answer{Status: 200, Bytes: 5000}, agent)
		if excess == c.hidden {
			t.Errorf("%s: a new client of the fleet gets the form: %v, want %v", c.name, !excess, c.hidden)
		}
	}
}
