package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"fairshare/httpguard"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
)

const (
	policy = `rules:
  - {name: admin, match: {path: /admin/*}, block: true}
  - {name: few, match: {path: /few}, limit: {requests: 1, per: 1m, by: addr}, dry_run: true}
  - {name: "<script>alert(1)</script>", match: {path: /never}, block: true}
  - {name: banned soon, match: {path: /ban}, limit: {requests: 1, per: 1h}, ban: {after: 1, for: 1h}}
  - {name: ten a minute, limit: {requests: 10, per: 1m, by: addr}}
`
	token   = "0123456789abcdef0123456789abcdef"
	hostile = "Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36 \"'><img src=x onerror=alert(1)>" +
		"</title><script>alert(2)</script>\xff\u202e{{.}}"
)

// A site is a server with its pages.
type site struct {
	t       *testing.T
	console *console.Console
	guard   http.Handler
	pages   *handler
	handler http.Handler
	clock   time.Time
	cookies []*http.Cookie
}

func open(t *testing.T, isToken func(string) bool) *site {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	p, err := livepolicy.New(t.Context(), file, livepolicy.Options{Clock: httpguard.NewClock(), Folder: t.TempDir(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	t.Cleanup(func() { p.Stop(); p.Close() })
	c := console.New(console.Options{Policy: p, Traffic: traffic.New(p.Now()), Version: "1"})
	rt := p.Current()
	guard := httpguard.New(rt.Guard, p.GuardOptions(rt, httpguard.Options{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	s := &site{t: t, console: c, guard: guard, clock: time.Now()}
	s.pages = &handler{console: c, sessions: newSessions(), isToken: isToken,
		now: func() time.Time { return s.clock }}
	s.handler = s.pages.routes()
	return s
}

func isTheToken(text string) bool { return text == token }

// visit sends requests to the site.
func (s *site) visit(addr, path, agent string, n int) {
	for range n {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = addr + ":1234"
		r.Header.Set("User-Agent", agent)
		s.guard.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// tick ends a second.
func (s *site) tick(load traffic.Load) {
	p := s.console.Policy
	s.console.Policy.FlushReports()
	s.console.Traffic.Tick(p.Now(), p.Wall(p.Now()), load)
}

// traffic is what the tests look at.
func (s *site) traffic() {
	s.visit("192.0.2.1", "/?password=secret", hostile, 12)
	s.visit("192.0.2.1", "/admin/<script>alert(3)<%2fscript>?password=secret", hostile, 2)
	s.visit("2001:db8::1", "/few", hostile, 3)
	s.visit("198.51.100.8", "/few", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "+
		"Chrome/142.0.0.0 Safari/537.36", 3)
	s.visit("198.51.100.7", "/ban", "curl/8", 3)
	s.visit("203.0.113.7", "/", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", 2)
	s.tick(traffic.Load{Waiting: 3, InProgress: 4, Capacity: 4})
}

// send sends a request with the cookies of the site's answers, as a browser does.
func (s *site) send(r *http.Request) *httptest.ResponseRecorder {
	s.t.Helper()
	for _, c := range s.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if set := w.Result().Cookies(); len(set) > 0 {
		s.cookies = set
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"} {
		if got := w.Header().Get(name); got != want {
			s.t.Errorf("%s %s: %s is %q, not %q", r.Method, r.URL, name, got, want)
		}
	}
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
		"base-uri 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			s.t.Errorf("%s: Content-Security-Policy is %q", r.URL, policy)
		}
	}
	return w
}

func (s *site) get(path string) (int, string) {
	s.t.Helper()
	w := s.send(httptest.NewRequest("GET", path, nil))
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return w.Code, string(text)
}

func (s *site) post(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.send(r)
}

func (s *site) logIn() {
	s.t.Helper()
	if w := s.post("/login", url.Values{"token": {token}}); w.Code != http.StatusSeeOther {
		s.t.Fatalf("log in: %d %s", w.Code, w.Body)
	}
}

// csrf returns what the forms of this session have.
func (s *site) csrf() string {
	s.t.Helper()
	_, text := s.get("/bans")
	found := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("no form has a csrf token: %s", text)
	}
	return found[1]
}

// elements returns all elements of a page.
func elements(t *testing.T, text string) (all []*html.Node) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// checkPage checks what holds for every page: nothing inline, nothing of another host, one main, labels,
// captions and scopes.
func checkPage(t *testing.T, path, text string) {
	t.Helper()
	count := map[string]int{}
	ids := map[string]bool{}
	for _, n := range elements(t, text) {
		count[n.Data]++
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("%s: two elements have the id %q", path, id)
			}
			ids[id] = true
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				t.Errorf("%s: <%s> has %s=%q", path, n.Data, a.Key, a.Val)
			}
			if a.Key == "href" || a.Key == "src" || a.Key == "action" {
				if u, err := url.Parse(a.Val); err != nil || u.Host != "" || u.Scheme != "" {
					t.Errorf("%s: <%s> leads to %q", path, n.Data, a.Val)
				}
			}
		}
		parent := n.Parent.Data
		switch n.Data {
		case "img", "iframe", "object", "style", "base":
			t.Errorf("%s: there is <%s>", path, n.Data)
		case "script":
			if attribute(n, "src") != "/static/script.js" || n.FirstChild != nil {
				t.Errorf("%s: a script that is not ours", path)
			}
		case "th":
			if attribute(n, "scope") == "" {
				t.Errorf("%s: <th> has no scope", path)
			}
		case "table":
			isCaption := func(c *html.Node) bool { return c.Data == "caption" }
			if !slices.ContainsFunc(slices.Collect(n.ChildNodes()), isCaption) {
				t.Errorf("%s: a table has no caption", path)
			}
		case "input", "select":
			if attribute(n, "type") != "hidden" && parent != "label" && attribute(n, "id") == "" {
				t.Errorf("%s: <%s name=%s> has no label", path, n.Data, attribute(n, "name"))
			}
		case "form":
			if attribute(n, "method") == "post" && attribute(n, "action") != "/login" &&
				!strings.Contains(render(n), `name="csrf"`) {
				t.Errorf("%s: a form without a csrf token", path)
			}
		}
	}
	if count["main"] != 1 || count["h1"] != 1 || count["title"] != 1 || count["script"] != 1 {
		t.Errorf("%s: %v", path, count)
	}
	for _, secret := range []string{"password", "secret", token, "\u202e", "\xff", "<no value>", "&lt;nil&gt;", "%!"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the page has %q", path, secret)
		}
	}
}

func render(n *html.Node) string {
	var b strings.Builder
	html.Render(&b, n)
	return b.String()
}

// The paths of pages, and a text of each with and without traffic.
var paths = []struct{ path, empty, full string }{
	{"/", "No request in this time", "192.0.2.1"},
	{"/?by=agent&sort=requests&window=1h&span=1h", "There is nothing to show", "onerror"},
	{"/?by=path&sort=refused&span=1d", "There is nothing to show", "/admin/"},
	{"/?by=nonsense&sort=%00&window=-1&span=<b>", "No request", "192.0.2.1"},
	{"/client", "Enter an address", "Enter an address"},
	{"/client?client=192.0.2.1", "There are no records", "is refused"},
	{"/client?client=192.0.2.0/24", "There are no records", "onerror"},
	{"/client?client=googlebot", "There are no records", "googlebot"},
	{"/rules", "never", `class="tag">looks like a person`},
	{"/bots", "No bot has sent", "googlebot"},
	{"/bans", "No ban is in force", "nobody"},
	{"/journal", "There is none", "would"},
	{"/journal?client=192.0.2.1&rule=admin", "There is none of this kind", "/admin/"},
	{"/client?client=192.0.2.1&span=2d", "Nothing is known for this time", "only its refusals are known"},
	{"/client?client=192.0.2.0/24", "Nothing is known for this time", "Over time"},
	{"/history?by=owner&key=AS64500", "Owner AS64500", "Owner AS64500"},
	{"/history?by=fleet&key=fleet-1&span=2d", "Nothing is known", "Fleet fleet-1"},
	{"/journal?id=0123456789&page=99", "The registry has no refusal", "The registry has no refusal"},
}

func TestPages(t *testing.T) {
	for _, full := range []bool{false, true} {
		s := open(t, isTheToken)
		if full {
			s.traffic()
		}
		s.logIn()
		for _, p := range paths {
			want := p.empty
			if full {
				want = p.full
			}
			if full && p.path == "/journal" {
				want = "dry run"
			}
			status, text := s.get(p.path)
			if status != 200 || !strings.Contains(text, want) {
				t.Errorf("%s with traffic %t: %d, no %q:\n%s", p.path, full, status, want, text)
			}
			checkPage(t, p.path, text)
		}
	}
}

func TestWrongAddressesAreExplained(t *testing.T) {
	s := open(t, nil)
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/client?client=%22%3E%3Cscript%3E", 200, "&#34;&gt;&lt;script&gt;"},
		{"/client?client=300.1.1.1", 400, "give an address"},
		{"/client?client=%3Cscript%3Ealert(1)%3C/script%3E", 400, "give an address"},
		{"/journal?client=300.1.1.1", 400, "give an address"},
		{"/history?by=path&key=/", 400, "by"},
		{"/history", 400, "by"},
		{"/history?by=owner&key=%3Cscript%3E", 400, "&#34;&lt;script&gt;&#34;"},
		{"/nowhere", 404, "no such page"},
		{"/static/", 404, ""},
	} {
		status, text := s.get(c.path)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.path, status, text)
		}
	}
}

