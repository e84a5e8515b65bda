package policyfile

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/logins"
)

// A webSite is WordPress, an application that nobody knows, and a folder behind Basic
// credentials, behind the built-in policy.
type webSite struct {
	*site
	harmed map[string]int // refused requests of people, by rule and target
}

// A sent is one request to a webSite.
type sent struct {
	addr, method, target string
	right                bool // the password is right
	agent                string
	header               http.Header
	host                 string
	visitor              uint64
	form                 string // the fields that it sends
	faults               int    // an XML-RPC request with so many calls, padded by one with a long answer
}

// answer returns what the application answers.
func (s *sent) answer() logins.Answer {
	page := func(n int64) logins.Answer { return logins.Answer{Status: 200, Bytes: n, Live: true} }
	redirect := func(to string, cookies ...string) logins.Answer {
		return logins.Answer{Status: 302, Live: true, Location: to, SetCookie: cookies}
	}
	fields, _ := url.ParseQuery(s.form)
	switch post := s.method == "POST"; s.target {
	case "/login": // Symfony redirects after each attempt
		switch to := fields.Get("_target_path"); {
		case !post:
			return page(3100)
		case s.right && to != "":
			return redirect(to, "PHPSESSID=2")
		case s.right:
			return redirect("/account", "PHPSESSID=2")
		}
		to := fields.Get("_failure_path")
		if to == "homepage" { // the name of a route
			to = "/"
		}
		return redirect(cmp.Or(to, "/login"), "PHPSESSID=1")
	case "/back/signin": // redirects after each attempt to the page that the client names
		if !post {
			return page(3100)
		}
		return redirect(cmp.Or(fields.Get("back"), "/back/signin"), "sid=1")
	case "/shop/login": // a login in each checkout; failed attempts get the form again
		if post && s.right {
			return redirect("https://example.org"+cmp.Or(fields.Get("next"), "/shop/"), "sid=1")
		}
		return page(4200)
	case "/saml/acs", "/login/callback", "/signin-oidc":
		return redirect(fields.Get("RelayState"), "sid=1")
	case "/wp-login.php?action=rp":
		if s.right {
			return page(4100)
		}
		return redirect("/wp-login.php?action=lostpassword&error=invalidkey")
	case "/wp-login.php":
		switch {
		case !post:
			return page(5300)
		case s.right:
			return redirect("https://example.org/wp-admin/", "wordpress_logged_in_0a1b=anna%7C17")
		}
		return page(5720)
	case "/wp-login.php?action=postpass":
		return redirect("/")
	case "/xmlrpc.php":
		switch {
		case s.right:
			return page(9000 + int64(len(s.addr))*700)
		case s.faults > 0:
			answer := page(20_000 + 400*int64(s.faults))
			answer.Calls = &logins.Faults{Denied: s.faults, Any: true}
			return answer
		}
		return page(403)
	case "/wp-comments-post.php":
		return redirect("/2026/01/a-post/#comment-7")
	case "/members/enter":
		switch {
		case !post:
			return page(2100)
		case s.right:
			return redirect("/members/", "sid=1")
		}
		return page(2180)
	case "/?q=user/login&rest_route=/wp/v2/types": // no login, but other answers to other methods
		if s.header.Get("X-Http-Method-Override") == "" {
			return logins.Answer{Status: 404, Bytes: 120, Live: true}
		}
		return page(2100)
	case "/cart/?q=user/login", "/cart/login/..": // the cart, which is not a login
		return redirect("/checkout/", "items=1")
	case "/private/report":
		if s.header.Get("Authorization") == "" || !s.right {
			return logins.Answer{Status: 401, Bytes: 170, Live: true}
		}
		return page(8000)
	}
	return page(12_000)
}

// send sends a request and reports whether it passed.
func (w *webSite) send(at time.Time, q sent) bool {
	w.t.Helper()
	req := fairshare.Request{Time: at, Addr: netip.MustParseAddr(q.addr), Method: q.method, Host: "example.org",
		UserAgent: chromium, Header: q.header, Visitor: fairshare.Visitor{ID: q.visitor}}
	if q.agent != "" {
		req.UserAgent = q.agent
	}
	if q.host != "" {
		req.Host = q.host
	}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.SetTarget(q.target)
	v, attempt, seen := w.decide(&req)
	answer := q.answer()
	answer.Body, answer.BodyType = q.form, "application/x-www-form-urlencoded"
	w.settle(&v, attempt, seen, at.Add(50*time.Millisecond), answer)
	return v.Action == fairshare.Allow
}

