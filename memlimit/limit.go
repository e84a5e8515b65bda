package memlimit

import (
	"fmt"
	"math"
	"math/bits"

	"fairshare"
)

// A kind says how the states of a limit count and how they are laid out.
type kind uint8

const (
	windowNarrow kind = iota // number 36 bits, prev and cur 28 bits each
	windowPacked             // number, prev and cur in 92 bits, cut as the limit needs
	windowWide               // 64 bits each
	gcraNarrow               // tat 64 bits, its fraction 28 bits
	gcraWide                 // 64 bits each
	quiet                    // time 64 bits, count 28 bits
	concurrent               // not in the table
)

// A limit is a fairshare.Limit made ready.
type limit struct {
	id              uint16
	settled         bool
	tracked         bool    // slots counts what requests in progress take or hold of it
	held            bool    // that is what they are expected to cost
	costly          bool    // held, and a request may cost more than 1
	few, mostAtOnce uint64  // costly: of fairshare.Limit.AtOnce
	mostExpected    float64 // costly: of fairshare.Limit.MostExpected
	layout
	salt    uint64 // keeps one key's states of several limits apart
	allowed uint64 // N, or the burst
	room0   uint64 // held: if less is held, a key with a fresh state passes; 0: not known
	w       uint64 // window in ns; 0 of concurrent
	far     uint64 // a state further ahead of now is rewound: in windows or, of GCRA and quiet, in ns

	// GCRA: times in ns and a fraction in units of 1/den ns.
	wg, den        uint64 // W and N without their common divisor: T = wg/den
	interval       span   // T
	burst, ceiling span   // burst·T; 2·burst·T, to which settling goes

	name     string
	silent   bool // its rule's own limit is named instead, see Fresh
	resource fairshare.Resource
	identity string // what makes it the limit it is
}

// countsAnswers reports whether l counts answers of some kinds. Most clients get none of these.
func (l *limit) countsAnswers() bool { return l.held && !l.costly }

// A layout is how the states of a limit are stored. It follows from kind and
// countLen.
type layout struct {
	kind     kind
	wide     bool   // two slots
	fast     bool   // for takeFast
	countLen uint   // bits of a count; windowPacked only
	numMask  uint64 // of a window number
	older    uint64 // a distance between numbers above this one is a step back
	most     uint64 // where counts saturate
}

// narrowNumbers is the mask of a window number of windowNarrow.
const narrowNumbers = 1<<(64-lowBits) - 1

func newLayout(k kind, countLen uint) layout {
	l := layout{kind: k, countLen: countLen, fast: k == windowNarrow || k == gcraNarrow}
	switch k {
	case windowNarrow:
		l.most, l.numMask = lowMask, narrowNumbers
	case windowPacked:
		l.most, l.numMask = 1<<countLen-1, 1<<(64+lowBits-2*countLen)-1
	case windowWide:
		l.wide, l.most, l.numMask = true, 1<<61, math.MaxUint64
	case gcraWide:
		l.wide = true
	case quiet:
		l.most = lowMask
	}
	l.older = l.numMask - l.numMask>>2
	return l
}

// A span is a length of time.
type span struct{ ns, frac uint64 }

// farthest is the longest span there is room for: 146 years.
const farthest = math.MaxInt64 / 2

// tenYears is how long window numbers must not repeat.
const tenYears = 3653 * 24 * 3600 * uint64(1e9)

func newLimit(l *fairshare.Limit) (*limit, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("limit %q: %w", l.Name, err)
	}
	c := &limit{
		settled: l.Resource.Settled(), held: l.Resource.Held(),
		tracked: l.Resource.Held() || l.Resource == fairshare.Concurrent,
		allowed: uint64(l.Allowed()), w: uint64(l.Window),
		name: l.Name, silent: l.Resource == fairshare.Refusals || l.IsCeiling(), resource: l.Resource,
		identity: identity(l),
	}
	if c.held && !l.Resource.CountsAnswers() {
		few, most := l.AtOnce()
		c.costly, c.few, c.mostAtOnce, c.mostExpected = true, uint64(few), uint64(most), float64(l.MostExpected())
	}
	c.far = c.w + clockDrift
	switch {
	case l.Resource == fairshare.Concurrent:
		c.layout = newLayout(concurrent, 0)
	case l.Algorithm == fairshare.Quiet:
		c.layout = newLayout(quiet, 0)
	case l.Algorithm == fairshare.GCRA:
		c.compileGCRA(uint64(l.N))
	default:
		c.room0 = c.allowed
		c.far = 1 + (clockDrift+c.w-1)/c.w
		c.layout = c.windowLayout(l.Resource != fairshare.Requests && !l.Resource.CountsAnswers() &&
			l.Resource != fairshare.Refusals)
	}
	return c, nil
}

