//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare/bench/internal/stand"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	o, err := flags([]string{"-quick", "-policy", "x.yaml"})
	if err != nil || o.length != 15*time.Second || !filepath.IsAbs(o.policy) {
		t.Errorf("flags(-quick) = %+v, %v", o, err)
	}
	if o, err := flags(nil); err != nil || o.length != time.Minute || o.seed != 1 {
		t.Errorf("flags() = %+v, %v", o, err)
	}
	if o, err := flags([]string{"-short"}); err != nil || o.length != 12*time.Second || o.limits() == "" {
		t.Errorf("flags(-short) = %+v, %v", o, err)
	}
	for _, args := range [][]string{{"extra"}, {"-length", "-1s"}, {"-short", "-quick"}, {"-short", "-only", "flood"}} {
		if _, err := flags(args); err == nil {
			t.Errorf("flags(%q): no error", args)
		}
	}
}

func TestOnlySelectsAttacksAndPeers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		o       options
		attacks []string // the first ones
		peers   []string
	}{
		{options{only: "hydra,fairshare"}, []string{"hydra-1", "hydra-50"}, []string{"fairshare"}},
		{options{only: "swarm", quick: true}, []string{"swarm-500"}, []string{"fairshare"}},
		{options{only: "basic-1,crowdsec"}, []string{"basic-1"}, []string{"crowdsec"}},
		{options{only: "modsec"}, []string{"guess-1", "guess-50"}, []string{"modsecurity"}},
		{options{only: "crawler, fail2ban", before: "x"}, []string{"crawler"}, []string{"fail2ban"}},
		{options{quick: true, before: "x"}, []string{"guess-1", "guess-200"}, []string{"fairshare", "before"}},
	} {
		attacks, peers, err := choose(test.o)
		if err != nil {
			t.Fatalf("%+v: %v", test.o, err)
		}
		for i, want := range test.attacks {
			if i >= len(attacks) || attacks[i].name != want {
				t.Errorf("%+v: attack %d is not %s", test.o, i, want)
			}
		}
		if strings.HasPrefix(test.o.only, "basic-1") && len(attacks) != 1 {
			t.Errorf("%+v: %d attacks", test.o, len(attacks))
		}
		var names []string
		for _, p := range peers {
			names = append(names, p.name)
		}
		if !slices.Equal(names, test.peers) {
			t.Errorf("%+v: peers %q, want %q", test.o, names, test.peers)
		}
	}
	if _, _, err := choose(options{only: "nothing"}); err == nil {
		t.Error("-only nothing: no error")
	}
}

// A short run plays each attack and each peer, in some 20 minutes.
func TestShortRunPlaysEverything(t *testing.T) {
	t.Parallel()
	o, err := flags([]string{"-short"})
	if err != nil {
		t.Fatal(err)
	}
	attacks, peers, err := choose(o)
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, a := range attacks {
		n := 0
		for _, p := range peers {
			if o.plays(a, p) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("%s is not played", a.name)
		}
		runs += n
	}
	for _, p := range peers {
		if !slices.ContainsFunc(attacks, func(a attack) bool { return o.plays(a, p) }) {
			t.Errorf("%s is not played", p.name)
		}
	}
	if took := estimate(o, runs); took > 22*time.Minute {
		t.Errorf("%d runs take %v", runs, took)
	}
}

