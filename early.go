package fairshare

import (
	mathbits "math/bits"
	"runtime"
	"slices"
)

// An earlyMatch is what Guard.MatchEarly has found.
type earlyMatch struct {
	policy *Policy // nil: nothing
	rules  [earlyWords]uint64
}

// earlyWords is how many words a set of rules has for which a request is matched early:
// of 256 rules.
const earlyWords = 4

// MatchEarly tests those conditions of the rules that depend on the request alone, and
// notes in the request which rules may still hold. Decide of this guard, or of another
// one of the same policy, then tests the other conditions only. The verdict is the same.
// Another goroutine can call MatchEarly while earlier requests are judged: replay does.
//
// Between both calls only these fields may change: Time, Lookups, Visitor, Browser,
// Robots, Fleet, FleetNew, Attempt, Excess, Logins, Override and ViaOverride. Header may
// be replaced by one with the same values. Sets of addresses are those of the first call.
func (g *Guard) MatchEarly(req *Request) {
	req.early.policy = nil
	d := g.decisions.Get().(*decision)
	d.reset(req, req.Time)
	x := d.set.index
	candidates := d.candidates[:len(x.anyPath)]
	if len(candidates) <= earlyWords && len(d.set.rules) >= fewRules {
		if method, ok := x.method(req); ok {
			x.candidates(d, method, x.pathSets(d), candidates)
			x.sift(&x.early, d, candidates)
			req.early.policy = g.policy
			copy(req.early.rules[:], candidates)
		}
	}
	d.remember()
	d.req = nil
	g.decisions.Put(d)
}

// Expect reads memory that Decide will need for some requests, and changes nothing. The processor overlaps these
// reads, but not those of one decision after another: replay expects requests before it judges them. The result is
// of no use, except that it makes the compiler keep the reads.
func (g *Guard) Expect(next []*Request) (sum uint64) {
	if !g.standing {
		return 0
	}
	defer runtime.KeepAlive(g.history)
	for len(next) > 0 {
		var sets [32]int // a loop that only reads overlaps more
		named := false   // the memory of the history is there
		some := next[:min(len(next), len(sets))]
		next = next[len(some):]
		for i, req := range some {
			if req.Addr.IsValid() {
				sets[i], named = (g.clientOf(req).set-1)*maxAged, true
			}
		}
		if aged := g.history.aged; named && aged != nil {
			for _, set := range sets[:len(some)] {
				sum += aged[set].Load()
			}
		}
	}
	return sum
}

// A sieve tests those conditions of all rules that depend on certain facts of a request
// only, before the walk.
type sieve struct {
	shared uint64      // the conditions among walkIndex.shared that it tests
	steps  []sieveStep // of each rule
}

// A sieveStep is one rule of a sieve.
type sieveStep struct {
	tested, rest []ownCondition // of walkStep.own: what the sieve tests, and the others
	ends         bool           // the walk ends here if all conditions that the sieve tests hold
}

// sift removes from the candidates the rules with a condition that the sieve tests and that does not
// hold, and those below a rule that surely ends the walk.
func (x *walkIndex) sift(s *sieve, d *decision, candidates []uint64) {
	known := uint64(0)
	for word := range candidates {
		for rules := candidates[word]; rules != 0; {
			rule := mathbits.TrailingZeros64(rules)
			step := &s.steps[word*64+rule]
			rules &= rules - 1
			var holds bool
			if known, holds = x.evaluateOwn(d, step.tested, known, candidates); holds {
				known, holds = x.evaluate(d, x.steps[word*64+rule].uses&s.shared&^known, known, candidates)
			}
			switch {
			case !holds:
				candidates[word] &^= 1 << rule
				rules &= candidates[word]
			case step.ends:
				candidates[word] &= 2<<rule - 1
				clear(candidates[word+1:])
				return
			}
		}
	}
}

// sieve returns the sieve that tests some of the conditions of the rules.
func (x *walkIndex) sieve(rules []compiledRule, tests func(*condition) bool) (s sieve) {
	for n, c := range x.shared {
		if tests(c) {
			s.shared |= 1 << n
		}
	}
	for i := range x.steps {
		uses, r := x.steps[i].uses, &rules[i]
		var step sieveStep
		for _, c := range x.steps[i].own {
			if !tests(c.condition) {
				step.rest = append(step.rest, c)
				continue
			}
			c.after &= s.shared
			step.tested = append(step.tested, c)
		}
		step.ends = r.Limit == nil && (r.Action == Allow || !r.DryRun) && len(step.rest) == 0 && uses&^s.shared == 0
		s.steps = append(s.steps, step)
	}
	return s
}

// isEarly reports whether a condition depends on what MatchEarly knows.
func (c *condition) isEarly() bool {
	switch c.field {
	case browserField, robotsField, attemptField, labelField, seenField, hostnameField, listedField:
		return false
	}
	return !slices.ContainsFunc(c.not, func(not condition) bool { return !not.isEarly() })
}
