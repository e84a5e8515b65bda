package reports

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func options() Options {
	return Options{Now: func() time.Time { return start },
		Wall:   func(t time.Time) time.Time { return t.Add(time.Hour) },
		Client: func(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) },
		Person: func(r *httpguard.Report) bool { return r.Request.Header != nil },
		Failed: func(err error) { panic(err) }}
}

// A tally is what is known of all equal reports.
type tally struct {
	n, bytes    int64
	took        time.Duration
	first, last time.Time
	person      bool
}

func (t tally) add(u tally) tally {
	if t.n == 0 {
		return u
	}
	if u.first.Before(t.first) {
		t.first = u.first
	}
	if u.last.After(t.last) {
		t.last = u.last
	}
	return tally{t.n + u.n, t.bytes + u.bytes, t.took + u.took, t.first, t.last, t.person || u.person}
}

// A book counts all reports under their text: it is slow and obviously right.
type book struct {
	mu            sync.Mutex
	groups, paths map[string]tally
	biggest       int
}

func newBook() *book { return &book{groups: map[string]tally{}, paths: map[string]tally{}} }

func senderText(s *Sender) string {
	return fmt.Sprint(s.Addr, s.Via, s.Client, s.Proxy, s.Bot.Name, s.Bot.State, s.Owner, s.Fleet, s.Method, " ",
		s.Host, " ", s.UserAgent)
}

func (b *book) Refused(g *Refusals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprint(senderText(&g.Sender), g.RuleName(), g.Limit, g.Action, g.Ban, g.Ceiling, g.DryRun, g.Room,
		g.Status, g.ID)
	b.groups[key] = b.groups[key].add(tally{n: g.N, first: g.First, last: g.Last, person: g.Person})
	n := int64(0)
	for _, p := range g.Paths {
		b.paths[key+p.Path] = b.paths[key+p.Path].add(tally{n: p.N})
		n += p.N
	}
	if n != g.N || g.Latest() != g.Paths[len(g.Paths)-1] {
		panic("the paths are not those of the group")
	}
	b.biggest = max(b.biggest, len(g.Paths))
}

func (b *book) Passed(g *Passages) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := "passed " + senderText(&g.Sender)
	b.groups[key] = b.groups[key].add(tally{n: int64(len(g.Requests)), first: g.First, last: g.Last})
	for _, p := range g.Requests {
		path := fmt.Sprint(key, p.Path, p.Status)
		b.paths[path] = b.paths[path].add(tally{n: 1, bytes: p.Bytes, took: p.Took + p.CPU})
	}
}

// random returns a report and a completion with few or many different values.
func random(r *rand.Rand, rules []fairshare.Rule) (*httpguard.Report, *httpguard.Completion) {
	some := func(n int, texts ...string) string {
		if n = r.IntN(n); n < len(texts) {
			return texts[n]
		}
		return texts[0]
	}
	few := 1 + r.IntN(2)*200
	req := &fairshare.Request{Time: start.Add(time.Duration(r.IntN(1e6))), Method: some(20, "GET", "POST", "CONNECT"),
		Addr: netip.AddrFrom4([4]byte{203, 0, 113, byte(r.IntN(few))}),
		Host: some(9, "a.example", "b.example"), UserAgent: some(9, "curl", "", strings.Repeat("x", 3000)),
		Path:  some(9, "/", fmt.Sprint("/", r.IntN(9)), "user:secret@a.example:443", strings.Repeat("y", 1500)),
		Query: some(9, "", "a=b", strings.Repeat("z", 600)), Fleet: some(9, "", "fleet-1"), Proxy: r.IntN(9) == 0,
		Owner: fairshare.Owner{ASN: uint32(r.IntN(2))},
		Bot:   fairshare.Bot{Name: some(9, "", "googlebot"), State: fairshare.BotState(r.IntN(2))}}
	if r.IntN(9) == 0 {
		req.Via = netip.MustParseAddr("10.0.0.1")
	}
	if r.IntN(99) == 0 {
		req.Header = http.Header{"Cookie": {"a=b"}}
	}
	report := &httpguard.Report{Request: req, DryRun: r.IntN(9) == 0, WaitingRoom: r.IntN(9) == 0,
		Status: 429 + r.IntN(2), ID: "0123456789",
		Finding: fairshare.Finding{Action: fairshare.Refuse, Ban: fairshare.BanState(r.IntN(3))}}
	if n := r.IntN(len(rules) + 1); n < len(rules) {
		report.Finding.Rule, report.Finding.Limit = &rules[n], rules[n].Limit
	}
	return report, &httpguard.Completion{Client: httpguard.Client{Addr: req.Addr, Via: req.Via, Proxy: req.Proxy,
		Bot: req.Bot}, Method: req.Method, Host: req.Host, Path: req.Path, UserAgent: req.UserAgent, Time: req.Time,
		Took: time.Duration(r.IntN(9)), CPU: time.Duration(r.IntN(9)), Status: 200 + r.IntN(2), Bytes: int64(r.IntN(9)),
		Owner: req.Owner, Fleet: req.Fleet}
}

