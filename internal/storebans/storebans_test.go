package storebans

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// A member is a program with bans. After kill it can run again with what it had.
type member struct {
	t     testing.TB
	url   string
	skew  time.Duration // of its clock
	bans  *membans.Bans
	store *redislimit.Store
	b     *Bans
	end   func()

	mu     sync.Mutex
	lifts  []Lift // known: a registry would have them
	lines  []string
	made   []fairshare.BanRecord
	looks  atomic.Int64 // of all bans in force
	wanted []Lift       // by operators at this member
}

func newMember(t testing.TB, url string, skew time.Duration) *member {
	m := &member{t: t, url: url, skew: skew, bans: membans.New(0)}
	m.run()
	t.Cleanup(func() { m.kill() })
	return m
}

func (m *member) now() time.Time { return time.Now().Add(m.skew) }

// run begins to share.
func (m *member) run() {
	m.t.Helper()
	var err error
	if m.store, err = redislimit.Connect(redislimit.Connection{URL: m.url}); err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	lifts := slices.Clone(m.lifts)
	m.mu.Unlock()
	m.b = New(Options{
		Store: m.store, Name: "shop", Now: m.now, Lifts: lifts,
		InForce: func(yield func(fairshare.BanRecord)) {
			m.looks.Add(1)
			m.bans.InForce(m.now(), 32, 64, yield)
		},
		Restore: func(bans []fairshare.BanRecord) {
			for _, ban := range bans {
				m.bans.Restore(ban)
			}
		},
		Lift: func(l Lift) {
			m.bans.Lift(l.Client, l.At, nil)
			m.mu.Lock()
			m.lifts = append(m.lifts, l)
			m.mu.Unlock()
		},
		Log: func(line string) {
			m.mu.Lock()
			m.lines = append(m.lines, line)
			m.mu.Unlock()
		},
	})
	m.observe(m.b.Made)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.b.Run(ctx)
	}()
	m.end = func() {
		cancel()
		<-done
		m.store.Close()
	}
}

// observe notes the bans that the member makes, and hands them on.
func (m *member) observe(made func(fairshare.BanRecord)) {
	m.bans.Observe(func(ban fairshare.BanRecord) {
		m.made = append(m.made, ban)
		made(ban)
	})
}

// kill ends the member. What it has not shared by then it shares after run.
func (m *member) kill() {
	if m.end != nil {
		m.observe(func(fairshare.BanRecord) {})
		m.end()
		m.end = nil
	}
}

// ban begins a ban for at least a minute.
func (m *member) ban(client, rule string) { m.banFor(client, rule, time.Minute) }

func (m *member) banFor(client, rule string, length time.Duration) {
	kind := fairshare.ByAddr
	id, err := fairshare.ParseClientID(client)
	if err != nil {
		m.t.Fatal(err)
	}
	if id.Bot != "" {
		kind = fairshare.ByBot
	}
	key, ok := fairshare.NewBanKey(kind, id)
	if !ok {
		m.t.Fatal(client)
	}
	m.bans.CountRefusal(&fairshare.Refusal{Key: key, Rule: m.bans.RuleNumber(rule), At: m.now(), Bot: id.Bot,
		Terms: &fairshare.BanTerms{For: length}, Bits4: 32, Bits6: 64}, true)
}

// tripTime is longer than a trip to the store takes on a busy machine. Of a ban and a lift that are closer,
// members may find out the order differently.
const tripTime = 100 * time.Millisecond

// lift ends the bans of a client, as an operator would on this member's machine.
func (m *member) lift(client string) {
	time.Sleep(tripTime)
	defer time.Sleep(tripTime)
	id, err := fairshare.ParseClientID(client)
	if err != nil {
		m.t.Fatal(err)
	}
	l := Lift{Client: id, At: m.now(), Stored: m.now()}
	ended := func() (all []fairshare.BanRecord) {
		m.bans.InForce(m.now(), 32, 64, func(ban fairshare.BanRecord) {
			if key, _ := fairshare.NewBanKey(ban.Kind, ban.Client); key.Within(id) {
				all = append(all, ban)
			}
		})
		return all
	}
	m.mu.Lock()
	m.lifts, m.wanted = append(m.lifts, l), append(m.wanted, l)
	m.mu.Unlock()
	m.b.Lifted(l, ended)
	m.bans.Lift(id, l.At, nil)
}

