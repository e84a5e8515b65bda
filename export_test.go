package fairshare

import (
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
