package fleets

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"fairshare"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

const (
	chrome  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"
)

// An event is one request with its answer.
type event struct {
	at      time.Duration
	addr    netip.Addr
	agent   string
	method  string
	path    string
	header  http.Header
	owner   fairshare.Owner
	bot     fairshare.Bot
	labels  []string
	status  int    // 0: 200
	kind    string // the Content-Type
	refused bool   // it gets no answer of the site
	name    string // of the clients, for the results
}

// traffic is the traffic of a site.
type traffic struct {
	events []event
	random *rand.Rand
}

func newTraffic() *traffic { return &traffic{random: rand.New(rand.NewPCG(1, 2))} }

func (tr *traffic) add(e event) { tr.events = append(tr.events, e) }

// anywhere returns address number i of many networks.
func anywhere(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + i>>14), byte(i >> 8 & 63), byte(i), byte(1 + i>>6&127)})
}

// A reader opens pages of a site and fetches their assets.
type reader struct {
	name   string
	addr   netip.Addr
	agent  string
	from   time.Duration
	pages  int
	entry  string // "" for any page
	assets string // the status of assets; "" for 200, "none" for no requests
	status int    // of pages
}

func (tr *traffic) read(r reader) {
	at := r.from
	for n := range r.pages {
		path := fmt.Sprintf("/article/%d", tr.random.IntN(500))
		if n == 0 {
			path = cmp.Or(r.entry, path)
		}
		tr.add(event{at: at, addr: r.addr, agent: cmp.Or(r.agent, firefox), path: path, name: r.name, status: r.status})
		for i := range 5 {
			e := event{at: at + 300*time.Millisecond, addr: r.addr, agent: cmp.Or(r.agent, firefox), name: r.name,
				path: fmt.Sprintf("/assets/%d.css", i), kind: "text/css"}
			switch r.assets {
			case "none":
				continue
			case "503":
				e.status = 503
			case "refused":
				e.refused = true
			}
			if n == 0 {
				tr.add(e)
			}
		}
		at += time.Duration(10+tr.random.IntN(40)) * time.Second
	}
}

// readers adds people who read the site all the time.
func (tr *traffic) readers(n int, length time.Duration) {
	for i := range n {
		agent := []string{chrome, firefox}[i%2]
		tr.read(reader{name: "reader", addr: netip.AddrFrom4([4]byte{81, byte(i), 7, 9}), agent: agent,
			from: length * time.Duration(i) / time.Duration(n), pages: 8})
	}
}

// swarm adds n clients with a few requests each, spread over a time.
func (tr *traffic) swarm(n int, from, length time.Duration, change func(i int, e *event)) {
	for i := range n {
		at := from + time.Duration(tr.random.Int64N(int64(length)))
		for k := range 3 {
			e := event{at: at + time.Duration(k)*7*time.Second, addr: anywhere(i), agent: chrome, name: "swarm",
				path: fmt.Sprintf("/article/%d", tr.random.IntN(100_000))}
			if change != nil {
				change(i, &e)
			}
			tr.add(e)
		}
	}
}

// A result is what a Finder said of some traffic.
type result struct {
	found, ended []Fleet
	requests     map[string]int // for pages, by name
	members      map[string]int // of these
	names        map[string]bool
}

