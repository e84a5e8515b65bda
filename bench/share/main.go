//go:build linux

// Share measures the response times of people at a busy upstream, with fairshare in
// front of it and without. All clients have real addresses of 127.0.0.0/8; some of them
// send requests all the time.
//
//	go run ./share            # in bench/; builds fairshare from the module above
//
// The upstream has 8 workers of 20 ms. Each processes one request at a time; other
// requests wait in order of arrival. Twenty people send one request a second on average
// (Poisson), each from its own /24. They do not wait for the previous answer. They are
// known for some seconds when a fleet arrives. The fleet keeps 400 requests open; after
// a refusal (429, 503) it pauses for 50 to 150 ms. People's times are measured by the
// clients, the upstream's load by the upstream.
//
// Each row is a run of some seconds with new processes. -only selects runs by a part of
// their name, -rivals the programs in front of the upstream.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fairshare/bench/internal/stand"
)

var (
	workers  = flag.Int("workers", 8, "workers of the upstream")
	work     = flag.Duration("work", 20*time.Millisecond, "time that a request takes a worker")
	capacity = flag.Int("capacity", 0, "capacity of share; 0: the number of workers")
	persons  = flag.Int("people", 20, "polite clients")
	every    = flag.Duration("every", time.Second, "mean time between two requests of one of them")
	split    = flag.String("split", "50,50,50,50", "addresses of the fleet in each of its networks")
	uneven   = flag.String("uneven", "170,20,8,2", "the same in a further run")
	open     = flag.Int("open", 400, "requests that the fleet keeps open")
	strange  = flag.Int("networks", 2000, "networks of the clients that are new in each request")
	crowd    = flag.Int("crowd", 10_000, "addresses that arrive at once, in a hundredth as many networks, at least one")
	pause    = flag.Duration("pause", 100*time.Millisecond,
		"after a refusal, before the next request: half to one and a half of it")
	expensive = flag.Duration("expensive", 400*time.Millisecond,
		"time of an expensive page; a cheap one takes a hundredth of it")
	slowdown  = flag.Int("slower", 4, "factor on all times, in the run where the upstream slows down")
	quiet     = flag.Duration("quiet", 30*time.Second, "time that people have been reading when a swarm comes")
	swarm     = flag.String("swarm", "", "swarms whose name contains this")
	length    = flag.Duration("length", 8*time.Second, "length of a run")
	only      = flag.String("only", "", "runs whose name contains this")
	rivals    = flag.String("rivals", "", "programs in front of the upstream whose name contains this")
	program   = flag.String("fairshare", "", "the program; without it, it is built")
	keepFiles = flag.Bool("keep", false, "keep the folder with policies and logs, and print its path")
	verbose   = flag.Bool("v", false, "print when people sent the requests with the slowest answers")
	role      = flag.String("role", "", "the role of a child process: upstream, middleware")

	upstreamAt = flag.String("upstream", "", "for the child")
)

func main() {
	flag.Parse()
	if *role == "upstream" {
		log.Fatal(serveUpstream(*workers))
	}
	if *role == "middleware" {
		log.Fatal(serveMiddleware(*upstreamAt, *capacity))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx); err != nil {
		log.Fatal(err)
	}
}

// A bench holds the values that all runs need.
type bench struct {
	dir, fairshare string
	stages         int
	headed         bool
}