// banned returns the bans in force, as "client rule", with the seconds until their end.
func (m *member) banned() map[string]int {
	all := map[string]int{}
	now := m.now()
	m.bans.InForce(now, 32, 64, func(ban fairshare.BanRecord) {
		all[ban.Client.String()+" "+ban.Rule] = int(ban.Until.Sub(now) / time.Second)
	})
	return all
}

// await waits until all members have these bans and no others.
func await(t *testing.T, members []*member, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	deadline := time.Now().Add(20 * time.Second)
	for _, m := range members {
		for {
			got := slices.Sorted(maps.Keys(m.banned()))
			if slices.Equal(got, want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("member %d has %d bans, %v; want %d, %v; %+v, %q", slices.Index(members, m), len(got),
					got[:min(len(got), 8)], len(want), want[:min(len(want), 8)], m.b.Stats(), m.lines)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func group(t testing.TB, url string, n int) (all []*member) {
	for range n {
		all = append(all, newMember(t, url, 0))
	}
	return all
}

func TestBansAndLiftsAreShared(t *testing.T) {
	for _, c := range []struct {
		name string
		url  func() string
	}{
		{"server", func() string { return redistest.Start(t).URL() }},
		{"cluster", func() string { return redistest.StartCluster(t, 0).URL() }},
		{"sentinel", func() string { return redistest.StartSentinels(t).URL() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := group(t, c.url(), 3)
			all[0].ban("192.0.2.1", "flood")
			await(t, all, "192.0.2.1 flood")
			all[1].ban("2001:db8::/64", "flood")
			all[2].ban("gptbot", "bots")
			await(t, all, "192.0.2.1 flood", "2001:db8::/64 flood", "gptbot bots")
			all[2].lift("192.0.2.0/24")
			await(t, all, "2001:db8::/64 flood", "gptbot bots")
			all[0].ban("192.0.2.1", "flood") // again
			await(t, all, "192.0.2.1 flood", "2001:db8::/64 flood", "gptbot bots")
			all[0].lift("gptbot")
			late := newMember(t, all[0].url, 0)
			await(t, append(all, late), "192.0.2.1 flood", "2001:db8::/64 flood")
			for _, m := range all {
				if s := m.b.Stats(); !s.Shared || s.Unreadable != 0 || len(m.lines) > 0 {
					t.Errorf("%+v, %q", s, m.lines)
				}
			}
		})
	}
}

// Two members that ban the same client at the same time make one ban, and a ban goes round once.
func TestOneBanOfTwoMembers(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	for i := range 50 {
		for _, m := range all {
			m.ban(fmt.Sprintf("192.0.2.%d", i), "flood")
		}
	}
	settle(all...)
	if got := server.Do("ZCARD", "fs1:shop:{bans}order"); got != "50" {
		t.Errorf("%s records, want 50", got)
	}
	// On a busy machine, some of the second ones end so much later that they count as longer.
	last := server.Do("EVAL", "return redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][2][2]", "1",
		"fs1:shop:{bans}bell")
	if got, err := strconv.Atoi(last); err != nil || got >= 100 {
		t.Errorf("%d changes, %v", got, err)
	}
	for _, m := range all {
		if len(m.banned()) != 50 {
			t.Errorf("%d bans", len(m.banned()))
		}
	}
}

func TestClocksOfMembersDoNotMatter(t *testing.T) {
	server := redistest.Start(t)
	all := []*member{newMember(t, server.URL(), time.Hour), newMember(t, server.URL(), -time.Hour)}
	all[0].banFor("192.0.2.1", "flood", 10*time.Minute)
	all[1].banFor("192.0.2.2", "flood", 20*time.Minute)
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	for i, m := range all {
		for client, least := range map[string]int{"192.0.2.1 flood": 600, "192.0.2.2 flood": 1200} {
			// A ban lasts up to a tenth longer than the rule says, and the test takes some seconds.
			if left := m.banned()[client]; left < least-30 || left > least*11/10 {
				t.Errorf("member %d: %s ends in %d s", i, client, left)
			}
		}
	}
	all[1].lift("192.0.2.1")
	await(t, all, "192.0.2.2 flood")
}

// A member that was cut off has a ban that an operator lifts meanwhile at another member.
func TestALiftWinsOverOlderBans(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 3)
	all[0].ban("10.1.2.3", "flood")
	await(t, all, "10.1.2.3 flood")
	all[2].kill()
	all[2].ban("10.1.2.4", "flood") // nobody else knows it
	all[1].lift("10.0.0.0/8")
	await(t, all[:2])
	all[2].ban("10.1.2.5", "flood") // after the lift
	all[2].run()
	await(t, all, "10.1.2.5 flood")
	late := newMember(t, server.URL(), 0)
	await(t, append(all, late), "10.1.2.5 flood")
}

// What the store loses comes back from the members, and without what was lifted.
func TestStoreIsLost(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 3)
	var want []string
	for i := range 2000 {
		client := fmt.Sprintf("198.18.%d.%d", i/256, i%256)
		all[i%3].ban(client, "flood")
		want = append(want, client+" flood")
	}
	all[0].ban("gptbot", "bots")
	want = append(want, "gptbot bots")
	all[0].ban("192.0.2.1", "flood")
	await(t, all, append(want, "192.0.2.1 flood")...)
	all[1].lift("192.0.2.1")
	await(t, all, want...)
	for _, lose := range []func(){
		func() { server.Do("FLUSHALL") },
		func() { server.Kill(); all[0].ban("203.0.113.1", "flood"); server.Run() },
	} {
		lose()
		all[0].kill()
		all[0].run()
		if all[0].banned()["203.0.113.1 flood"] > 0 && !slices.Contains(want, "203.0.113.1 flood") {
			want = append(want, "203.0.113.1 flood")
		}
		await(t, all, want...)
		// A member that knows nothing finds all in the store.
		late := newMember(t, server.URL(), 0)
		await(t, []*member{late}, want...)
		late.kill()
	}
}

// The store has the limit that a member has: the ban that ends first is removed.
func TestStoreIsBounded(t *testing.T) {
	server := redistest.Start(t)
	m := newMember(t, server.URL(), 0)
	for i := range 10 {
		m.banFor(fmt.Sprintf("192.0.2.%d", i), "flood", time.Duration(20-i)*time.Minute)
	}
	for server.Do("ZCARD", "fs1:shop:{bans}order") != "10" {
		time.Sleep(time.Millisecond)
	}
	client, err := m.store.Client()
	if err != nil {
		t.Fatal(err)
	}
	now := m.now()
	e, _ := m.b.banEntry(&fairshare.BanRecord{Client: fairshare.PrefixID(netip.MustParsePrefix("192.0.2.99/32")),
		Kind: fairshare.ByAddr, Rule: "flood", Number: 1, Began: now, Until: now.Add(time.Hour)}, now)
	if err := m.b.put.Exec(t.Context(), client, m.b.keys, e.args([]string{"4", "10"}, now)).Error(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"order", "ends"} {
		if got := server.Do("ZCARD", "fs1:shop:{bans}"+key); got != "4" {
			t.Errorf("%s has %s records, want 4", key, got)
		}
	}
	if got := server.Do("HLEN", "fs1:shop:{bans}records"); got != "4" {
		t.Errorf("%s records, want 4", got)
	}
	late := newMember(t, server.URL(), 0)
	await(t, []*member{late}, "192.0.2.0 flood", "192.0.2.1 flood", "192.0.2.2 flood", "192.0.2.99 flood")
}

// A ban that has ended is in the store no longer.
func TestEndedBansAreRemoved(t *testing.T) {
	server := redistest.Start(t)
	m := newMember(t, server.URL(), 0)
	m.banFor("192.0.2.1", "flood", 50*time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	m.ban("192.0.2.2", "flood")
	for server.Do("HLEN", "fs1:shop:{bans}records") != "1" || server.Do("ZCARD", "fs1:shop:{bans}ends") != "1" {
		time.Sleep(time.Millisecond)
	}
}

// A user of the store without the rights that bans need is reported, and nothing else stops.
func TestMissingRights(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "default", "-xread")
	m := newMember(t, server.URL(), 0)
	m.ban("192.0.2.1", "flood")
	has := func(text string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.lines, func(line string) bool { return strings.Contains(line, text) })
	}
	for !has("bans are not shared: store") || !has("NOPERM") {
		time.Sleep(time.Millisecond)
	}
	server.Do("ACL", "SETUSER", "default", "+xread")
	for !has("bans are shared again") {
		time.Sleep(time.Millisecond)
	}
	await(t, []*member{newMember(t, server.URL(), 0)}, "192.0.2.1 flood")
}

// The model: a client is banned if some member has banned it after the last lift that covers it, while
// members come and go and the store loses all that it has. At rest, all members have what the model has.
func TestRandomSchedules(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			server.Do("FLUSHALL")
			rnd := rand.New(rand.NewPCG(seed, 7))
			all := group(t, server.URL(), 3)
			for range 150 {
				m := all[rnd.IntN(3)]
				switch what := rnd.IntN(20); {
				case what < 10:
					m.ban(fmt.Sprintf("192.0.%d.%d", rnd.IntN(3), rnd.IntN(6)), "flood")
				case what < 13 && m.end != nil:
					client := fmt.Sprintf("192.0.%d.%d", rnd.IntN(3), rnd.IntN(6))
					if rnd.IntN(2) == 0 {
						client = fmt.Sprintf("192.0.%d.0/24", rnd.IntN(3))
					}
					m.lift(client)
				case what < 16 && m.end == nil:
					m.run()
				case what < 16:
					m.kill()
				case what == 16:
					server.Do("FLUSHALL")
				default:
					time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
				}
			}
			for _, m := range all {
				if m.end == nil {
					m.run()
				}
			}
			want := map[string]bool{}
			for _, m := range all {
				for i := range m.made {
					ban := &m.made[i]
					key, _ := fairshare.NewBanKey(ban.Kind, ban.Client)
					if !slices.ContainsFunc(lifted(all), func(l Lift) bool {
						return !ban.Began.After(l.At) && key.Within(l.Client)
					}) {
						want[ban.Client.String()+" flood"] = true
					}
				}
			}
			await(t, all, slices.Collect(maps.Keys(want))...)
			time.Sleep(3 * bellWait)
			await(t, append(all, newMember(t, server.URL(), 0)), slices.Collect(maps.Keys(want))...)
		})
	}
}

