package memlimit

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"fairshare"
)

// markedLimits has limits that count answers, of all layouts, and others.
var markedLimits = append([]fairshare.Limit{
	{Name: "errors", Resource: fairshare.Errors, N: 5, Window: time.Minute},
	{Name: "errors", Resource: fairshare.Errors, N: 30, Window: time.Hour, By: []fairshare.KeyPart{
		{Kind: fairshare.ByNetwork}}},
	{Name: "wide errors", Resource: fairshare.Errors, N: 4, Window: 2 * time.Millisecond},
	{Name: "steady errors", Resource: fairshare.Errors, N: 7, Window: time.Minute, Algorithm: fairshare.GCRA},
	{Name: "failures", Resource: fairshare.Failures, N: 3, Window: time.Minute},
}, allKinds...)

// pairedLimiters are two limiters of the same seed, of which one has the marks of all sets.
type pairedLimiters struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	limits  []fairshare.Limit
	both    [2]*Limiter
	keys    [][]byte
	inside  [][]fairshare.Charge // of requests in progress
	release []fairshare.KeyNames // of prepared takes in progress
	takes   [2]fairshare.PreparedTakes
	of      []fairshare.Take      // the same, where Cost is the number of the key
	held    fairshare.ResourceSet // of these
	roomy   bool                  // see runPaired
}

// markAll marks all sets and all keys, without an end.
func (t *table) markAll() {
	for n := range t.sets {
		t.used.add(n)
	}
	for i := range t.answers {
		for n := range t.answers[i].entries {
			t.answers[i].entries[n].Store(math.MaxInt64)
		}
	}
}

// prepare prepares takes of some limits by two keys.
func (p *pairedLimiters) prepare() {
	limits, keys := []int{}, []int{}
	p.held, p.of = 0, nil
	for i := range p.limits {
		switch l := &p.limits[i]; l.Resource {
		case fairshare.Errors, fairshare.Failures, fairshare.Concurrent:
			if l.Window != 2*time.Millisecond {
				limits, keys = append(limits, i), append(keys, p.r.IntN(2))
				p.held |= 1 << l.Resource
			}
		case fairshare.Requests:
			if p.both[0].limits[i].fast && p.r.IntN(2) == 0 {
				limits, keys = append(limits, i), append(keys, p.r.IntN(2))
			}
		}
	}
	for i, l := range p.both {
		p.takes[i] = l.Prepare(limits, keys)
	}
	for i := range limits {
		p.of = append(p.of, fairshare.Take{Limit: limits[i], Cost: int64(keys[i])})
	}
}

// step does something at random with both limiters, and fails if they differ.
func (p *pairedLimiters) step() {
	p.t.Helper()
	p.both[1].table.markAll()
	r := p.r
	p.now = p.now.Add(time.Duration(r.ExpFloat64() * []float64{1e4, 1e8, 1e10, 1e11, 1e4, 1e8, 1e10, 1e13}[r.IntN(8)]))
	each := func(what string, do func(l *Limiter) any) {
		p.t.Helper()
		if a, b := do(p.both[0]), do(p.both[1]); a != b {
			p.t.Fatalf("%s: %+v, and %+v with all marks", what, a, b)
		}
	}
	key := func() []byte { return p.keys[r.IntN(len(p.keys))] }
	some, every := r.IntN(len(p.limits)), time.Duration(0)
	switch at := key(); r.IntN(16) {
	default:
		p.take()
	case 0, 1, 2, 3:
		p.prepared()
	case 4, 5, 6:
		charge := fairshare.Charge{Limit: some, Key: at, Cost: r.Int64N(4) - 1, At: p.now}
		if p.limits[some].Resource == fairshare.Concurrent {
			return
		}
		each("settle", func(l *Limiter) any { return l.Settle(ctx, p.now, []fairshare.Charge{charge}) })
	case 7:
		each("state", func(l *Limiter) any { return l.State(some, at, every, p.now) })
		each("peek", func(l *Limiter) any {
			tallies := make([]fairshare.Tally, 1)
			if err := l.Peek(ctx, p.now, []fairshare.Take{{Limit: some, Key: at, Cost: 1}}, tallies); err != nil {
				p.t.Fatal(err)
			}
			return tallies[0]
		})
	case 8:
		if r.IntN(8) > 0 {
			return
		}
		from := p.both[0].State(some, at, every, p.now)
		to := key()
		each("set state", func(l *Limiter) any { l.SetState(some, to, every, p.now, from); return nil })
	case 9:
		switch r.IntN(24) {
		case 0:
			p.restart()
		case 1:
			p.inside, p.release = nil, nil
			each("reset", func(l *Limiter) any { l.Reset(); return nil })
		case 2:
			for i := range p.limits {
				p.limits[i].N = markedLimits[i].N - r.Int64N(1+markedLimits[i].N/8)
			}
			for i, l := range p.both {
				next, err := l.With(p.limits)
				if err != nil {
					p.t.Fatal(err)
				}
				p.both[i] = next
			}
			for i := range p.release {
				for j := range p.both {
					p.takes[j].Release(&p.release[i], p.held)
				}
			}
			p.release = nil
			p.prepare()
		}
	}
}