// person sends a request of a person's browser.
func (w *webSite) person(at time.Time, q sent) {
	w.t.Helper()
	if q.header == nil {
		q.header = http.Header{}
	}
	q.header.Set("Accept-Language", "pt")
	if !w.send(at, q) {
		w.harmed[w.rule+": "+q.method+" "+q.target+" from "+q.addr]++
	}
}

// opens opens a page in a person's browser, with its style sheet.
func (w *webSite) opens(at time.Time, addr, page string) {
	w.person(at, sent{addr: addr, method: "GET", target: page})
	w.person(at, sent{addr: addr, method: "GET", target: "/style.css",
		header: http.Header{"Referer": {"https://example.org" + page}}})
}

const (
	officeAddr = "203.0.113.1"
	sharedAddr = "203.0.113.77" // attackers guess from here, too
)

// people live on the site while it is attacked. n counts minutes.
func (w *webSite) people(at time.Time, n int) {
	form, login := "/wp-login.php", "/members/enter"
	if n%5 == 0 { // a customer pays; one in six mistypes
		shop := sent{addr: fmt.Sprintf("14.%d.%d.9", n>>8&255, n&255), method: "POST", target: "/shop/login",
			form: "user=x%40example.org&next=%2Fcheckout"}
		w.opens(at, shop.addr, shop.target)
		if n%30 == 0 {
			w.person(at.Add(10*time.Second), shop)
		}
		shop.right = true
		w.person(at.Add(20*time.Second), shop)
	}
	switch n % 97 {
	case 3: // readers
		w.opens(at, fmt.Sprintf("11.%d.%d.9", n>>8&255, n&255), "/2026/01/a-post/")
	case 7: // an editor logs in from the office
		w.opens(at, officeAddr, form)
		w.person(at, sent{addr: officeAddr, method: "POST", target: form, right: true})
	case 11: // a person in the office mistypes six times
		w.opens(at, officeAddr, login)
		for try := range 7 {
			w.person(at.Add(time.Duration(try)*8*time.Second), sent{addr: officeAddr, method: "POST", target: login,
				right: try == 6})
		}
	case 17: // an editor at an address that attackers use, too; the login set a visitor's cookie
		w.person(at, sent{addr: sharedAddr, method: "POST", target: form, right: n%2 == 0, visitor: 4711})
		w.person(at, sent{addr: sharedAddr, method: "POST", target: form, right: true, visitor: 4711})
	case 23: // a person who never logged in before, with a browser
		addr := fmt.Sprintf("12.%d.%d.9", n>>8&255, n&255)
		w.opens(at, addr, form)
		w.person(at, sent{addr: addr, method: "POST", target: form})
		w.person(at.Add(time.Second), sent{addr: addr, method: "POST", target: form, right: true})
	case 29: // a reader writes a comment
		addr := fmt.Sprintf("13.%d.%d.9", n>>8&255, n&255)
		w.opens(at, addr, "/2026/01/a-post/")
		w.person(at.Add(time.Minute), sent{addr: addr, method: "POST", target: "/wp-comments-post.php"})
	case 31: // an app
		w.person(at, sent{addr: officeAddr, method: "POST", target: "/xmlrpc.php", right: true,
			agent: "wp-android/20"})
	case 41: // a customer of the application that redirects after each attempt
		addr := fmt.Sprintf("15.%d.%d.9", n>>8&255, n&255)
		w.opens(at, addr, "/login")
		for _, right := range []bool{false, true} {
			w.person(at, sent{addr: addr, method: "POST", target: "/login", right: right,
				form: "_username=x&_target_path=%2Fcart"})
		}
	case 37: // a colleague with the right Basic credentials
		w.person(at, sent{addr: officeAddr, method: "GET", target: "/private/report", right: true,
			header: http.Header{"Authorization": {"Basic b3Blbjpz"}}})
	}
}

