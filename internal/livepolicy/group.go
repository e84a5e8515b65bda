package livepolicy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/pgregistry"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// records are what a State needs of a registry: a store in a file, or a group.
type records interface {
	registry.Store
	Story(ctx context.Context, id string) ([]registry.Story, error)
	FirstSeen(ctx context.Context, seen func(fairshare.ClientID, time.Time) bool) error
	Lifted(ctx context.Context, since time.Time) ([]registry.LiftedClient, error)
	AttackMode(context.Context) (registry.AttackMode, error)
	ReferenceKey(context.Context) ([]byte, error)
	Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error]
	SetSettings(context.Context, registry.Settings) error
	SetFleets(context.Context, []registry.FleetRecord) error
	SetHolder(context.Context, registry.Holder) error

	own() *store              // in this server's folder
	banStore() registry.Store // where bans are written; nil: with the rest
	reader() registry.Reader  // to read all records; nil if there is nothing to read
	run(ctx context.Context)  // until ctx ends
	Close()
}

const (
	banTime     = 400 * time.Millisecond // for the shared registry to store bans, before requests stop waiting
	connectTime = 10 * time.Second       // at the start
	syncEvery   = time.Second
	firstSync   = 2 * time.Second // at the start, before requests are judged; also for other calls then
	seenEvery   = 30 * time.Second
	callTime    = 30 * time.Second // of a transaction of the database
	seenAgain   = 1 << 16          // clients before the end of the first reading that the second one reads again
	atOnce      = 500              // entries of the outbox
)

// A group is a registry that several servers share, in a database that may be away. Bans
// and operators' decisions are also in the server's own registry: it is read while the
// database is away, and its outbox has what the database does not have yet. Clients and
// stories are in the database alone; while it is away they wait in memory.
type group struct {
	*store // the server's own registry

	remote   sqlregistry.Remote
	options  pgregistry.Options
	log      func(string)
	restored func([]fairshare.BanRecord)                      // puts bans of other servers in force
	seen     func(client fairshare.ClientID, first time.Time) // is called for each client of the database
	names    *confirmedNames                                  // that this server has asked the DNS for
	learn    func(pgregistry.ConfirmedName)                   // takes those of other servers
	wall     func() time.Time                                 // the clock of this machine
	posted   chan struct{}                                    // the outbox has something

	clockAhead atomic.Pointer[time.Duration] // of this machine, of the database's clock; nil: unknown

	syncing sync.Mutex // held by sync

	mu        sync.Mutex
	shared    *pgregistry.Registry // nil: it was never reached
	awaySince time.Time            // zero: it answers
	slowUntil time.Time            // until then bans go to the outbox at once: a request waits for each
	sentAway  int                  // decisions and bans that were handed over since then

	// seen was called for the clients before seenTo. A transaction may add a client before readTo, the end of the
	// latest reading, after that reading. So each reading begins where the one before the latest ended.
	seenTo, readTo int64

	namesTo    int64 // names were read up to this time of the database; used by followSeen
	clockWrong bool  // and that was logged; used by run
}

// openGroup opens the shared registry, and reads what other servers and operators have decided. If it is away, or
// reading takes longer than firstSync, that is logged and is not an error. wall is the clock of this machine.
func openGroup(ctx context.Context, local *store, remote sqlregistry.Remote, wall func() time.Time, log func(string)) (
	*group, error) {
	g := &group{store: local, remote: remote, options: setup.RemoteOptions(remote), log: log, wall: wall,
		posted: make(chan struct{}, 1), restored: func([]fairshare.BanRecord) {}}
	g.options.Now = wall
	g.options.Bounds = registry.Bounds{Clients: local.opts.Clients, Stories: local.opts.Stories, Age: local.opts.Age}
	g.options.Listen, g.options.Log = true, log
	connecting, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	shared, err := pgregistry.Open(connecting, remote.URL, g.options)
	switch {
	case err == nil:
		g.shared = shared
	case ctx.Err() == nil && setup.IsAway(err):
		g.awaySince = time.Now()
		log(fmt.Sprintf("warning: %v: starting with the bans and decisions that this server knows; "+
			"new ones are handed over when it is back", err))
	default:
		return nil, err
	}
	if own, err := local.writing(ctx); err == nil { // else openStore has said why
		was, err := own.Remote(ctx)
		if err == nil && was.URL == remote.URL && was.Schema == remote.Schema {
			g.remote.Version, g.remote.ClockAhead = was.Version, was.ClockAhead
		} else if err == nil {
			err = g.handIn(ctx, own)
		}
		if err == nil {
			err = own.SetRemote(ctx, g.remote)
		}
		if err != nil {
			log(fmt.Sprintf("warning: operators' commands on this machine do not know the shared registry: %v", err))
		}
	}
	if g.shared != nil {
		first, cancel := context.WithTimeout(ctx, firstSync)
		defer cancel()
		if err := g.sync(first); err != nil && ctx.Err() == nil {
			log(fmt.Sprintf("warning: decisions of operators and bans of other servers could not all be read within %v: %v; "+
				"requests are judged by what is known, and the rest follows", firstSync, err))
		}
	}
	return g, nil
}

