package fairshare

import (
	mathbits "math/bits"
	"slices"
	"strings"
)

// A walkIndex finds the rules that may hold for a request, so that the walk
// does not have to evaluate every rule. It evaluates the conditions on method
// and path of all rules together. Guard.walkAll is the same walk without it.
//
// A set of rules is a list of words; rule i is bit i%64 of word i/64.
type walkIndex struct {
	methods  []string // the methods that the index knows
	byMethod [][]uint64
	paths    pathIndex
	byPath   [][]uint64 // the rules of each path set of paths
	anyPath  []uint64   // rules without an indexed path condition
	strict   uint64     // path sets of restrictions, for which "/a/" is "/a" too
	bots     []uint64   // rules that hold for bots only, and limits with CrawlDelay
	queries  []uint64   // rules that hold only with a query
	attempts []uint64   // rules that hold only for attempts
	rest     []matcher  // of each rule: the conditions that the index does not evaluate
}

// newWalkIndex returns the index for compiled rules.
func newWalkIndex(rules []compiledRule, foldPaths bool) *walkIndex {
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
		var rest matcher
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
			rest = append(rest, *c)
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
		x.rest = append(x.rest, rest)
	}
	return x
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

// candidates fills set with the rules that may hold for the request, and
// reports whether the index can: it cannot for an odd path or an unknown
// method.
func (x *walkIndex) candidates(d *decision, set []uint64) bool {
	req := d.req
	method := slices.Index(x.methods, req.Method)
	if method < 0 || req.OddPath {
		return false
	}
	copy(set, x.anyPath)
	if len(x.byPath) > 0 {
		paths := x.paths.match(d, req.Path)
		if n := len(req.Path); n >= 2 && req.Path[n-1] == '/' { // as in condition.fitsPath
			paths |= x.paths.match(d, trimSlash(req.Path)) & x.strict
		}
		for ; paths != 0; paths &= paths - 1 {
			for i, rules := range x.byPath[mathbits.TrailingZeros64(paths)] {
				set[i] |= rules
			}
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
	if req.Attempt == NoAttempt && !req.Excess {
		for i, rules := range x.attempts {
			set[i] &^= rules
		}
	}
	if req.Query == "" {
		for i, rules := range x.queries {
			set[i] &^= rules
		}
	}
	return true
}

// walk goes through the rules and gathers the takes. It returns the rule that
// blocks, if one does.
func (g *Guard) walk(d *decision, v *Verdict) *compiledRule {
	set := d.set
	candidates := d.candidates[:len(set.index.anyPath)]
	if len(set.rules) < fewRules || !set.index.candidates(d, candidates) {
		return g.walkAll(d, v)
	}
	held := false
	for word, rules := range candidates {
		for ; rules != 0; rules &= rules - 1 {
			i := word*64 + mathbits.TrailingZeros64(rules)
			if !set.sameMatch[i] {
				held = set.index.rest[i].holds(d)
			}
			if !held {
				continue
			}
			if block, ends := g.apply(int(set.rules[i]), d, v); ends {
				return block
			}
		}
	}
	return nil
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
	return nil, r.Last && r.ends.holds(d)
}
