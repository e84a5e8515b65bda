package logins

import (
	"encoding/binary"
	mathbits "math/bits"
	"net/netip"

	"fairshare"
	"fairshare/internal/network"
)

// An entry is what is remembered of a client: an address, or a visitor. Times are
// minutes since 1970; 0 means never.
type entry struct {
	hash    uint64
	first   uint32 // when it logged in first
	last    uint32 // when it logged in last
	counted uint32 // when it was counted in a budget
	soft    uint32 // until when it counts as likely
	grant   uint32 // until when it counts as known, because of a reset link
	wrote   uint32 // when it sent a comment first
	refused uint32 // when it last exceeded a budget
	askedAt uint32 // when it was first asked to come again, in seconds since 1970; not in snapshots
	form    uint16 // the form at which it was counted: the first bits of its key
	fails   uint16 // since it was counted
	cred    uint16 // hash of the credentials that failed last
	class   class  // in which it was counted

	entered    uint32 // when a login answered with 200, and nobody knew yet what that means
	loginPlace uint16 // of that login, or where alone the client is known; 0: everywhere; see Attempt.placeBits
	inFlight   uint8  // attempts of a known client; not in snapshots
	weekly     uint16 // failures of a known client in week
	week       uint16 // the number of a week since 1970
	visitors   uint8  // that became known on visitorsOn by logging in at this address; not in snapshots
	visitorsOn uint16 // the number of a day since 1970
}

const (
	clientSets = 1 << 12
	clientWays = 16
	setsOf     = 4 // sets that the clients of a network share

	successFor = 60 * 24 * 60 // minutes for which a success is remembered
	softFor    = 30 * 24 * 60
	resetFor   = 60
	countedFor = 24 * 60 // minutes until a client that failed is counted again
	trustAfter = 24 * 60 // minutes after the first success

	veteranAfter = 14 * 24 * 60 // minutes after the first success
)

// A clientKey finds the entry of a client. The zero clientKey is nobody's.
type clientKey struct{ hash, network uint64 }

func (e *entry) succeeded(now uint32) bool { return e.last != 0 && now < e.last+successFor }

// isKnownAt reports whether the client has logged in at a place, or in a way that counts everywhere.
func (e *entry) isKnownAt(place uint16, now uint32) bool {
	return e.succeeded(now) && (e.loginPlace == 0 || e.loginPlace == place)
}

// logIn notes a login that counts at one place; 0: everywhere.
func (e *entry) logIn(place uint16, now uint32) {
	if !e.isKnownAt(place, now) {
		e.first, e.loginPlace = now, place
	}
	e.last = now
}

// touched returns when the entry was last changed.
func (e *entry) touched() uint32 {
	return max(e.last, e.entered, e.counted, e.wrote, e.refused, e.askedAt/60, min(e.soft, e.grant))
}

func fold(a, b uint64) uint64 {
	high, low := mathbits.Mul64(a, b)
	return high ^ low
}

// hash returns a keyed hash.
func (w *Watcher) hash(b []byte) uint64 {
	h := w.secret[0] ^ uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h^binary.LittleEndian.Uint64(b), w.secret[1]|1)
	}
	var tail [8]byte
	copy(tail[:], b)
	return fold(fold(h^binary.LittleEndian.Uint64(tail[:]), w.secret[1]|1), w.secret[0]|1)
}

func (w *Watcher) hashString(s string) uint64 {
	var buf [maxPath]byte
	return w.hash(append(buf[:0], s...))
}

// hashAddr returns the hash of a prefix, and of the peer that named it.
func (w *Watcher) hashAddr(p netip.Prefix, via netip.Addr) uint64 {
	var b [33]byte
	a := p.Addr().As16()
	copy(b[:], a[:])
	b[16] = byte(p.Bits())
	if via.IsValid() {
		v := via.As16()
		copy(b[17:], v[:])
	}
	return w.hash(b[:])
}

// keyOf returns the key of a request's address.
func (w *Watcher) keyOf(req *fairshare.Request) clientKey {
	return clientKey{max(w.hashAddr(w.client(req.Addr), req.Via), 1), w.hashAddr(network.Of(req.Addr), req.Via)}
}