// take takes some limits, and settles an earlier request.
func (p *pairedLimiters) take() {
	p.t.Helper()
	var takes []fairshare.Take
	for _, i := range p.r.Perm(len(p.limits))[:1+p.r.IntN(6)] {
		takes = append(takes, fairshare.Take{Limit: i, Key: p.keys[p.r.IntN(len(p.keys))], Cost: 1,
			DryRun: p.r.IntN(8) == 0})
	}
	tallies := [2][]fairshare.Tally{make([]fairshare.Tally, len(takes)), make([]fairshare.Tally, len(takes))}
	for i, l := range p.both {
		if err := l.Take(ctx, p.now, takes, tallies[i]); err != nil {
			p.t.Fatal(err)
		}
	}
	if !slices.Equal(tallies[0], tallies[1]) {
		p.t.Fatalf("%+v: %+v, and %+v with all marks", takes, tallies[0], tallies[1])
	}
	if slices.ContainsFunc(tallies[0], func(t fairshare.Tally) bool { return t.Over }) {
		return
	}
	var charges []fairshare.Charge
	for i := range takes {
		switch lim := &p.limits[takes[i].Limit]; {
		case lim.Resource == fairshare.Concurrent:
			charges = append(charges, fairshare.Charge{Limit: takes[i].Limit, Key: takes[i].Key, Cost: -1})
		case lim.Resource.Held():
			charges = append(charges, fairshare.Charge{Limit: takes[i].Limit, Key: takes[i].Key,
				Cost: int64(p.r.IntN(2)), Held: tallies[0][i].Held, Ends: true})
		}
	}
	if p.inside = append(p.inside, charges); p.r.IntN(4) == 0 || len(p.inside) > 6 {
		n := p.r.IntN(len(p.inside))
		for _, l := range p.both {
			if err := l.Settle(ctx, p.now, p.inside[n]); err != nil {
				p.t.Fatal(err)
			}
		}
		p.inside = slices.Delete(p.inside, n, n+1)
	}
}

// prepared takes the prepared takes as a guard does, and releases earlier ones.
func (p *pairedLimiters) prepared() {
	p.t.Helper()
	if p.takes[0] == nil {
		return
	}
	keys := [][]byte{p.keys[p.r.IntN(len(p.keys))], p.keys[p.r.IntN(len(p.keys))]}
	keys = keys[:len(p.takes[0].(*prepared).keys)]
	takes := slices.Clone(p.of)
	for i := range takes {
		takes[i].Key, takes[i].Cost = keys[takes[i].Cost], 1
	}
	var names fairshare.KeyNames
	var pass [2]bool
	for i, l := range p.both {
		if pass[i] = p.takes[i].Take(p.now, keys, &names); pass[i] {
			continue
		}
		tallies := make([]fairshare.Tally, len(takes))
		if err := l.Take(ctx, p.now, takes, tallies); err != nil {
			p.t.Fatal(err)
		}
		pass[i] = !slices.ContainsFunc(tallies, func(t fairshare.Tally) bool { return t.Over })
	}
	if pass[0] != pass[1] {
		p.t.Fatalf("prepared takes pass: %v, and %v with all marks", pass[0], pass[1])
	}
	if pass[0] {
		p.release = append(p.release, names)
	}
	if len(p.release) > 0 && (p.r.IntN(2) == 0 || len(p.release) > 4) {
		for _, takes := range p.takes {
			takes.Release(&p.release[0], p.held)
		}
		p.release = p.release[1:]
	}
}

