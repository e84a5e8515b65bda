//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An attack is played before each peer. run attacks until ctx is done.
type attack struct {
	name  string
	about string
	quick bool // a part of -quick
	short bool // with -short, played before each peer, and not only before fairshare
	needs []program
	addrs int // addresses that it uses, each in a network of its own

	// counts selects the requests whose number is reported, such as guesses but not the login page before
	// each; nil: all.
	counts func(method, target string) bool
	run    func(ctx context.Context, a *attacker)
}

// An attacker is one attack at work.
type attacker struct {
	attack attack
	rng    *rand.Rand // for one goroutine
	addrs  []netip.Addr
	length time.Duration
	dir    string

	sent atomic.Int64 // requests that the attack counts

	mu    sync.Mutex
	notes []string
}

func (a *attacker) note(text string) {
	a.mu.Lock()
	a.notes = append(a.notes, text)
	a.mu.Unlock()
}

// count counts a request if the attack counts such requests.
func (a *attacker) count(method, target string) {
	if a.attack.counts == nil || a.attack.counts(method, target) {
		a.sent.Add(1)
	}
}

func posts(path string) func(string, string) bool {
	return func(method, target string) bool {
		got, _, _ := strings.Cut(target, "?")
		return method == "POST" && got == path
	}
}

func allAttacks() []attack {
	guesses := posts("/wp-login.php")
	all := []attack{
		{name: "guess-1", quick: true, addrs: 1, about: "guesses of passwords at wp-login.php with cookie and referer, 3 a second, from 1 address",
			counts: guesses, run: func(ctx context.Context, a *attacker) { a.guess(ctx) }},
		{name: "guess-50", addrs: 50, about: "the same from 50 addresses",
			counts: guesses, run: func(ctx context.Context, a *attacker) { a.guess(ctx) }},
		{name: "guess-200", quick: true, short: true, addrs: 200, about: "the same from 200 addresses",
			counts: guesses, run: func(ctx context.Context, a *attacker) { a.guess(ctx) }},
		{name: "xmlrpc-100", quick: true, short: true, addrs: 100, about: "guesses by XML-RPC with the user agent of an app, 3 a second, from 100 addresses",
			run: func(ctx context.Context, a *attacker) { a.guessXMLRPC(ctx) }},
		{name: "basic-1", quick: true, short: true, addrs: 1, about: "wrong Basic credentials at the REST API, 5 a second, from 1 address",
			run: func(ctx context.Context, a *attacker) { a.guessBasic(ctx, 5) }},
		{name: "basic-100", addrs: 100, about: "the same from 100 addresses",
			run: func(ctx context.Context, a *attacker) { a.guessBasic(ctx, 5) }},
		{name: "spam-100", quick: true, short: true, addrs: 100, about: "spam comments after a visit of the post, 2 a second, from 100 addresses",
			counts: posts("/wp-comments-post.php"), run: func(ctx context.Context, a *attacker) { a.spam(ctx) }},
		{name: "crawler", quick: true, short: true, addrs: 1,
			about: "a crawler of searches with 50 connections from 1 address",
			run:   func(ctx context.Context, a *attacker) { a.loop(ctx, 50, searchTarget) }},
		{name: "swarm-500", quick: true, addrs: 500, about: "500 addresses that read pages, one request open each",
			run: func(ctx context.Context, a *attacker) { a.loop(ctx, 1, pageTarget) }},
		{name: "flood", addrs: 10, about: "a flood of the front page, 10 addresses with 20 connections each",
			run: func(ctx context.Context, a *attacker) { a.loop(ctx, 20, frontTarget) }},
	}
	return append(all, toolAttacks()...)
}

// agents are the user agents of ordinary browsers.
var agents = []string{
	firefox,
	"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:139.0) Gecko/20100101 Firefox/139.0",
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0",
}

// paced calls do that many times a second, evenly, each in a goroutine of its own, until ctx is done.
func paced(ctx context.Context, rate float64, do func(i int)) {
	var group sync.WaitGroup
	defer group.Wait()
	began := time.Now()
	for i := 0; ; i++ {
		at := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if !sleep(ctx, time.Until(at)) || ctx.Err() != nil {
			return
		}
		group.Go(func() { do(i) })
	}
}

// patience is the time that attackers wait for an answer.
const patience = 10 * time.Second

// browsers returns a browser for each address.
func (a *attacker) browsers() []*browser {
	all := make([]*browser, len(a.addrs))
	for i, addr := range a.addrs {
		all[i] = newBrowser(addr, agents[a.rng.IntN(len(agents))], patience)
	}
	return all
}

