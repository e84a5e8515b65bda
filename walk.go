package fairshare

import (
	"cmp"
	"fmt"
	"hash/maphash"
	mathbits "math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
)

// A walkIndex finds the rules that may hold for a request, so that the walk
// does not have to evaluate every rule. It evaluates the conditions on method
// and path of all rules together, and a condition of several rules once.
// Guard.walkAll is the same walk without it.
//
// A set of rules is a list of words; rule i is bit i%64 of word i/64.
type walkIndex struct {
	methods  []string // the methods that the index knows
	byMethod [][]uint64
	paths    pathIndex
	byPath   [][]uint64   // the rules of each path set of paths
	plain    []uint64     // simple limits without a condition that is left
	anyPath  []uint64     // rules without an indexed path condition
	salt     uint64       // of the paths that Guard.paths remembers; 0: none, matching is cheap
	strict   uint64       // path sets of restrictions, for which "/a/" is "/a" too
	bots     []uint64     // rules that hold for bots only, and limits with CrawlDelay
	queries  []uint64     // rules that hold only with a query
	attempts []uint64     // rules that hold only for attempts
	shared   []*condition // conditions that are evaluated once for all rules, at most maxShared
	sharedBy [][]uint64   // the rules of each of shared
	steps    []walkStep
	early    sieve // of MatchEarly
	texts    sieve // of begunWalk
}

// A walkStep is one rule of a walkIndex.
type walkStep struct {
	uses   uint64         // its conditions among shared, one bit each
	own    []ownCondition // the conditions that are neither indexed nor shared, the cheap ones first
	rule   int32          // place in Guard.rules
	limit  int32          // of a limit: place in Guard.limits; else −1
	simple simpleRule
	dry    bool // the rule is in dry run
}

// A simpleRule says what a rule that holds does, if that depends on nothing but whether
// it holds.
type simpleRule uint8

const (
	notSimple       simpleRule = iota
	simpleLimit                // the walk goes on behind it
	simpleBusyLimit            // a limit, while the upstream is busy
	simpleAllow                // the walk ends
)

// simple returns what a rule does.
func (r *compiledRule) simple() simpleRule {
	switch {
	case r.Limit == nil && r.Action == Allow:
		return simpleAllow
	case r.Limit == nil || r.Limit.CrawlDelay || r.Last:
		return notSimple
	case r.Limit.When == Busy:
		return simpleBusyLimit
	}
	return simpleLimit
}

// An ownCondition is a condition that only its rule evaluates.
type ownCondition struct {
	*condition
	after uint64 // conditions of the rule among shared that are evaluated before it: they are as cheap
}

// maxShared is how many conditions are shared. Rules evaluate the others for themselves.
const maxShared = 64

// newWalkIndex returns the index for compiled rules, which are at places in Guard.rules.
func newWalkIndex(rules []compiledRule, places []int32, foldPaths bool) *walkIndex {
	words := (len(rules) + 63) / 64
	x := &walkIndex{methods: knownMethods(rules), anyPath: make([]uint64, words), bots: make([]uint64, words),
		queries: make([]uint64, words), attempts: make([]uint64, words), paths: pathIndex{fold: foldPaths}}
	for range x.methods {
		x.byMethod = append(x.byMethod, make([]uint64, words))
	}
	var sets []*condition // by number of path set
	for i := range rules {
		word, bit := i/64, uint64(1)<<(i%64)
		methods := slices.Repeat([]bool{true}, len(x.methods))
		pathed := false
		var own []ownCondition
		for j := range rules[i].match {
			c := &rules[i].match[j]
			switch {
			case c.field == methodField:
				for m, method := range x.methods {
					methods[m] = methods[m] && matchAny(c.patterns, method, "")
				}
				continue
			case c.field == pathField:
				n := slices.IndexFunc(sets, func(s *condition) bool {
					return s.favorable == c.favorable && slices.Equal(s.paths.texts, c.paths.texts)
				})
				if n < 0 && len(sets) < maxPathSets && c.paths.indexable() {
					n = len(sets)
					sets = append(sets, c)
					x.byPath = append(x.byPath, make([]uint64, words))
					x.paths.add(c.paths, 1<<n)
					if !c.favorable {
						x.strict |= 1 << n
					}
				}
				if n >= 0 {
					pathed = true
					x.byPath[n][word] |= bit
					continue
				}
			case c.field == botField, c.field == robotsField:
				x.bots[word] |= bit
			case c.field == queryField:
				x.queries[word] |= bit
			case c.field == attemptField && c.attempts&knownAttempt == 0:
				x.attempts[word] |= bit
			}
			own = append(own, ownCondition{condition: c})
		}
		for m := range x.methods {
			if methods[m] {
				x.byMethod[m][word] |= bit
			}
		}
		if l := rules[i].Limit; l != nil && l.CrawlDelay {
			x.bots[word] |= bit
		}
		if !pathed {
			x.anyPath[word] |= bit
		}
		x.steps = append(x.steps, walkStep{own: own, rule: places[i], limit: int32(rules[i].limit),
			simple: rules[i].simple(), dry: rules[i].DryRun})
	}
	x.paths.addFilter()
	if len(x.paths.others) > 0 || len(x.paths.exact)+len(x.paths.ends) > 0 && x.paths.fold {
		x.salt = rand.Uint64() | 1
	}
	x.share()
	x.plain = make([]uint64, words)
	for i := range x.steps {
		if step := &x.steps[i]; step.simple == simpleLimit && len(step.own) == 0 && step.uses == 0 {
			x.plain[i/64] |= 1 << (i % 64)
		}
	}
	x.early, x.texts = x.sieve(rules, (*condition).isEarly), x.sieve(rules, (*condition).isOfTexts)
	return x
}