// restart saves both, and loads the snapshots into new limiters, which may have more memory.
func (p *pairedLimiters) restart() {
	p.t.Helper()
	p.inside, p.release = nil, nil
	sets := int64(len(p.both[0].table.sets))
	if p.r.IntN(2) == 0 {
		sets += p.r.Int64N(sets)
	}
	for i, l := range p.both {
		next := p.opened(sets)
		if _, err := next.Load(bytes.NewReader(snapshotOf(p.t, l, p.now)), p.now); err != nil {
			p.t.Fatal(err)
		}
		p.both[i] = next
	}
	p.both[1].slots = &slots{second: p.both[0].slots.second, means: p.both[0].slots.means}
	p.prepare()
}

// opened opens a limiter with a table of so many sets. Its marks have short epochs or, in a roomy table, a single word.
func (p *pairedLimiters) opened(sets int64) *Limiter {
	l := opened(p.t, sets*setBytes, p.limits...)
	for i := range l.table.answers {
		marks := &l.table.answers[i]
		if p.roomy {
			marks.make(64, marks.epoch)
		}
		marks.epoch -= uint8(p.r.IntN(10))
	}
	return l
}

// runPaired compares a limiter with one that looks at all sets. In a roomy table the time is a wrong one now and
// then. In others, states that are fresh then would make room for new ones if their sets are looked at.
func runPaired(t *testing.T, run uint64, sets int64, steps int, roomy bool) (compared int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("in run %d", run)
		}
	}()
	p := &pairedLimiters{t: t, r: rand.New(rand.NewPCG(run, 1)), now: start, limits: slices.Clone(markedLimits),
		roomy: roomy}
	if roomy {
		sets += 4000
	}
	for i := range p.both {
		p.both[i] = p.opened(sets)
	}
	for _, l := range p.both {
		l.table.plant(seed{byte(run), byte(run >> 8)})
	}
	p.both[1].slots.second = p.both[0].slots.second
	for i := range 10 {
		p.keys = append(p.keys, append(make([]byte, 16), byte(i)))
	}
	p.prepare()
	wrong, ahead := 0, time.Duration(0) // for so many steps the time is so far ahead
	for range steps {
		if p.both[0].HasLost() || p.both[1].HasLost() { // which ones may differ
			break
		}
		if roomy && wrong == 0 && p.r.IntN(40) == 0 {
			wrong = 1 + p.r.IntN(10)
			ahead = time.Duration(p.r.ExpFloat64() * []float64{1e10, 1e12, 1e13, 1e16}[p.r.IntN(4)])
		}
		was := p.now
		if wrong > 0 {
			wrong--
			p.now = was.Add(ahead)
			p.step()
			p.now = was
		} else {
			p.step()
		}
		compared++
	}
	for _, l := range p.both {
		check(t, l.table)
	}
	return compared
}

// A limiter that does not look at sets without a mark decides the same as one that looks at all.
func TestMarksChangeNothing(t *testing.T) {
	rounds := uint64(120)
	if raceEnabled || testing.Short() {
		rounds = 40
	}
	compared := 0
	for seed := range rounds {
		compared += runPaired(t, seed, int64(12+seed%100), 1000, seed%4 == 0)
	}
	if compared < int(rounds)*100 {
		t.Errorf("%d steps in %d rounds", compared, rounds)
	}
	t.Logf("%d steps", compared)
}

func FuzzMarks(f *testing.F) {
	f.Add(uint64(1), uint8(30), true)
	f.Fuzz(func(t *testing.T, seed uint64, sets uint8, roomy bool) { runPaired(t, seed, 2+int64(sets), 500, roomy) })
}

// A charge of one goroutine counts for a look that another one begins later, and sets are marked by
// many goroutines at once.
func TestMarksOfManyGoroutines(t *testing.T) {
	l := opened(t, 300*setBytes, markedLimits...)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			takes, tallies := make([]fairshare.Take, 1), make([]fairshare.Tally, 1)
			for i := range 20 { // other keys than those of other goroutines
				key := number(1000*g + i)
				takes[0] = fairshare.Take{Limit: 0, Key: key, Cost: 1}
				for n := range 6 {
					if err := l.Take(ctx, start, takes, tallies); err != nil || tallies[0].Over != (n == 5) {
						t.Errorf("errors of a client: %d: %+v, %v", n, tallies[0], err)
						return
					}
					if n == 5 {
						break
					}
					if err := l.Settle(ctx, start, []fairshare.Charge{{Limit: 0, Key: key, Cost: 1,
						Held: tallies[0].Held}}); err != nil {
						t.Error(err)
					}
				}
				if i%8 == 0 {
					l.Stats(start)
					if err := l.Save(&bytes.Buffer{}, start); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if l.HasLost() {
		t.Fatal("states were lost")
	}
	check(t, l.table)
}