// A fleet opens the form before each guess, with the user agent of people. It gets neither.
// A client that opens the form again, as browsers do when the answer says it, gets it even
// without the headers of a browser.
func TestBuiltInPolicyKeepsTheFormFromFleets(t *testing.T) {
	w := &webSite{newSite(t), map[string]int{}}
	forms := 0
	for i := range 200 {
		at := begin.Add(time.Duration(i) * 10 * time.Second)
		if w.send(at, sent{addr: from(i), method: "GET", target: "/wp-login.php"}) {
			forms++
		}
		w.send(at.Add(time.Second), sent{addr: from(i), method: "POST", target: "/wp-login.php"})
	}
	if forms > 20 {
		t.Errorf("%d of 200 clients of a fleet get the form", forms)
	}
	at := begin.Add(34 * time.Minute)
	w.opens(at, "12.0.0.9", "/wp-login.php")
	if len(w.harmed) > 0 {
		t.Error("a browser does not get the form: ", w.harmed)
	}
	for i, c := range []struct {
		after  time.Duration
		agent  string
		passes bool
	}{
		{0, "", false}, {time.Second, "", false}, {10 * time.Second, "", true}, {time.Hour, "", true},
		{25 * time.Hour, "", true}, // the attack has ended
		{0, firefox, true},         // not the user agent of the attack
	} {
		addr := "12.0.0.10"
		if c.agent != "" {
			addr = "12.0.0.11"
		}
		req := sent{addr: addr, method: "GET", target: "/wp-login.php", agent: c.agent}
		if w.send(at.Add(c.after), req) != c.passes {
			t.Errorf("request %d for the form: passes %v, want %v (%s)", i, !c.passes, c.passes, w.rule)
		}
	}
}

// Three editors in an office each mistype six times within minutes, each day for a week, while
// others guess. Only their address is known: they have no visitor's cookie.
func TestBuiltInPolicyLetsAnOfficeMistype(t *testing.T) {
	w := &webSite{newSite(t), map[string]int{}}
	w.person(begin, sent{addr: officeAddr, method: "POST", target: "/wp-login.php", right: true})
	for day := 1; day < 8; day++ {
		at := begin.AddDate(0, 0, day)
		for i := range 30 {
			w.send(at, sent{addr: from(i), method: "POST", target: "/wp-login.php"})
		}
		for editor := range 3 {
			for try := range 7 {
				w.person(at.Add(time.Duration(editor*7+try)*20*time.Second), sent{addr: officeAddr, method: "POST",
					target: "/wp-login.php", right: try == 6})
			}
		}
	}
	for what, n := range w.harmed {
		t.Errorf("%d × %s", n, what)
	}
}

// A program of an office polls with a token that ended, every second of an hour.
func TestBuiltInPolicyLetsAnOfficeReadBesideAnOldToken(t *testing.T) {
	w := newSite(t)
	old := http.Header{"Authorization": {"Bearer 5f0c"}}
	refused := 0
	for second := range 3600 {
		at := begin.Add(time.Duration(second) * time.Second)
		poll := fairshare.Request{Time: at, Method: "GET", Addr: netip.MustParseAddr(officeAddr),
			UserAgent: "poller/1.0", Header: old}
		if w.request(poll, "/api/orders", 401) != fairshare.Allow {
			refused++
		}
		if second%20 != 0 {
			continue
		}
		status := 200
		if second%400 == 0 {
			status = 404 // a link that ended
		}
		page := fairshare.Request{Time: at, Method: "GET", Addr: netip.MustParseAddr(officeAddr),
			UserAgent: chromium}
		if w.request(page, "/page", status) != fairshare.Allow {
			t.Fatalf("after %d s a person is refused by %s", second, w.rule)
		}
	}
	if refused < 1000 {
		t.Errorf("the program was refused %d times of 3600", refused)
	}
}

func basicCredentials(n int) http.Header {
	return http.Header{"Authorization": {fmt.Sprintf("Basic YWRtaW46%08d", n)}}
}

// from returns an attacker's address.
func from(n int) string { return fmt.Sprintf("45.%d.%d.%d", 10+n%7, n%251, 1+n%199) }

