package httpguard

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/share"
)

// An Exchange is one request that a guard let through, with its answer. A
// handler gets it with [From]. Its methods may be called from any goroutine.
// Reports that come after the request has ended are ignored.
type Exchange struct {
	gen        *generation
	verdict    fairshare.Verdict
	completion Completion
	response   response

	visitorCookie string // as sent; "" if there was none
	secure        bool   // the client uses TLS; a handler may change the header that says so. False without Visitors
	signs         browser.Sighting
	login         *watchedLogin // nil for most requests
	access        *Access       // nil without Options.Answered
	work          work

	isShared    bool   // a context, or a guard inside, refers to it
	awaitsWhole bool   // AwaitsWhole has returned true
	isWhole     bool   // AnswerWhole has written the answer
	contentType string // its Content-Type
}

// work describes the upstream's part of one request: when it begins and ends, its
// cost and its turn.
//
// An Exchange stays within 768 bytes, a size class of Go's allocator. Facts
// that most requests do not need are in values of their own.
type work struct {
	mu       sync.Mutex // of what follows, and of settling
	done     bool       // the upstream is done
	ended    bool       // the handler returned
	answered bool       // the status of the answer is known
	away     bool       // the request got no turn, or its client left the queue
	measured bool       // cpu is known
	failed   bool       // the upstream gave no proper answer
	bodyless bool       // the request has no body
	began    int64      // Unix ns; 0: the upstream was not asked
	headed   int64      // Unix ns at which an answer without an end began; 0 for others
	cpu      time.Duration
	cost     int64 // units; below 0: not reported
	queued   *queued
	gauge    *gauge
	running  links // among the requests in progress
}

// queued is what a request needs where the upstream is shared.
type queued struct {
	visit *visit // until the turn has come
	queue *share.Queue
	claim share.Claim
	turn  *share.Turn
}

// A gauge measures CPU time.
type gauge struct {
	path   string
	meter  Metering   // nil unless it is sampled, and before the upstream begins
	thread *threadCPU // nil unless the handler's thread is measured
}

// newExchange returns an empty Exchange, which another request may have used.
func (g *generation) newExchange() *Exchange {
	x, _ := g.exchanges.Get().(*Exchange)
	if x == nil {
		x = new(Exchange)
	}
	x.gen = g
	return x
}

// reuse lets the server use the memory of the request again, and other requests x. isSeen says that inProgress may
// look at x even now.
func (x *Exchange) reuse(isSeen bool) {
	g := x.gen
	if g.reuse(x.response.w) && !isSeen && !x.isShared && x.work.gauge == nil { // a meter may still report
		*x = Exchange{}
		g.exchanges.Put(x)
	}
}

// prepare sets up what is needed when the upstream begins. It releases vis,
// unless the request may wait for a turn.
func (x *Exchange) prepare(vis *visit) {
	x.work.cost = -1
	if x.gen.Meter != nil || x.gen.ThreadCPU {
		x.work.gauge = &gauge{path: vis.req.Path}
	}
	queue := x.gen.queueFor(vis.req.Host)
	if queue == nil {
		x.gen.release(vis)
		return
	}
	x.work.queued = &queued{visit: vis, queue: queue, claim: queue.Claim(&vis.req)}
}

// await waits for a turn and begins the upstream's work. Only the handler's
// goroutine calls it.
func (x *Exchange) await(w http.ResponseWriter, r *http.Request) bool {
	k := &x.work
	if k.began != 0 {
		return true
	}
	if k.away {
		return false
	}
	var turn *share.Turn
	if k.queued != nil {
		g := x.gen
		if g.wantsPage(x.completion.HTTP, &k.queued.visit.req) {
			k.queued.claim.WaitAtMost(g.WaitingRoom.After())
		}
		var err error
		if turn, err = k.queued.queue.Wait(r.Context(), &k.queued.claim); err != nil {
			x.turnAway(w, r, err)
			return false
		}
		x.gen.release(k.queued.visit)
		k.queued.visit = nil
	}
	var thread *threadCPU
	if k.gauge != nil && k.gauge.thread != nil && k.gauge.thread.begin() {
		thread = k.gauge.thread
	}
	x.begin(turn, thread)
	if x.gen.guard.Metered(&x.verdict) {
		x.gen.inProgress.add(x)
	}
	if k.queued != nil && turn.Waited() > 0 {
		if x.access != nil {
			x.access.Waited += turn.Waited()
		}
		x.gen.reportWaited(x.completion.HTTP, turn.Waited()) // even if it panics, the turn is given back
	}
	return true
}

