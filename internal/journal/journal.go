// Package journal is the log of refusals and blocks: the limiter log. Start
// with [Open].
//
// Each refusal is in exactly one line. The first of a client by a rule has a
// line of its own at once. Those that follow within a minute are counted, and
// told in one line at its end:
//
//	{"time":"…","since":"…","client":"192.0.2.1","path":"/last","rule":"…","action":"refuse","dry_run":false,"repeated":41,"id":"…"}
//
// Beyond a hundred lines a second the rest is summed up for ten seconds by rule
// and network, an IPv4 /24 or an IPv6 /48, and what is beyond 40 networks by
// rule alone; what is beyond 9 rules has no rule:
//
//	{"time":"…","since":"…","network":"192.0.2.0/24","rule":"…","action":"refuse","dry_run":false,"summed":5120,"clients":12}
//	{"time":"…","since":"…","rule":"…","action":"refuse","dry_run":false,"summed":90210}
//
// Their time is that of the latest refusal that they stand for, since that of
// the first. So refusals are the number of lines with a status, plus all that was
// repeated, summed and lost.
//
// Where a limit spoke, "resource" is what it counts, and "used" of "allowed" is in
// its unit: of cpu and time seconds, of bytes bytes, else whole numbers.
//
// A ban that spoke has "ban":"in force" in its line and nothing counted; one of
// an operator is known by its rule, "ban by an operator".
//
// In a file of text a line begins with its time; the rest are the same fields
// as name=value, quoted as in JSON where a value is empty or holds more than
// plain letters:
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

// Options say how a journal is written. The zero Options are JSON on stderr.
type Options struct {
	Format     string                 // json or text; "" means json
	File       string                 // "" means stderr
	Max        int64                  // bytes after which the file is rotated; 0 means 256 MB
	Keep       int                    // how many older files are kept, File.1 being the newest; 0 means 4, below 0 none
	Query      bool                   // queries may be written
	IPv4Prefix int                    // bits of an address that make one client; 0 means 32
	IPv6Prefix int                    // 0 means 64
	Load       func() (float64, bool) // the load average, asked once a second; nil means the system's
}

const (
	defaultMax  = 256_000_000
	defaultKeep = 4
)

// keep returns how many older files are kept.
func (o *Options) keep() int {
	if o.Keep == 0 {
		return defaultKeep
	}
	return max(o.Keep, 0)
}

// max returns how large a file may be.
func (o *Options) max() int64 {
	if o.Max <= 0 {
		return defaultMax
	}
	return o.Max
}

// Bounds of a journal.
const (
	maxLines   = 100             // a second, of all kinds
	maxTold    = 60              // of these, for repeats and sums
	minute     = 60              // seconds for which repeats are counted
	sumEvery   = 10              // seconds
	closeDelay = 2 * time.Second // how long Close waits for whoever reads
	warnDelay  = closeDelay / 4  // of this, for its last words
)

// A Journal writes lines from goroutines of its own, so that nobody waits for
// a disk or for whoever reads them. It is safe for concurrent use.
type Journal struct {
	seed     maphash.Seed
	settings atomic.Pointer[settings]
	stamps   stamps
	load     atomic.Int64 // average times 100; -1 means unknown
	left     atomic.Int64 // lines that entries may still take in this second
	lost     atomic.Int64 // entries that are in no line
	second   atomic.Int64 // since the start
	shards   *[shards]shard
	births   births

	words *outlet
	quit  chan struct{}
	kept  chan struct{} // the goroutine that counts seconds ended

	mu     sync.Mutex // of Replace and Close
	closed bool
}

// settings are what Replace replaces.
type settings struct {
	Options
	layout layout
	masks  masks
	out    *outlet
	sink   *fileSink // nil means stderr
}

// Open returns a journal. Lines of the server and, unless Options name a file,
// entries go to stderr. The error may be an [*OpenError]. Close it to have all
// written.
func Open(o Options, stderr io.Writer) (*Journal, error) {
	j := &Journal{
		seed: maphash.MakeSeed(), shards: new([shards]shard),
		words: newOutlet(&stream{w: stderr}),
		quit:  make(chan struct{}), kept: make(chan struct{}),
	}
	j.words.lostWords = func(n int64) []byte {
		return fmt.Appendf(nil, "fairshare: %d lines were lost here: nobody read them in time\n", n)
	}
	s, err := j.set(o, &settings{})
	if err != nil {
		return nil, err
	}
	j.settings.Store(s)
	j.left.Store(maxLines)
	j.noteLoad()
	go j.words.run()
	if s.out != j.words {
		go s.out.run()
	}
	go j.keep()
	return j, nil
}

