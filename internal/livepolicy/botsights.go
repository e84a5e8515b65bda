package livepolicy

import (
	"net/netip"
	"sync"
	"time"

	"fairshare"
	"fairshare/bots"

	"github.com/gaissmai/bart"
)

const (
	mostSights = 1 << 14          // addresses of one generation
	signedFor  = 24 * time.Hour   // how long an address counts that only a signature verified
	pendingFor = 10 * time.Minute // how long a ban is not exported because of a claim that is not checked yet
)

// botSights remembers addresses of bots, so that their bans are not exported. It is bounded,
// and safe for concurrent use. The zero botSights is ready.
type botSights struct {
	mu       sync.Mutex
	verified botAddrs
	pending  botAddrs // apart, because clients make up claims
}

// botAddrs are addresses in two generations: when the present one is full, the former one is
// forgotten.
type botAddrs struct{ present, former map[netip.Addr]botSight }

type botSight struct {
	bot string
	at  time.Time // of the last request; zero unless it was verified
}

func (a *botAddrs) put(addr netip.Addr, s botSight) {
	if _, known := a.present[addr]; !known && len(a.present) >= mostSights || a.present == nil {
		a.present, a.former = map[netip.Addr]botSight{}, a.present
	}
	a.present[addr] = s
}

// saw notes a request of a bot.
func (s *botSights) saw(addr netip.Addr, bot *fairshare.Bot, now time.Time) {
	if bot.State != fairshare.Verified && bot.State != fairshare.Pending || !addr.IsValid() {
		return
	}
	addr = addr.Unmap().WithZone("")
	s.mu.Lock()
	defer s.mu.Unlock()
	if bot.State == fairshare.Verified {
		s.verified.put(addr, botSight{bot.Name, now})
	} else {
		s.pending.put(addr, botSight{bot: bot.Name})
	}
}

// seenBots are the addresses of botSights at one time.
type seenBots struct {
	addrs    bart.Table[[]botSight]
	verifier *bots.Verifier
	now      time.Time
}

func (s *botSights) list(verifier *bots.Verifier, now time.Time) *seenBots {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &seenBots{verifier: verifier, now: now}
	for _, addrs := range []map[netip.Addr]botSight{s.verified.former, s.verified.present, s.pending.former,
		s.pending.present} {
		for addr, sight := range addrs {
			all.addrs.Modify(netip.PrefixFrom(addr, addr.BitLen()), func(old []botSight, _ bool) ([]botSight, bool) {
				return append(old, sight), false
			})
		}
	}
	return all
}

// reason says why a ban that began at a time is not exported; "" if bots do not speak against
// it. Bans of addresses do not hold for verified bots, but a firewall sees no bots.
func (s *seenBots) reason(prefix netip.Prefix, began time.Time) string {
	if s.verifier.Publishes(prefix) {
		return "it has published addresses of a bot"
	}
	pending := false
	for p, sights := range s.addrs.Subnets(prefix) {
		for _, sight := range sights {
			switch state := s.verifier.Claim(sight.bot, p.Addr()); {
			case state == fairshare.Verified, !sight.at.IsZero() &&
				(state == fairshare.Pending || s.now.Sub(sight.at) < signedFor):
				return "the bot " + sight.bot + " was seen there, and its address is verified"
			case state == fairshare.Pending:
				pending = true
			}
		}
	}
	if pending && s.now.Sub(began) < pendingFor {
		return "a client there may be a bot that is not verified yet: it is exported after " +
			"10 minutes unless it is verified"
	}
	return ""
}
