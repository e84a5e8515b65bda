package lookup

import (
	"context"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A flood of addresses never replaces a confirmed address. Addresses to which an attacker gave
// names never replace a preferred one.
func TestConfirmedAddressesAreNotReplaced(t *testing.T) {
	tab := newTable[string](1 << 12)
	const end = int64(time.Hour)
	want := make(map[netip.Addr]rank)
	for n := range 500 {
		addr, r := v6(n, 10, 50), preferred
		want[addr] = r
		tab.put(0, &entry[string]{addr: addr, rank: r, until: end})
	}
	for n := range 100_000 {
		tab.put(1, &entry[string]{addr: v4(n, 1000, 100), rank: rank(n % 2), until: 2 * end})
	}
	for addr := range want {
		if e := tab.find(addr); e == nil || e.addr != addr {
			t.Fatalf("%v is forgotten", addr)
		}
	}
	used := 0
	for i := range tab.slots {
		if tab.slots[i].entry.Load() != nil {
			used++
		}
	}
	if used != len(tab.slots) {
		t.Errorf("%d of %d slots are used", used, len(tab.slots))
	}
	// Expired entries are replaced.
	for n := range 100_000 {
		tab.put(end, &entry[string]{addr: v4(n, 1000, 100), rank: confirmed, until: 2 * end})
	}
	for addr := range want {
		if tab.find(addr) != nil {
			t.Fatalf("%v is remembered", addr)
		}
	}
}

func TestTableReplacesItsOwn(t *testing.T) {
	tab := newTable[string](ways)
	for n := range ways {
		tab.put(0, &entry[string]{addr: v4(n, 1, 1), rank: preferred, until: 10})
	}
	for n := range ways {
		tab.put(0, &entry[string]{addr: v4(n, 1, 1), until: 20})
		if e := tab.find(v4(n, 1, 1)); e == nil || e.until != 20 {
			t.Errorf("%d: %+v", n, e)
		}
	}
}

// A flood of addresses with the longest possible names stays within the memory that the package
// comment states.
func TestMemoryIsBounded(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the second cycle sweeps the garbage that the first found
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r := open(t, Options{query: func(ctx context.Context, _ string, _ dnsmessage.Type) (records, error) {
		<-ctx.Done()
		return records{}, ctx.Err()
	}})
	for n := range 60_000 {
		names := []string{strings.Repeat("n", maxNamed/2), strings.Repeat("m", maxNamed/2)}
		r.names.mu.Lock()
		r.names.remember(&entry[string]{addr: v4(n, 2000, 250), values: names, known: true, rank: preferred})
		r.names.mu.Unlock()
		r.Confirmed(v6(n, 2000, 250))
	}
	if s := r.Stats(); s.Waiting < maxWaiting || s.LookedUp < 60_000 {
		t.Errorf("%+v", s)
	}
	if grown := heap() - before; grown > 30<<20 {
		t.Errorf("%d bytes", grown)
	} else {
		t.Logf("%d bytes", grown)
	}
	runtime.KeepAlive(r)
}
