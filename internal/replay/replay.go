// Package replay runs a policy over access logs at the log's own time and
// reports what it would have done. Start with [New] and [Replay.Run].
//
// Each log has its own goroutines, on all cores, which parse and prepare its lines: they find the
// client, the path and the bot. One goroutine merges the logs and judges line by line. Another one
// counts, looks for fleets, and writes the verdicts. Memory is bounded for logs of any length.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/robots"
)

// Options configure a replay. Policy, Limiter, Client and Logs are required.
type Options struct {
	// Policy is judged as if it were enforced: its DryRun is ignored.
	Policy *fairshare.Policy

	// Limiter makes the counters of a guard: at the start, and for each later guard.
	// The old limiter is not used any more then. A limiter with a method Reset() is
	// used again: its counts are reset, or stay under keys that are not used any more.
	Limiter func([]fairshare.Limit) (fairshare.Limiter, error)

	// Memory is the size of the limiter's table in bytes; 0 means unknown. A larger table
	// is reset less often.
	Memory int64

	// Client returns the client of a logged peer. forwarded is the logged forwarding
	// header, "" if there is none. proxy reports that addr is a trusted proxy itself. A
	// valid via is the peer that has named addr provisionally. Client is called
	// concurrently.
	Client func(peer netip.Addr, forwarded string) (addr netip.Addr, proxy bool, via netip.Addr)

	// Bot returns the bot of a client with this user agent; nil means that no bot is
	// known. If a user agent is not a bot's for one address, it is not for any other. Bot
	// is called concurrently and must not block.
	Bot func(addr netip.Addr, userAgent string) fairshare.Bot

	// AI returns the operator and the purpose of an AI bot, see Training, by its name; the purpose of
	// other bots is "". nil means that the report has no such rows.
	AI func(name string) (operator, purpose string)

	// Owner returns the owner of an address; nil means that no owner is known. It is called
	// concurrently.
	Owner func(netip.Addr) fairshare.Owner
	// Signed names bots that are verified by signatures, which no log holds.
	Signed []string
	// Browsers looks for signs of browsers in the lines: a log holds user agents, referers and
	// statuses.
	Browsers bool

	// Robots is the site's robots.txt; nil means that none is known.
	Robots *robots.File

	// Attempts watches attempts to log in and to send forms. A log holds paths, statuses and
	// lengths.
	Attempts bool

	// Lookups answers hostname and listed of the policy; nil means that nothing is known.
	Lookups fairshare.Lookups

	// Override returns the operators' override of an address and its bot at a time; nil
	// means that there are none. An override that has ended must not begin again, and
	// labels do not end: a later call returns nothing new. It is called concurrently.
	Override func(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override

	// Resolve asks the DNS for the hostnames of an address or, if list is not "", whether
	// this DNS list of the policy contains it. Bot and Lookups must know the answer
	// afterwards. It waits for the answer or the end of ctx. There are up to 1024
	// concurrent calls; each question is asked once, and at most 131,072 in all. nil means
	// that the DNS is not asked.
	Resolve func(ctx context.Context, addr netip.Addr, list string)

	// Share says that the policy shares a busy upstream. A replay cannot do this, and the
	// report says so.
	Share bool

	// Allowance describes what a limit allows, such as "1.05 s of CPU in 15s"; nil means
	// that the report does not show it.
	Allowance func(*fairshare.Limit) string

	Logs     []string          // paths; "-" is standard input
	Log      accesslog.Options // Workers: 0 means a number that fits that of logs
	Verdicts io.Writer         // gets a line for each judged request; nil means none
	Top      int               // how many clients, networks and user agents are reported; 0 means 10
	Trail    *Trail            // gets the verdict on each line; nil means none
	Before   *Trail            // the verdicts of an earlier run over the same logs, to compare with; nil means none

	// Person is called at the end for each client that looks like a person, see People; nil means
	// nothing.
	Person func(netip.Addr)

	// Measure makes a run that refuses nothing by limits and finds out how much of each limit the
	// clients need for which it returns true: Report.Least. nil means an ordinary run.
	Measure func(netip.Addr) bool

	// Trials test rules that the policy does not have; nil means none. TrialLimiter makes their
	// counters.
	Trials       *Trials
	TrialLimiter func([]fairshare.Limit) (fairshare.Limiter, error)

	Known []Network // not of clients: proxies of large providers, private addresses
}

// A Network is a set of addresses with a name for the report.
type Network struct {
	Name  string // in "67 % of the requests come from …"
	Trust string // the value for trusted_proxies; "" if there is none
	Addrs fairshare.AddrSet
}

// A Replay is one run. Progress may be called at any time.
type Replay struct {
	opts   Options
	logs   []*logFile
	dns    *dnsLookups // nil if the DNS is not asked
	bounds bounds
	seeds  seeds
	lines  atomic.Int64            // judged so far
	judge  atomic.Pointer[judging] // nil while there is none
}

// New opens the logs and detects their formats, so that their errors are known before
// anything is judged.
func New(opts Options) (*Replay, error) {
	if opts.Top <= 0 {
		opts.Top = 10
	}
	policy := *opts.Policy
	policy.DryRun = false
	if opts.Measure != nil {
		opts.Limiter = opts.meters
	}
	opts.Policy = &policy
	r := &Replay{opts: opts, bounds: usualBounds, seeds: newSeeds()}
	r.tune()
	r.opts.Log.Prepare = func() func(*accesslog.Batch) {
		p := &preparer{opts: &r.opts, seeds: &r.seeds, judge: &r.judge, targets: new(knownTargets)}
		return func(lines *accesslog.Batch) { p.prepare(lines) }
	}
	var err error
	if r.dns, err = newDNSLookups(&r.opts); err != nil {
		return nil, err
	}
	for i, path := range opts.Logs {
		l, err := openLog(i, path, r.opts.Log, len(opts.Logs) == 1)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.logs = append(r.logs, l)
	}
	return r, nil
}

// tune sets the workers of each log by the number of logs.
func (r *Replay) tune() {
	if o := &r.opts.Log; len(r.opts.Logs) > 2 && o.Workers == 0 {
		o.Workers = 1
	}
}

// Close closes the logs. Run closes them itself.
func (r *Replay) Close() {
	for _, l := range r.logs {
		l.close()
	}
}

// Progress is how far a run is.
type Progress struct {
	Lines int64 // judged
	Read  int64 // bytes of the logs, compressed if they are
	Size  int64 // of all logs in bytes; 0 if unknown

	Questions, Answers int64 // of the DNS
}

// Progress returns how far the run is. It is safe for concurrent use.
func (r *Replay) Progress() Progress {
	p := Progress{Lines: r.lines.Load()}
	known := true
	for _, l := range r.logs {
		read, size := l.progress()
		p.Read += read
		p.Size += size
		known = known && size > 0
	}
	if !known {
		p.Size = 0
	}
	if r.dns != nil {
		p.Answers = r.dns.answers.Load()
		p.Questions = r.dns.questions.Load()
	}
	return p
}

// queued is how many judged chunks may wait for the recorder.
const queued = 1

// Run judges all lines. It returns early if ctx ends, if a log cannot be read, or if a
// verdict cannot be written. Malformed lines are not an error.
func (r *Replay) Run(ctx context.Context) (*Report, error) {
	defer r.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	if r.dns != nil {
		defer r.dns.wg.Wait()
	}
	defer cancel()
	// Closing the logs ends a read of a pipe.
	defer context.AfterFunc(ctx, r.Close)()

	j, err := newJudge(r)
	if err != nil {
		return nil, err
	}
	rec := newRecorder(r)
	rec.unused, rec.bots = j.unused, &j.bots
	if !j.early {
		rec.fleets = &judgedFleets{fleetsOf: &j.fleets, latest: math.MinInt64}
		rec.fleets.restart()
	}
	chunks := make(chan *chunk, queued)
	recorded := make(chan error, 1)
	wg.Go(func() {
		err := rec.run(chunks)
		if err != nil {
			cancel()
		}
		recorded <- err
	})
	err = j.run(ctx, chunks, &wg)
	close(chunks)
	if recErr := <-recorded; recErr != nil {
		return nil, recErr
	}
	if err != nil {
		return nil, err
	}
	if r.opts.Trials != nil {
		r.opts.Trials.finish()
	}
	return newReport(r, j, rec), nil
}

// A logFile is one log of a run. If there are several, each is opened once to detect its
// format, and again when its lines are needed. So a year of rotated logs is not open at
// the same time.
type logFile struct {
	index      int
	path       string
	opts       accesslog.Options
	format     string
	has        accesslog.Fields // of the lines judged
	entries    int64            // lines judged
	resolution time.Duration
	zoned      bool
	first      time.Time // of the first valid line; zero if unknown
	note       error     // the file is damaged

	mu         sync.Mutex
	file       *accesslog.File // nil if it is not open
	closed     bool
	read, size int64 // while file is nil
}

func openLog(index int, path string, opts accesslog.Options, only bool) (*logFile, error) {
	again := !only && reopens(path)
	first := opts
	if again {
		first.Prepare = nil
	}
	f, err := accesslog.Open(path, first)
	if err != nil {
		return nil, err
	}
	l := &logFile{index: index, path: path, opts: opts, file: f, format: f.Format(), resolution: f.Resolution(),
		zoned: f.Zoned()}
	if !again {
		return l, nil
	}
	defer f.Close()
	l.file = nil
	_, l.size = f.Progress()
	for l.first.IsZero() {
		b, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(b.Entries) > 0 {
			l.first = b.Entries[0].Time
		}
		b.Release()
	}
	return l, nil
}

// open returns the file, opened if necessary.
func (l *logFile) open() (*accesslog.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, context.Canceled
	}
	if l.file == nil {
		f, err := accesslog.Open(l.path, l.opts)
		if err != nil {
			return nil, fmt.Errorf("reading it again: %w", err)
		}
		l.file = f
	}
	return l.file, nil
}

// done closes the file at its end.
func (l *logFile) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.read, l.size = l.file.Progress()
		l.note = l.file.Note()
		l.file.Close()
		l.file = nil
	}
}

func (l *logFile) close() {
	l.done()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

func (l *logFile) progress() (read, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return l.file.Progress()
	}
	return l.read, l.size
}
