package pgregistry

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/prose"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5/pgxpool"
)

// All times in the tables are those of the registry's clock: that of the database, and a
// shift that all callers read. If the caller's clock is wrong, a Registry converts them: so a
// ban has the same end on all servers. It moves times by whole seconds, and not at all if the
// clocks nearly agree. So a ban that one server has written and another one has read is the
// same ban.
//
// The shift is zero until somebody sets the clock of the database, or another server with
// another clock takes over. A Registry that was open before notices it, since it knows by its
// processor's clock how much time has passed. It changes the shift, so that the registry's
// clock goes on as before: no row changes, and other callers have nothing to convert.

const (
	clockTolerance = 5 * time.Second  // a clock that is off by less is left alone
	clockAgrees    = 3 * time.Second  // a clock that was corrected is left alone again when it is off by less
	clockMoves     = 2 * time.Second  // a correction is changed when it is off by more
	clockJump      = 2 * time.Second  // a clock that moves by more against the processor's was set
	clockAgain     = 10 * time.Second // it is measured again

	// A process that was paused may take this for a set clock, and others shift the clock back.
	// They stop when one of them has shifted it that often in that time.
	mostShifts = 3
	shiftsStay = time.Hour
)

// A clock compares the caller's clock with that of the registry. It is safe for
// concurrent use.
type clock struct {
	now    func() time.Time // the caller's clock
	offset atomic.Int64     // ns, whole seconds: the correction
	shift  atomic.Int64     // ns, whole seconds: of the registry's clock from the database's

	mu        sync.Mutex
	connected bool      // a connection was made after the latest sample: maybe to another server
	latest    reading   // of the latest sample; zero: there was none
	latestAt  time.Time // the registry's time then
	shifts    int       // that this process has made
	shiftedAt time.Time // when it made the last one
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

// A sample is a time of the database, which was read between two readings of the caller's
// clock, and the shift then.
type sample struct {
	database      time.Time
	shift         time.Duration
	before, after reading
}

// use takes a sample. It ignores one that took too long: this process was stopped meanwhile,
// the database was, or the clock was set. If the clock of the database was set it returns by
// how much to change the shift instead, unless it must not be changed.
func (c *clock) use(s sample, mayShift bool) (by time.Duration) {
	trip := s.after.at.Sub(s.before.at)
	if trip > clockTolerance || s.after.moved(s.before).Abs() > clockTolerance {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.after.at.Before(c.latest.at) {
		return 0
	}
	now := s.database.Add(s.shift + trip/2)
	if mayShift && !c.latest.at.IsZero() && s.after.moved(c.latest).Abs() <= clockJump && c.mayShift(s.after.at) {
		passed := s.after.at.Sub(c.latest.at)
		moved := now.Sub(c.latestAt) - passed
		if moved.Abs() > clockTolerance+trip+passed/1000 { // clocks of machines drift by less
			return -moved.Round(time.Second)
		}
	}
	next := correction(time.Duration(c.offset.Load()), s.after.caller.Sub(now), trip)
	c.latest, c.latestAt, c.connected = s.after, now, false
	c.offset.Store(int64(next))
	c.shift.Store(int64(s.shift))
	return 0
}

// mayShift reports whether this process has not changed the shift too often. mu is held.
func (c *clock) mayShift(now time.Time) bool {
	if now.Sub(c.shiftedAt) > shiftsStay {
		c.shifts = 0
	}
	return c.shifts < mostShifts
}

func (c *clock) noteShift() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shifts++
	c.shiftedAt = time.Now()
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

// ClockAhead returns by how much the clock of Options.Now is ahead of the registry's, in
// whole seconds; negative if it is behind. It is 0 if the clock is off by less than about
// 5 seconds: times are not converted then. The clock of the registry is that of the
// database, but it goes on as before if that is set while a server uses the registry.
func (r *Registry) ClockAhead() time.Duration { return time.Duration(r.clock.offset.Load()) }

// ClockWrong is ClockAhead, but 0 if the clock of Options.Now agrees with that of the
// database, which was set.
func (r *Registry) ClockWrong() time.Duration {
	ahead := r.ClockAhead()
	if (ahead + time.Duration(r.clock.shift.Load())).Abs() <= clockTolerance {
		return 0
	}
	return ahead
}

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

// compareClocks compares the clocks if that is due. If that of the database was set, it changes
// the shift, unless another process has done it or it cannot.
func (r *Registry) compareClocks(ctx context.Context, conn *pgxpool.Conn) error {
	if !r.clock.due() {
		return nil
	}
	for mayShift := !r.o.ReadOnly; ; mayShift = false {
		s := sample{before: r.clock.read()}
		var err error
		var was []byte
		s.database, s.shift, was, err = r.readClock(ctx, conn)
		s.after = r.clock.read()
		if err != nil {
			return err
		}
		by := r.clock.use(s, mayShift)
		if by == 0 {
			return nil
		}
		done, err := conn.Exec(ctx, r.sql("INSERT INTO {}settings AS s (name, value) VALUES ('clock', $1) "+
			"ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE s.value = $2"),
			strconv.AppendInt(nil, int64(s.shift+by), 10), was)
		if err == nil && done.RowsAffected() == 1 {
			r.clock.noteShift()
			side := "ahead"
			if by > 0 {
				side = "back"
			}
			r.o.Log(fmt.Sprintf("warning: PostgreSQL registry %s: the clock of the database was set %s by %s, or another "+
				"server has taken over: bans and decisions keep their lengths", r.where, side, prose.Duration(by.Abs())))
		}
	}
}

// readClock returns the time of the database, the shift, and how that is stored.
func (r *Registry) readClock(ctx context.Context, from querier) (database time.Time, shift time.Duration, was []byte,
	err error) {
	var ns, by int64
	if _, err = r.row(ctx, from, "SELECT "+databaseNow+", coalesce((SELECT value FROM {}settings "+
		"WHERE name = 'clock'), '')", nil, &ns, &was); err != nil {
		return database, 0, nil, err
	}
	if by, err = strconv.ParseInt(string(was), 10, 64); err != nil { // there is none
		by = 0
	}
	return time.Unix(0, ns), time.Duration(by), was, nil
}
