package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairshare/registry"
)

// A pause of pauseFactor times its duration follows each transaction, so that
// writing takes at most one part in pauseFactor+1 of a core. Bans neither wait for
// the end of a pause nor extend it. New stories extend it, and wait only for the part
// of it that exceeds storyPause.
const (
	rowsAtOnce  = 250
	fewRows     = 16                    // at once on a slow disk
	longWrite   = 50 * time.Millisecond // after a longer one, fewer rows are written at once: bans wait for them
	bansAtOnce  = 1000
	banGap      = 2 * time.Millisecond // between two transactions of bans: larger ones are cheaper
	roundEvery  = 5 * time.Second
	idleRounds  = 60 // for which a written record stays in memory
	pauseFactor = 100
	floodFactor = 20   // the factor while more than manyStories wait: they may include a customer's
	manyStories = 1000 // that wait
	maxPause    = time.Minute
	storyPause  = time.Second // new stories are written in the last second of a pause
	storyTurns  = 3           // writes of new stories before other rows have their turn
	pruneAfter  = time.Minute // from the start
	pruneEvery  = time.Minute
	endTime     = 5 * time.Second // for the last writes
	endPause    = 200 * time.Millisecond
)

// A batch is a transaction with the entries of its rows.
type batch struct {
	registry.Batch
	clients     []*entry[client]
	stories     []*entry[story]
	notRecalled []int // indexes of stories that the registry may hold an earlier part of
}

// A writer is the only goroutine that writes.
type writer struct {
	*Registrar
	bans     *banQueue     // to write
	end      chan struct{} // closed when the time for the last writes is over
	pauseEnd time.Time
	retryAt  time.Time
	roundAt  time.Time // start of the next round
	pruneAt  time.Time
	storyAt  time.Time // when new stories are due; zero if there are none
	more     bool      // there may be rows that are due
	banAt    time.Time // when bans may be written again
	rows     int       // to write at once
	pruned   bool      // since the last rows were written
	turns    int       // writes of new stories since then, while rows waited

	droppedBefore int64 // at the first error
	quiet         bool  // that error was not logged

	clockAhead time.Duration // of the system's clock; see measureClocks
}

func newWriter(g *Registrar) *writer {
	now := time.Now()
	return &writer{Registrar: g, bans: g.bans, end: make(chan struct{}), roundAt: now.Add(roundEvery),
		pruneAt: now.Add(pruneAfter), rows: rowsAtOnce}
}

// run writes until ctx is done, and then writes the rest.
func (w *writer) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(endTime-2*callGrace, func() { close(w.end) }) })
	defer stop()
	for ctx.Err() == nil {
		if wait := w.step(time.Now()); wait > 0 {
			w.wait(ctx, wait)
		}
	}
	return w.finish()
}

// wait waits for a time, or until wake is called. While writes fail, wake has no
// effect.
func (w *writer) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	wakeups := w.wakeups
	if w.writing.failing.Load() {
		wakeups = nil
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wakeups:
	}
}

// step does the most urgent work, or returns how long to wait.
func (w *writer) step(now time.Time) time.Duration {
	if !now.Before(w.roundAt) {
		w.clients.startRound(idleRounds)
		w.stories.startRound(idleRounds)
		w.roundAt, w.more = now.Add(roundEvery), true
	}
	if w.storyAt.IsZero() && w.newStories.Load() {
		w.storyAt = now.Add(storyDelay)
	}
	if now.Before(w.retryAt) {
		return w.retryAt.Sub(now)
	}
	next := earlier(w.roundAt, later(w.pruneAt, w.pauseEnd))
	if w.bans.pending.Load() > 0 {
		if !now.Before(w.banAt) {
			w.writeBans()
			return 0
		}
		next = earlier(next, w.banAt)
	}
	if !w.storyAt.IsZero() {
		at := later(w.storyAt, w.pauseEnd.Add(-storyPause))
		switch {
		case w.more && w.turns >= storyTurns: // other rows have their turn
		case now.Before(at):
			next = earlier(next, at)
		default:
			w.turns++
			w.writeRows(urgent)
			return 0
		}
	}
	if now.Before(w.pauseEnd) {
		if w.more {
			next = earlier(next, w.pauseEnd)
		}
		return next.Sub(now)
	}
	prune := !now.Before(w.pruneAt)
	switch {
	case w.more && (!prune || w.pruned):
		w.more, w.pruned, w.turns = w.writeRows(due), false, 0
		return 0
	case prune:
		w.prune(now)
		w.pruned = true
		return 0
	}
	return next.Sub(now)
}