// Whatever is reported at once by many goroutines, recorders get the same sums as from one call for each.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	got, want := newBook(), newBook()
	c := New(options(), got)
	rules := []fairshare.Rule{{Name: "a", Limit: &fairshare.Limit{N: 1}}, {Name: "b"}}
	stop := make(chan struct{})
	var reporters, reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				c.Flush()
			}
		}
	})
	for n := range 8 {
		reporters.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			for range 3000 {
				report, completion := random(r, rules)
				if r.IntN(2) == 0 {
					c.Refused(report)
					g := OfReport(report)
					g.Person = report.Request.Fleet == "" && report.Request.Header != nil
					c.complete(&g.Sender)
					want.Refused(g)
				} else {
					c.Passed(completion)
					g := OfCompletion(completion)
					c.complete(&g.Sender)
					want.Passed(g)
				}
			}
		})
	}
	reporters.Wait()
	close(stop)
	reader.Wait()
	c.Flush()
	if !maps.Equal(got.groups, want.groups) || !maps.Equal(got.paths, want.paths) {
		for key, w := range want.groups {
			if g := got.groups[key]; g != w {
				t.Fatalf("%.200s: %+v, want %+v", key, g, w)
			}
		}
		t.Errorf("%d groups and %d paths, want %d and %d", len(got.groups), len(got.paths), len(want.groups),
			len(want.paths))
	}
	for _, key := range []string{"CONNECT", "a.example:443"} {
		found := false
		for path := range got.paths {
			if strings.Contains(path, "CONNECT") && strings.Contains(path, "secret") {
				t.Fatalf("a password is kept: %s", path)
			}
			found = found || strings.Contains(path, key)
		}
		if !found {
			t.Errorf("no path has %q", key)
		}
	}
}

// A list has the groups that a recorder got.
type list struct {
	mu      sync.Mutex
	refused []Refusals
	passed  []Passages
}

// all returns what was handed on so far.
func (l *list) all() ([]Refusals, []Passages) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused, l.passed
}

func (l *list) Refused(g *Refusals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	copied := *g
	copied.Paths = nil
	for _, p := range g.Paths {
		path := *p
		copied.Paths = append(copied.Paths, &path)
	}
	l.refused = append(l.refused, copied)
}

func (l *list) Passed(g *Passages) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed = append(l.passed, *g)
}

func report(addr, path string, at time.Duration) *httpguard.Report {
	return &httpguard.Report{Request: &fairshare.Request{Addr: netip.MustParseAddr(addr), Method: "GET", Path: path,
		Query: at.String(), Time: start.Add(at)}, RetryAfter: int64(at),
		Finding: fairshare.Finding{Action: fairshare.Refuse, Tally: fairshare.Tally{Used: int64(at)}}}
}

