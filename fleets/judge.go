package fleets

import (
	"math"
	"slices"
)

// The test of a signature compares its clients with those of other signatures in
// the last 10 to 20 minutes.
//
// A client enters when it gets the first page of a visit. Of n clients that entered
// more than 15 s ago, k have asked for an asset. p is the probability that a browser of
// this site asks for assets, the higher one of two estimates:
//
//   - the mean, over the clients of other signatures that asked for assets, of the share
//     of the other clients with their signature that did. Signatures without such
//     clients have no weight in it, so that a swarm does not lower it,
//   - the share of all clients of the last hours that did, until ten to twenty minutes
//     ago and without members of fleets, if these were 10 clients. So a swarm with the
//     signatures of the people is found, too.
//
// A signature is a fleet if
//
//   - k/n is at most p/5,
//   - the chance of that is below 10⁻¹² for clients that ask for assets with
//     probability p/2, by the bound of Chernoff (Hoeffding 1963, theorem 1). The
//     number of networks (/24, /48) counts instead of n: clients of one network may
//     depend on each other. 20 % are taken off that number for the error of its
//     estimate. So a fleet has at least 50 networks,
//   - p is at least 0.2: otherwise the site has no assets, or they come from another
//     host. At least 10 clients must show it,
//   - in the last hours a tenth of the site's browsers asked for assets. So somebody
//     with a few addresses who fetches assets from a site that has almost none cannot
//     make a fleet of its readers.
//
// With 1024 signatures and a test every 5 s, one false fleet is expected in 150
// years, if browsers of different networks behave independently of each other.
//
// A fleet ends five minutes after its last request, or when k/n exceeds p/3.
const (
	judgeEvery   = 5 // seconds
	freshTicks   = 3 // an entry is judged after that many
	periodLength = 10 * 60
	endAfter     = 5 * 60
	mostFleets   = 32
	mostChanges  = 64

	fewestClients  = 50   // of a signature by user agent
	fewestOfOwner  = 200  // the narrower signatures are judged first
	fewestOfHeader = 1000 // likewise
	fewestBrowsers = 10   // clients of other signatures that asked for assets
	leastShare     = 0.2  // of p
	foundBelow     = 5    // p/k·n
	endsAbove      = 3    // likewise
	networkError   = 0.8
	certainty      = 27.6 // -ln 10⁻¹²
)

// A habit is how many of the site's browsers ask for assets, over hours, without
// members of fleets. What is judged now is not part of it: a swarm does not change it
// for ten minutes.
type habit struct {
	periods         [2]struct{ clients, assets float64 } // the present period and the one before
	clients, assets float64                              // of earlier periods; after two hours they count half
}

const (
	habitFades   = 0.944 // in a period
	habitClients = 10    // with fewer it is not known
	habitLeast   = 0.1
)

// turn begins a period.
func (h *habit) turn() {
	h.clients = habitFades*h.clients + h.periods[1].clients
	h.assets = habitFades*h.assets + h.periods[1].assets
	h.periods[1] = h.periods[0]
	h.periods[0].clients, h.periods[0].assets = 0, 0
}

func (h *habit) add(clients, assets float64) {
	v := &h.periods[0]
	v.clients, v.assets = max(v.clients+clients, 0), max(v.assets+assets, 0)
}

func (h *habit) known() bool { return h.clients >= habitClients }

func (h *habit) share() float64 { return min(h.assets/max(h.clients, 1), 1) }

// A contrast sums up how many clients of the site's signatures ask for assets.
type contrast struct{ assets, pairs, fellows float64 }

// add adds a signature: k of n clients asked for assets. Each of the k meets n-1
// others, of which k-1 did, too.
func (c *contrast) add(n, k uint32, sign float64) {
	c.assets += sign * float64(k)
	if n > 1 {
		c.pairs += sign * float64(k)
		c.fellows += sign * float64(k) * (float64(k) - 1) / (float64(n) - 1)
	}
}

// usual returns the probability that a browser of this site asks for assets. It is
// not known if too few did.
func (f *Finder) usual(c *contrast) (p float64, known bool) {
	if c.assets >= fewestBrowsers && c.pairs > 0 {
		p = c.fellows / c.pairs
	}
	if f.habit.known() {
		if f.habit.share() < habitLeast {
			return 0, false
		}
		p = max(p, f.habit.share())
	}
	return p, p >= leastShare
}

