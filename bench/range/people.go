//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// tooLong is the wait after which a person has been harmed.
const tooLong = 5 * time.Second

// A phase is a part of a run.
type phase int

const (
	before phase = iota
	during
	after
)

// A record is one request of a person.
type record struct {
	person string
	target string
	status int // 0: no answer
	wait   time.Duration
	page   bool // a page or a call of an app, not a part of a page
	phase  phase
	harm   string // why the person was harmed; empty: was not
}

// A crowd is the people of a run, with the answers that they got.
type crowd struct {
	seed   uint64
	site   *site
	length time.Duration // of the attack
	dir    string

	mu      sync.Mutex
	began   [3]time.Time // of each phase; zero: it has not begun
	names   []string
	records []record
	links   links
	stalled []string // things that a person could not do, without a refusal
}

func (c *crowd) enter(p phase) {
	c.mu.Lock()
	c.began[p] = time.Now()
	c.mu.Unlock()
}

func (c *crowd) add(r record) {
	c.mu.Lock()
	r.phase = c.phaseAt(time.Now().Add(-r.wait))
	c.records = append(c.records, r)
	c.mu.Unlock()
}

// phaseAt returns the phase at a time. A request belongs to the phase in which it was sent.
func (c *crowd) phaseAt(t time.Time) phase {
	for p := after; p > before; p-- {
		if !c.began[p].IsZero() && !t.Before(c.began[p]) {
			return p
		}
	}
	return before
}

func (c *crowd) stall(person, text string) {
	c.mu.Lock()
	c.stalled = append(c.stalled, person+": "+text)
	c.mu.Unlock()
}

// harmOf returns why an answer harms a person who did nothing wrong; empty: it does not. What a site
// itself may answer to them, such as "not found", does not.
func harmOf(status int, wait time.Duration) string {
	switch {
	case status == 0:
		return fmt.Sprintf("no answer in %v", wait.Round(time.Second/10))
	case status == 401, status == 403, status == 421, status == 429, status >= 500:
		return fmt.Sprintf("refused with %d", status)
	case wait > tooLong:
		return fmt.Sprintf("waited %v", wait.Round(time.Second/10))
	}
	return ""
}

// A person is one of the crowd.
type person struct {
	name    string
	crowd   *crowd
	rng     *rand.Rand
	browser *browser
	from    netip.Addr
}

// note records the answer to a request of a person.
func (p *person) note(ctx context.Context, target string, a answer, page bool) {
	if ctx.Err() != nil && a.status == 0 && a.wait <= tooLong { // the run ended
		return
	}
	p.crowd.add(record{person: p.name, target: target, status: a.status, wait: a.wait, page: page,
		harm: harmOf(a.status, a.wait)})
}

// load loads a page with its parts, or sends a form. It follows the Refresh of a waiting room; the whole
// time until the page counts.
func (p *person) load(ctx context.Context, target string, form url.Values) answer {
	began := time.Now()
	a := p.browser.navigate(ctx, target, form)
	for {
		again, waits := refreshOf(a.header)
		if a.status != http.StatusServiceUnavailable || !waits || time.Since(began) > giveUp || !sleep(ctx, again) {
			break
		}
		a = p.browser.navigate(ctx, target, form)
	}
	a.wait = time.Since(began)
	p.note(ctx, target, a, true)
	if a.status == http.StatusOK {
		for target, part := range p.browser.parts(ctx, a.body) {
			p.note(ctx, target, part, false)
		}
	}
	return a
}

// pause waits for a random time with that mean, at most four times as long.
func (p *person) pause(ctx context.Context, mean time.Duration) bool {
	return sleep(ctx, time.Duration(min(p.rng.ExpFloat64(), 4)*float64(mean)))
}

// giveUp is the time after which people stop waiting for an answer.
const giveUp = 20 * time.Second

