// Package limittest has the conformance tests of a [fairshare.Limiter]. [Run]
// checks one. [Model] is a Limiter that is slow and obviously right.
package limittest

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"sync"
	"time"

	"fairshare"
)

// A Model is a Limiter that follows the definitions word by word with exact
// arithmetic. It forgets nothing, so its memory grows with every key: it is
// for tests only.
type Model struct {
	limits   []fairshare.Limit
	names    []string // what makes limits[i] the limit it is
	counters *counters
}

// counters are what models of successive policies share.
type counters struct {
	mu     sync.Mutex
	states map[stateKey]*state
	means  map[stateKey]*mean // of a key's requests
	pages  map[pageKey]*mean  // of a page's or folder's requests
}

// A mean is the recent mean cost of requests.
type mean struct {
	cost    float64
	settled int64    // since the key was idle
	last    *big.Int // when a request ended last, ns since the Unix epoch
}

// learn moves the mean an eighth of the way towards cost.
func (m *mean) learn(l *fairshare.Limit, at *big.Int, cost float64) {
	if m.idle(l, at) {
		m.settled = 0
	}
	m.cost += (cost - m.cost) / 8
	m.settled++
	if m.last.Cmp(at) < 0 {
		m.last = at
	}
}

// idle reports whether no request ended for a window.
func (m *mean) idle(l *fairshare.Limit, at *big.Int) bool {
	return new(big.Int).Sub(at, m.last).Cmp(big.NewInt(int64(l.Window))) > 0
}

type pageKey struct {
	limit string
	hash  uint64
}

type stateKey struct{ limit, key string }

// A state is what one key has spent of one limit. Which fields are used
// depends on the algorithm and resource.
type state struct {
	window    *big.Int // Window: number of the present one, since the Unix epoch
	prev, cur *big.Int // Window: spent in the last and in the present one
	tat       *big.Rat // GCRA: theoretical arrival time, ns since the Unix epoch
	count     int64    // Quiet: requests since the last pause; Concurrent: slots taken
	last      *big.Int // Quiet: time of the last request, ns since the Unix epoch
	held      int64    // for requests in progress, in units of Tally.Held
}

var (
	_ fairshare.Limiter = (*Model)(nil)
	_ fairshare.Peeker  = (*Model)(nil)
)

// NewModel returns a Model in which nothing is spent.
func NewModel(limits []fairshare.Limit) *Model {
	return (&Model{counters: &counters{
		states: map[stateKey]*state{}, means: map[stateKey]*mean{}, pages: map[pageKey]*mean{},
	}}).With(limits)
}

// With returns a Model of another policy that shares the counters of m: a
// limit that is in both keeps its counts.
func (m *Model) With(limits []fairshare.Limit) *Model {
	next := &Model{limits: limits, counters: m.counters}
	for _, l := range limits {
		by := l.By
		if len(by) == 0 {
			by = []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
		}
		next.names = append(next.names, fmt.Sprintf("%q %q %v %v %v", l.Name, by, l.Resource, l.Window, l.Algorithm))
	}
	return next
}

// Restart returns a Model of another policy after a restart. A limit that is in
// both keeps its counts. Slots and held amounts are forgotten, since no request is
// in progress, and so is all else.
func (m *Model) Restart(limits []fairshare.Limit) *Model {
	next := NewModel(limits)
	for i, l := range limits {
		for key, st := range m.counters.states {
			if key.limit == next.names[i] && l.Resource != fairshare.Concurrent {
				saved := *st
				saved.held = 0
				next.counters.states[key] = &saved
			}
		}
	}
	return next
}

// Take implements [fairshare.Limiter].
func (m *Model) Take(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	m.take(now, takes, tallies, true)
	return nil
}

// take is Take, which holds nothing unless holds is set.
func (m *Model) take(now time.Time, takes []fairshare.Take, tallies []fairshare.Tally, holds bool) {
	m.counters.mu.Lock()
	defer m.counters.mu.Unlock()
	at := big.NewInt(now.UnixNano())
	clear(tallies)
	if m.takeGroup(at, takes, tallies, holds, false) {
		m.takeGroup(at, takes, tallies, holds, true)
	}
	for _, t := range takes {
		if l := &m.limits[t.Limit]; l.Algorithm == fairshare.Quiet {
			rewind(l, m.state(t.Limit, t.Key), at)
			noteRequest(l, m.state(t.Limit, t.Key), at)
		}
	}
}