func earlier(t, u time.Time) time.Time {
	if u.Before(t) {
		return u
	}
	return t
}

func later(t, u time.Time) time.Time {
	if u.After(t) {
		return u
	}
	return t
}

// writeBans writes queued bans.
func (w *writer) writeBans() error {
	var b batch
	b.Bans = w.bans.take(bansAtOnce)
	var err error
	if len(b.Bans) > 0 {
		err = w.write(&b)
	}
	w.bans.done(err == nil)
	return err
}

// writeRows writes stories and clients of a list. It reports whether there may be
// more.
func (w *writer) writeRows(from entryState) (more bool) {
	b := w.gather(from)
	n := len(b.clients) + len(b.stories)
	if n == 0 {
		return false
	}
	full := n >= w.rows
	return w.writeBatch(b) != nil || full
}

// gather takes rows of a list for writing.
func (w *writer) gather(from entryState) *batch {
	b := &batch{}
	if from == urgent {
		w.newStories.Store(false)
		w.takeStories(b, urgent, w.rows)
		w.storyAt = time.Time{}
		if len(b.stories) == w.rows {
			w.newStories.Store(true)
		}
		return b
	}
	w.takeStories(b, from, w.rows/2)
	w.takeClients(b, from, w.rows-len(b.stories))
	w.takeStories(b, from, w.rows-len(b.stories)-len(b.clients))
	return b
}

// writeBatch writes stories and clients. After an error they wait for the next try.
func (w *writer) writeBatch(b *batch) error {
	err := w.write(b)
	if err != nil {
		w.more = true
		w.clients.failed(b.clients, func(i int, e *entry[client]) { e.record.spent.Add(b.Clients[i].Spent) })
		w.stories.failed(b.stories, func(int, *entry[story]) {})
		return err
	}
	w.clients.written(b.clients)
	w.stories.written(b.stories)
	return nil
}

// write runs one transaction, and sets the following pause and the state of the
// disk.
func (w *writer) write(b *batch) error {
	begin := time.Now()
	w.measureClocks()
	ahead := w.clockAhead
	known, err := call(w.end, w.hangs, func(ctx context.Context) ([]registry.Story, error) {
		known, err := w.recall(ctx, b)
		if err != nil {
			return nil, err
		}
		for i := range known {
			shiftStory(&known[i], -ahead)
		}
		rows := b.Batch
		rows.Stories = slices.Clone(rows.Stories)
		for i, at := range b.notRecalled {
			rows.Stories[at] = continueStory(known[i], rows.Stories[at])
		}
		return known, w.store.Write(ctx, onSystemClock(rows, w.now(), ahead))
	})
	w.addRecalled(b, known)
	took := time.Since(begin)
	if len(b.Bans) > 0 {
		w.banAt = time.Now().Add(banGap)
	} else {
		w.pauseAfter(took)
	}
	switch {
	case err != nil:
		w.bans.slow.Store(true)
		w.reportFailure(err)
		return err
	case len(b.Bans) > 0 || took <= maxWait:
		w.bans.slow.Store(took > maxWait)
	}
	w.written.clients.Add(int64(len(b.Clients)))
	w.written.stories.Add(int64(len(b.Stories)))
	w.written.bans.Add(int64(len(b.Bans)))
	w.reportSuccess()
	return nil
}

// pauseAfter extends the pause after a transaction of rows of this duration.
func (w *writer) pauseAfter(took time.Duration) {
	now := time.Now()
	factor := time.Duration(pauseFactor)
	if _, waiting, _ := w.stories.count(); waiting > manyStories {
		factor = floodFactor
	}
	w.pauseEnd = earlier(later(w.pauseEnd, now).Add(factor*took), now.Add(maxPause))
	switch {
	case took > longWrite:
		w.rows = max(w.rows/2, fewRows)
	case took < longWrite/4:
		w.rows = min(w.rows*2, rowsAtOnce)
	}
}

