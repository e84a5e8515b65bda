package banexport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func ban(prefix string, until time.Time) Ban {
	return Ban{Prefix: netip.MustParsePrefix(prefix), Until: until, Rule: "rapid"}
}

// A memory is a Sink that remembers its bans.
type memory struct {
	mu sync.Mutex
	memoryState
	fail    error
	cleared bool
}

type memoryState struct {
	bans   []Ban
	calls  int
	checks int
}

// state returns what the sink remembers.
func (m *memory) state() memoryState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memoryState
}

func (m *memory) Name() string         { return "memory" }
func (m *memory) Every() time.Duration { return 0 }

func (m *memory) Apply(_ context.Context, bans []Ban, check bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if check {
		m.checks++
	}
	if m.fail == nil {
		m.bans = slices.Clone(bans)
	}
	return m.fail
}

func (m *memory) Clear(context.Context) error {
	m.cleared = true
	return nil
}

func TestExporterFollowsBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		bans := []Ban{ban("192.0.2.1/32", start.Add(time.Minute)), ban("192.0.2.2/32", time.Time{})}
		var logged []string
		sink := &memory{fail: errors.New("no permission")}
		e := New(Options{Sinks: []Sink{sink}, Max: 2, Now: time.Now,
			Bans: func() []Ban { mu.Lock(); defer mu.Unlock(); return slices.Clone(bans) },
			Log:  func(line string) { mu.Lock(); defer mu.Unlock(); logged = append(logged, line) }})
		sleep := func(d time.Duration) {
			mu.Lock() // the lines that the test has read are read before others come
			logged = slices.Clip(logged)
			mu.Unlock()
			time.Sleep(d)
			synctest.Wait()
		}
		sleep(20 * time.Second)
		if len(logged) != 1 || !strings.Contains(logged[0], "not handed to memory: no permission") ||
			sink.state().calls < 3 {
			t.Fatalf("an error is logged once and tried again: %d calls, logged %q", sink.state().calls, logged)
		}
		sink.mu.Lock()
		sink.fail = nil
		sink.mu.Unlock()
		sleep(20 * time.Second)
		if len(sink.state().bans) != 2 || len(logged) != 2 {
			t.Fatalf("%v, logged %q", sink.state().bans, logged)
		}
		time.Sleep(25 * time.Second) // the first has ended
		synctest.Wait()
		if len(sink.state().bans) != 1 || sink.state().bans[0].Prefix.String() != "192.0.2.2/32" {
			t.Fatalf("after its end: %v", sink.state().bans)
		}

		// Many changes are one call a second.
		calls := sink.state().calls
		for i := range 100 {
			mu.Lock()
			bans = []Ban{ban(fmt.Sprintf("192.0.2.%d/32", i+3), start.Add(time.Hour))}
			mu.Unlock()
			e.Changed()
			time.Sleep(20 * time.Millisecond)
		}
		sleep(2 * time.Second)
		if n := sink.state().calls - calls; n > 5 || sink.state().bans[0].Prefix.String() != "192.0.2.102/32" {
			t.Errorf("%d calls in 4 seconds, %v", n, sink.state().bans)
		}

		// Of too many bans, those that end last are exported.
		mu.Lock()
		bans = append(bans, ban("203.0.113.0/24", time.Time{}), ban("198.51.100.1/32", start.Add(time.Hour*2)))
		mu.Unlock()
		e.Changed()
		sleep(2 * time.Second)
		most := sink.state().bans
		if len(most) != 2 || most[0].Prefix.String() != "198.51.100.1/32" || len(logged) != 3 {
			t.Errorf("%v, logged %q", most, logged)
		}
		checks := sink.state().checks
		sleep(5 * time.Minute)
		if n := sink.state().checks - checks; n < 8 || n > 11 {
			t.Errorf("compared %d times in 5 minutes", n)
		}
		e.Close(false)
		e.Close(false)
		if !sink.cleared {
			t.Error("not cleared at the end")
		}
	})
}

// A stuck is a Sink that ignores its context for a while.
type stuck struct{ memory }

func (s *stuck) Apply(ctx context.Context, bans []Ban, check bool) error {
	time.Sleep(15 * time.Second)
	return s.memory.Apply(ctx, bans, check)
}

func TestASlowSinkDoesNotDelayTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var bans []Ban
		slow, quick := new(stuck), new(memory)
		e := New(Options{Sinks: []Sink{slow, quick}, Now: time.Now, Log: func(string) {},
			Bans: func() []Ban { mu.Lock(); defer mu.Unlock(); return slices.Clone(bans) }})
		time.Sleep(1500 * time.Millisecond)
		mu.Lock()
		bans = []Ban{ban("192.0.2.1/32", time.Time{})}
		mu.Unlock()
		e.Changed()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(quick.state().bans) != 1 || slow.state().calls != 0 {
			t.Errorf("after 2 seconds %v, %d calls of the slow one", quick.state().bans, slow.state().calls)
		}
		e.Close(false) // waits for the slow one
		if slow.state().calls != 1 || !slow.cleared || !quick.cleared {
			t.Errorf("%d calls, cleared %v and %v", slow.state().calls, slow.cleared, quick.cleared)
		}
	})
}

