package livepolicy

import (
	"context"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/redislimit/redistest"
	"fairshare/share"
)

// queueMember returns a policy of a group, as serve opens it.
func queueMember(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := New(t.Context(), parseFile(t, text), Options{NoRegistry: true, Clock: httpguard.NewClock(),
		OneUpstream: true, Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		p.Close()
	})
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// await waits until a condition holds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20s", what)
		}
	}
}

// hold lets so many requests in, and returns a function that ends them.
func hold(t *testing.T, q *share.Queue, n int) (end func()) {
	t.Helper()
	claim := q.Claim(&fairshare.Request{Time: time.Now()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	turns := make([]*share.Turn, n)
	for i := range turns {
		c := claim
		turn, err := q.Wait(ctx, &c)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		turns[i] = turn
	}
	return func() {
		for _, turn := range turns {
			turn.Done()
		}
	}
}

func TestMembersHaveOneCapacity(t *testing.T) {
	server := redistest.Start(t)
	text := "store: " + server.URL() + "\nshare: 30\nupstream: http://192.0.2.1:3000\n" +
		"rules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	a, b := queueMember(t, text), queueMember(t, text)
	one, two := a.Current().Share, b.Current().Share
	slots := func() [2]int { return [2]int{one.Stats().Capacity, two.Stats().Capacity} }
	await(t, "half each", func() bool { return slots() == [2]int{15, 15} })

	// A member that needs them gets the slots that the other does not need.
	end := hold(t, one, 29)
	if s := one.Stats(); s.Group.Members != 2 || s.Group.Capacity != 30 || s.Group.Away {
		t.Errorf("%+v", s.Group)
	}
	if n := two.Stats().Capacity; n != 1 {
		t.Errorf("the other member may let %d in", n)
	}
	end()

	// Without the store, each has half.
	server.Stop()
	await(t, "away", func() bool { return one.Stats().Group.Away && two.Stats().Group.Away })
	if got := slots(); got != [2]int{15, 15} {
		t.Errorf("without the store the members have %d slots", got)
	}
	hold(t, one, 15)()
	server.Continue()
	await(t, "back", func() bool { return !one.Stats().Group.Away && !two.Stats().Group.Away })
	hold(t, two, 28)()

	// Both lose the store, and so the leases.
	server.Kill()
	await(t, "away", func() bool { return one.Stats().Group.Away && two.Stats().Group.Away })
	server.Run()
	await(t, "back", func() bool { return !one.Stats().Group.Away && !two.Stats().Group.Away })
	hold(t, one, 28)()

	// A member that ends leaves its slots to the other.
	b.Stop()
	await(t, "all slots", func() bool { return one.Stats().Capacity == 30 })
}

func TestUpstreamsOfTheirOwnAreNotShared(t *testing.T) {
	server := redistest.Start(t)
	own := "store: " + server.URL() + "\nshare: {capacity: 30, shared: false}\nupstream: http://192.0.2.1:3000\n" +
		"rules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	a, b := queueMember(t, own), queueMember(t, own)
	for _, p := range []*Policy{a, b} {
		if s := p.Current().Share.Stats(); s.Capacity != 30 || s.Group.Members != 0 {
			t.Errorf("%+v", s)
		}
	}
	// A reload may change that, both ways.
	together := "store: " + server.URL() + "\nshare: {capacity: 30}\nupstream: http://192.0.2.1:3000\n" +
		"rules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	reload := func(text string) {
		for _, p := range []*Policy{a, b} {
			next, err := p.Prepare(t.Context(), parseFile(t, text))
			if err != nil {
				t.Fatal(err)
			}
			p.Use(t.Context(), next, func() {})
		}
	}
	reload(together)
	await(t, "half each", func() bool {
		return a.Current().Share.Stats().Capacity == 15 && b.Current().Share.Stats().Capacity == 15
	})
	reload(own)
	for _, p := range []*Policy{a, b} {
		if s := p.Current().Share.Stats(); s.Capacity != 30 || s.Group.Members != 0 {
			t.Errorf("%+v", s)
		}
	}
}