// reportFailure logs the first of consecutive errors, and sets the time of the next
// try.
func (w *writer) reportFailure(err error) {
	dropped := w.dropped()
	if !w.writing.failing.Load() {
		w.droppedBefore = dropped
	}
	pause, news := w.writing.failed(err)
	w.retryAt = time.Now().Add(pause)
	if news {
		w.quiet = errors.Is(err, registry.ErrAway)
	}
	switch {
	case !news, w.quiet: // the store of a database that is away logs that itself
	case errors.Is(err, registry.ErrDamaged):
		w.log(fmt.Sprintf(
			"THE REGISTRY IS DAMAGED: %s; nothing is written to it any more, and bans will be lost at a restart; the server continues",
			withHint(err)))
	default:
		w.log(fmt.Sprintf(
			"the registry cannot be written: %s; unwritten data stays in memory, and writing is retried",
			withHint(err)))
	}
}

// hangs handles a write that does not return in time.
func (w *writer) hangs() {
	w.bans.slow.Store(true)
	w.reportFailure(errHangs)
}

// reportSuccess logs the first success after an error.
func (w *writer) reportSuccess() {
	if !w.writing.succeeded() {
		return
	}
	if w.quiet && w.dropped() == w.droppedBefore {
		return
	}
	s := w.Stats()
	w.log(fmt.Sprintf(
		"the registry can be written again: %d clients, %d stories and %d bans are still to be written, %d requests, stories and bans were lost",
		s.DirtyClients, s.DirtyStories, s.QueuedBans, w.dropped()-w.droppedBefore))
}

// dropped returns the number of dropped requests, refusals and bans.
func (w *writer) dropped() int64 {
	s := w.Stats()
	return s.DroppedRequests + s.DroppedRefusals + s.DroppedBans
}

// prune removes some rows from the registry, to keep it within its bounds.
func (w *writer) prune(now time.Time) {
	begin := time.Now()
	more, err := call(w.end, w.hangs, func(ctx context.Context) (bool, error) {
		return w.store.Prune(ctx, w.wall(w.now()), w.rows)
	})
	w.pauseAfter(time.Since(begin))
	switch {
	case err != nil:
		w.bans.slow.Store(true)
		w.reportFailure(err)
	case more:
		w.reportSuccess()
		return
	default:
		w.reportSuccess()
	}
	w.pruneAt = now.Add(pruneEvery)
}

// finish writes the remaining data, except to a damaged registry.
func (w *writer) finish() error {
	defer w.bans.slow.Store(true) // requests no longer wait: nothing is written after this
	fault := errors.New("there was not enough time")
	for {
		w.clients.startRound(idleRounds)
		w.stories.startRound(idleRounds)
		err := error(registry.ErrDamaged)
		if !w.writing.damaged {
			err = w.writeAll()
		}
		if err != nil {
			fault = err
		}
		s := w.Stats()
		s.QueuedBans = int(w.bans.pending.Load())
		if s.QueuedBans+s.DirtyClients+s.DirtyStories == 0 {
			return nil
		}
		if !w.expired() && !errors.Is(err, registry.ErrDamaged) {
			if err != nil {
				select {
				case <-w.end:
				case <-time.After(endPause):
				}
			}
			continue
		}
		return fmt.Errorf("%d bans, %d stories and the counts of %d clients were not written: %w", s.QueuedBans,
			s.DirtyStories, s.DirtyClients, fault)
	}
}

// writeAll writes until nothing remains, the first error, or the end.
func (w *writer) writeAll() error {
	for !w.expired() && w.bans.pending.Load() > 0 {
		if err := w.writeBans(); err != nil {
			return err
		}
	}
	for _, from := range []entryState{urgent, due} {
		for !w.expired() {
			w.rows = rowsAtOnce // no ban waits for a short transaction now
			b := w.gather(from)
			if len(b.clients)+len(b.stories) == 0 {
				break
			}
			if err := w.writeBatch(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// expired reports whether the time for the last writes is over.
func (w *writer) expired() bool {
	select {
	case <-w.end:
		return true
	default:
		return false
	}
}