func measure(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fairshare-share")
	if err != nil {
		return err
	}
	if *keepFiles {
		fmt.Fprintln(os.Stderr, "policies and logs:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	b := &bench{dir: dir, fairshare: *program}
	if b.fairshare == "" {
		if b.fairshare, err = stand.Build(ctx, dir); err != nil {
			return err
		}
	}
	if *capacity == 0 {
		*capacity = *workers
	}
	known := *length + time.Second // fleets are new in one run, and known in the next
	shared := func(capacity string) string {
		return fmt.Sprintf("{capacity: %s, by: [network, addr], wait: 10s, queue: 1024}", capacity)
	}
	fixed := rival{name: fmt.Sprintf("share, capacity %d", *capacity), share: shared(strconv.Itoa(*capacity))}
	auto := rival{name: "share, capacity auto", share: shared("auto")}
	inside := rival{name: fmt.Sprintf("middleware, capacity %d", *capacity), inside: true}
	all := []rival{
		{name: "nginx", nginx: plainNginx},
		{name: "nginx, limit_req, limit_conn", nginx: limitedNginx},
		{name: "serve without share", share: "none"},
		fixed, auto, inside,
	}
	mine := []rival{fixed, auto}
	without := rival{name: "serve, share: none", share: "none"}
	byDefault := rival{name: "serve by default", byDefault: true, swarms: true}
	nobody := rival{name: fixed.name + ", no ages", share: strings.Replace(fixed.share, "}", ", known_after: 0s}", 1)}

	fmt.Printf("%d workers of %v; %d people, one request each in %v; fleets with %d requests open; each run %v\n\n",
		*workers, *work, *persons, *every, *open, *length)
	fleets := []run{
		{name: "1 a fleet, new", fleet: splitFleet(*split, fleetAt)},
		{name: "1 a fleet, known", fleet: splitFleet(*split, fleetAt), later: known + time.Second - *length},
		{name: "1 a fleet of " + *uneven, fleet: splitFleet(*uneven, fleetAt+16)},
		{name: "2 never seen", fleet: newClients()},
	}
	steps := []func() error{
		func() error { return b.table(ctx, all, known, "", nil, fleets...) },
		func() error {
			return b.table(ctx, []rival{nobody}, known, "", nil,
				run{name: "a fleet, people are new too", fleet: splitFleet(*split, fleetAt)},
				run{name: "never seen, people are new too", fleet: newClients()})
		},
		func() error {
			return b.table(ctx, mine, known, "", nil, run{name: fmt.Sprintf("a fleet that hangs up after %v",
				5**work), fleet: hangingUp})
		},
		func() error {
			more := fmt.Sprintf("bounds: {connections: %d}\n", *crowd+1000)
			run := run{name: fmt.Sprintf("%d addresses at once", *crowd), fleet: manyAddresses, burst: true}
			return b.table(ctx, []rival{all[0], fixed, auto}, known, more, nil, run)
		},
		func() error {
			return b.table(ctx, mine, known, "", nil, run{name: "reloads", fleet: splitFleet(*split, fleetAt),
				meanwhile: reloads})
		},
		func() error {
			socket, err := listenHere()
			if err != nil {
				return err
			}
			defer socket.Close()
			return b.table(ctx, mine, known, "", socket,
				run{name: "a restart", fleet: splitFleet(*split, fleetAt), meanwhile: restart})
		},
		func() error { return b.swarms(ctx, []rival{all[0], all[1], without, byDefault}) },
		func() error { return b.costs(ctx, []rival{all[0], all[2], fixed, inside}) },
		func() error { return b.slows(ctx, mine) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	b.commands(append(all, nobody, without, byDefault))
	return nil
}

// A run is one row for each rival.
type run struct {
	name      string
	fleet     func() *fleet
	later     time.Duration // a pause before
	burst     bool          // the first second is reported separately: all connections are opened then
	meanwhile func(*bench, *stage, *rival) func(context.Context)
}

func chosen(name, by string) bool { return strings.Contains(name, by) }

// open starts a stage. serve listens on socket unless it is nil.
func (b *bench) open(ctx context.Context, r *rival, more string, socket *os.File) (*stage, error) {
	b.stages++
	dir := filepath.Join(b.dir, fmt.Sprint(b.stages))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	site, err := startSite(dir, *workers)
	if err != nil {
		return nil, err
	}
	s := &stage{site: site, dir: dir, more: more, socket: socket}
	if s.front, err = b.front(ctx, s, r); err != nil {
		site.Stop()
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	for i := range *persons {
		s.people = append(s.people, &person{from: addrIn(peopleAt+i, 10), path: page(*work)})
	}
	return s, nil
}

func page(d time.Duration) string { return "/takes/" + d.String() }

// table runs the chosen runs on one stage for each rival, and prints the rows.
func (b *bench) table(ctx context.Context, rs []rival, known time.Duration, more string, socket *os.File,
	runs ...run) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return !chosen(r.name, *only) })
	if len(runs) == 0 {
		return nil
	}
	for i := range rs {
		r := &rs[i]
		if !chosen(r.name, *rivals) {
			continue
		}
		s, err := b.open(ctx, r, more, socket)
		if err != nil {
			return err
		}
		err = b.rows(ctx, s, r, known, runs)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (b *bench) rows(ctx context.Context, s *stage, r *rival, known time.Duration, runs []run) error {
	s.greet(ctx)
	alone, err := s.phase(ctx, known, nil, nil)
	if err != nil {
		return err
	}
	if !b.headed {
		b.headed = true
		fmt.Println(
			"| run | in front of the upstream | requests of people | answered | p50 ms | p99 ms | p99, times alone | upstream busy | answers a second | fleet's networks, Jain | fleet refused a second |\n|---|---|---|---|---|---|---|---|---|---|---|")
	}
	row("people alone", r, alone, nil, nil)
	for _, run := range runs {
		sleep(ctx, run.later)
		f := run.fleet()
		var meanwhile func(context.Context)
		if run.meanwhile != nil {
			meanwhile = run.meanwhile(b, s, r)
		}
		res, err := s.phase(ctx, *length, f, meanwhile)
		if err != nil {
			return err
		}
		row(run.name, r, res, alone, f)
		if run.burst {
			res.people = counts{}
			for _, e := range res.events {
				if e.at.Sub(res.began) > time.Second {
					res.people.note(e.status, e.took, e.err)
				}
			}
			row(run.name+", but for the first second", r, res, alone, f)
		}
	}
	return nil
}

func row(name string, r *rival, res, alone *result, f *fleet) {
	p50, p99 := quantile(res.people.took, 0.5), quantile(res.people.took, 0.99)
	times, fair, refused := "", "", ""
	if alone != nil {
		times = fmt.Sprintf("%.1f", float64(p99)/float64(quantile(alone.people.took, 0.99)))
		refused = fmt.Sprintf("%.0f", float64(res.fleet.refused)/length.Seconds())
		if f.networks > 0 {
			fair = fmt.Sprintf("%.3f", jain(res.byNetwork(f.first, f.networks)))
		}
	}
	fmt.Printf("| %s | %s | %d | %d | %s | %s | %s | %.1f %% | %.0f | %s | %s |\n", name, r.name, res.people.sent(),
		res.people.answered,
		ms(p50), ms(p99), times, 100*res.busy, res.rate, fair, refused)
	if *verbose {
		printSlowest(res)
	}
	tellFaults("people", &res.people)
	if f != nil && f.hangUp == 0 {
		tellFaults("fleet", &res.fleet)
	}
	if f != nil && f.hangUp > 0 {
		fmt.Fprintf(os.Stderr, "  fleet: sent %d, disconnected %d, answered %d\n", res.fleet.sent(), res.fleet.failed,
			res.fleet.answered)
	}
}

// printSlowest prints when people sent the requests with the slowest answers.
func printSlowest(res *result) {
	slowest := slices.Clone(res.events)
	slices.SortFunc(slowest, func(a, b event) int { return cmp.Compare(b.took, a.took) })
	for _, e := range slowest[:min(8, len(slowest))] {
		fmt.Fprintf(os.Stderr, "  %.2f s: %s ms", e.at.Sub(res.began).Seconds(), ms(e.took))
	}
	fmt.Fprintln(os.Stderr)
}

func tellFaults(who string, c *counts) {
	if c.failed == 0 && (who == "fleet" || c.refused == 0) {
		return
	}
	fmt.Fprintf(os.Stderr, "  %s: sent %d, answered %d, refused %d, failed %d", who, c.sent(), c.answered,
		c.refused, c.failed)
	for _, what := range slices.Sorted(maps.Keys(c.faults)) {
		fmt.Fprintf(os.Stderr, "; %d: %s", c.faults[what], what)
	}
	fmt.Fprintln(os.Stderr)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// splitFleet returns fleets with that many addresses in each network; their requests are
// divided among these. first is the first network.
func splitFleet(split string, first int) func() *fleet {
	f := fleet{pause: *pause, first: first}
	var addrs []netip.Addr
	for network, n := range strings.Split(split, ",") {
		many, err := strconv.Atoi(n)
		if err != nil || many < 1 || many > 254 {
			log.Fatalf("addresses in a network: %q is not between 1 and 254", n)
		}
		for host := range many {
			addrs = append(addrs, addrIn(first+network, host+1))
		}
		f.networks++
	}
	for i := range *open {
		addr := addrs[i%len(addrs)]
		f.slots = append(f.slots, slot{next: func() netip.Addr { return addr }, path: page(*work)})
	}
	return func() *fleet { return &f }
}

func hangingUp() *fleet {
	f := splitFleet(*split, fleetAt)()
	f.hangUp = 5 * *work
	return f
}

// newClients returns fleets that send each request from another address, with networks in
// turn.
func newClients() func() *fleet {
	next := rotating(newAt, *strange)
	return func() *fleet {
		f := &fleet{pause: *pause}
		for range *open {
			f.slots = append(f.slots, slot{next: next, fresh: true, path: page(*work)})
		}
		return f
	}
}

// manyAddresses keeps one request of each address open. The pause is longer, otherwise
// the machine would be busy with refusals only.
func manyAddresses() *fleet {
	f := &fleet{pause: 20 * *pause, first: newAt, networks: max(*crowd/100, 1)}
	for i := range *crowd {
		addr := addrIn(newAt+i%f.networks, 1+i/f.networks%254)
		f.slots = append(f.slots, slot{next: func() netip.Addr { return addr }, path: page(*work)})
	}
	return f
}

// costs runs two clients of expensive pages and two of cheap ones, all of them all the
// time, and prints their answers.
func (b *bench) costs(ctx context.Context, rs []rival) error {
	const name = "3 expensive and cheap pages"
	if !chosen(name, *only) {
		return nil
	}
	cheap := *expensive / 100
	fmt.Printf(
		"\n| %s | before the upstream | asks for | answers | of a cheap one's | upstream's time, s |\n|---|---|---|---|---|---|\n", name)
	for i := range rs {
		r := &rs[i]
		if !chosen(r.name, *rivals) {
			continue
		}
		s, err := b.open(ctx, r, "", nil)
		if err != nil {
			return err
		}
		s.people = nil
		f := &fleet{pause: *pause}
		clients := []string{page(*expensive), page(*expensive), page(cheap), page(cheap)}
		for client, path := range clients {
			addr := addrIn(fleetAt+client, 1)
			for range 4 * *workers {
				f.slots = append(f.slots, slot{next: func() netip.Addr { return addr }, path: path})
			}
		}
		res, err := s.phase(ctx, *length, f, nil)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		got := func(client int) served { return res.spent[addrIn(fleetAt+client, 1)] }
		mean := float64(got(2).Answers+got(3).Answers) / 2
		for client, path := range clients {
			fmt.Printf("| | %s | %s | %d | 1/%.0f | %.1f |\n", r.name, path, got(client).Answers,
				mean/max(float64(got(client).Answers), 1), got(client).Took.Seconds())
		}
		tellFaults("fleet", &res.fleet)
	}
	return nil
}

// slows prints people's response times of each second with a fleet, while the upstream
// slows down and recovers.
func (b *bench) slows(ctx context.Context, rs []rival) error {
	name := fmt.Sprintf("the upstream slows down to 1/%d", *slowdown)
	if !chosen(name, *only) {
		return nil
	}
	const parts = 3
	for i := range rs {
		r := &rs[i]
		if !chosen(r.name, *rivals) {
			continue
		}
		s, err := b.open(ctx, r, "", nil)
		if err != nil {
			return err
		}
		fmt.Printf(
			"\n| %s, %s: second | work takes | requests of people | answered | p50 ms | p99 ms | inside the upstream, mean | most |\n|---|---|---|---|---|---|---|---|\n", name, r.name)
		err = b.seconds(ctx, s, parts)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (b *bench) seconds(ctx context.Context, s *stage, parts int) error {
	s.greet(ctx)
	sleep(ctx, *length+time.Second) // until people are known
	began := time.Now()
	type second struct {
		inside, most, looks int64
		times               int
		counts
	}
	all := make([]second, parts*int(length.Seconds())+int(patience.Seconds()))
	at := func(t time.Time) *second { return &all[min(max(int(t.Sub(began).Seconds()), 0), len(all)-1)] }
	part := *length
	res, err := s.phase(ctx, time.Duration(parts)*part, splitFleet(*split, fleetAt)(), func(during context.Context) {
		times := 1
		for sleep(during, 20*time.Millisecond) {
			if now := 1 + (*slowdown-1)*(int(time.Since(began)/part)%2); now != times {
				times = now
				if s.site.slower(times) != nil {
					return
				}
			}
			st, err := s.site.state(false)
			if err != nil {
				return
			}
			sec := at(st.At)
			sec.times = times
			sec.inside += st.Inside
			sec.looks++
			sec.most = max(sec.most, st.Inside)
		}
	})
	if err != nil {
		return err
	}
	for _, e := range res.events {
		at(e.at).note(e.status, e.took, e.err)
	}
	for i := range all {
		sec := &all[i]
		if sec.looks == 0 {
			break
		}
		fmt.Printf("| %d | %v | %d | %d | %s | %s | %.1f | %d |\n", i, *work*time.Duration(sec.times), sec.sent(),
			sec.answered,
			ms(quantile(sec.took, 0.5)), ms(quantile(sec.took, 0.99)), float64(sec.inside)/float64(sec.looks), sec.most)
	}
	return nil
}

// reloads makes serve reload a changed policy, four times.
func reloads(b *bench, s *stage, r *rival) func(context.Context) {
	return func(during context.Context) {
		for i := range 4 {
			if !sleep(during, *length/5) {
				return
			}
			changed := *r
			changed.share = strings.Replace(r.share, "wait: 10s", fmt.Sprintf("wait: %ds", 11+i), 1)
			if _, err := stand.Write(s.dir, "serve/site.yaml", changed.policy(s.site.Addr, s.more)); err != nil {
				log.Print(err)
			}
			s.front.Signal(syscall.SIGHUP)
		}
	}
}

// restart stops serve and starts it again on the same socket.
func restart(b *bench, s *stage, r *rival) func(context.Context) {
	return func(during context.Context) {
		if !sleep(during, *length/2) {
			return
		}
		began := time.Now()
		s.front.Stop()
		ended := time.Since(began)
		front, err := b.front(during, s, r)
		if err != nil {
			log.Print(err)
			return
		}
		s.front = front
		fmt.Fprintf(os.Stderr, "  the old one ended within %v, the new one was there after %v\n",
			ended.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
}

// commands prints the commands and settings of all programs.
func (b *bench) commands(rs []rival) {
	fmt.Println("\nPrograms in front of the upstream:")
	for i := range rs {
		r := &rs[i]
		if !chosen(r.name, *rivals) {
			continue
		}
		switch {
		case r.nginx != "":
			fmt.Printf("\n%s:\n\n\t%s\n", r.name, r.nginx)
		case r.inside:
			fmt.Printf(
				"\n%s: share.Options{Capacity: %d, Ages: true} in httpguard.Options, around a ReverseProxy\n",
				r.name, *capacity)
		case r.byDefault:
			fmt.Printf("\n%s: fairshare serve --upstream http://UPSTREAM --listen 127.0.0.1:0\n", r.name)
		default:
			text := strings.TrimSpace(r.policy("UPSTREAM", ""))
			fmt.Printf("\n%s: fairshare serve -c site.yaml --listen 127.0.0.1:0\n\n\t%s\n", r.name,
				strings.ReplaceAll(text, "\n", "\n\t"))
		}
	}
}
