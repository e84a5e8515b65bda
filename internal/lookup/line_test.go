package lookup

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Results for one address at the given times: how long an answer is valid,
// when it is renewed, and what happens while the server does not answer.
func TestValidityOfResults(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	const yes, no, fail, silent = "confirmed", "nothing", "SERVFAIL", "silence"
	type step struct {
		at      time.Duration
		dns     string // its answer from then on
		now     string // the immediate result of Confirmed
		after   string // the result after a look-up
		lookups int    // look-ups so far
	}
	const pending = "pending"
	const h, m, s = time.Hour, time.Minute, time.Second
	for name, story := range map[string][]step{
		"confirmed for a day": {
			{0, yes, pending, yes, 1},
			{17 * h, no, yes, yes, 1},           // no look-up in the first 18 hours
			{24*h + 10*s, no, pending, no, 2},   // no request in time: the result has expired
			{24*h + 20*s, yes, no, no, 2},       // for an hour
			{25*h + 20*s, yes, pending, yes, 3}, // then there is a new look-up
		},
		"renewed in time": {
			{0, yes, pending, yes, 1},
			{18*h + s, yes, yes, yes, 2},
			{35 * h, yes, yes, yes, 2},
			{41 * h, yes, yes, yes, 3},
		},
		"renewed with another answer": {
			{0, yes, pending, yes, 1},
			{18*h + s, no, yes, no, 2},
		},
		"held while there is silence, for two days": {
			{0, yes, pending, yes, 1},
			{23 * h, fail, yes, yes, 2},
			{25 * h, silent, yes, yes, 3},
			{47 * h, silent, yes, yes, 4},
			{48*h + 10*s, silent, pending, pending, 5},
		},
		"held until the server answers": {
			{0, yes, pending, yes, 1},
			{23 * h, silent, yes, yes, 2},
			{30 * h, no, yes, no, 3},
		},
		"nothing for an hour": {
			{0, no, pending, no, 1},
			{59 * m, yes, no, no, 1},
			{61 * m, yes, pending, yes, 2},
		},
		"a failure says nothing, and is repeated ever later": {
			{0, fail, pending, pending, 1},
			{59 * s, yes, pending, pending, 1},
			{61 * s, fail, pending, pending, 2},
			{3 * m, fail, pending, pending, 2},
			{4 * m, fail, pending, pending, 3},
			{7 * m, fail, pending, pending, 3},
			{9 * m, fail, pending, pending, 4},
			{13 * m, fail, pending, pending, 4},
			{15 * m, fail, pending, pending, 5},
			{19 * m, yes, pending, pending, 5},
			{21 * m, yes, pending, yes, 6},
		},
		"a failure after nothing does not say nothing": {
			{0, no, pending, no, 1},
			{61 * m, silent, pending, pending, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var dns string
				model := newModel(t, func(netip.Addr) behaviour {
					mu.Lock()
					defer mu.Unlock()
					return behaviour{latency: 100 * time.Millisecond, name: dns == yes, fails: dns == fail,
						hangs: dns == silent}
				})
				r := open(t, Options{query: model.query})
				defer r.Close()
				result := func() string {
					names, known := r.Confirmed(addr)
					switch {
					case known && len(names) == 1 && names[0] == modelName(addr):
						return yes
					case known && names == nil:
						return no
					case !known && names == nil:
						return pending
					}
					t.Fatalf("%q, %v", names, known)
					return ""
				}
				start := time.Now()
				for _, step := range story {
					time.Sleep(time.Until(start.Add(step.at)))
					mu.Lock()
					dns = step.dns
					mu.Unlock()
					if got := result(); got != step.now {
						t.Errorf("%v: %s, want %s", step.at, got, step.now)
					}
					time.Sleep(3 * time.Second)
					if got := result(); got != step.after {
						t.Errorf("%v, once looked up: %s, want %s", step.at, got, step.after)
					}
					if got := model.questionsAbout(addr); got != step.lookups {
						t.Errorf("%v: %d look-ups, want %d", step.at, got, step.lookups)
					}
				}
			})
		})
	}
}

