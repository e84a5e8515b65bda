//go:build unix

package pgregistry

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/pgregistry/pgtest"
	"fairshare/registry"
	"fairshare/registry/registrytest"
)

// atClock opens registries in schemas of a server, for callers with clocks of their own.
func atClock(s *pgtest.Server) registrytest.ClockOpener {
	return func(t testing.TB, name string, now func() time.Time) registry.Registry {
		return opened(t, s.URL("postgres"), Options{Schema: name, Now: now})
	}
}

func TestClocks(t *testing.T) {
	s := pgtest.Start(t)
	registrytest.RunClocks(t, atClock(s))

	// A caller whose clock is wrong sees a Registry as any other does.
	t.Run("WrongClock", func(t *testing.T) {
		registrytest.Run(t, func(t testing.TB, name string, b registry.Bounds) registry.Registry {
			return openedIn(t, s, name, Options{Bounds: b, Now: func() time.Time { return time.Now().Add(time.Hour) }})
		})
	})
}

// A clock that is off by about as much as is tolerated is not corrected in turn and left alone.
func TestCorrection(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct{ was, ahead, trip, want time.Duration }{
		{0, 0, 0, 0},
		{0, 5 * second, 0, 0},
		{0, 5*second + 1, 0, 5 * second},
		{0, -5*second - 1, 0, -5 * second},
		{0, 6 * second, second, 0}, // the trip may be the difference
		{0, 6*second + 1, second, 6 * second},
		{5 * second, 4 * second, 0, 5 * second},
		{6 * second, 3 * second, 0, 3 * second},
		{5 * second, 3 * second, 9 * second, 5 * second},
		{-5 * second, 1 - 3*second, 0, 0},
		{time.Hour, time.Hour + 2*second, 0, time.Hour},
		{time.Hour, time.Hour + 2100*time.Millisecond, 0, time.Hour + 2*second},
		{time.Hour, 0, 0, 0},
		{time.Hour, -time.Hour, 0, -time.Hour},
	} {
		if got := correction(tt.was, tt.ahead, tt.trip); got != tt.want {
			t.Errorf("correction %v, %v ahead, trip %v: %v, want %v", tt.was, tt.ahead, tt.trip, got, tt.want)
		}
	}
	used, changes := time.Duration(0), 0
	for i := range 100 {
		ahead := 5*second + time.Duration(i%3-1)*900*time.Millisecond
		if next := correction(used, ahead, time.Millisecond); next != used {
			used = next
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("a clock at 5 s: %d corrections, want 1", changes)
	}
}

// A clock is compared again after ten seconds, after it was set, and after the machine was suspended. The result of
// a question that took long, because this process was stopped, is not used.
func TestClockIsComparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := time.Duration(0)
		c := clock{now: func() time.Time { return time.Now().Add(off) }}
		use := func(database time.Time, before, after reading) {
			if by := c.use(sample{database: database, before: before, after: after}, true); by != 0 {
				t.Errorf("the clock of the database is shifted by %v", by)
			}
		}
		check := func(what string, due bool) {
			t.Helper()
			if got := c.due(); got != due {
				t.Errorf("%s: due %v, want %v", what, got, due)
			}
			use(time.Now(), c.read(), c.read())
			if got := time.Duration(c.offset.Load()); got != off {
				t.Errorf("%s: corrects %v, want %v", what, got, off)
			}
		}
		check("first", true)
		time.Sleep(9 * time.Second)
		check("after 9 s", false)
		time.Sleep(11 * time.Second)
		check("after 11 s", true)
		off = time.Hour
		check("set", true)
		check("at once", false)
		off = 0
		check("set back", true)

		off = time.Hour
		before := c.read()
		time.Sleep(30 * time.Second)
		use(time.Now(), before, c.read())
		if !c.due() || c.offset.Load() != 0 {
			t.Error("a question that took 30 s was used")
		}
		check("after it", true)
		before = c.read()
		off = 0
		use(time.Now(), before, c.read())
		if !c.due() || time.Duration(c.offset.Load()) != time.Hour {
			t.Error("a question was used during which the clock was set")
		}
		check("after it", true)
		c.renew()
		check("after a connection", true)

		database, before, after := time.Now(), c.read(), c.read()
		time.Sleep(40 * time.Second) // before the answer is used
		use(database, before, after)
		if c.offset.Load() != 0 {
			t.Errorf("a stall after the answer counts as an offset of %v", time.Duration(c.offset.Load()))
		}
	})
}

