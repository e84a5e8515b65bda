//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fairshare/internal/lookup/lookuptest"
)

const (
	googlebot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	seznambot = "Mozilla/5.0 (compatible; SeznamBot/4.0; +http://napoveda.seznam.cz/seznambot-intro/)"
	firefox   = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
)

const behindLoopback = "clients: {trusted_proxies: [loopback]}\n"

// A verified crawler is allowed. Until the DNS has verified it, and while the
// DNS does not answer, it is an ordinary client. A forged one is blocked.
func TestServeVerifiesBots(t *testing.T) {
	t.Parallel()
	dns := lookuptest.Start(t)
	dns.Host("203.0.113.7", "crawl-7.seznam.cz")
	dns.PTR("198.51.100.7", "crawl-9.seznam.cz") // which leads elsewhere
	dns.Silence(true)
	site := echoSite(t)
	s := startServe(t, fmt.Sprintf(`
upstream: %s
dns: {server: %q}
%srules:
  - {name: engines, match: {bot: search}, allow: true}
  - {name: forged, match: {bot: forged}, block: true}
  - {name: pages, limit: {requests: 2, per: 1h, by: addr}}
`, site.URL, dns.Addr(), behindLoopback))
	home := "http://" + s.addr + "/"
	status := func(client, userAgent string) func() int {
		return func() int {
			resp, _ := requestAs(t, "GET", home, client, userAgent)
			return resp.StatusCode
		}
	}
	real, forged := status("203.0.113.7", seznambot), status("198.51.100.7", seznambot)
	for range 2 {
		if resp, body := requestAs(t, "GET", home, "203.0.113.7", seznambot, "Fairshare-Bot", "mine",
			"FAIRSHARE_CLIENT", "1.2.3.4", "Fairshare-Bot-State", "verified"); resp.StatusCode != 200 ||
			body != "[203.0.113.7] [seznambot] [pending] [120]" {
			t.Errorf("while the DNS is silent: %d %s", resp.StatusCode, body)
		}
	}
	if got := real(); got != 429 {
		t.Errorf("the third page while the DNS is silent: %d", got)
	}
	forged()
	forged()
	if got := forged(); got != 429 {
		t.Errorf("while the DNS is silent, a claimed bot: %d", got)
	}
	dns.Silence(false)
	// Failed lookups are repeated after a minute, so other addresses are used.
	dns.Host("203.0.114.7", "crawl-8.seznam.cz")
	dns.PTR("198.51.101.7", "crawl-9.seznam.cz")
	eventually(t, 200, func() int {
		_, body := requestAs(t, "GET", home, "203.0.114.7", seznambot)
		if body == "[203.0.114.7] [seznambot] [verified] [120]" {
			return 200
		}
		return 0
	})
	for range 5 {
		if got := status("203.0.114.7", seznambot)(); got != 200 {
			t.Errorf("the verified one: %d", got)
		}
	}
	eventually(t, 403, status("198.51.101.7", seznambot))
	eventually(t, 403, status("203.0.115.9", seznambot)) // without a host name
	if got := status("66.249.66.1", googlebot)(); got != 200 {
		t.Errorf("Googlebot in its published ranges: %d", got)
	}
	if n := dns.Queries(lookuptest.Reverse("66.249.66.1"), dnsmessage.TypePTR); n != 0 {
		t.Errorf("the DNS was asked %d times about an address in published ranges", n)
	}
	// The DNS server of the policy would know the names of a private network.
	eventually(t, 403, status("10.1.2.3", googlebot))
	if resp, body := requestAs(t, "GET", home, "192.0.2.1", firefox); resp.StatusCode != 200 ||
		body != "[192.0.2.1] [] [] [1800]" {
		t.Errorf("a person: %d %s", resp.StatusCode, body)
	}
	if n := dns.Queries(lookuptest.Reverse("192.0.2.1"), dnsmessage.TypePTR); n != 0 {
		t.Errorf("the DNS was asked %d times about a client that does not claim to be a bot", n)
	}
	s.stop()
	if output := s.stderr.String(); !strings.Contains(output, `"bot":"seznambot","bot_state":"forged"`) {
		t.Errorf("the journal has no line of the forged one:\n%s", output)
	}
}

// A verified bot stays verified over a reload.
func TestReloadKeepsVerifiedBots(t *testing.T) {
	dns := lookuptest.Start(t)
	dns.Host("203.0.113.7", "crawl-7.seznam.cz")
	policy := fmt.Sprintf(
		"upstream: %s\ndns: {server: %q}\n%srules:\n  - {name: engines, match: {bot: search}, allow: true}\n  - {name: others, block: true}\n", echoSite(t).URL, dns.Addr(), behindLoopback)
	p := startProcess(t, policy)
	ask := func() int {
		resp, _ := requestAs(t, "GET", "http://"+p.addr+"/", "203.0.113.7", seznambot)
		return resp.StatusCode
	}
	eventually(t, 200, ask)
	dns.Silence(true)
	p.reload(t, `SIGHUP: \S+ (was loaded again): 2 rules`)
	if got := ask(); got != 200 {
		t.Errorf("after the reload: %d", got)
	}
}

