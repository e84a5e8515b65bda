package lookup

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameTerms: a confirmed address stays confirmed for a day, and for two days while the server does
// not answer.
var nameTerms = terms{
	positive: 24 * time.Hour,
	renew:    18 * time.Hour,
	hold:     48 * time.Hour,
	negative: time.Hour,
	entries:  1 << 15,
	limits:   [lanes]int{proven: 16, untried: 48, doubtful: 32},
}

// confirm returns the names of addr that DNS confirms: names from its PTR records that have addr
// among their addresses. With an error the names are incomplete. It asks only for records of addr's
// family, because others cannot contain addr.
func confirm(ctx context.Context, ask queryFunc, addr netip.Addr) ([]string, error) {
	reverse, err := ask(ctx, reverseName(addr), dnsmessage.TypePTR)
	if err != nil {
		return nil, err
	}
	kind := dnsmessage.TypeAAAA
	if addr.Is4() {
		kind = dnsmessage.TypeA
	}
	var names []string
	var failed error
	for i, name := range reverse.names {
		forward, err := askShare(ctx, ask, name+".", kind, len(reverse.names)-i)
		if err != nil {
			failed = err
			continue
		}
		if slices.Contains(forward.addrs, addr) {
			names = append(names, name)
		}
	}
	return names, failed
}

// askShare asks within a share of the remaining time, so that a name without an answer leaves time
// for the others.
func askShare(ctx context.Context, ask queryFunc, name string, kind dnsmessage.Type, parts int) (records, error) {
	if end, ok := ctx.Deadline(); ok && parts > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(parts))
		defer cancel()
	}
	return ask(ctx, name, kind)
}
