// Package lookup asks DNS about addresses: their forward-confirmed host names, and the answers of
// DNS lists (http:BL, DNSBLs). Start with New.
//
// Hostnames, Confirmed and Listed never wait. They return what is known now. Unknown results are
// looked up in the background, in a fair order (see queue), within these bounds:
//
//   - One look-up at a time for an address and for a network (IPv4 /24, IPv6 /48),
//     each within two seconds; 96 at once for names,
//     28 for each list.
//   - 4,096 addresses wait for names, as many for each list (and 1,024 more if
//     a call waits); 8,192 networks are remembered. Addresses that do not fit are
//     dropped; a later request may add them again.
//   - The results of 32,768 addresses are stored for names, and as many for each
//     list. They need some 6 MB in total, or 25 MB if an attacker's zone gives each
//     address names of the greatest length. Confirmed addresses are never replaced
//     by others.
//
// Confirmed names are valid for 24 hours, and the first request after 18 hours renews them. While
// renewals fail they stay valid, for 48 hours in all. The result that nothing is confirmed is valid
// for an hour, and so is the answer of a list. A failed look-up has no result; it is repeated after
// one minute, then two, four, five.
package lookup

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Options configure a Resolver.
type Options struct {
	// Server is the recursive DNS server, an address with or without a port (53); "": the servers
	// of the system.
	Server string
	// Lists are the DNS lists, by their names in the policy.
	Lists map[string]List
	// Prefer reports whether the site looks for a host name. An attacker can give its own addresses
	// any other name. Preferred names stay in memory, and their networks in the queue, before
	// others. nil: all names are equal.
	Prefer func(host string) bool
	// Confirmed is called, in the background, with each address of which a look-up has confirmed a
	// name that Prefer reports, and with all of its names. It must not wait; nil: nothing is called.
	Confirmed func(addr netip.Addr, names []string)
	// Log gets one line when a server does not answer, when it answers again, and when a list fails
	// its self-test. It may be called from several goroutines. nil: no log.
	Log func(string)

	query queryFunc // in tests
}