// judge tests all signatures. The lock is held.
func (f *Finder) judge(now uint32) {
	idle := now - f.judgedAt
	f.judgedAt = now
	var all contrast
	for h, s := range f.counting {
		if h.view == byAgent && h.hash != 0 {
			n, k := s.settled()
			all.add(n, k, 1)
		}
	}
	foundOne := false
	for v := byAgent; v < views && !foundOne; v++ { // the narrowest signatures first
		for h, s := range f.counting {
			if h.view != v || h.hash == 0 {
				continue
			}
			n, k := s.settled()
			if s.fleet == nil && n < v.fewest() {
				continue
			}
			if s.fleet != nil && s.active() {
				s.fleet.last = max(s.fleet.last, min(now, now-idle+judgeEvery))
			}
			others := all
			if v == byAgent {
				others.add(n, k, -1)
			}
			p, known := f.usual(&others)
			switch {
			case s.fleet == nil:
				if known && s.differs(n, k, p) && len(f.fleets) < mostFleets {
					f.begin(h, s, p, now)
					foundOne = true
				}
			case now-s.fleet.last > endAfter, known && n >= fewestClients && float64(k)/float64(n) > p/endsAbove:
				f.end(h, s)
			}
		}
	}
	for h, s := range f.counting {
		if foundOne && h.view != byAgent && s.fleet == nil {
			// Wider signatures have counted the clients of the fleet, too.
			s.periods, s.fresh = [2]period{}, [freshTicks]visits{}
		}
		s.age(idle >= judgeEvery*freshTicks)
	}
	if now-f.periodAt >= periodLength {
		f.turn(now)
	}
}

func (v view) fewest() uint32 {
	switch v {
	case byAgent:
		return fewestClients
	case byOwner:
		return fewestOfOwner
	}
	return fewestOfHeader
}

// age makes the entries of a tick, or of all ticks, older.
func (s *slot) age(all bool) {
	copy(s.fresh[1:], s.fresh[:])
	s.fresh[0] = visits{}
	if all {
		s.fresh = [freshTicks]visits{}
	}
}

// turn begins a period.
func (f *Finder) turn(now uint32) {
	all := now-f.periodAt >= 2*periodLength
	f.periodAt = now
	f.habit.turn()
	for _, s := range f.counting {
		s.periods[1], s.periods[0] = s.periods[0], period{}
		if all {
			s.periods[1] = period{}
		}
	}
	// What is in neither set has no counts and no fleet: a period is longer than an entry is fresh. Slots with
	// a fleet stay in the set until a judgment ends it.
	f.touched[1], f.touched[0] = f.touched[0], slotSet{}
	for i := range f.heads {
		if f.heads[i].weight /= 2; f.heads[i].fleet {
			f.touched[0].add(i)
		}
	}
}

// settled returns the number of clients that entered long enough ago, and how many
// asked for assets.
func (s *slot) settled() (n, k uint32) {
	n, k = s.periods[0].clients+s.periods[1].clients, s.periods[0].assets+s.periods[1].assets
	for i := range s.fresh {
		n -= min(s.fresh[i].entered, n)
	}
	return n, min(k, n)
}

// active reports whether clients came just now that asked for no asset.
func (s *slot) active() bool {
	arrived, assets := uint32(0), uint32(0)
	for i := range s.fresh {
		arrived, assets = arrived+s.fresh[i].arrived, assets+s.fresh[i].assets
	}
	return arrived > assets
}

// differs reports whether k of n clients are so few that the signature is a fleet,
// where others ask for assets with probability p.
func (s *slot) differs(n, k uint32, p float64) bool {
	share := float64(k) / float64(n)
	if share > p/foundBelow {
		return false
	}
	networks := s.periods[0].networks
	networks.join(&s.periods[1].networks)
	independent := min(float64(n), networkError*float64(networks.estimate()))
	return independent*divergence(share, p/2) >= certainty
}

// divergence is the Kullback-Leibler divergence of two Bernoulli distributions.
func divergence(q, p float64) float64 {
	d := (1 - q) * math.Log((1-q)/(1-p))
	if q > 0 {
		d += q * math.Log(q/p)
	}
	return d
}

// begin makes a signature a fleet.
func (f *Finder) begin(h *head, s *slot, usual float64, now uint32) {
	fl := newFleet(h.view, s, usual, now)
	fl.Since = f.time(now)
	h.fleet, s.fleet = true, fl
	f.fleets = append(f.fleets, fl)
	for i := range s.periods {
		v, p := &f.habit.periods[i], &s.periods[i]
		v.clients, v.assets = max(v.clients-float64(p.clients), 0), max(v.assets-float64(p.assets), 0)
	}
	if len(f.found) < mostChanges {
		f.found = append(f.found, f.describe(fl))
	}
}

// end ends the fleet of a signature.
func (f *Finder) end(h *head, s *slot) {
	if len(f.ended) < mostChanges {
		f.ended = append(f.ended, f.describe(s.fleet))
	}
	f.fleets = slices.DeleteFunc(f.fleets, func(fl *fleet) bool { return fl == s.fleet })
	h.fleet, s.fleet = false, nil
	s.periods, s.fresh = [2]period{}, [freshTicks]visits{} // the same requests do not make it a fleet again
}