// run plays the traffic to a Finder.
func (tr *traffic) run(t testing.TB, f *Finder) *result {
	t.Helper()
	slices.SortStableFunc(tr.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	res := &result{requests: map[string]int{}, members: map[string]int{}, names: map[string]bool{}}
	for i := range tr.events {
		e := &tr.events[i]
		now := start.Add(e.at)
		req := fairshare.Request{Time: now, Addr: e.addr, Method: cmp.Or(e.method, "GET"), UserAgent: e.agent,
			Path: e.path, Owner: e.owner, Bot: e.bot}
		if e.header != nil {
			req.Header = e.header
		}
		req.Override.Labels = e.labels
		f.Arrived(&req)
		if kindOf(req.Method, e.path) == page {
			res.requests[e.name]++
		}
		if req.Fleet != "" {
			res.members[e.name]++
			res.names[req.Fleet] = true
		}
		if !e.refused {
			f.Answered(&Answer{Addr: e.addr, Method: req.Method, Path: e.path, Status: cmp.Or(e.status, 200),
				Type: cmp.Or(e.kind, "text/html; charset=utf-8")}, now)
		}
		found, ended := f.Changes(now)
		res.found, res.ended = append(res.found, found...), append(res.ended, ended...)
	}
	return res
}

func (res *result) String() string {
	var b strings.Builder
	for _, fl := range res.found {
		fmt.Fprintf(&b, "\n\tfound %s: %s; %s", fl.Name, fl.Shared(), fl.Evidence())
	}
	return fmt.Sprintf("members %v of requests for pages %v%s", res.members, res.requests, b.String())
}

func TestSwarmBecomesAFleet(t *testing.T) {
	tests := []struct {
		name   string
		change func(i int, e *event)
		fleets int     // at most
		least  float64 // of the swarm's requests are a member's
	}{
		{"one user agent", nil, 1, 0.9},
		{"the user agent of readers, one entry page", func(i int, e *event) {
			e.agent, e.path = firefox, "/article/7"
		}, 1, 0.9},
		{"twenty user agents", func(i int, e *event) { e.agent = chrome + fmt.Sprint(i%20) }, 20, 0.7},
		{"random user agents", func(i int, e *event) { e.agent = chrome + fmt.Sprint(i) }, 1, 0.5},
		{"random user agents of one owner", func(i int, e *event) {
			e.agent = chrome + fmt.Sprint(i)
			e.owner = fairshare.Owner{ASN: 64500, Name: "Example Hosting", Type: "hosting"}
			e.header = http.Header{"Accept-Language": {fmt.Sprint(i)}}
		}, 1, 0.75},
		{"one in ten fetches an asset", func(i int, e *event) {
			if i%10 == 0 && e.at%2 == 0 {
				e.path, e.kind = "/assets/1.css", "text/css"
			}
		}, 1, 0.75},
		{"assets that do not exist", func(i int, e *event) {
			if e.at%2 == 0 {
				e.path, e.status = fmt.Sprintf("/%d.css", i), 404
			}
		}, 1, 0.3},
		{"pages under the names of assets", func(i int, e *event) {
			if e.at%2 == 0 {
				e.path = fmt.Sprintf("/article/%d.css", i)
			}
		}, 1, 0.3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTraffic()
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, tt.change)
			res := tr.run(t, New(Options{}))
			if len(res.found) == 0 || len(res.names) > tt.fleets {
				t.Errorf("%d fleets were found, and members had %d names, want 1 to %d: %v", len(res.found), len(res.names),
					tt.fleets, res)
			}
			if share := float64(res.members["swarm"]) / float64(res.requests["swarm"]); share < tt.least {
				t.Errorf("%.2f of the swarm's requests were a member's, want at least %.2f: %v", share, tt.least, res)
			}
			// Of a reader, at most the first page of a visit is a member's.
			if n := res.members["reader"]; n > 30 {
				t.Errorf("%d requests of readers were a member's: %v", n, res)
			}
		})
	}
}

