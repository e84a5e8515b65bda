//go:build linux

package main

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"time"

	"fairshare/bench/internal/stand"
)

// A stage is an upstream, the program in front of it, and its people.
type stage struct {
	site   *site
	front  *stand.Process
	people []*person

	dir    string   // for the files of the front
	more   string   // added to its policy
	socket *os.File // passed to it; nil: it opens its own
}

// result holds the results of a phase on a stage.
type result struct {
	began  time.Time
	events []event // of the people
	people counts
	fleet  counts
	busy   float64 // part of all workers' time, without the first half second
	rate   float64 // answers of the upstream a second
	most   int64   // requests inside the upstream at once
	spent  map[netip.Addr]served
}

// settling is the time that a fleet needs to open all its requests.
const settling = 500 * time.Millisecond

// phase runs people, and a fleet if there is one, for some time. The function meanwhile
// runs at the same time.
func (s *stage) phase(ctx context.Context, length time.Duration, f *fleet, meanwhile func(context.Context)) (*result,
	error) {
	for _, p := range s.people {
		p.to = s.front.Addr
	}
	during, stop := context.WithTimeout(ctx, length)
	defer stop()
	res := &result{began: time.Now()}
	var all sync.WaitGroup
	all.Go(func() { res.events = polite(during, s.people, *every) })
	if f != nil {
		all.Go(func() { res.fleet = *f.run(during, s.front.Addr) })
	}
	if meanwhile != nil {
		all.Go(func() { meanwhile(during) })
	}
	sleep(during, settling)
	from, err := s.site.state(true)
	if err != nil {
		return nil, err
	}
	sleep(during, time.Until(from.At.Add(length-settling-50*time.Millisecond)))
	to, err := s.site.state(true)
	if err != nil {
		return nil, err
	}
	all.Wait()
	for _, e := range res.events {
		res.people.note(e.status, e.took, e.err)
	}
	took := to.At.Sub(from.At)
	res.busy = float64(to.Busy-from.Busy) / float64(took) / float64(*workers)
	res.most = to.Most
	res.spent = map[netip.Addr]served{}
	answers := int64(0)
	for addr, c := range to.Clients {
		before := from.Clients[addr]
		if c.Answers > before.Answers {
			res.spent[addr] = served{c.Answers - before.Answers, c.Took - before.Took}
			answers += c.Answers - before.Answers
		}
	}
	res.rate = float64(answers) / took.Seconds()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return res, s.drain(ctx)
}

// drain waits until the upstream has nothing to do.
func (s *stage) drain(ctx context.Context) error {
	for range 300 {
		st, err := s.site.state(false)
		if err != nil {
			return err
		}
		if st.Inside == 0 {
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
	}
	return nil
}

// greet sends one request of each person, so that all of them were seen.
func (s *stage) greet(ctx context.Context) {
	for _, p := range s.people {
		p.to = s.front.Addr
		p.send()
	}
}

func (s *stage) stop() {
	s.front.Stop()
	s.site.Stop()
}

// jain returns Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all values are
// equal, 1/n if one of n has everything.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// networkOf returns the number of an address's /24 below 127.0.0.0/8.
func networkOf(addr netip.Addr) int {
	b := addr.As4()
	return int(b[1])<<8 | int(b[2])
}

// byNetwork returns the upstream's time of n networks, beginning with first.
func (r *result) byNetwork(first, n int) []float64 {
	shares := make([]float64, n)
	for addr, c := range r.spent {
		if i := networkOf(addr) - first; i >= 0 && i < n {
			shares[i] += c.Took.Seconds()
		}
	}
	return shares
}