// takeGroup takes the dry takes or the others, and reports whether all passed.
func (m *Model) takeGroup(at *big.Int, takes []fairshare.Take, tallies []fairshare.Tally, holds, dry bool) bool {
	pass := true
	for i, t := range takes {
		if t.DryRun == dry {
			l := m.limit(t.Limit, t.Every)
			rewind(l, m.state(t.Limit, t.Key), at)
			_, st := m.states(l, at, t)
			tallies[i].Over = !passes(l, st, at, t.Cost)
			pass = pass && !tallies[i].Over
		}
	}
	for i, t := range takes {
		if t.DryRun != dry {
			continue
		}
		if !pass {
			tallies[i] = m.tally(at, t)
			continue
		}
		switch l, st := m.limit(t.Limit, t.Every), m.state(t.Limit, t.Key); {
		case !l.Resource.Settled():
			charge(l, st, at, t.Cost)
		case l.Resource.Held() && holds:
			tallies[i].Held, tallies[i].Expected = m.holds(at, t)
			st.held += tallies[i].Held
		}
	}
	return pass
}

// limit returns a limit with the rate of a take or charge.
func (m *Model) limit(i int, every time.Duration) *fairshare.Limit {
	l := m.limits[i].Paced(every)
	return &l
}

// states returns the state as it is, and as it would be if all held amounts were
// spent now.
func (m *Model) states(l *fairshare.Limit, at *big.Int, t fairshare.Take) (alone, withHeld *state) {
	alone = m.state(t.Limit, t.Key)
	if !l.Resource.Held() {
		return alone, alone
	}
	with := *alone
	settle(l, &with, at, alone.held)
	return alone, &with
}

// tally returns the figures of a take in a group that does not pass.
func (m *Model) tally(at *big.Int, t fairshare.Take) fairshare.Tally {
	l := m.limit(t.Limit, t.Every)
	alone, st := m.states(l, at, t)
	tally := fairshare.Tally{
		Over: !passes(l, st, at, t.Cost),
		Used: ceil(used(l, st, at)),
		Reset: first(func(ns *big.Int) bool {
			return used(l, st, ns).Sign() == 0
		}, at),
	}
	if tally.Over {
		tally.Wait = first(func(ns *big.Int) bool { return passes(l, alone, ns, t.Cost) }, at)
	}
	switch {
	case l.Resource.Held():
		tally.Held = alone.held
	case l.Resource == fairshare.Concurrent:
		tally.Wait, tally.Reset = 0, 0
	case l.Algorithm == fairshare.Quiet: // this request breaks the pause
		if tally.Over {
			tally.Wait = l.Window
		}
		if tally.Used > 0 {
			tally.Reset = l.Window
		}
	case l.N == 0:
		tally.Wait = l.Window
	case !l.Resource.Settled() && t.Cost > l.Allowed():
		tally.Wait = tally.Reset // it would never pass
	}
	return tally
}

// Settle implements [fairshare.Limiter].
func (m *Model) Settle(_ context.Context, now time.Time, charges []fairshare.Charge) error {
	m.counters.mu.Lock()
	defer m.counters.mu.Unlock()
	at := big.NewInt(now.UnixNano())
	for _, c := range charges {
		l := m.limit(c.Limit, c.Every)
		st := m.state(c.Limit, c.Key)
		if c.Cost != 0 {
			rewind(l, st, at)
		}
		switch {
		case c.Cost > 0:
			settle(l, st, at, c.Cost)
		case c.Cost < 0:
			refund(l, st, at, -c.Cost, big.NewInt(c.At.UnixNano()))
		}
		st.held = max(0, st.held-max(0, c.Held))
		if c.Ends && l.Resource.Held() {
			m.learn(at, c)
		}
	}
	return nil
}

// Peek implements [fairshare.Peeker].
func (m *Model) Peek(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	m.counters.mu.Lock()
	defer m.counters.mu.Unlock()
	at := big.NewInt(now.UnixNano())
	for i, t := range takes {
		st := m.state(t.Limit, t.Key)
		before := *st
		rewind(m.limit(t.Limit, t.Every), st, at)
		tallies[i] = m.tally(at, t)
		*st = before
	}
	return nil
}

// settle charges without asking.
func settle(l *fairshare.Limit, st *state, at *big.Int, cost int64) {
	before := new(big.Rat).Set(st.tat)
	charge(l, st, at, cost)
	if l.Algorithm != fairshare.GCRA {
		return
	}
	most := new(big.Rat).SetInt64(2 * l.Allowed())
	most.Add(most.Mul(most, interval(l)), new(big.Rat).SetInt(at))
	if st.tat.Cmp(most) > 0 {
		st.tat = most
	}
	if st.tat.Cmp(before) < 0 {
		st.tat = before
	}
}

