package replay

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/fleets"
	"fairshare/logins"
	"fairshare/membans"
)

// maxBackwards is how much earlier than the latest line a line may be. An even earlier
// line starts a new guard: it belongs to another log or another day.
const maxBackwards = time.Hour

// mostBans is how many present and former bans are remembered: about 50 MB.
const mostBans = 1 << 18

// A judge runs the policy over the lines of all logs, merged by time.
type judge struct {
	opts    *Options
	lines   interface{ Add(int64) int64 } // of Replay.Progress
	feeds   []*feed
	bots    botList
	ruleOf  map[*fairshare.Rule]int32
	limits  []fairshare.Limit
	slots   bool // a limit counts requests in progress
	header  entryHeader
	guard   *fairshare.Guard
	now     *atomic.Pointer[judging] // for the preparers
	held    heldSlots
	browser *browser.Watcher // nil unless Options.Browsers
	fleets  fleetsOf
	early   bool // the judge looks for fleets, and not the recorder
	robots  robotsOf
	logins  *logins.Watcher // nil unless Options.Attempts
	unknown logins.Target   // the zero Target
	limiter fairshare.Limiter
	age     uint32            // restarts since limiter was empty
	since   int64             // lines since then
	latest  int64             // time that the guard has judged, Unix ns
	verdict fairshare.Verdict // on the present line: here, it is not allocated for each line
	outcome fairshare.Outcome // of that line

	matched  []int64 // of each rule
	networks []int64 // of each rule: bans of an IPv6 /48 because of its clients
	observe  func(fairshare.BanRecord)
	note     func(rule int)
	judged   func(it *item, v *fairshare.Verdict, out *fairshare.Outcome) // of a Live; else nil
	restarts Restarts
	touched  uint64 // so that the compiler does not remove what only reads memory

	out    *chunk
	unused chan *chunk
}

// A chunk is some judged lines, in the order of judging.
type chunk struct {
	runs []run
	n    int // lines
}

// A run is lines of one batch.
type run struct {
	feed     *feed
	b        *batch
	from, to int
	last     bool // the batch is not used any more
}

func newJudge(r *Replay) (*judge, error) {
	j := &judge{
		opts:    &r.opts,
		lines:   &r.lines,
		now:     &r.judge,
		ruleOf:  map[*fairshare.Rule]int32{},
		limits:  r.opts.Policy.Limits(),
		matched: make([]int64, len(r.opts.Policy.Rules)),
		unused:  make(chan *chunk, queued+2),
		out:     &chunk{},

		networks: make([]int64, len(r.opts.Policy.Rules)),
	}
	j.observe = j.countNetworkBan
	j.fleets.client = r.opts.Policy.Client
	j.early = r.opts.usesFleets()
	if j.robots.file = r.opts.Robots; j.robots.file != nil {
		j.robots.counts, j.robots.last = map[botID]*robotsCount{}, map[robotsKey]int64{}
	}
	for i := range r.opts.Policy.Rules {
		j.ruleOf[&r.opts.Policy.Rules[i]] = int32(i)
	}
	j.ruleOf[fairshare.OperatorBan] = r.opts.operator()
	for i := range j.limits {
		j.slots = j.slots || j.limits[i].Resource == fairshare.Concurrent
	}
	j.note = func(rule int) { j.matched[rule]++ }
	for _, l := range r.logs {
		j.feeds = append(j.feeds, newFeed(l, r.dns))
	}
	return j, j.reset()
}