// handIn puts the decisions and bans of a server that joins into the outbox. Without it they would be lost: what the
// shared registry has replaces them.
func (g *group) handIn(ctx context.Context, own *sqlregistry.Registry) error {
	now := g.wall()
	overrides, labels, err := own.Overrides(ctx)
	if err != nil {
		return err
	}
	var all []registry.Decision
	for i := range overrides {
		if o := &overrides[i]; o.Until.IsZero() || o.Until.After(now) {
			all = append(all, registry.Decision{At: o.Since, Client: o.Client, Override: o})
		}
	}
	for i := range labels {
		all = append(all, registry.Decision{At: now, Client: labels[i].Client, Label: &labels[i].Name})
	}
	mode, err := own.AttackMode(ctx)
	if err != nil {
		return err
	}
	if mode.IsOn(now) {
		all = append(all, registry.Decision{At: mode.Since, Attack: &mode})
	}
	for b, err := range own.Bans(ctx, now, false) {
		if err != nil {
			return err
		}
		all = append(all, registry.Decision{At: b.Began, Client: b.Client, Ban: &b})
	}
	if len(all) == 0 {
		return nil
	}
	for part := range slices.Chunk(all, atOnce) {
		if _, err := own.Post(ctx, true, part...); err != nil {
			return err
		}
	}
	g.log(fmt.Sprintf("this server joins a shared registry: it hands over %s that it had",
		prose.Counted(len(all), "decision or ban", "decisions and bans")))
	return nil
}

// connection returns the shared registry, nil while it is away.
func (g *group) connection() *pgregistry.Registry {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.awaySince.IsZero() {
		return nil
	}
	return g.shared
}

// quickConnection is connection for a call that a request waits for: it also returns nil after the database was slow.
func (g *group) quickConnection() *pgregistry.Registry {
	g.mu.Lock()
	slow := time.Now().Before(g.slowUntil)
	g.mu.Unlock()
	if slow {
		return nil
	}
	return g.connection()
}

// errAway is the error of a call while the shared registry is known to be away.
func (g *group) errAway() error {
	return &awayError{time.Since(g.since())}
}

func (g *group) since() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.awaySince
}

type awayError struct{ since time.Duration }

func (e *awayError) Error() string {
	return fmt.Sprintf("the shared registry has not answered for %s", prose.ShortDuration(e.since))
}

func (e *awayError) Unwrap() error { return registry.ErrAway }

// note notices whether the shared registry answers, and returns err. The error of one that is away is a
// registry.ErrAway: it is logged once, here.
func (g *group) note(err error) error {
	if err == nil || !setup.IsAway(err) || errors.Is(err, context.Canceled) {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.awaySince.IsZero() {
		g.awaySince, g.sentAway = time.Now(), 0
		g.log(fmt.Sprintf("warning: %v: bans and decisions are stored here and handed over later; clients and refusals "+
			"wait in memory", err))
	}
	if !errors.Is(err, registry.ErrAway) {
		err = fmt.Errorf("%w: %w", registry.ErrAway, err)
	}
	return err
}

// returned notices that the shared registry answers and has all of the outbox.
func (g *group) returned() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.awaySince.IsZero() {
		g.log(fmt.Sprintf("the shared registry is back after %s; %s handed over",
			prose.ShortDuration(time.Since(g.awaySince)), prose.Counted(int64(g.sentAway), "ban or decision was",
				"bans and decisions were")))
		g.awaySince = time.Time{}
	}
}

// use calls do with the shared registry.
func (g *group) use(do func(*pgregistry.Registry) error) error {
	r := g.connection()
	if r == nil {
		return g.errAway()
	}
	return g.note(do(r))
}

// Write writes clients and stories.
func (g *group) Write(ctx context.Context, b registry.Batch) error {
	return g.use(func(r *pgregistry.Registry) error { return r.Write(ctx, b) })
}