// windowLayout chooses the smallest layout that holds the window's number for
// ten years and counts well above what is allowed.
func (l *limit) windowLayout(large bool) layout {
	// A quarter of the numbers is left for steps back, so 4/3 of ten years.
	number := uint(bits.Len64(tenYears / 3 * 4 / l.w))
	countLen := (64 + lowBits - number) / 2 // 32 to 42: two seconds and a month
	switch {
	case !large && number <= 64-lowBits:
		return newLayout(windowNarrow, 0)
	case large && number <= 28 && 4*l.allowed < 1<<countLen:
		return newLayout(windowPacked, countLen)
	}
	return newLayout(windowWide, 0)
}

func (l *limit) compileGCRA(n uint64) {
	g := gcd(l.w, n)
	l.wg, l.den = l.w/g, n/g
	l.layout = newLayout(gcraNarrow, 0)
	if l.den > lowMask {
		l.layout = newLayout(gcraWide, 0)
	}
	l.interval = l.times(1)
	l.burst = l.times(l.allowed)
	l.ceiling = l.times(2 * l.allowed)
	l.far += l.ceiling.ns
	if l.room0 = 0; l.burst.ns < farthest {
		l.room0 = l.allowed
	}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// times returns n·T, at most farthest.
func (l *limit) times(n uint64) span {
	hi, lo := bits.Mul64(n, l.wg)
	if hi >= l.den {
		return span{ns: farthest}
	}
	ns, frac := bits.Div64(hi, lo, l.den)
	if ns >= farthest {
		return span{ns: farthest}
	}
	return span{ns, frac}
}

// A view is a state as of one moment.
//
// Window: num is the number of the present window, ns the time since it
// began, prev and cur are the costs of the last and of the present window. GCRA: ns and prev are how far tat
// is ahead, in ns and a fraction; num is the moment itself. Quiet: cur is the
// count, num the time of the last request, ns the moment.
type view struct {
	num  int64
	ns   uint64
	prev uint64
	cur  uint64
}

// blank returns the view of a fresh state.
func (l *limit) blank(now int64) view {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return view{num: now}
	case quiet:
		return view{num: now, ns: uint64(now)}
	}
	num := l.numOf(now)
	return view{num: num, ns: uint64(now - num*int64(l.w))}
}

// numOf returns the number of the window that now is in.
func (l *limit) numOf(now int64) int64 {
	num := now / int64(l.w)
	if now < num*int64(l.w) {
		num--
	}
	return num
}

// load reads the state at slot i of s.
func (l *limit) load(s *set, i int, now int64) view {
	blank := l.blank(now)
	return l.loadFrom(s, i, &blank, now)
}

// loadFrom is load for a known view of a fresh state.
func (l *limit) loadFrom(s *set, i int, blank *view, now int64) view {
	lo, hi := s.slot[i][0]&lowMask, s.slot[i][1]
	switch l.kind {
	case windowNarrow:
		return l.rollFrom(*blank, hi>>lowBits, lo, hi&lowMask)
	case windowPacked:
		n := l.countLen
		return l.rollFrom(*blank, lo>>(2*n-64), (hi>>n|lo<<(64-n))&l.most, hi&l.most)
	case windowWide:
		return l.rollFrom(*blank, hi, s.slot[i+1][0], s.slot[i+1][1])
	case gcraNarrow:
		return l.viewOfTAT(int64(hi), lo, now)
	case gcraWide:
		return l.viewOfTAT(int64(hi), s.slot[i+1][0], now)
	}
	v := view{num: int64(hi), ns: uint64(now), cur: lo}
	switch {
	case v.cur == 0 || now > v.num && uint64(now)-uint64(v.num) >= l.w:
		return *blank
	case v.num > now && uint64(v.num)-uint64(now) > l.far:
		v.num = now
	}
	return v
}

// clockDrift is how far clocks may be set back or differ, in ns.
const clockDrift = 60e9

// rewound reports whether the state with the words lo and hi was so far ahead
// that load has read it as v, a state of now. See [fairshare.Limiter].
func (l *limit) rewound(lo, hi uint64, v *view) bool {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return int64(hi) > v.num && hi-uint64(v.num) != v.ns
	case quiet:
		return int64(hi) > v.num
	case windowNarrow:
		hi >>= lowBits
	case windowPacked:
		hi = lo & lowMask >> (2*l.countLen - 64)
	}
	return (uint64(v.num)-hi)&l.numMask > l.older
}

