package livepolicy

import (
	"context"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/setup"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/share"
	"fairshare/sqlregistry"
)

func TestQueueReport(t *testing.T) {
	const young, hour, day = 6, 1, 0
	stats := func(s share.Stats, of map[int]share.Class) share.Stats {
		for i, class := range of {
			class.Age = map[int]time.Duration{hour: time.Hour, day: 24 * time.Hour}[i]
			s.Classes[i] = class
		}
		return s
	}
	was := stats(share.Stats{}, map[int]share.Class{hour: {Turns: 100, Waited: 10, Refused: 5, Expired: 1, Gone: 3},
		young: {Turns: 7}})
	for _, test := range []struct {
		now  share.Stats
		dry  bool
		want string
	}{
		{was, false, ""}, // nobody had to wait since
		{stats(share.Stats{}, map[int]share.Class{hour: {Turns: 150, Waited: 10, Refused: 5, Expired: 1, Gone: 3},
			young: {Turns: 9}}), true, ""},
		{stats(share.Stats{Capacity: 8, Inside: 8, Waiting: 2, LongestWait: 2100 * time.Millisecond},
			map[int]share.Class{hour: {Turns: 150, Waited: 30, Refused: 5, Expired: 1}, young: {Turns: 9, Waited: 1}}),
			false,
			"busy: of 52 requests 21 waited (2.1s at most); 8 of 8 slots in use, 2 wait"},
		{stats(share.Stats{Capacity: 8}, map[int]share.Class{day: {Refused: 1},
			hour: {Turns: 150, Waited: 30, Refused: 5, Expired: 3}, young: {Turns: 7, Refused: 20}}), false,
			"busy: of 73 requests 20 waited (0s at most), 23 were refused (20 of new clients, 2 of clients known for 1h, " +
				"1 of clients known for 24h); 0 of 8 slots in use, 0 wait"},
		// In dry run those that would have been refused had their turn.
		{stats(share.Stats{Capacity: 8, Inside: 9}, map[int]share.Class{
			hour:  {Turns: 150, Waited: 30, Refused: 6, Expired: 1},
			young: {Turns: 27, Refused: 20}}), true,
			"busy: of 70 requests 20 would have waited, 21 would have been refused (20 of new clients, " +
				"1 of clients known for 1h); 9 of 8 slots in use, 0 wait"},
	} {
		if got := queueLine(test.now, was, test.dry); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestQueueFollowsThePolicyFile(t *testing.T) {
	const rest = "\nupstream: http://127.0.0.1:3000\nrules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	o := queueOptions(openPolicy(t, `
dry_run: true
clients: {ipv4_prefix: 25}
share: {capacity: auto, min: 4, max: 256, by: [addr, host], wait: 3s, queue: 7, known_after: 2m, weights: {labels: {partner: 4}, bots: {googlebot: 2}}}
`+rest).Current())
	by := []fairshare.KeyPart{{Kind: fairshare.ByAddr}, {Kind: fairshare.ByHost}}
	if o.Capacity != 0 || o.Min != 4 || o.Max != 256 || !slices.Equal(o.By, by) || o.Wait != 3*time.Second ||
		o.Queue != 7 || !o.Ages || !o.DryRun ||
		!maps.Equal(o.Labels, map[string]float64{"partner": 4}) ||
		!maps.Equal(o.Bots, map[string]float64{"googlebot": 2}) {
		t.Errorf("%+v", o)
	}
	// The queue identifies clients as limits do.
	one, two := &fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1")},
		&fairshare.Request{Addr: netip.MustParseAddr("192.0.2.2")}
	if a, b := o.Key(nil, one, by[0]), o.Key(nil, two, by[0]); string(a) != string(b) ||
		o.Client(two.Addr) != netip.MustParsePrefix("192.0.2.0/25") {
		t.Errorf("keys %x, %x; client %v", a, b, o.Client(two.Addr))
	}

	for _, none := range []string{"share: {capacity: 8, wait: 0s}", "share: {capacity: 8, queue: 0}"} {
		if o := queueOptions(openPolicy(t, none+rest).Current()); o.Capacity != 8 || o.Wait >= 0 || o.Queue >= 0 ||
			o.DryRun {
			t.Errorf("%s: %+v", none, o)
		}
	}
}

// A request with a turn keeps it when the share has changed, or was removed and
// added again: a second queue would let twice as many requests in.
func TestReloadKeepsTheQueue(t *testing.T) {
	const rest = "\nupstream: http://127.0.0.1:3000\nrules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	p := openPolicy(t, "share: 1"+rest)
	use := func(text string) *share.Queue {
		t.Helper()
		next, err := p.Prepare(t.Context(), parseFile(t, text))
		if err != nil {
			t.Fatal(err)
		}
		p.Use(t.Context(), next, func() {})
		return next.Share
	}
	p.useQueue(p.Current())
	q := p.Current().Share
	claim := q.Claim(&fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1"), Time: time.Now()})
	if _, err := q.Wait(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	if use(rest) != nil {
		t.Error("requests wait although the upstream is not shared")
	}
	if again := use("share: 3" + rest); again != q || q.Stats().Capacity != 3 ||
		q.Stats().Inside != 1 {
		t.Errorf("another queue, %+v", again.Stats())
	}
}

// A client that was known before a restart has the same age after it.
func TestQueueKnowsTheClientsOfTheRegistry(t *testing.T) {
	store, err := openStore(t.Context(), filepath.Join(t.TempDir(), setup.RegistryFile), sqlregistry.Options{},
		func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	client, err := fairshare.ParseClientID("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := store.Write(t.Context(), registry.Batch{Clients: []registry.ClientDelta{{Client: client,
		FirstSeen: now.Add(-time.Hour), LastSeen: now}}}); err != nil {
		t.Fatal(err)
	}
	p := openPolicy(t, "share: 8\nrules: []\nsites:\n"+
		"  a.example: http://127.0.0.1:3000\n  b.example: http://127.0.0.1:3001\n")
	reads := &countedReads{records: store}
	p.state = &State{store: reads}
	p.readFirstSeen(true, p.useQueue(p.Current()))
	p.readFirstSeen(false, p.useQueue(p.Current())) // all queues know the clients by now
	p.readingHistory.Wait()
	if n := reads.firstSeen.Load(); n != 1 {
		t.Errorf("the clients were read %d times, want once for all queues", n)
	}
	queues := p.Current().queues()
	if len(queues) != 3 {
		t.Fatalf("%d queues", len(queues))
	}
	for site, q := range queues {
		for _, addr := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
			claim := q.Claim(&fairshare.Request{Addr: netip.MustParseAddr(addr), Time: now})
			if _, err := q.Wait(t.Context(), &claim); err != nil {
				t.Fatal(err)
			}
		}
		if st := q.Stats().Classes; st[1].Turns != 1 || st[6].Turns != 2 {
			t.Errorf("site %q: %+v", site, st)
		}
	}
}

// countedReads counts how often the clients are read.
type countedReads struct {
	records
	firstSeen atomic.Int64
}

func (c *countedReads) FirstSeen(ctx context.Context, seen func(fairshare.ClientID, time.Time) bool) error {
	c.firstSeen.Add(1)
	return c.records.FirstSeen(ctx, seen)
}

func parseFile(t *testing.T, text string) *policyfile.File {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// openPolicy opens a policy without a state folder.
func openPolicy(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := New(t.Context(), parseFile(t, text), Options{Clock: httpguard.NewClock(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		p.Close()
	})
	return p
}

func queueOptions(rt *Runtime) share.Options { return new(Policy).queueOptions(rt) }
