package redislimit

import (
	_ "embed"
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"fairshare/memlimit"
)

// Most states that a member asks about were written by itself last. So it knows them, and
// computes what they become. The script swap replaces them if nobody else has written
// meanwhile, which the tokens of the states tell. This costs the store less than half of
// what the script take costs it. All else goes to take, also what swap did not replace.
//
// ARGV[1] has for each key:
//
//	number of keys of this client, in the first of them, 1 byte
//	number of records that it is expected to have, 0: there is no such key, 1 byte
//	1: it has no others, and its end stays, 1 byte: then the value that it is expected to have,
//	and its new one. Or 0, and then:
//	    second of the Unix epoch when it should end, 0: as before, 4 bytes
//	    length of the new value, 2 bytes, and that value
//	    for each record: where it begins, counted from 1, 2 bytes; field and token
//
// The new value is that of take, with these records, and then new ones. It replaces the
// value if that has no others. If it has, and there are no new ones, these are replaced.
//
//go:embed swap.lua
var swapScript string

var swapDigest = digest(swapScript)

// A swap is what becomes of a state.
type swap struct {
	state memlimit.State
	fresh time.Duration // until it is fresh
	isNew bool          // there is no record
}

const (
	recordBytes = fieldBytes + tokenBytes + 1 + 24
	firstRecord = 5
)

// plan computes what becomes of a state and reports whether swap can replace it. at is a
// second of the Unix epoch by the master's clock. If the state of an exact limit does
// not fit, the view that let requests pass has lost counts: then take decides by the state. Of
// others this is not sure: their charges may be older than a delta says.
func (st *sent) plan(at int64, members int64) (w swap, ok bool) {
	s := st.spec
	switch {
	case st.isKnown:
	case s.kind > gcra || s.tracked || st.floor || st.known && at <= int64(st.ends)+1 || !st.known && members > 1 ||
		s.untilFresh(st.view, st.at) > 0 || st.known && s.untilFresh(st.stored, st.at) > 0:
		return w, false
	default:
		st.stored, w.isNew = memlimit.State{}, true
	}
	w.state = st.reported()
	if st.provisional != 0 {
		var asked delta
		asked.charge(s, st.provisional, st.at, st.at)
		w.state = s.with(w.state, &asked)
	}
	if num, _ := s.windowOf(st.at); s.kind == window && w.state.Num > num {
		return w, false // with adds nothing to the windows before it
	}
	w.fresh = s.untilFresh(w.state, st.at)
	isNear := s.kind == window || float64(w.state.Num-st.at) <= 1000*s.far
	if ok = s.fits(w.state, st.at); !ok && s.limit.Exact && isNear {
		st.base = [tokenBytes]byte{} // so the script decides by the state, and reports it
	}
	return w, ok
}

// reported returns what becomes of the stored state by what is reported.
func (st *sent) reported() memlimit.State {
	return st.spec.asOf(st.spec.with(st.spec.asOf(st.stored, st.at), &st.delta), st.at)
}

// asOf returns a state of a window or gcra limit as of a time.
func (s *spec) asOf(st memlimit.State, at int64) memlimit.State {
	if s.kind == gcra {
		st.Prev = min(st.Prev, int64(s.den)-1)
		if st.Num < at {
			return memlimit.State{Num: at}
		}
		return st
	}
	num, _ := s.windowOf(at)
	return s.with(st, &delta{num: num, any: true})
}

// fits reports whether a state as of a time is within the limit. The window of the state is
// that of the time.
func (s *spec) fits(st memlimit.State, at int64) bool {
	if s.kind == gcra {
		burst, frac := s.span(s.allowed)
		ahead := uint64(st.Num - at)
		return ahead < uint64(burst) || ahead == uint64(burst) && uint64(st.Prev) <= frac
	}
	_, ns := s.windowOf(at)
	room := s.allowed - st.Cur
	if room < 0 || st.Cur < 0 || st.Prev < 0 {
		return false
	}
	hi, lo := bits.Mul64(uint64(st.Prev), uint64(s.w-ns))
	most, rest := bits.Mul64(uint64(room), uint64(s.w))
	return hi < most || hi == most && lo <= rest
}

