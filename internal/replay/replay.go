// Package replay runs a policy over access logs at the log's own time and
// reports what it would have done. Start with [New] and [Replay.Run].
//
// Each log is parsed and prepared by goroutines of its own; one goroutine
// merges the logs and judges, line after line; another one keeps the figures
// and writes the verdicts. Memory is bounded, however long the logs are.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
)

// Options say what is replayed. Policy, Limiter, Client and Logs are needed.
type Options struct {
	// Policy is judged as if it were enforced: its DryRun is not looked at.
	Policy *fairshare.Policy

	// Limiter makes the counters of a guard: once at the start, and again each
	// time a guard starts again. The old ones are no longer used by then. A
	// limiter with a method Reset() is kept: what it counted is reset, or left
	// under keys that are not used any more.
	Limiter func([]fairshare.Limit) (fairshare.Limiter, error)

	// Memory is how large a table Limiter makes, in bytes; 0 means not known.
	// The larger it is, the less often it is reset.
	Memory int64

	// Client finds the client behind the peer that a log names. forwarded is
	// the logged forwarding header, "" when there is none; proxy tells that
	// the address is a trusted proxy's own, a valid via that this peer has named
	// it provisionally. It is called by several goroutines.
	Client func(peer netip.Addr, forwarded string) (addr netip.Addr, proxy bool, via netip.Addr)

	// Bot tells what a client with that user agent is recognized as; nil: nobody is
	// known. A user agent that is not a bot's from one address is not one from any other.
	// It is called by several goroutines and must not wait.
	Bot func(addr netip.Addr, userAgent string) fairshare.Bot

	// Owner returns who owns an address; nil: nobody is known. It is called by
	// several goroutines.
	Owner func(netip.Addr) fairshare.Owner

	// Lookups is what hostname and listed in the policy ask; nil: nothing is known.
	Lookups fairshare.Lookups

	// Override tells what operators have said of an address, and of the bot that its
	// client is recognized as, as it holds at that time; nil: nothing was said. What
	// is over must not begin again, and labels have no end: later there is
	// nothing that was not there before. It is called by several goroutines.
	Override func(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override

	// Resolve asks the DNS what an address is called or, with a list of the
	// policy, whether that has it, so that Bot and Lookups know afterwards; nil:
	// the DNS is not asked. It waits for an answer or the end of ctx. Up to 1024
	// calls go on at once; each question is asked once, and 131,072 in all.
	Resolve func(ctx context.Context, addr netip.Addr, list string)

	// Share says that busy upstreams are shared out, which a replay cannot: the
	// report says so.
	Share bool

	// Allowance spells what a limit allows: "1.05 s of CPU in 15s"; nil: the
	// report does not tell.
	Allowance func(*fairshare.Limit) string

	Logs     []string          // paths; "-" is standard input
	Log      accesslog.Options // how they are read; Workers and BlockSize 0 mean what suits the number of logs
	Verdicts io.Writer         // gets a line for each judged request; nil means none
	Top      int               // how many clients, networks and user agents are told; 0 means 10
	Known    []Network         // networks that are no clients: proxies of large providers, private addresses
}

// A Network is a set of addresses with a name for the report.
type Network struct {
	Name  string // as in "most requests come from …"
	Trust string // what to put into trusted_proxies; "" when nothing helps
	Addrs fairshare.AddrSet
}

// A Replay is one run. Progress may be called at any time.
type Replay struct {
	opts   Options
	logs   []*logFile
	dns    *dnsLookups // nil when the DNS is not asked
	bounds bounds
	lines  atomic.Int64 // judged so far
}

// New opens the logs and finds out their formats, so that what is wrong with
// them is known before anything is judged.
func New(opts Options) (*Replay, error) {
	if opts.Top <= 0 {
		opts.Top = 10
	}
	policy := *opts.Policy
	policy.DryRun = false
	opts.Policy = &policy
	r := &Replay{opts: opts, bounds: usualBounds}
	r.tune()
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

// tune chooses how logs are read: the fewer there are, the more each gets.
func (r *Replay) tune() {
	o := &r.opts.Log
	switch n := len(r.opts.Logs); {
	case n <= 2:
	case n <= 16:
		o.BlockSize = cmp0(o.BlockSize, 64<<10)
		o.Workers = cmp0(o.Workers, 1)
	default:
		o.BlockSize = cmp0(o.BlockSize, 32<<10)
		o.Workers = cmp0(o.Workers, 1)
	}
}

func cmp0(n, otherwise int) int {
	if n != 0 {
		return n
	}
	return otherwise
}

// Close ends reading the logs. Run closes them itself.
func (r *Replay) Close() {
	for _, l := range r.logs {
		l.close()
	}
}

// Progress tells how far a run is.
type Progress struct {
	Lines int64 // judged
	Read  int64 // bytes of the logs, packed as they are
	Size  int64 // of all logs in bytes; 0 when not known

	// Of questions to the DNS. Lines wait for answers.
	Asked, Answered int64
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
		p.Answered = r.dns.answered.Load()
		p.Asked = r.dns.asked.Load()
	}
	return p
}

// queued is how many judged chunks may wait for the recorder.
const queued = 1

// Run judges all lines. It ends early, with the context's error, when ctx
// does, and with an error that is not about a line when a log cannot be read
// or a verdict not be written.
func (r *Replay) Run(ctx context.Context) (*Report, error) {
	defer r.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	if r.dns != nil {
		defer r.dns.wg.Wait()
	}
	defer cancel()
	// A read of a pipe knows no context: closing ends it.
	defer context.AfterFunc(ctx, r.Close)()

	j, err := newJudge(r)
	if err != nil {
		return nil, err
	}
	rec := newRecorder(r)
	rec.unused, rec.bots = j.unused, &j.bots
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
	return newReport(r, j, rec), nil
}

// A logFile is one log of a run. Logs of which there are several are opened to
// be looked at, and again when their time has come, so that a year of rotated
// logs is not open at once.
type logFile struct {
	index      int
	path       string
	opts       accesslog.Options
	format     string
	has        accesslog.Fields // of the lines judged
	entries    int64            // lines judged
	resolution time.Duration
	zoned      bool
	first      time.Time // of the first line that can be judged; zero when not known
	note       error     // the file is damaged

	mu         sync.Mutex
	file       *accesslog.File // nil while it is not open
	closed     bool
	read, size int64 // while file is nil
}

func openLog(index int, path string, opts accesslog.Options, only bool) (*logFile, error) {
	f, err := accesslog.Open(path, opts)
	if err != nil {
		return nil, err
	}
	l := &logFile{index: index, path: path, opts: opts, file: f, format: f.Format(), resolution: f.Resolution(),
		zoned: f.Zoned()}
	if only || !reopens(path) {
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

// open returns the file that is read.
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
