//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairshare/bench/internal/stand"
)

// patience is the longest wait for an answer.
const patience = 30 * time.Second

// counts counts requests by their result.
type counts struct {
	answered, refused, failed int // refused: 429 or 503; failed: any other answer, or none
	took                      []time.Duration
	faults                    map[string]int
}

func (c *counts) sent() int { return c.answered + c.refused + c.failed }

func (c *counts) note(status int, took time.Duration, err error) {
	switch {
	case err == nil && status == http.StatusOK:
		c.answered++
		c.took = append(c.took, took)
	case err == nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
		c.refused++
	default:
		c.failed++
		if c.faults == nil {
			c.faults = map[string]int{}
		}
		what := fmt.Sprint("status ", status)
		if err != nil {
			what = err.Error()
			if op := (*net.OpError)(nil); errors.As(err, &op) {
				what = op.Op + ": " + op.Err.Error()
			}
		}
		c.faults[what]++
	}
}

func (c *counts) add(d *counts) {
	c.answered += d.answered
	c.refused += d.refused
	c.failed += d.failed
	c.took = append(c.took, d.took...)
	for what, n := range d.faults {
		if c.faults == nil {
			c.faults = map[string]int{}
		}
		c.faults[what] += n
	}
}

// quantile returns the q-quantile of the answers' times; 0 without answers.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Clone(took)
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// A person is a polite client. It sends one request a second on average (Poisson) over
// open connections, without waiting for the previous answer, and does not repeat
// refused requests.
type person struct {
	from netip.Addr
	to   string
	path string

	mu   sync.Mutex
	idle []*stand.Caller
}

// An event is one request of a person.
type event struct {
	at     time.Time // when it was sent
	took   time.Duration
	status int
	err    error
}

// polite runs people until ctx is done, waits for all answers, and returns the results.
func polite(ctx context.Context, people []*person, every time.Duration) []event {
	var mu sync.Mutex
	var events []event
	var all sync.WaitGroup
	for i, p := range people {
		random := rand.New(rand.NewPCG(uint64(i), 0)) // the same requests in each run
		all.Go(func() {
			for sleep(ctx, time.Duration(random.ExpFloat64()*float64(every))) {
				all.Go(func() {
					e := p.send()
					mu.Lock()
					events = append(events, e)
					mu.Unlock()
				})
			}
		})
	}
	all.Wait()
	for _, p := range people {
		for _, c := range p.idle {
			c.Close()
		}
		p.idle = nil
	}
	return events
}

func (p *person) send() event {
	p.mu.Lock()
	var c *stand.Caller
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if c == nil {
		c = &stand.Caller{From: p.from, To: p.to}
	}
	at := time.Now()
	answer, err := c.Get(context.Background(), p.path, patience)
	e := event{at, time.Since(at), answer.Status, err}
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	return e
}

// A fleet keeps one request open in each slot, all the time.
type fleet struct {
	slots  []slot
	pause  time.Duration // after a refusal: a random time of 0.5 to 1.5 times this
	hangUp time.Duration // time after which a client disconnects; 0: it waits

	first, networks int // its /24s; 0: too many to compare
}

// A slot sends one request after the other.
type slot struct {
	next  func() netip.Addr // the next client
	fresh bool              // each request comes from another client, on its own connection
	path  string
	jar   *jar // the cookies that it sends and stores; nil: none
}

// run keeps the slots busy until ctx is done. It abandons the requests that are open then
// and does not count them.
func (f *fleet) run(ctx context.Context, to string) *counts {
	total := &counts{}
	var mu sync.Mutex
	var all sync.WaitGroup
	within := patience
	if f.hangUp > 0 {
		within = f.hangUp
	}
	for _, s := range f.slots {
		all.Go(func() {
			var own counts
			c := &stand.Caller{From: s.next(), To: to}
			sleep(ctx, rand.N(50*time.Millisecond)) // not all at the same moment
			for ctx.Err() == nil {
				began := time.Now()
				c.Header = s.jar.header()
				answer, err := c.Get(ctx, s.path, within)
				s.jar.store(answer.Header)
				if ctx.Err() != nil {
					break
				}
				own.note(answer.Status, time.Since(began), err)
				if s.fresh || err != nil {
					c.Close()
				}
				if s.fresh {
					c = &stand.Caller{From: s.next(), To: to}
				}
				hungUp := f.hangUp > 0 && errors.Is(err, os.ErrDeadlineExceeded)
				if err != nil && !hungUp || err == nil && answer.Status != http.StatusOK {
					sleep(ctx, f.pause/2+rand.N(f.pause+1))
				}
			}
			c.Close()
			mu.Lock()
			total.add(&own)
			mu.Unlock()
		})
	}
	all.Wait()
	return total
}

// sleep waits and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