// start starts all people. Late ones wait for begun: they come during the attack. All end with ctx.
func (c *crowd) start(ctx context.Context, addrs *addresses, begun <-chan struct{}) *sync.WaitGroup {
	var group sync.WaitGroup
	add := func(name, agent string, from netip.Addr, late bool, do func(p *person, ctx context.Context)) {
		p := &person{name: name, crowd: c, rng: random(c.seed, name), from: from,
			browser: newBrowser(from, agent, giveUp)}
		c.names = append(c.names, name)
		group.Go(func() {
			defer p.browser.close()
			if late {
				select {
				case <-ctx.Done():
					return
				case <-begun:
				}
			}
			do(p, ctx)
		})
	}
	for i := range 4 {
		add(fmt.Sprintf("reader %d", i+1), firefox, addrs.next(), false, (*person).read)
	}
	for i := range 4 { // they come for the first time
		add(fmt.Sprintf("new reader %d", i+1), firefox, addrs.next(), true, func(p *person, ctx context.Context) {
			if sleep(ctx, time.Duration((0.1+0.5*p.rng.Float64())*float64(c.length))) {
				p.read(ctx)
			}
		})
	}
	for i := range 2 {
		add(fmt.Sprintf("commenter %d", i+1), firefox, addrs.next(), true, (*person).comment)
	}
	office := addrs.next()
	for i := range 3 {
		add(fmt.Sprintf("office %d", i+1), firefox, office, true, (*person).mistype)
	}
	add("feed reader", "FreshRSS/1.26.3 (Linux; https://freshrss.org)", addrs.next(), false, (*person).feed)
	add("XML-RPC app", "wp-android/26.1", addrs.next(), false, (*person).xmlrpc)
	add("REST app", "wp-iphone/26.1", addrs.next(), false, (*person).rest)
	add("editor 1", "", addrs.next(), false, func(p *person, ctx context.Context) { p.edit(ctx, "editor1") })
	add("editor 2", "", addrs.next(), true, func(p *person, ctx context.Context) {
		if sleep(ctx, c.length/5) {
			p.edit(ctx, "editor2")
		}
	})
	owner := addrs.next()
	group.Go(func() { c.checkLinks(ctx, owner) })
	return &group
}

var searches = strings.Fields("river market window garden paper winter bridge letter island morning kitchen silver road forest music")

// A post of the site by its number.
func post(n int) string { return fmt.Sprintf("/2025/post-%d/", n) }

// read reads pages, some seconds each.
func (p *person) read(ctx context.Context) {
	for {
		target := "/"
		switch n := p.rng.IntN(10); {
		case n < 6:
			target = post(p.rng.IntN(200) + 1)
		case n < 8:
			target = "/category/" + []string{"news", "travel", "kitchen", "garden", "music"}[p.rng.IntN(5)] + "/"
		case n < 9:
			target = "/?s=" + searches[p.rng.IntN(len(searches))]
		}
		p.load(ctx, target, nil)
		if !p.pause(ctx, 4*time.Second) {
			return
		}
	}
}

// comment reads a post and comments on it, once.
func (p *person) comment(ctx context.Context) {
	if !sleep(ctx, time.Duration((0.1+0.4*p.rng.Float64())*float64(p.crowd.length))) {
		return
	}
	n := p.rng.IntN(200) + 1
	page := p.load(ctx, post(n), nil)
	id := hidden(page.body, "comment_post_ID")
	if page.status != http.StatusOK || id == "" || !sleep(ctx, min(8*time.Second, p.crowd.length/3)) {
		return
	}
	a := p.load(ctx, "/wp-comments-post.php", url.Values{
		"comment": {fmt.Sprintf("Thank you, I have read this %d times.", p.rng.IntN(1000))},
		"author":  {"Robin " + p.name},
		"email":   {fmt.Sprintf("robin%d@mail.example", n)}, "url": {""}, "submit": {"Post Comment"},
		"comment_post_ID": {id}, "comment_parent": {"0"},
	})
	if a.status == http.StatusOK || a.status == http.StatusConflict {
		p.crowd.stall(p.name, "the comment was not accepted")
	}
}

