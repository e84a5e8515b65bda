package share

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/share/capacity"
)

func request(addr string, at time.Time) *fairshare.Request {
	return &fairshare.Request{Time: at, Addr: netip.MustParseAddr(addr), Path: "/"}
}

// waitFor waits for a client's turn in another goroutine.
func waitFor(ctx context.Context, q *Queue, addr string) <-chan answer {
	answers := make(chan answer, 1)
	claim := q.Claim(request(addr, time.Now()))
	go func() {
		began := time.Now()
		turn, err := q.Wait(ctx, &claim)
		answers <- answer{turn, err, time.Since(began)}
	}()
	synctest.Wait() // requests arrive in the order of the calls
	return answers
}

type answer struct {
	turn   *Turn
	err    error
	waited time.Duration
}

func TestWaitReturnsAtOnceWithAFreeSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 2})
		first := <-waitFor(t.Context(), q, "192.0.2.1")
		second := <-waitFor(t.Context(), q, "192.0.2.1")
		if first.err != nil || second.err != nil || first.waited+second.waited != 0 {
			t.Fatalf("%+v %+v, want two turns at once", first, second)
		}
		third := waitFor(t.Context(), q, "192.0.2.2")
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

func TestWaitEndsOnHangUpAndOnLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: 3 * time.Second})
		inside := <-waitFor(t.Context(), q, "192.0.2.1")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := waitFor(ctx, q, "192.0.2.2")
		late := waitFor(t.Context(), q, "192.0.2.3")
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
		if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 || s.Classes[0].Gone != 1 || s.Classes[0].Expired != 1 {
			t.Errorf("%+v, want one abandoned and one expired request", s)
		}
	})
}

// An endableContext reports its end to OnEnd, and fails a test that asks for its channel.
type endableContext struct {
	context.Context
	t     *testing.T
	mu    sync.Mutex
	ended bool
	onEnd func()
	off   int // calls of OffEnd
}

func (c *endableContext) Done() <-chan struct{} {
	c.t.Error("Done was called")
	return nil
}

func (c *endableContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return context.Canceled
	}
	return nil
}

func (c *endableContext) OnEnd(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onEnd = f; c.ended {
		c.onEnd = nil
		go f()
	}
	return true
}

func (c *endableContext) OffEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off++
	stopped := c.onEnd != nil
	c.onEnd = nil
	return stopped
}

func (c *endableContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.onEnd != nil {
		go c.onEnd()
		c.onEnd = nil
	}
}

// A context that reports its end without a channel ends a wait as others do: before, during and after it.
func TestWaitEndsWithAnEndableContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: 3 * time.Second})
		for i := range 300 {
			turn := take(t, q, "192.0.2.1")
			ctx := &endableContext{Context: t.Context(), t: t}
			if i%3 == 0 {
				ctx.end()
			}
			one := waitFor(ctx, q, "192.0.2.2")
			two := waitFor(t.Context(), q, "192.0.2.3") // it may use the same waiter later
			switch i % 3 {
			case 1:
				ctx.end()
			case 2:
				turn.Done()
				ctx.end() // about when the turn comes
			}
			got := <-one
			if got.err == nil && i%3 == 2 {
				got.turn.Done()
			} else if got.err != context.Canceled || got.waited != 0 {
				t.Fatalf("%d: %+v", i, got)
			}
			turn.Done()
			if got := <-two; got.err != nil || got.waited != 0 {
				t.Fatalf("%d: %+v, want a turn", i, got)
			} else {
				got.turn.Done()
			}
			if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 || ctx.off != 1 || ctx.onEnd != nil {
				t.Fatalf("%d: %+v, OffEnd %d times", i, s, ctx.off)
			}
		}
	})
}

// take returns a turn that needs no wait.
func take(t *testing.T, q *Queue, addr string) *Turn {
	t.Helper()
	got := <-waitFor(t.Context(), q, addr)
	if got.err != nil || got.waited != 0 {
		t.Fatalf("%+v, want a turn at once", got)
	}
	return got.turn
}

func TestHeadedFreesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1})
		stream := take(t, q, "192.0.2.1")
		next := waitFor(t.Context(), q, "192.0.2.2")
		time.Sleep(2 * time.Second)
		stream.Headed()
		got := <-next
		if got.err != nil || got.waited != 2*time.Second {
			t.Fatalf("%+v, want a turn when the stream has its headers", got)
		}
		time.Sleep(time.Hour)
		got.turn.Done()
		stream.Done() // the slot is already free
		if s := q.Stats(); s.Inside != 0 || s.Classes[0].Turns != 2 {
			t.Errorf("%+v, want no request in progress", s)
		}
		if took := stream.leaf.mean; took != 2e9 {
			t.Errorf("the stream has cost %v, want 2s", time.Duration(took))
		}
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	for _, opts := range []Options{{Capacity: 1, Queue: 2}, {Capacity: 1, Queue: -1}, {Capacity: 1, Wait: -1}} {
		synctest.Test(t, func(t *testing.T) {
			q := New(opts)
			turn := take(t, q, "192.0.2.1")
			var answers []<-chan answer
			for range 2 {
				answers = append(answers, waitFor(t.Context(), q, "192.0.2.2"))
				synctest.Wait()
			}
			third := waitFor(t.Context(), q, "192.0.3.1") // from a network with fewer requests
			synctest.Wait()
			busy := 0
			turn.Done()
			for range 3 {
				var got answer
				select {
				case got = <-answers[0]:
				case got = <-answers[1]:
				case got = <-third:
				}
				var full *Busy
				switch {
				case got.err == nil:
					got.turn.Done()
				case errors.As(got.err, &full) && !full.Waited && full.RetryAfter >= time.Second && got.waited == 0:
					busy++
				default:
					t.Fatalf("%+v", got)
				}
			}
			if want := 3 - max(min(opts.Queue, 2), 0); busy != want || q.Stats().Classes[0].Refused != int64(want) {
				t.Errorf("%+v: %d are refused, want %d; %+v", opts, busy, want, q.Stats())
			}
		})
	}
}

func TestReplaceKeepsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: 10 * time.Second})
		first := take(t, q, "192.0.2.1")
		second := waitFor(t.Context(), q, "192.0.4.2")
		third := waitFor(t.Context(), q, "192.0.3.3")
		synctest.Wait()

		// Other keys, and a shorter wait for new requests.
		q.Replace(Options{Capacity: 1, Wait: time.Second, By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}})
		fourth := waitFor(t.Context(), q, "192.0.2.4")
		if got := <-fourth; got.err == nil || got.waited != time.Second {
			t.Errorf("%+v, want a Busy after 1 s", got)
		}
		if s := q.Stats(); s.Inside != 1 || s.Waiting != 2 {
			t.Fatalf("%+v, want one inside and two waiting", s)
		}

		// More slots.
		q.Replace(Options{Capacity: 2, Wait: time.Second})
		a := <-second
		if a.err != nil || a.waited != time.Second {
			t.Errorf("%+v, want a turn when there is room", a)
		}

		// No queue: waiting requests are refused. Then more slots without a queue.
		q.Replace(Options{Capacity: 1, Queue: -1})
		if got := <-third; got.err == nil || got.waited != time.Second {
			t.Errorf("%+v, want a Busy when the queue is gone", got)
		}
		first.Done()
		if got := <-waitFor(t.Context(), q, "192.0.2.5"); got.err == nil {
			t.Errorf("%+v, want a Busy: one is inside, and one is the capacity", got)
		}
		a.turn.Done()
		take(t, q, "192.0.2.5").Done()
		if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRefuseWaitingRefusesWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1})
		first := take(t, q, "192.0.2.1")
		second, third := waitFor(t.Context(), q, "192.0.3.2"), waitFor(t.Context(), q, "192.0.4.3")
		q.RefuseWaiting()
		for _, got := range []answer{<-second, <-third, <-waitFor(t.Context(), q, "192.0.5.4")} {
			if busy := (*Busy)(nil); !errors.As(got.err, &busy) || busy.Waited || busy.RetryAfter <= 0 ||
				got.waited != 0 {
				t.Errorf("%+v, want a Busy at once", got)
			}
		}
		first.Done()
		take(t, q, "192.0.5.5").Done() // there is a free slot
		if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 || s.Capacity != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestDryRunRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Queue: 2})
		take(t, q, "192.0.2.1")
		waiting := waitFor(t.Context(), q, "192.0.2.1")
		synctest.Wait()
		q.Replace(Options{Capacity: 1, Queue: 2, DryRun: true})
		if got := <-waiting; got.err != nil {
			t.Errorf("%+v, want a turn without a wait", got)
		}
		var turns []*Turn
		for range 4 { // two are in progress: one more would wait, the others would be refused
			turns = append(turns, take(t, q, "192.0.2.1"))
		}
		if s := q.Stats(); s.Inside != 6 || s.Classes[0].Turns != 6 || s.Classes[0].Waited != 2 ||
			s.Classes[0].Refused != 3 {
			t.Errorf("%+v", s)
		}
		for _, turn := range turns {
			turn.Done()
		}
		q.Replace(Options{Capacity: 1, Queue: 2})
		if got := waitFor(t.Context(), q, "192.0.2.1"); len(got) > 0 {
			t.Errorf("a turn while two are inside")
		}
	})
}

