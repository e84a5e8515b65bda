package registrytest

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// A ClockOpener opens a registry for a caller with a clock of its own, and closes it at the
// end of t. The same name means the same records.
type ClockOpener func(t testing.TB, name string, now func() time.Time) registry.Registry

// RunClocks runs the tests of a registry that several machines use, whose clocks may be
// wrong. Each caller passes and gets times of its own clock.
func RunClocks(t *testing.T, open ClockOpener) {
	t.Run("TimesAreThoseOfTheCaller", func(t *testing.T) { testTimesAreThoseOfTheCaller(t, open) })
	t.Run("BanEndsAtOneMoment", func(t *testing.T) { testBanEndsAtOneMoment(t, open) })
	t.Run("ClockIsSet", func(t *testing.T) { testClockIsSet(t, open) })
	t.Run("SetClockRemovesNothing", func(t *testing.T) { testSetClockRemovesNothing(t, open) })
}

// A caller is a program on a machine whose clock is off.
type caller struct {
	registry.Registry
	off time.Duration
}

func callers(t *testing.T, open ClockOpener, name string, off ...time.Duration) (all []*caller) {
	t.Helper()
	for _, by := range off {
		c := &caller{off: by}
		c.Registry = open(t, name, func() time.Time { return time.Now().Add(c.off) })
		all = append(all, c)
	}
	return all
}

// at returns a moment by the clock of the caller.
func (c *caller) at(moment time.Time) time.Time { return moment.Add(c.off) }

// same reports the difference of two times by the clock of the caller, in the database's resolution.
func (c *caller) same(t *testing.T, what string, got, moment time.Time) {
	t.Helper()
	if want := c.at(moment); !got.Equal(want) {
		t.Errorf("a clock that is %v off: %s: %v, want %v", c.off, what, got, want)
	}
}

var wrongClocks = []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour, -6 * time.Second}