// Only folders of processes that have ended are removed.
func TestLeftoversAreRemoved(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{
		fmt.Sprintf("range-%d-123", ended.Process.Pid): false, fmt.Sprintf("range-%d-123", os.Getpid()): true,
		"range-x-123": true, "range-0-1": true, "other-1-2": true,
	} {
		if err := os.MkdirAll(filepath.Join(temp, name, "work"), 0o755); err != nil {
			t.Fatal(err)
		}
		removeLeftovers(temp)
		if _, err := os.Stat(filepath.Join(temp, name)); (err == nil) != stays {
			t.Errorf("%s: %v, stays %v", name, err, stays)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, a := range allAttacks() {
		if seen[a.name] || a.about == "" || a.addrs < 1 || a.run == nil {
			t.Errorf("attack %+v", a)
		}
		seen[a.name] = true
	}
	for _, p := range allPeers(options{before: "x"}) {
		if seen[p.name] || p.about == "" || p.start == nil {
			t.Errorf("peer %+v", p)
		}
		seen[p.name] = true
	}
}

func TestAddressesArePublicAndRepeatable(t *testing.T) {
	t.Parallel()
	all := newAddresses(7).take(2000)
	if !slices.Equal(all, newAddresses(7).take(2000)) {
		t.Error("the same seed gives other addresses")
	}
	if slices.Equal(all, newAddresses(8).take(2000)) {
		t.Error("another seed gives the same addresses")
	}
	networks := make(map[netip.Prefix]bool)
	for _, a := range all {
		network, _ := a.Prefix(24)
		if networks[network] || !public(a) || a.IsPrivate() || a.IsLoopback() || a.IsMulticast() {
			t.Errorf("address %v", a)
		}
		networks[network] = true
	}
}

func TestParseHit(t *testing.T) {
	t.Parallel()
	h, err := parseHit("198.51.100.7 302 250000 40.00 POST /wp-login.php?a=b c")
	want := hit{from: netip.MustParseAddr("198.51.100.7"), status: 302, took: 250 * time.Millisecond,
		cpu: 100 * time.Millisecond, method: "POST", target: "/wp-login.php?a=b c"}
	if err != nil || h != want {
		t.Errorf("parseHit = %+v, %v", h, err)
	}
	for _, line := range []string{
		"", "- 200 1 1 GET /", "198.51.100.7 x 1 1 GET /", "198.51.100.7 200 x 1 GET /", "198.51.100.7 200 1 x GET /",
		"198.51.100.7 200 1 1",
	} {
		if h, err := parseHit(line); err == nil {
			t.Errorf("parseHit(%q) = %+v", line, h)
		}
	}
}

func FuzzParseHit(f *testing.F) {
	f.Add("198.51.100.7 302 250000 40.00 POST /wp-login.php")
	f.Add("2001:db8::1 200 1 NaN GET /")
	f.Fuzz(func(t *testing.T, line string) {
		if h, err := parseHit(line); err == nil && !h.from.IsValid() {
			t.Errorf("%q has no address", line)
		}
	})
}

func TestHitsContinueAtAPosition(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	first, second := "198.51.100.7 200 1000 0.00 GET /\n", "198.51.100.8 200 2000 0.00 GET /a\n"
	if err := os.WriteFile(s.reached(), []byte(first+second+"198.51.100.9 200 30"), 0o644); err != nil {
		t.Fatal(err)
	}
	hits, next, err := s.hits(int64(len(first)))
	if err != nil || len(hits) != 1 || hits[0].target != "/a" || next != int64(len(first+second)) {
		t.Errorf("hits = %+v, %d, %v", hits, next, err)
	}
}

func TestHarm(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		wait   time.Duration
		harmed bool
	}{
		{200, time.Second, false}, {200, 6 * time.Second, true}, {302, 0, false}, {304, 0, false}, {404, 0, false},
		{409, 0, false}, {0, 20 * time.Second, true}, {401, 0, true}, {403, 0, true}, {421, 0, true}, {429, 0, true},
		{500, 0, true}, {503, 0, true}, {504, 0, true},
	} {
		if got := harmOf(test.status, test.wait); (got != "") != test.harmed {
			t.Errorf("harmOf(%d, %v) = %q", test.status, test.wait, got)
		}
	}
}

func TestRequestBelongsToThePhaseInWhichItWasSent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := &crowd{began: [3]time.Time{{}, now.Add(-20 * time.Second), now.Add(-5 * time.Second)}}
	for _, wait := range []time.Duration{0, 10 * time.Second, time.Minute} {
		c.add(record{wait: wait})
	}
	if c.records[0].phase != after || c.records[1].phase != during || c.records[2].phase != before {
		t.Errorf("records %+v", c.records)
	}
	c = &crowd{began: [3]time.Time{{}, now.Add(-time.Second)}}
	if c.add(record{}); c.records[0].phase != during {
		t.Errorf("records %+v", c.records)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i)*time.Millisecond)
	}
	if p50, p99 := percentile(times, 50), percentile(times, 99); p50 != 100 || p99 != 198 {
		t.Errorf("p50 %d, p99 %d", p50, p99)
	}
	if got := percentile(nil, 50) + percentile(times[:1], 50); got != 200 {
		t.Errorf("percentiles of nothing and of one: %d", got)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	attacker, stranger := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8")
	r := result{Attack: "guess-1", Peer: "none", Sent: 5}
	r.measureAttack(attack{counts: posts("/wp-login.php")}, []netip.Addr{attacker}, []hit{
		{from: attacker, method: "GET", target: "/wp-login.php", took: time.Second},
		{from: attacker, method: "POST", target: "/wp-login.php?x=1", took: 4 * time.Second, cpu: time.Second},
		{from: stranger, method: "POST", target: "/wp-login.php", took: time.Minute},
	}, 10*time.Second)
	if r.Reached != 1 || r.Other != 1 || r.Capacity != 5.0/(workers*10) || r.CPU != 1 {
		t.Errorf("%+v", r)
	}
	c := &crowd{names: []string{"reader 1", "office 1", "office 2"}, records: []record{
		{person: "reader 1", page: true, wait: 10 * time.Millisecond, phase: before},
		{person: "reader 1", page: true, wait: 30 * time.Millisecond, phase: during},
		{person: "reader 1", wait: 9 * time.Millisecond, phase: during}, // a part
		{person: "office 2", page: true, wait: time.Millisecond, phase: during, target: "/a", harm: harmOf(429, 0)},
		{person: "office 1", page: true, wait: 7 * time.Second, phase: after, target: "/b",
			harm: harmOf(200, 7*time.Second)},
	}}
	r.measurePeople(c)
	second := harm{"office 2", [3]int{0, 1, 0}, "/a: refused with 429"}
	if r.People != 3 || len(r.Harmed) != 2 || r.Harmed[1] != second {
		t.Errorf("harmed %+v", r.Harmed)
	}
	if r.P50 != [3]int{10, 30, 7000} || r.Pages != [3]int{1, 1, 1} {
		t.Errorf("p50 %v of %v pages", r.P50, r.Pages)
	}
	got := table([]result{r, {Attack: "flood", Peer: "crowdsec", Error: "x"}})
	for _, want := range []string{
		"| people harmed, of 3 | none | crowdsec |\n|---|---|---|\n| guess-1 | 2 (office) | |\n",
		"| guess-1 | 1 of 5 |", "| guess-1 | 5.0 % |", "| guess-1 | 30, 30 |", "| flood | | failed |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

func TestPartsOfAPage(t *testing.T) {
	t.Parallel()
	page := []byte(`<link rel='stylesheet' id='a' href='http://site.example/a.css?ver=1&#038;x=2' media='all' />
		<link rel="canonical" href="http://site.example/b/" /><script src='/c.js'></script>
		<img class="x" src="http://other.example/d.png"><img src="//cdn.example/e.png"><img src="/f.png?a=1&amp;b=2">`)
	want := []string{"/a.css?ver=1&x=2", "/c.js", "/f.png?a=1&b=2"}
	if got := partsOf(page); !slices.Equal(got, want) {
		t.Errorf("partsOf = %q, want %q", got, want)
	}
	form := []byte(`<input type='hidden' name='comment_parent' value='0' /><input type="hidden" value="42&amp;" name="comment_post_ID">`)
	if got := hidden(form, "comment_post_ID"); got != "42&" {
		t.Errorf("hidden = %q", got)
	}
	if got := hidden(form, "none"); got != "" {
		t.Errorf("hidden = %q", got)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"5": 5 * time.Second, "3; url=/": 3 * time.Second} {
		if got, ok := refreshOf(http.Header{"Refresh": {value}}); !ok || got != want {
			t.Errorf("refreshOf(%q) = %v, %v", value, got, ok)
		}
	}
	for _, value := range []string{"", "x", "-1"} {
		if got, ok := refreshOf(http.Header{"Refresh": {value}}); ok {
			t.Errorf("refreshOf(%q) = %v", value, got)
		}
	}
}

func TestReadLinks(t *testing.T) {
	t.Parallel()
	got, err := readLinks(strings.NewReader("# created by LinkChecker\nurlname;parentname;baseref;result;warningstring;infostring;valid;url\n" +
		"/a;;;200 OK;;;True;http://site.example/a\n/b;;;429 Too Many Requests;;;False;http://site.example/b\n" +
		"/c;;;404 Not Found;;;False;http://site.example/c\n/d;;;ConnectTimeout: x;;;False;http://site.example/d\n"))
	if err != nil || got != (links{Checked: 4, Refused: 2}) {
		t.Errorf("readLinks = %+v, %v", got, err)
	}
}

// The forwarder passes requests of kept connections on unchanged, from its addresses in turn, and counts
// each of them.
func TestForwarderCountsRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		mu.Lock()
		from[ip]++
		mu.Unlock()
		fmt.Fprint(w, r.Method, r.ContentLength)
	}))
	defer server.Close()
	counted := make(chan string, 10)
	f, err := forward("127.0.0.1:0", server.Listener.Addr().String(),
		[]netip.Addr{netip.MustParseAddr("127.3.0.1"), netip.MustParseAddr("127.3.0.2")},
		func(r *http.Request) { counted <- r.Method + " " + r.URL.Path })
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for range 2 {
		conn, err := net.Dial("tcp", f.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for range 2 {
			fmt.Fprint(conn, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, 5)
			if _, err := resp.Body.Read(body); resp.StatusCode != 200 || string(body) != "POST5" {
				t.Errorf("%s %q %v", resp.Status, body, err)
			}
		}
	}
	for range 4 {
		if got := <-counted; got != "POST /a" {
			t.Errorf("counted %q", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if from["127.3.0.1"] != 2 || from["127.3.0.2"] != 2 || f.connections() != 2 {
		t.Errorf("addresses %v", from)
	}
}

// Attacks are paced evenly, and stop with their context.
func TestPaced(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	seen := make(map[int]bool)
	paced(ctx, 1000, func(i int) {
		mu.Lock()
		defer mu.Unlock()
		seen[i] = true
		if len(seen) == 20 {
			cancel()
		}
	})
	for i := range 20 {
		if !seen[i] {
			t.Errorf("call %d is missing", i)
		}
	}
}

// Every configuration of nginx is one that nginx accepts.
func TestNginxConfigurations(t *testing.T) {
	t.Parallel()
	nginx, err := stand.Find("nginx")
	if err != nil {
		if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") != "" {
			t.Fatal(err)
		}
		t.Skip("nginx is not installed: apt-get install nginx")
	}
	for name, s := range map[string]server{"none": {addr: "127.0.0.1:8081"}, "limit_req": limitReq} {
		dir := t.TempDir()
		s.addr = "127.0.0.1:8081"
		config, err := stand.Write(dir, "nginx.conf", s.config(dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(nginx, "-t", "-c", config, "-p", dir, "-e", "stderr").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
