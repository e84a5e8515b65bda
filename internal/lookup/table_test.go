package lookup

import (
	"net/netip"
	"testing"
	"time"
)

// No flood of addresses pushes out one that is confirmed, nor addresses that
// their owner gave names one that is looked for.
func TestConfirmedAddressesStay(t *testing.T) {
	tab := newTable[string](1 << 12)
	const end = int64(time.Hour)
	keep := make(map[netip.Addr]rank)
	for n := range 500 {
		addr, r := v6(n, 10, 50), preferred
		keep[addr] = r
		tab.put(0, &entry[string]{addr: addr, rank: r, until: end})
	}
	for n := range 100_000 {
		tab.put(1, &entry[string]{addr: v4(n, 1000, 100), rank: rank(n % 2), until: 2 * end})
	}
	for addr := range keep {
		if e := tab.find(addr); e == nil || e.addr != addr {
			t.Fatalf("%v is forgotten", addr)
		}
	}
	used := 0
	for i := range tab.places {
		if tab.places[i].entry.Load() != nil {
			used++
		}
	}
	if used != len(tab.places) {
		t.Errorf("%d of %d places are used", used, len(tab.places))
	}
	// Once they end, they give way.
	for n := range 100_000 {
		tab.put(end, &entry[string]{addr: v4(n, 1000, 100), rank: confirmed, until: 2 * end})
	}
	for addr := range keep {
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
