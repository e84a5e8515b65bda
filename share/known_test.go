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

func TestAgeCountsFromTheFirstRequest(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name     string
		at, want []time.Duration // of requests, and the ages then
	}{
		{"quarter seconds", []time.Duration{0, 200 * ms, 250 * ms, 9 * time.Minute},
			[]time.Duration{0, 0, 250 * ms, 9 * time.Minute}},
		{"minutes after ten of them", []time.Duration{0, 10 * time.Minute, 11*time.Minute + 59*time.Second},
			[]time.Duration{0, 10 * time.Minute, 11 * time.Minute}},
		{"at most two days", []time.Duration{0, day, 3 * day, 90 * day},
			[]time.Duration{0, day, 3 * day, 89 * day}},
		{"a break of 60 days", []time.Duration{0, 2 * day, 62 * day, 63 * day},
			[]time.Duration{0, 2 * day, 62 * day, 3 * day}},
		{"the clock was ahead", []time.Duration{time.Hour, 0, 70 * time.Minute, 0, 3 * time.Hour},
			[]time.Duration{0, 0, 10 * time.Minute, 10 * time.Minute, 2 * time.Hour}},
	} {
		k := newKnown(64)
		for i, at := range c.at {
			if got := k.seen(99, noon.Add(at), true); got != c.want[i] && (got < 2*day || c.want[i] < 2*day) {
				t.Errorf("%s: request %d: %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}

func TestKnownFromTheRegistry(t *testing.T) {
	k := newKnown(64)
	k.record(1, noon.Add(-time.Hour), noon)
	k.record(2, noon.Add(-time.Minute), noon)
	k.record(3, noon.Add(time.Hour), noon) // the clock was ahead
	k.seen(4, noon, true)
	k.record(4, noon.Add(-9*time.Minute), noon)  // the client was already seen
	k.record(2, noon.Add(-30*time.Second), noon) // the earlier time is kept
	k.record(5, noon.Add(-400*24*time.Hour), noon)
	for hash, want := range map[uint64]time.Duration{
		1: time.Hour, 2: time.Minute, 3: 0, 4: 9 * time.Minute, 5: 48 * time.Hour,
	} {
		if got := k.seen(hash, noon, true); got != want {
			t.Errorf("client %d is known for %v, want %v", hash, got, want)
		}
	}
}

// A flood of new addresses replaces no old client. It replaces no client that returned while there
// are clients that came once.
func TestFloodRemovesNoOldClients(t *testing.T) {
	k := newKnown(1 << 12)
	r := rand.New(rand.NewPCG(1, 2))
	var old, regular []uint64
	for range 400 {
		hash := r.Uint64()
		k.record(hash, noon.Add(-time.Hour), noon)
		old = append(old, hash)
		hash = r.Uint64()
		k.seen(hash, noon, true)
		k.seen(hash, noon.Add(time.Minute), true)
		regular = append(regular, hash)
	}
	for i := range 200_000 {
		k.seen(r.Uint64(), noon.Add(2*time.Minute+time.Duration(i)*ms), true)
	}
	lost := func(of []uint64, at time.Duration) (n int) {
		for _, hash := range of {
			if k.seen(hash, noon.Add(at), true) == 0 {
				n++
			}
		}
		return n
	}
	if n := lost(old, 6*time.Minute); n > 0 {
		t.Errorf("%d of %d old clients were forgotten", n, len(old))
	}
	if n := lost(regular, 10*time.Minute); n > len(regular)/50 {
		t.Errorf("%d of %d that come back were forgotten", n, len(regular))
	}
}

// In a set where all clients are old, a new client is not stored until one of them was not seen for
// a day.
func TestOldClientIsReplacedAfterADay(t *testing.T) {
	for _, c := range []struct {
		at     time.Duration
		stored bool
	}{{time.Hour, false}, {24*time.Hour - time.Minute, false}, {24 * time.Hour, true}} {
		k := newKnown(setSize)
		for hash := range uint64(setSize) {
			k.record(hash, noon.Add(-time.Hour), noon.Add(time.Duration(hash)*time.Hour))
			k.seen(hash, noon.Add(time.Duration(hash)*time.Hour), true)
		}
		k.seen(100, noon.Add(c.at), true)
		if got := k.seen(100, noon.Add(c.at+time.Second), true); got > 0 != c.stored {
			t.Errorf("after %v a new client is known for %v", c.at, got)
		}
		for hash := range uint64(setSize) {
			if got := k.seen(hash, noon.Add(c.at+time.Second), true); got > time.Minute != (hash > 0 || !c.stored) {
				t.Errorf("after %v client %d is known for %v", c.at, hash, got)
			}
		}
	}
}

// A million clients of a registry fit.
func TestKnownStoresAMillionClients(t *testing.T) {
	n, opts := 1_000_000, Options{Capacity: 8, Ages: true}
	if raceDetector {
		n, opts.Remember = 10_000, 20_000
	}
	q := New(opts)
	first := time.Now().Add(-time.Hour)
	prefix := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	for i := range n {
		q.Known(prefix(i), first, time.Now())
	}
	terms, lost := q.terms.Load(), 0
	for i := range n {
		if q.known.seen(terms.client(prefix(i), netip.Addr{}), time.Now(), true) < time.Hour {
			lost++
		}
	}
	if part := float64(lost) / float64(n); part > 0.03 {
		t.Errorf("%.1f%% of %d are lost", 100*part, n)
	}
	if len(q.known.table) != q.known.sets*setSize || len(q.known.table) > 4*n {
		t.Errorf("%d cells", len(q.known.table))
	}
}

func TestKnownConcurrently(t *testing.T) {
	k := newKnown(1 << 8)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for i := range 20_000 {
				k.seen(r.Uint64N(1000), noon.Add(time.Duration(i)*50*ms), true)
				k.record(r.Uint64N(1000), noon, noon.Add(time.Duration(i)*50*ms))
			}
		})
	}
	wg.Wait()
	// A set may contain a client twice only after a race, until the next request.
	for i := range k.table {
		if state, name, _ := unpack(k.table[i].Load()); state != 0 && name >= 1000 {
			t.Fatal(fmt.Sprint("cell ", i, " is of client ", name))
		}
	}
}
