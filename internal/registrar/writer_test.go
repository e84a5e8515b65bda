package registrar_test

import (
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/registrar"
)

func TestClientsAreWrittenBehindTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newFakeStore(), registrar.Options{})
		r.pass("192.0.2.1", 3)
		time.Sleep(6 * time.Second)
		if got := r.store.client("192.0.2.1").Spent.Requests; got != 3 {
			t.Errorf("%d requests are written, want 3", got)
		}
		r.pass("192.0.2.1", 2)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := r.store.client("192.0.2.1").Spent.Requests; got != 5 {
			t.Errorf("%d requests are written at the end, want 5", got)
		}
		r.log.holds(t)
	})
}
