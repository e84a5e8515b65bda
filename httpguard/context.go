package httpguard

import (
	"context"
	"net/http"
	"time"

	"fairshare"
)

// From returns the request that a guard let through, from the request's context
// or one made of it. It works through every wrapper that hands the context on,
// such as [http.TimeoutHandler]. Of several guards it finds the innermost.
//
// It needs Options.Context, or [Handler.Do]. Without these, and without a guard,
// it returns nil. The methods of a nil Exchange do nothing and return zero
// values.
func From(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

type exchangeKey struct{}

// context returns the context for the handler. With find, From finds x in it.
func (x *Exchange) context(ctx context.Context, find bool) context.Context {
	if find {
		ctx = exchangeContext{x}
	}
	if x.gen.ThreadCPU {
		x.work.gauge.thread = new(threadCPU)
		ctx = x.work.gauge.thread.context(ctx)
	}
	return ctx
}

// An exchangeContext is the context of the request that the guard got, plus the
// Exchange. It takes no memory of its own.
type exchangeContext struct{ x *Exchange }

func (c exchangeContext) parent() context.Context { return c.x.completion.HTTP.Context() }

func (c exchangeContext) Deadline() (time.Time, bool) { return c.parent().Deadline() }
func (c exchangeContext) Done() <-chan struct{}       { return c.parent().Done() }
func (c exchangeContext) Err() error                  { return c.parent().Err() }

func (c exchangeContext) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	return c.parent().Value(key)
}

// Client returns the client that sent the request.
func (x *Exchange) Client() Client {
	if x == nil {
		return Client{}
	}
	return x.completion.Client
}

// Verdict returns the verdict about the request. It is Allow, unless the guard
// or a rule is in dry run or the limiter failed. It cannot be settled again.
func (x *Exchange) Verdict() fairshare.Verdict {
	if x == nil {
		return fairshare.Verdict{}
	}
	v := &x.verdict
	return fairshare.Verdict{Finding: v.Finding, DryRun: v.DryRun, DryRunFinding: v.DryRunFinding}
}

// An Allowance is what is left of one limit.
type Allowance struct {
	Rule      *fairshare.Rule  // the rule of the limit; it must not be changed
	Limit     *fairshare.Limit // the rule's, or one for newcomers in its place; it must not be changed
	Remaining int64            // in the unit of the limit's resource; 0 to Limit.Allowed()
	Reset     time.Duration    // until nothing counts any more if no request comes; 0 for Concurrent
}

// Limits returns what is left of each limit that the request counts under, in
// the order of the rules. The request itself counts already. Limits in dry run
// are left out. It returns nil if the limiter is not a [fairshare.Peeker], and
// after the request has ended.
func (x *Exchange) Limits() []Allowance {
	var all []Allowance
	x.peek(func(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
		all = append(all, Allowance{Rule: r, Limit: l, Remaining: max(l.Allowed()-t.Used, 0), Reset: t.Reset})
	})
	return all
}

// peek calls found with the figures of each limit that the request counts under.
func (x *Exchange) peek(found func(*fairshare.Rule, *fairshare.Limit, fairshare.Tally)) {
	if x == nil {
		return
	}
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.gen.reportFailed(x.completion.HTTP, x.gen.guard.Peek(context.Background(), &x.verdict, x.gen.Now(), found))
}

// ReportCost reports the units that the request has cost in all, at least 0. A
// later report replaces an earlier one. Without a report a request costs 1. All
// guards around the handler get the report.
func (x *Exchange) ReportCost(units int64) {
	x.forEachAround(func(x *Exchange) { x.setCost(units) })
}

// ReportCPU reports the CPU time that the request has cost in all. A later
// report replaces an earlier one. Without a report and a meter, a request counts
// as the time that it took. All guards around the handler get the report.
func (x *Exchange) ReportCPU(cpu time.Duration) {
	x.forEachAround(func(x *Exchange) { x.setCPU(cpu) })
}

// ReportAnswer reports an answer that the guard cannot see: the handler does not
// write it to the guard's ResponseWriter, or the server writes it after the
// handler has returned.
//
// bytes is the size of the body; below 0 it is the size that
// was written. All guards around the handler get the report.
func (x *Exchange) ReportAnswer(status int, bytes int64) {
	x.forEachAround(func(x *Exchange) { x.setAnswer(status, bytes) })
}

func (x *Exchange) setAnswer(status int, bytes int64) {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	if x.work.ended {
		return
	}
	x.response.status.Store(int32(status))
	if bytes >= 0 {
		x.response.bytes.Store(bytes)
	}
	x.settleHeadLocked(x.gen.Now())
}

// forEachAround calls f with x and with the requests of the guards around it.
func (x *Exchange) forEachAround(f func(*Exchange)) {
	for x != nil {
		f(x)
		outer := From(exchangeContext{x}.parent())
		if outer == nil {
			forEachExchange(x.response.w, func(x *Exchange) bool {
				f(x)
				return true
			})
		}
		x = outer
	}
}

// setRateLimitFields writes what is left of each limit into the header of an
// answer.
func (x *Exchange) setRateLimitFields(header http.Header) {
	var space [128]byte
	fields := rateLimits{answers: x.gen.answers, b: space[:0]}
	x.peek(func(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) { fields.add(r, l, t) })
	if fields.policy != nil {
		header[policyField], header[rateLimitField] = fields.policy.values, []string{string(fields.b)}
	}
}
