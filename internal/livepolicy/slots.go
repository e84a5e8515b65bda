package livepolicy

import (
	"context"
	"sync"
	"time"

	"fairshare/redislimit"
	"fairshare/share"
)

// A slotSharer exchanges reports of the queues with the other members of the group: they have one
// upstream together.
type slotSharer struct {
	group   *redislimit.Limiter
	running map[*share.Queue]*lender
}

const (
	firstLease   = 250 * time.Millisecond // for the first lease, at the start
	releaseTime  = 250 * time.Millisecond
	leaseAttempt = share.LeaseFor / 2
)

// isOneUpstream reports whether the members of a runtime's group have one upstream together.
func (p *Policy) isOneUpstream(rt *Runtime) bool {
	return rt.Group != nil && p.options.OneUpstream && rt.File.Share != nil && !rt.File.Share.EachMember
}

// use begins the exchange of queues that are new, and ends that of queues that are gone. queues are
// by the name of their site.
func (s *slotSharer) use(group *redislimit.Limiter, queues map[string]*share.Queue) {
	s.group = group
	wanted := map[*share.Queue]bool{}
	var starting sync.WaitGroup
	for site, q := range queues {
		wanted[q] = true
		if s.running[q] != nil {
			continue
		}
		if s.running == nil {
			s.running = map[*share.Queue]*lender{}
		}
		ctx, cancel := context.WithCancel(context.Background())
		l := &lender{group: group, site: site, queue: q, cancel: cancel, done: make(chan struct{})}
		s.running[q] = l
		starting.Add(1)
		go func() {
			defer close(l.done)
			q.Alone(group.MembersRecently())
			l.exchange(ctx, firstLease)
			starting.Done()
			l.run(ctx)
		}()
	}
	starting.Wait() // else the first requests would find less than this member's part
	for q, l := range s.running {
		if !wanted[q] {
			l.cancel() // all at once: each may wait for the store
		}
	}
	for q, l := range s.running {
		if !wanted[q] {
			<-l.done
			q.Alone(1) // if it is still used, its upstream is this member's alone
			delete(s.running, q)
		}
	}
}

// stop ends all exchanges.
func (s *slotSharer) stop() { s.use(s.group, nil) }

// A lender exchanges the reports of one queue.
type lender struct {
	group  *redislimit.Limiter
	site   string
	queue  *share.Queue
	cancel context.CancelFunc // ends the exchange
	done   chan struct{}      // closed when it has ended and the slots are given back

	mu     sync.Mutex
	lapses *time.Timer // ends the lease
	until  time.Time   // the end of the lease
}

// run exchanges reports until ctx ends, and then gives the slots back.
func (l *lender) run(ctx context.Context) {
	for {
		at := time.Now()
		ok := l.exchange(ctx, leaseAttempt)
		pressed := l.queue.Pressed()
		if !ok {
			pressed = nil
		}
		soon := at.Add(share.LeaseSoon)
		next := at.Add(share.LeaseEvery)
		if ok && l.queue.IsShort() {
			next = soon
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		case <-pressed:
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(soon)):
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	l.mu.Lock()
	if l.lapses != nil {
		l.lapses.Stop()
	}
	l.mu.Unlock()
	last, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	_ = l.group.ReleaseSlots(last, l.site) // without it, the lease ends by itself
}

// exchange exchanges one report, and reports whether the store answered in time.
func (l *lender) exchange(ctx context.Context, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	began := time.Now()
	r := l.queue.Report()
	lease, err := l.group.LeaseSlots(ctx, &redislimit.SlotsRequest{Upstream: l.site, Capacity: r.Capacity,
		InUse: r.InUse, Has: r.Has, Wants: r.Wants, For: share.LeaseFor, Report: r.Data})
	left := share.LeaseFor - time.Since(began)
	if err != nil || left <= 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	merged := share.Lease{ID: lease.ID, Slots: lease.Slots, Since: lease.Since}
	for _, o := range lease.Others {
		merged.Peers = append(merged.Peers, share.Peer{ID: o.ID, Since: o.Since, Data: o.Report})
	}
	l.until = time.Now().Add(left)
	l.queue.Merge(merged)
	if l.lapses == nil {
		l.lapses = time.AfterFunc(left, l.lapse)
	} else {
		l.lapses.Reset(left)
	}
	return true
}

// lapse ends the lease, unless it was renewed meanwhile.
func (l *lender) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		l.queue.Alone(0)
	}
}

// shareSlots exchanges reports of a runtime's queues with the other members, if they have one upstream
// together.
func (p *Policy) shareSlots(rt *Runtime) {
	var queues map[string]*share.Queue
	if p.isOneUpstream(rt) {
		queues = rt.queues()
	}
	p.slots.use(rt.Group, queues)
}
