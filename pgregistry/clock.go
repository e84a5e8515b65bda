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

	mu        sync.Mutex
	connected bool    // a connection was made after the latest sample: maybe to another server
	latest    reading // of the latest sample; zero: there was none
}

// A reading is one of the caller's clock.
type reading struct {
	at     time.Time // with a monotonic reading
	caller time.Time // without one
}

func (c *clock) read() reading { return reading{time.Now(), c.now().Round(0)} }

// moved returns by how much the caller's clock has moved against the processor's since an
// earlier reading: it was set, or the machine was suspended.
func (r reading) moved(since reading) time.Duration {
	return r.caller.Sub(since.caller) - r.at.Sub(since.at)
}

// due reports whether the clocks have to be compared: the first time, from time to time,
// after a connection was made, and when the caller's clock was set or the machine was
// suspended.
func (c *clock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.read()
	return c.connected || c.latest.at.IsZero() || now.at.Sub(c.latest.at) > clockAgain ||
		now.moved(c.latest).Abs() > clockJump
}

// renew has the clocks compared again.
func (c *clock) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected = true
}

// sample takes the time of the database, which was read between two readings of the
// caller's clock. It ignores one that took too long: this process was stopped meanwhile,
// the database was, or the clock was set.
func (c *clock) sample(database time.Time, before, after reading) {
	trip := after.at.Sub(before.at)
	if trip > clockTolerance || after.moved(before).Abs() > clockTolerance {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if after.at.Before(c.latest.at) {
		return
	}
	next := correction(time.Duration(c.offset.Load()), after.caller.Add(-trip/2).Sub(database), trip)
	c.latest, c.connected = after, false
	c.offset.Store(int64(next))
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
	before := r.clock.read()
	ns, err := r.integer(ctx, conn, "SELECT "+databaseNow)
	if after := r.clock.read(); err == nil {
		r.clock.sample(time.Unix(0, ns), before, after)
	}
	return err
}