// Rules match host names and DNS lists, which serve asks the DNS for.
func TestServeLooksUpHostNamesAndDNSLists(t *testing.T) {
	t.Parallel()
	dns := lookuptest.Start(t)
	dns.Host("203.0.113.7", "build-1.example.org")
	dns.List("dnsbl.test", "127.0.0.2", "127.0.0.2") // the test entry of RFC 5782
	dns.List("dnsbl.test", "198.51.100.7", "127.0.0.3")
	dns.List("dnsbl.test", "198.51.100.8", "127.0.0.9")
	dns.HTTPBL("abcdefghijkl", "dnsbl.httpbl.org", "198.51.100.9", "127.3.40.4")
	dns.HTTPBL("abcdefghijkl", "dnsbl.httpbl.org", "66.249.66.1", "127.3.5.0")
	key := writeFile(t, "honeypot.key", "abcdefghijkl\n")
	s := startServe(t, fmt.Sprintf(`
upstream: %s
dns: {server: %q, lists: {bl: {zone: dnsbl.test}, honeypot: {httpbl: %q}}}
%srules:
  - {name: ours, match: {hostname: "*.example.org"}, allow: true}
  - {name: listed, match: {method: POST, listed: {bl: {codes: [3]}, honeypot: {type: spammer, threat: 25, age: 30d}}}, block: true}
  - {name: pages, limit: {requests: 1, per: 1h, by: addr}}
`, echoSite(t).URL, dns.Addr(), key, behindLoopback))
	status := func(method, client string) func() int {
		return func() int {
			resp, _ := requestAs(t, method, "http://"+s.addr+"/", client, firefox)
			return resp.StatusCode
		}
	}
	eventually(t, 200, func() int { status("GET", "203.0.113.7")(); return status("GET", "203.0.113.7")() })
	eventually(t, 403, status("POST", "198.51.100.7"))
	eventually(t, 403, status("POST", "198.51.100.9"))
	for _, client := range []string{"198.51.100.8", "66.249.66.1"} { // listed for something else; a search engine
		status("POST", client)()
		if got := status("POST", client)(); got != 429 {
			t.Errorf("POST of %s: %d", client, got)
		}
	}
	if got := status("GET", "198.51.100.7")(); got == 403 {
		t.Errorf("GET of a listed one: %d", got)
	}
	s.stop()
	if strings.Contains(s.stderr.String(), "abcdefghijkl") {
		t.Errorf("the access key was shown:\n%s", s.stderr)
	}
}

// Lists from files and URLs may change while requests are in progress. A broken
// version is reported and changes nothing.
func TestListsChangeWhileServing(t *testing.T) {
	t.Parallel()
	var fetched atomic.Value
	fetched.Store("198.51.100.0/24\n")
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, fetched.Load().(string))
	}))
	defer source.Close()
	dir := t.TempDir()
	drop := filepath.Join(dir, "drop.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(drop+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(drop+".new", drop); err != nil {
			t.Fatal(err)
		}
	}
	write("# dropped\n203.0.113.0/24 ; SBL1\n")
	policy := fmt.Sprintf(`
upstream: %s
lists: {drop: {file: %q}, fetched: {url: %q, every: 1h}}
%srules:
  - {name: dropped, match: {addr: [drop, fetched]}, block: true}
`, echoSite(t).URL, drop, source.URL, behindLoopback)
	s := startServe(t, policy, "--state", dir)
	status := func(client string) func() int {
		return func() int { return getFrom(t, "http://"+s.addr+"/", client).StatusCode }
	}
	for client, want := range map[string]int{"203.0.113.9": 403, "198.51.100.9": 403, "192.0.2.1": 200} {
		if got := status(client)(); got != want {
			t.Errorf("%s: %d, want %d", client, got, want)
		}
	}
	write("192.0.2.0/24\n2001:db8::/32\n")
	eventually(t, 403, status("192.0.2.1"))
	if got := status("203.0.113.9")(); got != 200 {
		t.Errorf("an address that is no longer listed: %d", got)
	}
	write("<html>not a list</html>\n")
	s.stderr.wait(`(list drop: .*)`)
	if got := status("192.0.2.1")(); got != 403 {
		t.Errorf("with a broken version: %d", got)
	}
	s.stop()

	// The next start finds the URL dead, and what it answered before.
	source.Close()
	write("192.0.2.0/24\n")
	s = startServe(t, policy, "--state", dir)
	if got := status("198.51.100.9")(); got != 403 {
		t.Errorf("from the copy of what the URL answered: %d", got)
	}
}

