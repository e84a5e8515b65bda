package fairshare

import (
	"slices"
	"sync/atomic"
)

// A begunWalk has the rules that may still hold for requests with the same method, sets of paths,
// user agent and query. It is for requests that are not of a bot and not an attempt.
type begunWalk struct {
	set   *ruleSet
	facts uint64   // a hash of what the requests have in common
	rules []uint64 // that may hold, as in walkIndex
	known uint64   // conditions among walkIndex.shared that hold if a rule that is left has them
	plain []uint64 // of these: simple limits without a condition that is left
}

// begunWalks remembers the begunWalks of recent requests. Each has one place.
type begunWalks struct {
	entries [mostBegun]atomic.Pointer[begunWalk]
	misses  atomic.Uint32
}

// mostBegun is how many begunWalks a guard remembers, about 150 bytes each.
const mostBegun = 1024

// begin fills candidates with the rules that may hold for the request, and returns the begunWalk with
// these rules; nil if there is none. Of many requests without one, few make one, see replaceEvery.
func (g *Guard) begin(d *decision, method int, candidates []uint64) *begunWalk {
	x, req, paths := d.set.index, d.req, d.set.index.pathSets(d)
	if req.Bot.State != NoBot || req.Attempt != NoAttempt || req.Excess {
		x.candidates(d, method, paths, candidates)
		return nil
	}
	facts := uint64(method) + 1
	if d.site >= 0 {
		facts += uint64(g.setOf[d.site]) << 32
	}
	if req.Query != "" {
		facts += d.query.hashOf(g, req.Query)
	}
	facts = fold(d.agent.hashOf(g, req.UserAgent)^paths*0x9E3779B97F4A7C15, facts^0xD6E8FEB86659FD93)
	entry := &g.begun.entries[facts%mostBegun]
	b := entry.Load()
	if b != nil && b.facts == facts && b.set == d.set {
		copy(candidates, b.rules)
		return b
	}
	x.candidates(d, method, paths, candidates)
	if b != nil && g.begun.misses.Add(1)%replaceEvery != 0 {
		return nil
	}
	for i, rules := range x.attempts {
		candidates[i] &^= rules
	}
	x.sift(&x.texts, d, candidates)
	b = &begunWalk{set: d.set, facts: facts, rules: slices.Clone(candidates), plain: make([]uint64, len(candidates)),
		known: x.texts.shared}
	for n, c := range x.shared {
		if c.field == notField && slices.ContainsFunc(c.not, func(not condition) bool {
			return not.field == methodField && !not.holds(d)
		}) {
			b.known |= 1 << n
		}
	}
	for i := range x.steps {
		step := &x.steps[i]
		if step.simple == simpleLimit && step.uses&^b.known == 0 && len(x.texts.steps[i].rest) == 0 {
			b.plain[i/64] |= b.rules[i/64] & (1 << (i % 64))
		}
	}
	entry.Store(b)
	return b
}

// isOfTexts reports whether a condition depends on the method, the user agent and the query alone, for
// a request that is not of a bot and not an attempt.
func (c *condition) isOfTexts() bool {
	switch c.field {
	case methodField, botField, userAgentField, queryField:
		return true
	case attemptField:
		return c.attempts&knownAttempt == 0
	case notField:
		return !slices.ContainsFunc(c.not, func(not condition) bool { return !not.isOfTexts() })
	}
	return false
}