func TestPagesAreReadOnlyWithoutAToken(t *testing.T) {
	s := open(t, nil)
	s.traffic()
	for _, p := range paths {
		status, text := s.get(p.path)
		if status != 200 || !strings.Contains(text, "--admin-token-file") || strings.Contains(text, `method="post"`) {
			t.Errorf("%s: %d %s", p.path, status, text)
		}
		checkPage(t, p.path, text)
	}
	for _, path := range []string{"/act", "/login", "/logout"} {
		if w := s.post(path, url.Values{"do": {"ban"}, "client": {"192.0.2.1"}, "token": {""}}); w.Code != 403 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestSession(t *testing.T) {
	s := open(t, isTheToken)
	for _, p := range paths {
		w := s.send(httptest.NewRequest("GET", p.path, nil))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login" {
			t.Errorf("%s without a session: %d %s", p.path, w.Code, w.Body)
		}
	}
	for _, wrong := range []string{"", "wrong", token + "0", token[:31]} {
		if w := s.post("/login", url.Values{"token": {wrong}}); w.Code != 403 || len(s.cookies) > 0 {
			t.Errorf("token %q: %d", wrong, w.Code)
		}
	}
	s.logIn()
	c := s.cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || strings.Contains(c.Value, token) ||
		len(c.Value) < 26 || c.MaxAge != 4*3600 {
		t.Errorf("cookie: %v", c)
	}
	if status, _ := s.get("/rules"); status != 200 {
		t.Errorf("logged in: %d", status)
	}
	s.clock = s.clock.Add(sessionLength)
	if status, _ := s.get("/rules"); status != http.StatusSeeOther {
		t.Errorf("four hours later: %d", status)
	}

	s.logIn()
	old := s.cookies
	if w := s.post("/logout", url.Values{"csrf": {s.csrf()}}); w.Code != http.StatusSeeOther {
		t.Errorf("log out: %d", w.Code)
	}
	s.cookies = old
	if status, _ := s.get("/rules"); status != http.StatusSeeOther {
		t.Errorf("the old cookie after logout: %d", status)
	}

	for range 3 * mostSessions {
		s.logIn()
	}
	if n := len(s.pages.sessions.all); n != mostSessions {
		t.Errorf("%d sessions", n)
	}
	if status, _ := s.get("/rules"); status != 200 {
		t.Errorf("the latest of many sessions: %d", status)
	}
}

func TestCookieOverTLSIsSecure(t *testing.T) {
	s := open(t, isTheToken)
	r := httptest.NewRequest("POST", "https://example.com/login", strings.NewReader("token="+token))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.send(r)
	if c := s.cookies[0]; !c.Secure || c.Name != "__Host-fairshare-admin" || c.Path != "/" || c.Domain != "" {
		t.Errorf("cookie: %v", c)
	}
}

func TestLoginAttemptsAreLimited(t *testing.T) {
	s := open(t, isTheToken)
	for i := range mostWrong + 5 {
		want := 403
		if i >= mostWrong {
			want = 429
		}
		if w := s.post("/login", url.Values{"token": {"wrong"}}); w.Code != want {
			t.Errorf("attempt %d: %d", i, w.Code)
		}
	}
	if w := s.post("/login", url.Values{"token": {token}}); w.Code != 429 {
		t.Errorf("the token after many wrong ones: %d", w.Code)
	}
	other := httptest.NewRequest("POST", "/login", strings.NewReader("token="+token))
	other.RemoteAddr = "[2001:db8::1%eth0]:1"
	other.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if w := s.send(other); w.Code != http.StatusSeeOther {
		t.Errorf("another network: %d", w.Code)
	}
	s.clock = s.clock.Add(time.Minute)
	s.logIn()
}

func TestActionsNeedTheFormOfTheSession(t *testing.T) {
	s := open(t, isTheToken)
	ban := url.Values{"do": {"ban"}, "client": {"192.0.2.9"}, "for": {"1h"}}
	if w := s.post("/act", ban); w.Code != 403 {
		t.Errorf("without a session: %d", w.Code)
	}
	s.logIn()
	csrf := s.csrf()
	with := func(csrf string) url.Values {
		f := url.Values{"csrf": {csrf}}
		for k, v := range ban {
			f[k] = v
		}
		return f
	}
	for _, c := range []struct {
		what   string
		form   url.Values
		header []string
	}{
		{"no csrf token", ban, nil},
		{"wrong csrf token", with(csrf + "A"), nil},
		{"another site", with(csrf), []string{"Sec-Fetch-Site", "cross-site"}},
		{"another port of this host", with(csrf), []string{"Sec-Fetch-Site", "same-site"}},
		{"another origin", with(csrf), []string{"Origin", "http://evil.example"}},
		{"an opaque origin", with(csrf), []string{"Origin", "null"}},
		{"another port", with(csrf), []string{"Origin", "http://example.com:81"}},
		{"JSON", nil, []string{"Content-Type", "application/json"}},
	} {
		if w := s.post("/act", c.form, c.header...); w.Code != 403 {
			t.Errorf("%s: %d", c.what, w.Code)
		}
	}
	long := url.Values{"csrf": {csrf}, "reason": {strings.Repeat("a", mostForm)}}
	for _, path := range []string{"/act", "/login", "/logout"} {
		if w := s.post(path, long); w.Code != http.StatusRequestEntityTooLarge ||
			!strings.Contains(w.Body.String(), "the form has more than 16384 bytes") {
			t.Errorf("a long form to %s: %d %s", path, w.Code, w.Body)
		}
	}
	if r := s.send(httptest.NewRequest("GET", "/act?"+with(csrf).Encode(), nil)); r.Code == http.StatusSeeOther {
		t.Errorf("GET: %d", r.Code)
	}
	bans, err := s.console.Bans(context.Background())
	if err != nil || len(bans.Decisions) != 0 {
		t.Fatalf("something was banned: %+v, %v", bans, err)
	}
	if w := s.post("/act", with(csrf), "Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"); w.Code !=
		http.StatusSeeOther {
		t.Errorf("the form itself: %d %s", w.Code, w.Body)
	}
	if bans, err = s.console.Bans(context.Background()); err != nil || len(bans.Decisions) != 1 {
		t.Fatalf("nothing was banned: %+v, %v", bans, err)
	}
}

func TestActions(t *testing.T) {
	s := open(t, isTheToken)
	s.traffic()
	s.logIn()
	csrf := s.csrf()
	const next = "/client?client=192.0.2.9"
	for _, c := range []struct{ form, message, page string }{
		{"do=ban&for=24h&reason=<b>bold</b>", "banned", "banned by an operator"},
		{"do=unban", "192.0.2.9", "192.0.2.9"},
		{"do=allow&reason=friend", "192.0.2.9", "allowed by an operator without an end: friend"},
		{"do=unallow", "192.0.2.9", "192.0.2.9"},
		{"do=label&label=<i>x", "label", "192.0.2.9"},
		{"do=label&label=office", "192.0.2.9", `<span class="tag">office</span>`},
		{"do=unlabel&label=office", "192.0.2.9", "192.0.2.9"},
		{"do=note&note=%22><script>", "192.0.2.9", "&lt;script&gt;"},
		{"do=reset", "192.0.2.9", "192.0.2.9"},
		{"do=forget", "confirm it", "192.0.2.9"},
		{"do=forget&sure=yes", "192.0.2.9", "192.0.2.9"},
		{"do=ban&for=soon", "not a duration", "192.0.2.9"},
		{"do=ban&for=-1h", "for_seconds", "192.0.2.9"},
		{"do=format", "format", "192.0.2.9"},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		form.Set("csrf", csrf)
		form.Set("next", next)
		form.Set("client", "192.0.2.9")
		w := s.post("/act", form)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/client?client=192.0.2.9" {
			t.Errorf("%s: %d %s", c.form, w.Code, w.Header())
		}
		_, text := s.get(next)
		_, notice, found := strings.Cut(text, ` notice" role="`)
		notice, _, _ = strings.Cut(notice, "</div>")
		if !found || !strings.Contains(notice, c.message) || !strings.Contains(text, c.page) {
			t.Errorf("%s: %q\n%s", c.form, notice, text)
		}
		checkPage(t, c.form, text)
		if _, again := s.get(next); strings.Contains(again, ` notice" role="`) {
			t.Errorf("%s: the message is shown twice", c.form)
		}
	}
}

