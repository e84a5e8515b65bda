package httpguard

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"fairshare"
	"fairshare/share"
)

// work is what the upstream does for one request: whether it has begun and
// is done, what it costs, and the turn that it takes.
type work struct {
	mu      sync.Mutex // of what follows, and of settling
	done    bool       // the upstream is
	ended   bool       // the handler returned
	away    bool       // the request was turned away, or left while it waited
	told    bool       // cpu is known
	failed  bool       // the upstream gave no proper answer
	began   int64      // Unix ns; 0: the upstream was not asked
	headed  int64      // Unix ns at which an answer without end began; 0 for others
	cpu     time.Duration
	cost    int64 // units; below 0: not told
	waits   *waits
	gauge   *gauge
	running place // among the requests in progress
}

// waits is what a request needs where the upstream is shared; else nil.
type waits struct {
	visit *visit // until the turn is there
	claim share.Claim
	turn  *share.Turn
}

// A gauge measures CPU time. It stands apart, as what most requests do not need
// should not take memory of all: an exchange is to stay below 512 bytes, above
// which Go's memory is dearer.
type gauge struct {
	path   string
	meter  fairshare.Metering // nil unless it is sampled, and before the upstream begins
	thread *threadCPU         // nil unless the handler's thread is measured
}

// each hands all T among w and the writers below it to tell, the one next to
// the handler first, as long as tell returns true.
func each[T any](w http.ResponseWriter, tell func(T) bool) {
	for w != nil {
		if x, ok := w.(T); ok && !tell(x) {
			return
		}
		below, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return
		}
		w = below.Unwrap()
	}
}

// AwaitTurn is called by a handler just before it asks the upstream, if
// Options.HandlerAwaits says so: it waits for a turn where there is a share,
// and has the upstream's time begin. When it returns false, the request is
// answered already or its client is gone, and the handler must return. With
// no guard around the handler it returns true at once.
func AwaitTurn(w http.ResponseWriter, r *http.Request) bool {
	turn := true
	each(w, func(x interface {
		await(http.ResponseWriter, *http.Request) bool
	}) bool {
		turn = x.await(w, r)
		return turn
	})
	return turn
}

// UpstreamDone tells that the upstream's work is done, though the client still
// takes the answer: slots of concurrent limits are given back and the turn
// ends before the handler returns. It may be called from any goroutine, but
// not after the handler returned. Other writers are left alone.
func UpstreamDone(w http.ResponseWriter) {
	each(w, func(x interface{ upstreamDone() }) bool {
		x.upstreamDone()
		return true
	})
}

// UpstreamFailed tells, before UpstreamDone, that the upstream gave no proper
// answer: a status from 500 on, or half an answer. How long that took says
// nothing of how busy it is. Other writers are left alone.
func UpstreamFailed(w http.ResponseWriter) {
	each(w, func(x interface{ upstreamFailed() }) bool {
		x.upstreamFailed()
		return true
	})
}

// SpentCPU tells the CPU time that the upstream has spent on the request in
// all; a later word replaces an earlier one. Without any, a request counts as
// the time that it took. It may be called from any goroutine, but not after
// the handler returned.
func SpentCPU(w http.ResponseWriter, cpu time.Duration) {
	each(w, func(x interface{ spentCPU(time.Duration) }) bool {
		x.spentCPU(cpu)
		return true
	})
}

// SpentCost tells the units that the request has cost, at least 0; a later word
// replaces an earlier one. Without any, a request counts as 1. It may be called
// from any goroutine, but not after the handler returned.
func SpentCost(w http.ResponseWriter, units int64) {
	each(w, func(x interface{ spentCost(int64) }) bool {
		x.spentCost(units)
		return true
	})
}

func (x *exchange) upstreamFailed() {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.work.failed = true
}

func (x *exchange) spentCPU(cpu time.Duration) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.cpu, k.told = max(cpu, 0), true
	}
}

func (x *exchange) spentCost(units int64) {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.work.cost = max(units, 0)
}

// prepare notes what is needed when the upstream begins; vis is kept until
// then if there is a share.
func (x *exchange) prepare(vis *visit) {
	x.work.cost = -1
	if x.h.Meter != nil || x.h.ThreadCPU {
		x.work.gauge = &gauge{path: vis.req.Path}
	}
	if x.h.Share == nil {
		x.h.release(vis)
		return
	}
	x.work.waits = &waits{visit: vis, claim: x.h.Share.Claim(&vis.req)}
}

// await waits for a turn and notes that the upstream begins. It is called by
// the goroutine of the handler.
func (x *exchange) await(w http.ResponseWriter, r *http.Request) bool {
	k := &x.work
	if k.began != 0 {
		return true
	}
	if k.away {
		return false
	}
	var turn *share.Turn
	if k.waits != nil {
		var err error
		if turn, err = x.h.Share.Wait(r.Context(), &k.waits.claim); err != nil {
			x.turnAway(w, r, err)
			return false
		}
		x.h.release(k.waits.visit)
		k.waits.visit = nil
	}
	var thread *threadCPU
	if k.gauge != nil && k.gauge.thread != nil && k.gauge.thread.begin() {
		thread = k.gauge.thread
	}
	k.mu.Lock()
	k.began = x.h.Now().UnixNano()
	if k.waits != nil {
		k.waits.turn = turn
	}
	if k.gauge != nil {
		k.gauge.thread = thread
		if x.h.Meter != nil {
			k.gauge.meter = x.h.Meter.Begin(k.gauge.path)
		}
	}
	k.mu.Unlock()
	if x.h.guard.Metered(&x.verdict) {
		x.h.running.add(x)
	}
	return true
}

