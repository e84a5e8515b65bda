package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

// Bounds of what is written. Each transaction is followed by a pause of
// restShare times its length, so that writing takes at most one part in
// restShare+1 of a core. Bans do not wait for its end and do not prolong it.
// New stories prolong it, and do not wait for its end unless too many came.
const (
	rowsAtOnce = 250
	fewRows    = 16                    // of a slow disk
	longWrite  = 50 * time.Millisecond // after which fewer rows are written at once: bans wait for them
	bansAtOnce = 1000
	banGap     = 2 * time.Millisecond // between two transactions of bans: many are cheaper together
	cutEvery   = 5 * time.Second
	keptCuts   = 60 // for which a client that was written is remembered
	restShare  = 100
	floodShare = 20 // while more than a crowd of stories wait: a customer's may be among them
	crowd      = 1000
	maxRest    = time.Minute
	storyRest  = time.Second // the pause that new stories still break
	storyTurns = 3           // of them, before other rows that wait for its end
	pruneAfter = time.Minute // from the start
	pruneEvery = time.Minute
	endTime    = 5 * time.Second // for the last writes
	endPause   = 200 * time.Millisecond
)

// A batch is a transaction, and where its rows came from.
type batch struct {
	sqlregistry.Batch
	clients []*entry[client]
	stories []*entry[story]
	unknown []int // places of stories of which the registry may know more
}

// A writer is the one goroutine that writes.
type writer struct {
	*Registrar
	end     chan struct{} // closed when the time for the last writes is over
	restEnd time.Time     // of the pause
	retryAt time.Time
	cutAt   time.Time
	pruneAt time.Time
	storyAt time.Time // when new stories are due; zero when there are none
	more    bool      // there may be rows that are due
	banAt   time.Time // when bans may be written again
	rows    int       // to be written at once
	pruned  bool      // that was done after the last rows
	turns   int       // of new stories since then, while rows waited

	lostBefore int64 // when it began to fail

	ahead time.Duration // of the system's clock; see measureClocks
}

func newWriter(g *Registrar) *writer {
	now := time.Now()
	return &writer{Registrar: g, end: make(chan struct{}), cutAt: now.Add(cutEvery), pruneAt: now.Add(pruneAfter),
		rows: rowsAtOnce}
}

// run writes until ctx is done, and then what is left.
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

// wait waits; while it does not fail, less if it is woken.
func (w *writer) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	awake := w.awake
	if w.writing.failing.Load() {
		awake = nil
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-awake:
	}
}