func TestReturnTo(t *testing.T) {
	for next, want := range map[string]string{"": "/", "/": "/", "//evil.example/bans": "/bans?",
		"https://evil.example": "/", "/\\evil.example": "/", "/client?client=192.0.2.1": "/client?client=192.0.2.1",
		"javascript:alert(1)": "/", "/logout": "/", "/bans?page=2\r\nX: y": "/"} {
		if got := returnTo(next); got != want {
			t.Errorf("%q: %q, not %q", next, got, want)
		}
	}
}

func TestPaged(t *testing.T) {
	all := make([]int, 250)
	for i := range all {
		all[i] = i
	}
	for _, c := range []struct {
		page             string
		first, n, number int
		before, after    bool
	}{{"", 0, 100, 1, false, true}, {"2", 100, 100, 2, true, true}, {"3", 200, 50, 3, true, false},
		{"99", 200, 50, 3, true, false}, {"-1", 0, 100, 1, false, true}, {"x", 0, 100, 1, false, true}} {
		rows, p := paged(httptest.NewRequest("GET", "/bans?a=%26&page="+c.page, nil), "page", all)
		if len(rows) != c.n || rows[0] != c.first || p.Number != c.number || p.Pages != 3 ||
			(p.Before != "") != c.before || (p.After != "") != c.after {
			t.Errorf("page %q: %d rows, %+v", c.page, len(rows), p)
		}
	}
	rows, p := paged(httptest.NewRequest("GET", "/bans?page=2", nil), "page", all[:0])
	if len(rows) != 0 || p.Pages != 1 {
		t.Errorf("no rows: %+v", p)
	}
}