// People work on a site while it is attacked. At least 90 % of the guesses and of the
// spam are stopped, and no request of a person is.
func TestBuiltInPolicyStopsGuessesFromManyAddresses(t *testing.T) {
	inOneGoroutine(t)
	made := http.Header{"Cookie": {"wordpress_test_cookie=WP%20Cookie%20check"},
		"Referer": {"https://example.org/wp-login.php"}}
	for _, c := range []struct {
		name  string
		n     int
		every time.Duration
		// attack sends guess i, and reports whether it passed.
		attack func(w *webSite, at time.Time, i int) bool
		most   int // that may pass
	}{
		{"135 addresses, each one every half hour for two days, at a form that nobody knows", 135 * 96,
			30 * time.Minute / 135, func(w *webSite, at time.Time, i int) bool {
				return w.send(at, sent{addr: from(i % 135), method: "POST", target: "/members/enter"})
			}, 135 * 96 / 10},
		{"135 addresses, one of them every half hour for ten days", 480, 30 * time.Minute,
			func(w *webSite, at time.Time, i int) bool {
				return w.send(at, sent{addr: from(i % 135), method: "POST", target: "/wp-login.php"})
			}, 48},
		{"WordPress, 75 from 200 addresses with cookie and referer, the form first", 75, 10 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				w.send(at, sent{addr: from(i), method: "GET", target: "/wp-login.php"})
				return w.send(at, sent{addr: from(i), method: "POST", target: "/wp-login.php", header: made})
			}, 7},
		{"the same after half an hour on the site", 75, 10 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				w.send(at.Add(-30*time.Minute), sent{addr: from(i), method: "GET", target: "/"})
				return w.send(at, sent{addr: from(i), method: "POST", target: "/wp-login.php", header: made})
			}, 7},
		{"hydra, 100 from 50 addresses", 100, time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i % 50), method: "POST", target: "/wp-login.php",
				agent: "Mozilla/5.0 (Hydra)"})
		}, 10},
		{"XML-RPC, 75 from 100 addresses", 75, 5 * time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i), method: "POST", target: "/xmlrpc.php", agent: "python-requests/2"})
		}, 7},
		{"330 Basic credentials from one address", 330, time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(1), method: "GET", target: "/private/report",
				header: basicCredentials(i)})
		}, 33},
		{"100 Basic credentials from 100 addresses", 100, time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i), method: "GET", target: "/private/report",
				header: basicCredentials(i)})
		}, 10},
		{"60 spam comments from 100 addresses", 60, 20 * time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i), method: "POST", target: "/wp-comments-post.php", header: made})
		}, 6},
		{"one of 100 addresses has an account and logs in all the time", 300, 10 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				if i%3 == 0 {
					w.send(at, sent{addr: from(0), method: "POST", target: "/wp-login.php", right: true})
				}
				return w.send(at, sent{addr: from(1 + i%99), method: "POST", target: "/wp-login.php"})
			}, 30},
		{"hosts that the attacker makes up", 100, time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i), method: "POST", target: "/wp-login.php",
				host: fmt.Sprintf("x%d.example.org", i)})
		}, 10},
		{"spellings of the path", 100, time.Second, func(w *webSite, at time.Time, i int) bool {
			spelling := []string{"//wp-login.php", "/wp-login.php/", "/WP-LOGIN.php", "/wp-login.php/x",
				"/wp-login.php?x=1",
				"/./wp-login.php", "/%77p-login.php", "/wp-login.php;x=1"}[i%8]
			req := sent{addr: from(i), method: "POST", target: spelling}
			return w.send(at, req)
		}, 10},
		{"XML-RPC, each request with five guesses and padding", 100, 5 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				return w.send(at, sent{addr: from(i), method: "POST", target: "/xmlrpc.php", faults: 5,
					agent: "python-requests/2"})
			}, 10},
		{"redirects after a failure to a page that the client names", 100, 5 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				form := "_username=admin&_failure_path=%2Faccount&_target_path=%2Faccount"
				return w.send(at, sent{addr: from(i), method: "POST", target: "/login", form: form})
			}, 10},
		{"the same, named as a route", 1000, 5 * time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: from(i), method: "POST", target: "/login",
				form: "_username=admin&_failure_path=homepage"})
		}, 100},
		{"an application that redirects each attempt to the page that the client names", 1000, 5 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				return w.send(at, sent{addr: from(i), method: "POST", target: "/back/signin",
					form: "user=admin&back=%2Fnews"})
			}, 100},
		{"100 addresses where the attacker logs in with its account, then 40 guesses from each", 4000, 20 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				if i < 100 {
					w.send(at.Add(-time.Hour), sent{addr: from(i), method: "POST", target: "/wp-login.php",
						right: true})
				}
				return w.send(at, sent{addr: from(i % 100), method: "POST", target: "/wp-login.php"})
			}, 4000 / 10},
		{"the same with 40 addresses that the attacker has used for days", 4000, 20 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				if i < 40 {
					w.send(at.Add(-25*time.Hour), sent{addr: from(i), method: "POST", target: "/wp-login.php",
						right: true})
				}
				return w.send(at, sent{addr: from(i % 40), method: "POST", target: "/wp-login.php"})
			}, 600},
		{"a new visitor's cookie for each guess, by an own account", 1000, 20 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				cookie := uint64(90_000 + i)
				w.send(at, sent{addr: from(1), method: "POST", target: "/wp-login.php", right: true, visitor: cookie})
				return w.send(at, sent{addr: from(2), method: "POST", target: "/wp-login.php", visitor: cookie})
			}, 100},
		{"the cookie of one reset link, shared by 200 addresses", 400, 5 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				w.send(at, sent{addr: from(i % 200), method: "GET", target: "/wp-login.php?action=rp", right: true,
					header: http.Header{"Cookie": {"wp-resetpass-0a1b=admin%3AAbcDefGhij0123456789"}}})
				return w.send(at, sent{addr: from(i % 200), method: "POST", target: "/wp-login.php"})
			}, 20},
		{"100 addresses for which an API answers as after a login", 4000, 20 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				api := func(i int, right bool) {
					q := sent{addr: from(i), method: "POST", target: "/?q=user/login&rest_route=/wp/v2/types"}
					if right {
						q.header = http.Header{"X-Http-Method-Override": {"GET"}}
					}
					w.send(at.Add(-time.Hour), q)
				}
				for n := 0; i == 0 && n < 8; n++ { // two addresses show the answers, before and after a success
					api(n%2, n%4 == 3)
				}
				if i < 100 {
					api(i, true)
				}
				return w.send(at, sent{addr: from(i % 100), method: "POST", target: "/wp-login.php"})
			}, 50},
		{"100 addresses for which a cart answers as after a login", 4000, 20 * time.Second,
			func(w *webSite, at time.Time, i int) bool {
				if i < 100 {
					target := []string{"/cart/?q=user/login", "/cart/login/.."}[i%2]
					w.send(at.Add(-time.Hour), sent{addr: from(i), method: "POST", target: target})
				}
				return w.send(at, sent{addr: from(i % 100), method: "POST", target: "/wp-login.php"})
			}, 50},
		{"an address that an editor uses, too", 200, 5 * time.Second, func(w *webSite, at time.Time, i int) bool {
			return w.send(at, sent{addr: sharedAddr, method: "POST", target: "/wp-login.php"})
		}, 100}, // 20 in ten minutes: nothing but its cookie tells the editor from them
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.n > 1000 {
				t.Skip("shorter cases run at once, too")
			}
			w := &webSite{newSite(t), map[string]int{}}
			start := begin.Add(-26 * time.Hour)
			minutes := 0
			for _, q := range []sent{{addr: officeAddr, target: "/wp-login.php"},
				{addr: officeAddr, target: "/members/enter"}, {addr: sharedAddr, target: "/wp-login.php",
					visitor: 4711}} { // colleagues work here for long
				q.method, q.right = "POST", true
				w.person(begin.AddDate(0, 0, -20), q)
			}
			for ; minutes < 26*60; minutes++ { // before the attack
				w.people(start.Add(time.Duration(minutes)*time.Minute), minutes)
			}
			passed := 0
			for i := range c.n {
				at := begin.Add(time.Duration(i) * c.every)
				for ; start.Add(time.Duration(minutes) * time.Minute).Before(at); minutes++ {
					w.people(start.Add(time.Duration(minutes)*time.Minute), minutes)
				}
				if c.attack(w, at, i) {
					passed++
				}
			}
			for range 120 {
				w.people(start.Add(time.Duration(minutes)*time.Minute), minutes)
				minutes++
			}
			if passed > c.most {
				t.Errorf("%d of %d pass, want at most %d", passed, c.n, c.most)
			}
			t.Logf("%d of %d pass", passed, c.n)
			var refused []string
			for what, n := range w.harmed {
				refused = append(refused, fmt.Sprintf("%d × %s", n, what))
			}
			slices.Sort(refused)
			for _, what := range refused[:min(len(refused), 5)] {
				t.Error("people: ", what)
			}
		})
	}
}