// A reload keeps the list of a URL that does not answer, even without a copy of
// the list.
func TestReloadKeepsListsWithoutCopies(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "198.51.100.0/24\n")
	}))
	defer source.Close()
	policy := fmt.Sprintf(
		"upstream: %s\nlists: {fetched: {url: %q, every: 1h}}\n%srules:\n  - {name: listed, match: {addr: fetched}, block: true}\n", echoSite(t).URL, source.URL, behindLoopback)
	p := startProcess(t, policy, "--state", filepath.Dir(writeFile(t, "lists", "no folder")))
	for _, when := range []string{"before", "after"} {
		if got := getFrom(t, "http://"+p.addr+"/", "198.51.100.9").StatusCode; got != 403 {
			t.Errorf("%s: %d", when, got)
		}
		source.Close()
		p.reload(t, `SIGHUP: \S+ (was loaded again): 1 rule`)
	}
	if got := getFrom(t, "http://"+p.addr+"/", "198.51.100.9").StatusCode; got != 403 {
		t.Errorf("after the second reload: %d", got)
	}
}

// A phpSession is a session as session.php reports it.
type phpSession struct {
	Session, Person, Client, Bot, State, TTL string
	Pages                                    int
}

// A PHP site opens a session for each request without a cookie. A crawler with
// fifty addresses leaves only a few sessions, and none of them is a person's.
func TestBotsShareSessionsOfPHP(t *testing.T) {
	socket, root := startPHP(t, 4), phpSite(t)
	upstream := freeAddr(t)
	startNginx(t, upstream, fmt.Sprintf(`root %s;
		location ~ \.php$ {
			include fastcgi_params;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_pass unix:%s;
		}`, root, socket))
	s := startServe(t, fmt.Sprintf(`
upstream: http://%s
sessions: {cookies: [PHPSESSID], bots: share, bot: 1m}
%srules:
  - {name: ceiling, limit: {requests: 100000, per: 1m}}
`, upstream, behindLoopback))
	page := "http://" + s.addr + "/session.php"
	ask := func(method, client, userAgent, cookie, body string) (got phpSession, set string) {
		req, err := http.NewRequest(method, page, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", client)
		req.Header.Set("User-Agent", userAgent)
		if body != "" {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if cookie != "" {
			req.Header.Set("Cookie", "PHPSESSID="+cookie)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Errorf("%s of %s: %d, %v", method, client, resp.StatusCode, err)
		}
		for _, c := range resp.Cookies() {
			set = c.Value
		}
		return got, set
	}

	person, cookie := ask("GET", "192.0.2.1", firefox, "", "")
	if cookie == "" || person.Pages != 1 || person.TTL != "1800" || person.Client != "192.0.2.1" || person.Bot != "" {
		t.Fatalf("the first page of a person: %+v, cookie %q", person, cookie)
	}
	login, cookie := ask("POST", "192.0.2.1", firefox, cookie, url.Values{"person": {"Ada"}}.Encode())
	if cookie == "" || login.Person != "Ada" {
		t.Fatalf("the login: %+v, cookie %q", login, cookie)
	}

	requests := 1000
	if required() {
		requests = 10_000
	}
	var crawl sync.WaitGroup
	for worker := range 4 {
		crawl.Go(func() {
			for i := range requests / 4 {
				client := fmt.Sprintf("66.249.%d.%d", 64+i%5, 1+worker*10+i%10)
				got, _ := ask("GET", client, googlebot, "", "")
				if got.Person != "" || got.Bot != "googlebot" || got.State != "verified" || got.TTL != "60" {
					t.Errorf("the crawler at %s: %+v", client, got)
					return
				}
			}
		})
	}
	for range 50 {
		got, _ := ask("GET", "192.0.2.1", firefox, cookie, "")
		if got.Person != "Ada" {
			t.Errorf("a page of the person during the crawl: %+v", got)
		}
		if other, _ := ask("GET", "66.249.66.1", firefox, "", ""); other.Person != "" || other.Pages != 1 {
			t.Errorf("a browser at the crawler's address: %+v", other)
		}
	}
	crawl.Wait()
	kept, err := filepath.Glob(filepath.Join(filepath.Dir(socket), "sess_*"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(kept) - 1 - 50; n < 1 || n > 8 { // but the person's and the fifty browsers'
		t.Errorf("%d requests of one crawler left %d sessions", requests, n)
	}
}