func TestThesePeopleAndProgramsAreNoFleet(t *testing.T) {
	tests := []struct {
		name string
		fill func(tr *traffic)
	}{
		{"a flash crowd", func(tr *traffic) {
			tr.readers(60, time.Hour)
			for i := range 4000 {
				tr.read(reader{name: "crowd", addr: anywhere(i), agent: chrome, entry: "/news",
					from: 30*time.Minute + time.Duration(i)*30*time.Millisecond, pages: 1 + i%3})
			}
		}},
		{"a flash crowd whose assets a busy site does not answer", func(tr *traffic) {
			tr.readers(60, time.Hour)
			for i := range 4000 {
				tr.read(reader{name: "crowd", addr: anywhere(i), agent: chrome, entry: "/news",
					from: 30 * time.Minute, pages: 2, assets: []string{"503", "refused"}[i%2]})
			}
		}},
		{"a flash crowd whose pages a busy site does not answer", func(tr *traffic) {
			tr.readers(60, time.Hour)
			for i := range 4000 {
				tr.read(reader{name: "crowd", addr: anywhere(i), agent: chrome, entry: "/news",
					from: 30 * time.Minute, pages: 2, assets: "none", status: 503})
			}
		}},
		{"assets on another host", func(tr *traffic) {
			for i := range 6000 {
				tr.read(reader{name: "crowd", addr: anywhere(i), agent: chrome,
					from: time.Duration(i) * time.Hour / 6000, pages: 3, assets: "none"})
			}
		}},
		{"assets on another host, and an attacker who fetches some", func(tr *traffic) {
			for i := range 6000 {
				tr.read(reader{name: "crowd", addr: anywhere(i), agent: chrome,
					from: time.Duration(i) * time.Hour / 6000, pages: 3, assets: "none"})
			}
			for i := range 200 {
				tr.read(reader{name: "attacker", addr: netip.AddrFrom4([4]byte{99, byte(i), 1, 1}), agent: firefox,
					from: 20*time.Minute + time.Duration(i)*10*time.Second, pages: 1})
			}
		}},
		{"an interface for programs in browsers of other sites", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) {
				e.path, e.kind = "/position", "application/json"
			})
		}},
		{"programs", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) { e.agent = "okhttp/4.12.0" })
		}},
		{"feed readers", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) {
				e.path, e.kind = "/feed", "application/rss+xml"
			})
		}},
		{"a bot that is known by name", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) {
				e.bot = fairshare.Bot{Name: "googlebot", State: fairshare.Verified}
			})
		}},
		{"clients that operators have labeled", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) { e.labels = []string{"partner"} })
		}},
		{"a proxy with few networks", func(tr *traffic) {
			tr.readers(60, time.Hour)
			tr.swarm(4000, 30*time.Minute, 10*time.Minute, func(i int, e *event) {
				e.addr = netip.AddrFrom4([4]byte{62, 3, byte(i % 15), byte(i / 15)})
			})
		}},
		{"readers only", func(tr *traffic) { tr.readers(2000, time.Hour) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTraffic()
			tt.fill(tr)
			res := tr.run(t, New(Options{}))
			for name, n := range res.members {
				t.Errorf("%d requests of %s were a member's: %v", n, name, res)
			}
		})
	}
}

func TestFleetEndsFiveMinutesAfterItsLastRequest(t *testing.T) {
	tr := newTraffic()
	tr.readers(120, 100*time.Minute)
	tr.swarm(1000, 30*time.Minute, 10*time.Minute, nil)
	tr.swarm(1000, 80*time.Minute, 10*time.Minute, nil)
	tr.add(event{at: 100 * time.Minute, addr: anywhere(1), agent: "curl/8.5.0", path: "/"})
	res := tr.run(t, New(Options{}))
	if len(res.found) != 2 || len(res.ended) != 2 || res.found[0].Name != res.found[1].Name {
		t.Fatalf("found %d and ended %d fleets, want two of one name: %v", len(res.found), len(res.ended), res)
	}
	for i, from := range []time.Duration{30 * time.Minute, 80 * time.Minute} {
		last := start.Add(from + 10*time.Minute + 14*time.Second + 20*time.Second)
		if fl := res.ended[i]; fl.Since.Before(start.Add(from)) || fl.Last.After(last) ||
			fl.Last.Before(last.Add(-50*time.Second)) || fl.Addresses < 780 || fl.Addresses > 1280 ||
			fl.Requests < 2700 || fl.Requests > 3100 || fl.Gap != 7*time.Second {
			t.Errorf("fleet %d: %+v", i, fl)
		}
	}
}

