package limittest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare"
)

// A script is a random sequence of requests under random limits.
type script struct {
	rand   *rand.Rand
	limits []fairshare.Limit
	keys   []string
	now    time.Time
	taken  []fairshare.Charge // what may be settled later

	wasAhead time.Duration // how far the clock is ahead for one request
	steady   bool          // the clock is never far ahead
	oneRate  bool          // all takes of a limit have the same Every

	of []fairshare.Resource // of the limits; nil means all
}

func newScript(seed uint64, of ...fairshare.Resource) *script {
	s := &script{rand: rand.New(rand.NewPCG(seed, 1)), of: of}
	for i := range 1 + s.rand.IntN(6) {
		s.limits = append(s.limits, s.limit(i))
	}
	for i := range 1 + s.rand.IntN(4) {
		s.keys = append(s.keys, fmt.Sprintf("key %d", i))
	}
	start := []time.Time{
		time.Unix(0, 0), time.Unix(0, -5), time.Unix(-1e9, 3),
		time.Date(2026, 11, 20, 19, 0, 0, 0, time.UTC), time.Date(2040, 2, 29, 23, 59, 59, 999999999, time.UTC),
	}
	s.now = start[s.rand.IntN(len(start))]
	if of != nil && s.now.UnixNano() <= 0 {
		s.now = start[3]
	}
	return s
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// most returns the largest allowance of a resource.
func most(r fairshare.Resource) int64 {
	switch r {
	case fairshare.Bytes, fairshare.Cost:
		return fairshare.MaxBytes
	case fairshare.CPU, fairshare.Time:
		return fairshare.MaxMicros
	}
	return fairshare.MaxN
}

func (s *script) limit(i int) fairshare.Limit {
	r := s.rand
	l := fairshare.Limit{
		Name: fmt.Sprintf("rule %d", i),
		Resource: pick(r, fairshare.Requests, fairshare.Requests, fairshare.Requests, fairshare.Concurrent,
			fairshare.Bytes, fairshare.Errors, fairshare.Failures, fairshare.Refusals, fairshare.CPU, fairshare.Time,
			fairshare.Cost),
		DryRun: r.IntN(4) == 0,
	}
	if s.of != nil {
		l.Resource = pick(r, s.of...)
	}
	most := most(l.Resource)
	n := func() int64 {
		switch r.IntN(6) {
		case 0:
			return most - r.Int64N(2)
		case 1:
			return 1 + r.Int64N(most)
		case 2:
			return 1 + r.Int64N(1000)
		}
		return 1 + r.Int64N(7)
	}
	if l.N = n(); s.of != nil {
		l.N = min(l.N, 1<<20)
	}
	if l.Resource == fairshare.Concurrent {
		l.N = min(l.N, 5)
		return l
	}
	l.Window = pick(r, fairshare.MinWindow, 7*time.Millisecond, 999999937, time.Second, 3*time.Second, time.Minute,
		time.Hour, 24*time.Hour, fairshare.MaxWindow, fairshare.MinWindow+
			time.Duration(r.Int64N(int64(fairshare.MaxWindow-fairshare.MinWindow))))
	if l.Resource == fairshare.Requests && r.IntN(4) == 0 {
		l.CrawlDelay, l.Algorithm, l.Window = true, fairshare.GCRA, fairshare.MaxCrawlDelay
		l.N, l.Burst = 1, 1+r.Int64N(7)
		return l
	}
	switch r.IntN(3) {
	case 0:
		l.Algorithm = fairshare.GCRA
		if r.IntN(2) == 0 {
			l.Burst = min(n(), l.N*20) // so that times stay within a few years
		}
	case 1:
		if l.Resource == fairshare.Requests {
			l.Algorithm = fairshare.Quiet
		}
	case 2:
		if l.Resource == fairshare.Requests && r.IntN(4) == 0 && s.of == nil {
			l.N = 0
		}
	}
	return l
}

// step moves the clock, rarely backwards.
func (s *script) step() {
	r := s.rand
	if s.wasAhead != 0 { // the clock was wrong for one request
		s.now, s.wasAhead = s.now.Add(-s.wasAhead), 0
	}
	if !s.steady && r.IntN(40) == 0 {
		s.wasAhead = pick(r, time.Minute, time.Hour, 24*time.Hour, 3*fairshare.MaxWindow)
		s.now = s.now.Add(s.wasAhead)
		return
	}
	w := int64(s.limits[r.IntN(len(s.limits))].Window)
	if w == 0 {
		w = int64(time.Second)
	}
	switch r.IntN(10) {
	case 0, 1:
	case 2:
		s.now = s.now.Add(1)
	case 3: // to the edge of a window
		s.now = s.now.Add(time.Duration(w - s.now.UnixNano()%w - r.Int64N(3)))
	case 4:
		s.now = s.now.Add(time.Duration(w))
	case 5:
		s.now = s.now.Add(time.Duration(r.Int64N(3 * w)))
	case 6:
		if s.of != nil {
			break
		}
		// back, by less than it takes to be forgotten
		for _, l := range s.limits {
			if l.Window > 0 {
				w = min(w, int64(l.Window))
			}
			if l.CrawlDelay { // states of small delays are forgotten soon
				w = min(w, int64(time.Millisecond))
			}
		}
		s.now = s.now.Add(-time.Duration(r.Int64N(w/20 + 1)))
	default:
		s.now = s.now.Add(time.Duration(r.Int64N(w/5 + 1)))
	}
}

// takes returns one request: some of the limits, each once.
func (s *script) takes() []fairshare.Take {
	r := s.rand
	var takes []fairshare.Take
	for _, i := range r.Perm(len(s.limits))[:1+r.IntN(len(s.limits))] {
		l := &s.limits[i]
		t := fairshare.Take{Limit: i, Key: []byte(s.keys[r.IntN(len(s.keys))]), Cost: 1,
			DryRun: l.DryRun || r.IntN(8) == 0}
		if r.IntN(5) == 0 && l.Resource != fairshare.Concurrent {
			t.Cost = 1 + r.Int64N(max(l.N, 1))
		}
		if l.CrawlDelay {
			if t.Every = fairshare.MaxCrawlDelay; s.oneRate {
				takes = append(takes, t)
				continue
			}
			t.Every = pick(r, time.Millisecond, 999999937, time.Second, 10*time.Second, time.Hour,
				fairshare.MaxCrawlDelay)
		}
		if l.Resource.Held() {
			t.Page = fairshare.Page{Path: uint64(r.IntN(4)), Folder: uint64(r.IntN(3)) * 100}
		}
		takes = append(takes, t)
	}
	return takes
}

// charges returns what a request settles, late or at once.
func (s *script) charges() []fairshare.Charge {
	r := s.rand
	var charges []fairshare.Charge
	for range r.IntN(3) {
		if len(s.taken) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(s.taken))
			c, done := s.settle(s.taken[i])
			charges = append(charges, c)
			if done {
				s.taken = slices.Delete(s.taken, i, i+1)
			} else {
				s.taken[i].Held -= c.Held
				s.taken[i].Total += c.Cost
			}
			continue
		}
		i := r.IntN(len(s.limits))
		l := &s.limits[i]
		if l.Resource == fairshare.Concurrent {
			continue
		}
		charges = append(charges, fairshare.Charge{Limit: i, Key: []byte(s.keys[r.IntN(len(s.keys))]), Cost: s.cost(l)})
	}
	return charges
}

