// Package journal is the log of refusals and blocks: the limiter log. Start
// with [Open].
//
// Each refusal is in exactly one line. The first refusal of a client by a rule has a
// line of its own, which is written when it is added. The refusals of the next minute
// are counted, and one line at its end reports them:
//
//	{"time":"…","since":"…","client":"192.0.2.1","path":"/last","rule":"…","action":"refuse","dry_run":false,"repeated":41,"id":"…"}
//
// Beyond a hundred lines a second, the other refusals are summed up for ten seconds
// by rule and network, an IPv4 /24 or an IPv6 /48. Beyond 40 networks they are summed
// up by rule alone, and beyond 9 rules without a rule:
//
//	{"time":"…","since":"…","network":"192.0.2.0/24","rule":"…","action":"refuse","dry_run":false,"summed":5120,"clients":12}
//	{"time":"…","since":"…","rule":"…","action":"refuse","dry_run":false,"summed":90210}
//
// In such a line, time is the time of the latest refusal and since that of the first.
// The number of refusals is the number of lines with a status, plus the sum of
// repeated, summed and lost.
//
// If a limit refused the request, "resource" is the resource that it counts. The
// values "used" and "allowed" are in its unit: seconds for cpu and time, bytes for
// bytes, otherwise whole numbers. The value "in_progress", in the same unit, is
// reserved for requests in progress, whose cost is not known yet. For errors it is
// the number of these requests.
//
// If a ban blocked the request, the line has "ban":"in force" and no counters. The
// rule of an operator's ban is "ban by an operator".
//
// In text format, a line begins with its time. The same fields follow as name=value.
// A value is quoted as in JSON if it is empty or has other than plain characters:
//
//	2026-11-20T12:00:00.123Z client=192.0.2.1 method=GET host=example.org path=/ user_agent="a b" … id=0123456789
package journal

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a journal. The zero Options write JSON to stderr.
type Options struct {
	Format     string                 // json or text; "" means json
	File       string                 // "" means stderr
	Max        int64                  // bytes after which the file is rotated; 0 means 256 MB
	KeepFiles  int                    // number of older files; File.1 is the newest; 0 means 4, negative none
	Query      bool                   // write queries, too
	IPv4Prefix int                    // bits of a client's prefix; 0 means 32
	IPv6Prefix int                    // likewise; 0 means 64
	Load       func() (float64, bool) // the load average, called once a second; nil means the system's
}

const (
	defaultMax       = 256_000_000
	defaultKeepFiles = 4
)

// olderFiles returns the number of older files.
func (o *Options) olderFiles() int {
	if o.KeepFiles == 0 {
		return defaultKeepFiles
	}
	return max(o.KeepFiles, 0)
}

// max returns the largest size of a file in bytes.
func (o *Options) max() int64 {
	if o.Max <= 0 {
		return defaultMax
	}
	return o.Max
}

// Bounds of a journal.
const (
	maxLines   = 100             // a second, of all kinds
	maxReports = 60              // of these, for repeats and sums
	minute     = 60              // seconds for which repeats are counted
	sumEvery   = 10              // seconds
	closeDelay = 2 * time.Second // how long Close waits for the reader
	warnDelay  = closeDelay / 4  // of this, for its last message
)

// A Journal writes lines from goroutines of its own, so that no request waits for the
// disk or the reader of stderr. It is safe for concurrent use.
type Journal struct {
	seed     maphash.Seed
	settings atomic.Pointer[settings]
	stamps   stamps
	load     atomic.Int64 // average times 100; -1 means unknown
	quota    atomic.Int64 // lines that entries may still write in this second
	lost     atomic.Int64 // entries without a line
	second   atomic.Int64 // since the start
	shards   *[shards]shard
	births   births

	messages *outlet // lines of the server, for stderr
	quit     chan struct{}
	ticked   chan struct{} // closed when the goroutine that counts seconds has ended

	mu     sync.Mutex // held by Replace and Close
	closed bool
}

// settings are the values that Replace replaces.
type settings struct {
	Options
	layout layout
	masks  masks
	out    *outlet
	sink   *fileSink // nil means stderr
}

// Open returns a journal. It writes the lines of the server to stderr, and entries
// too unless Options name a file. The error may be an [*OpenError]. Close writes all
// remaining lines.
func Open(o Options, stderr io.Writer) (*Journal, error) {
	j := &Journal{
		seed: maphash.MakeSeed(), shards: new([shards]shard),
		messages: newOutlet(&stream{w: stderr}),
		quit:     make(chan struct{}), ticked: make(chan struct{}),
	}
	j.messages.lostLine = func(n int64) []byte {
		return fmt.Appendf(nil, "fairshare: %d lines were lost here: the reader of stderr was too slow\n", n)
	}
	s, err := j.set(o, &settings{})
	if err != nil {
		return nil, err
	}
	j.settings.Store(s)
	j.quota.Store(maxLines)
	j.noteLoad()
	go j.messages.run()
	if s.out != j.messages {
		go s.out.run()
	}
	go j.countSeconds()
	return j, nil
}

