// Package cputime measures how much CPU time an upstream uses for each request, from outside. It
// samples the CPU time of the upstream's processes or cgroup, and divides it among the requests in
// progress.
//
// For upstreams that compute, the sums of a client over many requests are exact to some percent,
// with one process or many, busy or not (TestSharingOut). The assumptions are described at divide.
// In one case waiting requests are charged too much, up to their own time: from the first moment
// on, other threads of the same process keep every core busy. A path that was measured in a quieter
// moment is charged correctly.
//
// Start with Open. It reads Linux's /proc and /sys/fs/cgroup; elsewhere Open
// fails.
package cputime

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"fairshare/httpguard"
)

// A Source is a kind of CPU time to read.
type Source int

const (
	Process Source = iota + 1 // a process and its children
	Cgroup                    // a cgroup
)

// Options configure a Sampler. Process needs PIDFile or Listening; Cgroup needs Cgroup.
type Options struct {
	From      Source
	PIDFile   string        // a file with the upstream's process ID; it may change
	Listening string        // host:port or the path of a unix socket: the processes that listen there
	Cgroup    string        // a path below /sys/fs/cgroup, or a systemd service's name
	Every     time.Duration // between samples while requests are in progress; 0: 50 ms
	Cores     float64       // of the upstream, at most; 0: this machine's
	// gets a line when reading fails, when it works again, and if a proxy is measured; nil: no log
	Log func(string)
}

// A Sampler is a httpguard.Meter. Every request that begins while Run runs is charged by the
// samples, at most its own time on one core. For time without samples it is charged its own time.
type Sampler struct {
	every time.Duration
	start time.Time
	seed  maphash.Seed
	log   func(string)
	wake  chan struct{} // a request begins after an idle time

	mu      sync.Mutex
	running bool
	idle    bool // the sampler sleeps until it is woken
	begun   []*request
	ended   []*request
	free    *request
	stats   Stats

	// Used only by the goroutine in Run.
	source  source
	ledger  ledger
	usage   usage
	settled []*request
	failing bool
	logged  bool // the program that is read was logged
}

var _ httpguard.Meter = (*Sampler)(nil)

// Stats are totals of a Sampler.
type Stats struct {
	Samples    uint64
	Failed     uint64        // samples that could not be read
	Used       time.Duration // CPU time of the upstream
	Charged    time.Duration // part of Used that is charged to requests
	Background time.Duration // part of Used that no request is charged: more than the requests in progress could use
	Unsampled  time.Duration // charged without a sample, while reading failed
	Processes  int           // in the last sample; 0: unknown
	Inside     int           // requests in progress at the last sample
	Servers    int           // requests that the upstream seems to process at once; 0: no known bound
	Paths      int           // number of known paths
}

// A source reads the CPU time of an upstream. It is used by one goroutine.
type source interface {
	// read returns the CPU time since the last read. The first read, and the first one after an
	// error, return errBaseline.
	read(u *usage) error
	close()
}

// A usage is the result of one read.
type usage struct {
	used      int64  // ns of CPU time
	parts     []part // parts of used by process; empty: unknown
	processes int
	threads   int // of the processes; 0: unknown
}

// A part is the CPU time of one process, ns.
type part struct {
	process int
	used    int64
}

// A programmed source returns the name of the program that it reads; "": unknown.
type programmed interface{ program() string }

// proxies are programs that pass requests to processes other than their children.
var proxies = []string{"angie", "caddy", "docker-proxy", "envoy", "haproxy", "hitch", "nginx", "pasta",
	"rootlessport", "slirp4netns", "squid", "traefik", "varnishd"}

// errBaseline means that the read only found the starting values; the next read returns a usage.
var errBaseline = errors.New("the first sample")

// Open returns a Sampler for the upstream in opts. If Open returns an error together with a
// Sampler, reading fails now but may work later, for example if the upstream starts after
// fairshare. Run takes the samples.
func Open(opts Options) (*Sampler, error) {
	src, err := openSource(opts)
	if src == nil {
		return nil, err
	}
	s := newSampler(opts, src)
	s.failing = err != nil
	return s, err
}

func newSampler(opts Options, src source) *Sampler {
	if opts.Every <= 0 {
		opts.Every = 50 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = func(string) {}
	}
	return &Sampler{
		every:  opts.Every,
		start:  time.Now(),
		seed:   maphash.MakeSeed(),
		log:    opts.Log,
		wake:   make(chan struct{}, 1),
		source: src,
		ledger: newLedger(opts.Cores),
	}
}

