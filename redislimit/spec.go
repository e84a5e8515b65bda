package redislimit

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// A kind is how the script counts.
type kind uint8

const (
	window kind = iota
	gcra
	quiet
	concurrent
)

// A spec is a limit made ready. It is replaced when the policy changes, and
// stays for requests in progress when the limit is gone.
type spec struct {
	limit fairshare.Limit
	local *memlimit.Limiter // with the view
	index int               // of the limit in local
	field [fieldBytes]byte  // in the store
	kind  kind

	settled, held, tracked bool
	slack                  bool // not all is asked
	private                bool // nothing of it is in the store
	viewOnly               bool // never asked: refusals
	paced                  bool // amounts of gcra are ns, not units

	allowed int64
	w       int64
	credit  int64  // the part of allowed that M members share, see core.credit
	wg, den uint64 // W and N without their common divisor: T = wg/den ns
	burst   moment
	ceiling moment
	far     float64 // a state further ahead is rewound: in windows or µs
	refresh int64   // ns until a view that refuses is old
	forgets int64   // ns after which a member that knows of nothing has forgotten nothing
}

const (
	fieldBytes = 6
	clockDrift = time.Minute // as in memlimit
	farthest   = math.MaxInt64 / 2
)

// identity says what makes a limit the limit it is, as in memlimit.
func identity(l *fairshare.Limit) string {
	by := l.By
	if len(by) == 0 {
		by = []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	}
	distinct := ""
	if l.Distinct != fairshare.EveryRequest {
		distinct = " distinct " + l.Distinct.String()
	}
	return fmt.Sprintf("%q %q %s %d %s%s", l.Name, by, l.Resource, l.Window, l.Algorithm, distinct)
}

func newSpec(l *fairshare.Limit, local *memlimit.Limiter, index int, slack float64) *spec {
	s := &spec{
		limit: *l, local: local, index: index, allowed: l.Allowed(), w: int64(l.Window),
		settled: l.Resource.Settled(), held: l.Resource.Held(), viewOnly: l.Resource == fairshare.Refusals,
		private: l.EachMember || l.N == 0, paced: l.CrawlDelay,
	}
	sum := sha256.Sum256([]byte(identity(l)))
	copy(s.field[:], sum[:])
	s.tracked = s.held || l.Resource == fairshare.Concurrent
	if s.slack = slack > 0; !l.Exact {
		s.credit = int64(slack * float64(s.allowed))
	}
	s.forgets = int64(max(l.Window, time.Minute))
	s.refresh = int64(time.Second)
	if s.tracked {
		s.refresh = int64(20 * time.Millisecond)
	}
	switch {
	case l.Resource == fairshare.Concurrent:
		s.kind = concurrent
	case l.Algorithm == fairshare.Quiet:
		s.kind, s.far = quiet, float64((l.Window+clockDrift)/time.Microsecond)
	case l.Algorithm == fairshare.GCRA:
		s.pace(uint64(l.N), uint64(l.Window))
	default:
		s.far = float64(1 + (clockDrift+l.Window-1)/l.Window)
	}
	return s
}

// pace sets the rate of a GCRA limit.
func (s *spec) pace(n, w uint64) {
	g := gcd(w, n)
	s.kind, s.wg, s.den = gcra, w/g, n/g
	if s.den > 1<<40 { // its fractions have no room: whole ns, rounded up
		s.wg, s.den = (s.wg+s.den-1)/s.den, 1
	}
	s.burst, s.ceiling = s.times(s.allowed), s.times(2*s.allowed)
	s.far = float64((time.Duration(s.w)+clockDrift)/time.Microsecond) + s.ceiling.us
}

// share returns how much of the limit each of so many members may admit without
// asking. Of errors that is about half of the limit for all of them together: most
// requests hold an error and give it back.
func (s *spec) share(members int64) int64 {
	share := s.credit / members
	if s.limit.Resource == fairshare.Errors && s.slack && !s.limit.Exact {
		share = max(share, (s.allowed+members)/(2*members))
	}
	return share
}