// If the clock of the database moves and the caller's does not, the shift is changed. If both move, the machine was
// suspended. If nobody may shift, or the shift was changed, the caller's clock is off.
func TestSetClockOfTheDatabase(t *testing.T) {
	const hour = time.Hour
	for _, tt := range []struct {
		what             string
		passed           time.Duration
		database, caller time.Duration // by which they were set
		shift            time.Duration // another one has changed
		mayNot           bool
		want, ahead      time.Duration
	}{
		{what: "nothing", passed: time.Minute},
		{what: "ahead", passed: time.Minute, database: hour, want: -hour},
		{what: "back", passed: time.Minute, database: -hour, want: hour},
		{what: "drift of a day", passed: 24 * hour, database: 30 * time.Second, ahead: -30 * time.Second},
		{what: "4 s", passed: time.Minute, database: 4 * time.Second},
		{what: "6 s", passed: time.Minute, database: 6 * time.Second, want: -6 * time.Second},
		{what: "suspended", passed: time.Minute, database: hour, caller: hour},
		{what: "the caller", passed: time.Minute, caller: hour, ahead: hour},
		{what: "another one was first", passed: time.Minute, database: hour, shift: -hour},
		{what: "another one was wrong", passed: time.Minute, shift: -hour, want: hour},
		{what: "read only", passed: time.Minute, database: hour, mayNot: true, ahead: -hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			var set, database time.Duration
			c := clock{now: func() time.Time { return time.Now().Add(set) }}
			use := func(shift time.Duration, may bool) time.Duration {
				return c.use(sample{time.Now().Add(database), shift, c.read(), c.read()}, may)
			}
			if by := use(0, true); by != 0 {
				t.Errorf("%s: the first sample shifts by %v", tt.what, by)
			}
			time.Sleep(tt.passed)
			set, database = tt.caller, tt.database
			by := use(tt.shift, !tt.mayNot)
			if by != tt.want {
				t.Errorf("%s: shifts by %v, want %v", tt.what, by, tt.want)
			}
			if by != 0 {
				c.noteShift()
				if again := use(tt.shift+by, true); again != 0 {
					t.Errorf("%s: then shifts by %v", tt.what, again)
				}
			}
			if got := time.Duration(c.offset.Load()); got != tt.ahead {
				t.Errorf("%s: the caller is %v ahead, want %v", tt.what, got, tt.ahead)
			}
		})
	}
}

// A caller whose processor's clock was stopped for an hour takes this for a set clock, and another one disagrees. That
// ends, with the right time.
func TestShiftsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := [2]clock{{now: time.Now}, {now: time.Now}}
		shift, shifts := time.Duration(0), 0
		for i := range 100 {
			for n := range all {
				c := &all[n]
				if n == 0 && i == 1 {
					c.latestAt = c.latestAt.Add(-time.Hour)
				}
				by := c.use(sample{time.Now(), shift, c.read(), c.read()}, true)
				if by == 0 {
					continue
				}
				c.noteShift()
				shift, shifts = shift+by, shifts+1
				if c.use(sample{time.Now(), shift, c.read(), c.read()}, false); i > 2*mostShifts {
					t.Errorf("caller %d shifts by %v in round %d", n, by, i)
				}
			}
			time.Sleep(20 * time.Second)
		}
		if shift != 0 || shifts == 0 {
			t.Errorf("after %d shifts the clock is shifted by %v", shifts, shift)
		}
	})
}

// When the clock of the database is set, bans and decisions keep their lengths: for callers that were there before
// and for those that come later.
func TestDatabaseClockIsSet(t *testing.T) {
	s := pgtest.Start(t)
	var lines []string
	var mu sync.Mutex
	log := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "the clock of the database was set") {
			lines = append(lines, line)
		}
	}
	open := func(off time.Duration) *Registry {
		return opened(t, s.URL("postgres"), Options{Schema: "set", Log: log,
			Now: func() time.Time { return time.Now().Add(off) }})
	}
	offs := []time.Duration{0, 0, 2 * time.Hour}
	var all []*Registry
	for _, off := range offs {
		all = append(all, open(off))
	}
	began := time.Now()
	ends := began.Add(10 * time.Minute)
	ban := registrytest.Ban("203.0.113.1", began, 10*time.Minute)
	batch := registry.Batch{At: began, Bans: []fairshare.BanRecord{ban}}
	registrytest.Check(t, "Write", all[0].Write(t.Context(), batch))
	check := func(what string) {
		t.Helper()
		for i, r := range all {
			found, err := r.Client(t.Context(), registrytest.ID("203.0.113.1"))
			for range mostConns { // they were cut
				if err != nil {
					found, err = r.Client(t.Context(), registrytest.ID("203.0.113.1"))
				}
			}
			if err != nil || found == nil || len(found.Bans) != 1 {
				t.Fatalf("%s: caller %d: %v, %v", what, i, found, err)
			}
			if off := found.Bans[0].Until.Sub(ends.Add(offs[i])); off.Abs() > 10*time.Second {
				t.Errorf("%s: for caller %d the ban ends %v too late", what, i, off)
			}
			if wrong := r.ClockWrong(); (wrong != 0) != (offs[i] != 0) {
				t.Errorf("%s: the clock of caller %d is said to be %v ahead", what, i, wrong)
			}
		}
	}
	check("at first")
	for i, ahead := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
		s.SetClock(t, ahead)
		check(fmt.Sprint(ahead))
		all, offs = append(all, open(0)), append(offs, 0)
		check(fmt.Sprint(ahead, ", a new caller"))
		mu.Lock()
		if len(lines) != i+1 {
			t.Errorf("%v: logged %q", ahead, lines)
		}
		mu.Unlock()
	}
}
