package logreplay

import (
	"context"
	"fmt"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// A groupEstimate counts how many decisions of a replay would ask the store, if the requests came to several
// members in turn. It is used by one goroutine.
type groupEstimate struct {
	store                policyfile.Store
	members              int64
	decisions, questions int64
}

// MaxMembers bounds Options.Members.
const MaxMembers = 100

func newGroupEstimate(store *policyfile.Store, members int) *groupEstimate {
	g := &groupEstimate{members: int64(members)}
	if store != nil {
		g.store = *store
	}
	return g
}

// limiter returns a function that makes counters which report to g.
func (g *groupEstimate) limiter(file *policyfile.File) func([]fairshare.Limit) (fairshare.Limiter, error) {
	return func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		l, err := memlimit.New(limits, memlimit.Options{Memory: file.Memory})
		if err != nil {
			return nil, err
		}
		return &estimatingLimiter{Limiter: l, estimate: g, limits: limits}, nil
	}
}

// An estimatingLimiter decides as its Limiter does.
type estimatingLimiter struct {
	*memlimit.Limiter
	estimate *groupEstimate
	limits   []fairshare.Limit
	used     []int64
}

// Take implements fairshare.Limiter.
func (l *estimatingLimiter) Take(_ context.Context, now time.Time, takes []fairshare.Take,
	tallies []fairshare.Tally) error {
	l.used = append(l.used[:0], make([]int64, len(takes))...)
	if err := l.TakeRoom(now, takes, tallies, l.used); err != nil {
		return err
	}
	g := l.estimate
	g.decisions++
	for i := range tallies {
		if tallies[i].Over && !takes[i].DryRun { // a member refuses by itself
			return nil
		}
	}
	asks := false
	for i := range takes {
		lim := &l.limits[takes[i].Limit]
		if lim.EachMember || lim.N == 0 || lim.Resource == fairshare.Refusals {
			continue
		}
		excess := g.store.Excess(lim, int(g.members)) // M·f
		cost := takes[i].Cost
		if lim.Resource.Settled() {
			cost = tallies[i].Held
		}
		asks = asks || excess == 0 || l.used[i]+cost > lim.Allowed()-excess
	}
	if asks {
		g.questions++
	}
	return nil
}

func (g *groupEstimate) report() *replay.Group {
	return &replay.Group{Members: g.members, Decisions: g.decisions, Questions: g.questions}
}

// String describes the estimate in sentences.
func (g *groupEstimate) String() string {
	if g.decisions == 0 {
		return "no decision would ask the store"
	}
	return fmt.Sprintf("with %s, %s of %s decisions would wait for the store (%s), because a limit is small, near or exact",
		prose.Plural(g.members, "member"), prose.Number(g.questions), prose.Number(g.decisions),
		prose.Percent(g.questions, g.decisions))
}
