package fairshare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Settle charges, refunds and releases what Decide took. Once the verdict is
// closed, later calls do nothing. After an error of the limiter the charges are
// lost. Costs known only now are charged, slots of concurrent limits are given
// back, refunds are made. A request that was not allowed costs nothing,
// whatever out says; out.Status and out.Bytes are the upstream's, not those of
// an answer of fairshare's own.
//
// [SettleRest] and [SettleNotForwarded] close the verdict. Other values of
// out.Part settle only that part, and a later call settles the rest. A verdict is
// settled by one goroutine at a time.
//
// A zero out.Time means now, or the request's own time if it had one. The zero
// Outcome says that nothing is known. Then a limit of cost counts 1, limits of
// cpu and time count the time that has passed, and a limit of bytes counts the
// bytes that it expected. Limits of errors and failures count nothing.
//
// In any other Outcome each field counts as it is, and 0 is free. A field below
// zero is unknown: Took then means the time that has passed, CPU means Took, Cost
// means 1, and Bytes means the bytes that the limit expected.
func (g *Guard) Settle(ctx context.Context, v *Verdict, out Outcome) error {
	d := v.d
	if d == nil {
		return nil
	}
	if d.guard != g {
		return errors.New("settle: the verdict is another guard's")
	}
	if out.Part != SettleRest && out.Part != SettleNotForwarded {
		if d.gen.Load() != v.gen {
			return nil
		}
	} else {
		if !d.gen.CompareAndSwap(v.gen, v.gen+1) {
			return nil
		}
		err := g.settle(ctx, d, &out)
		g.decisions.Put(d)
		return err
	}
	return g.settle(ctx, d, &out)
}

// settle is Settle of a decision that v still stands for.
func (g *Guard) settle(ctx context.Context, d *decision, out *Outcome) error {
	unknown := out.isZero()
	if out.Time.IsZero() {
		if out.Time = d.now; d.wallTime {
			out.Time = time.Now()
		}
	}
	if unknown {
		out.Took = max(0, out.Time.Sub(d.now))
		out.Bytes, out.CPU, out.Cost = -1, out.Took, -1
	}
	if out.Took < 0 && out.Part.ends(Time) {
		out.Took = max(0, out.Time.Sub(d.now))
	}
	if out.CPU < 0 && out.Part.ends(CPU) {
		out.CPU = out.Took
	}
	if d.shows != 0 && out.Status != 0 {
		if out.Status >= 200 && out.Status <= 299 || out.Status == 304 {
			g.history.show(&d.client, g.seen, d.shows, out.Time)
		}
		d.shows = 0
	}
	if d.settlePrepared(out) {
		return nil
	}
	d.gatherCharges(out)
	if len(d.charges) == 0 {
		return nil
	}
	if err := g.limiter.Settle(ctx, g.forward(out.Time), d.charges); err != nil {
		return fmt.Errorf("settling limits: %w", err)
	}
	g.waiting.settled(d.charges)
	return nil
}

// Metered reports whether v has a limit for which something may be settled
// while the request is in progress, with [SettleSoFar]. It may be asked until the
// verdict is settled.
func (g *Guard) Metered(v *Verdict) bool {
	if v.d == nil || !v.d.taken {
		return false
	}
	if v.d.group != nil {
		return v.d.group.held&^(1<<Concurrent) != 0
	}
	for i := range v.d.takes {
		if g.limits[v.d.takes[i].Limit].Resource.Held() {
			return true
		}
	}
	return false
}

// isZero is out == Outcome{}, and faster.
func (out *Outcome) isZero() bool {
	return out.Status == 0 && out.Bytes == 0 && out.Took == 0 && out.CPU == 0 && out.Cost == 0 &&
		out.Part == SettleRest && !out.Whole && !out.Failed && out.Time == time.Time{}
}

// gatherCharges fills in what is to be charged for a part of what is left.
func (d *decision) gatherCharges(out *Outcome) {
	d.charges = d.charges[:0]
	if !d.taken {
		return
	}
	d.fill()
	for i := range d.takes {
		take, p := &d.takes[i], &d.settled[i]
		if take.DryRun && !d.tried || p.final {
			continue
		}
		use := &d.guard.uses[take.Limit]
		if use.held {
			if charge := d.nextCharge(take); !d.chargeHeld(i, &d.guard.limits[take.Limit], out, charge) {
				d.charges = d.charges[:len(d.charges)-1]
			}
			continue
		}
		if p.final = out.Part.ends(use.resource); !p.final {
			continue
		}
		switch {
		case use.resource == Concurrent:
			d.nextCharge(take).Cost = -1
		case use.resource == Requests && (out.Part == SettleNotForwarded ||
			take.Limit != d.guard.crowdLimit && d.guard.rules[p.rule].Refund.Has(out.Status)) && d.mayRefund(take):
			charge := d.nextCharge(take)
			charge.Cost, charge.At, charge.Every = -take.Cost, d.now, take.Every
		case p.mark != 0:
			d.guard.history.counted.add(p.mark, d.now, d.guard.limits[take.Limit].Window)
		}
	}
}