// What one caller has written, the others read as the same moment by their clocks.
func testTimesAreThoseOfTheCaller(t *testing.T, open ClockOpener) {
	all := callers(t, open, "callers", wrongClocks...)
	moment := time.Now().Truncate(time.Second).UTC()
	first, last, until := moment.Add(-10*time.Minute), moment.Add(-time.Minute), moment.Add(10*time.Minute)
	for i, w := range all {
		name := Numbered(i)
		ban := Ban(name, w.at(last), 11*time.Minute)
		story := registry.Story{ID: name, Client: ID(name), Rule: "rapid", First: w.at(first), Last: w.at(last),
			Count: 2, Until: w.at(until), BanBegan: w.at(last)}
		delta := Delta(name, w.at(last), 1)
		delta.FirstSeen = w.at(first)
		Check(t, "Write", w.Write(ctx, registry.Batch{At: w.at(moment), Bans: []fairshare.BanRecord{ban},
			Clients: []registry.ClientDelta{delta}, Stories: []registry.Story{story}}))
		Check(t, "SetOverride", w.SetOverride(ctx, registry.OverrideRecord{Client: ID(name), Action: fairshare.Refuse,
			Since: w.at(last), Until: w.at(until)}))
		Check(t, "SetAttackMode", w.SetAttackMode(ctx, registry.AttackMode{Since: w.at(last), Until: w.at(until)}))
		Check(t, "SetHolder", w.SetHolder(ctx, registry.Holder{Text: name, At: w.at(last)}))
		fleet := registry.FleetRecord{Name: name, Since: w.at(first), Last: w.at(last)}
		Check(t, "SetFleets", w.SetFleets(ctx, []registry.FleetRecord{fleet}))
		for _, r := range all {
			found, err := r.Client(ctx, ID(name))
			if Check(t, "Client", err); found == nil || len(found.Bans) != 1 || len(found.Stories) != 1 {
				t.Fatalf("Client(%s): %+v", name, found)
			}
			r.same(t, "FirstSeen", found.Record.FirstSeen, first)
			r.same(t, "LastSeen", found.Record.LastSeen, last)
			r.same(t, "Override.Since", found.Record.Override.Since, last)
			r.same(t, "Override.Until", found.Record.Override.Until, until)
			r.same(t, "Ban.Began", found.Bans[0].Began, last)
			r.same(t, "Ban.Until", found.Bans[0].Until, until)
			r.same(t, "Ban.Since", found.Bans[0].Since, until)
			r.same(t, "Story.First", found.Stories[0].First, first)
			r.same(t, "Story.Last", found.Stories[0].Last, last)
			r.same(t, "Story.Until", found.Stories[0].Until, until)
			r.same(t, "Story.BanBegan", found.Stories[0].BanBegan, last)
			mode, err := r.AttackMode(ctx)
			Check(t, "AttackMode", err)
			r.same(t, "AttackMode.Since", mode.Since, last)
			r.same(t, "AttackMode.Until", mode.Until, until)
			holder, err := r.Holder(ctx)
			Check(t, "Holder", err)
			r.same(t, "Holder.At", holder.At, last)
			fleets, err := r.Fleets(ctx)
			if Check(t, "Fleets", err); len(fleets) != 1 {
				t.Fatalf("Fleets: %v", fleets)
			}
			r.same(t, "Fleet.Since", fleets[0].Since, first)
			r.same(t, "Fleet.Last", fleets[0].Last, last)
			Check(t, "Sums", r.Sums(ctx, func(c *registry.ClientSum) bool {
				r.same(t, "Sum.Last", c.Last, last)
				return true
			}))
			Check(t, "FirstSeen", r.FirstSeen(ctx, func(_ fairshare.ClientID, at time.Time) bool {
				r.same(t, "FirstSeen", at, first)
				return true
			}))
		}
	}
	// A lift by any caller holds for bans that began before, and not for later ones.
	for i, w := range all {
		name := Numbered(i)
		_, err := w.Lift(ctx, ID(name), w.at(moment))
		Check(t, "Lift", err)
		for _, r := range all {
			lifted, err := r.Lifted(ctx, r.at(moment))
			if Check(t, "Lifted", err); len(lifted) != i+1 {
				t.Fatalf("Lifted: %d, want %d", len(lifted), i+1)
			}
			r.same(t, "Lifted.At", lifted[i].At, moment)
			if !lifted[i].Stored.Equal(moment) {
				t.Errorf("Lifted.Stored: %v, want that of all callers, %v", lifted[i].Stored, moment)
			}
			early := Ban(name, r.at(last), 11*time.Minute)
			Check(t, "Write", r.Write(ctx, registry.Batch{At: r.at(moment.Add(time.Minute)),
				Bans: []fairshare.BanRecord{early}}))
			if found, err := r.Client(ctx, ID(name)); err != nil || len(found.Bans) != 0 {
				t.Errorf("a ban that began before a lift was written: %v, %v", found.Bans, err)
			}
		}
	}
}

// A ban of 10 minutes is in force for 10 minutes for all callers, and each writes the same ban: none makes it longer
// or takes it for another one.
func testBanEndsAtOneMoment(t *testing.T, open ClockOpener) {
	all := callers(t, open, "bans", wrongClocks...)
	began := time.Now().UTC()
	const length = 10 * time.Minute
	write := func(c *caller) {
		Check(t, "Write", c.Write(ctx, registry.Batch{At: c.at(began), Bans: []fairshare.BanRecord{
			Ban("203.0.113.1", c.at(began), length)}}))
	}
	write(all[1])
	first, err := all[0].Changes(ctx, registry.Version{})
	Check(t, "Changes", err)
	for i, c := range all {
		if i%2 == 0 {
			write(c) // it has heard of the ban, and reports it again
		}
		const moment = time.Millisecond
		for after, want := range map[time.Duration]int{0: 1, length - moment: 1, length + moment: 0} {
			if bans := AllBans(t, c, c.at(began.Add(after)), false); len(bans) != want {
				t.Errorf("a clock that is %v off: %d bans after %v, want %d", c.off, len(bans), after, want)
			}
		}
	}
	for _, c := range all {
		bans := AllBans(t, c, time.Time{}, true)
		if len(bans) != 1 {
			t.Fatalf("%d bans, want 1", len(bans))
		}
		Same(t, "the ban", bans[0], Ban("203.0.113.1", c.at(began), length))
	}
	// A longer ban of any caller replaces it, and a shorter one does not.
	for i, c := range all {
		Check(t, "Write", c.Write(ctx, registry.Batch{At: c.at(began), Bans: []fairshare.BanRecord{
			Ban("203.0.113.1", c.at(began), length+time.Duration(i)*time.Second)}}))
		Check(t, "Write", c.Write(ctx, registry.Batch{At: c.at(began), Bans: []fairshare.BanRecord{
			Ban("203.0.113.1", c.at(began), time.Second)}}))
		want := Ban("203.0.113.1", began, length+time.Duration(i)*time.Second)
		Same(t, "the longer ban", AllBans(t, all[0], time.Time{}, true), []fairshare.BanRecord{want})
	}
	next, err := all[0].Changes(ctx, first.Version)
	Check(t, "Changes", err)
	for _, b := range next.Bans {
		all[0].same(t, "Changes: Began", b.Began, began)
	}
	// Prune by a clock that is a day ahead removes nothing that is in force or recent.
	for _, c := range all {
		if _, err := c.Prune(ctx, c.at(began), 100); err != nil {
			t.Fatal(err)
		}
	}
	if bans := AllBans(t, all[0], began, false); len(bans) != 1 {
		t.Errorf("%d bans after Prune, want 1", len(bans))
	}
}

