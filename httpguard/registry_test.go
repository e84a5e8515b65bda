package httpguard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// A client that an operator has banned gets the exact Retry-After, or 403 if the ban has no end.
// An allowed client is never refused.
func TestOverrideComesBeforeTheRules(t *testing.T) {
	words := map[string]fairshare.Override{
		"192.0.2.1": {Action: fairshare.Refuse, Wait: 90*time.Minute + 1},
		"192.0.2.2": {Action: fairshare.Block},
		"192.0.2.3": {Action: fairshare.Allow},
		"192.0.2.4": {Labels: []string{"partner"}},
	}
	var reports []httpguard.Report
	opts := atNoon(&reports)
	opts.Bot = func(netip.Addr, string) fairshare.Bot { return fairshare.Bot{Name: "curl", State: fairshare.Claimed} }
	opts.Override = func(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
		if bot.Name != "curl" || !now.Equal(noon) {
			t.Errorf("asked for bot %q at %v", bot.Name, now)
		}
		return words[addr.String()]
	}
	partners := fairshare.Rule{Name: "partners", Match: fairshare.Match{Label: []string{"partner"}},
		Action: fairshare.Allow}
	h := httpguard.Middleware(newGuard(t, partners, limit("one", requests(1, time.Hour))), opts)(welcome)
	for _, c := range []struct {
		addr       string
		want       int
		retryAfter string
	}{
		{"192.0.2.1:1", 429, "5401"},
		{"192.0.2.2:1", 403, ""},
		{"192.0.2.3:1", 200, ""},
		{"192.0.2.3:1", 200, ""},
		{"192.0.2.4:1", 200, ""},
		{"192.0.2.4:1", 200, ""},
		{"192.0.2.5:1", 200, ""},
		{"192.0.2.5:1", 429, "7200"},
		{"@", 200, ""}, // no address, no word
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.addr
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Retry-After"); w.Code != c.want || got != c.retryAfter {
			t.Errorf("%s: %d, Retry-After %q; want %d, %q", c.addr, w.Code, got, c.want, c.retryAfter)
		}
		if c.want == 200 || c.retryAfter == "3600" || c.retryAfter == "7200" {
			continue
		}
		for accept, name := range map[string]string{"text/plain": "Rule: ban by an operator.",
			"text/html": "<dd>ban by an operator</dd>", "application/json": `["ban by an operator"]`} {
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if body := w.Body.String(); !strings.Contains(body, name) ||
				!strings.Contains(body, "The operators of this site have blocked your access") ||
				strings.Contains(body, "oo many requests") {
				t.Errorf("%s, %s:\n%s", c.addr, accept, body)
			}
			reports = reports[:len(reports)-1]
		}
	}
	if len(reports) != 3 || reports[0].Finding.Rule != fairshare.OperatorBan ||
		reports[0].Finding.Ban != fairshare.BanInForce {
		t.Errorf("reports: %+v", reports)
	}
}

func TestPassed(t *testing.T) {
	now := noon
	var got []string
	opts := httpguard.Options{
		Now: func() time.Time { return now },
		Bot: func(netip.Addr, string) fairshare.Bot { return fairshare.Bot{Name: "curl", State: fairshare.Claimed} },
		Passed: func(p *httpguard.Completion) {
			got = append(got, fmt.Sprintf("%s %s %q at %d took %v: %d, %d bytes", p.Addr, p.Bot.Name, p.UserAgent,
				p.Time.Sub(noon), p.Took, p.Status, p.Bytes))
		},
	}
	h := httpguard.Middleware(newGuard(t, limit("four", requests(4, time.Hour))),
		opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now = now.Add(time.Second)
		switch r.URL.Path {
		case "/slow":
			httpguard.UpstreamDone(w)
			now = now.Add(time.Minute) // the client is slow, not the upstream
		case "/bad":
			httpguard.NoUpstreamAnswer(w)
			w.WriteHeader(502)
		case "/panic":
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "welcome")
	}))
	for _, path := range []string{"/", "/slow", "/bad", "/panic", "/refused"} {
		now = noon
		func() {
			defer func() { recover() }()
			request(h, "GET", path, "User-Agent", "curl/8")
		}()
	}
	want := []string{
		`192.0.2.1 curl "curl/8" at 0 took 1s: 200, 7 bytes`,
		`192.0.2.1 curl "curl/8" at 0 took 1s: 200, 7 bytes`,
		`192.0.2.1 curl "curl/8" at 0 took 1s: 0, 7 bytes`,
		`192.0.2.1 curl "curl/8" at 0 took 1s: 0, 0 bytes`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("passed:\n%q\nwant\n%q", got, want)
	}
}

// With the same key, references are the same after a restart.
func TestReferencesSurviveARestart(t *testing.T) {
	bot := fairshare.Bot{}
	reference := func(key []byte) string {
		var reports []httpguard.Report
		opts := atNoon(&reports)
		opts.ReferenceKey = key
		opts.Bot = func(netip.Addr, string) fairshare.Bot { return bot }
		request(httpguard.Middleware(newGuard(t, block("no", "/no")), opts)(welcome), "GET", "/no")
		if len(reports) != 1 || len(reports[0].ID) != 10 {
			t.Fatalf("reports: %+v", reports)
		}
		return reports[0].ID
	}
	if a, b := reference([]byte("secret")), reference([]byte("secret")); a != b {
		t.Errorf("with one key %s, then %s", a, b)
	}
	if a, b := reference([]byte("secret")), reference([]byte("Secret")); a == b {
		t.Errorf("with two keys both times %s", a)
	}
	nobody := reference([]byte("secret"))
	bot = fairshare.Bot{Name: "googlebot", State: fairshare.Verified}
	if a := reference([]byte("secret")); a == nobody {
		t.Errorf("a verified bot has the reference %s of its address", a)
	}
	bot.State = fairshare.Forged
	if a := reference([]byte("secret")); a != nobody {
		t.Errorf("a forger has the reference %s, and its address %s", a, nobody)
	}
	if a, b := reference(nil), reference(nil); a == b {
		t.Errorf("with random keys both times %s", a)
	}
}
