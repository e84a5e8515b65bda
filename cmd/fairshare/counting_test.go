//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare/redislimit/redistest"
)

const groupPolicy = `
store: {url: %q, name: shop}
clients: {trusted_proxies: loopback}
share: none
rules:
  - {name: thirty, limit: {requests: 30, per: 1h}}
`

// A group is several processes of serve that count together, before one site.
type group struct {
	t       *testing.T
	store   *redistest.Server
	members []*serving
	admins  []string
	reached atomic.Int64 // requests at the site
}

func startGroup(t *testing.T, members int) *group {
	t.Helper()
	g := &group{t: t, store: redistest.Start(t)}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.reached.Add(1)
		fmt.Fprint(w, "a page")
	}))
	t.Cleanup(site.Close)
	for i := range members {
		admin := fmt.Sprintf("unix:%s/admin%d", t.TempDir(), i)
		g.members = append(g.members, startServing(t, "-c", writeFile(t, "site.yaml", fmt.Sprintf(groupPolicy,
			g.store.URL())), "--upstream", site.URL, "--admin", admin))
		g.admins = append(g.admins, admin)
	}
	g.awaitMembers(0, members)
	return g
}

// request sends requests of a client to a member, and returns how many passed. Every other answer must be 429.
func (g *group) request(member int, client string, requests int) (passed int) {
	g.t.Helper()
	for range requests {
		req, err := http.NewRequest("GET", "http://"+g.members[member].addr+"/", nil)
		if err != nil {
			g.t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", client)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			g.t.Error(err)
			return passed
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		switch resp.StatusCode {
		case 200:
			passed++
		case 429:
		default:
			g.t.Errorf("member %d: %s", member, resp.Status)
		}
	}
	return passed
}

// awaitMembers waits until a member knows as many members.
func (g *group) awaitMembers(member, count int) {
	g.t.Helper()
	want := fmt.Sprintf("group     shop, %d member", count)
	g.await(member, func(text string) bool { return strings.Contains(text, want) }, want)
}

// await waits until the command members prints what is expected of a member.
func (g *group) await(member int, right func(text string) bool, want string) {
	g.t.Helper()
	var text string
	for range 300 {
		text = g.show(member)
		if right(text) {
			return
		}
		time.Sleep(100 * time.Millisecond) // real processes
	}
	g.t.Fatalf("member %d prints %q, want %q", member, text, want)
}

func (g *group) show(member int) string {
	g.t.Helper()
	_, stdout, stderr := runCommand(g.t, "members", "--admin", g.admins[member])
	return stdout + stderr
}

// decidedAway returns how many decisions members have made without the store. Each may pass one request more.
func (g *group) decidedAway() (decisions int64) {
	g.t.Helper()
	for _, admin := range g.admins {
		resp, err := overSocket(g.t, strings.TrimPrefix(admin, "unix:")).Get("http://localhost/api/v1/members")
		if err != nil {
			g.t.Fatal(err)
		}
		var status struct {
			DecidedAway *int64 `json:"decided_away"`
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil || status.DecidedAway == nil {
			g.t.Fatalf("%s: %v", resp.Status, err)
		}
		decisions += *status.DecidedAway
	}
	return decisions
}

// whenAnswered returns how many requests of a new client passed while the store answered each question in
// time. On a busy machine it may be late, so there are several attempts.
func (g *group) whenAnswered(network string, send func(client string) (passed int)) (passed int) {
	g.t.Helper()
	for i := range 20 {
		before := g.decidedAway()
		if passed = send(fmt.Sprintf("%s.%d", network, i)); g.decidedAway() == before {
			return passed
		}
	}
	g.t.Fatal("the store was late each time")
	return 0
}

func TestGroupCountsTogether(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	var reached int64
	passed := g.whenAnswered("203.0.113", func(client string) (passed int) {
		before := g.reached.Load()
		for i := range 60 {
			passed += g.request(i%3, client, 1)
		}
		reached = g.reached.Load() - before
		return passed
	})
	if passed != 30 || reached != 30 {
		t.Errorf("%d of 60 requests passed and %d reached the site; want 30", passed, reached)
	}
	// At the same moment at all members: with N = 30 there is no credit, so exactly 30 pass.
	together := g.whenAnswered("198.51.100", func(client string) int {
		var all sync.WaitGroup
		var passed atomic.Int64
		for i := range 30 {
			all.Go(func() { passed.Add(int64(g.request(i%3, client, 3))) })
		}
		all.Wait()
		return int(passed.Load())
	})
	if together != 30 {
		t.Errorf("%d of 90 requests at the same moment passed; want 30", together)
	}
	if passed := g.request(1, "192.0.2.80", 5); passed != 5 {
		t.Errorf("another client: %d of 5 passed", passed)
	}
}

func TestGroupSurvivesFaults(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	if passed := g.request(0, "203.0.113.7", 40); passed != 30 {
		t.Fatalf("%d of 40 passed; want 30", passed)
	}

	g.members[0].Process.Kill() // kill -9 of the member that counted
	if passed := g.request(1, "203.0.113.7", 10); passed != 0 {
		t.Errorf("after kill -9 of a member: %d passed at another", passed)
	}
	g.awaitMembers(1, 2)

	g.store.Do("FLUSHALL") // the members restore what they remember
	g.awaitText(1, "store     answers")
	if passed := g.request(1, "203.0.113.7", 10); passed != 0 {
		t.Errorf("after FLUSHALL: %d passed", passed)
	}

	g.store.Kill() // each of two members admits half of the limit
	g.awaitText(1, "STORE     away")
	g.awaitText(2, "STORE     away")
	if passed := g.request(1, "203.0.113.7", 10); passed != 0 {
		t.Errorf("while the store is away: %d passed", passed)
	}
	if passed := g.request(1, "198.51.100.9", 40) + g.request(2, "198.51.100.9", 40); passed < 20 || passed > 30 {
		t.Errorf("while the store is away: %d of a new client passed; want 20 to 30 of both members", passed)
	}

	g.store.Run() // empty
	g.awaitText(1, "store     answers")
	g.awaitText(2, "store     answers")
	for member := 1; member <= 2; member++ {
		if passed := g.request(member, "203.0.113.7", 10); passed != 0 {
			t.Errorf("after an empty restart of the store: %d passed at member %d", passed, member)
		}
	}
}

func (g *group) awaitText(member int, want string) {
	g.t.Helper()
	g.await(member, func(text string) bool { return strings.Contains(text, want) }, want)
}

// Two members with another policy: a rule that both have counts together, each with its own amount. The
// command members says that the policies differ, until the second has loaded the first's.
func TestGroupOfTwoPolicies(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.reached.Add(1) }))
	defer site.Close()
	policy := fmt.Sprintf(groupPolicy, g.store.URL())
	other := strings.Replace(policy, "requests: 30", "requests: 40", 1) +
		"  - {name: mine, match: {path: /mine}, limit: {requests: 5, per: 1h}}\n"
	file := writeFile(t, "other.yaml", other)
	admin := fmt.Sprintf("unix:%s/other", t.TempDir())
	g.members = append(g.members, startServing(t, "-c", file, "--upstream", site.URL, "--admin", admin))
	g.admins = append(g.admins, admin)
	g.awaitMembers(0, 2)
	g.awaitText(0, "different policies")
	if a, b := g.request(0, "203.0.113.7", 25), g.request(1, "203.0.113.7", 25); a != 25 || b != 15 {
		t.Errorf("%d of 30 passed, then %d: 40 together is what the second admits", a, b)
	}
	if passed := g.request(0, "203.0.113.7", 5); passed != 0 {
		t.Errorf("%d passed after 40, of 30", passed)
	}
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.members[1].Process.Signal(syscall.SIGHUP); err != nil { // it loads the file
		t.Fatal(err)
	}
	g.await(0, func(text string) bool { return !strings.Contains(text, "different policies") }, "one policy")
	if passed := g.request(1, "203.0.113.7", 5); passed != 0 {
		t.Errorf("%d passed after the reload", passed)
	}
}

