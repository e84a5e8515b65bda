package livepolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare/policyfile"
	"fairshare/share"
)

// useQueue gives a runtime the queue of the upstream, if its policy file shares
// the upstream. There is one queue for all runtimes: requests that wait in it or
// are at the upstream stay there over a reload.
func (p *Policy) useQueue(rt *Runtime) {
	switch {
	case rt.File.Share == nil:
		return
	case p.queue == nil:
		p.queue = share.New(queueOptions(rt))
	default:
		p.queue.Replace(queueOptions(rt))
	}
	if rt.File.Share.Ages && !p.queueKnowsAges {
		p.queueKnowsAges = true
		queue := p.queue
		p.readFirstSeen(func(client netip.Prefix, first time.Time) {
			queue.Known(client, p.options.Clock.FromWall(first), p.Now())
		})
	}
	rt.Share = p.queue
}

// queueOptions returns how a runtime shares its upstream.
func queueOptions(rt *Runtime) share.Options {
	f := rt.File.Share
	opts := share.Options{
		Capacity: f.Capacity, Min: f.Min, Max: f.Max, By: f.By,
		Wait: f.Wait, Queue: f.Queue, Ages: f.Ages,
		Labels: f.Labels, Bots: f.Bots,
		DryRun: rt.File.Policy.DryRun,
		Key:    rt.Guard.AppendKey, Client: rt.File.Policy.Client,
	}
	if f.Wait == 0 || f.Queue == 0 { // requests do not wait
		opts.Wait, opts.Queue = -1, -1
	}
	return opts
}

// Slots returns a function for how many requests the upstream works on at once;
// nil if requests do not wait for it.
func (rt *Runtime) Slots() func() int {
	if rt.Share == nil || rt.File.Policy.DryRun {
		return nil
	}
	return func() int { return rt.Share.Stats().Capacity }
}

// RefuseWaiting refuses the requests that wait for the upstream, and lets no
// other request wait.
func (p *Policy) RefuseWaiting() {
	if p.queue != nil {
		p.queue.RefuseWaiting()
	}
}

// queueReport returns a line about how the upstream was shared since the last
// call; "" if no request had to wait.
func (p *Policy) queueReport() string {
	if p.queue == nil {
		return ""
	}
	now, last := p.queue.Stats(), p.reportedQueue
	p.reportedQueue = now
	return queueLine(now, last, p.Current().File.Policy.DryRun)
}

// queueLine returns what changed between two looks at a queue; "" if no request
// had to wait.
func queueLine(now, last share.Stats, dryRun bool) string {
	var requests, waits, refusals int64
	var byAge []string
	for i, class := range slices.Backward(now.Classes[:]) {
		before := last.Classes[i]
		refused := class.Refused - before.Refused + class.Expired - before.Expired
		requests += class.Turns - before.Turns
		waits += class.Waited - before.Waited
		refusals += refused
		if refused > 0 {
			byAge = append(byAge, fmt.Sprintf("%d of %s", refused, ageOf(class)))
		}
	}
	if waits+refusals == 0 {
		return ""
	}
	waited, refused := "would have waited", "would have been refused"
	if !dryRun { // in a dry run all requests have a turn
		requests += refusals
		waited, refused = fmt.Sprintf("waited (%v at most)", now.LongestWait.Round(time.Millisecond)), "were refused"
	}
	line := fmt.Sprintf("busy: of %d requests %d %s", requests, waits, waited)
	if refusals > 0 {
		line += fmt.Sprintf(", %d %s (%s)", refusals, refused, strings.Join(byAge, ", "))
	}
	return fmt.Sprintf("%s; %d of %d slots in use, %d wait", line, now.Inside, now.Capacity, now.Waiting)
}

// ageOf names the clients of a class.
func ageOf(c share.Class) string {
	if c.Age == 0 {
		return "new clients"
	}
	return "clients known for " + policyfile.FormatDuration(c.Age)
}