// cost returns what a request may cost.
func (s *script) cost(l *fairshare.Limit) int64 {
	r := s.rand
	switch {
	case r.IntN(3) > 0:
		return 1 + r.Int64N(3)
	case l.Algorithm == fairshare.GCRA:
		return 1 + r.Int64N(3*l.N) // beyond the most that settling does
	}
	return 1 + r.Int64N(l.N/64+1) // counts may saturate, but not near N
}

// settle returns how a request in progress goes on, and whether it is over.
// Its Total is what it has cost so far.
func (s *script) settle(c fairshare.Charge) (next fairshare.Charge, done bool) {
	r, l := s.rand, &s.limits[c.Limit]
	if !l.Resource.Held() {
		return c, true
	}
	switch r.IntN(6) {
	case 0: // so far
		next = fairshare.Charge{Limit: c.Limit, Key: c.Key, Cost: s.cost(l)}
		next.Held = min(c.Held, next.Cost)
		return next, false
	case 1: // undone
		return fairshare.Charge{Limit: c.Limit, Key: c.Key, Held: c.Held}, true
	case 2: // more than it holds
		c.Held += r.Int64N(math.MaxInt64 - c.Held)
	case 3: // much
		c.Cost = 1 + r.Int64N(max(1, min(l.N, l.Allowed())/8))
		c.Ends, c.Total = true, c.Total+c.Cost
		return c, true
	}
	if r.IntN(4) > 0 {
		c.Cost = s.cost(l)
	}
	c.Ends, c.Total = true, c.Total+c.Cost
	return c, true
}

// runRandom drives a limiter and a Model side by side.
func runRandom(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	scripts := 150
	if testing.Short() {
		scripts = 30
	}
	for seed := range scripts {
		runScript(t, uint64(seed), open)
		if t.Failed() {
			return
		}
	}
}

