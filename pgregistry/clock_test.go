//go:build unix

package pgregistry

import (
	"testing"
	"testing/synctest"
	"time"

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

// A clock is compared again after a minute, after it was set, and after the machine was suspended. The result of
// a question that took long, because this process was stopped, is not used.
func TestClockIsComparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := time.Duration(0)
		c := clock{now: func() time.Time { return time.Now().Add(off) }}
		check := func(what string, due bool) {
			t.Helper()
			if got := c.due(); got != due {
				t.Errorf("%s: due %v, want %v", what, got, due)
			}
			c.sample(time.Now(), c.read(), c.read())
			if got := time.Duration(c.offset.Load()); got != off {
				t.Errorf("%s: corrects %v, want %v", what, got, off)
			}
		}
		check("first", true)
		time.Sleep(59 * time.Second)
		check("after 59 s", false)
		time.Sleep(61 * time.Second)
		check("after 61 s", true)
		off = time.Hour
		check("set", true)
		check("at once", false)
		off = 0
		check("set back", true)

		off = time.Hour
		before := c.read()
		time.Sleep(30 * time.Second)
		c.sample(time.Now(), before, c.read())
		if !c.due() || c.offset.Load() != 0 {
			t.Error("a question that took 30 s was used")
		}
		check("after it", true)
		before = c.read()
		off = 0
		c.sample(time.Now(), before, c.read())
		if !c.due() || time.Duration(c.offset.Load()) != time.Hour {
			t.Error("a question was used during which the clock was set")
		}
		check("after it", true)
		c.renew()
		check("after a connection", true)

		database, before, after := time.Now(), c.read(), c.read()
		time.Sleep(40 * time.Second) // before the answer is used
		c.sample(database, before, after)
		if c.offset.Load() != 0 {
			t.Errorf("a stall after the answer counts as an offset of %v", time.Duration(c.offset.Load()))
		}
	})
}