// nextCharge adds a charge of a take to the charges, and returns it.
func (d *decision) nextCharge(take *Take) *Charge {
	n := len(d.charges)
	if n == cap(d.charges) {
		d.charges = slices.Grow(d.charges, 8)
	}
	d.charges = d.charges[:n+1]
	charge := &d.charges[n]
	*charge = Charge{Limit: take.Limit, Key: take.Key}
	return charge
}

// chargeHeld fills in the charge of a limit that holds something for the take
// i, and reports whether there is one.
func (d *decision) chargeHeld(i int, lim *Limit, out *Outcome, charge *Charge) bool {
	p, held := &d.settled[i], &d.tallies[i].Held
	switch ends := out.Part.ends(lim.Resource); {
	case out.Part == SettleNotForwarded:
		p.final, charge.Held = true, *held
		return *held != 0
	case ends:
		p.final, charge.Held = true, *held
		cost := lim.costOf(out)
		if lim.Resource == Bytes && out.Bytes < 0 {
			cost = d.tallies[i].Expected
		}
		charge.Cost = max(cost-p.charged, 0)
		p.charged += charge.Cost
		charge.Ends, charge.Total, charge.Page = true, p.charged, d.takes[i].Page
		return true
	case out.Part != SettleSoFar && !(out.Part == SettleHeader && lim.Resource == Cost):
		return false
	}
	left := *held // of what it holds
	switch {
	case lim.Resource == Cost && out.Part == SettleHeader: // it is charged at the end, which may tell another one
		if out.Cost >= 0 {
			left = min(left, out.Cost)
		}
	case lim.knows(out): // as much is likely until the next look
		charge.Cost = max(lim.costOf(out)-p.charged, 0)
		p.charged += charge.Cost
		left = min(left, max(charge.Cost, lim.rest()))
	case lim.Resource.CountsAnswers() && out.Whole && out.Took >= easeAfter:
		left = 0 // the client cannot time its answer: it is not one of many guesses that arrive together
	case lim.costly() && out.Took >= easeAfter && !p.eased:
		p.eased = true
		left = max(left/easeTimes, min(left, d.tallies[i].Expected))
	}
	charge.Held = *held - left
	*held = left
	return charge.Cost > 0 || charge.Held > 0
}

// A request that has been in progress for easeAfter holds only 1/easeTimes of
// what it held, if its cost cannot be measured before it ends. Otherwise the long
// polls of an office would keep the office out.
const (
	easeAfter = 5 * time.Second
	easeTimes = 8
)

// rest returns what a measured request holds at least while it is in progress.
// One that has cost nothing so far may have a client that stalls it on purpose.
func (l *Limit) rest() int64 {
	_, most := l.AtOnce()
	return max(l.Allowed()/(most*easeTimes), 1)
}

// costly reports whether requests in progress are held at what they may cost,
// which differs from page to page.
func (l *Limit) costly() bool { return l.Resource.Held() && !l.Resource.CountsAnswers() }

// knows reports whether the cost so far is known of the limit's resource.
func (l *Limit) knows(out *Outcome) bool {
	switch l.Resource {
	case Bytes:
		return out.Bytes >= 0
	case CPU:
		return out.CPU >= 0
	}
	return l.Resource == Time && out.Took >= 0
}

// costOf returns what a request has cost of the limit's resource.
func (l *Limit) costOf(out *Outcome) int64 {
	switch l.Resource {
	case Bytes:
		return max(out.Bytes, 0)
	case CPU:
		return max(out.CPU.Microseconds(), 0)
	case Time:
		return max(out.Took.Microseconds(), 0)
	case Cost:
		if out.Cost < 0 {
			return 1
		}
		return min(out.Cost, MaxBytes)
	case Errors:
		if l.Statuses.Has(out.Status) {
			return 1
		}
	case Failures:
		if out.Failed {
			return 1
		}
	}
	return 0
}

// resources returns those that are finally settled with a part.
func (p Part) resources() (set ResourceSet) {
	switch p {
	case SettleRest, SettleNotForwarded:
		return ^ResourceSet(0)
	case SettleSlots:
		return 1 << Concurrent
	case SettleHeader:
		return 1 << Errors
	}
	for r := Requests; r <= Failures; r++ {
		if p.ends(r) {
			set |= 1 << r
		}
	}
	return set
}

// ends reports whether a resource is finally settled with a part.
func (p Part) ends(r Resource) bool {
	switch p {
	case SettleSlots:
		return r == Concurrent
	case SettleCosts:
		return r != Concurrent
	case SettleAllButCPU:
		return r != CPU
	case SettleHeader:
		return r == Errors
	case SettleSoFar:
		return false
	}
	return true
}
