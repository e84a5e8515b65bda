package registrar_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// After a step of the system's clock, records have the system's times, as operators'
// commands expect.
func TestRecordsHaveSystemTimesAfterAStep(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := newFakeStore()
			r := run(t, store, registrar.Options{
				Wall:     func(at time.Time) time.Time { return at.Add(step) },
				FromWall: func(at time.Time) time.Time { return at.Add(-step) },
			})
			begin := time.Now()
			r.pass("192.0.2.1", 1)
			client := id("198.51.100.1")
			r.Banned(fairshare.BanRecord{Client: client, Kind: fairshare.ByAddr, Rule: "rapid", Number: 1,
				Began: begin, Until: begin.Add(time.Minute), Since: begin.Add(time.Minute)})
			r.Refused(registrar.Refusal{
				Request: registrar.Request{Addr: client.Prefix.Addr(), At: begin},
				Story: registry.Story{ID: "r1", Rule: "rapid", Action: fairshare.Refuse,
					Ban: fairshare.BanStarted, Until: begin.Add(time.Minute)},
			})
			sleep(20 * time.Second)
			r.Refused(registrar.Refusal{
				Request: registrar.Request{Addr: client.Prefix.Addr(), At: begin.Add(20 * time.Second)},
				Story:   registry.Story{ID: "r1", Rule: "rapid", Action: fairshare.Refuse},
			})
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			want := begin.Add(step)
			if c := store.client("192.0.2.1"); !c.FirstSeen.Equal(want) || !c.LastSeen.Equal(want) {
				t.Errorf("step %v: seen %v to %v, want %v", step, c.FirstSeen, c.LastSeen, want)
			}
			for _, b := range store.bans {
				if !b.Began.Equal(want) || !b.Until.Equal(want.Add(time.Minute)) || b.Since != b.Until {
					t.Errorf("step %v: ban %v to %v since %v, want it to begin at %v", step, b.Began, b.Until,
						b.Since, want)
				}
			}
			s := store.stories["r1"]
			if !s.First.Equal(want) || !s.Last.Equal(want.Add(20*time.Second)) || !s.BanBegan.Equal(want) ||
				!s.Until.IsZero() {
				t.Errorf("step %v: story %v to %v, ban %v, until %v; want it to begin at %v", step, s.First, s.Last,
					s.BanBegan, s.Until, want)
			}
		})
	}
}

// A report that only changes Since, from when forgiveness counts, is written after the
// system's clock has stepped back.
func TestReportOfAnEndedBanIsWrittenAfterAStep(t *testing.T) {
	r, err := sqlregistry.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ban := fairshare.BanRecord{Client: id("198.51.100.1"), Kind: fairshare.ByAddr, Rule: "rapid", Number: 3,
		Began: time.Now().Round(0).UTC()}
	ban.Until = ban.Began.Add(10 * time.Minute)
	write := func(b fairshare.BanRecord, now time.Time, ahead time.Duration) fairshare.BanRecord {
		g := registrar.New(registrar.Options{Store: r, Prefix: policy.Client,
			Now:  func() time.Time { return now },
			Wall: func(at time.Time) time.Time { return at.Add(ahead) }})
		g.Banned(b)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ended); err != nil { // it writes everything
			t.Fatal(err)
		}
		for b, err := range r.Bans(t.Context(), time.Time{}, true) {
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		t.Fatal("no ban is recorded")
		return fairshare.BanRecord{}
	}
	ban.Since = ban.Until
	write(ban, ban.Began, 0)
	refused := ban.Began.Add(3 * time.Hour)
	ban.Number, ban.Since = 2, refused // one step was forgiven
	got, want := write(ban, refused, -time.Hour), refused.Add(-time.Hour)
	if !got.Since.Equal(want) || got.Number != 2 {
		t.Errorf("recorded %+v, want number 2 since %v", got, want)
	}

	// An earlier ban of another length does not replace it, nor an older report.
	other := ban
	other.Until, other.Since = ban.Until.Add(time.Minute), refused.Add(time.Minute)
	older := ban
	older.Since = refused.Add(-time.Minute)
	for _, b := range []fairshare.BanRecord{other, older} {
		if got := write(b, refused, -2*time.Hour); !got.Since.Equal(refused.Add(-time.Hour)) {
			t.Errorf("%+v was replaced by %+v", ban, got)
		}
	}
}

// A ban that begins after a lift is written, and a forgotten client is recorded
// again, after a step of the system's clock in either direction.
func TestBanAfterALiftAndAStepIsWritten(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		r, err := sqlregistry.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), sqlregistry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		client, start := id("198.51.100.1"), time.Now().Round(0)
		ahead := time.Duration(0)     // of the system's clock
		write := func(at time.Time) { // a ban and a request at a server's time
			g := registrar.New(registrar.Options{Store: r, Prefix: policy.Client,
				Wall:     func(at time.Time) time.Time { return at.Add(ahead) },
				FromWall: func(at time.Time) time.Time { return at.Add(-ahead) }})
			check(g.Start(t.Context()))
			g.Banned(fairshare.BanRecord{Client: client, Kind: fairshare.ByAddr, Rule: "rapid", Number: 1,
				Began: at, Until: at.Add(10 * time.Minute), Since: at.Add(10 * time.Minute)})
			g.Passed(registrar.Request{Addr: client.Prefix.Addr(), At: at})
			over, cancel := context.WithCancel(t.Context())
			cancel()
			check(g.Run(over)) // writes all
		}
		read := func() (bans []fairshare.BanRecord) {
			for b, err := range r.Bans(t.Context(), start.Add(-48*time.Hour), true) {
				check(err)
				bans = append(bans, b)
			}
			return bans
		}
		write(start)
		ahead = step
		_, err = r.Forget(t.Context(), client, start.Add(step+time.Second))
		check(err)
		write(start.Add(2 * time.Second))
		want := start.Add(step + 2*time.Second)
		if bans := read(); len(bans) != 1 || !bans[0].Began.Equal(want) {
			t.Errorf("step %v: bans %+v, want one that began at %v", step, bans, want)
		}
		found, err := r.Client(t.Context(), client)
		check(err)
		if found == nil || !found.Record.FirstSeen.Equal(want) {
			t.Errorf("step %v: %+v, want a client first seen at %v", step, found, want)
		}
		ahead = 0 // a later ban replaces one from the time when the clock was ahead
		if step > 0 {
			write(start.Add(20 * time.Minute))
			if bans := read(); len(bans) != 1 || !bans[0].Began.Equal(start.Add(20*time.Minute)) {
				t.Errorf("bans %+v, want one that began at %v", bans, start.Add(20*time.Minute))
			}
		}
	}
}