func TestTenThousandClientsHangUp(t *testing.T) {
	clients := 10_000
	if raceDetector {
		clients = 2_000
	}
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Queue: clients, By: parts("network", "addr")})
		turn := take(t, q, "192.0.2.1")
		ctx, hangUp := context.WithCancel(t.Context())
		var answers []<-chan answer
		for i := range clients {
			answers = append(answers, waitFor(ctx, q, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).String()))
		}
		stays := waitFor(t.Context(), q, "192.0.2.7")
		synctest.Wait()
		if s := q.Stats(); s.Waiting != clients { // the last request does not fit
			t.Fatalf("%+v", s)
		}
		if got := <-stays; got.err == nil {
			t.Fatalf("%+v, want that the queue is full", got)
		}
		hangUp()
		for _, a := range answers {
			if got := <-a; got.err != context.Canceled {
				t.Fatalf("%+v", got)
			}
		}
		if s := q.Stats(); s.Waiting != 0 || s.Inside != 1 || s.Classes[0].Gone != int64(clients) {
			t.Errorf("%+v", s)
		}
		check(t, q.schedule)
		turn.Done()
		take(t, q, "192.0.2.7").Done()
	})
}

// A client that hangs up at the moment of its turn frees the slot for the next.
func TestHangingUpAtTheTurnFreesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1})
		for range 200 {
			turn := take(t, q, "192.0.2.1")
			ctx, hangUp := context.WithCancel(t.Context())
			gone := waitFor(ctx, q, "192.0.2.2")
			synctest.Wait()
			stays := waitFor(t.Context(), q, "192.0.2.3")
			synctest.Wait()
			turn.Done()
			hangUp()
			if got := <-gone; got.err != context.Canceled {
				if got.err != nil {
					t.Fatalf("%+v", got)
				}
				got.turn.Done() // the turn came first
			}
			if got := <-stays; got.err != nil {
				t.Fatalf("%+v, want a turn", got)
			} else {
				got.turn.Done()
			}
			if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// counted is a capacity that records its samples.
type counted struct {
	slots   int
	samples []capacity.Sample
}

func (c *counted) Slots() int               { return c.slots }
func (c *counted) Workers() int             { return c.slots }
func (c *counted) Sample(s capacity.Sample) { c.samples = append(c.samples, s) }

func TestCapacityLearnsFromEachTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Ages: true})
		found := &counted{slots: 2}
		q.capacity = found
		q.schedule.set(2, 100, false, 0)
		a, b := take(t, q, "192.0.2.1"), take(t, q, "192.0.3.1")
		time.Sleep(time.Second)
		a.Done()
		c := take(t, q, "192.0.2.1")
		waiting := waitFor(t.Context(), q, "192.0.2.1")
		another := waitFor(t.Context(), q, "192.0.2.1")
		time.Sleep(time.Second)
		b.Failed()
		found.slots = 3
		b.Done() // two free slots now
		d, e := <-waiting, <-another
		if d.err != nil || e.err != nil {
			t.Fatalf("%+v %+v, want turns", d, e)
		}
		c.Headed() // adds no sample
		d.turn.Done()
		network := func(addr string) uint64 { c := q.Claim(request(addr, time.Now())); return c.network }
		for i, want := range []capacity.Sample{
			{Network: network("192.0.2.1"), Took: time.Second, Inside: 1, Now: 1e9},
			{Network: network("192.0.3.1"), Took: 2 * time.Second, Inside: 2, Now: 2e9, Waiting: true, Failed: true},
			{Network: network("192.0.2.1"), Inside: 2, Now: 2e9, Waiting: true},
		} {
			got := found.samples[i]
			want.Path, want.Known = got.Path, false
			if got != want || got.Path == 0 {
				t.Errorf("sample %d: %+v, want %+v", i, got, want)
			}
		}
		e.turn.Done()
		if n := len(found.samples); n != 4 {
			t.Errorf("%d samples", n)
		}
	})
}

