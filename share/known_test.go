package share

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func newKnown(n int) *known {
	k := new(known)
	k.size(n)
	return k
}

func TestStandingNeedsTime(t *testing.T) {
	const after = 10 * time.Minute
	for _, c := range []struct {
		name string
		at   []time.Duration // of requests
		want string          // y: has standing
	}{
		{"once", []time.Duration{0}, "n"},
		{"returned too soon", []time.Duration{0, time.Second, 9 * time.Minute}, "nnn"},
		{"just long enough", []time.Duration{0, 10*time.Minute - time.Second/4, 10 * time.Minute}, "nny"},
		{"much later", []time.Duration{0, 48 * time.Hour, 96 * time.Hour}, "nyy"},
		{"the clock was ahead", []time.Duration{time.Hour, 0, 20 * time.Minute, 2 * time.Hour}, "nnny"},
	} {
		k := newKnown(64)
		got := ""
		for _, at := range c.at {
			if k.seen(99, noon.Add(at), after) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if k := newKnown(64); !k.seen(1, noon, 0) || k.table != nil {
		t.Error("without KnownAfter every client must have standing, and no table is needed")
	}
}

func TestKnownFromTheRegistry(t *testing.T) {
	const after = 10 * time.Minute
	k := newKnown(64)
	k.record(1, noon.Add(-time.Hour), noon, after)
	k.record(2, noon.Add(-time.Minute), noon, after)
	k.record(3, noon.Add(time.Hour), noon, after) // the clock was ahead
	k.seen(4, noon, after)
	k.record(4, noon.Add(-9*time.Minute), noon, after)  // the client was already seen
	k.record(2, noon.Add(-30*time.Second), noon, after) // the earlier time is kept
	for hash, want := range map[uint64]time.Duration{1: 0, 2: 9 * time.Minute, 3: 10 * time.Minute, 4: time.Minute} {
		if want > 0 && k.seen(hash, noon.Add(want-time.Second), after) {
			t.Errorf("client %d has standing before %v", hash, want)
		}
		if !k.seen(hash, noon.Add(want), after) {
			t.Errorf("client %d has no standing after %v", hash, want)
		}
	}
}

// A flood of new addresses replaces no client with standing. It replaces no client that returned
// while there are clients that came once.
func TestFloodDoesNotRemoveStanding(t *testing.T) {
	const after = 10 * time.Minute
	k := newKnown(1 << 12)
	r := rand.New(rand.NewPCG(1, 2))
	var old, regular []uint64
	for range 400 {
		hash := r.Uint64()
		k.record(hash, noon.Add(-time.Hour), noon, after)
		old = append(old, hash)
		hash = r.Uint64()
		k.seen(hash, noon, after)
		k.seen(hash, noon.Add(time.Minute), after)
		regular = append(regular, hash)
	}
	for i := range 200_000 {
		k.seen(r.Uint64(), noon.Add(2*time.Minute+time.Duration(i)*ms), after)
	}
	lost := func(of []uint64, at time.Duration) (n int) {
		for _, hash := range of {
			if !k.seen(hash, noon.Add(at), after) {
				n++
			}
		}
		return n
	}
	if n := lost(old, 6*time.Minute); n > 0 {
		t.Errorf("%d of %d have lost their standing", n, len(old))
	}
	if n := lost(regular, 10*time.Minute); n > len(regular)/50 {
		t.Errorf("%d of %d that come back were forgotten", n, len(regular))
	}
}

// In a set where all clients have standing, a new client is not stored until one of them was not
// seen for a day.
func TestStandingEndsWhenItsSlotIsNeeded(t *testing.T) {
	const after = time.Second
	for _, c := range []struct {
		at         time.Duration
		remembered bool
	}{{time.Hour, false}, {24*time.Hour - 2*time.Second, false}, {24 * time.Hour, true}} {
		k := newKnown(setSize)
		for hash := range uint64(setSize) {
			k.record(hash, noon.Add(-time.Hour), noon.Add(time.Duration(hash)*time.Hour), after)
		}
		k.seen(100, noon.Add(c.at), after)
		if got := k.seen(100, noon.Add(c.at+after), after); got != c.remembered {
			t.Errorf("after %v a new client is remembered: %v", c.at, got)
		}
		for hash := range uint64(setSize) {
			if got := k.seen(hash, noon.Add(c.at+after), after); got != (hash > 0 || !c.remembered) {
				t.Errorf("after %v client %d has standing: %v", c.at, hash, got)
			}
		}
	}
}

// A million clients of a registry fit.
func TestKnownStoresAMillionClients(t *testing.T) {
	n, opts := 1_000_000, Options{Capacity: 8, KnownAfter: 10 * time.Minute}
	if raceDetector {
		n, opts.Remember = 10_000, 20_000
	}
	q := New(opts)
	first := time.Now().Add(-time.Hour)
	prefix := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range n {
		q.Known(prefix(i), first)
	}
	terms, lost := q.terms.Load(), 0
	for i := range n {
		if !q.known.seen(terms.known(prefix(i), netip.Addr{}), time.Now(), 10*time.Minute) {
			lost++
		}
	}
	if part := float64(lost) / float64(n); part > 0.03 {
		t.Errorf("%.1f%% of %d are lost", 100*part, n)
	}
	if len(q.known.table) != q.known.sets*setSize || len(q.known.table) > 4*n {
		t.Errorf("%d words", len(q.known.table))
	}
}

func TestKnownConcurrently(t *testing.T) {
	k := newKnown(1 << 8)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for i := range 20_000 {
				k.seen(r.Uint64N(1000), noon.Add(time.Duration(i)*ms), time.Second)
				k.record(r.Uint64N(1000), noon, noon.Add(time.Duration(i)*ms), time.Second)
			}
		})
	}
	wg.Wait()
	// A set may contain a client twice only after a race, until the next request.
	for i := range k.table {
		if state, name, _ := unpack(k.table[i].Load()); state != 0 && name >= 1000 {
			t.Fatal(fmt.Sprint("word ", i, " is of client ", name))
		}
	}
}
