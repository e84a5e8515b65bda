package share

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

// longPolls keeps n requests of 30 s open, each of another network, and counts those without a turn.
func longPolls(t *testing.T, q *Queue, n int) (refused *atomic.Int64) {
	refused = new(atomic.Int64)
	for i := range n {
		req := fairshare.Request{Time: time.Now(), Addr: netip.AddrFrom4([4]byte{10, 1, byte(i), 1}), Path: "/poll"}
		go func() {
			claim := q.Claim(&req)
			turn, err := q.Wait(context.Background(), &claim)
			if err != nil {
				refused.Add(1)
				return
			}
			time.Sleep(30 * time.Second)
			turn.Done()
		}()
	}
	synctest.Wait()
	return refused
}

// page returns how long a page of 20 ms takes, with its wait.
func page(t *testing.T, q *Queue) time.Duration {
	began := time.Now()
	claim := q.Claim(&fairshare.Request{Time: began, Addr: netip.MustParseAddr("192.0.2.1"), Path: "/"})
	turn, err := q.Wait(context.Background(), &claim)
	if err != nil {
		t.Fatalf("a page after %v: %v", time.Since(began), err)
	}
	time.Sleep(20 * time.Millisecond)
	turn.Done()
	return time.Since(began)
}

// Long polls that keep all slots of an upstream with room do not keep other requests out.
func TestLongPollsGetSlotsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Ages: true})
		refused := longPolls(t, q, 30)
		for range 50 { // 5 s
			page(t, q)
			time.Sleep(80 * time.Millisecond)
		}
		if refused.Load() > 0 {
			t.Errorf("%d of 30 long polls got no turn", refused.Load())
		}
		for range 50 {
			if took := page(t, q); took != 20*time.Millisecond {
				t.Errorf("a page waited %v behind long polls", took-20*time.Millisecond)
			}
		}
		if q.Stats().Inside != 30 {
			t.Errorf("%d of 30 long polls are open", q.Stats().Inside)
		}
		time.Sleep(30 * time.Second)
		if q.stalls != nil {
			t.Error("the timer runs although no request waits")
		}
	})
}

// A capacity that an operator has set is not exceeded.
func TestStallsDoNotExceedAFixedCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 4})
		refused := longPolls(t, q, 10)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if refused.Load() != 6 || q.Stats().Inside != 4 {
			t.Errorf("%d refused, %d inside, want 6 and 4", refused.Load(), q.Stats().Inside)
		}
		time.Sleep(time.Minute)
	})
}

// A slot that is kept for readers goes to a new client soon after the readers have gone.
func TestKeptSlotIsGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Ages: true, Capacity: 4})
		q.Known(netip.MustParsePrefix("192.0.2.1/32"), time.Now().Add(-48*time.Hour), time.Now())
		time.Sleep(10 * time.Second) // nothing is calm at the start
		page(t, q)
		longPolls(t, q, 3)
		page(t, q)
		time.Sleep(time.Second)
		began := time.Now()
		claim := q.Claim(&fairshare.Request{Time: began, Addr: netip.MustParseAddr("203.0.113.1"), Path: "/poll"})
		turn, err := q.Wait(context.Background(), &claim)
		if err != nil {
			t.Fatal(err)
		}
		turn.Done()
		if waited := time.Since(began); waited == 0 || waited > 2*time.Second {
			t.Errorf("it waited for %v", waited)
		}
		time.Sleep(time.Minute)
	})
}

// While older clients come, newer ones use the part of all slots that they may have, as soon as there
// are more slots: not only when the next request finishes.
func TestNewSlotsCountBeforeARequestFinishes(t *testing.T) {
	for name, c := range map[string]struct {
		opts         Options
		newer, older int // long polls that keep all slots
		more         func(q *Queue)
	}{
		"a policy with more slots": {Options{Capacity: 4, Ages: true}, 3, 1,
			func(q *Queue) { q.Replace(Options{Capacity: 100, Ages: true}) }},
		"a stalled upstream": {Options{Ages: true}, 28, 4, func(*Queue) { time.Sleep(500 * time.Millisecond) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := New(c.opts)
			q.Known(netip.MustParsePrefix("192.0.2.1/32"), time.Now().Add(-time.Hour), time.Now())
			page(t, q)
			for i := range c.newer {
				take(t, q, netip.AddrFrom4([4]byte{10, 1, byte(i), 1}).String())
			}
			for range c.older {
				take(t, q, "192.0.2.1")
			}
			waiting := waitFor(t.Context(), q, "198.51.100.1")
			c.more(q)
			synctest.Wait()
			if s := q.Stats(); s.Waiting != 0 {
				t.Errorf("%s: %d of %d slots in use, and %d waits", name, s.Inside, s.Capacity, s.Waiting)
			}
			<-waiting
		})
	}
}