func closeAll(all []*browser) {
	for _, b := range all {
		b.close()
	}
}

// guess opens the login page, as people do, and sends a guess from it. Addresses take turns.
func (a *attacker) guess(ctx context.Context) {
	all := a.browsers()
	defer closeAll(all)
	turns := make([]sync.Mutex, len(all))
	paced(ctx, 3, func(i int) {
		n := i % len(all)
		if len(all) > 1 { // of one address, guesses overlap
			turns[n].Lock()
			defer turns[n].Unlock()
		}
		b := all[n]
		if b.at() == "" {
			b.goTo("/wp-login.php")
			b.navigate(ctx, "/wp-login.php", nil)
		}
		a.count("POST", "/wp-login.php")
		b.navigate(ctx, "/wp-login.php", loginForm("admin", fmt.Sprintf("guess %d", i)))
	})
}

func (a *attacker) guessXMLRPC(ctx context.Context) {
	all := a.browsers()
	for _, b := range all {
		b.agent = "wp-android/26.1"
	}
	defer closeAll(all)
	paced(ctx, 3, func(i int) {
		a.count("POST", "/xmlrpc.php")
		all[i%len(all)].send(ctx, "POST", "/xmlrpc.php", "text/xml",
			call("wp.getUsersBlogs", "admin", fmt.Sprintf("guess %d", i)), map[string]string{"Accept": "*/*"})
	})
}

func (a *attacker) guessBasic(ctx context.Context, rate float64) {
	all := a.browsers()
	defer closeAll(all)
	paced(ctx, rate, func(i int) {
		a.count("GET", "/wp-json/wp/v2/users/me")
		all[i%len(all)].send(ctx, "GET", "/wp-json/wp/v2/users/me", "", nil, map[string]string{
			"Authorization": basic("admin", fmt.Sprintf("guess %d", i)), "Accept": "application/json"})
	})
}

// spam loads a post with its parts, waits for a moment, and sends a comment with a link.
func (a *attacker) spam(ctx context.Context) {
	all := a.browsers()
	defer closeAll(all)
	targets := make([]int, 1000)
	for i := range targets {
		targets[i] = a.rng.IntN(200) + 1
	}
	paced(ctx, 2, func(i int) {
		b := all[i%len(all)]
		target := post(targets[i%len(targets)])
		page := b.navigate(ctx, target, nil)
		id := hidden(page.body, "comment_post_ID")
		if id == "" { // refused; spammers know the numbers
			id = fmt.Sprint(targets[i%len(targets)] + 5)
		}
		if !sleep(ctx, time.Second) {
			return
		}
		b.goTo(target)
		a.count("POST", "/wp-comments-post.php")
		b.navigate(ctx, "/wp-comments-post.php", url.Values{
			"comment": {fmt.Sprintf(`Great post! Buy cheap pills at <a href="http://pills%d.example/">our shop</a>.`, i)},
			"author":  {fmt.Sprintf("Shop %d", i)}, "email": {fmt.Sprintf("shop%d@pills.example", i)},
			"url":    {fmt.Sprintf("http://pills%d.example/", i)},
			"submit": {"Post Comment"}, "comment_post_ID": {id}, "comment_parent": {"0"}})
	})
}

func searchTarget(rng *rand.Rand) string {
	first, second := searches[rng.IntN(len(searches))], searches[rng.IntN(len(searches))]
	return fmt.Sprintf("/?s=%s+%s+%d", first, second, rng.IntN(1e6))
}

func pageTarget(rng *rand.Rand) string { return post(rng.IntN(200) + 1) }

func frontTarget(rng *rand.Rand) string { return fmt.Sprintf("/?%d", rng.IntN(1e9)) }

// loop sends requests from each address over some connections, the next when the answer has come. After
// a refusal a connection pauses for 0.5 to 1.5 s.
func (a *attacker) loop(ctx context.Context, connections int, target func(*rand.Rand) string) {
	var group sync.WaitGroup
	defer group.Wait()
	for i, addr := range a.addrs {
		for j := range connections {
			rng := random(a.rng.Uint64(), fmt.Sprint(i, j))
			b := newBrowser(addr, agents[rng.IntN(len(agents))], patience)
			group.Go(func() {
				defer b.close()
				sleep(ctx, time.Duration(rng.Float64()*float64(time.Second)))
				for ctx.Err() == nil {
					to := target(rng)
					a.count("GET", to)
					status := b.navigate(ctx, to, nil).status
					if status == 0 || status >= 400 && status != http.StatusNotFound {
						sleep(ctx, time.Duration((0.5+rng.Float64())*float64(time.Second)))
					}
				}
			})
		}
	}
}