// Nobody at work is refused, neither on a quiet site nor during an attack.
func TestBuiltInPolicyRefusesNobodyAtWork(t *testing.T) {
	wordpress := sent{method: "POST", target: "/wp-login.php"}
	login := func(w *webSite, at time.Time, q sent, right bool) {
		q.right = right
		w.person(at, q)
	}
	for _, c := range []struct {
		name string
		work func(w *webSite, at time.Time)
	}{
		{"an editor mistypes six times in an office of twelve", func(w *webSite, at time.Time) {
			q := wordpress
			q.addr = officeAddr
			w.opens(at, officeAddr, q.target)
			for colleague := range 12 {
				login(w, at.Add(time.Duration(colleague)*time.Minute), q, true)
				if colleague == 5 {
					for try := range 7 {
						login(w, at.Add(5*time.Minute+time.Duration(try*8)*time.Second), q, try == 6)
					}
				}
			}
		}},
		{"the same with visitors' cookies, each day for a week", func(w *webSite, at time.Time) {
			for day := range 7 {
				at := at.AddDate(0, 0, day)
				for colleague := range 12 {
					q := wordpress
					q.addr, q.visitor = officeAddr, uint64(1000+colleague)
					if day == 0 {
						w.opens(at, officeAddr, q.target)
					}
					for try := range 1 + (colleague+day)%4 {
						login(w, at.Add(time.Duration(colleague*60+try*8)*time.Second), q, try == (colleague+day)%4)
					}
				}
			}
		}},
		{"a password manager sends an old password twice", func(w *webSite, at time.Time) {
			q := wordpress
			q.addr = "12.0.0.9"
			w.opens(at, q.addr, q.target)
			for try := range 3 {
				login(w, at.Add(time.Duration(try)*time.Second), q, try == 2)
			}
		}},
		{"three people with links to reset their passwords", func(w *webSite, at time.Time) {
			for i := range 3 {
				at, addr := at.Add(time.Duration(i)*time.Hour), fmt.Sprintf("12.0.%d.9", i)
				cookie := fmt.Sprintf("wp-resetpass-0a1b=u%d%%3AAbcDefGhij01234567%02d", i, i)
				w.person(at, sent{addr: addr, method: "GET", target: "/wp-login.php?action=rp", right: true,
					header: http.Header{"Cookie": {cookie}}})
				q := wordpress
				q.addr = addr
				login(w, at.Add(time.Minute), q, false)
				login(w, at.Add(time.Minute+10*time.Second), q, true)
			}
		}},
		{"2000 people come back from single sign-on", func(w *webSite, at time.Time) {
			for i := range 2000 {
				target := []string{"/saml/acs", "/login/callback", "/signin-oidc"}[i%3]
				w.person(at.Add(time.Duration(i)*time.Second), sent{addr: fmt.Sprintf("12.%d.%d.9", i/200, i%200),
					method: "POST", target: target, right: true, form: "SAMLResponse=PHNhbWw%2B&RelayState=%2Fstart"})
			}
		}},
		{"a shop with a login in each checkout, of which no browser is seen", func(w *webSite, at time.Time) {
			for i := range 600 {
				q := sent{addr: fmt.Sprintf("12.%d.%d.9", i/200, i%200), method: "POST", target: "/shop/login",
					form: "user=x&next=https%3A%2F%2Fexample.org%2Fcheckout%3Fstep%3D2"}
				at := at.Add(time.Duration(i) * 20 * time.Second)
				if i%15 == 7 { // one in fifteen mistypes
					login(w, at, q, false)
				}
				login(w, at.Add(10*time.Second), q, true)
			}
		}},
		{"a program with a wrong token every four seconds, in an office", func(w *webSite, at time.Time) {
			for i := range 600 {
				w.send(at.Add(time.Duration(i)*4*time.Second), sent{addr: officeAddr, method: "GET",
					target: "/private/report", header: http.Header{"Authorization": {"Bearer expired"}}})
				if i%100 == 99 {
					q := wordpress
					q.addr = officeAddr
					w.person(at.Add(time.Duration(i)*4*time.Second), sent{addr: officeAddr, method: "GET",
						target: "/2026/01/a-post/"})
					login(w, at.Add(time.Duration(i)*4*time.Second), q, true)
				}
			}
		}},
		{"50 people discuss a post", func(w *webSite, at time.Time) {
			for i := range 100 {
				at, addr := at.Add(time.Duration(i)*30*time.Second), fmt.Sprintf("12.0.%d.9", i%50)
				w.opens(at, addr, "/2026/01/a-post/")
				w.person(at.Add(20*time.Second), sent{addr: addr, method: "POST", target: "/wp-comments-post.php"})
			}
		}},
	} {
		for _, attacked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, attack %v", c.name, attacked), func(t *testing.T) {
				t.Parallel()
				w := &webSite{newSite(t), map[string]int{}}
				w.person(begin.AddDate(0, 0, -3), sent{addr: officeAddr, method: "POST", target: wordpress.target,
					right: true})
				for i := range map[bool]int{true: 200}[attacked] {
					q := wordpress
					q.addr = from(i)
					w.send(begin.Add(-time.Duration(200-i)*time.Second), q)
				}
				c.work(w, begin)
				for what, n := range w.harmed {
					t.Errorf("%d × %s", n, what)
				}
			})
		}
	}
}