// set returns settings for o that follow old. Nothing has changed if there is
// an error.
func (j *Journal) set(o Options, old *settings) (*settings, error) {
	switch o.Format {
	case "", "json", "text":
	default:
		return nil, fmt.Errorf("journal: unknown format %q; there are json and text", o.Format)
	}
	if o.Load == nil {
		o.Load = loadAverage
	}
	s := &settings{Options: o, layout: layout{text: o.Format == "text"}, masks: newMasks(o.IPv4Prefix, o.IPv6Prefix), out: j.words}
	if o.File == "" {
		return s, nil
	}
	out, sink := old.out, old.sink
	if sink == nil {
		sink = &fileSink{faults: faults{words: j}}
		out = newOutlet(sink)
	}
	f, err := openFile(o, func(err error) { sink.faults.say(err, "") })
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

// spaces holds room for lines that are being made.
var spaces = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Add records an entry. It never waits for a writer.
func (j *Journal) Add(e *Entry) {
	s := j.settings.Load()
	p := newPlace(j.seed, e, &s.masks)
	if !j.count(&p, e, true) {
		return
	}
	space := spaces.Get().(*[]byte)
	line := s.layout.entry((*space)[:0], &j.stamps, e, s.Query, j.load.Load())
	if !s.out.add(line, 1) {
		j.count(&p, e, false)
	}
	*space = line
	spaces.Put(space)
}

// count counts an entry, unless it may have a line of its own and there is
// room for it.
func (j *Journal) count(p *place, e *Entry, mayWrite bool) (write bool) {
	s := &j.shards[p.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		j.lost.Add(1)
		return false
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

// take takes one of the lines that are left in this second.
func (j *Journal) take() bool {
	for {
		n := j.left.Load()
		if n <= 0 {
			return false
		}
		if j.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Write has whole lines of the server written to stderr. It never waits and
// never fails; what has no room is lost and counted.
func (j *Journal) Write(lines []byte) (int, error) {
	j.words.addWords(lines)
	return len(lines), nil
}

// Reopen opens the file anew, for whoever has moved it. If it cannot be
// opened, the journal goes on as before.
func (j *Journal) Reopen() error {
	return j.Replace(j.settings.Load().Options)
}

// Replace goes on with other options; the file is opened anew. With an error
// the journal goes on as before. What was recorded before may be written either
// way.
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
	if s.out != j.words && s.out != old.out {
		go s.out.run()
	}
	if old.out != j.words && old.out != s.out {
		j.lost.Add(old.out.close(time.After(closeDelay)))
	}
	return nil
}

// Close tells what was counted and waits until all is written, but not longer
// than two seconds: a reader that takes nothing holds nobody up. What is added
// later is lost.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.closed = true
	close(j.quit)
	<-j.kept
	end := time.Now().Add(closeDelay)
	s := j.settings.Load()
	if s.out != j.words {
		if j.lost.Add(s.out.close(time.After(closeDelay-warnDelay))) > 0 {
			fmt.Fprintf(j, "fairshare: journal %s: refusals that could not be written: %d\n", s.File, j.lost.Load())
		}
	}
	j.lost.Add(j.words.close(time.After(time.Until(end))))
}

// keep counts seconds until the journal is closed.
func (j *Journal) keep() {
	defer close(j.kept)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			j.turn()
		case <-j.quit:
			j.tellAll()
			return
		}
	}
}

// turn begins another second. As long as what was said a second ago is not
// written yet, there is none: all is counted until there is room again.
func (j *Journal) turn() {
	now := j.second.Add(1)
	j.noteLoad()
	s := j.settings.Load()
	if s.out.behind() {
		return
	}
	told := j.tellLost(s)
	if now%sumEvery == 0 {
		told += j.tellSums(s)
	}
	told += j.tellRepeats(s, now-minute, maxTold-told)
	j.left.Store(int64(maxLines - told))
}

func (j *Journal) noteLoad() {
	load, known := j.settings.Load().Load()
	if !known || !(load >= 0 && load < 1e9) {
		load = -0.01
	}
	j.load.Store(int64(math.Round(load * 100)))
}
