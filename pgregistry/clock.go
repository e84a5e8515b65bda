package pgregistry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/registry/key"

	"github.com/jackc/pgx/v5/pgxpool"
)

// All times in the tables are those of the database's clock. If the caller's clock is
// wrong, a Registry converts them: so a ban has the same end on all servers. It moves
// times by whole seconds, and not at all if the clocks nearly agree. So a ban that one
// server has written and another one has read is the same ban.

const (
	clockTolerance = 5 * time.Second // a clock that is off by less is left alone
	clockAgrees    = 3 * time.Second // a clock that was corrected is left alone again when it is off by less
	clockMoves     = 2 * time.Second // a correction is changed when it is off by more
	clockJump      = 2 * time.Second // a clock that moves by more against the processor's was set
	clockAgain     = time.Minute     // it is measured again
)

// A clock compares the caller's clock with that of the database. It is safe for
// concurrent use.
type clock struct {
	now    func() time.Time // the caller's clock
	offset atomic.Int64     // ns, whole seconds: the correction

	mu     sync.Mutex
	at     time.Time // of the latest sample, with a monotonic reading; zero: there was none
	caller time.Time // the caller's clock then
}

// due reports whether the clocks have to be compared: the first time, from time to time,
// and when the caller's clock was set or the machine was suspended.
func (c *clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := time.Since(c.at)
	return c.at.IsZero() || age > clockAgain || (c.now().Round(0).Sub(c.caller)-age).Abs() > clockJump
}

// sample takes the time of the database, which was read in the last trip.
func (c *clock) sample(database time.Time, trip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.at.IsZero()
	if trip > clockTolerance && !first { // this process was stopped meanwhile, or the database was
		return
	}
	c.at, c.caller = time.Now(), c.now().Round(0)
	ahead := c.caller.Add(-trip / 2).Sub(database)
	c.offset.Store(int64(correction(time.Duration(c.offset.Load()), ahead, trip)))
}

// correction returns the next correction of a clock that is ahead by a time, if asking
// took trip.
func correction(was, ahead, trip time.Duration) time.Duration {
	switch {
	case was == 0 && ahead.Abs() <= clockTolerance+trip, was != 0 && ahead.Abs() < clockAgrees:
		return 0
	case was != 0 && (ahead-was).Abs() <= clockMoves+trip:
		return was
	}
	return ahead.Round(time.Second)
}

// ClockAhead returns by how much the clock of Options.Now is ahead of the database's, in
// whole seconds; negative if it is behind. It is 0 if the clock is off by less than about
// 5 seconds: times are not converted then.
func (r *Registry) ClockAhead() time.Duration { return time.Duration(r.clock.offset.Load()) }

// toDatabase returns the stored form of a time of the caller's clock.
func (r *Registry) toDatabase(t time.Time) int64 { return key.Nanoseconds(shifted(t, -r.ClockAhead())) }

// fromDatabase returns a stored time by the caller's clock.
func (r *Registry) fromDatabase(ns int64) time.Time {
	t := key.Time(ns)
	if ahead := r.ClockAhead(); ahead != 0 {
		t = key.Time(key.Nanoseconds(shifted(t, ahead))) // in range
	}
	return t
}

// shifted returns a later time; the zero time stays.
func shifted(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

// acquire returns a connection of the pool. It compares the clocks first if that is due.
func (r *Registry) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := r.pool.Acquire(ctx)
	if err == nil {
		_ = r.compareClocks(ctx, conn) // the call notices if the connection is broken
	}
	return conn, err
}

// compareClocks compares the clocks if that is due.
func (r *Registry) compareClocks(ctx context.Context, conn *pgxpool.Conn) error {
	if !r.clock.due() {
		return nil
	}
	began := time.Now()
	ns, err := r.integer(ctx, conn, "SELECT "+databaseNow)
	if err == nil {
		r.clock.sample(time.Unix(0, ns), time.Since(began))
	}
	return err
}