// Renewals are served before new addresses, in the same network and in other networks.
func TestRenewalsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := netip.MustParseAddr("192.0.2.1")
		m := newModel(t, func(addr netip.Addr) behaviour {
			return behaviour{latency: 100 * time.Millisecond, name: addr == old}
		})
		r := open(t, Options{query: m.query})
		defer r.Close()
		r.Wait(t.Context(), old)
		time.Sleep(20 * time.Hour)
		for n := range 4000 {
			r.Confirmed(v4(n, 1000, 4))
		}
		for n := range 90 {
			r.Confirmed(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + n)}))
		}
		r.Confirmed(old) // the last request
		time.Sleep(500 * time.Millisecond)
		if got := m.questionsAbout(old); got != 2 {
			t.Errorf("asked for %d times, want 2: %+v", got, r.Stats())
		}
	})
}

// One look-up serves all concurrent calls for an address.
func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("192.0.2.1")
		m := newModel(t, func(netip.Addr) behaviour { return behaviour{latency: 100 * time.Millisecond, name: true} })
		r := open(t, Options{query: m.query})
		defer r.Close()
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() {
				if names, known := r.Wait(t.Context(), addr); !known || len(names) != 1 {
					t.Errorf("%q, %v", names, known)
				}
			})
			r.Confirmed(addr)
		}
		all.Wait()
		if got := m.questionsAbout(addr); got != 1 {
			t.Errorf("%d look-ups", got)
		}
	})
}

// More calls wait at once than the queue can hold. Each gets its answer, within the usual bounds.
func TestManyCallsOfWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(addr netip.Addr) behaviour {
			return behaviour{latency: 20 * time.Millisecond, name: addr.Is4() && addr.As4()[3] == 1}
		})
		r := open(t, Options{query: m.query})
		defer r.Close()
		var all sync.WaitGroup
		for n := range 3000 {
			addr := v4(n, 100, 50)
			all.Go(func() {
				names, known := r.Wait(t.Context(), addr)
				if !known || (len(names) == 1) != (addr.As4()[3] == 1) {
					t.Errorf("%v: %q, %v", addr, names, known)
				}
			})
		}
		for n := range 6000 { // and other requests at the same time
			r.Confirmed(v6(n, 500, 20))
		}
		all.Wait()
		if s := r.Stats(); m.peak() > 96 || s.Waiting > maxWaiting || s.LookedUp < 3000 {
			t.Errorf("%d at once, %+v", m.peak(), s)
		}
	})
}

// A replay of a hundred thousand addresses does not wait for each of them while the server does not
// answer.
func TestSilentServerDoesNotDelayCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(netip.Addr) behaviour { return behaviour{name: true} })
		m.kill(true)
		r := open(t, Options{query: m.query})
		defer r.Close()
		start := time.Now()
		var all sync.WaitGroup
		for part := range 50 {
			all.Go(func() {
				for n := range 2000 {
					if _, known := r.Wait(t.Context(), v4(part*2000+n, 1000, 50)); known {
						t.Error("an answer")
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v: %+v", took, r.Stats())
		}
		m.kill(false)
		time.Sleep(recently)
		addr := netip.MustParseAddr("192.0.2.1")
		if _, known := r.Wait(t.Context(), addr); !known {
			t.Errorf("no answer once the server is back: %+v", r.Stats())
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(netip.Addr) behaviour { return behaviour{hangs: true} })
		r := open(t, Options{query: m.query})
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if names, known := r.Wait(ctx, netip.MustParseAddr("192.0.2.1")); known || names != nil {
			t.Errorf("%q, %v", names, known)
		}
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("it waited for %v", took)
		}
		start = time.Now()
		if names, known := r.Wait(t.Context(), netip.MustParseAddr("192.0.2.1")); known || names != nil {
			t.Errorf("%q, %v", names, known)
		}
		if took := time.Since(start); took > patience {
			t.Errorf("a look-up took %v", took)
		}
	})
}

