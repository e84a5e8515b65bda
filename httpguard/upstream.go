package httpguard

import (
	"net/http"
	"time"
)

// forEachExchange calls f with the requests that the guards around a handler
// let through, the innermost first, until f returns false. It looks for them at
// w and the writers below it.
func forEachExchange(w http.ResponseWriter, f func(*Exchange) bool) {
	for w != nil {
		if res := responseOf(w); res != nil {
			if !f(res.x) || res.alone {
				return
			}
			w = res.w
			continue
		}
		below, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return
		}
		w = below.Unwrap()
	}
}

// AwaitTurn waits for a turn if there is a share, and begins the time that the
// upstream takes. A handler calls it just before it sends the request to the
// upstream, if Options.HandlerAwaits says so. If it returns false, the request is
// answered already or its client is gone, and the handler must return. Without a
// guard around the handler it returns true at once.
func AwaitTurn(w http.ResponseWriter, r *http.Request) bool {
	turn := true
	forEachExchange(w, func(x *Exchange) bool {
		turn = x.await(w, r)
		return turn
	})
	return turn
}

// UpstreamDone ends the upstream's part of a request, while the client still
// receives the answer. Slots of concurrent limits and the turn are given back
// before the handler returns. It may be called from any goroutine, but not after
// the handler returned. Without a guard around the handler it does nothing.
func UpstreamDone(w http.ResponseWriter) {
	forEachExchange(w, func(x *Exchange) bool {
		x.upstreamDone()
		return true
	})
}

// UpstreamFailed records that the upstream gave no proper answer: a status from
// 500 on, or half an answer. The time that it took then says nothing about how
// busy the upstream is. It is called before UpstreamDone. Without a guard around
// the handler it does nothing.
func UpstreamFailed(w http.ResponseWriter) {
	forEachExchange(w, func(x *Exchange) bool {
		x.upstreamFailed()
		return true
	})
}

// NoUpstreamAnswer records that the answer does not come from the upstream: a
// gateway's own 502 must not count among the client's errors. Without a guard
// around the handler it does nothing.
func NoUpstreamAnswer(w http.ResponseWriter) {
	forEachExchange(w, func(x *Exchange) bool {
		x.response.own = true
		return true
	})
}

// NothingKept says that the handler, and all that it has started, keeps nothing of the request but texts: see
// Options.Reuse. The handler calls it last, in its own goroutine. Without a guard around the handler it does
// nothing.
func NothingKept(w http.ResponseWriter) {
	forEachExchange(w, func(x *Exchange) bool {
		x.response.unkept = true
		return true
	})
}

// ReportCPU reports the CPU time that the upstream has spent on the request in
// all. A later report replaces an earlier one. Without a report and a meter, a
// request counts as the time that it took. It may be called from any goroutine,
// but not after the handler returned. [Exchange.ReportCPU] does the same.
func ReportCPU(w http.ResponseWriter, cpu time.Duration) {
	forEachExchange(w, func(x *Exchange) bool {
		x.setCPU(cpu)
		return true
	})
}

// ReportCost reports the units that the request has cost in all, at least 0. A
// later report replaces an earlier one. Without a report, a request counts as 1.
// It may be called from any goroutine, but not after the handler returned.
// [Exchange.ReportCost] does the same.
func ReportCost(w http.ResponseWriter, units int64) {
	forEachExchange(w, func(x *Exchange) bool {
		x.setCost(units)
		return true
	})
}

// Who returns the client of the request that w answers, as the innermost guard
// judged it; false if no guard did.
func ClientOf(w http.ResponseWriter) (client Client, judged bool) {
	forEachExchange(w, func(x *Exchange) bool {
		client, judged = x.completion.Client, true
		return false
	})
	return client, judged
}

func (x *Exchange) upstreamFailed() {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.work.failed = true
}

func (x *Exchange) setCPU(cpu time.Duration) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.cpu, k.measured = max(cpu, 0), true
	}
}

func (x *Exchange) setCost(units int64) {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.work.cost = max(units, 0)
}
