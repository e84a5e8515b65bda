package httpguard

import (
	"net/http"
	"time"

	"fairshare"
)

// retryEvery is how often the first request in a line tries again. Its guard does
// not wake it when requests settle that another guard with the same counters has
// judged: the guard before a Replace, or that of another server.
const retryEvery = 250 * time.Millisecond

// decideNow judges the request. If only requests in progress keep it out, it waits
// until enough of them have settled. gone means that the client has gone
// meanwhile.
func (g *generation) decideNow(r *http.Request, vis *visit) (v fairshare.Verdict, gone bool, err error) {
	v, err = g.guard.Decide(r.Context(), &vis.req)
	if v.Enforced() != fairshare.Refuse || g.Wait < 0 || vis.auth != nil {
		return v, false, err
	}
	waiter := g.guard.Wait(&v, nil)
	if waiter == nil {
		return v, false, err
	}
	timer := time.NewTimer(g.Wait)
	defer timer.Stop()
	retries := time.NewTicker(retryEvery)
	defer retries.Stop()
	isNew := true
	for {
		late := false
		if isNew {
			select {
			case <-timer.C:
				late = true
			default:
			}
		} else {
			select {
			case <-waiter.Turn():
			case <-retries.C:
				g.guard.Retry(waiter)
				continue
			case <-timer.C:
				late = true
			case <-r.Context().Done():
				gone = true
			}
		}
		g.settleRefused(r, vis, &v)
		if gone {
			g.guard.Leave(waiter)
			return v, true, nil
		}
		if vis.req.Time = g.Now(); g.Override != nil && vis.req.Addr.IsValid() {
			vis.req.Override = g.Override(vis.req.Addr, vis.req.Bot, vis.req.Time)
		}
		v, err = g.guard.Decide(r.Context(), &vis.req)
		if late || err != nil {
			g.guard.Leave(waiter)
			return v, false, err
		}
		next := g.guard.Wait(&v, waiter)
		if next == nil {
			return v, false, nil
		}
		waiter, isNew = next, next != waiter
	}
}

// settleRefused settles the verdict of a request that was refused.
func (g *generation) settleRefused(r *http.Request, vis *visit, v *fairshare.Verdict) {
	g.reportFailed(r, g.guard.Settle(r.Context(), v, fairshare.Outcome{Time: vis.req.Time}))
}
