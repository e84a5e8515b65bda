package logreplay

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"fairshare/internal/lookup"
	"fairshare/internal/replay"
)

// questions counts the questions to the DNS, and those without an answer.
type questions struct {
	resolver         *lookup.Resolver
	sent, unanswered atomic.Int64
}

// resolve waits for the host names of an address or, with a list of the policy,
// for whether the list has it.
func (q *questions) resolve(ctx context.Context, addr netip.Addr, list string) {
	q.sent.Add(1)
	var answered bool
	if list == "" {
		_, answered = q.resolver.Wait(ctx, addr)
	} else {
		_, answered = q.resolver.WaitListed(ctx, list, addr)
	}
	if !answered {
		q.unanswered.Add(1)
	}
}

// warnings returns a warning if a tenth of the questions or more were not
// answered: a few names never are.
func (q *questions) warnings() []replay.Warning {
	n, all := q.unanswered.Load(), q.sent.Load()
	if n == 0 || n*10 < all {
		return nil
	}
	w := replay.Warning{Text: fmt.Sprintf(
		"The DNS left %d of %d questions open: host names and lists that it did not tell were judged as absent.",
		n, all)}
	if n*2 > all {
		w.Hint = "dns: {server: ADDRESS} in the policy names another server"
	}
	return []replay.Warning{w}
}