// Refusals of one client are one group. Those with the same path, one after the other, are one path.
func TestEqualRefusalsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got list
		c := New(options(), &got)
		c.shards = c.shards[:1]
		for i, path := range []string{"/a", "/a", "/b", "/a"} {
			c.Refused(report("203.0.113.9", path, time.Duration(10-i)))
		}
		c.Refused(report("203.0.113.8", "/a", 1))
		c.Passed(&httpguard.Completion{Path: "/", Time: start})
		if refused, _ := got.all(); refused != nil {
			t.Fatal("refusals were handed on at once")
		}
		time.Sleep(Delay)
		synctest.Wait()
		refused, passed := got.all()
		if len(refused) != 2 || len(passed) != 1 || !passed[0].Reported.Equal(start) {
			t.Fatalf("%+v, %+v", refused, passed)
		}
		g := &refused[0]
		if g.N != 4 || g.First != start.Add(7) || g.Last != start.Add(10) || g.ClockAhead != time.Hour ||
			g.Client != netip.MustParsePrefix("203.0.113.9/32") || g.Method != "GET" {
			t.Errorf("%+v", g)
		}
		var paths []Refused
		for _, p := range g.Paths {
			paths = append(paths, *p)
		}
		if g.Time != start.Add(10) || g.RetryAfter != 10 || g.Tally.Used != 10 {
			t.Errorf("the first request is %v, %d, %+v", g.Time, g.RetryAfter, g.Tally)
		}
		if want := []Refused{
			{Path: "/a", N: 2, Query: "10ns", Time: start.Add(9), Tally: fairshare.Tally{Used: 9}},
			{Path: "/b", N: 1, Query: "8ns", Time: start.Add(8), Tally: fairshare.Tally{Used: 8}},
			{Path: "/a", N: 1, Query: "7ns", Time: start.Add(7), Tally: fairshare.Tally{Used: 7}},
		}; !reflect.DeepEqual(paths, want) {
			t.Errorf("%+v", paths)
		}
		// A batch has nothing of the one before.
		c.Refused(report("203.0.113.9", "/b", 1))
		c.Flush()
		refused, _ = got.all()
		if g := &refused[2]; g.N != 1 || len(g.Paths) != 1 || g.Paths[0].Query != "1ns" {
			t.Errorf("%+v", g)
		}
		time.Sleep(10 * Delay)
		synctest.Wait()
		if refused, _ = got.all(); len(refused) != 3 {
			t.Error("a batch was handed on twice")
		}
	})
}

// Requests that are more than a second apart are not in one group, in whatever order they are reported.
func TestGroupsLastASecond(t *testing.T) {
	var got list
	c := New(options(), &got)
	c.shards = c.shards[:1]
	for _, ms := range []time.Duration{5000, 4500, 5400, 5600, 4000, 3_600_000, 5500} {
		c.Refused(report("203.0.113.9", "/", ms*time.Millisecond))
	}
	c.Flush()
	refused, _ := got.all()
	var spans [][3]int64
	for _, g := range refused {
		spans = append(spans, [3]int64{g.N, g.First.Sub(start).Milliseconds(), g.Last.Sub(start).Milliseconds()})
	}
	want := [][3]int64{{4, 4500, 5500}, {1, 5600, 5600}, {1, 4000, 4000}, {1, 3_600_000, 3_600_000}}
	if !reflect.DeepEqual(spans, want) {
		t.Errorf("%v, want %v", spans, want)
	}
}

// A panic while a request is looked at leaves a collector that works.
func TestPanicOfPerson(t *testing.T) {
	var got list
	o, panics := options(), true
	o.Person = func(*httpguard.Report) bool {
		if panics {
			panics = false
			panic("a header")
		}
		return true
	}
	c := New(o, &got)
	func() {
		defer func() {
			if v := recover(); v != "a header" {
				t.Errorf("the panic was %v", v)
			}
		}()
		c.Refused(report("203.0.113.9", "/a", 0))
	}()
	c.Flush()
	c.Refused(report("203.0.113.9", "/b", 0))
	c.Flush()
	refused, _ := got.all()
	if len(refused) != 2 || refused[0].N != 1 || refused[0].Person || refused[0].Latest().Path != "/a" ||
		refused[1].N != 1 || !refused[1].Person || refused[1].Latest().Path != "/b" {
		t.Errorf("%+v", refused)
	}
}

// A panicker is a recorder that panics at a path.
type panicker struct{ list }

func (p *panicker) Refused(g *Refusals) {
	if g.Latest().Path == "/panic" {
		panic("a path")
	}
	p.list.Refused(g)
}