// turnAway answers a request that gets no turn. One whose client has left is
// not answered.
func (x *exchange) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	x.work.away = true
	NotUpstream(w)
	busy := (*share.Busy)(nil)
	if !errors.As(err, &busy) {
		return
	}
	v := fairshare.Verdict{Finding: fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream, Wait: busy.RetryAfter}}
	x.h.refuse(w, r, x.work.waits.visit, &v)
}

// endless notes that the answer has no end of its own: the turn is free, and
// what nobody measures ends here.
func (x *exchange) endless() {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.began == 0 || k.done || k.headed != 0 {
		return
	}
	k.headed = x.h.Now().UnixNano()
	if k.waits != nil {
		k.waits.turn.Headed()
	}
}

// upstreamDone ends the turn and the slots, once.
func (x *exchange) upstreamDone() {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done {
		return
	}
	now := x.h.Now()
	x.workDone(now)
	x.settle(fairshare.Outcome{Time: now, Part: fairshare.SlotsOnly})
}

// workDone ends the turn and the measuring. The lock is held.
func (x *exchange) workDone(now time.Time) {
	k := &x.work
	k.done = true
	if k.began == 0 {
		return
	}
	x.passage.Took = time.Duration(max(now.UnixNano()-k.began, 0)) // a clock of the caller's may step back
	if k.waits != nil {
		if k.failed || x.own {
			k.waits.turn.Failed()
		}
		k.waits.turn.Done()
	}
	if k.gauge != nil && k.gauge.meter != nil {
		k.mu.Unlock()
		k.gauge.meter.End(x.metered)
		k.mu.Lock()
	}
}

// metered hears from the meter, maybe when the handler has returned.
func (x *exchange) metered(cpu time.Duration) {
	k := &x.work
	k.mu.Lock()
	known := k.told // the handler knows better
	if !known {
		k.cpu, k.told = cpu, true
	}
	if k.ended && !known {
		x.finish(x.h.Now())
		return
	}
	k.mu.Unlock()
}

// end settles what is left when the handler has returned, and tells whoever
// listens. Where CPU time is sampled it is known a little later.
func (x *exchange) end() {
	k := &x.work
	if k.waits != nil && k.waits.visit != nil {
		x.h.release(k.waits.visit)
	}
	x.h.running.remove(x)
	k.mu.Lock()
	now := x.h.Now()
	if !k.done {
		k.failed = k.failed || !x.returned || x.status >= http.StatusInternalServerError
		x.workDone(now)
	}
	k.ended = true
	if k.began != 0 && k.gauge != nil && k.gauge.thread != nil {
		if cpu := k.gauge.thread.end(); !k.told {
			k.cpu, k.told = cpu, true
		}
	}
	if k.away {
		x.settle(fairshare.Outcome{Time: now, Part: fairshare.Undone})
		k.mu.Unlock()
		return
	}
	if k.told || k.gauge == nil || k.gauge.meter == nil {
		x.finish(now)
		return
	}
	out := x.spent(now)
	out.Part = fairshare.AllButCPU
	x.settle(out)
	k.mu.Unlock()
}

// finish settles what is left and tells. It is called with the lock held and
// gives it back.
func (x *exchange) finish(now time.Time) {
	out := x.spent(now)
	x.settle(out)
	x.work.mu.Unlock()
	if x.work.told || x.h.TellsCPU {
		x.passage.CPU = out.CPU
	}
	x.tell()
}

// spent returns what the request has cost at time now. The lock is held.
func (x *exchange) spent(now time.Time) fairshare.Outcome {
	k := &x.work
	out := fairshare.Outcome{Time: now, Status: x.outcome(), Bytes: x.bytes.Load(), Took: x.passage.Took, CPU: k.cpu, Cost: k.cost}
	if k.began == 0 { // answered without the upstream
		out.Cost = max(out.Cost, 0)
		return out
	}
	if !k.told {
		out.CPU = out.Took
		if k.headed != 0 {
			out.CPU = time.Duration(k.headed - k.began)
		}
	}
	return out
}

// soFar charges what the request has cost until now, while it runs.
func (x *exchange) soFar(now time.Time) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || k.began == 0 {
		return
	}
	out := fairshare.Outcome{Time: now, Bytes: x.bytes.Load(), Took: x.passage.Took, Part: fairshare.SoFar}
	if !k.done {
		out.Took = time.Duration(now.UnixNano() - k.began)
	}
	var gauge gauge
	if k.gauge != nil {
		gauge = *k.gauge
	}
	switch {
	case k.told:
		out.CPU = k.cpu
	case gauge.thread != nil:
		out.CPU = gauge.thread.soFar()
	case gauge.meter != nil && k.done: // the last word is about to come
	case gauge.meter != nil:
		out.CPU = gauge.meter.Spent()
	case k.headed != 0:
		out.CPU = time.Duration(k.headed - k.began)
	case x.h.TellsCPU: // it will, at the end
	default:
		out.CPU = out.Took
	}
	x.settle(out)
}