func TestFloodOfUserAgentsDoesNotHideAFleet(t *testing.T) {
	tr := newTraffic()
	tr.readers(60, time.Hour)
	tr.swarm(2000, 30*time.Minute, 10*time.Minute, nil)
	for i := range 100_000 {
		at := 25*time.Minute + time.Duration(i)*10*time.Millisecond
		tr.add(event{at: at, addr: netip.AddrFrom4([4]byte{200, byte(i >> 8), byte(i), 1}),
			agent: fmt.Sprintf("Mozilla/5.0 (%x) Chrome/1%d", i*7919, i), path: "/", name: "flood"})
	}
	res := tr.run(t, New(Options{}))
	if share := float64(res.members["swarm"]) / float64(res.requests["swarm"]); share < 0.7 {
		t.Errorf("%.2f of the swarm's requests were a member's: %v", share, res)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	f := New(Options{})
	f.Arrived(&fairshare.Request{Time: start, Addr: anywhere(1), Method: "GET", Path: "/", UserAgent: chrome})
	bytes := uintptr(len(f.clients))*unsafe.Sizeof(client{}) + uintptr(len(f.heads))*unsafe.Sizeof(head{}) +
		uintptr(len(f.slots))*unsafe.Sizeof(slot{}) + mostFleets*unsafe.Sizeof(fleet{}) + unsafe.Sizeof(*f)
	if bytes > 7<<20+1<<19 {
		t.Errorf("a Finder takes %d bytes, documented are 7.5 MiB", bytes)
	} else {
		t.Logf("%.2f MiB", float64(bytes)/(1<<20))
	}
}

func TestArrivedAllocatesNothing(t *testing.T) {
	f := New(Options{})
	tr := newTraffic()
	tr.readers(60, time.Hour)
	tr.swarm(1000, 30*time.Minute, 10*time.Minute, nil)
	tr.run(t, f)
	req := fairshare.Request{Time: start.Add(time.Hour), Addr: anywhere(1), Method: "GET", Path: "/", UserAgent: chrome,
		Header: http.Header{"Accept": {"text/html"}}}
	if n := testing.AllocsPerRun(100, func() {
		f.Arrived(&req)
		f.Answered(&Answer{Addr: req.Addr, Method: "GET", Path: "/", Status: 200, Type: "text/html"}, req.Time)
		req.Addr = req.Addr.Next()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArrived(b *testing.B) {
	f := New(Options{})
	header := http.Header{"Accept": {"text/html,application/xhtml+xml"}, "Accept-Language": {"de-DE,de;q=0.9"},
		"Accept-Encoding": {"gzip, deflate, br"}, "Sec-Fetch-Site": {"none"}}
	for _, bb := range []struct {
		name    string
		clients int
		path    string
	}{
		{"a client again", 1, "/article/1"},
		{"an asset", 1, "/a.css"},
		{"a new client", 1 << 24, "/article/1"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			req := fairshare.Request{Time: start, Method: "GET", Path: bb.path, UserAgent: chrome, Header: header}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := i % bb.clients
				req.Addr = netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
				req.Time = start.Add(time.Duration(i) * 10 * time.Microsecond)
				if f.Arrived(&req); req.Fleet != "" {
					b.Fatal("the client belongs to a fleet")
				}
			}
		})
	}
}

// The first answer to an asset may be 404 while others are on their way. Then a person still leaves the fleet.
func TestAMissingAssetDoesNotHideTheOthers(t *testing.T) {
	tr := newTraffic()
	tr.readers(60, time.Hour)
	tr.swarm(1000, 20*time.Minute, 40*time.Minute, nil)
	f := New(Options{})
	if res := tr.run(t, f); len(res.found) != 1 {
		t.Fatalf("the swarm is not one fleet: %s", res)
	}
	now := start.Add(time.Hour)
	for i, c := range []struct {
		name    string
		answers []Answer // to assets that were asked for at once, in order
		member  bool     // at the next page
	}{
		{"found", []Answer{{Path: "/a.css", Status: 200, Type: "text/css"}}, false},
		{"missing", []Answer{{Path: "/a.css", Status: 404, Type: "text/html"}}, true},
		{"missing, then found", []Answer{{Path: "/a.css", Status: 404, Type: "text/html"},
			{Path: "/b.js", Status: 200, Type: "text/javascript"}}, false},
		{"missing, then not modified", []Answer{{Path: "/a.css", Status: 404, Type: "text/html"},
			{Path: "/b.js", Status: 304}}, false},
		{"found, then missing", []Answer{{Path: "/b.js", Status: 200, Type: "text/javascript"},
			{Path: "/a.css", Status: 404, Type: "text/html"}}, false},
		{"two missing", []Answer{{Path: "/a.css", Status: 404, Type: "text/html"},
			{Path: "/b.js", Status: 200, Type: "text/html"}}, true},
	} {
		addr := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		arrive := func(path string) fairshare.Request {
			req := fairshare.Request{Time: now, Addr: addr, Method: "GET", Path: path, UserAgent: chrome}
			f.Arrived(&req)
			return req
		}
		arrive("/")
		f.Answered(&Answer{Addr: addr, Method: "GET", Path: "/", Status: 200, Type: "text/html"}, now)
		for _, a := range c.answers {
			arrive(a.Path)
		}
		for _, a := range c.answers {
			a.Addr, a.Method = addr, "GET"
			f.Answered(&a, now)
		}
		if next := arrive("/next"); (next.Fleet != "") != c.member {
			t.Errorf("%s: the next page is one of the fleet %q", c.name, next.Fleet)
		}
	}
}