// step does what is to be done first, or returns how long to wait.
func (w *writer) step(now time.Time) time.Duration {
	if !now.Before(w.cutAt) {
		w.clients.cut(keptCuts)
		w.stories.cut(keptCuts)
		w.cutAt, w.more = now.Add(cutEvery), true
	}
	if w.storyAt.IsZero() && w.storyWaits.Load() {
		w.storyAt = now.Add(storyDelay)
	}
	if now.Before(w.retryAt) {
		return w.retryAt.Sub(now)
	}
	next := earlier(w.cutAt, later(w.pruneAt, w.restEnd))
	if w.bans.pending.Load() > 0 {
		if !now.Before(w.banAt) {
			w.writeBans()
			return 0
		}
		next = earlier(next, w.banAt)
	}
	if !w.storyAt.IsZero() {
		at, theirs := later(w.storyAt, w.restEnd.Add(-storyRest)), w.more && w.turns >= storyTurns
		switch {
		case theirs: // the other rows' turn
		case now.Before(at):
			next = earlier(next, at)
		default:
			w.turns++
			w.writeRows(urgent)
			return 0
		}
	}
	if now.Before(w.restEnd) {
		if w.more {
			next = earlier(next, w.restEnd)
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

// writeBans writes what is queued of bans.
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

// writeRows writes stories and clients of a list, and returns whether there
// may be more.
func (w *writer) writeRows(from where) (more bool) {
	b := w.gather(from)
	n := len(b.clients) + len(b.stories)
	if n == 0 {
		return false
	}
	full := n >= w.rows
	return w.writeBatch(b) != nil || full
}

// gather takes rows to be written.
func (w *writer) gather(from where) *batch {
	b := &batch{}
	if from == urgent {
		w.storyWaits.Store(false)
		w.takeStories(b, urgent, w.rows)
		w.storyAt = time.Time{}
		if len(b.stories) == w.rows {
			w.storyWaits.Store(true)
		}
		return b
	}
	w.takeStories(b, from, w.rows/2)
	w.takeClients(b, from, w.rows-len(b.stories))
	w.takeStories(b, from, w.rows-len(b.stories)-len(b.clients))
	return b
}

// writeBatch writes stories and clients; when that fails they wait for the
// next try.
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

// write makes one transaction, and learns from how it went.
func (w *writer) write(b *batch) error {
	begin := time.Now()
	w.measureClocks()
	ahead := w.ahead
	known, err := call(w.end, w.hangs, func(ctx context.Context) ([]fairshare.Story, error) {
		known, err := w.recall(ctx, b)
		if err != nil {
			return nil, err
		}
		for i := range known {
			shiftStory(&known[i], -ahead)
		}
		rows := b.Batch
		rows.Stories = slices.Clone(rows.Stories)
		for i, at := range b.unknown {
			rows.Stories[at] = following(known[i], rows.Stories[at])
		}
		return known, w.store.Write(ctx, onSystemClock(rows, w.now(), ahead))
	})
	w.goOn(b, known)
	took := time.Since(begin)
	if len(b.Bans) > 0 {
		w.banAt = time.Now().Add(banGap)
	} else {
		w.rest(took)
	}
	switch {
	case err != nil:
		w.bans.slow.Store(true)
		w.fails(err)
		return err
	case len(b.Bans) > 0 || took <= maxWait:
		w.bans.slow.Store(took > maxWait)
	}
	w.written.clients.Add(int64(len(b.Clients)))
	w.written.stories.Add(int64(len(b.Stories)))
	w.written.bans.Add(int64(len(b.Bans)))
	w.worked()
	return nil
}

// rest adds a pause for a transaction of rows that took so long.
func (w *writer) rest(took time.Duration) {
	now := time.Now()
	share := time.Duration(restShare)
	if _, waiting, _ := w.stories.count(); waiting > crowd {
		share = floodShare
	}
	w.restEnd = earlier(later(w.restEnd, now).Add(share*took), now.Add(maxRest))
	switch {
	case took > longWrite:
		w.rows = max(w.rows/2, fewRows)
	case took < longWrite/4:
		w.rows = min(w.rows*2, rowsAtOnce)
	}
}

// fails says that the registry is not written, if that is news.
func (w *writer) fails(err error) {
	lost := w.lost()
	if !w.writing.failing.Load() {
		w.lostBefore = lost
	}
	pause, news := w.writing.failed(err)
	w.retryAt = time.Now().Add(pause)
	switch {
	case !news:
	case errors.Is(err, sqlregistry.ErrDamaged):
		w.log(fmt.Sprintf(
			"THE REGISTRY IS DAMAGED: %s; nothing more is written to it, and bans will not outlive a restart; the server goes on", withHint(err)))
	default:
		w.log(fmt.Sprintf(
			"the registry is not written: %s; what is to be written is kept in memory, and it is tried again",
			withHint(err)))
	}
}

// hangs says that a write does not come back.
func (w *writer) hangs() {
	w.bans.slow.Store(true)
	w.fails(errHangs)
}

// worked says that the registry is written again, if that is news.
func (w *writer) worked() {
	if !w.writing.worked() {
		return
	}
	s := w.Stats()
	w.log(fmt.Sprintf(
		"the registry is written again: %d clients, %d stories and %d bans were kept, %d requests, stories and bans were lost",
		s.DirtyClients, s.DirtyStories, s.QueuedBans, w.lost()-w.lostBefore))
}

// lost returns how much found no place so far.
func (w *writer) lost() int64 {
	s := w.Stats()
	return s.LeftOut + s.LeftOutStories + s.LostBans
}

// prune has the registry kept in its bounds, a portion at a time.
func (w *writer) prune(now time.Time) {
	begin := time.Now()
	more, err := call(w.end, w.hangs, func(ctx context.Context) (bool,
		error) {
		return w.store.Prune(ctx, w.wall(w.now()), w.rows)
	})
	w.rest(time.Since(begin))
	switch {
	case err != nil:
		w.bans.slow.Store(true)
		w.fails(err)
	case more:
		w.worked()
		return
	default:
		w.worked()
	}
	w.pruneAt = now.Add(pruneEvery)
}

// finish writes all that is left. A damaged registry is left alone.
func (w *writer) finish() error {
	defer w.bans.slow.Store(true) // nobody writes any more
	fault := errors.New("there was not enough time")
	for {
		w.clients.cut(keptCuts)
		w.stories.cut(keptCuts)
		err := error(sqlregistry.ErrDamaged)
		if !w.writing.damaged {
			err = w.writeAll()
		}
		if err != nil {
			fault = err
		}
		s := w.Stats()
		if s.QueuedBans+s.DirtyClients+s.DirtyStories == 0 {
			return nil
		}
		if !w.over() && !errors.Is(err, sqlregistry.ErrDamaged) {
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

// writeAll writes until nothing is left, the first error or the end.
func (w *writer) writeAll() error {
	for !w.over() && w.bans.pending.Load() > 0 {
		if err := w.writeBans(); err != nil {
			return err
		}
	}
	for _, from := range []where{urgent, due} {
		for !w.over() {
			w.rows = rowsAtOnce // nobody waits for a short one now
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

// over reports whether the time for the last writes is.
func (w *writer) over() bool {
	select {
	case <-w.end:
		return true
	default:
		return false
	}
}
