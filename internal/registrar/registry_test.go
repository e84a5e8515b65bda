package registrar_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A real registry is also written by operators.
func TestRealRegistry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		open := func() *sqlregistry.Registry {
			r, err := sqlregistry.Open(ctx, path, sqlregistry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		bans := func(r *sqlregistry.Registry) (all []string) {
			for b, err := range r.Bans(ctx, time.Now(), true) {
				check(err)
				all = append(all, fmt.Sprintf("%s %d", b.Client, b.Number))
			}
			return all
		}
		operator := open()
		defer operator.Close()
		a := netip.MustParseAddr("192.0.2.1")
		begin := time.Now()

		// After a restart, counts are added to those from before.
		for start := range 2 {
			store := open()
			log := &logged{}
			var lifted []string
			g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client, Log: log.add,
				Lift: func(id fairshare.ClientID, at time.Time) { lifted = append(lifted, id.String()) }})
			check(g.Start(ctx))
			running, stop := context.WithCancel(ctx)
			ended := make(chan error)
			go func() { ended <- g.Run(running) }()

			for range 10 {
				g.Passed(registrar.Request{Addr: a, At: time.Now(), UserAgent: "browser", Took: time.Millisecond,
					Errors: 1})
				g.Refused(registrar.Refusal{
					Request: registrar.Request{Addr: a, At: time.Now(), UserAgent: "browser"},
					Story: registry.Story{ID: "0123456789", Rule: "rapid", Action: fairshare.Refuse, Status: 429,
						Method: "GET", Host: "example.org", Path: "/x"},
				})
			}
			g.Banned(fairshare.BanRecord{Client: id("192.0.2.1"), Rule: "rapid", Kind: fairshare.ByAddr,
				Number: start + 1, Began: time.Now(), Until: time.Now().Add(time.Hour)})
			g.Settle(ctx)
			if got, want := fmt.Sprint(bans(operator)), fmt.Sprintf("[192.0.2.1 %d]", start+1); got != want {
				t.Errorf("start %d: after Settle the bans are %s, want %s", start, got, want)
			}
			sleep(200 * time.Millisecond)
			if stories, err := operator.Story(ctx, "0123456789"); err != nil || len(stories) != 1 ||
				stories[0].Count != int64(10*start+10) || !stories[0].First.Equal(begin) {
				t.Errorf("start %d: stories %+v, %v", start, stories, err)
			}

			check(operator.SetOverride(ctx, registry.OverrideRecord{Client: id("198.51.100.0/24"),
				Action: fairshare.Refuse,
				Since:  time.Now(), Until: time.Now().Add(time.Minute)}))
			check(operator.Label(ctx, registry.Label{Client: id("192.0.2.1"), Name: "good-partner"}))
			sleep(time.Second)
			if o := g.Override(netip.MustParseAddr("198.51.100.7"), fairshare.Bot{},
				time.Now()); o.Action != fairshare.Refuse || o.Wait <= 0 {
				t.Errorf("start %d: %+v", start, o)
			}
			if o := g.Override(a, fairshare.Bot{}, time.Now()); fmt.Sprint(o.Labels) != "[good-partner]" {
				t.Errorf("start %d: %+v", start, o)
			}
			if start == 1 {
				_, err := operator.Lift(ctx, id("192.0.2.0/24"), time.Now())
				check(err)
				sleep(time.Second)
				if len(lifted) != 1 || len(bans(operator)) != 0 {
					t.Errorf("lifted %q; bans %q", lifted, bans(operator))
				}
			}
			stop()
			check(<-ended)
			found, err := operator.Client(ctx, id("192.0.2.1"))
			check(err)
			n := int64(start + 1)
			if want := (registry.Spent{Requests: 20 * n, Refused: 10 * n,
				Time: time.Duration(n) * 10 * time.Millisecond, Errors: 10 * n}); found == nil ||
				found.Record.Spent != want || !found.Record.FirstSeen.Equal(begin) {
				t.Errorf("start %d: %+v, want %+v", start, found, want)
			}
			log.holds(t)
			check(store.Close())
		}
	})
}
