//go:build unix

package livepolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/setup"
	"fairshare/pgregistry/pgtest"
	"fairshare/redislimit/redistest"
	"fairshare/registry"
	"fairshare/sqlregistry"
	"fairshare/visitor"
)

// A wrong is a clock of a machine that is off, and can be set.
type wrong struct{ off atomic.Int64 }

func (w *wrong) now() time.Time          { return time.Now().Add(time.Duration(w.off.Load())) }
func (w *wrong) set(off time.Duration)   { w.off.Store(int64(off)) }
func (w *wrong) clock() *httpguard.Clock { return httpguard.NewClockOf(w.now) }

// follow has a member read what is new.
func (m *member) follow(t *testing.T) {
	t.Helper()
	must(t, m.group().sync(t.Context()))
	m.group().reportClock()
}

// A server with a wrong clock warns once, and says when the clock is right again.
func TestWrongClockIsReported(t *testing.T) {
	db := pgtest.Start(t)
	for off, want := range map[time.Duration]string{0: "", time.Hour: "is 1 hour ahead of",
		-time.Hour: "is 1 hour behind"} {
		var w wrong
		w.set(off)
		m := openMember(t, db.URL("postgres"), parseFile(t, "rules: []\n"), t.TempDir(), w.clock())
		for range 3 {
			m.follow(t)
		}
		lines := m.logged("the clock of this machine")
		if want == "" {
			if len(lines) > 0 {
				t.Errorf("a right clock: %q", lines)
			}
			continue
		}
		if len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("%v off: %q", off, lines)
		}
		w.set(0)
		m.follow(t)
		if lines := m.logged("agrees"); len(lines) != 1 {
			t.Errorf("%v off, then set: %q", off, lines)
		}
	}
}