func (g *group) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	if _, err := g.store.Prune(ctx, now, rows); err != nil {
		return false, err
	}
	err = g.use(func(r *pgregistry.Registry) (err error) {
		more, err = r.Prune(ctx, now, rows)
		return err
	})
	return more, err
}

func (g *group) Story(ctx context.Context, id string) (found []registry.Story, err error) {
	err = g.use(func(r *pgregistry.Registry) (err error) {
		found, err = r.Story(ctx, id)
		return err
	})
	return found, err
}

func (g *group) FirstSeen(ctx context.Context, seen func(fairshare.ClientID, time.Time) bool) error {
	return g.use(func(r *pgregistry.Registry) error { return r.FirstSeen(ctx, seen) })
}

// Bans reads those of the server's own registry, so that a start does not wait for the database. sync copies the bans
// of other servers into it, and puts those in force that come later. A registry that cannot be written lacks them.
func (g *group) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error] {
	if r := g.connection(); r != nil {
		if _, err := g.writing(ctx); err != nil {
			return r.Bans(ctx, now, all)
		}
	}
	return g.store.Bans(ctx, now, all)
}

// ReferenceKey returns the key of all servers, so that each finds the references of the
// others. The server's own registry keeps it for a start without the database, or with one that does not answer.
func (g *group) ReferenceKey(ctx context.Context) ([]byte, error) {
	r := g.connection()
	if r == nil {
		return g.store.ReferenceKey(ctx)
	}
	short, cancel := context.WithTimeout(ctx, firstSync)
	defer cancel()
	secret, err := r.ReferenceKey(short)
	if err = g.note(err); errors.Is(err, registry.ErrAway) {
		return g.store.ReferenceKey(ctx)
	}
	if err != nil {
		return nil, err
	}
	if own, err := g.writing(ctx); err == nil {
		if err := own.SetReferenceKey(ctx, secret); err != nil {
			g.log(fmt.Sprintf("warning: the key of references: %v", err))
		}
	}
	return secret, nil
}

func (g *group) SetSettings(ctx context.Context, s registry.Settings) error {
	err := g.store.SetSettings(ctx, s)
	return errors.Join(err, g.use(func(r *pgregistry.Registry) error { return r.SetSettings(ctx, s) }))
}

func (g *group) SetFleets(ctx context.Context, all []registry.FleetRecord) error {
	if r := g.connection(); r != nil {
		return g.note(r.SetFleets(ctx, all))
	}
	return g.store.SetFleets(ctx, all)
}

func (g *group) SetHolder(ctx context.Context, h registry.Holder) error {
	return g.use(func(r *pgregistry.Registry) error { return r.SetHolder(ctx, h) })
}

func (g *group) reader() registry.Reader {
	if r := g.connection(); r != nil {
		return r
	}
	return g.store.reader()
}

func (g *group) Close() {
	g.mu.Lock()
	shared := g.shared
	g.mu.Unlock()
	if shared != nil {
		shared.Close()
	}
	g.store.Close()
}

func (g *group) banStore() registry.Store { return groupBans{g} }

// groupBans writes bans to the server's own registry, so that a kill loses none, and then
// to the shared one.
type groupBans struct{ *group }

func (g groupBans) Write(ctx context.Context, b registry.Batch) error {
	var posted []sqlregistry.Pending
	own, err := g.writing(ctx)
	if err == nil {
		decisions := make([]registry.Decision, len(b.Bans))
		for i := range b.Bans {
			decisions[i] = registry.Decision{At: b.At, Client: b.Bans[i].Client, Ban: &b.Bans[i]}
		}
		// The outbox first: a kill between the two must not hide the ban from the others.
		if posted, err = own.Post(ctx, false, decisions...); err == nil {
			err = own.Write(ctx, b)
		}
		err = g.follow(ctx, own, err)
	}
	r := g.quickConnection()
	if r == nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, banTime)
	defer cancel()
	failed := r.Write(short, b)
	if failed != nil && short.Err() != nil && ctx.Err() == nil {
		g.mu.Lock()
		g.slowUntil = time.Now().Add(syncEvery)
		g.mu.Unlock()
	} else {
		failed = g.note(failed)
	}
	switch {
	case failed == nil && posted != nil:
		if err := own.Sent(ctx, posted); err != nil { // they are sent again, which does no harm
			g.log(fmt.Sprintf("warning: %v", err))
		}
		return nil
	case failed == nil:
		return nil
	case err == nil:
		g.wake()
		return nil // in the outbox
	}
	return errors.Join(err, failed)
}