// learn notes what a request cost in all. A page that costs no more than the
// floor need not be remembered, unless its folder is and would stand for it.
func (m *Model) learn(at *big.Int, c fairshare.Charge) {
	l := &m.limits[c.Limit]
	cost := float64(min(max(0, c.Total), l.Allowed()))
	k := stateKey{m.names[c.Limit], string(c.Key)}
	if of := m.counters.means[k]; of != nil {
		of.learn(l, at, cost)
	} else {
		m.counters.means[k] = &mean{cost, 1, at}
	}
	_, most := l.AtOnce()
	remember := cost*float64(most) > float64(l.Allowed())
	for _, hash := range []uint64{c.Page.Folder, c.Page.Path} {
		switch k := (pageKey{m.names[c.Limit], hash}); {
		case hash == 0:
		case m.counters.pages[k] != nil:
			m.counters.pages[k].learn(l, at, cost)
			remember = true
		case remember:
			m.counters.pages[k] = &mean{cost, 1, at}
		}
	}
}

// holds returns what a request holds, and the part that the means account for.
func (m *Model) holds(at *big.Int, t fairshare.Take) (held, expected int64) {
	l := &m.limits[t.Limit]
	if l.Resource.CountsAnswers() {
		return 1, 1
	}
	allowed := float64(l.Allowed())
	atOnce, most := l.AtOnce()
	var ofKey, ofPage float64
	if of := m.counters.means[stateKey{m.names[t.Limit], string(t.Key)}]; of != nil {
		if ofKey = of.cost; !of.idle(l, at) {
			atOnce = min(atOnce+of.settled, most)
		}
	}
	for _, hash := range []uint64{t.Page.Folder, t.Page.Path} { // the path's replaces the folder's
		if of := m.counters.pages[pageKey{m.names[t.Limit], hash}]; hash != 0 && of != nil {
			ofPage = of.cost
		}
	}
	expected = int64(math.Ceil(min(float64(l.MostExpected()), max(ofKey, min(ofPage, allowed/4)))))
	floor := new(big.Rat).SetFrac64(l.Allowed(), atOnce)
	return max(expected, ceil(floor)), expected
}

// state returns the state of a key, a fresh one if nothing was counted.
func (m *Model) state(limit int, key []byte) *state {
	k := stateKey{m.names[limit], string(key)}
	st := m.counters.states[k]
	if st == nil {
		st = &state{
			window: new(big.Int), prev: new(big.Int), cur: new(big.Int),
			tat:  new(big.Rat).SetInt64(math.MinInt64),
			last: big.NewInt(math.MinInt64),
		}
		m.counters.states[k] = st
	}
	return st
}

// windowAt returns the state of a window limit at time at: the number of the
// window, the costs of the window before and of itself, and the time since it
// began. A time before the state's own window counts as that
// window's beginning.
func windowAt(l *fairshare.Limit, st *state, at *big.Int) (window, prev, cur, elapsed *big.Int) {
	window, elapsed = new(big.Int).DivMod(at, big.NewInt(int64(l.Window)), new(big.Int))
	zero := new(big.Int)
	if st.prev.Sign() == 0 && st.cur.Sign() == 0 {
		return window, zero, zero, elapsed
	}
	switch gone := new(big.Int).Sub(window, st.window); {
	case gone.Sign() < 0:
		return st.window, st.prev, st.cur, zero
	case gone.Sign() == 0:
		return window, st.prev, st.cur, elapsed
	case gone.Cmp(big.NewInt(1)) == 0:
		return window, st.cur, zero, elapsed
	}
	return window, zero, zero, elapsed
}

// rewind makes a state that is too far ahead one of time at, with the same
// counts. See [fairshare.Limiter].
func rewind(l *fairshare.Limit, st *state, at *big.Int) {
	if l.Resource == fairshare.Concurrent {
		return
	}
	w := big.NewInt(int64(l.Window))
	far := new(big.Int).Add(w, big.NewInt(int64(time.Minute)))
	switch l.Algorithm {
	case fairshare.Quiet:
		if new(big.Int).Sub(st.last, at).Cmp(far) > 0 {
			st.last = new(big.Int).Set(at)
		}
	case fairshare.GCRA:
		most := new(big.Rat).SetInt64(2 * l.Allowed())
		most.Mul(most, interval(l)).Add(most, new(big.Rat).SetInt(at))
		if new(big.Rat).Sub(st.tat, most).Cmp(new(big.Rat).SetInt(far)) > 0 {
			st.tat = most
		}
	default:
		window := new(big.Int).Div(at, w)
		windows := big.NewInt(1 + int64((time.Minute+l.Window-1)/l.Window))
		if new(big.Int).Sub(st.window, window).Cmp(windows) > 0 {
			st.window = window
		}
	}
}

// interval returns T = W/N in ns.
func interval(l *fairshare.Limit) *big.Rat { return big.NewRat(int64(l.Window), l.N) }