// A recorder that panics gets no request twice. Neither the timer nor the request that fills a batch panics.
func TestPanicOfRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got panicker
		var failed []error
		o := options()
		o.Failed = func(err error) { failed = append(failed, err) }
		c := New(o, &got)
		c.shards = c.shards[:1]
		for i, end := range []func(){
			c.Flush,
			func() { time.Sleep(Delay); synctest.Wait() },
			func() {
				for i := range groups {
					c.Refused(report(fmt.Sprint("203.0.113.", 10+i), "/", 0))
				}
			},
		} {
			c.Refused(report("203.0.113.1", "/panic", 0))
			end()
			if len(failed) != i+1 || !strings.Contains(failed[i].Error(), "a path") ||
				!strings.Contains(failed[i].Error(), "panicker") {
				t.Fatalf("case %d: %v", i, failed)
			}
			c.Refused(report("203.0.113.2", "/", 0))
			c.Flush()
		}
		time.Sleep(2 * Delay)
		synctest.Wait()
		n := int64(0)
		refused, _ := got.all()
		for _, g := range refused {
			n += g.N
		}
		if n != 3+1 || len(failed) != 3 { // what came after each panic, and the one for which a batch had no space
			t.Errorf("%d refusals, %v", n, failed)
		}
	})
}

// What was handed on does not stay in memory: a rule belongs to a whole policy.
func TestBatchesAreEmptied(t *testing.T) {
	var got list
	c := New(options(), &got)
	c.shards = c.shards[:1]
	for range 3 {
		of := report("203.0.113.9", "/a", 0)
		of.Finding.Rule, of.Finding.Limit = &fairshare.Rule{Name: "a"}, &fairshare.Limit{N: 1}
		c.Refused(of)
	}
	c.Passed(&httpguard.Completion{Path: "/", UserAgent: "curl", Time: start})
	c.Flush()
	b := c.shards[0].batch
	for i := range b.refused.groups {
		g := &b.refused.groups[i]
		g.Paths = nil
		if !reflect.ValueOf(*g).IsZero() {
			t.Errorf("%+v", g)
		}
		p := &b.passed.groups[i]
		p.Requests = nil
		if !reflect.ValueOf(*p).IsZero() {
			t.Errorf("%+v", p)
		}
	}
	for i := range events {
		if b.refusal[i] != (refusal{}) || b.passage[i] != (passage{}) {
			t.Fatalf("%+v, %+v", b.refusal[i], b.passage[i])
		}
	}
}

// A shard that is full hands on what it has: no report waits for memory, and none is lost.
func TestMemoryIsBounded(t *testing.T) {
	for name, of := range map[string]func(i int) *httpguard.Report{
		"clients": func(i int) *httpguard.Report {
			return report(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String(), "/", 0)
		},
		"paths": func(i int) *httpguard.Report { return report("203.0.113.9", fmt.Sprint("/", i), 0) },
		"texts": func(i int) *httpguard.Report {
			return report("203.0.113.9", fmt.Sprint(i%2, strings.Repeat("x", mostText-10)), 0)
		},
	} {
		var got list
		c := New(options(), &got)
		c.shards = c.shards[:1]
		for i := range 10_000 {
			c.Refused(of(i))
			shard := &c.shards[0]
			shard.mu.Lock()
			if n := cap(shard.texts); n != textBytes {
				t.Fatalf("%s: %d bytes", name, n)
			}
			shard.mu.Unlock()
		}
		c.shards[0].mu.Lock()
		defer c.shards[0].mu.Unlock()
		handed := int64(0)
		refused, _ := got.all()
		for i := range refused {
			handed += refused[i].N
		}
		if handed < 10_000-events {
			t.Errorf("%s: %d were handed on without a flush", name, handed)
		}
	}
}

func TestMergingAllocatesNothing(t *testing.T) {
	c := New(options())
	refused, passed := report("203.0.113.9", "/", 0), &httpguard.Completion{Path: "/", Time: start}
	if n := testing.AllocsPerRun(1000, func() {
		c.Refused(refused)
		c.Passed(passed)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRefused(b *testing.B) {
	c := New(options())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := report("203.0.113.9", "/shop/articles", 0)
		r.Request.UserAgent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
		for pb.Next() {
			c.Refused(r)
		}
	})
}
