package redislimit_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

var now = time.Unix(1_800_000_000, 0)

var hundred = []fairshare.Limit{{Name: "hundred", Resource: fairshare.Requests, N: 100, Window: time.Hour, Exact: true}}

// journal collects the events of a member.
type journal struct {
	mu     sync.Mutex
	events []redislimit.Event
}

func (j *journal) report(e redislimit.Event) {
	j.mu.Lock()
	j.events = append(j.events, e)
	j.mu.Unlock()
}

// has reports whether there was an event whose text contains all parts.
func (j *journal) has(kind redislimit.EventKind, parts ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		ok := e.Kind == kind
		for _, part := range parts {
			ok = ok && strings.Contains(e.Text, part)
		}
		if ok {
			return true
		}
	}
	return false
}

// await waits until a condition holds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20s", what)
		}
	}
}

// admit asks so often for one key, and returns how many passed and the longest wait.
func admit(t *testing.T, l fairshare.Limiter, key string, times int) (passed int, longest time.Duration) {
	t.Helper()
	tallies := make([]fairshare.Tally, 1)
	for range times {
		began := time.Now()
		takes := []fairshare.Take{{Key: []byte(key), Cost: 1}}
		if err := l.Take(context.Background(), now, takes, tallies); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(began))
		if !tallies[0].Over {
			passed++
		}
	}
	return passed, longest
}