func TestCapacityIsFoundWithinItsBounds(t *testing.T) {
	q := New(Options{Min: 3, Max: 5})
	if s := q.Stats(); s.Capacity < 3 || s.Capacity > 5 {
		t.Errorf("%+v", s)
	}
	q.Replace(Options{Min: 100, Max: 200})
	if s := q.Stats(); s.Capacity < 100 || s.Capacity > 200 {
		t.Errorf("%+v", s)
	}
	q.Replace(Options{Capacity: 7})
	if s := q.Stats(); s.Capacity != 7 {
		t.Errorf("%+v", s)
	}
}

// When the upstream is busy, known clients are served before many new ones.
func TestOldClientsAreServedBeforeNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 2, Ages: true, Remember: 1024})
		q.Known(netip.MustParsePrefix("192.0.2.1/32"), time.Now().Add(-time.Hour), time.Now())
		a, b := take(t, q, "198.51.100.1"), take(t, q, "198.51.100.2")
		for i := range 100 {
			waitFor(t.Context(), q, netip.AddrFrom4([4]byte{203, 0, byte(i), 1}).String())
		}
		known := waitFor(t.Context(), q, "192.0.2.1")
		synctest.Wait()
		if s := q.Stats(); s.Waiting != 101 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Second)
		a.Done()
		if got := <-known; got.err != nil || got.waited != time.Second {
			t.Fatalf("%+v, want the next turn", got)
		} else {
			got.turn.Done()
		}
		b.Done()
		time.Sleep(time.Minute) // the other requests get their turns
		if s := q.Stats(); s.Classes[newest].Turns != 4 || s.Classes[newest].Expired != 98 || s.Classes[1].Turns != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestLongestWaitCoversTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1})
		turn := take(t, q, "192.0.2.1")
		next := waitFor(t.Context(), q, "192.0.2.1")
		time.Sleep(5 * time.Second)
		turn.Done()
		(<-next).turn.Done()
		for _, c := range []struct{ after, want time.Duration }{{time.Second, 5 * time.Second},
			{time.Minute, 5 * time.Second}, {2 * time.Minute, 0}} {
			time.Sleep(c.after)
			if got := q.Stats().LongestWait; got != c.want {
				t.Errorf("%v later: %v, want %v", c.after, got, c.want)
			}
		}
	})
}

// Concurrent calls, for the race detector.
func TestQueueConcurrently(t *testing.T) {
	q := New(Options{Capacity: 4, Queue: 16, Wait: 5 * time.Millisecond, Ages: true, Remember: 64})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				claim := q.Claim(request(netip.AddrFrom4([4]byte{10, byte(g % 4), byte(g), byte(i % 3)}).String(),
					noon.Add(time.Duration(i)*100*time.Millisecond)))
				if g%4 == 0 {
					go cancel()
				}
				turn, err := q.Wait(ctx, &claim)
				cancel()
				var busy *Busy
				switch {
				case err == nil && i%7 == 0:
					turn.Headed()
				case err == nil:
					go turn.Done()
				case !errors.As(err, &busy) && err != context.Canceled:
					t.Error(err)
				}
				if i%50 == 0 {
					q.Replace(Options{Capacity: 1 + i%3, Queue: 16, Wait: 5 * time.Millisecond,
						Ages: true, DryRun: i%100 == 50})
					q.Known(netip.MustParsePrefix("10.0.0.0/32"), noon, noon)
				}
				q.Stats()
			}
		})
	}
	wg.Wait()
	for q.Stats().Inside > 0 { // turns that end in other goroutines
		runtime.Gosched()
	}
	if s := q.Stats(); s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	check(t, q.schedule)
}

func TestWaitAtMostShortensTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: 5 * time.Second})
		turn := take(t, q, "192.0.2.1")
		for _, c := range []struct{ most, want time.Duration }{
			{2 * time.Second, 2 * time.Second}, {time.Minute, 5 * time.Second}, {0, 0}, {-time.Second, 0},
		} {
			claim := q.Claim(request("192.0.2.2", time.Now()))
			claim.WaitAtMost(c.most)
			began := time.Now()
			_, err := q.Wait(t.Context(), &claim)
			var busy *Busy
			if !errors.As(err, &busy) || !busy.Waited || time.Since(began) != c.want || busy.Expected < time.Second {
				t.Errorf("at most %v: %+v after %v, want a Busy after %v", c.most, err, time.Since(began), c.want)
			}
		}
		turn.Done()
		claim := q.Claim(request("192.0.2.2", time.Now()))
		claim.WaitAtMost(0)
		if turn, err := q.Wait(t.Context(), &claim); err != nil {
			t.Errorf("%v, want the free slot", err)
		} else {
			turn.Done()
		}
	})
}