func (x *Exchange) begin(turn *share.Turn, thread *threadCPU) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	k.began = x.gen.Now().UnixNano()
	if k.queued != nil {
		k.queued.turn = turn
	}
	if k.gauge != nil {
		k.gauge.thread = thread
		if x.gen.Meter != nil {
			k.gauge.meter = x.gen.Meter.Begin(k.gauge.path)
		}
	}
}

// turnAway answers a request that gets no turn. If the client has left, there
// is no answer.
func (x *Exchange) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	x.work.away = true
	NoUpstreamAnswer(w)
	x.access = nil // it is reported with the answer
	busy, vis := (*share.Busy)(nil), x.work.queued.visit
	if !errors.As(err, &busy) {
		vis.req.Time = x.gen.Now()
		x.gen.reportAnswered(vis, &x.verdict, func(a *Access) { a.Gone = true })
		return
	}
	if x.gen.wantsPage(x.completion.HTTP, &vis.req) {
		x.gen.sendRoom(w, x.completion.HTTP, vis, busy.Expected)
		return
	}
	v := waitVerdict(fairshare.BusyUpstream, busy.RetryAfter)
	x.gen.refuse(w, r, vis, &v)
}

// endless records that the answer has no end: the turn is given back, and time
// that is not measured stops counting here.
func (x *Exchange) endless() {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.began == 0 || k.done || k.headed != 0 {
		return
	}
	k.headed = x.gen.Now().UnixNano()
	if k.queued != nil {
		k.queued.turn.Headed()
	}
}

// settleHead settles what is known with the status of the answer: errors, and
// what is held for a cost that is reported already. An answer without an end
// that reports no cost costs 1.
func (x *Exchange) settleHead(now time.Time) {
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.settleHeadLocked(now)
}

func (x *Exchange) settleHeadLocked(now time.Time) {
	k := &x.work
	if k.answered = true; k.away {
		return
	}
	out := fairshare.Outcome{Time: now, Status: x.response.outcome(), Cost: k.cost,
		Part: fairshare.SettleHeader}
	if k.headed != 0 && out.Cost < 0 {
		out.Cost = 1
	}
	x.settle(out)
}

// upstreamDone ends the turn and gives the slots back, once.
func (x *Exchange) upstreamDone() {
	now := x.gen.Now()
	if !x.stop(now, false) {
		return
	}
	x.work.mu.Lock()
	defer x.work.mu.Unlock()
	x.settle(fairshare.Outcome{Time: now, Part: fairshare.SettleSlots})
}

// stop ends the turn and the measuring. It returns false if that was done
// before.
func (x *Exchange) stop(now time.Time, failed bool) bool {
	k := &x.work
	k.mu.Lock()
	if k.done {
		k.mu.Unlock()
		return false
	}
	k.done = true
	k.failed = k.failed || failed
	var metering Metering
	if k.began != 0 {
		x.completion.Took = time.Duration(max(now.UnixNano()-k.began, 0)) // Options.Now may step back
		if k.queued != nil {
			if k.failed || x.response.own {
				k.queued.turn.Failed()
			}
			k.queued.turn.Done()
		}
		if k.gauge != nil {
			metering = k.gauge.meter
		}
	}
	k.mu.Unlock()
	if metering != nil {
		metering.End(x.metered) // which may call metered at once
	}
	return true
}

// metered gets the CPU time from the meter, possibly after the handler has
// returned.
func (x *Exchange) metered(cpu time.Duration) {
	if x.setMetered(cpu) {
		x.reportPassed()
	}
}

// setMetered sets the CPU time, unless the handler has reported it. It returns
// whether that was the last fact to come, and then has settled everything.
func (x *Exchange) setMetered(cpu time.Duration) (complete bool) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.measured {
		return false
	}
	k.cpu, k.measured = cpu, true
	if k.ended {
		x.settleRest(x.gen.Now())
	}
	return k.ended
}

// end settles what is left when the handler has returned. CPU time that is
// sampled may be known a little later.
func (x *Exchange) end() {
	k := &x.work
	if k.queued != nil && k.queued.visit != nil {
		x.gen.release(k.queued.visit)
	}
	isSeen := x.work.running.in != nil
	x.gen.inProgress.remove(x)
	now := x.gen.Now()
	switch {
	case x.isWhole:
		x.noteFleet(now, x.response.outcome(), x.contentType)
	case x.response.status.Load() == 0: // an answer without a body
		header := x.response.Header()
		x.noteSigns(x.response.outcome(), contentTypeOf(header), header["Set-Cookie"])
	}
	x.stop(now, !x.response.returned || x.response.status.Load() >= http.StatusInternalServerError)
	if x.settleEnd(now) {
		x.reportPassed()
		if !x.isKept() {
			x.reuse(isSeen)
		}
	}
}