func flush(t *testing.T, members ...*redislimit.Limiter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, l := range members {
		if err := l.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// pair returns two members of a new group, and their journals.
func pair(t *testing.T, url string, limits []fairshare.Limit, opts redislimit.Options) (a, b *redislimit.Limiter,
	journals *[2]journal) {
	t.Helper()
	journals = &[2]journal{}
	opts.Name = fmt.Sprint("group", groups.Add(1))
	var members [2]*redislimit.Limiter
	for i := range members {
		opts.Report = journals[i].report
		members[i] = open(t, connect(t, url), limits, opts)
	}
	for _, l := range members {
		await(t, "two members", func() bool { redislimit.Beat(l); return len(l.Status().Members) == 2 })
	}
	return members[0], members[1], journals
}

func TestStoppedStoreLeavesAShareToEachMember(t *testing.T) {
	server := redistest.Start(t)
	a, b, journals := pair(t, server.URL(), hundred, redislimit.Options{})
	if n, _ := admit(t, a, "before", 10); n != 10 {
		t.Fatalf("%d of 10 passed before", n)
	}
	flush(t, a, b)
	server.Stop()
	for i, l := range []*redislimit.Limiter{a, b} {
		n, _ := admit(t, l, "k", 200)
		if n < 45 || n > 50 {
			t.Errorf("member %d admitted %d of its share of 50", i, n)
		}
		st := l.Status()
		if !st.Away || st.AwaySince.IsZero() || st.Reason == "" || st.Late < 5 || st.Late > 60 {
			t.Errorf("member %d: status %+v", i, st)
		}
		if !journals[i].has(redislimit.StoreAway, "store away since", "1/2 of each limit") {
			t.Errorf("member %d has not reported that the store is away", i)
		}
	}
	server.Continue()
	for i, l := range []*redislimit.Limiter{a, b} {
		await(t, "back", func() bool { return !l.Status().Away })
		if !journals[i].has(redislimit.StoreBack, "store back after", "handed over") {
			t.Errorf("member %d has not reported that the store is back", i)
		}
	}
	flush(t, a, b)
	n := 0
	for _, l := range []*redislimit.Limiter{a, b} {
		m, _ := admit(t, l, "k", 100)
		n += m
	}
	if n > 10 {
		t.Errorf("%d more were admitted after the store was back: counts were lost", n)
	}
	if n, _ := admit(t, b, "before", 200); n > 90 {
		t.Errorf("%d were admitted where 10 were counted before", n)
	}
}

func TestEmptyRestartIsRefilled(t *testing.T) {
	server := redistest.Start(t)
	a, b, _ := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	n, _ := admit(t, a, "k", 60)
	m, _ := admit(t, b, "k", 60)
	if n+m != 100 {
		t.Errorf("%d were admitted before", n+m)
	}
	half, _ := admit(t, a, "half", 50)
	flush(t, a, b)
	server.Kill()
	await(t, "away", func() bool { return a.Status().Away && b.Status().Away })
	server.Run()
	await(t, "back", func() bool { return !a.Status().Away && !b.Status().Away })
	more := 0
	for _, l := range []*redislimit.Limiter{a, b, a, b} {
		n, _ := admit(t, l, "k", 30)
		more += n
	}
	if more > 1 {
		t.Errorf("%d more than 100 were admitted after an empty restart", more)
	}
	rest := 0
	for _, l := range []*redislimit.Limiter{a, b, a, b} {
		n, _ := admit(t, l, "half", 60)
		rest += n
	}
	if half != 50 || rest > 51 {
		t.Errorf("%d were admitted before and %d after an empty restart, of 100", half, rest)
	}
}

func TestFlushAllIsHealed(t *testing.T) {
	server := redistest.Start(t)
	a, b, journals := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	if n, _ := admit(t, a, "k", 200); n != 100 {
		t.Errorf("%d were admitted", n)
	}
	if n, _ := admit(t, b, "k", 10); n != 0 {
		t.Errorf("%d more were admitted at the other member", n)
	}
	flush(t, a, b)
	server.Do("FLUSHALL")
	await(t, "report", func() bool {
		return journals[0].has(redislimit.StoreLost, "has lost counts") && journals[1].has(redislimit.StoreLost)
	})
	for i, l := range []*redislimit.Limiter{a, b} {
		if n, _ := admit(t, l, "k", 10); n > 0 {
			t.Errorf("member %d admitted %d after FLUSHALL", i, n)
		}
	}
	// All members still have the same secret, so they count together.
	redislimit.Beat(a)
	redislimit.Beat(b)
	if n, _ := admit(t, a, "new", 70); n != 70 {
		t.Errorf("%d of a new key were admitted", n)
	}
	if n, _ := admit(t, b, "new", 70); n != 30 {
		t.Errorf("%d of 30 were admitted at the other member", n)
	}
}

// What the book knows is enough: a client gets no second allowance if the view and the store forget it both.
func TestLostViewAndEmptyStore(t *testing.T) {
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		for _, reported := range []bool{false, true} { // before the next requests
			t.Run(fmt.Sprintf("%v, reported %v", algorithm, reported), func(t *testing.T) {
				testLostViewAndEmptyStore(t, algorithm, reported)
			})
		}
	}
}

func testLostViewAndEmptyStore(t *testing.T, algorithm fairshare.Algorithm, reported bool) {
	server := redistest.Start(t)
	limits := []fairshare.Limit{{
		Name: "l", Resource: fairshare.Requests, N: 100, Window: time.Hour, Algorithm: algorithm, Exact: true,
	}}
	a, b, journals := pair(t, server.URL(), limits, redislimit.Patient(redislimit.Options{}))
	lose := func() {
		for _, l := range []*redislimit.Limiter{a, b} {
			redislimit.LoseView(l, 0, []byte("k"), now)
		}
	}
	if n, _ := admit(t, a, "k", 60); n != 60 {
		t.Fatalf("%d of 60 passed", n)
	}
	flush(t, a, b)
	lose()
	if n, _ := admit(t, a, "k", 10); n != 10 { // reads the state again
		t.Fatalf("%d of 10 passed", n)
	}
	flush(t, a, b)
	lose()
	server.Do("FLUSHALL")
	if reported {
		await(t, "report", func() bool { return journals[0].has(redislimit.StoreLost) })
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 20 { // questions on their way at once
		wg.Go(func() {
			m, _ := admit(t, a, "k", 5)
			n.Add(int64(m))
		})
	}
	wg.Wait()
	m, _ := admit(t, b, "k", 100)
	if n.Load()+int64(m) > 30 {
		t.Errorf("%d and %d more passed, want 30 at most", n.Load(), m)
	}
}

func TestForgottenScriptIsSentAgain(t *testing.T) {
	server := redistest.Start(t)
	a, b, _ := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	n, _ := admit(t, a, "k", 50)
	server.Do("SCRIPT", "FLUSH")
	m, _ := admit(t, b, "k", 70)
	if n+m != 100 {
		t.Errorf("%d of 100 were admitted", n+m)
	}
}

func TestCutConnectionLosesNothing(t *testing.T) {
	server := redistest.Start(t)
	a, b, _ := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	n, _ := admit(t, a, "k", 50)
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	m, _ := admit(t, b, "k", 20)
	await(t, "back", func() bool { return !a.Status().Away && !b.Status().Away })
	flush(t, a, b)
	for _, l := range []*redislimit.Limiter{a, b} {
		more, _ := admit(t, l, "k", 100)
		m += more
	}
	if n+m < 95 || n+m > 105 {
		t.Errorf("%d of 100 were admitted", n+m)
	}
}

// limitKeys returns the keys in the store that have states of limits.
func limitKeys(server *redistest.Server) []string {
	return strings.Fields(server.Do("EVAL", "return table.concat(redis.call('KEYS', 'fs2:*'), ' ')", "0"))
}

func TestPoisonedStatesAreDropped(t *testing.T) {
	server := redistest.Start(t)
	for name, poison := range map[string][]string{
		"nonsense":            {"SET", "KEY", "nonsense", "KEEPTTL"},
		"a wrong count":       {"SETRANGE", "KEY", "16", "\xc8"}, // 200 members with requests in progress
		"a wrong other count": {"SETRANGE", "KEY", "16", "\x01"},
		"a wrong figure":      {"SETRANGE", "KEY", "17", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		"cut short":           {"SET", "KEY", "abcdefghijklmnopqrstuvwxyz", "KEEPTTL"},
		"a hash": {"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", "1",
			"KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			a, b, journals := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
			admit(t, a, "k", 5)
			flush(t, a, b)
			keys := limitKeys(server)
			if len(keys) != 1 {
				t.Fatalf("the store has %q", keys)
			}
			for i := range poison {
				if poison[i] == "KEY" {
					poison[i] = keys[0]
				}
			}
			server.Do(poison...)
			if n, _ := admit(t, b, "k", 200); n != 100 {
				t.Errorf("%d of 100 were admitted", n)
			}
			if !journals[1].has(redislimit.Unreadable, "made no sense") {
				t.Error("the poisoned state was not reported")
			}
			if journals[1].has(redislimit.StoreAway) {
				t.Error("the store counts as away")
			}
			if ttl := server.Do("EVAL", "return tostring(redis.call('TTL', KEYS[1]))", "1", keys[0]); ttl == "-1" {
				t.Error("the key has no TTL")
			}
			if n, _ := admit(t, a, "k", 10); n != 0 {
				t.Errorf("%d more were admitted", n)
			}
		})
	}
}

// The version before stored each key of limits as a hash under fs1. Neither version deletes what the other has.
func TestVersionBeforeKeepsItsCounts(t *testing.T) {
	server := redistest.Start(t)
	a, b, journals := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	passed, _ := admit(t, a, "k", 30)
	flush(t, a, b)
	keys := limitKeys(server)
	if len(keys) != 1 {
		t.Fatalf("the store has %q", keys)
	}
	before := strings.Replace(keys[0], "fs2:", "fs1:", 1)
	server.Do("HSET", before, "a", "b")
	for _, l := range []*redislimit.Limiter{b, a, b} {
		n, _ := admit(t, l, "k", 50)
		passed += n
	}
	flush(t, a, b)
	if passed != 100 || journals[0].has(redislimit.Unreadable) || journals[1].has(redislimit.Unreadable) {
		t.Errorf("%d of 100 were admitted; events %v and %v", passed, journals[0].events, journals[1].events)
	}
	if got := server.Do("HGET", before, "a"); got != "b" {
		t.Errorf("the hash of the version before has %q", got)
	}
}

// A state has room for 255 members with requests in progress. One more keeps its own record.
func TestCrowdedStateKeepsTheWriter(t *testing.T) {
	server := redistest.Start(t)
	slots := []fairshare.Limit{{Name: "slots", Resource: fairshare.Concurrent, N: 514}}
	a, b, _ := pair(t, server.URL(), slots, redislimit.Patient(redislimit.Options{}))
	admit(t, a, "k", 1)
	flush(t, a)
	keys := limitKeys(server)
	if len(keys) != 1 {
		t.Fatalf("the store has %q", keys)
	}
	server.Do("EVAL", `local v = redis.call('GET', KEYS[1])
		v = string.sub(v, 1, 16) .. '\255' .. string.sub(v, 18, 41)
		for i = 1, 255 do v = v .. struct.pack('<I4dI4', i, 2, redis.call('TIME')[1]) end
		return redis.call('SET', KEYS[1], v, 'KEEPTTL')`, "1", keys[0])
	if n, _ := admit(t, b, "k", 3); n != 3 {
		t.Errorf("%d of 3 were admitted where 510 of 514 are taken", n)
	}
	flush(t, b)
	got := server.Do("EVAL", `local v = redis.call('GET', KEYS[1])
		local sum, count = 0, string.byte(v, 17)
		for i = 1, count do sum = sum + struct.unpack('<d', v, 46 + 16 * (i - 1)) end
		return count .. ' ' .. sum .. ' ' .. struct.unpack('<d', v, 46)`, "1", keys[0])
	if got != "255 511 3" {
		t.Errorf("members, sum and the first record: %s; want 255 511 3", got)
	}
}

func TestFullStoreIsAwayAndSaysWhy(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	a, _, journals := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	server.Do("CONFIG", "SET", "maxmemory", "1")
	n, longest := admit(t, a, "k", 100)
	if n < 45 || n > 50 {
		t.Errorf("%d were admitted of a share of 50", n)
	}
	if !journals[0].has(redislimit.StoreAway, "it is full", "maxmemory") {
		t.Errorf("events: %v", journals[0].events)
	}
	t.Logf("the longest wait was %v", longest)
	server.Do("CONFIG", "SET", "maxmemory", "0")
	await(t, "back", func() bool { return !a.Status().Away })
}

func TestAwayWholeAndOpen(t *testing.T) {
	for away, want := range map[redislimit.Away]int{redislimit.AwayWhole: 100, redislimit.AwayOpen: 150} {
		server := redistest.Start(t)
		a, _, _ := pair(t, server.URL(), hundred, redislimit.Options{Away: away})
		server.Kill()
		await(t, "away", func() bool { return a.Status().Away })
		if n, _ := admit(t, a, "k", 150); n != want {
			t.Errorf("%v: %d were admitted, want %d", away, n, want)
		}
	}
}

func TestStartWithoutStore(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	var j journal
	l := open(t, connect(t, server.URL()), hundred, redislimit.Options{Report: j.report})
	if n, longest := admit(t, l, "k", 150); n != 100 || longest > time.Second {
		t.Errorf("%d of 100 were admitted; the longest wait was %v", n, longest)
	}
	if !j.has(redislimit.StoreAway) {
		t.Error("the store is away, and that was not reported")
	}
	server.Run()
	await(t, "back", func() bool { return !l.Status().Away })
	if n, _ := admit(t, l, "other", 150); n != 100 {
		t.Errorf("%d of 100 were admitted with the store", n)
	}
}

func TestFailoverGivesNoAmnesty(t *testing.T) {
	s := redistest.StartSentinels(t)
	a, b, _ := pair(t, s.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	n, _ := admit(t, a, "k", 60)
	m, _ := admit(t, b, "k", 60)
	flush(t, a, b)
	s.Master.Kill()
	await(t, "away", func() bool { return a.Status().Away && b.Status().Away })
	await(t, "failover", func() bool { return !a.Status().Away && !b.Status().Away })
	more := 0
	for _, l := range []*redislimit.Limiter{a, b, a, b} {
		n, _ := admit(t, l, "k", 30)
		more += n
	}
	if n+m+more > 101 || n+m < 98 {
		t.Errorf("%d were admitted before, %d after the failover, of 100", n+m, more)
	}
}

func TestClusterMasterAwayConcernsItsKeysOnly(t *testing.T) {
	c := redistest.StartCluster(t, 0)
	a, b, _ := pair(t, c.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	c.Nodes[1].Kill()
	await(t, "away", func() bool { return a.Status().Away && b.Status().Away })
	await(t, "seen by the cluster", func() bool {
		return strings.Contains(c.Nodes[0].Do("CLUSTER", "INFO"), "cluster_slots_fail:5461\r")
	})
	// On a busy machine another master may be late, too, and then counts as away for a moment.
	var all []map[int]int
	for round := range 10 {
		shares := map[int]int{}
		for i := range 30 {
			n, _ := admit(t, a, fmt.Sprintf("key %d of round %d", i, round), 120)
			shares[n]++
		}
		if shares[100] >= 8 && shares[50] >= 3 && shares[100]+shares[50] >= 28 {
			return
		}
		all = append(all, shares)
		time.Sleep(time.Second) // real servers: four probes
	}
	t.Errorf("numbers of keys by admitted requests: %v; want some with 100 and some with 50", all)
}

func TestClocksAnHourApart(t *testing.T) {
	server := redistest.Start(t)
	store := connect(t, server.URL())
	name := fmt.Sprint("group", groups.Add(1))
	limits := []fairshare.Limit{{Name: "l", Resource: fairshare.Requests, N: 100, Window: 10 * time.Minute,
		Exact: true}}
	var admitted atomic.Int64
	for i, off := range []time.Duration{0, time.Hour, -time.Hour} {
		var j journal
		l := open(t, store, limits, redislimit.Patient(redislimit.Options{Name: name, Report: j.report,
			Now: func() time.Time { return time.Now().Add(off) }}))
		wrong := time.Now().Add(off)
		tallies := make([]fairshare.Tally, 1)
		for range 60 {
			if err := l.Take(t.Context(), wrong, []fairshare.Take{{Key: []byte("k"), Cost: 1}}, tallies); err != nil {
				t.Fatal(err)
			}
			if !tallies[0].Over {
				admitted.Add(1)
			}
		}
		if off != 0 && !j.has(redislimit.ClockWrong, "1 hour") {
			t.Errorf("member %d: its clock is %v off, and the events are %v", i, off, j.events)
		}
		flush(t, l)
	}
	if n := admitted.Load(); n != 100 {
		t.Errorf("%d of 100 were admitted by members whose clocks differ by an hour", n)
	}
}

func TestOtherNCountsTogether(t *testing.T) {
	server := redistest.Start(t)
	store := connect(t, server.URL())
	opts := redislimit.Patient(redislimit.Options{Name: fmt.Sprint("group", groups.Add(1))})
	fewer := []fairshare.Limit{{Name: "hundred", Resource: fairshare.Requests, N: 40, Window: time.Hour, Exact: true}}
	a, b := open(t, store, hundred, opts), open(t, store, fewer, opts)
	if n, _ := admit(t, a, "k", 30); n != 30 {
		t.Errorf("%d of 30 passed at the member with 100", n)
	}
	if n, _ := admit(t, b, "k", 30); n != 10 {
		t.Errorf("%d of 10 passed at the member with 40", n)
	}
	next, err := a.With(fewer, "")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := admit(t, next, "k", 30); n != 0 {
		t.Errorf("%d passed after the limit became 40", n)
	}
}

func TestOffenderAsksRarely(t *testing.T) {
	server := redistest.Start(t)
	limits := []fairshare.Limit{{Name: "l", Resource: fairshare.Requests, N: 100, Window: time.Minute}}
	l := open(t, connect(t, server.URL()), limits, redislimit.Patient(redislimit.Options{}))
	admit(t, l, "k", 20_000)
	st := l.Status()
	if asked := st.Questions + st.Reads; asked > 100 {
		t.Errorf("an offender with 20,000 requests asked %d questions", asked)
	}
	t.Logf("%d questions, %d on credit, %d refused", st.Questions, st.Credit, st.Refused)
}

func TestNoAddressIsStoredInTheClear(t *testing.T) {
	server := redistest.Start(t)
	l := open(t, connect(t, server.URL()), hundred, redislimit.Patient(redislimit.Options{}))
	key := append([]byte{byte(fairshare.ByAddr)}, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x07"...)
	admit(t, l, string(key), 3)
	flush(t, l)
	all := server.Do("EVAL", `local out = '' for _, k in ipairs(redis.call('KEYS', '*')) do out = out .. k
		if redis.call('TYPE', k).ok == 'string' then out = out .. redis.call('GET', k)
		else for _, v in ipairs(redis.call('HGETALL', k)) do out = out .. v end end end return out`, "0")
	if len(all) < 60 || strings.Contains(all, "192.0.2.7") || strings.Contains(all, "\xc0\x00\x02") {
		t.Errorf("the store has %q", all)
	}
	keys := server.Do("EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0")
	for _, key := range strings.Fields(keys) {
		ttl := server.Do("EVAL", "return tostring(redis.call('TTL', KEYS[1]))", "1", key)
		if meta := strings.Contains(key, "{group}"); !meta && ttl == "-1" {
			t.Errorf("%s has no TTL", key)
		}
	}
}

// leastRights are those that the package documents.
const leastRights = "~fs1:* ~fs2:* resetchannels -@all +eval +evalsha +get +set +hget +hset +hsetnx +hgetall +hdel " +
	"+del +pexpire +time +hello +client|setname +ping +cluster|slots +cluster|shards"

// as returns a store of a user with some rights.
func as(t *testing.T, server *redistest.Server, rights string) *redislimit.Store {
	t.Helper()
	server.Do(strings.Fields("ACL SETUSER fairshare reset on >secret " + rights)...)
	store, err := redislimit.Connect(redislimit.Connection{URL: server.URL(), User: "fairshare", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestLeastACLIsEnough(t *testing.T) {
	server := redistest.Start(t)
	store := as(t, server, leastRights)
	var j journal
	l := open(t, store, hundred, redislimit.Patient(redislimit.Options{Report: j.report}))
	if n, _ := admit(t, l, "k", 120); n != 100 || l.Status().Questions < 100 {
		t.Errorf("%d of 100 were admitted; status %+v", n, l.Status())
	}
	flush(t, l)
	redislimit.Beat(l)
	if len(j.events) > 0 {
		t.Errorf("events: %v", j.events)
	}
}

// A user without a right loses no states, and the operator reads why nothing is counted together.
func TestMissingRight(t *testing.T) {
	server := redistest.Start(t)
	for _, right := range []string{"+get", "+set", "~fs2:*"} {
		t.Run(right, func(t *testing.T) {
			server.Do("FLUSHALL")
			name := fmt.Sprint("group", groups.Add(1))
			l := open(t, connect(t, server.URL()), hundred, redislimit.Patient(redislimit.Options{Name: name}))
			admit(t, l, "k", 60)
			flush(t, l)
			keys := limitKeys(server)
			if len(keys) != 1 {
				t.Fatalf("the store has %q", keys)
			}
			before := server.Do("GET", keys[0])

			var j journal
			store := as(t, server, strings.Replace(leastRights, right+" ", "", 1))
			less := open(t, store, hundred, redislimit.Patient(redislimit.Options{Name: name, Report: j.report}))
			if !less.Status().Away || !j.has(redislimit.StoreAway, "it refuses the user") {
				t.Errorf("before it counts: status %+v, events %v", less.Status(), j.events)
			}
			admit(t, less, "k", 10)
			if !j.has(redislimit.StoreAway, "it refuses the user") {
				t.Errorf("events: %v", j.events)
			}
			if after := server.Do("GET", keys[0]); after != before || before == "" {
				t.Errorf("the state was %q and is %q", before, after)
			}
		})
	}
}