// reset starts a new guard without counts and bans.
func (j *judge) reset() error {
	j.now.Store(nil)
	l, ok := j.limiter.(resetter)
	if j.early {
		j.fleets.restart()
	}
	switch {
	case ok && j.since <= leftover(j.opts.Memory)/int64(max(1, len(j.limits))):
		j.age++
	case ok:
		l.Reset()
		j.age, j.since = 0, 0
	default:
		j.limiter, j.guard, j.held = nil, nil, heldSlots{} // free the old memory before the new is allocated
		l, err := j.opts.Limiter(j.limits)
		if err != nil {
			return err
		}
		j.limiter, j.since = l, 0
	}
	limiter := j.limiter
	if j.age > 0 {
		limiter = &aged{limiter: limiter, age: j.age}
	}
	if j.logins = nil; j.opts.Attempts {
		j.logins = logins.New(logins.Options{Client: j.opts.Policy.Client})
	}
	if j.browser = nil; j.opts.Browsers {
		j.browser = new(browser.Watcher)
	}
	bans := membans.New(mostBans)
	bans.Observe(func(b fairshare.BanRecord) { j.observe(b) })
	if j.opts.Trials != nil {
		if err := j.opts.Trials.reset(j.opts); err != nil {
			return err
		}
	}
	guard, err := fairshare.NewGuard(j.opts.Policy, limiter, bans)
	if err != nil {
		return err
	}
	j.guard, j.latest, j.held = guard, math.MinInt64, heldSlots{guard: guard}
	now := &judging{logins: j.logins}
	if runtime.GOMAXPROCS(0) >= coresToMatch {
		now.guard = guard
	}
	j.now.Store(now)
	return nil
}

// coresToMatch is the number of cores from which on the preparers test conditions for the judge. It takes
// more CPU in all, because the judge skips many tests: of banned clients, and of rules for attempts. With fewer cores,
// it is faster without.
const coresToMatch = 4

// run judges all lines and sends them to the recorder.
func (j *judge) run(ctx context.Context, chunks chan<- *chunk, wg *sync.WaitGroup) error {
	heads := make([]*feed, 0, len(j.feeds))
	started := map[*feed]bool{}
	start := func(f *feed) {
		started[f] = true
		wg.Go(func() { f.run(ctx) })
	}
	if len(j.feeds) == 1 {
		start(j.feeds[0])
		if err := j.single(ctx, j.feeds[0], chunks); err != nil {
			return err
		}
		return ctx.Err()
	}
	for _, f := range j.feeds {
		if f.log.first.IsZero() { // already open, or without a valid line
			start(f)
			if more, err := j.advance(ctx, f, chunks); err != nil {
				return err
			} else if !more {
				continue
			}
		}
		heads = append(heads, f)
	}
	for i := len(heads)/2 - 1; i >= 0; i-- {
		sift(heads, i)
	}
	for len(heads) > 0 {
		f := heads[0]
		if !started[f] {
			start(f)
			if more, err := j.advance(ctx, f, chunks); err != nil {
				return err
			} else if !more {
				heads = drop(heads)
				continue
			}
			sift(heads, 0)
			continue
		}
		more, err := j.judgeRun(ctx, f, heads, chunks)
		if err != nil {
			return err
		}
		if more {
			sift(heads, 0)
		} else {
			heads = drop(heads)
		}
	}
	j.send(ctx, chunks)
	return ctx.Err()
}

// single judges the lines of the only log.
func (j *judge) single(ctx context.Context, f *feed, chunks chan<- *chunk) error {
	for {
		more, err := j.advance(ctx, f, chunks)
		if err != nil || !more {
			return err
		}
		for f.next < len(f.cur.items) {
			if err := j.next(ctx, f); err != nil {
				return err
			}
		}
	}
}

// judgeRun judges lines of f, the feed at the top of heads, while its next line is the
// earliest. It returns false at the end of f.
func (j *judge) judgeRun(ctx context.Context, f *feed, heads []*feed, chunks chan<- *chunk) (more bool, err error) {
	var left, right *feed
	if len(heads) > 1 {
		left = heads[1]
	}
	if len(heads) > 2 {
		right = heads[2]
	}
	for {
		begin := f.next
		for {
			if err := j.next(ctx, f); err != nil {
				return false, err
			}
			if f.next == len(f.cur.items) {
				break
			}
			f.at = f.cur.items[f.next].req.Time.UnixNano()
			if left != nil && left.before(f) || right != nil && right.before(f) {
				j.addRun(f, begin, f.next)
				if j.out.n >= chunkLines || len(j.out.runs) >= chunkLines {
					j.send(ctx, chunks)
				}
				return true, ctx.Err()
			}
		}
		j.addRun(f, begin, f.next)
		if more, err = j.advance(ctx, f, chunks); err != nil || !more {
			return more, err
		}
		if left != nil && left.before(f) || right != nil && right.before(f) {
			return true, nil
		}
	}
}

