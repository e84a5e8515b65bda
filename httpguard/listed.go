package httpguard

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// A listWait bounds how requests wait for DNS lists. The zero listWait is ready to use.
type listWait struct {
	mu      sync.Mutex
	waiting int

	// Networks that have waited, in two generations: a fleet of many networks makes old ones forgotten, and
	// does not keep new ones from waiting.
	newer, older map[netip.Prefix]time.Time
}

const (
	mostListWaits = 64        // requests that wait at the same time
	mostWaited    = 4096      // networks of a generation
	waitAgain     = time.Hour // until a network may wait again
)

// begin reports whether a request of a network may wait at time now. Then end is to be
// called.
func (l *listWait) begin(of netip.Prefix, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, found := l.newer[of]
	if !found {
		at, found = l.older[of]
	}
	if found && now.Sub(at) < waitAgain || l.waiting == mostListWaits {
		return false
	}
	if l.newer == nil || len(l.newer) >= mostWaited {
		l.newer, l.older = map[netip.Prefix]time.Time{}, l.newer
	}
	l.newer[of] = now
	l.waiting++
	return true
}

func (l *listWait) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
}

// decide judges the request. If a rule waits for an answer of a DNS list, and the
// request would pass without it, the request waits and is judged again.
func (g *generation) decide(r *http.Request, vis *visit) (v fairshare.Verdict, gone bool, err error) {
	v, gone, err = g.decideNow(r, vis)
	if gone || err != nil || v.Action != fairshare.Allow || vis.req.Method == http.MethodGet {
		return v, gone, err
	}
	lookups, ok := g.Lookups.(fairshare.ListWaiter)
	if !ok {
		return v, false, nil
	}
	var lists []string
	longest := time.Duration(0)
	g.guard.AwaitedLists(&vis.req, func(list string, wait time.Duration) {
		if !lookups.KnowsListed(list, vis.req.Addr) {
			lists, longest = append(lists, list), max(longest, wait)
		}
	})
	if len(lists) == 0 || !g.lists.begin(network.Of(vis.req.Addr), vis.req.Time) {
		return v, false, nil
	}
	g.reportFailed(r, g.guard.Settle(r.Context(), &v, fairshare.Outcome{Time: vis.req.Time,
		Part: fairshare.SettleNotForwarded}))
	g.awaitLists(r.Context(), lookups, vis.req.Addr, lists, longest)
	if r.Context().Err() != nil {
		return v, true, nil
	}
	vis.req.Time = g.Now()
	return g.decideNow(r, vis)
}

// awaitLists waits until all lists have answered, or the time is over.
func (g *generation) awaitLists(ctx context.Context, lookups fairshare.ListWaiter, addr netip.Addr, lists []string,
	longest time.Duration) {
	defer g.lists.end()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, list := range lists { // the look-ups are in progress: they do not add up
		lookups.WaitListed(ctx, list, addr)
	}
}
