package storebans

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit/redistest"
)

// settle waits until all members have written what they have.
func settle(all ...*member) {
	for _, m := range all {
		for s := m.b.Stats(); s.Waiting > 0 || !s.Shared; s = m.b.Stats() {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(3 * bellWait)
}

// A client is banned again after an operator has lifted its ban, and the new ban is shorter. The store
// may still have the old one: not all that a lift ends at once is dropped there.
func TestABanAfterALiftIsShared(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	all[0].banFor("192.0.2.1", "flood", time.Hour)
	await(t, all, "192.0.2.1 flood")
	time.Sleep(tripTime)
	l := Lift{Client: clientID(t, "192.0.2.1"), At: all[0].now(), Stored: all[0].now()}
	all[0].b.Lifted(l, none) // the old ban stays in the store
	all[0].bans.Lift(l.Client, l.At, nil)
	await(t, all)
	time.Sleep(tripTime)
	all[0].banFor("192.0.2.1", "flood", time.Minute)
	await(t, all, "192.0.2.1 flood")
	await(t, []*member{newMember(t, server.URL(), 0)}, "192.0.2.1 flood")

	// The same while the member was cut off.
	server.Do("FLUSHALL")
	settle(all...)
	old := anotherBan(t, all[1], "192.0.2.2", time.Hour)
	all[0].kill()
	client, err := all[1].store.Client()
	if err == nil {
		err = all[1].b.putAll(t.Context(), client, []entry{old})
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, all[1:], "192.0.2.1 flood", "192.0.2.2 flood")
	time.Sleep(tripTime)
	all[0].lifts = append(all[0].lifts, Lift{Client: clientID(t, "192.0.2.2"), At: all[0].now()})
	time.Sleep(tripTime)
	all[0].banFor("192.0.2.2", "flood", time.Minute)
	all[0].run()
	settle(all...)
	late := newMember(t, server.URL(), 0)
	await(t, append(all, late), "192.0.2.1 flood", "192.0.2.2 flood")
	if left := late.banned()["192.0.2.2 flood"]; left > 70 {
		t.Errorf("the ban before the lift holds: %d s", left)
	}
}

func none() []fairshare.BanRecord { return nil }

func clientID(t *testing.T, text string) fairshare.ClientID {
	t.Helper()
	id, err := fairshare.ParseClientID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// anotherBan returns the entry of a ban that a member could have made.
func anotherBan(t *testing.T, m *member, client string, length time.Duration) entry {
	t.Helper()
	now := m.now()
	e, ok := (&Bans{me: "another"}).banEntry(&fairshare.BanRecord{Client: clientID(t, client), Kind: fairshare.ByAddr,
		Rule: "flood", Number: 1, Began: now, Until: now.Add(length)}, now)
	if !ok {
		t.Fatal(client)
	}
	return e
}

// The store loses one of its keys, as one that evicts any key does.
func TestPartOfTheStoreIsLost(t *testing.T) {
	for _, key := range []string{"records", "order", "ends", "bell"} {
		t.Run(key, func(t *testing.T) {
			server := redistest.Start(t)
			all := group(t, server.URL(), 2)
			all[0].ban("192.0.2.1", "flood")
			await(t, all, "192.0.2.1 flood")
			settle(all...)
			server.Do("DEL", "fs1:shop:{bans}"+key)
			all[1].ban("192.0.2.2", "flood")
			await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
			settle(all...)
			late := newMember(t, server.URL(), 0)
			await(t, []*member{late}, "192.0.2.1 flood", "192.0.2.2 flood")
			if s := late.b.Stats(); s.Unreadable != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A replica takes over that lacks the last changes. Before any member reads from it, one writes as many there.
func TestAReplicaThatLagsTakesOver(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	all[0].ban("192.0.2.1", "flood")
	await(t, all, "192.0.2.1 flood")
	settle(all...)
	keys := slices.Clone(all[0].b.keys)
	for _, key := range all[0].b.keys {
		copied := strings.Replace(key, "shop", "replica", 1)
		server.Do("COPY", key, copied)
		keys = append(keys, copied)
	}
	all[0].ban("192.0.2.2", "flood")
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	settle(all...)
	args := []string{"EVAL", "for i = 5, 8 do redis.call('RENAME', KEYS[i], KEYS[i-4]) end\n" + putScript, "8"}
	args = append(append(args, keys...), "250000", "10000")
	for _, client := range []string{"192.0.2.3", "192.0.2.4"} {
		e := anotherBan(t, all[0], client, time.Hour)
		args = e.args(args, all[0].now())
	}
	server.Do(args...)
	want := []string{"192.0.2.1 flood", "192.0.2.2 flood", "192.0.2.3 flood", "192.0.2.4 flood"}
	await(t, all, want...)
	settle(all...)
	await(t, []*member{newMember(t, server.URL(), 0)}, want...)
}

// Members go on where they were after a store that hangs. They do not compare all bans then, and not while it is away.
func TestStoreHangs(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	all[0].ban("192.0.2.1", "flood")
	await(t, all, "192.0.2.1 flood")
	settle(all...)
	looks := all[0].looks.Load()
	server.Stop()
	all[0].ban("192.0.2.2", "flood")
	for all[0].b.Stats().Shared {
		time.Sleep(time.Millisecond)
	}
	server.Continue()
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	settle(all...)
	server.Kill()
	for all[0].b.Stats().Shared {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(4 * tryAgain)
	if got := all[0].looks.Load(); got != looks {
		t.Errorf("all bans were compared %d times", got-looks)
	}
}

// The clock of the store is set back by an hour: what it has seems to begin in an hour.
func TestClockOfTheStoreIsSetBack(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	all[0].ban("192.0.2.1", "flood")
	all[0].ban("192.0.2.2", "flood")
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	all[1].lift("192.0.2.2")
	await(t, all, "192.0.2.1 flood")
	settle(all...)
	server.Do("EVAL", `local all = redis.call('HGETALL', KEYS[1])
		for i = 1, #all, 2 do
			local kind, began, ends, rest = string.match(all[i + 1], '^(%a+) (%d+) (%d+) (.*)$')
			redis.call('HSET', KEYS[1], all[i], string.format('%s %.0f %.0f ', kind, began + 3600000, ends + 3600000) .. rest)
			redis.call('ZADD', KEYS[2], ends + 3600000, all[i])
		end`, "2", "fs1:shop:{bans}records", "fs1:shop:{bans}ends")
	await(t, []*member{newMember(t, server.URL(), 0)}, "192.0.2.1 flood")
	all[0].ban("192.0.2.2", "flood")
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	all[1].lift("192.0.2.2")
	await(t, all, "192.0.2.1 flood")
	await(t, []*member{newMember(t, server.URL(), 0)}, "192.0.2.1 flood")
}

// The clock of a member was an hour ahead when an operator lifted bans there, and the member starts again with the
// right one. The lift ends none of the bans that began since.
func TestClockOfAMemberIsSetBack(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	all[0].ban("192.0.2.1", "flood")
	await(t, all, "192.0.2.1 flood")
	all[1].kill()
	all[1].lifts = append(all[1].lifts, Lift{Client: clientID(t, "192.0.2.0/24"), At: time.Now().Add(time.Hour)})
	all[1].run()
	settle(all...)
	all[0].ban("192.0.2.2", "flood")
	await(t, all, "192.0.2.1 flood", "192.0.2.2 flood")
	settle(all...)
	await(t, append(all, newMember(t, server.URL(), 0)), "192.0.2.1 flood", "192.0.2.2 flood")
}

// An operator has a client forgotten, and lifts its next ban, too. A member that was away meanwhile learns both.
func TestForgettingIsNotReplacedByALift(t *testing.T) {
	server := redistest.Start(t)
	all := group(t, server.URL(), 2)
	settle(all...)
	all[1].kill()
	at := all[0].now()
	all[0].b.Lifted(Lift{Client: clientID(t, "192.0.2.1"), At: at, Forget: true, Stored: at}, none)
	all[0].lift("192.0.2.1")
	settle(all[0])
	all[1].run()
	settle(all[1])
	all[1].mu.Lock()
	defer all[1].mu.Unlock()
	if got := all[1].lifts; len(got) != 2 || !got[0].Forget || got[1].Forget {
		t.Errorf("%+v", got)
	}
}