// reduced keeps exactly the addresses that are banned, each until the same time.
func TestReducedBansMeanTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1_800_000_000, 0)
	until := func(bans []Ban, addr netip.Addr) (last time.Time, found bool) {
		for _, b := range bans {
			if b.Prefix.Contains(addr) && (!found || compareEnds(b.Until, last) > 0) {
				last, found = b.Until, true
			}
		}
		return last, found
	}
	for range 300 {
		var all []Ban
		for range r.IntN(20) {
			bits := 24 + r.IntN(9)
			p, _ := netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(64))}).Prefix(bits)
			b := Ban{Prefix: p, Until: start.Add(time.Duration(r.IntN(5)) * time.Hour)}
			if r.IntN(10) == 0 {
				b.Until = time.Time{}
			}
			all = append(all, b)
		}
		got := reduced(slices.Clone(all))
		if !slices.IsSortedFunc(got, comparePrefixes) {
			t.Fatal("not sorted")
		}
		for i := range 70 {
			addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			wantEnd, want := until(all, addr)
			gotEnd, found := until(got, addr)
			if want != found || !wantEnd.Equal(gotEnd) {
				t.Fatalf("%v of %v: %v until %v, want %v until %v", addr, all, found, gotEnd, want, wantEnd)
			}
		}
		// The difference leads from one to the other.
		next := reduced(slices.DeleteFunc(slices.Clone(all), func(Ban) bool { return r.IntN(2) == 0 }))
		added, removed := difference(got, next)
		have := map[netip.Prefix]time.Time{}
		for _, b := range got {
			have[b.Prefix] = b.Until
		}
		for _, b := range removed {
			delete(have, b.Prefix)
		}
		for _, b := range added {
			have[b.Prefix] = b.Until
		}
		if len(have) != len(next) {
			t.Fatalf("%v, want %v", have, next)
		}
		for _, b := range next {
			if end, found := have[b.Prefix]; !found || !end.Equal(b.Until) {
				t.Fatalf("%v: %v, want %v", b.Prefix, end, b.Until)
			}
		}
	}
}

// A slow sink has failed for a while. Then it takes some bans in each call.
type portions struct{ memory }

func (s *portions) Apply(ctx context.Context, bans []Ban, check bool) error {
	s.mu.Lock()
	held := len(s.bans)
	s.mu.Unlock()
	if err := s.memory.Apply(ctx, bans[:min(len(bans), held+2)], check); err != nil {
		return err
	}
	if held+2 < len(bans) {
		return errMore
	}
	return nil
}

func TestPortionsAfterAnErrorComeEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bans []Ban
		for i := range 40 {
			bans = append(bans, ban(fmt.Sprintf("192.0.2.%d/32", i), time.Time{}))
		}
		sink := &portions{memory{fail: errors.New("no permission")}}
		e := New(Options{Sinks: []Sink{sink}, Now: time.Now, Log: func(string) {},
			Bans: func() []Ban { return slices.Clone(bans) }})
		defer e.Close(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		sink.mu.Lock()
		sink.fail = nil
		sink.mu.Unlock()
		time.Sleep(90 * time.Second) // the next attempt comes after a minute at most
		synctest.Wait()
		if n := len(sink.state().bans); n != len(bans) {
			t.Errorf("%d of %d bans after 90 seconds", n, len(bans))
		}
	})
}

// A sink may fail because of one ban only: a later one does not wait for the next attempt.
func TestANewBanDoesNotWaitForAnotherThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		bans := []Ban{ban("2001:db8::1/128", time.Time{})}
		sink := &memory{fail: errors.New("no IPv6")}
		e := New(Options{Sinks: []Sink{sink}, Now: time.Now, Log: func(string) {},
			Bans: func() []Ban { mu.Lock(); defer mu.Unlock(); return slices.Clone(bans) }})
		defer e.Close(false)
		time.Sleep(5*time.Minute + 10*time.Second)
		synctest.Wait()
		calls := sink.state().calls
		mu.Lock()
		bans = append(bans, ban("192.0.2.1/32", time.Time{}))
		mu.Unlock()
		e.Changed()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if n := sink.state().calls - calls; n != 1 {
			t.Errorf("%d calls in the 2 seconds after a new ban", n)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := sink.state().calls - calls; n < 4 || n > 7 {
			t.Errorf("%d calls in 5 minutes with an error", n)
		}
	})
}