// RunRandom drives limiters that count in a store and a Model side by side, as [Run]
// does, with limits of these resources only. Times are after 1970 and do not step
// back. Figures may differ by a microsecond.
func RunRandom(t *testing.T, scripts int, open func(testing.TB, []fairshare.Limit) fairshare.Limiter,
	of ...fairshare.Resource) {
	for seed := range scripts {
		if runScript(t, uint64(seed), open, of...); t.Failed() {
			return
		}
	}
}

func runScript(t *testing.T, seed uint64, open func(testing.TB, []fairshare.Limit) fairshare.Limiter,
	of ...fairshare.Resource) {
	s := newScript(seed, of...)
	s.oneRate, s.steady = of != nil, of != nil
	model, subject := NewModel(s.limits), open(t, s.limits)
	for n := range 120 {
		s.step()
		if s.play(t, fmt.Sprintf("seed %d, step %d", seed, n), model, subject); t.Failed() {
			return
		}
	}
}

// play makes one request of both, which must agree.
func (s *script) play(t *testing.T, where string, model *Model, subject fairshare.Limiter) {
	ctx := context.Background()
	if charges := s.charges(); len(charges) > 0 {
		if err := subject.Settle(ctx, s.now, charges); err != nil {
			t.Fatalf("%s: Settle: %v", where, err)
		}
		if err := model.Settle(ctx, s.now, charges); err != nil {
			t.Fatal(err)
		}
	}
	if peeker, ok := subject.(fairshare.Peeker); ok && s.rand.IntN(4) == 0 {
		s.peek(t, where, model, peeker)
	}
	takes := s.takes()
	got, want := make([]fairshare.Tally, len(takes)), make([]fairshare.Tally, len(takes))
	if err := subject.Take(ctx, s.now, takes, got); err != nil {
		t.Fatalf("%s: Take: %v", where, err)
	}
	model.take(s.now, takes, want, true)
	pass := map[bool]bool{false: true, true: true}
	for i, take := range takes {
		if !s.agree(got[i], want[i]) {
			t.Errorf("%s at %d ns: take %d of %q at cost %d under %+v:\n got  %+v\n want %+v",
				where, s.now.UnixNano(), i, take.Key, take.Cost, s.limits[take.Limit], got[i], want[i])
		}
		if want[i].Over {
			pass[take.DryRun] = false
		}
		if l := &s.limits[take.Limit]; got[i].Held < 0 || got[i].Held > 2*l.Allowed() {
			t.Errorf("%s: %d are held under %+v", where, got[i].Held, *l)
		}
	}
	for i, take := range takes {
		if !pass[false] || !pass[take.DryRun] {
			continue
		}
		switch l := &s.limits[take.Limit]; {
		case l.Resource.Held():
			s.taken = append(s.taken, fairshare.Charge{Limit: take.Limit, Key: take.Key, Held: got[i].Held,
				Page: take.Page})
		case !l.Resource.Settled():
			s.taken = append(s.taken, fairshare.Charge{Limit: take.Limit, Key: take.Key, Cost: -take.Cost, At: s.now,
				Every: take.Every})
		}
	}
}

// agree reports whether two tallies are the same or, of a store, as good as.
func (s *script) agree(got, want fairshare.Tally) bool {
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= time.Microsecond }
	if s.of == nil || got.Over != want.Over || got.Held != want.Held || got.Expected != want.Expected {
		return got == want
	}
	return near(got.Wait, want.Wait) && near(got.Reset, want.Reset) && max(got.Used-want.Used, want.Used-got.Used) <= 1
}

// peek reads the same figures of both, which must agree. That it changes nothing
// shows in later requests.
func (s *script) peek(t *testing.T, where string, model *Model, subject fairshare.Peeker) {
	ctx, takes := context.Background(), s.takes()
	got, want := make([]fairshare.Tally, len(takes)), make([]fairshare.Tally, len(takes))
	if err := subject.Peek(ctx, s.now, takes, got); err != nil {
		t.Fatalf("%s: Peek: %v", where, err)
	}
	if err := model.Peek(ctx, s.now, takes, want); err != nil {
		t.Fatal(err)
	}
	for i, take := range takes {
		if !s.agree(got[i], want[i]) {
			t.Errorf("%s at %d ns: Peek of %q at cost %d under %+v:\n got  %+v\n want %+v",
				where, s.now.UnixNano(), take.Key, take.Cost, s.limits[take.Limit], got[i], want[i])
		}
	}
}
