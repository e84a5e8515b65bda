//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/pgregistry"
	"fairshare/pgregistry/pgtest"
	"fairshare/redislimit/redistest"
)

// A balanced is a group of members with wrong clocks behind HAProxy, which shares the requests of each client out
// among them. HAProxy is also between the members and the site, and counts there what was admitted.
type balanced struct {
	group
	db    *pgtest.Server
	url   string
	stats string // HAProxy's socket
	logs  []*output

	holding atomic.Int64 // requests at the site that take long
}

// An output keeps what a process has written.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

const balancedPolicy = `
store: {url: %q, name: shop}
registry: {url: %q}
clients: {trusted_proxies: loopback}
share: none
rules:
  - {name: banned, match: {path: /ban}, limit: {requests: 10, per: 5s}, ban: {after: 1, for: 15s}}
  - {name: slots, match: {path: /slow}, limit: {concurrent: 3}}
  - {name: hundreds, match: {not: {path: /slow}}, limit: {requests: 300, per: 1h}}
`

// Three members admit at most 18 requests more than 300 of a client: docs/machines.md.
const balancedMost = 318

const balancerConfig = `
global
    stats socket %s mode 600 level operator
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 4s
    timeout check 1s
    option redispatch
frontend front
    bind %s
    default_backend members
backend members
    balance roundrobin
    option redispatch 1
    retry-on conn-failure empty-response response-timeout
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
%s
frontend site
    bind %s
    stick-table type string len 64 size 10k expire 1h store http_req_cnt
    http-request track-sc0 req.hdr(X-Forwarded-For,1)
    default_backend origin
backend origin
    timeout server 60s
    server origin %s
`

func startBalanced(t *testing.T, clocks ...time.Duration) *balanced {
	t.Helper()
	haproxy := need(t, "haproxy", "haproxy")
	b := &balanced{group: group{t: t, store: redistest.Start(t)}, db: pgtest.Start(t)}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "hold" {
			b.holding.Add(1)
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second):
			}
		}
		fmt.Fprint(w, "a page")
	}))
	t.Cleanup(site.CloseClientConnections)
	front, counted := freeAddr(t), freeAddr(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	policy := writeFile(t, "site.yaml", fmt.Sprintf(balancedPolicy, b.store.URL(), b.db.URL("postgres")))
	servers := ""
	for i, off := range clocks {
		admin := freeAddr(t)
		args := ownState(t, []string{"-c", policy, "--upstream", "http://" + counted, "--admin", admin})
		args = append([]string{"fairshare", "serve", "--listen", "127.0.0.1:0"}, args...)
		p := launch(t, &exec.Cmd{Path: self, Args: args,
			Env: append(os.Environ(), clockVariable+"="+off.String())})
		log := &output{}
		p.lines = bufio.NewReader(io.TeeReader(p.stderr, log))
		p.awaitStart(t)
		go io.Copy(io.Discard, p.lines)
		b.members, b.admins, b.logs = append(b.members, p), append(b.admins, admin), append(b.logs, log)
		_, port, _ := net.SplitHostPort(admin)
		servers += fmt.Sprintf("    server m%d %s check port %s inter 300ms fall 2\n", i, p.addr, port)
	}
	b.url, b.stats = "http://"+front, filepath.Join(t.TempDir(), "stats")
	config := fmt.Sprintf(balancerConfig, b.stats, front, servers, counted, site.Listener.Addr())
	cmd := exec.Command(haproxy, "-db", "-f", writeFile(t, "haproxy.cfg", config))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for i := range clocks {
		b.awaitMembers(i, len(clocks))
	}
	for range 100 {
		if strings.Count(b.query("show stat"), ",UP,") >= len(clocks) {
			return b
		}
		time.Sleep(100 * time.Millisecond) // real processes
	}
	t.Fatal("HAProxy does not find the members")
	return nil
}

// query sends a command to HAProxy.
func (b *balanced) query(command string) string {
	conn, err := net.Dial("unix", b.stats)
	if err != nil {
		return ""
	}
	defer conn.Close()
	fmt.Fprintln(conn, command)
	text, _ := io.ReadAll(conn)
	return string(text)
}

