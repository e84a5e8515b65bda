// Package banexport hands bans to what keeps clients out before they reach a server: a set
// of nftables, a file of nginx or HAProxy, or a program. Start with [New].
//
// An [Exporter] compares what should be exported with what is, at most once a second, and
// tells its sinks the whole of it. A [Sink] finds out itself what has changed.
package banexport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/prose"
)

// A Ban is a ban of addresses.
type Ban struct {
	Prefix netip.Prefix // masked; IPv4 as IPv4
	Until  time.Time    // by the system's clock; zero: it never ends
	Rule   string       // "" for an operator's
}

// A Sink is a place that keeps banned clients out. Its methods are called one at a time.
type Sink interface {
	// Name is for people.
	Name() string
	// Apply makes the sink hold these bans and no others. They are sorted by prefix, and
	// each prefix is there once. If check is set, the sink compares them with what it
	// really holds, because another program may have changed that. After an error, check
	// is set in the next call.
	Apply(ctx context.Context, bans []Ban, check bool) error
	// Clear removes all that the sink holds, when the exporter stops.
	Clear(ctx context.Context) error
	// Every is the least time between two calls of Apply; 0 means a second.
	Every() time.Duration
}

const (
	least        = time.Second
	recompute    = 10 * time.Second // bans are read again, even if nothing has reported a change
	checkEvery   = 30 * time.Second
	applyTimeout = 20 * time.Second
	clearTimeout = 10 * time.Second
	maxRetry     = time.Minute
	reportAgain  = 10 * time.Minute // an error that stays
)

// Options configure an Exporter. All are required except Max.
type Options struct {
	Sinks []Sink
	Max   int // bans at once; 0 means no bound
	// Bans returns all bans in force that may be exported, in any order, with duplicates.
	// It is called by one goroutine.
	Bans func() []Ban
	Now  func() time.Time // the system's clock
	Log  func(line string)
}

// An Exporter hands bans to sinks until it is closed. Changed is safe for concurrent use.
type Exporter struct {
	options Options
	wake    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
	dirty   atomic.Bool
	stays   atomic.Bool
	states  []*sinkState
	over    int // bans beyond Max, as reported last
	overAt  time.Time
}

// A sinkState is what is known of a sink.
type sinkState struct {
	Sink
	busy     atomic.Bool // a goroutine uses what follows
	last     []Ban       // that it holds, as far as is known
	tried    []Ban       // of the last call
	applied  bool
	at       time.Time // of the last call
	checked  time.Time
	retry    time.Duration // after an error
	failing  string        // the error that was reported last; "" for none
	failedAt time.Time     // when it was reported
}