// now returns the time since the Sampler was made, at least 1 ns.
func (s *Sampler) now() int64 { return int64(time.Since(s.start)) + 1 }

// Stats returns the totals so far.
func (s *Sampler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run samples until ctx is done. Then it reports all requests that have ended; requests in progress
// are charged their own time from then on. It returns an error only if another Run is active.
func (s *Sampler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return errors.New("the CPU time of this upstream is being sampled already")
	}
	s.running = true
	s.mu.Unlock()

	s.sample()
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if !s.sleep() {
			timer.Reset(s.every)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			s.stop()
			return nil
		case <-s.wake:
		case <-tick:
		}
		s.sample()
	}
}

// sleep reports whether no request is in progress; then the next request wakes the sampler. Begin
// wakes it at the start of a request. No request is charged the CPU time before that.
func (s *Sampler) sleep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = len(s.begun) == 0 && len(s.ledger.open) == 0
	return s.idle
}

// sample reads once, divides the CPU time, and reports the requests that have ended.
func (s *Sampler) sample() {
	from := s.now()
	err := s.source.read(&s.usage)
	now := from + (s.now()-from)/2

	s.mu.Lock()
	s.collect()
	s.mu.Unlock()
	if err != nil {
		s.usage = usage{parts: s.usage.parts[:0]}
		s.settled = s.ledger.unsampled(now, s.settled[:0])
	} else {
		s.settled = s.ledger.sample(now, &s.usage, s.settled[:0])
	}
	s.mu.Lock()
	s.stats.Samples++
	if err != nil && !errors.Is(err, errBaseline) {
		s.stats.Failed++
	}
	s.stats.Used += time.Duration(s.usage.used)
	s.stats.Charged = time.Duration(s.ledger.charged)
	s.stats.Background = time.Duration(s.ledger.background)
	s.stats.Unsampled = time.Duration(s.ledger.own)
	s.stats.Processes = s.usage.processes
	s.stats.Inside = len(s.ledger.open)
	s.stats.Servers = s.ledger.order.servers()
	s.stats.Paths = s.ledger.paths.known
	s.mu.Unlock()

	s.reportSettled()
	s.logState(err)
}

// reportSettled passes on the charges of the settled requests, and frees their memory for others.
func (s *Sampler) reportSettled() {
	for _, r := range s.settled {
		report, spent := r.report, r.spent.Load()
		r.report = nil
		report(time.Duration(spent))
	}
	s.mu.Lock()
	for _, r := range s.settled {
		s.release(r)
	}
	s.mu.Unlock()
	clear(s.settled)
}

// logState logs when reading starts to fail, when it works again, and when the program that is read
// is a proxy.
func (s *Sampler) logState(err error) {
	if by, ok := s.source.(programmed); ok && (!s.logged || errors.Is(err, errBaseline)) {
		s.logged = true
		if name := by.program(); slices.Contains(proxies, name) {
			s.log("warning: the CPU time that is read is that of " + name +
				", which passes requests to other processes: their CPU time is not included; " +
				"hint: name the site's own process or service: upstream: {cpu: {from: process, pid_file: …}} or {from: cgroup, service: …}")
		}
	}
	failing := err != nil && !errors.Is(err, errBaseline)
	if failing == s.failing {
		return
	}
	s.failing = failing
	if failing {
		s.log("the CPU time of the upstream cannot be read, requests are charged the time they take: " +
			strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		s.log("the CPU time of the upstream is read again")
	}
}

// collect passes new and ended requests to the ledger, under s.mu.
func (s *Sampler) collect() {
	s.ledger.open = append(s.ledger.open, s.begun...)
	for _, r := range s.ended {
		r.end = r.ended
	}
	clear(s.begun)
	clear(s.ended)
	s.begun, s.ended = s.begun[:0], s.ended[:0]
	s.idle = false
}

// stop takes a last sample; requests in progress are then charged their own time.
func (s *Sampler) stop() {
	s.sample()
	s.mu.Lock()
	s.running = false
	s.collect()
	s.settled = s.settled[:0]
	for _, r := range s.ledger.open {
		r.sampled = false
		r.began = max(r.began, s.ledger.last)
		if r.end != 0 {
			r.spent.Add(max(0, r.end-r.began))
			s.settled = append(s.settled, r)
		}
	}
	clear(s.ledger.open)
	s.ledger.open = s.ledger.open[:0]
	s.ledger.last = 0
	s.mu.Unlock()
	s.reportSettled()
	s.source.close()
}