// share moves conditions from own to shared, the cheap ones first: all, or those of the most rules.
func (x *walkIndex) share() {
	seed := maphash.MakeSeed()
	known := map[uint64][]*condition{} // one of equal conditions, by their sum
	find := func(c *condition) *condition {
		var h maphash.Hash
		h.SetSeed(seed)
		c.sum(&h)
		sum := h.Sum64()
		for _, other := range known[sum] {
			if reflect.DeepEqual(other, c) {
				return other
			}
		}
		known[sum] = append(known[sum], c)
		return c
	}
	rules := map[*condition][]int{} // that have it
	for i := range x.steps {
		for _, c := range x.steps[i].own {
			if c.sharable() {
				c := find(c.condition)
				if rules[c] = append(rules[c], i); len(rules[c]) == 1 {
					x.shared = append(x.shared, c)
				}
			}
		}
	}
	slices.SortStableFunc(x.shared, func(a, b *condition) int { return cmp.Compare(len(rules[b]), len(rules[a])) })
	x.shared = x.shared[:min(len(x.shared), maxShared)]
	slices.SortStableFunc(x.shared, func(a, b *condition) int { return cmp.Compare(a.cost(), b.cost()) })
	for n, c := range x.shared {
		x.sharedBy = append(x.sharedBy, make([]uint64, len(x.anyPath)))
		for _, i := range rules[c] {
			x.steps[i].uses |= 1 << n
			x.sharedBy[n][i/64] |= 1 << (i % 64)
		}
	}
	for i := range x.steps {
		step := &x.steps[i]
		step.own = slices.DeleteFunc(step.own, func(c ownCondition) bool {
			return c.sharable() && slices.Contains(x.shared, find(c.condition))
		})
		slices.SortStableFunc(step.own, func(a, b ownCondition) int { return cmp.Compare(a.cost(), b.cost()) })
		for j := range step.own {
			c := &step.own[j]
			costlier := slices.IndexFunc(x.shared, func(s *condition) bool { return s.cost() > c.cost() })
			c.after = step.uses
			if costlier >= 0 {
				c.after &= 1<<costlier - 1
			}
		}
	}
}

// cost returns the place of a condition in the order of evaluation: that of its field, or of the
// costliest field in not.
func (c *condition) cost() field {
	most := c.field
	for i := range c.not {
		most = max(most, c.not[i].cost())
	}
	return most
}

// sharable reports whether a condition can be shared. Sets of addresses may change and cannot be
// compared. DNS is queried for one rule at a time, after its other conditions.
func (c *condition) sharable() bool {
	if c.field == hostnameField || c.field == listedField || c.addrs != nil {
		return false
	}
	for i := range c.not {
		if !c.not[i].sharable() {
			return false
		}
	}
	return true
}

