// Package cputime learns how much CPU time an upstream spends on each request,
// from outside: it samples the CPU time of the upstream's processes or cgroup,
// and shares what was used out among the requests that were in progress.
//
// Sums of clients over many requests are within some percent with upstreams that
// compute, of one process or many, busy or not (TestSharingOut); what is
// assumed, and learnt, is told at divide. Where requests mostly wait while
// others keep every core busy, in threads of one process, and from the first
// moment on, those that wait are charged too much, up to their own time: a path
// that was seen in a quieter moment is known.
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

	"fairshare"
)

// A Source is where CPU time is read from.
type Source int

const (
	Process Source = iota + 1 // a process and its children
	Cgroup                    // a cgroup
)

// Options say what to sample. Process needs PIDFile or Listening, Cgroup needs
// Cgroup.
type Options struct {
	From      Source
	PIDFile   string        // a file with the upstream's process number; it may be rewritten
	Listening string        // host:port or the path of a unix socket: the processes that listen there
	Cgroup    string        // a path below /sys/fs/cgroup, or a systemd service's name
	Every     time.Duration // between samples while requests are in progress; 0: 50 ms
	Cores     float64       // of the upstream, at most; 0: this machine's
	Log       func(string)  // told when the upstream can no longer be read, when it can again, and of proxies; nil: nobody
}

// A Sampler is a fairshare.Meter. Every request that begins while Run runs is
// charged what the samples say, at most its own time on one core; for time that
// could not be sampled, its own time.
type Sampler struct {
	every time.Duration
	start time.Time
	seed  maphash.Seed
	log   func(string)
	wake  chan struct{} // the first request after none began

	mu      sync.Mutex
	running bool
	idle    bool // the sampler sleeps until somebody wakes it
	begun   []*request
	ended   []*request
	free    *request
	stats   Stats

	// Of the goroutine in Run alone.
	source  source
	ledger  ledger
	usage   usage
	settled []*request
	failing bool
	said    bool // who is read
}

var _ fairshare.Meter = (*Sampler)(nil)

// Stats is what was sampled so far.
type Stats struct {
	Samples    uint64
	Failed     uint64        // samples that could not be read
	Used       time.Duration // CPU time of the upstream
	Charged    time.Duration // of Used, to requests
	Background time.Duration // of Used, to nobody: more than the requests in progress could have used
	Unsampled  time.Duration // charged without a sample, where nothing could be read
	Processes  int           // that the last sample read; 0 where they are not known
	Inside     int           // requests in progress at the last sample
	Servers    int           // how many requests the upstream seems to work on at once; 0: not known to be bounded
	Paths      int           // that something is known of
}

// A source reads the CPU time of an upstream. It is used by one goroutine.
type source interface {
	// read tells what was used since the last read. After an error, and at
	// first, it is told from the next read on.
	read(u *usage) error
	close()
}

// A usage is what one read found.
type usage struct {
	used      int64  // ns of CPU time
	parts     []part // of used, by process; empty when not known
	processes int
	threads   int // of the processes; 0: not known
}

// A part is what one process used, ns.
type part struct {
	process int
	used    int64
}

// A programmed source tells which program it reads; "" when it does not know.
type programmed interface{ program() string }

// proxies are programs that hand requests on to others, which are not their
// children.
var proxies = []string{"angie", "caddy", "docker-proxy", "envoy", "haproxy", "hitch", "nginx", "pasta", "rootlessport", "slirp4netns", "squid", "traefik", "varnishd"}

// errBaseline is a read that found a beginning: what is used is known from the
// next one on.
var errBaseline = errors.New("the first sample")

// Open returns a Sampler of the upstream that opts tell. An error that comes
// with a Sampler says that nothing can be read now; it may come later, as when
// the upstream is started after fairshare. Run makes it sample.
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

// Stats returns what was sampled so far.
func (s *Sampler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run samples until ctx is done; then all that has ended is told, and requests
// that are still in progress are charged their own time from then on. It
// returns an error only if it runs already.
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

// sleep tells whether nobody is in progress, so that the next one wakes the
// sampler. Begin wakes it within the first moments of a request; what the
// upstream used before is nobody's.
func (s *Sampler) sleep() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = len(s.begun) == 0 && len(s.ledger.open) == 0
	return s.idle
}

// sample reads once, shares out, and tells those that have ended.
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

	s.tell()
	s.say(err)
}

// tell hands over what the settled requests were charged, and keeps their
// memory for others.
func (s *Sampler) tell() {
	for _, r := range s.settled {
		told, spent := r.told, r.spent.Load()
		r.told = nil
		told(time.Duration(spent))
	}
	s.mu.Lock()
	for _, r := range s.settled {
		s.release(r)
	}
	s.mu.Unlock()
	clear(s.settled)
}

// say tells the log when reading begins to fail, and when it works again; and
// when what is read now does not do the work.
func (s *Sampler) say(err error) {
	if by, ok := s.source.(programmed); ok && (!s.said || errors.Is(err, errBaseline)) {
		s.said = true
		if name := by.program(); slices.Contains(proxies, name) {
			s.log("warning: the CPU time that is read is that of " + name + ", which hands requests on to others: what they use is not in it; " +
				"hint: name the site's own process or service: upstream: {cpu: {from: process, pid_file: …}} or {from: cgroup, service: …}")
		}
	}
	failing := err != nil && !errors.Is(err, errBaseline)
	if failing == s.failing {
		return
	}
	s.failing = failing
	if failing {
		s.log("the CPU time of the upstream cannot be read, requests are charged the time they take: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		s.log("the CPU time of the upstream is read again")
	}
}

// collect hands new and ended requests to the ledger, under s.mu.
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

// stop takes a last sample, and leaves those in progress to their own time.
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
	s.tell()
	s.source.close()
}
