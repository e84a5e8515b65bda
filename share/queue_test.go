package share

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

func request(addr string, at time.Time) *fairshare.Request {
	return &fairshare.Request{Time: at, Addr: netip.MustParseAddr(addr), Path: "/"}
}

// ask has a client wait for its turn in a goroutine of its own.
func ask(ctx context.Context, q *Queue, addr string) <-chan answer {
	answers := make(chan answer, 1)
	claim := q.Claim(request(addr, time.Now()))
	go func() {
		began := time.Now()
		turn, err := q.Wait(ctx, &claim)
		answers <- answer{turn, err, time.Since(began)}
	}()
	return answers
}

type answer struct {
	turn   *Turn
	err    error
	waited time.Duration
}

func TestWaitGivesATurnAtOnceWhileThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 2})
		first := <-ask(t.Context(), q, "192.0.2.1")
		second := <-ask(t.Context(), q, "192.0.2.1")
		if first.err != nil || second.err != nil || first.waited+second.waited != 0 {
			t.Fatalf("%+v %+v, want two turns at once", first, second)
		}
		third := ask(t.Context(), q, "192.0.2.2")
		synctest.Wait()
		if s := q.Stats(); s.Inside != 2 || s.Waiting != 1 {
			t.Fatalf("%+v, want two inside and one waiting", s)
		}
		time.Sleep(time.Second)
		second.turn.Done()
		second.turn.Done() // counts once
		if got := <-third; got.err != nil || got.waited != time.Second {
			t.Fatalf("%+v, want a turn after a second", got)
		}
		if s := q.Stats(); s.Inside != 2 || s.Waiting != 0 || s.LongestWait != time.Second {
			t.Errorf("%+v, want two inside, and a longest wait of a second", s)
		}
	})
}

func TestWaitEndsWithTheClientAndWithTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: 3 * time.Second})
		inside := <-ask(t.Context(), q, "192.0.2.1")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := ask(ctx, q, "192.0.2.2")
		late := ask(t.Context(), q, "192.0.2.3")
		synctest.Wait()
		hangUp()
		if got := <-gone; got.err != context.Canceled {
			t.Errorf("%+v, want that the client is gone", got)
		}
		got := <-late
		var busy *Busy
		if !errors.As(got.err, &busy) || !busy.Waited || busy.RetryAfter < time.Second || got.waited != 3*time.Second {
			t.Errorf("%+v, want a Busy after 3 s", got)
		}
		inside.turn.Done()
		if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 || s.Standing.Left != 1 || s.Standing.Expired != 1 {
			t.Errorf("%+v, want one who left and one who waited too long", s)
		}
	})
}
