package replay

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/fleets"
	"fairshare/internal/accesslog"
	"fairshare/logins"
)

// Live judges lines as they are written, with a guard that its owner keeps: what a
// [Replay] does with each line. It is not safe for concurrent use.
type Live struct {
	j     *judge
	batch batch
	feed  feed
	each  func(*Judged)
	out   Judged
	seeds seeds

	targets knownTargets
}

// LiveOptions configure a Live. Guard, Fleets, Judged and, of Options, Policy and Client
// are required. Options.Policy is the policy of the guard. Of the other Options only Bot,
// Owner, Lookups and Override are used.
type LiveOptions struct {
	Options
	Guard   *fairshare.Guard
	Fleets  *fleets.Finder
	Browser *browser.Watcher // nil unless the policy needs it
	Logins  *logins.Watcher  // likewise

	// Judged gets each line with its verdict, before its costs are charged. It must not
	// keep the value.
	Judged func(*Judged)
}

// A Judged is a line with its verdict.
type Judged struct {
	Request *fairshare.Request // its Time is when it was judged: not before an earlier line
	Entry   *accesslog.Entry
	Verdict *fairshare.Verdict
	Outcome *fairshare.Outcome
}

// NewLive returns a Live.
func NewLive(opts LiveOptions) *Live {
	l := &Live{each: opts.Judged, seeds: newSeeds()}
	j := &judge{opts: &opts.Options, ruleOf: map[*fairshare.Rule]int32{},
		limits: opts.Policy.Limits(), guard: opts.Guard, latest: math.MinInt64, held: heldSlots{guard: opts.Guard},
		browser: opts.Browser, logins: opts.Logins, note: func(int) {}, now: new(atomic.Pointer[judging])}
	j.now.Store(&judging{logins: opts.Logins})
	j.early = true
	j.fleets = fleetsOf{finder: opts.Fleets, readAt: math.MaxInt64} // the owner of the finder reads its changes
	for i := range opts.Policy.Rules {
		j.ruleOf[&opts.Policy.Rules[i]] = int32(i)
	}
	for i := range j.limits {
		j.slots = j.slots || j.limits[i].Resource == fairshare.Concurrent
	}
	j.judged = func(it *item, v *fairshare.Verdict, out *fairshare.Outcome) {
		at := it.req.Time
		it.req.Time = time.Unix(0, j.latest)
		l.out = Judged{Request: &it.req, Entry: it.entry, Verdict: v, Outcome: out}
		l.each(&l.out)
		it.req.Time = at
	}
	l.j = j
	l.feed.log = new(logFile)
	return l
}

// Judge judges lines, in the order of their times. A line that is up to an hour earlier
// than the latest one is judged at the time of that one. Earlier lines must not come.
func (l *Live) Judge(ctx context.Context, entries []accesslog.Entry) error {
	l.batch.src = &accesslog.Batch{Entries: entries}
	// A new one: it remembers bots whose proof may come at any time.
	p := preparer{opts: l.j.opts, seeds: &l.seeds, judge: l.j.now, targets: &l.targets}
	p.items(&l.batch)
	for i := range l.batch.items {
		if err := l.j.judge(ctx, &l.batch.items[i], &l.feed); err != nil {
			return err
		}
	}
	return nil
}

// Latest returns the latest time of a judged line; zero before the first.
func (l *Live) Latest() time.Time {
	if l.j.latest == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(0, l.j.latest)
}

// Close frees the slots of requests that still hold one.
func (l *Live) Close(ctx context.Context) error { return l.j.held.release(ctx, math.MaxInt64) }

// A Lack is a fact that a rule tests and a log lacks.
type Lack = Unmeasured

// Lacks returns what the rules of a policy test and a log with these facts lacks, as the
// report of a replay. Only the Policy of opts and the functions that are nil matter.
func Lacks(opts *Options, has accesslog.Fields, resolution time.Duration) []Lack {
	rec := &recorder{opts: opts, logs: []*logFile{{has: has, resolution: resolution, entries: 1, path: "the log"}}}
	return rec.unmeasured()
}