func TestChart(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 59, 0, time.UTC)
	var points []traffic.Point
	for i := range 24 * 60 { // a day, and a bit more than fits
		points = append(points, traffic.Point{At: now.Truncate(time.Minute).Add(-time.Duration(i) * time.Minute),
			Totals: traffic.Totals{Passed: 8, DryRun: 2, Refused: 1, Blocked: 1}, Waiting: i % 3, InProgress: 1,
			Capacity: 4})
	}
	for i, want := range []struct {
		steps     int
		most, all int64
	}{{60, 10, 50}, {60, 10, 600}, {48, 300, 14120}} {
		c := newChart(points, spans[i], now)
		if len(c.Steps) != want.steps || c.Most != want.most || c.Requests < want.all-300 ||
			c.Requests > want.all+300 || !c.Shared || !c.To.After(now) {
			t.Errorf("%s: %d steps, most %d, %d requests, until %v", spans[i].Key, len(c.Steps), c.Most, c.Requests,
				c.To)
		}
		for _, bars := range [][]bar{c.Passed, c.DryRun, c.Ended, c.Waiting, c.InProgress} {
			for _, b := range bars {
				var x, y, w, h float64
				fmt.Sscan(b.X, &x)
				fmt.Sscan(b.Y, &y)
				fmt.Sscan(b.W, &w)
				fmt.Sscan(b.H, &h)
				if x < 0 || x+w > chartWidth || y < -0.01 || y+h > chartHeight+0.01 || h <= 0 {
					t.Errorf("%s: %+v is outside", spans[i].Key, b)
				}
			}
		}
	}
	if c := newChart(nil, spans[0], now); c.Requests != 0 || len(c.Passed) != 0 || len(c.Steps) != 60 {
		t.Errorf("no points: %+v", c)
	}
}
