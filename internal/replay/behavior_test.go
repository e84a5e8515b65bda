package replay

import (
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
)

// The figures are those of clients in published logs: three runs of scanners, and people who
// sent the most requests, the fewest assets, or the most errors.
func TestBehaviorTellsScannersFromPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		requests, errors int64
		b                behavior
		program          bool
	}{
		{"Acunetix", 6539, 273, behavior{assets: 39, attacks: 300, busiest: 414}, true},
		{"Netsparker", 7314, 2614, behavior{assets: 110, heads: 2038, odd: 35, attacks: 900, busiest: 2831}, true},
		{"Netsparker, if its targets were plain", 7314, 2614, behavior{assets: 110, heads: 2038, odd: 35,
			busiest: 2831}, true},
		{"a scanner that finds nothing", 400, 390, behavior{assets: 3, busiest: 40}, true},
		{"a tester's browser", 20, 2, behavior{assets: 13, busiest: 4}, false},
		{"a school behind one address, an application that polls", 1679, 0, behavior{assets: 54, busiest: 30}, false},
		{"a network of phones", 1006, 1, behavior{assets: 46, busiest: 90}, false},
		{"a developer with an editor", 1880, 3, behavior{assets: 105, busiest: 72}, false},
		{"an author of a blog", 1133, 23, behavior{assets: 816, busiest: 41}, false},
		{"a reader of a site with missing images", 857, 58, behavior{assets: 343, busiest: 19}, false},
		{"a page open all day that polls each second", 80_000, 2, behavior{assets: 60, busiest: 61}, false},
		{"an office whose pages poll", 90_000, 30, behavior{assets: 900, busiest: 600}, false},
		{"an office whose sessions have ended", 9000, 1200, behavior{assets: 700, busiest: 300}, false},
		{"a page that keeps files by WebDAV", 900, 20, behavior{assets: 90, odd: 700, busiest: 60}, false},
		{"a search for a quoted text", 40, 0, behavior{assets: 20, attacks: 4}, false},
		{"more assets than are counted", 9_000_000, 10, behavior{assets: 1<<16 - 1, busiest: 400}, false},
	} {
		if got := c.b.isProgram(c.requests, c.errors); got != c.program {
			t.Errorf("%s: isProgram is %v, want %v", c.name, got, c.program)
		}
	}
}

func TestBehaviorCountsAMinute(t *testing.T) {
	t.Parallel()
	var b behavior
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range 90 {
		it := item{req: fairshare.Request{Method: "GET"}, asset: i%3 == 0, entry: &accesslog.Entry{}}
		if i == 1 || i == 4 {
			it.attack = true
		}
		if i == 2 {
			it.req.Method = "PROPFIND"
		}
		if i >= 80 {
			it.req.Method = "HEAD"
		}
		b.add(&it, begin.Add(time.Duration(i)*time.Second).UnixNano(), i < 4) // later it does not look like a person
	}
	b.now, b.minute = 0, 0
	if want := (behavior{assets: 30, heads: 7, odd: 1, attacks: 1, busiest: 40}); b != want {
		t.Errorf("%+v, want %+v", b, want)
	}
}

func TestIsAttack(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"/index.php?file=../../../etc/passwd", "/a/..%2F..%2fb", "/.git/config", "/DVWA/.git/HEAD", "/.env",
		"/app/.env?x",
		"/.env.bak", "/?q=%3CScRiPt%3Ealert(1)%3C/script%3E", "/?q=<script>", "/?id=1%20UNION%20SELECT%201",
		"/?id=1+union+all+select",
		"/?id=1;exec%20XP_cmdshell",
		"/cgi/%2e%2e/x", "/x%00.jpg", "/?x=${jndi:ldap://x}", "/?id=1;waitfor%20delay", "/?id=sleep(5)", "/c:/WIN.INI",
	} {
		if !isAttack(target) {
			t.Errorf("%q is not an attack", target)
		}
	}
	for _, target := range []string{
		"", "/", "/article/union-select-committee", "/?q=trade+union+congress", "/docs/.environment", "/file.env",
		"/a.git/info/refs",
		"/style.css?v=1.2", "/wp-login.php", "/index.php?option=com_search&q=O%27Brien",
		"/.well-known/acme-challenge/x",
		"/a/...b",
		"/how-to-sleep", "/win.html", "/etc/", "/x?a=%20b", "/jndi",
	} {
		if isAttack(target) {
			t.Errorf("%q is an attack", target)
		}
	}
}

// FuzzIsAttack compares with a search of the lower-case text.
func FuzzIsAttack(f *testing.F) {
	for _, target := range []string{"/a/../b", "/?x=UNION+SELECT", "/.ENV", "/%2E%2e", "/?a=SLEEP(9)"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		folded := []byte(target)
		for i, c := range folded {
			if c >= 'A' && c <= 'Z' {
				folded[i] = c | 0x20
			}
		}
		var may, must bool
		for _, a := range attackTexts {
			if strings.Contains(string(folded), a.before+a.after) {
				may = true
				must = must || !a.name && a.also == ""
			}
		}
		if got := isAttack(target); got && !may || !got && must {
			t.Errorf("isAttack(%q) is %v; it may be: %v, must be: %v", target, got, may, must)
		}
	})
}

func BenchmarkIsAttack(b *testing.B) {
	for b.Loop() {
		if isAttack("/wp-content/themes/twentyfifteen/genericons/genericons.css?ver=3.2") {
			b.Fatal("an attack")
		}
	}
}
