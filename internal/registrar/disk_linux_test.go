package registrar_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/registrar"
	"fairshare/internal/smalldisk"
	"fairshare/sqlregistry"
)

// A real registry is on a disk that is full for ten minutes: it is logged once, no
// request waits, and nothing is lost.
func TestFullDiskLosesNothing(t *testing.T) {
	const size = 4 << 20
	folder := smalldisk.New(t, size)
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlregistry.Open(t.Context(), filepath.Join(folder, "registry.db"), sqlregistry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log := &logged{}
		r := &running{Registrar: registrar.New(registrar.Options{Store: store, Prefix: policy.Client, Log: log.add})}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()

		ballast := filepath.Join(folder, "ballast")
		f, err := os.Create(ballast)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		f.Close()
		const n = 500
		for i := range n {
			r.pass(addr(i*7919), 1)
			r.refuse(addr(i*7919), addr(i*7919))
			r.ban(addr(i * 7919))
		}
		sleep(10 * time.Minute)
		for i := range n {
			r.pass(addr(i*7919), 1)
		}
		begin := time.Now()
		r.Settle(t.Context())
		if took := time.Since(begin); took > 0 {
			t.Errorf("a request waits %v for a full disk", took)
		}
		if s := r.Stats(); !s.Failing || s.QueuedBans == 0 || s.DirtyClients != n || s.WriteErrors < 20 {
			t.Errorf("%+v", s)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		if s := r.Stats(); s.Failing || s.QueuedBans+s.DirtyClients+s.DirtyStories > 0 {
			t.Errorf("after space was freed: %+v", s)
		}
		log.holds(t, "the registry cannot be written: ", "the registry can be written again: 500 clients, 500 stories and ")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		stats, err := store.Stats(t.Context())
		if err != nil || stats.Clients != n || stats.Stories != n || stats.Bans != n {
			t.Errorf("written: %+v, %v", stats, err)
		}
		for i := range n {
			found, err := store.Client(t.Context(), id(addr(i*7919)))
			if err != nil || found == nil || found.Record.Spent.Requests != 3 || found.Record.Spent.Refused != 1 ||
				found.Stories[0].Count != 1 {
				t.Fatalf("%s: %+v, %v", addr(i*7919), found, err)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