// New returns an Exporter that runs until Close.
func New(o Options) *Exporter {
	ctx, stop := context.WithCancel(context.Background())
	e := &Exporter{options: o, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	for _, s := range o.Sinks {
		e.states = append(e.states, &sinkState{Sink: s})
	}
	e.dirty.Store(true)
	go func() {
		defer close(e.done)
		e.run(ctx)
	}()
	return e
}

// Changed says that a ban has begun or ended. It never waits.
func (e *Exporter) Changed() {
	if e == nil || e.dirty.Load() {
		return
	}
	e.dirty.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Close stops the exporter. Unless stay is set, its sinks are cleared first. A second call
// does nothing.
func (e *Exporter) Close(stay bool) {
	if e == nil {
		return
	}
	e.stays.Store(stay)
	e.stop()
	<-e.done
}

// run applies changes until ctx ends.
func (e *Exporter) run(ctx context.Context) {
	var bans []Ban
	var readAt time.Time
	var all sync.WaitGroup
	for {
		now := time.Now()
		if e.dirty.Swap(false) || now.Sub(readAt) >= recompute || ended(bans, e.options.Now()) {
			bans, readAt = e.read(), now
		}
		for _, s := range e.states { // each on its own: one that is slow does not delay the others
			if s.busy.CompareAndSwap(false, true) {
				bans := bans
				all.Go(func() {
					defer s.busy.Store(false)
					e.apply(ctx, s, bans)
				})
			}
		}
		select {
		case <-ctx.Done():
			all.Wait()
			if !e.stays.Load() {
				for _, s := range e.states {
					all.Go(func() { e.clear(s) })
				}
				all.Wait()
			}
			return
		case <-time.After(least):
		}
	}
}

// errMore is returned by a sink that has not taken all bans in time: the next call goes on.
var errMore = errors.New("more bans are to be handed over")

// ended reports whether a ban has ended.
func ended(bans []Ban, now time.Time) bool {
	return slices.ContainsFunc(bans, func(b Ban) bool { return !b.Until.IsZero() && !b.Until.After(now) })
}

// read returns the bans to export: sorted, without those that have ended or that a wider
// one covers for their whole time, at most Options.Max. The ones that end last stay.
func (e *Exporter) read() []Ban {
	now := e.options.Now()
	all := slices.DeleteFunc(e.options.Bans(), func(b Ban) bool {
		return !b.Prefix.IsValid() || !b.Until.IsZero() && !b.Until.After(now)
	})
	for i := range all { // whole seconds, as sinks have them
		if until := &all[i].Until; !until.IsZero() {
			*until = until.Add(time.Second - 1).Truncate(time.Second)
		}
	}
	all = reduced(all)
	most := e.options.Max
	if over := len(all) - most; most > 0 && over > 0 {
		if over > e.over*2 || now.Sub(e.overAt) > reportAgain {
			e.over, e.overAt = over, now
			e.options.Log(fmt.Sprintf("warning: bans: %s not exported: max: %d is reached; those that end first are left out",
				prose.Counted(int64(over), "ban is", "bans are"), most))
		}
		slices.SortFunc(all, func(a, b Ban) int { return -compareEnds(a.Until, b.Until) })
		all = all[:most]
		slices.SortFunc(all, comparePrefixes)
	}
	return all
}

// reduced sorts bans and removes those that another one covers.
func reduced(all []Ban) []Ban {
	slices.SortFunc(all, func(a, b Ban) int {
		if c := comparePrefixes(a, b); c != 0 {
			return c
		}
		return -compareEnds(a.Until, b.Until) // the one that ends last first
	})
	kept := all[:0]
	var wider []Ban // that contain the next one; each contains the following
	for _, b := range all {
		for len(wider) > 0 && !wider[len(wider)-1].Prefix.Overlaps(b.Prefix) {
			wider = wider[:len(wider)-1]
		}
		if slices.ContainsFunc(wider, func(w Ban) bool { return compareEnds(w.Until, b.Until) >= 0 }) {
			continue
		}
		if n := len(kept); n > 0 && kept[n-1].Prefix == b.Prefix {
			continue
		}
		wider = append(wider, b)
		kept = append(kept, b)
	}
	return append([]Ban{}, kept...) // not nil
}

// comparePrefixes orders by address, the wider prefix first.
func comparePrefixes(a, b Ban) int {
	if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
		return c
	}
	return a.Prefix.Bits() - b.Prefix.Bits()
}

// compareEnds orders by the end; zero is the latest.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// apply gives bans to a sink if they have changed, or if it is time to compare.
func (e *Exporter) apply(ctx context.Context, s *sinkState, bans []Ban) {
	now := time.Now()
	check := s.failing != "" || !s.applied || now.Sub(s.checked) >= checkEvery
	unchanged := s.last != nil && slices.Equal(s.last, bans)
	wait := s.Every()
	if slices.Equal(s.tried, bans) { // the error may be about one ban: others do not wait for it
		wait = max(wait, s.retry)
	}
	if unchanged && !check || now.Sub(s.at) < wait || ctx.Err() != nil {
		return
	}
	s.at, s.tried = now, bans
	limited, cancel := context.WithTimeout(ctx, applyTimeout)
	err := s.Apply(limited, bans, check)
	cancel()
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errMore) {
		s.last, s.applied, s.retry = nil, true, 0
		return
	}
	if err != nil {
		s.retry = min(max(2*s.retry, least), maxRetry)
		if text := err.Error(); text != s.failing || now.Sub(s.failedAt) > reportAgain {
			s.failing, s.failedAt = text, now
			e.options.Log(fmt.Sprintf("error: bans are not handed to %s: %s; judging goes on, and it is tried again", s.Name(),
				text))
		}
		return
	}
	if s.failing != "" {
		e.options.Log(fmt.Sprintf("bans are handed to %s again: %s", s.Name(), prose.Plural(int64(len(bans)), "ban")))
	}
	if s.last, s.applied, s.failing, s.retry = bans, true, "", 0; check {
		s.checked = now
	}
}

// clear empties a sink.
func (e *Exporter) clear(s *sinkState) {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	if err := s.Clear(ctx); err != nil && s.failing == "" {
		e.options.Log(fmt.Sprintf("error: bans stay with %s: %v", s.Name(), err))
	}
}

// difference returns the bans of next that were not in last, or with another end, and those
// of last that are not in next. Both are sorted.
func difference(last, next []Ban) (added, removed []Ban) {
	for len(last) > 0 || len(next) > 0 {
		c := 0
		switch {
		case len(last) == 0:
			c = 1
		case len(next) == 0:
			c = -1
		default:
			c = comparePrefixes(last[0], next[0])
		}
		switch {
		case c < 0:
			removed, last = append(removed, last[0]), last[1:]
		case c > 0:
			added, next = append(added, next[0]), next[1:]
		default:
			if !last[0].Until.Equal(next[0].Until) {
				added = append(added, next[0])
			}
			last, next = last[1:], next[1:]
		}
	}
	return added, removed
}