// sum adds to h what distinguishes most conditions.
func (c *condition) sum(h *maphash.Hash) {
	h.Write([]byte{byte(c.field), byte(c.attempts), byte(c.referers), byte(c.browsers), c.seen})
	h.WriteString(c.name)
	patterns := c.patterns
	if c.bot != nil {
		patterns = slices.Concat(c.bot.names, c.bot.operators)
	}
	if c.owner != nil {
		patterns = c.owner.texts
		fmt.Fprint(h, c.owner.numbers)
	}
	for i := range patterns {
		p := &patterns[i]
		for _, part := range p.parts {
			h.WriteString(part)
		}
		if p.re != nil {
			h.WriteString(p.re.String())
		}
	}
	if c.paths != nil {
		for _, text := range c.paths.texts {
			h.WriteString(text)
		}
	}
	for i := range c.not {
		c.not[i].sum(h)
	}
}

// maxMethods bounds the methods that an index knows.
const maxMethods = 16

// knownMethods returns the common methods and those that rules name.
func knownMethods(rules []compiledRule) []string {
	methods := []string{"GET", "POST", "HEAD"}
	for i := range rules {
		for _, c := range rules[i].match {
			if c.field != methodField {
				continue
			}
			for _, p := range c.patterns {
				if p.re == nil && len(methods) < maxMethods && !slices.Contains(methods, strings.ToUpper(p.parts[0])) {
					methods = append(methods, strings.ToUpper(p.parts[0]))
				}
			}
		}
	}
	return methods
}

// method returns the number of the request's method in the index, and whether the index can be
// used: it cannot for an odd path or an unknown method.
func (x *walkIndex) method(req *Request) (method int, ok bool) {
	method = slices.Index(x.methods, req.Method)
	return method, method >= 0 && !req.OddPath
}

// candidates fills set with the rules that may hold for the request, which has that method and fits
// those path sets.
func (x *walkIndex) candidates(d *decision, method int, paths uint64, set []uint64) {
	req := d.req
	copy(set, x.anyPath)
	for ; paths != 0; paths &= paths - 1 {
		for i, rules := range x.byPath[mathbits.TrailingZeros64(paths)] {
			set[i] |= rules
		}
	}
	for i, rules := range x.byMethod[method] {
		set[i] &= rules
	}
	if req.Bot.State == NoBot {
		for i, rules := range x.bots {
			set[i] &^= rules
		}
	}
	if req.Query == "" {
		for i, rules := range x.queries {
			set[i] &^= rules
		}
	}
}

// pathSets returns the path sets that the request's path fits.
func (x *walkIndex) pathSets(d *decision) (paths uint64) {
	if len(x.byPath) == 0 {
		return 0
	}
	path, hash, slots := d.req.Path, uint64(0), &d.guard.paths
	if x.salt != 0 {
		hash = maphash.String(d.guard.seed, path) ^ x.salt
		if known, sets := slots.get(hash); known != 0 {
			d.shown, d.shownKnown = known>>1, len(d.guard.seen) < maxSeen
			return sets
		}
	}
	paths = x.paths.match(d, path)
	if n := len(path); n >= 2 && path[n-1] == '/' { // as in condition.fitsPath
		paths |= x.paths.match(d, trimSlash(path)) & x.strict
	}
	if x.salt != 0 {
		d.shown, d.shownKnown = d.findShown(), true
		slots.put(hash, d.shown<<1|1, paths) // without the last of maxSeen places
	}
	return paths
}

// walk goes through the rules and gathers the takes. It returns the rule that
// blocks, if one does.
func (g *Guard) walk(d *decision, v *Verdict) *compiledRule {
	set := d.set
	x, candidates := set.index, d.candidates[:len(set.index.anyPath)]
	var passed *sieve                  // that has tested conditions
	known, plain := uint64(0), x.plain // known: the shared conditions that were evaluated and hold
	if d.req.early.policy == g.policy {
		passed, known = &x.early, x.early.shared // of the rules that are left
		copy(candidates, d.req.early.rules[:])
	} else if method, ok := x.method(d.req); !ok || len(set.rules) < fewRules {
		return g.walkAll(d, v)
	} else if b := g.begin(d, method, candidates); b != nil {
		passed, known, plain = &x.texts, b.known, b.plain
	}
	if passed != &x.texts && d.req.Attempt == NoAttempt && !d.req.Excess { // otherwise begin has done it
		for i, rules := range x.attempts {
			candidates[i] &^= rules
		}
	}
	hold, steps := d.hold[:len(candidates)], x.steps
	clear(hold)
	together := !d.req.Via.IsValid() && !d.probe // the rules that hold are gathered at the end, see takeGroup
walk:
	for word := range candidates {
		rules := candidates[word]
		if together {
			hold[word] = rules & plain[word]
			rules &^= plain[word]
		}
		for rules != 0 {
			rule := mathbits.TrailingZeros64(rules)
			step := &steps[word*64+rule]
			rules &= rules - 1
			own := step.own
			if passed != nil {
				own = passed.steps[word*64+rule].rest
			}
			if len(own) > 0 {
				var holds bool
				if known, holds = x.evaluateOwn(d, own, known, candidates); !holds {
					rules &= candidates[word]
					continue
				}
			}
			if unknown := step.uses &^ known; unknown != 0 {
				var holds bool
				if known, holds = x.evaluate(d, unknown, known, candidates); !holds {
					rules &= candidates[word]
					continue
				}
			}
			switch {
			case !together || step.simple == notSimple:
				if together {
					together = false
					hold[word] &= 1<<rule - 1
					d.gatherHold(x)
					rules |= candidates[word] & plain[word] &^ (2<<rule - 1)
				}
				if block, ends := g.apply(int(step.rule), d, v); ends {
					return block
				}
			case step.simple == simpleBusyLimit && !d.isBusy():
			default:
				hold[word] |= 1 << rule
				if step.simple == simpleAllow {
					hold[word] &= 2<<rule - 1
					break walk
				}
			}
		}
	}
	if together {
		if d.group = g.groupOf(set, hold); d.group == nil || d.group.picky {
			d.group = nil
			d.gatherHold(x)
		}
	}
	return nil
}