// When a clock is set, the next call uses its new times.
func testClockIsSet(t *testing.T, open ClockOpener) {
	all := callers(t, open, "set", 0, time.Hour)
	right, c := all[0], all[1]
	moment := time.Now().UTC()
	for i, off := range []time.Duration{time.Hour, 0, -time.Hour, 2 * time.Second} {
		c.off = off
		if _, err := c.Stats(ctx); err != nil { // a call
			t.Fatal(err)
		}
		name := Numbered(i)
		want := moment
		if off.Abs() < 3*time.Second { // a clock that is nearly right is believed
			want = moment.Add(off)
		}
		Check(t, "Write", c.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{Ban(name, c.at(moment), time.Hour)}}))
		found, err := right.Client(ctx, ID(name))
		if Check(t, "Client", err); found == nil || len(found.Bans) != 1 {
			t.Fatalf("%+v", found)
		}
		right.same(t, "Ban.Began", found.Bans[0].Began, want)
	}
}

// The first call after a clock was set neither removes what is in force nor misses it. A call with a time that the
// clock does not show removes nothing more.
func testSetClockRemovesNothing(t *testing.T, open ClockOpener) {
	all := callers(t, open, "prune", 0, 0)
	right, c := all[0], all[1]
	moment := time.Now().UTC()
	Check(t, "Write", right.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{Delta("192.0.2.1", moment, 1)},
		Bans: []fairshare.BanRecord{Ban("203.0.113.1", moment, time.Hour)}}))
	Check(t, "SetOverride", right.SetOverride(ctx, registry.OverrideRecord{Client: ID("192.0.2.2"),
		Action: fairshare.Refuse, Since: moment, Until: moment.Add(time.Hour)}))
	_, err := right.Lift(ctx, ID("192.0.2.9"), moment)
	Check(t, "Lift", err)
	check := func(what string) {
		t.Helper()
		s, err := right.Stats(ctx)
		if Check(t, "Stats", err); s.Clients != 3 || s.Bans != 1 {
			t.Errorf("%s: %d clients and %d bans, want 3 and 1", what, s.Clients, s.Bans)
		}
		lifted, err := right.Lifted(ctx, moment)
		if Check(t, "Lifted", err); len(lifted) != 1 {
			t.Errorf("%s: %d lifted clients, want 1", what, len(lifted))
		}
	}
	const years = 10 * 365 * 24 * time.Hour
	for _, off := range []time.Duration{years, 0, -years, time.Hour, 0} {
		c.off = off
		_, err := c.Prune(ctx, c.at(moment), 100)
		Check(t, "Prune", err)
		check(fmt.Sprintf("Prune after the clock was set to %v off", off))
		c.off = -off
		if bans := AllBans(t, c, c.at(moment), false); len(bans) != 1 {
			t.Errorf("a clock that was set to %v off: %d bans in force, want 1", c.off, len(bans))
		}
	}
	_, err = right.Prune(ctx, moment.Add(years), 100)
	Check(t, "Prune", err)
	check("Prune with a time ten years ahead")
}