// Prune does nothing: the group prunes.
func (g groupBans) Prune(context.Context, time.Time, int) (bool, error) { return false, nil }

func (g *group) wake() {
	select {
	case g.posted <- struct{}{}:
	default:
	}
}

// run copies decisions and bans between the two registries, and follows the first requests of clients, until ctx ends.
func (g *group) run(ctx context.Context) {
	var seen sync.WaitGroup
	defer seen.Wait()
	seen.Go(func() { g.followSeen(ctx) })
	var woken <-chan struct{}
	reported := ""
	for {
		err := g.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		g.reportClock()
		text := ""
		if err != nil && !errors.Is(g.note(err), registry.ErrAway) {
			text = err.Error()
		}
		if text != reported && text != "" {
			g.log(fmt.Sprintf("warning: the shared registry: %s; it is tried again", text))
		}
		reported = text
		g.mu.Lock()
		if woken = nil; g.shared != nil && err == nil {
			woken = g.shared.Woken()
		}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-g.posted:
		case <-time.After(syncEvery + rand.N(syncEvery/4)):
		}
	}
}

// sync hands the outbox over, and then reads what is new.
func (g *group) sync(ctx context.Context) error {
	g.syncing.Lock()
	defer g.syncing.Unlock()
	g.mu.Lock()
	shared := g.shared
	g.mu.Unlock()
	if shared == nil {
		var err error
		if shared, err = pgregistry.Open(ctx, g.remote.URL, g.options); err != nil {
			return err
		}
		g.mu.Lock()
		g.shared = shared
		g.mu.Unlock()
	}
	own, err := g.writing(ctx)
	if err != nil {
		return err
	}
	if err := g.send(ctx, own, shared); err != nil {
		return err
	}
	if err := g.receive(ctx, own, shared); err != nil {
		return err
	}
	ahead := shared.ClockAhead()
	g.clockAhead.Store(&ahead)
	g.returned()
	return nil
}

// send hands the outbox over, in its order.
func (g *group) send(ctx context.Context, own *sqlregistry.Registry, shared *pgregistry.Registry) error {
	for {
		all, err := own.Outbox(ctx, atOnce)
		if err != nil || len(all) == 0 {
			return err
		}
		for len(all) > 0 {
			n, bans := 0, registry.Batch{}
			for n < len(all) && all[n].Ban != nil {
				bans.Bans = append(bans.Bans, *all[n].Ban)
				n++
			}
			if n > 0 {
				err = shared.Write(ctx, bans)
			} else {
				n = 1
				err = all[0].Apply(ctx, shared)
			}
			if err != nil && !errors.Is(err, registry.ErrArgument) {
				return err
			}
			if err != nil {
				g.log(fmt.Sprintf("error: the shared registry refuses %s, which is dropped: %v", describe(all[:n]), err))
			}
			if err := own.Sent(ctx, all[:n]); err != nil {
				return err
			}
			all = all[n:]
			g.mu.Lock()
			g.sentAway += n
			g.mu.Unlock()
		}
	}
}

// receive reads what operators and other servers have changed, and stores it in the
// server's own registry: the server follows that. That registry has the times of this
// machine's clock. After it was set, all is read again.
func (g *group) receive(ctx context.Context, own *sqlregistry.Registry, shared *pgregistry.Registry) error {
	for more := true; more; {
		since := g.remote.Version
		c, err := shared.Changes(ctx, since)
		if err != nil {
			return err
		}
		ahead := shared.ClockAhead()
		wasSet := (ahead - g.remote.ClockAhead).Abs() >= sameClock
		if c.Version == since && !wasSet {
			return nil
		}
		// Ids have no gaps: if some are missing, they were pruned while this server was away.
		all := wasSet || since == (registry.Version{}) || c.Version.Lifted < since.Lifted ||
			c.Version.Bans < since.Bans || int64(len(c.Lifted)) != c.Version.Lifted-since.Lifted
		if c.Overrides || wasSet { // first: a million bans take some seconds
			if err := g.receiveOverrides(ctx, own, shared); err != nil {
				return err
			}
		}
		if all {
			g.mu.Lock()
			g.seenTo, g.readTo = 0, 0
			g.mu.Unlock()
			if err := g.receiveAll(ctx, own, shared); err != nil {
				return err
			}
		}
		if since == (registry.Version{}) { // the keys of forgotten clients
			if c.Lifted, err = shared.Lifted(ctx, g.wall().Add(-registry.ChangesStay)); err != nil {
				return err
			}
		}
		for _, l := range c.Lifted {
			if err := own.Repeat(ctx, l); err != nil {
				return err
			}
		}
		if more = len(c.Bans) > 0; more {
			if err := own.Write(ctx, registry.Batch{Bans: c.Bans}); err != nil {
				return err
			}
			g.restored(c.Bans)
		}
		g.remote.Version = c.Version
		if wasSet {
			g.remote.ClockAhead = ahead
		}
		if err := own.SetRemote(ctx, g.remote); err != nil {
			return err
		}
	}
	return nil
}

