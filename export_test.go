package fairshare

import (
	"hash/maphash"
	"net/netip"
	"time"
)

// Ban bans n clients by the guard's first rule.
func Ban(g *Guard, n uint32, addr func(uint32) netip.Addr, now time.Time) {
	r := &g.rules[0]
	for i := range n {
		var key BanKey
		appendAddr(key[:0], ByAddr, addr(i), g.bits4, g.bits6)
		g.bans.CountRefusal(&Refusal{Key: key, Rule: r.banID, Terms: r.Ban, At: now, Bits4: g.bits4,
			Bits6: g.bits6}, true)
	}
}

// ProvisionalClients is exported for tests.
const ProvisionalClients = provisionalClients

// SameQuery reports whether two queries count as one for DistinctQueries.
func SameQuery(g *Guard, a, b string) bool {
	seed := g.history.counted.open().seed
	hash := func(query string) uint64 {
		d := &decision{guard: g, req: &Request{Path: "/", Query: query}}
		return d.queryHash(seed)
	}
	return hash(a) == hash(b)
}

// CountedCells is exported for tests.
const CountedCells = countedCells

// CountedTable is exported for tests.
type CountedTable = countedTable

// CountPage marks page number n as counted.
func CountPage(c *CountedTable, n uint64, at time.Time, window time.Duration) {
	c.open().add(pageMark(c, n), at, window)
}

// HasPage reports whether page number n was counted less than a window ago.
func HasPage(c *CountedTable, n uint64, now time.Time, window time.Duration) bool {
	return c.open().has(pageMark(c, n), now, window)
}

func pageMark(c *CountedTable, n uint64) uint64 { return maphash.Comparable(c.open().seed, n) }
