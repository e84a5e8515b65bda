package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fairshare"
	"fairshare/policyfile"
	"fairshare/share"
)

// shareOptions says how a site shares its upstream.
func shareOptions(st *site) share.Options {
	f := st.file.Share
	opts := share.Options{
		Capacity: f.Capacity, Min: f.Min, Max: f.Max, By: f.By,
		Wait: f.Wait, Queue: f.Queue, KnownAfter: f.KnownAfter,
		Labels: f.Labels, Bots: f.Bots,
		DryRun: st.file.Policy.DryRun,
		Key:    st.guard.AppendKey, Client: st.file.Policy.Client,
	}
	if f.Wait == 0 || f.Queue == 0 { // nobody waits
		opts.Wait, opts.Queue = -1, -1
	}
	return opts
}

// shareOf returns the queue of a site; nil when the upstream is not shared.
// A server has one for good: who waits in it, or has a turn, counts after a
// reload as before.
func (s *server) shareOf(st *site) *share.Queue {
	switch {
	case st.file.Share == nil:
		return nil
	case s.share == nil:
		s.share = share.New(shareOptions(st))
		s.meet(s.share)
	default:
		s.share.Replace(shareOptions(st))
	}
	return s.share
}

// slots tells how many slots a site has; nil when nobody waits for one.
func (st *site) slots() func() int {
	if st.share == nil || st.file.Policy.DryRun {
		return nil
	}
	return func() int { return st.share.Stats().Capacity }
}

// tellShare says once a minute how the upstream was shared, if anybody had to
// wait.
func (s *server) tellShare() {
	if s.share == nil {
		return
	}
	now, last := s.share.Stats(), s.shared
	s.shared = now
	if line := busyLine(now, last, s.site.Load().file.Policy.DryRun); line != "" {
		s.say("%s", line)
	}
}

// busyLine tells what was between two looks at a share; "" when nobody had to
// wait.
func busyLine(now, last share.Stats, dryRun bool) string {
	all, before := now.Standing, last.Standing
	side := func(now, last share.Side) (w, r int64) {
		return now.Waited - last.Waited, now.Refused - last.Refused + now.Expired - last.Expired
	}
	w1, r1 := side(all, before)
	w2, r2 := side(now.Newcomers, last.Newcomers)
	if w1+w2+r1+r2 == 0 {
		return ""
	}
	requests := all.Turns - before.Turns + now.Newcomers.Turns - last.Newcomers.Turns
	waited, refused := "would have waited", "would have been refused"
	if !dryRun { // in which all have their turn
		requests += r1 + r2
		waited, refused = fmt.Sprintf("waited (%v at most)", now.LongestWait.Round(time.Millisecond)), "were refused"
	}
	line := fmt.Sprintf("busy: of %d requests %d %s", requests, w1+w2, waited)
	if r1+r2 > 0 {
		line += fmt.Sprintf(", %d %s (%d of clients with standing, %d of newcomers)", r1+r2, refused, r1, r2)
	}
	return fmt.Sprintf("%s; %d of %d slots in use, %d wait", line, now.Inside, now.Capacity, now.Waiting)
}

// meet tells a new queue since when clients are known, as the registry has
// them.
func (s *server) meet(q *share.Queue) {
	if s.memory.store == nil {
		return
	}
	s.meeting.Go(func() {
		err := s.memory.store.FirstSeen(s.ending, func(id fairshare.ClientID, first time.Time) bool {
			if id.Prefix.IsValid() {
				q.Known(id.Prefix, first)
			}
			return true
		})
		if err != nil && s.ending.Err() == nil {
			s.note(fmt.Sprintf("warning: share: who is known could not be read: %v; clients of earlier days count as newcomers", err))
		}
	})
}

// FirstSeen tells since when each client is known.
func (s *lateStore) FirstSeen(ctx context.Context, tell func(fairshare.ClientID, time.Time) bool) error {
	if r := s.reading(); r != nil {
		return r.FirstSeen(ctx, tell)
	}
	return nil
}

// sharing tells how a site shares its upstream; "" when it does not.
func (st *site) sharing() string {
	f := st.file.Share
	if f == nil {
		return ""
	}
	at := counted(f.Capacity, "request", "requests") + " at once"
	if f.Capacity == 0 {
		at = fmt.Sprintf("as many requests at once as it answers well, %d to %d", f.Min, f.Max)
	}
	var by []string
	for _, part := range f.By {
		by = append(by, part.String())
	}
	waits := fmt.Sprintf("up to %d wait, %s at most", f.Queue, policyfile.FormatDuration(f.Wait))
	if f.Queue == 0 || f.Wait == 0 {
		waits = "nobody waits: without a turn it is 503"
	}
	return fmt.Sprintf("the upstream works on %s; shared by %s while it is busy, %s", at, strings.Join(by, ", then "), waits)
}