// A member of a busy group is killed: its slots come back, and no request waits for it.
func TestMemberOfABusyGroupIsKilled(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	var inside, most atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		time.Sleep(20 * time.Millisecond) // the work of the site
	}))
	defer site.Close()
	g := &group{t: t, store: store}
	for i := range 3 {
		admin := fmt.Sprintf("unix:%s/admin%d", t.TempDir(), i)
		g.members = append(g.members, startServing(t, "-c", writeFile(t, "site.yaml", fmt.Sprintf(`
store: {url: %q, name: shop}
clients: {trusted_proxies: loopback}
share: {capacity: 6}
rules:
  - {name: ceiling, limit: {requests: 100000, per: 1h}}
`, store.URL())), "--upstream", site.URL, "--admin", admin))
		g.admins = append(g.admins, admin)
	}
	g.awaitMembers(0, 3)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	get := func(member, from int) (int, error) {
		req, err := http.NewRequest("GET", "http://"+g.members[member].addr+"/", nil)
		if err != nil {
			return 0, err
		}
		req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.%d.7", from))
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Body.Close()
	}
	var all sync.WaitGroup
	var passed, odd [3]atomic.Int64
	killed := make(chan struct{})
	const callers, requests = 8, 40
	for i := range 3 * callers {
		all.Go(func() {
			for n := range requests {
				if i%3 == 0 && n == requests/2 { // the member is killed, and its callers end
					<-killed
					return
				}
				if status, err := get(i%3, i); err == nil && status == 200 {
					passed[i%3].Add(1)
				} else if i%3 != 0 {
					odd[i%3].Add(1)
					t.Errorf("member %d: %d, %v", i%3, status, err)
				}
			}
		})
	}
	for passed[0].Load() < callers*requests/4 && odd[1].Load()+odd[2].Load() == 0 {
		time.Sleep(10 * time.Millisecond) // real processes
	}
	g.members[0].Process.Kill()
	close(killed)
	all.Wait()
	for member := 1; member < 3; member++ {
		if n := passed[member].Load(); n != callers*requests {
			t.Errorf("member %d: %d of %d requests passed", member, n, callers*requests)
		}
	}
	if most.Load() > 6+2 { // those of the killed member may end late
		t.Errorf("%d requests were at the site at once, of 6", most.Load())
	}
	g.awaitMembers(1, 2)
}