// hidden returns the value of a hidden field of a form.
func hidden(page []byte, name string) string {
	for _, input := range inputPattern.FindAll(page, -1) {
		if strings.Contains(string(input), `name='`+name+`'`) || strings.Contains(string(input), `name="`+name+`"`) {
			if value := valuePattern.FindSubmatch(input); value != nil {
				return html.UnescapeString(string(value[1]))
			}
		}
	}
	return ""
}

var (
	inputPattern = regexp.MustCompile(`<input[^>]*>`)
	valuePattern = regexp.MustCompile(`value=['"]([^'"]*)['"]`)
)

func loginForm(user, password string) url.Values {
	return url.Values{"log": {user}, "pwd": {password}, "wp-submit": {"Log In"},
		"redirect_to": {"http://" + siteHost + "/wp-admin/"}, "testcookie": {"1"}}
}

// mistype is one of three colleagues behind one address. Each mistypes the password twice, logs in, and
// works.
func (p *person) mistype(ctx context.Context) {
	if !sleep(ctx, time.Duration((0.05+0.25*p.rng.Float64())*float64(p.crowd.length))) {
		return
	}
	user := "office" + p.name[len(p.name)-1:]
	if p.load(ctx, "/wp-login.php", nil).status != http.StatusOK {
		return
	}
	for _, password := range []string{"passwort of " + user, "password off " + user, "password of " + user} {
		if !sleep(ctx, time.Duration((0.05+0.05*p.rng.Float64())*float64(p.crowd.length))) {
			return
		}
		p.load(ctx, "/wp-login.php", loginForm(user, password))
	}
	for _, page := range []string{"", "edit.php", "profile.php", "edit-comments.php"} {
		a := p.load(ctx, "/wp-admin/"+page, nil)
		if a.status == http.StatusFound {
			p.crowd.stall(p.name, "is not logged in")
			return
		}
		if !p.pause(ctx, 3*time.Second) {
			return
		}
	}
}

// feed asks for the feed; between a real program's requests half an hour would pass.
func (p *person) feed(ctx context.Context) {
	var modified string
	for {
		header := map[string]string{"Accept": "application/atom+xml,application/rss+xml,application/xml;q=0.9,text/xml;q=0.9,*/*;q=0.8"}
		if modified != "" {
			header["If-Modified-Since"] = modified
		}
		a := p.browser.send(ctx, "GET", "/feed/", "", nil, header)
		p.note(ctx, "/feed/", a, true)
		modified = a.header.Get("Last-Modified")
		if !p.pause(ctx, 5*time.Second) {
			return
		}
	}
}

// call returns a call of XML-RPC with a user's password.
func call(method, user, password string) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0"?><methodCall><methodName>%s</methodName><params><param><value><int>1</int></value></param>`+
		`<param><value><string>%s</string></value></param><param><value><string>%s</string></value></param></params></methodCall>`,
		method, html.EscapeString(user), html.EscapeString(password))
}

// xmlrpc is an app that works with XML-RPC, with the right password.
func (p *person) xmlrpc(ctx context.Context) {
	for {
		a := p.browser.send(ctx, "POST", "/xmlrpc.php", "text/xml", call("wp.getPosts", "app", "password of app"),
			map[string]string{"Accept": "*/*"})
		p.note(ctx, "/xmlrpc.php", a, true)
		if a.status == http.StatusOK && strings.Contains(string(a.body), "<fault>") {
			p.crowd.stall(p.name, "the answer is a fault")
		}
		if !p.pause(ctx, 6*time.Second) {
			return
		}
	}
}

// basic returns the header Authorization for a user and a password.
func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// rest is an app that works with the REST API and an application password.
func (p *person) rest(ctx context.Context) {
	credentials := basic("app", p.crowd.site.appPassword)
	for {
		target := "/wp-json/wp/v2/posts?context=edit&per_page=5"
		a := p.browser.send(ctx, "GET", target, "", nil,
			map[string]string{"Authorization": credentials, "Accept": "application/json"})
		p.note(ctx, target, a, true)
		if !p.pause(ctx, 6*time.Second) {
			return
		}
	}
}