// lifted returns what operators have lifted.
func lifted(all []*member) (lifts []Lift) {
	for _, m := range all {
		lifts = append(lifts, m.wanted...)
	}
	return lifts
}

// BenchmarkUntilKnown measures how long it takes until another member has a ban in force.
func BenchmarkUntilKnown(b *testing.B) {
	server := redistest.Start(b)
	from, to := newMember(b, server.URL(), 0), newMember(b, server.URL(), 0)
	from.ban("192.0.2.1", "flood")
	for to.bans.Len() == 0 { // both have read all
		time.Sleep(time.Millisecond)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		at := time.Now()
		from.ban(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "flood")
		for to.bans.Len() <= i+1 {
			time.Sleep(50 * time.Microsecond)
		}
		took = append(took, time.Since(at))
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

// Of 100,000 bans none is lost while the store is killed and comes back empty, hangs, and members are killed in turn.
func TestNoBanIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; runs without -short")
	}
	server := redistest.Start(t)
	all := group(t, server.URL(), 3)
	const rounds, each = 20, 5000
	for round := range rounds {
		m := all[round%3]
		for i := range each {
			m.banFor(fmt.Sprintf("10.%d.%d.%d", round, i/250, i%250), "flood", time.Hour)
			if i%1000 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		switch round % 4 {
		case 0:
			server.Kill() // while bans are on their way
			server.Run()
		case 1:
			m.kill() // its registry has its bans
			all[(round+1)%3].banFor(fmt.Sprintf("10.99.0.%d", round), "flood", time.Hour)
			m.run()
		case 2:
			server.Stop()
			time.Sleep(300 * time.Millisecond)
			server.Continue()
		}
	}
	const want = rounds*each + rounds/4
	for i, m := range append(all, newMember(t, server.URL(), 0)) {
		for end := time.Now().Add(time.Minute); m.bans.Len() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("member %d has %d bans of %d; %+v", i, m.bans.Len(), want, m.b.Stats())
			}
		}
	}
}
