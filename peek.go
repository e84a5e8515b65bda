package fairshare

import (
	"context"
	"fmt"
	"time"
)

// A Peeker is a [Limiter] that can report the figures of limits and change
// nothing.
type Peeker interface {
	// Peek fills in tallies[i] with the figures of takes[i] at time now, as Take
	// does for a group that does not pass. Both have the same length.
	Peek(ctx context.Context, now time.Time, takes []Take, tallies []Tally) error
}

// Peek calls found for each limit that v's request was counted under, in the
// order of the rules, with its figures at time now. The request itself counts
// in them. Limits in dry run and ceilings are left out, see [Verdict.Limits].
//
// Peek may be called until v is settled, but not while v is being settled. If
// the limiter is not a [Peeker], Peek calls found for nothing.
func (g *Guard) Peek(ctx context.Context, v *Verdict, now time.Time, found func(*Rule, *Limit, Tally)) error {
	d := v.d
	peeker, ok := g.limiter.(Peeker)
	if !ok || d == nil || d.guard != g || d.gen.Load() != v.gen {
		return nil
	}
	if d.fill(); len(d.takes) == 0 {
		return nil
	}
	d.peeked = append(d.peeked[:0], d.tallies...)
	if err := peeker.Peek(ctx, g.forward(now), d.takes, d.peeked); err != nil {
		return fmt.Errorf("figures of limits: %w", err)
	}
	for i := range d.takes {
		if t := &d.takes[i]; !t.DryRun && !g.isCeiling(t.Limit) {
			found(d.ruleOf(i), &g.limits[t.Limit], d.peeked[i])
		}
	}
	return nil
}

// Usage calls found for each limit that would count a request, in the order of the rules, with its
// figures at time now. Over says that the limit would refuse such a request. The request is not
// counted, and neither bans nor operators' decisions are looked at. Limits in dry run are included,
// ceilings are not. It walks all rules up to the first that allows or blocks, like
// [Guard.Decide].
//
// If the limiter is not a [Peeker], Usage calls found for nothing.
func (g *Guard) Usage(ctx context.Context, req *Request, now time.Time, found func(*Rule, *Limit, Tally)) error {
	peeker, ok := g.limiter.(Peeker)
	if !ok {
		return nil
	}
	d := g.probe(req, now)
	defer g.endProbe(d)
	var v Verdict
	g.walk(d, &v)
	if d.crowd >= 0 {
		d.add(d.crowd, g.crowdLimit, false)
	}
	if len(d.takes) == 0 {
		return nil
	}
	if err := peeker.Peek(ctx, d.now, d.takes, d.tallies); err != nil {
		return fmt.Errorf("figures of limits: %w", err)
	}
	for i := range d.takes {
		if lim := d.takes[i].Limit; !g.isCeiling(lim) {
			found(d.ruleOf(i), &g.limits[lim], d.tallies[i])
		}
	}
	return nil
}

// Banned returns the refusal by a ban in force that a request would get at time now. It is zero if there is none. The
// request is not counted, and operators' decisions are not looked at.
func (g *Guard) Banned(req *Request, now time.Time) Finding {
	d := g.probe(req, now)
	defer g.endProbe(d)
	var v Verdict
	if len(d.set.banning) > 0 {
		g.findBan(d, &v)
	}
	return v.Finding
}

// probe begins to look at a request without counting it.
func (g *Guard) probe(req *Request, now time.Time) *decision {
	d := g.decisions.Get().(*decision)
	d.reset(req, g.forward(now))
	d.probe, d.crowd, d.aged, d.client = true, -1, false, clientName{}
	if g.standing && req.Addr.IsValid() && !req.Via.IsValid() {
		d.client = g.clientOf(req)
		d.aged = g.history.knows(&d.client, d.now)
	}
	return d
}

func (g *Guard) endProbe(d *decision) {
	d.req = nil
	g.release(d, d.gen.Load())
}
