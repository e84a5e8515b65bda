package storebans

import (
	"net/netip"
	"slices"
	"time"

	"fairshare"
)

// sameLift is how near two lifts of a client are that may be one: from the store, the registry or both.
const sameLift = 10 * time.Millisecond

// lifts are the latest ones, at most mostLifts. The zero lifts is empty.
type lifts struct {
	all   []Lift
	index map[liftKey][]Lift
}

// A liftKey finds lifts: by the first address of a client, by the name of a bot, or
// with all prefixes that may have several clients, whose liftKey is zero.
type liftKey struct {
	addr netip.Addr
	bot  string
}

func liftKeyOf(id fairshare.ClientID) liftKey {
	bits := id.Prefix.Bits()
	if id.Bot == "" && (bits < 32 || id.Prefix.Addr().Is6() && bits < 64) {
		return liftKey{}
	}
	return liftKey{id.Prefix.Addr(), id.Bot}
}

// add adds a lift, and reports whether it was new.
func (a *lifts) add(l Lift) bool {
	for _, o := range a.index[liftKeyOf(l.Client)] {
		if o.Client == l.Client && o.Forget == l.Forget &&
			(o.id == l.id && l.id != "" || o.At.Sub(l.At).Abs() < sameLift) {
			return false
		}
	}
	if a.all = append(a.all, l); len(a.all) > mostLifts {
		a.all = slices.Delete(a.all, 0, mostLifts/2)
		a.index = nil
		for _, l := range a.all {
			a.put(l)
		}
		return true
	}
	a.put(l)
	return true
}

func (a *lifts) put(l Lift) {
	if a.index == nil {
		a.index = map[liftKey][]Lift{}
	}
	at := liftKeyOf(l.Client)
	a.index[at] = append(a.index[at], l)
}

// of returns the time of a lift that ends a ban, and whether there is one.
func (a *lifts) of(key *fairshare.BanKey, ban *fairshare.BanRecord) (at time.Time, lifted bool) {
	for _, at := range [2]liftKey{{ban.Client.Prefix.Addr(), ban.Client.Bot}, {}} {
		for i := range a.index[at] {
			if l := &a.index[at][i]; l.covers(key, ban.Began) {
				return l.At, true
			}
		}
	}
	return at, false
}