// describe names entries of the outbox.
func describe(all []sqlregistry.Pending) string {
	d := &all[0].Decision
	what := "a decision"
	switch {
	case d.Ban != nil:
		what = "a ban by the rule " + strconv.Quote(d.Ban.Rule)
	case d.Override != nil, d.Remove:
		what = "an override"
	case d.Label != nil, d.Unlabel != nil:
		what = "a label"
	case d.Note != nil:
		what = "a note"
	case d.Attack != nil:
		what = "the attack mode"
	}
	if d.Client != (fairshare.ClientID{}) {
		what += " of " + d.Client.String()
	}
	if len(all) > 1 {
		what += fmt.Sprintf(" and %d more", len(all)-1)
	}
	return what
}

// followSeen calls seen for each client of the database, and then for those that come to any server, until ctx ends.
func (g *group) followSeen(ctx context.Context) {
	reported := ""
	for {
		err := errors.Join(g.readSeen(ctx), g.shareNames(ctx))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			reported = ""
		case !setup.IsAway(g.note(err)) && err.Error() != reported: // run reports the others
			reported = err.Error()
			g.log(fmt.Sprintf("warning: could not read the known clients and bots: %v; those of other servers are unknown here",
				err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(seenEvery + rand.N(seenEvery/4)):
		}
	}
}

// namesAgain is how long a transaction may take that adds names: so much is read again.
const namesAgain = int64(2 * callTime)

// shareNames writes which addresses of bots the DNS has confirmed here, and reads those of other servers. While the
// database is away it does nothing.
func (g *group) shareNames(ctx context.Context) error {
	r := g.connection()
	if r == nil {
		return nil
	}
	all := g.names.take()
	if err := r.WriteNames(ctx, all); err != nil {
		g.names.put(all...)
		return err
	}
	last, err := r.NamesSince(ctx, max(0, g.namesTo-namesAgain), g.learn)
	if err == nil {
		g.namesTo = last
	}
	return err
}

// readSeen calls seen for the clients that have come since the last call. While the database is away it does nothing.
func (g *group) readSeen(ctx context.Context) error {
	r := g.connection()
	if r == nil {
		return nil
	}
	g.mu.Lock()
	from, was := g.seenTo, g.readTo
	g.mu.Unlock()
	next, err := r.FirstSeenSince(ctx, from, func(id fairshare.ClientID, first time.Time) bool {
		g.seen(id, first)
		return true
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.readTo != was { // a backup was restored meanwhile
		return nil
	}
	g.seenTo, g.readTo = was, next
	if was == 0 {
		g.seenTo = max(0, next-seenAgain)
	}
	return nil
}

func (g *group) receiveOverrides(ctx context.Context, own *sqlregistry.Registry, shared *pgregistry.Registry) error {
	overrides, labels, err := shared.Overrides(ctx)
	if err != nil {
		return err
	}
	mode, err := shared.AttackMode(ctx)
	if err != nil {
		return err
	}
	if err := own.Mirror(ctx, overrides, labels); err != nil {
		return err
	}
	was, err := own.AttackMode(ctx)
	if err == nil && was != mode {
		err = own.SetAttackMode(ctx, mode)
	}
	return err
}

// receiveAll replaces the bans of the server's own registry. It keeps them until the database has sent some.
func (g *group) receiveAll(ctx context.Context, own *sqlregistry.Registry, shared *pgregistry.Registry) error {
	page, dropped := make([]fairshare.BanRecord, 0, 1000), false
	flush := func() error {
		if !dropped {
			if err := own.DropBans(ctx); err != nil {
				return err
			}
			dropped = true
		}
		err := own.Write(ctx, registry.Batch{Bans: page})
		g.restored(page)
		page = page[:0]
		return err
	}
	for b, err := range shared.Bans(ctx, time.Time{}, true) {
		if err != nil {
			return err
		}
		if page = append(page, b); len(page) == cap(page) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