// chunkLines is the approximate number of lines in a chunk.
const chunkLines = 1024

// addRun adds judged lines to the present chunk.
func (j *judge) addRun(f *feed, from, to int) {
	if to > from {
		j.out.runs = append(j.out.runs, run{feed: f, b: f.cur, from: from, to: to})
		j.out.n += to - from
	}
}

// advance waits for the next batch of f. It returns false at the end of the log.
func (j *judge) advance(ctx context.Context, f *feed, chunks chan<- *chunk) (more bool, err error) {
	for {
		if f.cur != nil {
			if len(j.feeds) == 1 {
				j.addRun(f, 0, f.next)
			}
			// The last run of a batch is empty and releases it.
			j.out.runs = append(j.out.runs, run{feed: f, b: f.cur, last: true})
			f.cur = nil
			if len(j.feeds) == 1 || j.out.n >= chunkLines || len(j.out.runs) >= chunkLines {
				j.send(ctx, chunks)
			}
		}
		b, ok := <-f.batches
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !ok {
			if f.err != nil {
				return false, fmt.Errorf("%s: %w", f.log.path, f.err)
			}
			return false, nil
		}
		f.cur, f.next = b, 0
		if len(b.items) > 0 {
			f.at = b.items[0].req.Time.UnixNano()
			return true, nil
		}
	}
}

// send hands the present chunk to the recorder.
func (j *judge) send(ctx context.Context, chunks chan<- *chunk) {
	if len(j.out.runs) == 0 {
		return
	}
	j.lines.Add(int64(j.out.n))
	select {
	case chunks <- j.out:
	case <-ctx.Done():
		return
	}
	select {
	case j.out = <-j.unused:
	default:
		j.out = &chunk{}
	}
}

// together is for how many lines memory is read before they are judged or recorded. The processor overlaps these
// reads, but not those of the work on one line after another.
const together = 32

// next judges the next line of a batch.
func (j *judge) next(ctx context.Context, f *feed) error {
	items := f.cur.items[f.next:]
	if f.next%together == 0 {
		j.expect(items[:min(len(items), together)])
	}
	f.next++
	return j.judge(ctx, &items[0], f)
}

// expect prepares for the next lines.
func (j *judge) expect(items []item) {
	var reqs [together]*fairshare.Request
	for i := range items {
		reqs[i] = &items[i].req
		j.touched += items[i].touch()
	}
	j.touched += j.guard.Expect(reqs[:len(items)])
}

