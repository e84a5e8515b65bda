//go:build unix

package livepolicy

import (
	"context"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/setup"
	"fairshare/policyfile"
	"fairshare/redislimit/redistest"
)

const banningText = "rules: [{name: flood, limit: {requests: 3, per: 1m}, ban: {after: 2, for: 10m}}]\n"

// A banMember is a member of a group without a shared registry. The journal of member has its lines.
func banMember(t *testing.T, text, folder string) *member {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m := openMember(t, "", file, folder, httpguard.NewClock())
	m.Start(t.Context())
	return m
}

// isBanned reports whether a ban of the client is in force.
func (m *member) isBanned(addr string) (banned bool) {
	m.bansInForce(func(ban fairshare.BanRecord) { banned = banned || ban.Client.String() == addr })
	return banned
}

// ban sends requests until the client is banned.
func (m *member) ban(t *testing.T, addr string) {
	t.Helper()
	for range 10 {
		_, err := m.Current().Guard.Decide(context.Background(), m.request(addr))
		must(t, err)
	}
	if !m.isBanned(addr) {
		t.Fatal("not banned")
	}
}

func TestMembersShareBansThroughTheStore(t *testing.T) {
	server := redistest.Start(t)
	text := "store: " + server.URL() + "\n" + banningText
	all := []*member{banMember(t, text, t.TempDir()), banMember(t, text, t.TempDir())}
	folder := t.TempDir()
	third := banMember(t, text, folder)
	all = append(all, third)
	everywhere := func(addr string, want bool) func() bool {
		return func() bool {
			for _, m := range all {
				if m.isBanned(addr) != want {
					return false
				}
			}
			return true
		}
	}
	all[0].ban(t, "192.0.2.1")
	await(t, "banned everywhere", everywhere("192.0.2.1", true))
	await(t, "written at another member", func() bool {
		for b, err := range third.state.store.Bans(t.Context(), third.Wall(third.Now()), true) {
			if must(t, err); b.Client.String() == "192.0.2.1" && b.Rule == "flood" && b.Number == 1 {
				return true
			}
		}
		return false
	})

	// An operator lifts it at one machine, some time later.
	time.Sleep(300 * time.Millisecond)
	own, err := all[1].state.store.own().writing(t.Context())
	must(t, err)
	_, err = own.Lift(t.Context(), client(t, "192.0.2.1"), all[1].Wall(all[1].Now()))
	must(t, err)
	await(t, "lifted everywhere", everywhere("192.0.2.1", false))
	for _, m := range all {
		await(t, "the lift is recorded", func() bool {
			lifted, err := m.state.store.own().Lifted(t.Context(), m.Wall(m.Now()).Add(-time.Hour))
			must(t, err)
			return len(lifted) == 1 && lifted[0].Client.String() == "192.0.2.1"
		})
	}

	// A member that was away while a ban was made, and one was lifted, knows both after its start.
	all[0].ban(t, "192.0.2.7")
	await(t, "banned everywhere", everywhere("192.0.2.7", true))
	third.Stop()
	third.Close()
	time.Sleep(300 * time.Millisecond)
	all = all[:2]
	own, err = all[0].state.store.own().writing(t.Context())
	must(t, err)
	_, err = own.Lift(t.Context(), client(t, "192.0.2.7"), all[0].Wall(all[0].Now()))
	must(t, err)
	all[1].ban(t, "192.0.2.8")
	await(t, "lifted everywhere", everywhere("192.0.2.7", false))
	all = append(all, banMember(t, text, folder))
	await(t, "lifted everywhere", everywhere("192.0.2.7", false))
	await(t, "banned everywhere", everywhere("192.0.2.8", true))

	// The store loses all. A new member learns the bans from the others.
	server.Do("FLUSHALL")
	all = append(all, banMember(t, text, t.TempDir()))
	await(t, "banned everywhere", everywhere("192.0.2.8", true))
	for _, m := range all {
		await(t, "the ban is in the store again", func() bool {
			shared := m.Figures().Shared
			return shared.Shared && shared.Unreadable == 0 && shared.Stored >= 1
		})
		if lines := m.logged("group: ban"); len(lines) > 0 {
			t.Error(lines)
		}
	}
}

// Bans that a dry run would have made stay at the member that tries the policy.
func TestDryRunIsNotShared(t *testing.T) {
	server := redistest.Start(t)
	text := "store: " + server.URL() + "\n" + banningText
	trial, real := banMember(t, "dry_run: true\n"+text, t.TempDir()), banMember(t, text, t.TempDir())
	for range 10 {
		_, err := trial.Current().Guard.Decide(context.Background(), trial.request("192.0.2.1"))
		must(t, err)
	}
	real.ban(t, "192.0.2.2")
	await(t, "the ban is shared", func() bool { return trial.bans.Len() == 2 })
	if n := real.bans.Len(); n != 1 {
		t.Errorf("%d bans, want 1", n)
	}
}