// set returns settings for o, which replace old. An error changes nothing.
func (j *Journal) set(o Options, old *settings) (*settings, error) {
	switch o.Format {
	case "", "json", "text":
	default:
		return nil, fmt.Errorf("journal: unknown format %q; the formats are json and text", o.Format)
	}
	if o.Load == nil {
		o.Load = loadAverage
	}
	s := &settings{Options: o, layout: layout{text: o.Format == "text"}, masks: newMasks(o.IPv4Prefix, o.IPv6Prefix),
		out: j.messages}
	if o.File == "" {
		return s, nil
	}
	out, sink := old.out, old.sink
	if sink == nil {
		sink = &fileSink{faults: faults{log: j, name: "journal",
			consequence: "until it can be written again, refusals are only counted"}}
		out = newOutlet(sink)
	}
	f, err := openFile(o, func(err error) { sink.faults.report(err, "") })
	if err != nil {
		return nil, err
	}
	if s.out, s.sink = out, sink; sink == old.sink {
		sink.replace(f)
	} else {
		sink.file = f
	}
	return s, nil
}

// spaces holds reusable memory for lines.
var spaces = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Add records an entry. It never waits for a writer.
func (j *Journal) Add(e *Entry) {
	s := j.settings.Load()
	p := newTableKey(j.seed, e, &s.masks)
	if !j.count(&p, e, true) {
		return
	}
	space := spaces.Get().(*[]byte)
	line := s.layout.entry((*space)[:0], &j.stamps, e, s.Query, j.load.Load())
	if !s.out.add(line, 1) {
		one := *e
		one.N = 0
		j.count(&p, &one, false)
	}
	*space = line
	spaces.Put(space)
}

// count counts an entry, unless it may have a line of its own and the quota allows
// one.
func (j *Journal) count(p *tableKey, e *Entry, mayWrite bool) (write bool) {
	s := &j.shards[p.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		j.lost.Add(e.n())
		return false
	}
	if s.entries == nil {
		s.entries = new(entries)
	}
	done, free := s.repeat(p, e)
	switch {
	case done:
	case mayWrite && free >= 0 && j.take():
		s.begin(free, p, e)
		j.births.push(int(p.shard)*len(s.slots)+free, j.second.Load())
		return true
	default:
		s.sum(p, e)
	}
	return false
}

// take takes one line of this second's quota, and reports whether there was one.
func (j *Journal) take() bool {
	for {
		n := j.quota.Load()
		if n <= 0 {
			return false
		}
		if j.quota.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Write queues whole lines of the server for stderr. It never blocks and never fails.
// Lines without space in the queue are lost and counted.
func (j *Journal) Write(lines []byte) (int, error) {
	j.messages.addMessages(lines)
	return len(lines), nil
}

// Reopen opens the file again, such as after another program has moved it. If it
// cannot be opened, the journal continues as before.
func (j *Journal) Reopen() error {
	return j.Replace(j.settings.Load().Options)
}

// Replace changes the options and opens the file again. After an error the journal
// continues as before. Earlier entries may be written by either options.
func (j *Journal) Replace(o Options) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errors.New("journal: closed")
	}
	old := j.settings.Load()
	s, err := j.set(o, old)
	if err != nil {
		return err
	}
	j.settings.Store(s)
	if s.out != j.messages && s.out != old.out {
		go s.out.run()
	}
	if old.out != j.messages && old.out != s.out {
		j.lost.Add(old.out.close(time.After(closeDelay)))
	}
	return nil
}

// Close writes all counted entries and waits until all is written, for at most two
// seconds: a reader may have stopped. Later entries are lost.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.closed = true
	close(j.quit)
	<-j.ticked
	end := time.Now().Add(closeDelay)
	s := j.settings.Load()
	if s.out != j.messages {
		if j.lost.Add(s.out.close(time.After(closeDelay-warnDelay))) > 0 {
			fmt.Fprintf(j, "fairshare: journal %s: refusals that could not be written: %d\n", s.File, j.lost.Load())
		}
	}
	j.lost.Add(j.messages.close(time.After(time.Until(end))))
}

// countSeconds counts seconds until the journal is closed.
func (j *Journal) countSeconds() {
	defer close(j.ticked)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			j.startSecond()
		case <-j.quit:
			j.writeAll()
			return
		}
	}
}

// startSecond begins another second. While the lines of the last second are not
// written yet, there is no new quota: all entries are counted until there is space.
func (j *Journal) startSecond() {
	now := j.second.Add(1)
	j.noteLoad()
	s := j.settings.Load()
	if s.out.behind() {
		return
	}
	written := j.writeLost(s)
	if now%sumEvery == 0 {
		written += j.writeSums(s)
	}
	written += j.writeRepeats(s, now-minute, maxReports-written)
	j.quota.Store(int64(maxLines - written))
}

func (j *Journal) noteLoad() {
	load, known := j.settings.Load().Load()
	if !known || !(load >= 0 && load < 1e9) {
		load = -0.01
	}
	j.load.Store(int64(math.Round(load * 100)))
}