// A ban of ten minutes and a decision with an end last equally long on all members, whatever their clocks
// show, also after a clock was set and after a restart. First requests and cookies have the same age.
func TestMembersWithWrongClocksAgree(t *testing.T) {
	db := pgtest.Start(t)
	offs := []time.Duration{0, time.Hour, -time.Hour}
	text := "visitors: always\nshare: 8\nrules:\n" +
		"  - {name: rapid, limit: {requests: 5, per: 1m, by: addr}, ban: {after: 1, within: 1h, for: 10m}}\n"
	clocks, members := make([]wrong, len(offs)), make([]*member, len(offs))
	for i, off := range offs {
		clocks[i].set(off)
		members[i] = openMember(t, db.URL("postgres"), parseFile(t, text), t.TempDir(), clocks[i].clock())
		members[i].Start(t.Context())
	}
	real := time.Now()
	problems := func() (all []string) {
		problem := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
		for i, m := range members {
			passed := time.Since(real)
			for n := range offs {
				// The ban that member n has made.
				req := m.request(fmt.Sprint("198.51.100.", n))
				v, err := m.Current().Guard.Decide(t.Context(), req)
				must(t, err)
				least := 10*time.Minute - passed - 5*time.Second // a ban takes up to a tenth more
				if v.Action != fairshare.Refuse || v.Wait < least || v.Wait > 11*time.Minute {
					problem("member %d: the ban by member %d: %v, wait %v", i, n, v.Action, v.Wait)
				}
				// A decision at the machine of member n, for half an hour.
				addr := netip.MustParseAddr(fmt.Sprint("203.0.113.", n))
				find := m.state.override()
				for after, want := range map[time.Duration]bool{0: true, 29 * time.Minute: true,
					31 * time.Minute: false} {
					o := find(addr, fairshare.Bot{}, m.Now().Add(after-passed))
					if got := o.Action == fairshare.Refuse; got != want {
						problem("member %d: the decision at member %d holds after %v: %v", i, n, after, got)
					}
				}
				// A client that member n has seen ten minutes and a bit ago.
				if !m.Current().Guard.HasStanding(m.request(fmt.Sprint("192.0.2.", n))) {
					problem("member %d: a client that member %d knows has no standing", i, n)
				}
				if m.Current().Guard.HasStanding(m.request(fmt.Sprint("192.0.2.", 100+n))) {
					problem("member %d: a new client of member %d has standing", i, n)
				}
			}
		}
		return all
	}
	agree := func(what string) {
		t.Helper()
		var all []string
		for range 50 { // members follow each second
			if all = problems(); len(all) == 0 {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Errorf("%s:\n%s", what, strings.Join(all, "\n"))
	}
	for n, m := range members {
		for range 7 {
			v, err := m.Current().Guard.Decide(t.Context(), m.request(fmt.Sprint("198.51.100.", n)))
			must(t, err)
			m.Current().Guard.Settle(t.Context(), &v, fairshare.Outcome{})
		}
		m.state.registrar.Settle(t.Context())
		r, err := setup.OpenRegistry(t.Context(), m.folder, clocks[n].now, sqlregistry.Options{MustExist: true})
		must(t, err)
		now := clocks[n].now()
		must(t, r.SetOverride(t.Context(), registry.OverrideRecord{Client: client(t, fmt.Sprint("203.0.113.", n)),
			Action: fairshare.Refuse, Since: now, Until: now.Add(30 * time.Minute)}))
		must(t, r.Close())
		for addr, first := range map[string]time.Duration{fmt.Sprint("192.0.2.", n): 15 * time.Minute,
			fmt.Sprint("192.0.2.", 100+n): time.Minute} {
			delta := registry.ClientDelta{Client: client(t, addr), FirstSeen: now.Add(-first), LastSeen: now,
				Spent: registry.Spent{Requests: 1}}
			must(t, m.state.store.Write(t.Context(), registry.Batch{Clients: []registry.ClientDelta{delta}}))
		}
	}
	for _, m := range members {
		must(t, m.group().readSeen(t.Context())) // else within half a minute
	}
	agree("at once")

	opts := make([]httpguard.Options, len(members))
	for i, m := range members {
		opts[i] = m.GuardOptions(m.Current(), httpguard.Options{})
	}
	for i, by := range members {
		req := by.request("192.0.2.9")
		value, _, ok := by.Current().Visitors.Sign(fairshare.Visitor{}, req, by.Now(), opts[i].Wall(by.Now()),
			visitor.Change{Raise: 2 * time.Minute})
		if !ok {
			t.Fatal("no cookie")
		}
		for j, m := range members {
			found := m.Current().Visitors.Read(value, m.Now(), opts[j].Wall(m.Now()))
			age := m.Now().Sub(found.Since)
			if found.ID == 0 || age < 2*time.Minute-3*time.Second || age > 3*time.Minute {
				t.Errorf("a cookie of member %d at member %d: %v old, known %v", i, j, age, found.ID != 0)
			}
		}
	}

	clocks[1].set(0) // somebody sets one clock, and breaks another
	clocks[0].set(-24 * time.Hour)
	agree("after clocks were set")

	for i, m := range members {
		m.Stop()
		m.Close()
		members[i] = openMember(t, db.URL("postgres"), parseFile(t, text), m.folder, clocks[i].clock())
		members[i].Start(t.Context())
		must(t, members[i].group().readSeen(t.Context()))
	}
	agree("after a restart")
	for i, m := range members {
		bans := 0
		for b, err := range m.state.store.Bans(t.Context(), clocks[i].now(), false) {
			must(t, err)
			bans++
			if length := b.Until.Sub(b.Began); length > 11*time.Minute {
				t.Errorf("member %d: a ban takes %v", i, length)
			}
		}
		if bans != len(members) {
			t.Errorf("member %d: %d bans, want %d", i, bans, len(members))
		}
	}
}

// A forgotten client gets one limit from all members together, whatever their clocks show: also after a restart,
// after a clock was set, and at a member that joins later.
func TestForgottenClientHasOneLimitAtMembersWithWrongClocks(t *testing.T) {
	db, store := pgtest.Start(t), redistest.Start(t)
	text := "store: " + store.URL() + "\nrules: [{name: few, limit: {requests: 5, per: 1h, by: addr}}]\n"
	clocks, members := make([]wrong, 4), []*member(nil)
	join := func(folder string) {
		clock := clocks[len(members)].clock()
		members = append(members, openMember(t, db.URL("postgres"), parseFile(t, text), folder, clock))
	}
	admitted := func() (all []int) {
		for _, m := range members {
			n := 0
			for range 7 {
				v, err := m.Current().Guard.Decide(t.Context(), m.request("203.0.113.1"))
				must(t, err)
				if v.Action == fairshare.Allow {
					n++
				}
				m.Current().Guard.Settle(t.Context(), &v, fairshare.Outcome{})
			}
			all = append(all, n)
		}
		return all
	}
	check := func(what string, want ...int) {
		t.Helper()
		if got := admitted(); !slices.Equal(got, want) {
			t.Errorf("%s: admitted %v, want %v", what, got, want)
		}
	}
	clocks[1].set(time.Hour)
	join(t.TempDir())
	join(t.TempDir())
	check("at first", 5, 0)
	r, err := setup.OpenRegistry(t.Context(), members[1].folder, clocks[1].now, sqlregistry.Options{MustExist: true})
	must(t, err)
	defer r.Close()
	_, err = r.Forget(t.Context(), client(t, "203.0.113.1"), clocks[1].now())
	must(t, err)
	for _, m := range members {
		m.follow(t)
		m.Start(t.Context())
		await(t, "a new limit", func() (fresh bool) {
			must(t, m.Current().Guard.Usage(t.Context(), m.request("203.0.113.1"), m.Now(),
				func(_ *fairshare.Rule, _ *fairshare.Limit, tally fairshare.Tally) { fresh = !tally.Over }))
			return fresh
		})
	}
	check("forgotten", 5, 0)

	clocks[0].set(-2 * time.Hour)
	clocks[2].set(24 * time.Hour)
	join(t.TempDir())
	check("set, and one joins", 0, 0, 0)
	members[1].Stop()
	members[1].Close()
	clocks[3].set(-time.Hour)
	join(members[1].folder)
	members = append(members[:1], members[2:]...)
	check("one restarts", 0, 0, 0)
}

// Lines of a log are judged at their own time. That they are read late says nothing about the clock.
func TestLateLinesAreNotAWrongClock(t *testing.T) {
	db := pgtest.Start(t)
	clock := httpguard.NewClock()
	m := openMember(t, db.URL("postgres"), parseFile(t, "rules: []\n"), t.TempDir(), clock, func(o *Options) {
		o.Now = func() time.Time { return clock.Now().Add(-time.Hour) }
	})
	must(t, m.group().sync(t.Context()))
	m.group().reportClock()
	if lines := m.logged("the clock of this machine"); len(lines) > 0 {
		t.Errorf("lines that are an hour late: %q", lines)
	}
}