// paced returns s with the rate of a take's Every.
func (s *spec) pacedBy(every time.Duration) *spec {
	if every <= 0 || s.kind != gcra {
		return s
	}
	p := *s
	p.w = int64(every)
	p.pace(1, uint64(every))
	return &p
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A moment is a time or a length of time as the script counts it: µs, and the
// rest in units of 1/(1000·den) µs.
type moment struct{ us, rest float64 }

// unit returns how many units of rest are 1 µs.
func (s *spec) unit() float64 { return float64(1000 * max(s.den, 1)) }

// moment returns ns and a fraction of 1/den ns as the script counts them. The
// rest is not negative.
func (s *spec) moment(ns int64, frac uint64) moment {
	us := ns / 1000
	rest := ns % 1000
	if rest < 0 {
		us, rest = us-1, rest+1000
	}
	return moment{float64(us), float64(uint64(rest)*max(s.den, 1) + frac)}
}

// span returns n·T in ns and a fraction of 1/den ns; the fraction of a span below
// zero is that of its distance from the next lower ns.
func (s *spec) span(n int64) (ns int64, frac uint64) {
	neg := n < 0
	if neg {
		n = -max(n, -math.MaxInt64)
	}
	whole := uint64(farthest)
	if hi, lo := bits.Mul64(uint64(n), s.wg); hi < s.den {
		whole, frac = bits.Div64(hi, lo, s.den)
	}
	if ns = int64(min(whole, farthest)); !neg {
		return ns, frac
	}
	if frac > 0 {
		return -ns - 1, s.den - frac
	}
	return -ns, 0
}

// times is span as the script counts it.
func (s *spec) times(n int64) moment {
	ns, frac := s.span(n)
	return s.moment(ns, frac)
}

// now returns the two figures of a time as the script gets them: of a window its
// number and the ns since it began, else a moment.
func (s *spec) now(at int64) (float64, float64) {
	switch s.kind {
	case window:
		num, ns := s.windowOf(at)
		return float64(num), float64(ns)
	case gcra:
		m := s.moment(at, 0)
		return m.us, m.rest
	}
	us, ns := floorDiv(at, 1000)
	return float64(us), float64(ns)
}

// windowOf returns the number of the window at a time, and the ns since it began.
func (s *spec) windowOf(at int64) (num, ns int64) { return floorDiv(at, s.w) }

func floorDiv(a, b int64) (q, rest int64) {
	q, rest = a/b, a%b
	if rest < 0 {
		q, rest = q-1, rest+b
	}
	return q, rest
}

// figures returns a state as the script counts it.
func (s *spec) figures(st memlimit.State) [3]float64 {
	switch s.kind {
	case gcra:
		if st == (memlimit.State{}) {
			return [3]float64{}
		}
		m := s.moment(st.Num, uint64(st.Prev))
		return [3]float64{m.us, m.rest}
	case quiet:
		us, ns := floorDiv(st.Num, 1000)
		return [3]float64{float64(us), float64(ns), float64(st.Cur)}
	}
	return [3]float64{float64(st.Num), float64(st.Prev), float64(st.Cur)}
}

// state returns a state that the script reported.
func (s *spec) state(f [3]float64) memlimit.State {
	switch s.kind {
	case gcra:
		if f[0] == 0 && f[1] == 0 {
			return memlimit.State{}
		}
		rest := uint64(f[1])
		den := max(s.den, 1)
		return memlimit.State{Num: int64(f[0])*1000 + int64(rest/den), Prev: int64(rest % den)}
	case quiet:
		return memlimit.State{Num: int64(f[0])*1000 + int64(f[1]), Cur: int64(f[2])}
	}
	return memlimit.State{Num: int64(f[0]), Prev: int64(f[1]), Cur: int64(f[2])}
}

// A delta is what was charged and refunded and is not reported yet.
type delta struct {
	num       int64 // of the window; of others the time, ns
	prev, cur int64 // costs in the windows num−1 and num; of others cur alone
	any       bool
}

// charge adds an amount, which was charged at a time; below zero it is
// a refund of what was taken at time taken.
func (d *delta) charge(s *spec, amount, at, taken int64) {
	num := at
	if s.kind == window {
		num, _ = s.windowOf(at)
	}
	if s.kind == quiet && amount < 0 { // a refund does not prolong the time
		if num = longAgo; d.any {
			num = d.num
		}
	}
	if !d.any || float64(d.num-num) > s.far*d.scale(s) {
		if !d.any {
			*d = delta{}
		}
		d.num, d.any = num, true
	}
	if s.kind != window {
		d.num = max(d.num, num)
		d.cur = addSaturated(d.cur, amount)
		return
	}
	switch gone := num - d.num; {
	case gone == 1:
		d.num, d.prev, d.cur = num, d.cur, 0
	case gone > 1:
		d.num, d.prev, d.cur = num, 0, 0
	}
	if amount < 0 {
		charged, _ := s.windowOf(taken)
		switch d.num - charged {
		case 0:
		case 1:
			d.prev = addSaturated(d.prev, amount)
			return
		default:
			return
		}
	}
	d.cur = addSaturated(d.cur, amount)
}

// longAgo is before all requests, in ns.
const longAgo = -1 << 61

// scale returns how many units of num are one of spec.far.
func (d *delta) scale(s *spec) float64 {
	if s.kind == window {
		return 1
	}
	return 1000
}

// merge adds an older delta, which could not be sent.
func (d *delta) merge(s *spec, old delta) {
	if !old.any {
		return
	}
	if !d.any {
		*d = old
		return
	}
	if s.kind != window {
		d.num, d.cur = max(d.num, old.num), addSaturated(d.cur, old.cur)
		return
	}
	switch d.num - old.num {
	case 0:
		d.prev, d.cur = addSaturated(d.prev, old.prev), addSaturated(d.cur, old.cur)
	case 1:
		d.prev = addSaturated(d.prev, old.cur)
	}
}

// mostAmount is where amounts in a message saturate.
const mostAmount = 1 << 61

func addSaturated(a, b int64) int64 {
	return max(-mostAmount, min(mostAmount, a+max(-mostAmount, min(mostAmount, b))))
}

// figures returns d as the script adds it.
func (d *delta) figures(s *spec) [3]float64 {
	switch s.kind {
	case gcra:
		m := s.moment(s.deltaSpan(d.cur))
		return [3]float64{m.us, m.rest}
	case quiet:
		us, ns := floorDiv(d.num, 1000)
		return [3]float64{float64(us), float64(ns), float64(max(-mostFloat, min(d.cur, mostFloat)))}
	}
	clip := func(n int64) float64 { return float64(max(-mostFloat, min(n, mostFloat))) }
	return [3]float64{float64(d.num), clip(d.prev), clip(d.cur)}
}

// mostFloat is the greatest amount in a message.
const mostFloat = 1 << 52

// deltaSpan returns an amount of a delta as a span. Of limits with paces of their
// own the amount is in ns.
func (s *spec) deltaSpan(amount int64) (ns int64, frac uint64) {
	if s.paced {
		return amount, 0
	}
	return s.span(max(min(amount, 2*s.allowed), -2*s.allowed))
}

// with returns a state to which a delta was added.
func (s *spec) with(st memlimit.State, d *delta) memlimit.State {
	if !d.any {
		return st
	}
	switch s.kind {
	case gcra:
		if st == (memlimit.State{}) && d.cur <= 0 {
			return st
		}
		ns, frac := s.deltaSpan(d.cur)
		st.Num = max(st.Num, d.num) + ns
		if st.Prev += int64(frac); uint64(st.Prev) >= s.den {
			st.Num, st.Prev = st.Num+1, st.Prev-int64(s.den)
		}
		return st
	case quiet:
		if st.Cur = max(0, st.Cur+d.cur); st.Cur > 0 {
			st.Num = max(st.Num, d.num)
		}
		return st
	}
	if st.Prev|st.Cur == 0 {
		st.Num = d.num
	}
	switch gone := d.num - st.Num; {
	case gone == 1:
		st = memlimit.State{Num: d.num, Prev: st.Cur}
	case gone > 1:
		st = memlimit.State{Num: d.num}
	}
	switch st.Num - d.num {
	case 0:
		st.Prev, st.Cur = max(0, st.Prev+d.prev), max(0, st.Cur+d.cur)
	case 1:
		st.Prev = max(0, st.Prev+d.cur)
	}
	return st
}

// lacks reports whether a view in which so much is used at a time has lost counts of an entry.
func (s *spec) lacks(e *entry, used, at int64) bool {
	st := e.stored
	if e.pend.any {
		st = s.with(st, &e.pend)
	}
	used -= e.own + e.others
	switch s.kind {
	case window:
		num, ns := s.windowOf(at)
		switch gone := num - st.Num; {
		case gone > 1:
			return false
		case gone == 1:
			st.Prev, st.Cur = st.Cur, 0
		case gone < 0:
			st.Prev = 0 // nothing of it may count
		}
		return used < st.Cur || less(used-st.Cur, s.w, st.Prev, s.w-ns)
	case gcra: // the store may be ahead: what passed on credit is reported later than it passed
		ahead := st.Num - at - 2*lazyDelay
		if s.paced {
			return ahead > 0 && used <= 0
		}
		return ahead > 0 && less(max(0, used), int64(s.wg), ahead, int64(s.den))
	case quiet:
		return used < st.Cur && at-st.Num < s.w
	}
	return false
}

// less reports whether a·b < c·d, none of them below zero.
func less(a, b, c, d int64) bool {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	h, l := bits.Mul64(uint64(c), uint64(d))
	return hi < h || hi == h && lo < l
}

// amount returns a cost in the unit of deltas.
func (s *spec) amount(cost int64, every time.Duration) int64 {
	if !s.paced {
		return cost
	}
	if every <= 0 {
		every = s.limit.Window // its N is 1
	}
	hi, lo := bits.Mul64(uint64(max(cost, -cost)), uint64(every))
	if hi > 0 || lo > farthest {
		lo = farthest
	}
	if cost < 0 {
		return -int64(lo)
	}
	return int64(lo)
}