const banningPolicy = `
store: {url: %q, name: shop}
clients: {trusted_proxies: loopback}
share: none
rules:
  - {name: three, match: {path: /three}, limit: {requests: 3, per: 1h}, ban: {after: 1, for: 1h, all: true}}
`

// Members without PostgreSQL share bans and unban through the store, and lose none if they are killed.
func TestGroupSharesBans(t *testing.T) {
	t.Parallel()
	g := &group{t: t, store: redistest.Start(t)}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a page")
	}))
	t.Cleanup(site.Close)
	policy := writeFile(t, "site.yaml", fmt.Sprintf(banningPolicy, g.store.URL()))
	states := [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	start := func(i int) *serving {
		return startServing(t, "-c", policy, "--upstream", site.URL, "--state", states[i], "--admin",
			"unix:"+filepath.Join(states[i], "admin"))
	}
	for i := range states {
		g.members, g.admins = append(g.members, start(i)), append(g.admins, "unix:"+filepath.Join(states[i], "admin"))
	}
	await := func(client string, want int) {
		t.Helper()
		for i, m := range g.members {
			got := 0
			for range 200 {
				if got, _ = m.status(t, client, "/"); got == want {
					break
				}
				time.Sleep(50 * time.Millisecond) // real processes
			}
			if got != want {
				t.Fatalf("%s gets %d at member %d, want %d\n%s", client, got, i, want, g.show(i))
			}
		}
	}
	ban := func(member int, client string) {
		t.Helper()
		for range 4 {
			g.members[member].status(t, client, "/three")
		}
		if status, _ := g.members[member].status(t, client, "/"); status != http.StatusTooManyRequests {
			t.Fatalf("%s gets %d, want a ban", client, status)
		}
	}
	restart := func(i int) { g.members[i] = start(i) }

	ban(0, "203.0.113.1")
	await("203.0.113.1", 429)
	g.awaitText(0, "; 0 of this server wait")

	g.store.Stop()
	ban(1, "203.0.113.2") // nobody else can know it
	g.members[1].Process.Kill()
	g.members[1].Wait()
	g.store.Continue()
	restart(1)
	await("203.0.113.2", 429)

	if code, out, stderr := runCommand(t, "unban", "203.0.113.1", "--state", states[2]); code != 0 {
		t.Fatalf("unban: %d\n%s%s", code, out, stderr)
	}
	await("203.0.113.1", 200)
	g.store.Kill()
	g.members[0].Process.Kill()
	g.members[0].Wait()
	g.store.Run() // empty
	restart(0)
	await("203.0.113.2", 429)
	await("203.0.113.1", 200)
}