// isKept reports whether something may still refer to the request, which has ended.
func (x *Exchange) isKept() bool {
	res := &x.response
	return !res.unkept || !res.returned || res.hijacked || res.tap != nil || x.login != nil ||
		x.gen.Context || x.gen.ThreadCPU
}

// settleEnd settles all that is known when the handler has returned. It returns
// false if something is to come, and if the request did not reach the upstream.
func (x *Exchange) settleEnd(now time.Time) (complete bool) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if k.began != 0 && k.gauge != nil && k.gauge.thread != nil {
		if cpu := k.gauge.thread.end(); !k.measured {
			k.cpu, k.measured = cpu, true
		}
	}
	switch {
	case k.away:
		x.endLogin(now)
		x.settle(fairshare.Outcome{Time: now, Part: fairshare.SettleNotForwarded})
		return false
	case k.measured || k.gauge == nil || k.gauge.meter == nil:
		x.settleRest(now)
		return true
	}
	out := x.spent(now)
	out.Part = fairshare.SettleAllButCPU
	x.settle(out)
	return false
}

// settleRest settles what is left. The lock is held.
func (x *Exchange) settleRest(now time.Time) {
	out := x.spent(now)
	x.settle(out)
	if x.work.measured || x.gen.HandlerReportsCPU {
		x.completion.CPU = out.CPU
	}
}

// spent returns what the request has cost at time now. The lock is held.
func (x *Exchange) spent(now time.Time) fairshare.Outcome {
	k := &x.work
	out := fairshare.Outcome{Time: now, Status: x.response.outcome(), Bytes: x.response.bytes.Load(),
		Took: x.completion.Took, CPU: k.cpu, Cost: k.cost, Failed: x.endLogin(now)}
	if k.began == 0 { // answered without the upstream
		out.Cost = max(out.Cost, 0)
		return out
	}
	if !k.measured {
		out.CPU = out.Took
		if k.headed != 0 {
			out.CPU = time.Duration(k.headed - k.began)
		}
	}
	return out
}

// settleSoFar charges what the request has cost until now, while it is in
// progress.
func (x *Exchange) settleSoFar(now time.Time) {
	k := &x.work
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || k.began == 0 {
		return
	}
	out := fairshare.Outcome{Time: now, Bytes: -1, Took: x.completion.Took, Whole: k.bodyless,
		Part: fairshare.SettleSoFar}
	if k.answered {
		out.Bytes = x.response.bytes.Load()
	}
	if !k.done {
		out.Took = time.Duration(now.UnixNano() - k.began)
	}
	var gauge gauge
	if k.gauge != nil {
		gauge = *k.gauge
	}
	switch {
	case k.measured:
		out.CPU = k.cpu
	case gauge.thread != nil:
		out.CPU = gauge.thread.soFar()
	case gauge.meter != nil && k.done: // the meter is about to report the sum
		out.CPU = -1
	case gauge.meter != nil:
		out.CPU = gauge.meter.Spent()
	case k.headed != 0:
		out.CPU = time.Duration(k.headed - k.began)
	case x.gen.HandlerReportsCPU: // the handler reports it at the end
		out.CPU = -1
	default:
		out.CPU = out.Took
	}
	x.settle(out)
}

// settle settles the verdict. The client may be gone, and its context with it:
// its costs are charged all the same.
func (x *Exchange) settle(out fairshare.Outcome) {
	x.gen.reportFailed(x.completion.HTTP, x.gen.guard.Settle(context.Background(), &x.verdict, out))
}

// reportPassed calls Options.Passed with the final figures.
func (x *Exchange) reportPassed() {
	x.reportAnswered()
	if x.gen.Passed == nil {
		return
	}
	x.completion.Status, x.completion.Bytes = x.response.outcome(), x.response.bytes.Load()
	x.gen.Passed(&x.completion)
}

// answerError records the answer that the server will give to an error of its
// handler, if nothing is written yet.
func (x *Exchange) answerError(err error) {
	if x.response.status.Load() != 0 || x.response.hijacked {
		return
	}
	status := 0
	if x.gen.ErrorStatus != nil {
		status = x.gen.ErrorStatus(err)
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	x.setAnswer(status, -1)
}