// admitted returns how many requests of a client reached the site, as HAProxy has counted.
func (b *balanced) admitted(client string) int {
	found := regexp.MustCompile(`key=` + regexp.QuoteMeta(client) + ` .*http_req_cnt=(\d+)`).
		FindStringSubmatch(b.query("show table site"))
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// errors returns how many answers of the members had a status from 500 on, as HAProxy has counted; its own are not
// among them.
func (b *balanced) errors() (sum int) {
	lines := strings.Split(b.query("show stat"), "\n")
	columns := strings.Split(strings.TrimPrefix(lines[0], "# "), ",")
	for _, line := range lines[1:] {
		fields := strings.Split(line, ",")
		if len(fields) < len(columns)-1 || fields[0] != "members" || fields[1] == "BACKEND" {
			continue
		}
		for i, name := range columns[:len(fields)] {
			if name == "hrsp_5xx" {
				n, _ := strconv.Atoi(fields[i])
				sum += n
			}
		}
	}
	return sum
}

var direct = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// get sends a request of a client to an address, and returns the status and the seconds of Retry-After.
func get(url, client string) (status, wait int) {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, 0
	}
	req.Header.Set("X-Forwarded-For", client)
	resp, err := direct.Do(req)
	if err != nil {
		return 0, 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	wait, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, wait
}

// load sends requests of clients through HAProxy until stop is closed, and returns the answers by status.
func (b *balanced) load(stop <-chan struct{}, clients ...string) map[int]int {
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range 8 {
		all.Go(func() {
			for n := range 20000 {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				status, _ := get(b.url+"/", clients[(i+n)%len(clients)])
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return statuses
}

// during sends requests of clients while a fault begins and ends, until all are refused again.
func (b *balanced) during(fault func(), clients ...string) map[int]int {
	stop, statuses := make(chan struct{}), make(chan map[int]int)
	go func() { statuses <- b.load(stop, clients...) }()
	fault()
	for range 100 {
		open := 0
		for member := range b.members {
			for _, client := range clients {
				if status, _ := get("http://"+b.members[member].addr+"/", client); status == 200 {
					open++
				}
			}
		}
		if open == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond) // real processes
	}
	close(stop)
	return <-statuses
}

// awaitBan waits until the database has one ban of a client.
func (b *balanced) awaitBan(client string) {
	b.t.Helper()
	shared, err := pgregistry.Open(b.t.Context(), b.db.URL("postgres"), pgregistry.Options{ReadOnly: true})
	if err != nil {
		b.t.Fatal(err)
	}
	defer shared.Close()
	id, err := fairshare.ParseClientID(client)
	if err != nil {
		b.t.Fatal(err)
	}
	for range 100 {
		if found, err := shared.Client(b.t.Context(), id); err == nil && found != nil && len(found.Bans) == 1 {
			return
		}
		time.Sleep(100 * time.Millisecond) // real processes
	}
	b.t.Errorf("the ban of %s is not in the database", client)
}

// Members whose clocks are an hour off count together, end bans at the same moment, and say that their clocks are
// wrong. HAProxy has counted what they admit.
func TestGroupWithWrongClocks(t *testing.T) {
	t.Parallel()
	offs := []time.Duration{0, time.Hour, -time.Hour}
	b := startBalanced(t, offs...)
	b.during(func() {}, "203.0.113.1", "203.0.113.2")
	for _, client := range []string{"203.0.113.1", "203.0.113.2"} {
		if n := b.admitted(client); n < 300 || n > balancedMost {
			t.Errorf("HAProxy counted %d requests of %s, want 300 to %d", n, client, balancedMost)
		}
	}
	if n := b.errors(); n != 0 {
		t.Errorf("HAProxy counted %d answers with 5xx", n)
	}
	type pair struct{ maker, member int }
	banned := map[pair]bool{}
	for i, maker := range b.members { // each member bans a client for 15 s, and at most a tenth more
		for range 14 {
			get("http://"+maker.addr+"/ban", fmt.Sprint("198.51.100.", i))
		}
		for j := range b.members {
			banned[pair{i, j}] = true
		}
	}
	time.Sleep(6 * time.Second) // the limit is fresh again, but not the ban
	for round := range 100 {
		for p := range banned {
			status, wait := get("http://"+b.members[p.member].addr+"/ban", fmt.Sprint("198.51.100.", p.maker))
			if round == 0 && (status != 429 || wait > 17) || status != 200 && status != 429 {
				t.Errorf("member %d: the ban by member %d: %d, wait %d s", p.member, p.maker, status, wait)
			}
			if status == 200 {
				delete(banned, p)
			}
		}
		if len(banned) == 0 {
			break
		}
		time.Sleep(300 * time.Millisecond) // real processes
	}
	if len(banned) > 0 {
		t.Errorf("bans that did not end: %v", banned)
	}
	shared, err := pgregistry.Open(t.Context(), b.db.URL("postgres"), pgregistry.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	bans := 0
	for ban, err := range shared.Bans(t.Context(), time.Now(), true) {
		if age := time.Since(ban.Began); err != nil || age < -10*time.Second || age > 10*time.Minute {
			t.Errorf("a ban began %v ago, %v", age, err)
		}
		bans++
	}
	if bans != len(offs) {
		t.Errorf("the registry has %d bans, want %d", bans, len(offs))
	}
	for i, off := range offs {
		text := b.logs[i].String()
		for _, of := range []string{"the shared database's", "the store's"} {
			want := regexp.MustCompile("the clock of this machine is 1 hour (ahead of|behind) " + of)
			if got := want.MatchString(text); got != (off != 0) {
				t.Errorf("member %d is %v off: the log says so by %s: %v", i, off, of, got)
			}
		}
		var line struct{ Time time.Time }
		found := regexp.MustCompile(`(?m)^\{"time":.*\}$`).FindString(text)
		if err := json.Unmarshal([]byte(found), &line); err != nil {
			t.Errorf("member %d: no line of the journal: %v", i, err)
		} else if age := time.Now().Add(off).Sub(line.Time); age.Abs() > 15*time.Minute {
			t.Errorf("member %d: the journal is not in the time of its machine: %v", i, line.Time)
		}
	}
	seen := 0
	for range 200 { // members write clients every few seconds
		_ = shared.FirstSeen(t.Context(), func(_ fairshare.ClientID, first time.Time) bool {
			if age := time.Since(first); age < -10*time.Second || age > 15*time.Minute {
				t.Errorf("a client was first seen %v ago", age)
			}
			seen++
			return true
		})
		if seen > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond) // real processes
	}
	if seen == 0 {
		t.Error("the registry has no clients")
	}
}

// Each part of a group stops under load, and continues: a member, the store, the database. No member answers with an
// error, HAProxy counts no more than the group may admit, and slots of a stopped member come back.
func TestGroupWithStoppedParts(t *testing.T) {
	t.Parallel()
	b := startBalanced(t, 0, 0, 0)
	check := func(what string, statuses map[int]int, own, most int, clients ...string) {
		t.Helper()
		for status, n := range statuses {
			if status != 200 && status != 429 && (status < 500 || n > own) {
				t.Errorf("%s: %d answers %d", what, n, status)
			}
		}
		if n := b.errors(); n != 0 {
			t.Errorf("%s: HAProxy counted %d answers of members with 5xx", what, n)
		}
		for _, client := range clients {
			if n := b.admitted(client); n < 250 || n > most {
				t.Errorf("%s: HAProxy counted %d requests of %s, want at most %d", what, n, client, most)
			}
		}
	}
	stopped := b.members[0]

	// Slow requests of a client take all slots at the member that stops.
	var slow sync.WaitGroup
	for range 3 {
		slow.Go(func() {
			for range 100 { // the store may be late at first: then this member has one slot of three
				if status, _ := get("http://"+stopped.addr+"/slow?hold", "192.0.2.1"); status != 429 {
					break
				}
				time.Sleep(50 * time.Millisecond) // real processes
			}
		})
	}
	status := 0
	for range 100 {
		if b.holding.Load() == 3 {
			if status, _ = get("http://"+b.members[1].addr+"/slow", "192.0.2.1"); status == 429 {
				break
			}
		}
		time.Sleep(50 * time.Millisecond) // real processes
	}
	if status != 429 {
		t.Fatalf("a request beyond the slots: %d", status)
	}

	// Up to 8 requests wait at the stopped member until HAProxy sends them to another one.
	statuses := b.during(func() {
		stopped.Process.Signal(syscall.SIGSTOP)
		b.awaitMembers(1, 2)
		for range 40 {
			if status, _ = get("http://"+b.members[1].addr+"/slow", "192.0.2.1"); status != 429 {
				break
			}
			time.Sleep(250 * time.Millisecond) // real processes
		}
		if status != 200 {
			t.Errorf("slots of a stopped member: %d", status)
		}
		stopped.Process.Signal(syscall.SIGCONT)
		b.awaitMembers(1, 3)
	}, "203.0.113.1", "203.0.113.2", "203.0.113.3")
	t.Logf("a member: %v", statuses)
	check("a member", statuses, 0, balancedMost, "203.0.113.1", "203.0.113.2", "203.0.113.3")
	slow.Wait()

	// While the store is away, each of three members admits a third.
	statuses = b.during(func() {
		b.store.Stop()
		b.awaitText(1, "STORE     away")
		time.Sleep(time.Second) // of load
		b.store.Continue()
		for member := range b.members {
			b.awaitText(member, "store     answers")
		}
	}, "203.0.113.4", "203.0.113.5")
	check("the store", statuses, 0, 600+18, "203.0.113.4", "203.0.113.5")

	// While the database does not answer, a ban holds where it is made. The others refuse the client at once, too: the
	// store says that it is over the limit, so each makes the same ban. The database gets it later.
	statuses = b.during(func() {
		b.db.Signal(syscall.SIGSTOP)
		for range 14 {
			get("http://"+stopped.addr+"/ban", "198.51.100.1")
		}
		for i, m := range b.members {
			if status, _ := get("http://"+m.addr+"/ban", "198.51.100.1"); status != 429 {
				t.Errorf("a ban while the database is stopped, at member %d: %d", i, status)
			}
		}
		time.Sleep(time.Second) // of load
		b.db.Signal(syscall.SIGCONT)
	}, "203.0.113.6", "203.0.113.7")
	check("the database", statuses, 0, balancedMost, "203.0.113.6", "203.0.113.7")
	b.awaitBan("198.51.100.1")
	check("at the end", nil, 0, balancedMost, "203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.6")
}
