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

// latest returns the time of the latest lift that ends bans of a client with that key; zero if there is none.
func (a *lifts) latest(key *fairshare.BanKey, client fairshare.ClientID) (at time.Time) {
	for _, of := range [2]liftKey{{client.Prefix.Addr(), client.Bot}, {}} {
		for i := range a.index[of] {
			if l := &a.index[of][i]; l.At.After(at) && key.Within(l.Client) {
				at = l.At
			}
		}
	}
	return at
}