// judge judges one line.
func (j *judge) judge(ctx context.Context, it *item, f *feed) error {
	e := it.entry
	at := e.Time.UnixNano()
	if j.latest-at > int64(maxBackwards) && j.latest != math.MinInt64 {
		j.restarts.add(f.log.path, e.Line, e.Time, time.Unix(0, j.latest).UTC())
		if err := j.reset(); err != nil {
			return err
		}
	}
	it.bot = j.bots.id(&it.req.Bot)
	j.since++
	j.latest = max(j.latest, at)
	if err := j.held.release(ctx, j.latest); err != nil {
		return err
	}
	j.header.entry = e
	it.req.Header = &j.header
	if (it.req.Override.Action != fairshare.Undecided || it.req.ViaOverride.Action != fairshare.Undecided) &&
		at < j.latest {
		it.req.Override, it.req.ViaOverride = j.opts.overrides(&it.req, time.Unix(0, j.latest)) // they may have ended
	}
	it.req.Time = time.Unix(0, j.latest)
	var seen browser.Sighting
	if j.browser != nil {
		seen = j.browser.Look(&it.req, browser.Conn{})
	}
	it.req.Browser = seen.Browser
	var sighting fleets.Sighting
	if j.early {
		sighting = j.fleets.finder.Sight(&it.req)
		j.fleets.arrived(it, sighting, j.latest)
	}
	var robot *robotsCount
	var tooSoon bool
	if j.robots.file != nil {
		robot, tooSoon = j.robots.count(it)
	}
	if m, ok := j.limiter.(*meter); ok {
		m.person = j.opts.Measure(it.clientOf())
	}
	var login *logins.Attempt
	if j.logins != nil {
		target := it.target
		if target == nil {
			target = &j.unknown
		}
		login = j.logins.ArrivedAs(&it.req, j.guard, target)
	}
	var err error
	v := &j.verdict
	*v, err = j.guard.Decide(ctx, &it.req)
	if j.early {
		j.fleets.judged(it, sighting, v.Action)
	}
	it.req.Time = e.Time
	if err != nil {
		return err
	}
	v.Matched(j.note)
	if robot != nil && v.Action == fairshare.Allow {
		robot.passed(it, tooSoon)
	}
	if j.browser != nil && v.Action == fairshare.Allow {
		j.browser.Answered(&seen, browser.Answer{Status: e.Status})
	}
	it.enforced = finding{action: v.Action, rule: noRule}
	if v.Rule != nil {
		it.enforced = j.finding(&v.Finding)
	}
	it.dryRun = finding{rule: noRule}
	if v.DryRunFinding.Rule != nil {
		it.dryRun = j.finding(&v.DryRunFinding)
	}
	out := &j.outcome
	*out = fairshare.Outcome{Time: e.Time, Status: status(e), Bytes: e.Bytes, Took: took(e), CPU: e.CPU}
	if login != nil && v.Action == fairshare.Allow {
		login.Passed()
		out.Failed = login.Answered(&logins.Answer{Time: time.Unix(0, j.latest), Status: e.Status, Bytes: e.Bytes}) ==
			logins.Failed
	}
	if j.slots && e.Duration > 0 && v.Action == fairshare.Allow {
		out.Part = fairshare.SettleCosts
		j.held.hold(j.latest+min(int64(e.Duration), math.MaxInt64-max(j.latest, 0)), *v)
	}
	if j.judged != nil {
		j.judged(it, v, out)
	}
	if j.opts.Trials != nil {
		if err := j.opts.Trials.try(ctx, it, out, v, j.latest); err != nil {
			return err
		}
	}
	if login != nil {
		j.logins.Reuse(login)
	}
	return j.guard.Settle(ctx, v, *out)
}

// countNetworkBan counts a ban of a /48 that its clients caused. Bans of clients are
// counted by their verdicts.
func (j *judge) countNetworkBan(b fairshare.BanRecord) {
	if b.Kind != fairshare.ByNetwork || b.Began.UnixNano() != j.latest {
		return
	}
	for i := range j.opts.Policy.Rules {
		r := &j.opts.Policy.Rules[i]
		if r.Name == b.Rule && r.BanKind() != fairshare.ByNetwork {
			j.networks[i]++
		}
	}
}

func (j *judge) finding(f *fairshare.Finding) finding {
	return finding{wait: f.Wait, rule: j.ruleOf[f.Rule], action: f.Action, ban: f.Ban}
}

// before orders feeds by the time of their next line, then by their index.
func (f *feed) before(g *feed) bool {
	return f.at < g.at || f.at == g.at && f.log.index < g.log.index
}

// sift restores the heap below index i.
func sift(heap []*feed, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if heap[child].before(heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// drop removes the top of the heap.
func drop(heap []*feed) []*feed {
	last := len(heap) - 1
	heap[0], heap[last] = heap[last], nil
	heap = heap[:last]
	sift(heap, 0)
	return heap
}
