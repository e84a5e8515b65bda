package census

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairshare"
)

// logins records POST requests of a range of clients, n for each.
func (t *traffic) logins(from, to, times int, path string, status int) {
	for n := from; n < to; n++ {
		for range times {
			t.Passed(&PassedRequest{Client: sender(n), Method: "POST", Path: path, Took: time.Millisecond,
				Status: status},
				netip.PrefixFrom(addr(n), 32), t.now)
		}
	}
}

func TestPasswordsGuessedFromManyAddresses(t *testing.T) {
	const help = ". What helps: limits on logins by addr and by network with newcomers, as in the built-in policy (fairshare policy prints it);" +
		" a second factor; fairshare ban NETWORK for networks that take part, see fairshare clients --sort refused"
	for _, c := range []struct {
		name string
		do   func(*traffic)
		want string // a part of the line; "": no line
	}{
		{"200 addresses", func(tr *traffic) { tr.logins(0, 200, 5, "/wp-login.php", 200) },
			`5s WARNING: PASSWORDS ARE BEING GUESSED FROM MANY ADDRESSES: 1,000 failed or refused attempts of about 200 addresses at "/wp-login.php" in the last 5 seconds` + help},
		{"one attempt each, in ten minutes", func(tr *traffic) {
			for n := range 25 {
				tr.logins(n, n+1, 1, "/shop/api/token", 401)
				tr.wait(20 * time.Second)
			}
		}, `20 failed or refused attempts of about 20 addresses at "/shop/api/token" in the last`},
		{"403", func(tr *traffic) { tr.logins(0, 40, 1, "/x", 403) },
			`40 failed or refused attempts of about 40 addresses at "/x"`},
		{"another spelling", func(tr *traffic) { tr.logins(0, 40, 1, "/WP-LOGIN.php", 200) }, `"/WP-LOGIN.php"`},
		{"some get in", func(tr *traffic) {
			tr.logins(0, 100, 1, "/blog/wp-login.php", 302)
			tr.logins(100, 300, 1, "/blog/wp-login.php", 200)
		}, `200 failed or refused attempts of about 200 addresses at "/blog/wp-login.php" (100 did not fail)`},
		{"a rule refuses them", func(tr *traffic) {
			for n := range 50 {
				req := request(n, false)
				req.Method, req.Path = "POST", "/wp-login.php"
				tr.Refused(req, finding(tr.policy, pages), false)
			}
		}, `50 failed or refused attempts of about 50 addresses at "/wp-login.php"`},
		{"a path that steers terminals", func(tr *traffic) { tr.logins(0, 40, 1, "/\x1b[2J\u202e\n", 403) },
			`"/\x1b[2J\u202e\n"`},
		{"a long path", func(tr *traffic) { tr.logins(0, 40, 1, "/"+strings.Repeat("a", 5000), 403) },
			`"/` + strings.Repeat("a", guessPathSize-1) + `…"`},
		{"among many other paths", func(tr *traffic) {
			for n := range 400 {
				tr.logins(n, n+1, 2, "/wp-login.php", 200)
				tr.logins(9999, 10000, 1, fmt.Sprintf("/%d", n), 403)
			}
		}, `"/wp-login.php"`},

		{"a busy site", func(tr *traffic) {
			tr.logins(0, 900, 1, "/wp-login.php", 302)
			tr.logins(0, 120, 2, "/wp-login.php", 200) // typing errors
		}, ""},
		{"an API with tokens in its answers", func(tr *traffic) {
			tr.logins(0, 500, 3, "/api/session", 200)
			tr.logins(0, 60, 1, "/api/session", 401)
		}, ""},
		{"sessions that have ended", func(tr *traffic) {
			tr.logins(0, 300, 10, "/api/orders", 200)
			tr.logins(0, 300, 1, "/api/orders", 401)
		}, ""},
		{"an office", func(tr *traffic) { tr.logins(0, 1, 400, "/wp-login.php", 200) }, ""},
		{"19 addresses", func(tr *traffic) { tr.logins(0, 19, 50, "/wp-login.php", 200) }, ""},
		{"a flash crowd", func(tr *traffic) {
			for n := range 3000 {
				tr.Passed(&PassedRequest{Client: sender(n), Method: "GET", Path: "/login", Took: time.Second,
					Status: 403},
					netip.PrefixFrom(addr(n), 32), tr.now)
			}
		}, ""},
		{"comments", func(tr *traffic) { tr.logins(0, 300, 1, "/comments", 200) }, ""},
		{"a broken site", func(tr *traffic) { tr.logins(0, 300, 1, "/wp-login.php", 502) }, ""},
		{"other requests are refused", func(tr *traffic) { tr.refused(0, 300, pages, 1, false) }, ""},
		{"a busy upstream", func(tr *traffic) {
			for n := range 50 {
				req := request(n, false)
				req.Method, req.Path = "POST", "/wp-login.php"
				tr.Refused(req, &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream}, false)
			}
		}, ""},
		{"20 addresses in an hour", func(tr *traffic) {
			for n := range 25 {
				tr.logins(n, n+1, 1, "/wp-login.php", 200)
				tr.wait(150 * time.Second)
			}
		}, ""},
	} {
		tr := newTraffic(policyOf(false))
		tr.saw(0, 10_000)
		c.do(tr)
		tr.wait(5 * time.Second)
		lines := ""
		for _, line := range tr.lines {
			if strings.Contains(line, "GUESSED") {
				lines += line + "\n"
			}
		}
		rounded := estimates.ReplaceAllStringFunc(lines, roughly)
		if (lines == "") != (c.want == "") || !strings.Contains(rounded, c.want) {
			t.Errorf("%s: %q, want %q", c.name, lines, c.want)
		}
	}
}

var estimates = regexp.MustCompile(`about \d+ `)

// roughly rounds an estimate to tens.
func roughly(text string) string {
	var n int
	fmt.Sscanf(text, "about %d", &n)
	return fmt.Sprintf("about %d ", (n+5)/10*10)
}

// Guessing is reported every ten minutes while it lasts, and not after its end.
func TestGuessingIsReportedWhileItLasts(t *testing.T) {
	tr := newTraffic(policyOf(false))
	for n := range 60 {
		if n < 30 {
			tr.logins(n*10, n*10+10, 1, "/wp-login.php", 200)
		}
		tr.wait(time.Minute)
	}
	if n := len(tr.lines); n < 3 || n > 5 {
		t.Errorf("half an hour of guessing is reported %d times: %q", n, tr.lines)
	}
	if last := tr.lines[len(tr.lines)-1]; !strings.HasPrefix(last, "2") && !strings.HasPrefix(last, "3") &&
		!strings.HasPrefix(last, "4") {
		t.Errorf("it is reported after its end: %s", last)
	}
}

// Attempts that are noted together have the same effect as one after the other.
func TestAttemptsAreNotedTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	together := guesses{present: new(guessTable)}
	single := guesses{present: new(guessTable)}
	for range 20_000 {
		path, n, hash, failed := fmt.Sprint("/", r.IntN(guessPaths*2)), 1+r.Int64N(9), r.Uint64(), r.IntN(2) == 0
		together.note(path, hash, failed, n)
		for range n {
			single.note(path, hash, failed, 1)
		}
		if *together.present != *single.present {
			t.Fatal("the tables differ")
		}
	}
}