// keyOfVisitor returns the key of a visitor. Visitors whose cookies one network got
// share a few sets.
func (w *Watcher) keyOfVisitor(v *fairshare.Visitor) clientKey {
	if v.ID == 0 {
		return clientKey{}
	}
	var b [9]byte
	b[0] = 'v'
	binary.BigEndian.PutUint64(b[1:], v.ID)
	var n [5]byte
	n[0] = 'n'
	binary.BigEndian.PutUint32(n[1:], v.Network)
	return clientKey{max(w.hash(b[:]), 1), w.hash(n[:])}
}

func (w *Watcher) set(k clientKey) []entry {
	i := (k.network + k.hash%setsOf) % clientSets
	return w.clients[i*clientWays:][:clientWays:clientWays]
}

// find returns the entry of a client, or nil.
func (w *Watcher) find(k clientKey) *entry {
	if k.hash == 0 || w.clients == nil {
		return nil
	}
	set := w.set(k)
	for i := range set {
		if set[i].hash == k.hash {
			return &set[i]
		}
	}
	return nil
}

// put returns the entry of a client, which it may create. A client that failed does not
// displace one that has logged in: then the entry is not stored.
func (w *Watcher) put(k clientKey, seconds int64) *entry {
	if w.clients == nil {
		w.clients = make([]entry, clientSets*clientWays)
	}
	if e := w.find(k); e != nil {
		return e
	}
	set, now := w.set(k), minutes(seconds)
	var victim *entry
	for i := range set {
		e := &set[i]
		switch {
		case e.hash == 0:
			victim = e
		case e.succeeded(now), victim != nil && victim.hash == 0:
			continue
		case victim == nil || e.touched() < victim.touched():
			victim = e
		}
	}
	if victim == nil || k.hash == 0 {
		return &entry{}
	}
	*victim = entry{hash: k.hash}
	return victim
}

// putSuccess is put for a client that has logged in. It displaces the one whose last
// success is the oldest if all others have succeeded, too.
func (w *Watcher) putSuccess(k clientKey, seconds int64) *entry {
	e := w.put(k, seconds)
	if e.hash != 0 || k.hash == 0 {
		return e
	}
	set := w.set(k)
	oldest := &set[0]
	for i := range set {
		if set[i].last < oldest.last {
			oldest = &set[i]
		}
	}
	*oldest = entry{hash: k.hash}
	return oldest
}

// agentOf returns a hash of a user agent. The part that counts is short: fleets send one for all.
func (w *Watcher) agentOf(userAgent string) uint32 {
	return uint32(max(w.hashString(userAgent[:min(len(userAgent), maxPath)])>>32, 1))
}

// identify fills in the client of an attempt.
func (w *Watcher) identify(a *Attempt, req *fairshare.Request) {
	a.client, a.visitor = w.keyOf(req), w.keyOfVisitor(&req.Visitor)
	a.subject = a.client
	now := minutes(w.latest)
	if e := w.find(a.visitor); e != nil && e.isKnownAt(a.placeBits(), now) {
		a.subject = a.visitor
	}
}

// classify fills in the class of the client of an attempt, and whether it was counted.
func (w *Watcher) classify(a *Attempt, req *fairshare.Request, guard Standing, seconds int64) {
	now, f := minutes(seconds), a.form
	e := w.find(a.subject)
	a.class = unknown
	if e != nil && e.last == 0 && e.entered != 0 && e.loginPlace == a.placeBits() && f.style == plain &&
		f.deniesByStatus() {
		e.first, e.last = e.entered, e.entered // it is known there now
	}
	switch {
	case e != nil && e.isKnownAt(a.placeBits(), now):
		a.class = young
		if now >= e.first+trustAfter {
			a.class = trusted
		}
		if now >= e.first+veteranAfter {
			a.class = veteran
		}
	case e != nil && now < e.grant:
		a.class = young
	case e != nil && f.kind == fairshare.CommentAttempt && e.wrote != 0 && now >= e.wrote+trustAfter:
		a.class = trusted
	case a.likely:
		a.class = likely
	// a guesser gets older, too: standing counts only before the first failure
	case f.kind != fairshare.CommentAttempt && (e != nil && now < e.soft ||
		(e == nil || e.counted == 0 && e.refused == 0) && guard != nil && guard.HasStanding(req)):
		a.class = likely
	}
	a.counted = !a.hasOwn() && e != nil && e.isCounted(a.class, f, now)
}
