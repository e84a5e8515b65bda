package fairshare

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A RefusedError says that a guard refused or blocked what [Guard.Do] was asked
// to do. Wait is how long it takes until the same request would pass.
type RefusedError struct {
	Finding
}

func (e *RefusedError) Error() string {
	if e.Action == Block {
		return fmt.Sprintf("blocked by rule %q", e.Rule.Name)
	}
	return fmt.Sprintf("refused by rule %q; it would pass in %v", e.Rule.Name, e.Wait)
}

// Do judges a request, does its work if it may pass, and settles what the work
// cost. It is for what does not come by HTTP: a login attempt, a job, a call of
// a remote procedure. Requests usually name what they count under in Values.
//
// work gets ctx. A zero Time in its Outcome means now, a zero Took the time that
// work took, and a zero CPU means Took. The zero Outcome says that nothing is
// known: work then costs 1 unit. The same holds if work panics. Status is in the
// terms of HTTP: a limit of errors counts a login with Status 401.
//
// Do returns a [*RefusedError] if the request may not pass, and the limiter's
// error if it cannot be judged. In both cases work is not done. A policy in dry
// run has all work done. Otherwise Do returns the error of work, joined with an
// error of settling if there is one.
//
// A zero req.Time means now. Do does not wait for requests in progress: if only
// these are in the way, it refuses at once, with Wait 0.
func (g *Guard) Do(ctx context.Context, req *Request, work func(context.Context) (Outcome, error)) (err error) {
	judged := *req
	if judged.Time.IsZero() {
		judged.Time = time.Now()
	}
	v, err := g.Decide(ctx, &judged)
	switch v.Enforced() {
	case Allow:
	case Refuse, Block:
		refused := &RefusedError{Finding: v.Finding}
		if settling := g.Settle(ctx, &v, Outcome{Time: judged.Time}); err != nil || settling != nil {
			return errors.Join(refused, err, settling)
		}
		return refused
	default:
		if !g.policy.DryRun {
			return err
		}
	}
	var out Outcome
	began := time.Now()
	defer func() {
		took := time.Since(began)
		if out == (Outcome{}) {
			out.Bytes, out.Cost = -1, -1
		}
		if out.Time.IsZero() {
			out.Time = judged.Time.Add(took)
		}
		if out.Took == 0 {
			out.Took = took
		}
		if out.CPU == 0 {
			out.CPU = out.Took
		}
		// The costs are charged even if ctx has ended.
		if settling := g.Settle(context.WithoutCancel(ctx), &v, out); settling != nil {
			err = errors.Join(err, settling)
		}
	}()
	out, err = work(ctx)
	return err
}
