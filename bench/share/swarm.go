//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"
)

const (
	firstEvery = 200 * time.Millisecond // between two visitors whose first visit falls into a swarm
	readsFor   = 3 * time.Second        // between two pages of a visitor
	atLeast    = 8 * time.Second        // a visitor that had less time is not counted

	quietAt    = 3 << 8  // visitors without a swarm
	visitorsAt = 4 << 8  // the first /24s of visitors, and of the swarms with cookies
	mintersAt  = 12 << 8 // in ten networks
	copiesAt   = 96 << 8 // of swarms that send cookies
)

// A swarmRun is one swarm in front of each rival.
type swarmRun struct {
	name   string
	fleet  func() *fleet
	first  bool // people whose first visit falls into it
	length time.Duration
	serve  bool // only for serve with a share
}

// swarms runs the swarms. All rivals have their default settings.
func (b *bench) swarms(ctx context.Context, rs []rival) error {
	const name = "swarm"
	if !chosen(name, *only) {
		return nil
	}
	for i := range rs {
		r := &rs[i]
		if !chosen(r.name, *rivals) {
			continue
		}
		s, err := b.open(ctx, r, "", nil)
		if err != nil {
			return err
		}
		err = b.swarm(ctx, s, r)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (b *bench) swarm(ctx context.Context, s *stage, r *rival) error {
	fmt.Printf("\n| %s | readers: answered | p50 | p99, ms | times quiet | first page p50 | p99, ms | within 2 s | 5 s |"+
		" later pages p50 | p99, ms | times quiet | upstream busy | most inside | fleet a second |\n|%s\n", r.name, "---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	s.greet(ctx)
	known := 6 * time.Second
	if r.swarms {
		known = *quiet
	}
	alone, pages, err := s.swarmPhase(ctx, known, nil, true, quietAt)
	if err != nil {
		return err
	}
	swarmRow("quiet", alone, pages, nil, nil, known)

	cookies := &jar{swarm: true, most: 1000}
	one := &jar{swarm: true, most: 1}
	strangers, copies, minters := rotating(newAt, *strange), rotating(copiesAt, *strange), rotating(mintersAt, 10)
	fresh := func(open int, next func() netip.Addr, path string, j *jar) func() *fleet {
		return func() *fleet {
			// The more requests are refused, the longer is the pause: otherwise the machine would be busy
			// with refusals only.
			f := &fleet{pause: *pause * time.Duration(1+open/500*4)}
			for range open {
				f.slots = append(f.slots, slot{next: next, fresh: true, path: path, jar: j})
			}
			return f
		}
	}
	minted := fresh(*open, minters, page(*work), cookies)
	runs := []swarmRun{
		{name: "1 addresses never seen", fleet: fresh(*open, strangers, page(*work), nil)},
		{name: "2 the same, first visits", fleet: fresh(*open, strangers, page(*work), nil), first: true,
			length: 2 * *length},
		{name: fmt.Sprintf("2 %d open, first visits", 5**open), first: true, length: 2 * *length,
			fleet: fresh(5**open, strangers, page(*work), nil)},
		{name: "3 copies of one cookie", fleet: fresh(*open, copies, page(*work), one), first: true,
			length: 2 * *length, serve: true},
		{name: "3 minted cookies of ten networks", fleet: minted, first: true, length: 2 * *length, serve: true},
		{name: "3 a thousand of these cookies, older", fleet: fresh(*open, copies, page(*work), cookies),
			first: true, length: 2 * *length, serve: true},
		{name: "4 pages ten times as expensive", fleet: fresh(*open, strangers, page(10**work), nil)},
	}
	for i, run := range runs {
		if run.serve && !r.swarms || !chosen(run.name, *swarm) {
			continue
		}
		if run.length == 0 {
			run.length = *length
		}
		f := run.fleet()
		res, pages, err := s.swarmPhase(ctx, run.length, f, run.first, visitorsAt+256*i)
		if err != nil {
			return err
		}
		swarmRow(run.name, res, pages, alone, f, run.length)
		if run.serve {
			fmt.Fprintf(os.Stderr, "  %d cookies of the swarm\n", len(cookies.pool)+len(one.pool))
		}
	}
	return nil
}

// swarmPhase runs readers, a fleet and visitors at the same time.
func (s *stage) swarmPhase(ctx context.Context, length time.Duration, f *fleet, visits bool, first int) (*result,
	*pageTimes, error) {
	var times pageTimes
	meanwhile := func(during context.Context) {
		if !visits {
			return
		}
		began := time.Now()
		for _, v := range arrivals(during, s.front.Addr, firstEvery, readsFor, first) {
			times.add(v, began.Add(length))
		}
	}
	res, err := s.phase(ctx, length, f, meanwhile)
	return res, &times, err
}

// pageTimes are the times of visitors' pages. A page that did not come counts as an hour.
type pageTimes struct{ first, later []time.Duration }

const never = time.Hour

func (p *pageTimes) add(v *visitor, end time.Time) {
	for i, l := range v.pages {
		if end.Sub(l.began) < atLeast {
			continue
		}
		first, all := l.page, l.all
		if first == 0 {
			first = never
		}
		if all == 0 {
			all = never
		}
		if i == 0 {
			p.first = append(p.first, first)
		} else {
			p.later = append(p.later, all)
		}
	}
}

// within returns the part of the times that are at most that long.
func within(times []time.Duration, most time.Duration) string {
	if len(times) == 0 {
		return ""
	}
	n := 0
	for _, t := range times {
		if t <= most {
			n++
		}
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(len(times)))
}

// quietLater is the p99 of visitors' later pages without a swarm.
var quietLater time.Duration

func swarmRow(name string, res *result, pages *pageTimes, alone *result, f *fleet, length time.Duration) {
	p99 := quantile(res.people.took, 0.99)
	later99 := quantile(pages.later, 0.99)
	times, laterTimes, rate := "", "", ""
	if alone == nil {
		quietLater = later99
	} else {
		times = fmt.Sprintf("%.1f", float64(p99)/float64(quantile(alone.people.took, 0.99)))
		if len(pages.later) > 0 {
			laterTimes = fmt.Sprintf("%.1f", float64(later99)/float64(quietLater))
		}
		rate = fmt.Sprintf("%.0f", float64(res.fleet.answered)/length.Seconds())
	}
	text := func(times []time.Duration, q float64) string {
		switch t := quantile(times, q); {
		case len(times) == 0:
			return ""
		case t == never:
			return "never"
		default:
			return ms(t)
		}
	}
	fmt.Printf("| %s | %d of %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f %% | %d | %s |\n", name,
		res.people.answered, res.people.sent(), ms(quantile(res.people.took, 0.5)), ms(p99), times,
		text(pages.first, 0.5), text(pages.first, 0.99), within(pages.first, 2*time.Second),
		within(pages.first, 5*time.Second), text(pages.later, 0.5), text(pages.later, 0.99), laterTimes, 100*res.busy,
		res.most, rate)
	tellFaults("people", &res.people)
	if f != nil {
		tellFaults("fleet", &res.fleet)
	}
}

// rotating returns the next address of networks in turn.
func rotating(first, networks int) func() netip.Addr {
	sent := make(chan int, 1)
	sent <- 0
	return func() netip.Addr {
		n := <-sent
		sent <- n + 1
		return addrIn(first+n%networks, 1+n/networks%254)
	}
}
