package fairshare

import (
	mathbits "math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// A Preparer is a [Limiter] that can prepare the takes that many requests have in
// common: of the same limits, each under a key of its own. Such takes cost less.
// NewGuard finds a Preparer by a type assertion.
type Preparer interface {
	// Prepare prepares takes of limits with a cost of 1, none of them in dry run.
	// limits[i] is taken under the key with the number keys[i], which counts from 0.
	// It returns nil if only Take can take these limits.
	Prepare(limits, keys []int) PreparedTakes

	// PreparesFor reports whether l is the Preparer itself. It is not if l is of a
	// type that embeds the Preparer. Such a type may have a Take of its own, which a
	// guard must call.
	PreparesFor(l Limiter) bool
}

// PreparedTakes are takes that a [Preparer] has prepared. They are safe for concurrent use.
type PreparedTakes interface {
	// Take takes all limits at time now, as Limiter.Take does, and leaves names for
	// Release. It holds 1 of each limit whose resource is held. If not all limits pass,
	// or it cannot tell, it changes nothing and returns false: then call Limiter.Take.
	// It keeps no key.
	Take(now time.Time, keys [][]byte, names *KeyNames) bool

	// Release gives back what Take has taken of the limits of some resources: slots,
	// or what is held. It charges nothing.
	Release(names *KeyNames, resources ResourceSet)
}

// MaxPreparedKeys is how many keys prepared takes may have.
const MaxPreparedKeys = 4

// KeyNames is what stands for the keys of prepared takes until they are released.
type KeyNames [MaxPreparedKeys][2]uint64

// A ResourceSet is a set of resources, a bit for each.
type ResourceSet uint16

// Has reports whether r is in the set.
func (s ResourceSet) Has(r Resource) bool { return s>>r&1 == 1 }

// A takeGroup is what the requests have in common for which the same rules hold: the
// takes without their keys.
type takeGroup struct {
	set      *ruleSet
	rules    []uint64 // that hold, as in walkIndex
	matched  []int32  // the same rules by their places in Guard.rules
	takes    []Take
	settled  []settlement
	picky    bool // what is taken depends on more than the rules
	costly   bool // the takes have pages
	prepared PreparedTakes
	keyOf    []int       // of prepared: a limit with each of the keys
	held     ResourceSet // the resources of its takes that are given back
	errors   StatusSet   // answers that are charged
	refund   StatusSet   // answers whose requests are given back
}

// mostGroups is how many groups a guard remembers, about 4 KiB each.
const mostGroups = 128

// groups remembers the takeGroups of recent requests. Each has one place.
type groups struct {
	entries [mostGroups]atomic.Pointer[takeGroup]
	misses  atomic.Uint32
}

// replaceEvery is how many requests without a group make one replace another, which
// takes as long as some decisions. It matters only under an attack: few sets of rules
// hold for nearly all requests.
const replaceEvery = 32

// groupOf returns the group of the rules of a set that hold; nil if it is not
// remembered.
func (g *Guard) groupOf(set *ruleSet, rules []uint64) *takeGroup {
	hash := uint64(0)
	for _, word := range rules {
		hash = (hash ^ word) * 0x9E3779B97F4A7C15
		hash ^= hash >> 32
	}
	entry := &g.groups.entries[hash%mostGroups]
	known := entry.Load()
	if known != nil && known.set == set && slices.Equal(known.rules, rules) {
		return known
	}
	if known != nil && g.groups.misses.Add(1)%replaceEvery != 0 {
		return nil
	}
	group := g.newGroup(set, rules)
	entry.Store(group)
	return group
}

func (g *Guard) newGroup(set *ruleSet, rules []uint64) *takeGroup {
	group := &takeGroup{set: set, rules: slices.Clone(rules)}
	var limits, keys []int
	plain := true // Take may be prepared
	for word, rest := range rules {
		for ; rest != 0; rest &= rest - 1 {
			step := &set.index.steps[word*64+mathbits.TrailingZeros64(rest)]
			group.matched = append(group.matched, step.rule)
			if step.limit < 0 {
				continue
			}
			limit := int(step.limit)
			use, lim := &g.uses[limit], &g.limits[limit]
			group.takes = append(group.takes, Take{Limit: limit, Cost: 1, DryRun: step.dry})
			group.settled = append(group.settled, settlement{rule: step.rule})
			group.picky = group.picky || use.picky || use.key == manyKeys
			group.costly = group.costly || use.costly
			plain = plain && !step.dry && !use.costly
			key := slices.IndexFunc(group.keyOf, func(other int) bool { return g.uses[other].key == use.key })
			if key < 0 {
				key = len(group.keyOf)
				group.keyOf = append(group.keyOf, limit)
			}
			limits, keys = append(limits, limit), append(keys, key)
			switch lim.Resource {
			case Concurrent, Failures:
				group.held |= 1 << lim.Resource
			case Errors:
				group.held |= 1 << Errors
				group.errors.add(&lim.Statuses)
			case Requests:
				group.refund.add(&g.rules[step.rule].Refund)
			}
		}
	}
	if g.preparer != nil && plain && !group.picky && len(limits) > 0 && len(group.keyOf) <= MaxPreparedKeys {
		group.prepared = g.preparer.Prepare(limits, keys)
	}
	return group
}

// add adds the statuses of other.
func (s *StatusSet) add(other *StatusSet) {
	for i := range s {
		s[i] |= other[i]
	}
}

// takePrepared takes the limits of d.group if they are prepared, and reports whether all
// pass. Otherwise nothing has changed.
func (d *decision) takePrepared() bool {
	group := d.group
	if group.prepared == nil {
		return false
	}
	for i, limit := range group.keyOf {
		d.groupKeys[i] = d.key(limit)
	}
	d.holds = group.prepared.Take(d.now, d.groupKeys[:len(group.keyOf)], &d.names)
	return d.holds
}

// fill gathers the takes of d.group. Keys of takes that have passed are known.
func (d *decision) fill() {
	group := d.group
	if group == nil {
		return
	}
	d.group = nil
	d.matched = append(d.matched[:0], group.matched...)
	d.takes, d.settled = append(d.takes[:0], group.takes...), append(d.settled[:0], group.settled...)
	if n := len(d.takes); n > cap(d.tallies) {
		d.tallies = make([]Tally, n)
	} else {
		d.tallies = d.tallies[:n]
		clear(d.tallies)
	}
	if group.costly && !d.pageKnown {
		d.page, d.pageKnown = pageOf(d.req.Path).of(d.site), true
	}
	for i := range d.takes {
		take := &d.takes[i]
		use := &d.guard.uses[take.Limit]
		take.Key = d.key(take.Limit)
		if use.costly {
			take.Page = d.page
		}
		if !d.holds {
			continue
		}
		if d.settled[i].final = d.released.Has(use.resource); use.held && !d.settled[i].final {
			d.tallies[i].Held, d.tallies[i].Expected = 1, 1
		}
	}
	d.holds = false
}

// settlePrepared settles prepared takes of which nothing is to be charged, and reports
// whether it could.
func (d *decision) settlePrepared(out *Outcome) bool {
	group := d.group
	if group == nil || !d.holds || out.Part == SettleSoFar {
		return false
	}
	ends := out.Part.resources() &^ d.released
	if ends.Has(Errors) && group.errors.Has(out.Status) || ends.Has(Failures) && out.Failed ||
		ends.Has(Requests) && (out.Part == SettleNotForwarded || group.refund.Has(out.Status)) {
		return false
	}
	d.released |= ends
	if back := ends & group.held; back != 0 {
		group.prepared.Release(&d.names, back)
		if d.guard.waiting.count.Load() > 0 {
			d.wakeReleased(back)
		}
	}
	return true
}

// wakeReleased wakes requests that wait for what was held of some resources.
func (d *decision) wakeReleased(resources ResourceSet) {
	d.charges = d.charges[:0]
	for i := range d.group.takes {
		limit := d.group.takes[i].Limit
		if use := &d.guard.uses[limit]; use.held && resources.Has(use.resource) {
			d.charges = append(d.charges, Charge{Limit: limit, Key: d.key(limit), Held: 1})
		}
	}
	d.guard.waiting.settled(d.charges)
}
