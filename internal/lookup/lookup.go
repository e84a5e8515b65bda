// Package lookup asks DNS who an address is: its forward-confirmed host names,
// and what DNS lists (http:BL, DNSBLs) say of it. Start with New.
//
// Nothing here waits on the path of a request: Hostnames, Confirmed and Listed
// return what is known now, and what is not is looked up in the background,
// in a fair order (see queue), within these bounds:
//
//   - An address is looked up once at a time, of a network (IPv4 /24, IPv6 /48)
//     one address at a time, each within two seconds; 96 at once for names,
//     28 for each list.
//   - 4,096 addresses wait for names, as many for each list (and 1,024 more for
//     which a call waits); 8,192 networks are remembered. What finds no room is
//     dropped and may ask again.
//   - The results of 32,768 addresses are kept for names, and as many for each
//     list: some 6 MB all told, and 25 MB when somebody's zone names each of
//     them at the greatest length. Confirmed addresses never give way to others.
//
// Confirmed names hold for 24 hours and are renewed by the first request after
// 18; while renewals fail they hold on, for 48 hours in all. That nothing is
// confirmed holds for an hour. A look-up that failed says nothing at all, and
// is made again after one minute, then two, four, five. What a list says
// holds for an hour.
package lookup

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Options say whom to ask, and for what.
type Options struct {
	// Server is the recursive DNS server, an address with or without a port
	// (53); "": those that the system is configured to use.
	Server string
	// Lists are the DNS lists, by their names in the policy.
	Lists map[string]List
	// Prefer tells host names that the site looks for from the names that
	// anybody may give his own addresses: the former keep their place in
	// memory, and their networks in the queue, before the latter. nil: all
	// are alike.
	Prefer func(host string) bool
	// Log is told, one line each, of a server that does not answer and of one
	// that does again, and of lists that fail their self-test. It may be
	// called from several goroutines. nil: nobody is told.
	Log func(string)

	ask askFunc // in tests
}

// A Resolver finds out about addresses. It is safe for concurrent use. What it
// returns is shared and must not be changed.
type Resolver struct {
	names  *line[string]
	lists  map[string]*dnsList
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// New returns a Resolver, which tests its lists at once and does nothing else
// until it is asked. The error is about the options; it never holds a key.
func New(o Options) (*Resolver, error) {
	c, err := newClient(o.Server)
	if err != nil {
		return nil, err
	}
	if o.ask == nil {
		o.ask = c.ask
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	r := &Resolver{lists: make(map[string]*dnsList, len(o.Lists))}
	h := &health{ask: o.ask, server: c.String(), log: o.Log, began: time.Now(), ended: &r.ended}
	h.ctx, r.cancel = context.WithCancel(context.Background())
	for name, l := range o.Lists {
		if r.lists[name], err = newList(name, l, h); err != nil {
			r.cancel()
			return nil, err
		}
	}
	r.names = newLine(nameTerms,
		func(ctx context.Context, addr netip.Addr) ([]string, error) { return confirm(ctx, h.watched, addr) },
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

// plain is addr as it is looked up: unmapped, without a zone.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// Confirmed returns the names of addr that DNS confirmed in both directions,
// in lower case without the final dot. known says that these are all: without
// names, nothing is confirmed. It is false while a look-up is due or has
// failed, in part maybe: names that are there are confirmed all the same.
// Private addresses are looked up too: they may be one's own hosts.
func (r *Resolver) Confirmed(addr netip.Addr) (names []string, known bool) {
	if addr = plain(addr); !addr.IsValid() {
		return nil, false
	}
	return r.names.get(addr, r.names.now())
}

// Hostnames returns the names of Confirmed.
func (r *Resolver) Hostnames(addr netip.Addr) []string {
	names, _ := r.Confirmed(addr)
	return names
}

// Listed returns the answers of a list about addr, all in 127.0.0.0/8 and none
// in 127.255.255.0/24: for http:BL one, 127.DAYS.SCORE.TYPE. There are none
// for an address that is private, of the link, or this machine's: no list is
// told of these.
func (r *Resolver) Listed(list string, addr netip.Addr) []netip.Addr {
	l := r.lists[list]
	if addr = plain(addr); l == nil || !addr.IsValid() {
		return nil
	}
	return l.get(addr)
}

// Wait is Confirmed once addr has been looked up, or ctx has ended. After a
// look-up that failed it does not wait for the next, nor for a server that is
// known to be silent. Any number of calls may wait at once.
func (r *Resolver) Wait(ctx context.Context, addr netip.Addr) (names []string, known bool) {
	if addr = plain(addr); !addr.IsValid() {
		return nil, false
	}
	return r.names.wait(ctx, addr)
}

// WaitListed is Listed once addr has been looked up, or ctx has ended. known
// is false when the list did not answer, is not asked about addr, or holds
// for nobody.
func (r *Resolver) WaitListed(ctx context.Context, list string, addr netip.Addr) (codes []netip.Addr, known bool) {
	l := r.lists[list]
	if addr = plain(addr); l == nil || !addr.IsValid() {
		return nil, false
	}
	return l.wait(ctx, addr)
}

// Stats are counts of a Resolver: names and all lists together.
type Stats struct {
	LookedUp uint64 // look-ups that ended, but for those cut short
	Failed   uint64 // those of them that had no answer, or not all
	Dropped  uint64 // addresses that found no room to wait
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

// Close ends all look-ups and awaits their end. From then on nothing is
// looked up; what is known stays known.
func (r *Resolver) Close() {
	r.cancel()
	r.names.close()
	for _, l := range r.lists {
		l.line.close()
	}
	r.ended.Wait()
}