// gatherHold gathers the takes of the rules in d.hold.
func (d *decision) gatherHold(x *walkIndex) {
	for word, rules := range d.hold[:len(x.anyPath)] {
		for ; rules != 0; rules &= rules - 1 {
			step := &x.steps[word*64+mathbits.TrailingZeros64(rules)]
			d.matched = append(d.matched, step.rule)
			if step.limit >= 0 {
				d.add(int(step.rule), int(step.limit), step.dry)
			}
		}
	}
}

// evaluateOwn reports whether the conditions of one rule hold, and the shared ones that are evaluated
// before them. It goes in order of cost, so that a costly condition concerns only requests for which
// all cheaper ones of a rule hold. It is like evaluate otherwise.
func (x *walkIndex) evaluateOwn(d *decision, own []ownCondition, known uint64, candidates []uint64) (uint64, bool) {
	for i := range own {
		if unknown := own[i].after &^ known; unknown != 0 {
			var holds bool
			if known, holds = x.evaluate(d, unknown, known, candidates); !holds {
				return known, false
			}
		}
		if !own[i].holds(d) {
			return known, false
		}
	}
	return known, true
}

// evaluate evaluates shared conditions until one does not hold, and reports whether all do. It adds
// those that hold to known, and removes the rules of the other from the candidates.
func (x *walkIndex) evaluate(d *decision, unknown, known uint64, candidates []uint64) (uint64, bool) {
	for ; unknown != 0; unknown &= unknown - 1 {
		n := mathbits.TrailingZeros64(unknown)
		if !x.shared[n].holds(d) {
			for w, rules := range x.sharedBy[n] {
				candidates[w] &^= rules
			}
			return known, false
		}
		known |= 1 << n
	}
	return known, true
}

// fewRules is how many rules make the index worth its cost.
const fewRules = 4

// walkAll is walk without the index.
func (g *Guard) walkAll(d *decision, v *Verdict) *compiledRule {
	held := false
	for i, rule := range d.set.rules {
		if !d.set.sameMatch[i] {
			held = g.rules[rule].match.holds(d)
		}
		if !held {
			continue
		}
		if block, ends := g.apply(int(rule), d, v); ends {
			return block
		}
	}
	return nil
}

// apply applies rule i, whose match holds. It reports whether the walk ends
// there, and returns the rule if it blocks.
func (g *Guard) apply(i int, d *decision, v *Verdict) (block *compiledRule, ends bool) {
	r := &g.rules[i]
	if r.Limit != nil && (r.Limit.When == Busy && !d.isBusy() || r.Limit.CrawlDelay && d.req.crawlDelay() == 0) {
		return nil, false
	}
	d.matched = append(d.matched, int32(i))
	switch {
	case r.Action == Allow:
		return nil, true
	case r.Action == Block && r.DryRun:
		if v.DryRunFinding.Action == Undecided {
			v.DryRunFinding = Finding{Action: Block, Rule: r.Rule}
			d.dryBlock = r
		}
		return nil, false
	case r.Action == Block:
		return r, true
	}
	d.gather(i, r)
	return nil, r.Last && !r.DryRun && r.ends.holds(d)
}