// storeRewound stores v if the state at p was rewound. So it advances with time
// again even if nothing is charged.
func (l *limit) storeRewound(p spot, tag uint64, v *view) {
	if p.slot >= 0 && l.rewound(p.in.slot[p.slot][0], p.in.slot[p.slot][1], v) {
		l.store(p.in, p.slot, tag, v)
	}
}

// roll brings a window's state to time now. A time before the state's own
// window counts as that window's beginning, unless it is too far ahead.
func (l *limit) roll(num, prev, cur uint64, now int64) view {
	return l.rollFrom(l.blank(now), num, prev, cur)
}

// rollFrom is roll for a known view of a fresh state, v.
func (l *limit) rollFrom(v view, num, prev, cur uint64) view {
	if prev|cur == 0 {
		return v
	}
	switch gone := (uint64(v.num) - num) & l.numMask; {
	case gone == 0:
		v.prev, v.cur = prev, cur
	case gone == 1:
		v.prev = cur
	case gone > l.older && -gone&l.numMask <= l.far:
		v = view{num: v.num + int64(-gone&l.numMask), prev: prev, cur: cur}
	case gone > l.older:
		v.prev, v.cur = prev, cur
	}
	return v
}

// viewOfTAT brings a theoretical arrival time to a view.
func (l *limit) viewOfTAT(tat int64, frac uint64, now int64) view {
	if tat < now {
		return view{num: now}
	}
	if ns := uint64(tat) - uint64(now); ns <= l.far {
		return view{num: now, ns: ns, prev: min(frac, l.den-1)}
	}
	return view{num: now, ns: l.ceiling.ns, prev: l.ceiling.frac}
}

// store writes v to slot i of s. Its ids are set already.
func (l *limit) store(s *set, i int, tag uint64, v *view) {
	switch l.kind {
	case windowNarrow:
		s.write(i, tag|v.prev, uint64(v.num)<<lowBits|v.cur)
	case windowPacked:
		n := l.countLen
		s.write(i, tag|(uint64(v.num)&l.numMask)<<(2*n-64)|v.prev>>(64-n), v.prev<<n|v.cur)
	case windowWide:
		s.write(i, tag, uint64(v.num))
		s.write(i+1, v.prev, v.cur)
	case gcraNarrow:
		s.write(i, tag|v.prev, uint64(v.num)+v.ns)
	case gcraWide:
		s.write(i, tag, uint64(v.num)+v.ns)
		s.write(i+1, v.prev, 0)
	case quiet:
		s.write(i, tag|v.cur, uint64(v.num))
	}
}

// encode returns what store writes for a layout that is fast.
func (l *limit) encode(tag uint64, v *view) (low, high uint64) {
	if l.kind == gcraNarrow {
		return tag | v.prev, uint64(v.num) + v.ns
	}
	return tag | v.prev, uint64(v.num)<<lowBits | v.cur
}

// fresh reports whether v says no more than no state would.
func (l *limit) fresh(v *view) bool {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return v.ns|v.prev == 0
	}
	return v.prev|v.cur == 0
}

// debt returns how much of the allowance is used: 0 fresh, 1 all of it.
func (l *limit) debt(v *view) float64 {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return float64(v.ns) / (float64(l.burst.ns) + 1)
	case quiet:
		return float64(v.cur) / float64(l.allowed)
	}
	return (float64(v.prev)*(1-float64(v.ns)/float64(l.w)) + float64(v.cur)) / float64(l.allowed)
}

// stamp orders states of equal debt by age.
func (l *limit) stamp(v *view) int64 {
	switch l.kind {
	case gcraNarrow, gcraWide:
		return v.num + int64(v.ns)
	case quiet:
		return v.num
	}
	if v.cur == 0 {
		return (v.num - 1) * int64(l.w)
	}
	return v.num * int64(l.w)
}

// timeLeft returns the ns until v would be fresh by itself, rounded up.
func (l *limit) timeLeft(v *view) int64 {
	switch {
	case l.fresh(v):
		return 0
	case l.kind == quiet:
		return int64(l.w)
	case l.kind >= gcraNarrow:
		if v.prev > 0 {
			return int64(v.ns) + 1
		}
		return int64(v.ns)
	case v.cur > 0:
		return int64(2*l.w - v.ns)
	}
	return int64(l.w - v.ns)
}