// Close ends running and waiting look-ups; the bubble fails if a goroutine remains. After it,
// nothing is looked up and no call waits.
func TestCloseEndsAllLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(addr netip.Addr) behaviour {
			return behaviour{hangs: addr.As4()[0] != 192, latency: time.Millisecond, name: true}
		})
		r := open(t, Options{query: m.query, Lists: map[string]List{"l": {Zone: "list.example"}}})
		known := netip.MustParseAddr("192.0.2.1")
		r.Wait(t.Context(), known)
		var all sync.WaitGroup
		for n := range 2000 {
			all.Go(func() { r.Wait(context.Background(), v4(n, 500, 4)) })
		}
		synctest.Wait()
		start := time.Now()
		r.Close()
		all.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		if _, ok := r.Wait(context.Background(), v4(7, 500, 4)); ok {
			t.Error("an answer after the end")
		}
		if names := r.Hostnames(known); len(names) != 1 {
			t.Errorf("what was known is forgotten: %q", names)
		}
		r.Close()
	})
}

// After all look-ups no goroutine runs. Otherwise the bubble would never end.
func TestIdleResolverHasNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, func(netip.Addr) behaviour { return behaviour{latency: 20 * time.Millisecond, name: true} })
		r, err := New(Options{query: m.query, Lists: map[string]List{"l": {Zone: "list.example"}}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			r.Confirmed(v4(n, 10, 10))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := r.Stats(); s.LookedUp != 100 || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		// No Close.
	})
}

// A server that does not answer is logged once, and once when it answers again. A zone that does
// not answer is not logged.
func TestSilentServerIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging := netip.MustParsePrefix("20.0.0.0/8")
		m := newModel(t, func(addr netip.Addr) behaviour {
			return behaviour{latency: 20 * time.Millisecond, name: true, hangs: hanging.Contains(addr)}
		})
		var notes notebook
		r := open(t, Options{query: m.query, Log: notes.log, Server: "192.0.2.53"})
		defer r.Close()
		n := 0
		askFor := func(d time.Duration, first byte) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				n++
				r.Confirmed(netip.AddrFrom4([4]byte{first, byte(n >> 8), byte(n), 1}))
			}
		}
		askFor(5*time.Minute, 20)
		if got := notes.all(); len(got) != 0 {
			t.Errorf("a zone did not answer, and this was logged: %q", got)
		}
		m.kill(true)
		askFor(5*time.Minute, 60)
		m.kill(false)
		askFor(5*time.Minute, 70)
		got := notes.all()
		if len(got) != 2 || !strings.HasPrefix(got[0],
			"the DNS server 192.0.2.53:53 does not answer (nothing in 2s)") ||
			got[1] != "the DNS server 192.0.2.53:53 answers again" {
			t.Errorf("logged: %q", got)
		}
		// Failures while the server did not answer do not count against networks.
		r.Close()
		failing := 0
		for _, n := range r.names.queue.networks {
			if n.failing && !hanging.Contains(n.prefix.Addr()) {
				failing++
			}
		}
		if failing > 15 { // failures of the first seconds
			t.Errorf("%d networks are doubted for the server's silence", failing)
		}
	})
}

// The log also has the missing server if the program ends right after a failed look-up.
func TestSilentServerIsLoggedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes notebook
		r := open(t, Options{Log: notes.log, Server: "192.0.2.53",
			query: func(ctx context.Context, name string, kind dnsmessage.Type) (records, error) {
				time.Sleep(20 * time.Millisecond)
				return records{}, syscall.ECONNREFUSED
			}})
		if _, answered := r.Wait(t.Context(), netip.MustParseAddr("203.0.113.1")); answered {
			t.Error("an answer came from nowhere")
		}
		r.Close()
		if got := notes.all(); len(got) != 1 || !strings.HasPrefix(got[0],
			"the DNS server 192.0.2.53:53 does not answer (connection refused)") {
			t.Errorf("logged: %q", got)
		}
	})
}
