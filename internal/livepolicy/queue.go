package livepolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairshare/policyfile"
	"fairshare/share"
)

// useQueue gives a runtime the queues of its upstreams, if its policy file shares them. Each
// site has one, so that a slow site does not take the turns of the others. They are the same
// for all runtimes: requests that wait in them or are at the upstream stay there over a reload.
// It returns the queues that need the clients of the registry, see readFirstSeen.
func (p *Policy) useQueue(rt *Runtime) (unread []*share.Queue) {
	if rt.File.Share == nil {
		p.slots.stop()
		return nil
	}
	p.queue = p.openQueue(rt, p.queue)
	rt.Share, rt.Shares = p.queue, map[string]*share.Queue{}
	for _, site := range rt.File.Sites {
		rt.Shares[site.Name] = p.openQueue(rt, p.siteQueues[site.Name])
	}
	p.siteQueues = rt.Shares
	p.shareSlots(rt)
	known := map[*share.Queue]bool{}
	for _, queue := range rt.queues() {
		if known[queue] = p.knowAges[queue]; rt.File.Share.Ages && !known[queue] {
			known[queue] = true
			unread = append(unread, queue)
		}
	}
	p.knowAges = known
	return unread
}

// openQueue returns a queue with the options of a runtime: old, or a new one if that is nil.
func (p *Policy) openQueue(rt *Runtime, old *share.Queue) *share.Queue {
	if old == nil {
		return share.New(p.queueOptions(rt))
	}
	old.Replace(p.queueOptions(rt))
	return old
}

// Queue returns the queue of a site, "" for everything else; nil if its requests do not wait.
func (rt *Runtime) Queue(site string) *share.Queue {
	if q := rt.Shares[site]; q != nil {
		return q
	}
	return rt.Share
}

// queues returns all queues by the name of their site.
func (rt *Runtime) queues() map[string]*share.Queue {
	all := maps.Clone(rt.Shares)
	if rt.Share != nil {
		all[""] = rt.Share
	}
	return all
}

// queueStats returns the figures of all queues together; nil if requests do not wait.
func (rt *Runtime) queueStats() *share.Stats {
	if rt.Share == nil {
		return nil
	}
	if len(rt.Shares) == 0 {
		stats := rt.Share.Stats()
		return &stats
	}
	var sum share.Stats
	for _, queue := range rt.Shares {
		s := queue.Stats()
		sum.Capacity, sum.Inside, sum.Waiting = sum.Capacity+s.Capacity, sum.Inside+s.Inside, sum.Waiting+s.Waiting
		sum.LongestWait = max(sum.LongestWait, s.LongestWait)
		for i, c := range s.Classes {
			to := &sum.Classes[i]
			to.Age, to.Turns, to.Waited = c.Age, to.Turns+c.Turns, to.Waited+c.Waited
			to.Refused, to.Expired, to.Gone = to.Refused+c.Refused, to.Expired+c.Expired, to.Gone+c.Gone
		}
	}
	return &sum
}

// queueOptions returns how a runtime shares its upstream.
func (p *Policy) queueOptions(rt *Runtime) share.Options {
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
	if p.isOneUpstream(rt) {
		opts.Hash = rt.Group.GroupHash
	}
	return opts
}

// Slots returns a function for how many requests the upstream of a site works on at once;
// nil if requests do not wait for it.
func (rt *Runtime) Slots(site string) func() int {
	queue := rt.Queue(site)
	if queue == nil || rt.File.Policy.DryRun {
		return nil
	}
	return func() int { return queue.Stats().Capacity }
}

// RefuseWaiting refuses the requests that wait for an upstream, and lets no
// other request wait.
func (p *Policy) RefuseWaiting() {
	for _, queue := range p.Current().queues() {
		queue.RefuseWaiting()
	}
}

// queueReport returns a line about how each upstream was shared since the last
// call, but none if no request had to wait.
func (p *Policy) queueReport() (lines []string) {
	rt := p.Current()
	queues, now := rt.queues(), map[string]share.Stats{}
	for _, site := range slices.Sorted(maps.Keys(queues)) {
		now[site] = queues[site].Stats()
		if line := queueLine(now[site], p.reportedQueues[site], rt.File.Policy.DryRun); line != "" {
			if site != "" {
				line = "site " + site + ": " + line
			}
			lines = append(lines, line)
		}
	}
	p.reportedQueues = now
	return lines
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