// untilFresh returns the time until a state of a window or gcra limit is fresh.
func (s *spec) untilFresh(st memlimit.State, at int64) time.Duration {
	if s.kind == gcra {
		if st.Num < at || st.Num == at && st.Prev == 0 {
			return 0
		}
		return time.Duration(st.Num - at + 1)
	}
	num, ns := s.windowOf(at)
	ends := float64(st.Num-num+1)*float64(s.w) - float64(ns)
	switch {
	case st.Cur > 0:
		ends += float64(s.w)
	case st.Prev == 0:
		return 0
	}
	return time.Duration(max(0, min(ends, math.MaxInt64/2)))
}

// A unit is the part of a batch with one tag: states and inquiries.
type unit struct {
	from, to         int
	asksFrom, asksTo int
	keys             int
}

// swaps appends the arguments that replace the states of a unit, or reports that they need
// take.
func (k *carrier) swaps(sc *script, u *unit) bool {
	c, b := k.core, &k.batch
	at := b.second
	if b.floors || at == 0 || u.keys > math.MaxUint8 {
		return false
	}
	for _, a := range b.inquiries[u.asksFrom:u.asksTo] {
		if a.q.parts[a.from].reads {
			return false
		}
	}
	states, members := b.sorted[u.from:u.to], c.members.Load()
	all := true
	for _, st := range states {
		var ok bool
		st.swap, ok = st.plan(at, members)
		all = all && ok
	}
	if !all {
		return false
	}
	first := byte(u.keys)
	for i := 0; i < len(states); {
		from, key := i, states[i].key.name
		left, ends, known := time.Duration(0), uint32(0), 0
		for i < len(states) && states[i].key.name == key {
			st := states[i]
			left, ends = max(left, st.swap.fresh), max(ends, st.ends)
			if i++; !st.swap.isNew {
				known++
			}
		}
		same := states[from:i]
		if left = min(left, longestKey); len(same) > math.MaxUint8 {
			return false
		}
		had, want := ends, uint32(at+int64(left/time.Second))+1+keyMargin
		extends := known == 0 || ends < want
		if extends {
			ends = want + uint32(min(max(left/(4*time.Second), 15), 60))
		}
		whole := !extends && isWhole(same)
		m := append(sc.message, first, byte(known), flag(whole))
		first = 0
		switch {
		case whole:
			m = binary.LittleEndian.AppendUint32(m, had)
			for _, st := range same {
				m = appendRecord(m, st.spec, &st.base, st.stored)
			}
		case extends:
			m = binary.LittleEndian.AppendUint32(m, ends)
		default:
			m = append(m, 0, 0, 0, 0)
		}
		if !whole {
			m = binary.LittleEndian.AppendUint16(m, uint16(4+recordBytes*len(same)))
		}
		m = binary.LittleEndian.AppendUint32(m, ends)
		for j, st := range same {
			m = appendRecord(m, st.spec, &b.token, st.swap.state)
			if st.ends = ends; st.swap.isNew {
				st.offset = uint16(firstRecord + recordBytes*j)
			}
			if whole || known < len(same) {
				st.records = uint8(len(same))
			}
		}
		for _, st := range same {
			if !whole && !st.swap.isNew {
				m = binary.LittleEndian.AppendUint16(m, st.offset)
				m = append(append(m, st.spec.field[:]...), st.base[:]...)
			}
		}
		sc.message = m
		sc.keys = append(sc.keys, keyOf(c.limits, same[0].tag, key))
	}
	return true
}

// isWhole reports whether the states of a key, by their places, are all that its value has.
func isWhole(same []*sent) bool {
	for j, st := range same {
		if int(st.records) != len(same) || int(st.offset) != firstRecord+recordBytes*j {
			return false
		}
	}
	return true
}

// appendRecord appends what a value has of a state of a window or gcra limit.
func appendRecord(b []byte, s *spec, token *[tokenBytes]byte, st memlimit.State) []byte {
	figures := s.figures(st)
	return appendFloats(append(append(append(b, s.field[:]...), token[:]...), 0), figures[:]...)
}

const (
	keyMargin  = 3 // seconds that a key lives longer than its states at least
	longestKey = 1e8 * time.Second
)

// setTime notes the time that a master had between two monotonic times, in ns. It counts as
// that of the first one: so keys may live longer by the trip, but never end early.
func (m *master) setTime(at time.Time, began, ended int64) {
	if ended-began <= int64(beatEach) {
		m.offset.Store(at.UnixNano() - began)
	}
}

// second returns the second of the Unix epoch by the master's clock, or 0 if it is not known.
func (m *master) second() int64 {
	offset := m.offset.Load()
	if offset == 0 {
		return 0
	}
	return (offset + m.core.mono()) / int64(time.Second)
}