// used returns what counts against the limit at time at, in its own unit.
func used(l *fairshare.Limit, st *state, at *big.Int) *big.Rat {
	switch {
	case l.Resource == fairshare.Concurrent:
		return new(big.Rat).SetInt64(st.count)
	case l.Algorithm == fairshare.Quiet:
		if gap := new(big.Int).Sub(at, st.last); gap.Cmp(big.NewInt(int64(l.Window))) >= 0 {
			return new(big.Rat)
		}
		return new(big.Rat).SetInt64(st.count)
	case l.Algorithm == fairshare.GCRA:
		debt := new(big.Rat).Sub(st.tat, new(big.Rat).SetInt(at))
		if debt.Sign() <= 0 {
			return new(big.Rat)
		}
		return debt.Quo(debt, interval(l))
	}
	_, prev, cur, elapsed := windowAt(l, st, at)
	w := big.NewInt(int64(l.Window))
	sum := new(big.Int).Sub(w, elapsed)
	sum.Mul(sum, prev)
	sum.Add(sum, new(big.Int).Mul(cur, w))
	return new(big.Rat).SetFrac(sum, w)
}

// passes reports whether cost fits at time at.
func passes(l *fairshare.Limit, st *state, at *big.Int, cost int64) bool {
	allowed := new(big.Rat).SetInt64(l.Allowed())
	u := used(l, st, at)
	if l.Resource.Settled() {
		return u.Cmp(allowed) < 0
	}
	return u.Add(u, new(big.Rat).SetInt64(cost)).Cmp(allowed) <= 0
}

// noteRequest notes the time of a request under a Quiet limit. With nothing counted
// there is nothing to note.
func noteRequest(l *fairshare.Limit, st *state, at *big.Int) {
	if used(l, st, at).Sign() > 0 && st.last.Cmp(at) < 0 {
		st.last.Set(at)
	}
}

// charge adds cost at time at.
func charge(l *fairshare.Limit, st *state, at *big.Int, cost int64) {
	switch {
	case l.Resource == fairshare.Concurrent:
		st.count += cost
	case l.Algorithm == fairshare.Quiet:
		if used(l, st, at).Sign() == 0 {
			st.count, st.last = 0, big.NewInt(math.MinInt64)
		}
		st.count += cost
		if st.last.Cmp(at) < 0 {
			st.last.Set(at)
		}
	case l.Algorithm == fairshare.GCRA:
		if now := new(big.Rat).SetInt(at); st.tat.Cmp(now) < 0 {
			st.tat = now
		}
		spent := new(big.Rat).SetInt64(cost)
		st.tat = spent.Add(spent.Mul(spent, interval(l)), st.tat)
	default:
		window, prev, cur, _ := windowAt(l, st, at)
		st.window, st.prev = new(big.Int).Set(window), new(big.Int).Set(prev)
		st.cur = new(big.Int).Add(cur, big.NewInt(cost))
	}
}

// refund takes back cost, which was charged at time taken.
func refund(l *fairshare.Limit, st *state, at *big.Int, cost int64, taken *big.Int) {
	less := func(n *big.Int) *big.Int {
		n = new(big.Int).Sub(n, big.NewInt(cost))
		if n.Sign() < 0 {
			n.SetInt64(0)
		}
		return n
	}
	if used(l, st, at).Sign() == 0 {
		return
	}
	switch {
	case l.Resource == fairshare.Concurrent:
		st.count--
	case l.Algorithm == fairshare.Quiet:
		st.count = max(0, st.count-cost)
	case l.Algorithm == fairshare.GCRA:
		now := new(big.Rat).SetInt(at)
		back := new(big.Rat).SetInt64(cost)
		st.tat = back.Sub(st.tat, back.Mul(back, interval(l)))
		if st.tat.Cmp(now) < 0 {
			st.tat = now
		}
	default:
		window, prev, cur, _ := windowAt(l, st, at)
		charged := new(big.Int).Div(taken, big.NewInt(int64(l.Window)))
		switch charged.Sub(window, charged).Int64() {
		case 0:
			cur = less(cur)
		case 1:
			prev = less(prev)
		}
		st.window, st.prev, st.cur = new(big.Int).Set(window), new(big.Int).Set(prev), new(big.Int).Set(cur)
	}
}

// first returns the time from at to the first nanosecond at which ok holds,
// found by halving: once ok holds, it always holds. It returns the longest
// Duration if ok does not hold before.
func first(ok func(*big.Int) bool, at *big.Int) time.Duration {
	holds := func(wait uint64) bool {
		return ok(new(big.Int).Add(at, new(big.Int).SetUint64(wait)))
	}
	low, high := uint64(0), uint64(1)
	for !holds(high) {
		if high > math.MaxInt64/2 {
			return math.MaxInt64
		}
		low, high = high, high*2
	}
	if holds(0) {
		return 0
	}
	for high-low > 1 { // not at low, but at high
		if mid := low + (high-low)/2; holds(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return time.Duration(high)
}

// ceil returns r rounded up.
func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return q.Int64()
}
