package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// Behind a real nginx that no policy names, a limit counts each client from its
// first request on, whatever headers it sends.
func TestLimitsCountEachClientOfAnUnnamedNginx(t *testing.T) {
	t.Parallel()
	s := startServe(t, `
rules:
  - name: office
    match: {addr: 127.0.0.1}
    allow: true
  - name: five
    limit: {requests: 5, per: 1h, by: addr}
`, "--upstream", echoSite(t).URL)
	front := freeAddr(t)
	startNginx(t, front, "location / {\nproxy_pass http://"+s.addr+
		";\nproxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}")
	const clients = 60
	for i := range clients {
		c := clientAt(t, fmt.Sprintf("127.0.0.%d", i+2))
		for j := range 5 {
			if got := statusFrom(t, c, "http://"+front+"/", fmt.Sprintf("203.0.113.%d", j)); got != 200 {
				t.Fatalf("client %d, request %d: %d", i, j, got)
			}
		}
	}
	heavy := clientAt(t, "127.0.0.2")
	for i := range 20 {
		if got := statusFrom(t, heavy, "http://"+front+"/", fmt.Sprintf("198.51.100.%d", i)); got != 429 {
			t.Errorf("request %d of the heavy one: %d", i+5, got)
		}
	}
	// The peer is allowed, but not the clients that it names.
	if got := statusFrom(t, clientAt(t, "127.0.0.1"), "http://"+s.addr+"/", ""); got != 200 {
		t.Errorf("the peer itself: %d", got)
	}
	s.stderr.wait(`"client":"127.0.0.2","through":"127.0.0.1"[^\n]*"rule":"five"[^\n]*"used":5,"allowed":5`)
	s.stderr.wait(
		`(?s)error: 127\.0\.0\.1 is not a trusted proxy but names clients.*trusted_proxies: \[127\.0\.0\.1\]\n +header: X-Forwarded-For\n.*trusted_proxies: \[\]`)
}

// With address translation all clients have the gateway's address. A client
// that forges forwarded addresses gets no more than the ceiling. Clients that
// send none are never refused for it.
func TestForgedAddressesAreBoundedByTheCeiling(t *testing.T) {
	t.Parallel()
	s := startServe(t, `
rules:
  - name: three
    limit: {requests: 3, per: 1h, by: addr}
    ban: {after: 1, for: 1h}
`, "--upstream", echoSite(t).URL)
	person, forger := clientAt(t, "127.0.0.1"), clientAt(t, "127.0.0.1")
	if got := statusFrom(t, person, "http://"+s.addr+"/", ""); got != 200 {
		t.Errorf("before: %d", got)
	}
	const most = 3 * 256 // limits of provisional clients together are 256 times as high
	passed := 0
	for i := range most + 200 {
		if statusFrom(t, forger, "http://"+s.addr+"/", fmt.Sprintf("203.0.%d.%d", i>>8, i&255)) == 200 {
			passed++
		}
	}
	if passed != most {
		t.Errorf("%d forged requests passed, want %d", passed, most)
	}
	for range 2 {
		if got := statusFrom(t, person, "http://"+s.addr+"/", ""); got != 200 {
			t.Errorf("after: %d", got)
		}
	}
	if got := statusFrom(t, clientAt(t, "127.0.0.5"), "http://"+s.addr+"/", "203.0.0.1"); got != 200 {
		t.Errorf("through another peer: %d", got)
	}
	s.stderr.wait(
		fmt.Sprintf(`"through":"127.0.0.1"[^\n]*"rule":"three"[^\n]*"used":%d,"allowed":%[1]d,"ceiling":true`, most))
	if strings.Contains(s.stderr.String(), `"ban":"started"`) {
		t.Error("the ceiling has banned somebody")
	}
}

// A ban of a provisional client survives a restart, for the pair of its address
// and the peer. The address itself is not banned, also after a reload that
// names the peer. A reload with trusted_proxies: [] makes the peer one client.
func TestBanOfAProvisionalClientOverRestartAndReload(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t).URL
	const rules = `
rules:
  - name: two
    limit: {requests: 2, per: 1h, by: addr}
    ban: {after: 1, for: 1h}
`
	p, _ := serveFile(t, rules, "--upstream", site, "--state", state)
	ask := func(peer, forwarded string, want int) {
		t.Helper()
		if got := statusFrom(t, clientAt(t, peer), "http://"+p.addr+"/", forwarded); got != want {
			t.Errorf("%s for %q: %d, want %d", peer, forwarded, got, want)
		}
	}
	for _, want := range []int{200, 200, 429, 429} {
		ask("127.0.0.1", "203.0.113.9", want)
	}
	p.terminate(t)
	p, path := serveFile(t, rules, "--upstream", site, "--state", state)
	ask("127.0.0.1", "203.0.113.9", 429)
	ask("127.0.0.2", "203.0.113.9", 200) // the victim through another peer
	ask("127.0.0.1", "203.0.113.8", 200) // another client of the peer
	ask("127.0.0.1", "", 200)            // the peer itself
	const client = "203.0.113.9 (provisional, through 127.0.0.1)"
	for _, command := range [][]string{{"bans"}, {"clients"}, {"why", "203.0.113.9"}} {
		if got := runOperator(t, state, command...); !strings.Contains(got, client) {
			t.Errorf("%q: %s", command, got)
		}
	}
	if got := runOperator(t, state, "bans", "--json"); !strings.Contains(strings.ReplaceAll(got, `": "`, `":"`),
		`"client":"203.0.113.9","through":"127.0.0.1"`) {
		t.Errorf("bans: %s", got)
	}
	if got := runOperator(t, state, "why", "203.0.113.9"); !strings.Contains(got,
		"name it under clients: trusted_proxies") || strings.Contains(got, "to let it in") {
		t.Errorf("why: %s", got)
	}
	writeOver(t, path, "clients: {trusted_proxies: 127.0.0.1}\n"+rules)
	p.reload(t, `SIGHUP: (\S+) was loaded again`)
	ask("127.0.0.1", "203.0.113.9", 200) // it is known now, and was not banned
	writeOver(t, path, "clients: {trusted_proxies: []}\n"+rules)
	p.reload(t, `SIGHUP: (\S+) was loaded again`)
	ask("127.0.0.1", "203.0.113.7", 200) // the second of 127.0.0.1
	ask("127.0.0.1", "203.0.113.6", 429)
	writeOver(t, path, rules)
	p.reload(t, `SIGHUP: (\S+) was loaded again`)
	ask("127.0.0.1", "203.0.113.9", 429) // its ban is in force still
	if got := runOperator(t, state, "unban", "203.0.113.9"); !strings.Contains(got, client) {
		t.Errorf("unban: %s", got)
	}
}

// The site gets only the peer's address of a provisional client.
func TestSiteGetsOnlyThePeerOfAProvisionalClient(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprint(r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"], r.Header["Forwarded"],
			r.Header["Fairshare-Client"])
	}))
	defer site.Close()
	s := startServe(t, "rules: []", "--upstream", site.URL)
	req, err := http.NewRequest("GET", "http://"+s.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Real-IP"} {
		req.Header.Set(name, "203.0.113.9")
	}
	req.Header.Set("Forwarded", "for=203.0.113.9")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := <-seen; strings.Contains(got, "203.0.113.9") || strings.Count(got, "127.0.0.1") < 2 {
		t.Errorf("the site got %s", got)
	}
}