// In a dry run, fewer slots make no request faster. So a search would say nothing about the upstream.
func TestDryRunDoesNotSearchForTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{DryRun: true})
		var all sync.WaitGroup
		for i := range 60 { // at an upstream with room for all
			all.Go(func() {
				for range 1000 {
					claim := q.Claim(request(netip.AddrFrom4([4]byte{192, 0, byte(i), 1}).String(), time.Now()))
					turn, err := q.Wait(t.Context(), &claim)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(20+i%5) * time.Millisecond)
					turn.Done()
				}
			})
		}
		all.Wait()
		if s := q.Stats(); s.Capacity != capacity.Start {
			t.Errorf("%d slots, want the %d of the start", s.Capacity, capacity.Start)
		}
	})
}

func TestIsBusyWhileRequestsWaitAndAFewSecondsLater(t *testing.T) {
	for _, dry := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := New(Options{Capacity: 1, Wait: time.Minute, DryRun: dry})
			first := take(t, q, "192.0.2.1")
			if q.IsBusy() {
				t.Error("busy though nothing waits")
			}
			second := waitFor(t.Context(), q, "192.0.2.2")
			time.Sleep(30 * time.Second) // without any event
			if q.IsBusy() == dry {       // in dry run it has begun at once
				t.Errorf("dry run %v: busy is %v", dry, !dry)
			}
			first.Done()
			turn := (<-second).turn
			if !dry {
				time.Sleep(4 * time.Second)
				if !q.IsBusy() {
					t.Error("not busy 4 s after a request waited")
				}
				time.Sleep(time.Second)
			}
			if q.IsBusy() {
				t.Error("still busy after 5 s")
			}
			turn.Done()
			if got := q.busyUntil.Load(); got != 0 {
				t.Errorf("busy until %v", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, DryRun: true})
		first, second := take(t, q, "192.0.2.1"), take(t, q, "192.0.2.2")
		if !q.IsBusy() {
			t.Error("dry run: not busy though a request would have waited")
		}
		first.Done()
		second.Done()
	})
}

// Visitors and other clients share an address that is known for longer than the visitors' cookies. Whichever
// always has requests that wait, the others get turns.
func TestVisitorsAndOthersShareAnAddress(t *testing.T) {
	for name, greedyVisitor := range map[string]bool{"greedy visitor": true, "greedy others": false} {
		synctest.Test(t, func(t *testing.T) {
			q := New(Options{Capacity: 1, Queue: 8, Ages: true})
			q.Known(netip.MustParsePrefix("192.0.2.1/32"), time.Now().Add(-2*time.Hour), time.Now())
			began := time.Now()
			load := func(asVisitor bool) (waited time.Duration, err error) {
				req := request("192.0.2.1", time.Now())
				if asVisitor {
					req.Visitor = fairshare.Visitor{ID: 7, Network: 7, Wider: 7, Since: began}
				}
				claim := q.Claim(req)
				turn, err := q.Wait(t.Context(), &claim)
				if err != nil {
					return 0, err
				}
				time.Sleep(100 * time.Millisecond)
				turn.Done()
				return turn.Waited(), nil
			}
			var all sync.WaitGroup
			for range 9 { // as many as there is room for
				all.Go(func() {
					for time.Since(began) < 20*time.Second {
						if _, err := load(greedyVisitor); err != nil {
							time.Sleep(time.Second)
						}
					}
				})
			}
			time.Sleep(5 * time.Second)
			for range 10 {
				if waited, err := load(!greedyVisitor); err != nil || waited > time.Second {
					t.Errorf("%s: %v after %v, want a turn soon", name, err, waited)
				}
			}
			all.Wait()
		})
	}
}

// A claim that is used again, against its documentation, gives a turn of its own.
func TestClaimUsedTwice(t *testing.T) {
	q := New(Options{Capacity: 2, Wait: -1})
	claim := q.Claim(request("192.0.2.1", time.Now()))
	first, err := q.Wait(t.Context(), &claim)
	if err != nil {
		t.Fatal(err)
	}
	second, err := q.Wait(t.Context(), &claim)
	if err != nil || first == second || q.Stats().Inside != 2 {
		t.Fatal(err, q.Stats())
	}
	second.Done()
	first.Done()
	if inside := q.Stats().Inside; inside != 0 {
		t.Error(inside)
	}
}
