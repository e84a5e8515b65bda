package census

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"fairshare"
)

// A tally counts the refusals of one kind in a time, by rule. The zero tally is empty.
// It is safe for concurrent use.
type tally struct {
	count
	bots
	bans  atomic.Int64                      // that began
	mu    sync.Mutex                        // held to add a rule
	rules atomic.Pointer[map[string]*count] // by name; copied on writing
}

// A count counts requests that were refused or blocked, and their clients.
type count struct {
	requests atomic.Int64
	clients  sample
}

// bots counts the requests of bots among those refused or blocked.
type bots struct {
	known   atomic.Int64 // of all clients recognized as bots
	forged  atomic.Int64
	engines atomic.Int64 // verified search engines
}

func (b *bots) add(of *fairshare.Bot, n int64) {
	if of.Name == "" {
		return
	}
	b.known.Add(n)
	switch {
	case of.State == fairshare.Forged:
		b.forged.Add(n)
	case engine(of):
		b.engines.Add(n)
	}
}

func (t *tally) rule(name string) *count {
	if rules := t.rules.Load(); rules != nil {
		if c := (*rules)[name]; c != nil {
			return c
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rules := map[string]*count{}
	if old := t.rules.Load(); old != nil {
		maps.Copy(rules, *old)
	}
	if rules[name] == nil {
		rules[name] = &count{}
	}
	t.rules.Store(&rules)
	return rules[name]
}

// join adds another tally.
func (t *tally) join(other *tally) {
	t.count.join(&other.count)
	t.bans.Add(other.bans.Load())
	t.known.Add(other.known.Load())
	t.forged.Add(other.forged.Load())
	t.engines.Add(other.engines.Load())
	if rules := other.rules.Load(); rules != nil {
		for name, c := range *rules {
			t.rule(name).join(c)
		}
	}
}

func (c *count) join(other *count) {
	c.requests.Add(other.requests.Load())
	c.clients.join(&other.clients)
}

// A ruleSum counts the refusals of one rule.
type ruleSum struct {
	name     string
	requests int64
	amount
}

// sums returns the counts of each rule, the one with most clients first.
func (t *tally) sums() []ruleSum {
	var sums []ruleSum
	if rules := t.rules.Load(); rules != nil {
		for name, c := range *rules {
			sums = append(sums, ruleSum{name, c.requests.Load(), c.clients.amount()})
		}
	}
	slices.SortFunc(sums, func(a, b ruleSum) int {
		return cmp.Or(cmp.Compare(b.clients, a.clients), cmp.Compare(b.requests, a.requests),
			strings.Compare(a.name, b.name))
	})
	return sums
}