// A Resolver looks up addresses. It is safe for concurrent use. Its results are shared and must not
// be changed.
type Resolver struct {
	names  *line[string]
	prefer func(string) bool
	lists  map[string]*dnsList
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// New returns a Resolver. It tests its lists at once and does nothing else before the first call.
// The error is about the options; it never contains a key.
func New(o Options) (*Resolver, error) {
	c, err := newClient(o.Server)
	if err != nil {
		return nil, err
	}
	if o.query == nil {
		o.query = c.query
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	r := &Resolver{prefer: o.Prefer, lists: make(map[string]*dnsList, len(o.Lists))}
	h := &health{query: o.query, server: c.String(), log: o.Log, began: time.Now(), ended: &r.ended}
	h.ctx, r.cancel = context.WithCancel(context.Background())
	for name, l := range o.Lists {
		if r.lists[name], err = newList(name, l, h); err != nil {
			r.cancel()
			return nil, err
		}
	}
	r.names = newLine(nameTerms,
		func(ctx context.Context, addr netip.Addr) ([]string, error) {
			names, err := confirm(ctx, h.watched, addr)
			if err == nil && o.Confirmed != nil && rateNames(names, o.Prefer) == preferred {
				o.Confirmed(addr, names)
			}
			return names, err
		},
		func(names []string) rank { return rateNames(names, o.Prefer) },
		h.silent.Load)
	for _, l := range r.lists {
		l.test()
	}
	return r, nil
}

func rateNames(names []string, prefer func(string) bool) rank {
	if len(names) == 0 {
		return unconfirmed
	}
	for _, name := range names {
		if prefer == nil || prefer(name) {
			return preferred
		}
	}
	return confirmed
}

// Learn records names that another resolver has confirmed so long ago. It does nothing if Prefer
// reports none of them, if that was too long ago, or if this resolver knows the names of the address.
func (r *Resolver) Learn(addr netip.Addr, names []string, ago time.Duration) {
	addr = unmapped(addr)
	l := r.names
	if rateNames(names, r.prefer) != preferred || ago < 0 || ago >= l.terms.renew || !addr.IsValid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if e := l.table.find(addr); e != nil && e.known && now < e.until {
		return
	}
	since := now - int64(ago)
	l.table.put(now, &entry[string]{addr: addr, values: names, known: true, rank: preferred, since: since,
		until: since + int64(l.terms.positive), askAt: since + int64(l.terms.renew)})
}

// unmapped returns addr as it is looked up: unmapped, without a zone.
func unmapped(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// Confirmed returns the names of addr that DNS confirmed in both directions, in lower case without
// the final dot. If known is true, the names are complete; without names, nothing is confirmed.
// known is false while a look-up is due or has failed, even in part; the names returned are
// confirmed all the same. Private addresses are looked up too, because they may be the operator's
// own hosts.
func (r *Resolver) Confirmed(addr netip.Addr) (names []string, known bool) {
	if addr = unmapped(addr); !addr.IsValid() {
		return nil, false
	}
	return r.names.get(addr, r.names.now())
}

// Hostnames returns the names of Confirmed.
func (r *Resolver) Hostnames(addr netip.Addr) []string {
	names, _ := r.Confirmed(addr)
	return names
}

// Listed returns the answers of a list about addr, all in 127.0.0.0/8 and none in 127.255.255.0/24.
// For http:BL it is one, 127.DAYS.SCORE.TYPE. There are none for private, link-local and loopback
// addresses, which are never sent to a list.
func (r *Resolver) Listed(list string, addr netip.Addr) []netip.Addr {
	l := r.lists[list]
	if addr = unmapped(addr); l == nil || !addr.IsValid() {
		return nil
	}
	return l.get(addr)
}

// Wait returns the result of Confirmed after addr has been looked up or ctx has ended. It does not
// wait for a repetition after a failed look-up, or for a server that does not answer. Any number of
// calls may wait at once.
func (r *Resolver) Wait(ctx context.Context, addr netip.Addr) (names []string, known bool) {
	if addr = unmapped(addr); !addr.IsValid() {
		return nil, false
	}
	return r.names.wait(ctx, addr)
}

// WaitListed returns the result of Listed after addr has been looked up or ctx has ended. If known
// is false, the list did not answer, its answers are ignored because of its self-test, or addr is an
// address that is never sent to a list.
func (r *Resolver) WaitListed(ctx context.Context, list string, addr netip.Addr) (codes []netip.Addr, known bool) {
	l := r.lists[list]
	if addr = unmapped(addr); l == nil || !addr.IsValid() {
		return nil, false
	}
	return l.wait(ctx, addr)
}

// KnowsListed reports whether the result of Listed is known, or will not be: it is useless to wait.
func (r *Resolver) KnowsListed(list string, addr netip.Addr) bool {
	l := r.lists[list]
	if addr = unmapped(addr); l == nil || !addr.IsValid() || !l.accepts(addr) {
		return true
	}
	e := l.line.table.find(addr)
	return e != nil && l.line.now() < e.until
}

// Stats are counts of a Resolver: names and all lists together.
type Stats struct {
	LookedUp uint64 // look-ups that ended, without cancelled ones
	Failed   uint64 // those of them without a complete answer
	Dropped  uint64 // addresses that did not fit into the queue
	Waiting  int    // addresses that wait now
	Running  int    // look-ups in progress
}

// Stats returns the counts so far.
func (r *Resolver) Stats() Stats {
	var s Stats
	r.names.stats(&s)
	for _, l := range r.lists {
		l.line.stats(&s)
	}
	return s
}

// Close cancels all look-ups and waits for their end. After it nothing is looked up; known results
// remain available.
func (r *Resolver) Close() {
	r.cancel()
	r.names.close()
	for _, l := range r.lists {
		l.line.close()
	}
	r.ended.Wait()
}
