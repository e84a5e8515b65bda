package accesslog

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how a log is read. The zero Options are right for most logs.
type Options struct {
	Format  string         // a name from [Formats], an nginx log_format or an Apache LogFormat; "" means detect it
	Zone    *time.Location // of times without a zone; nil means UTC
	Metric  string         // metric of Server-Timing with the CPU time; "" means cpu
	Workers int            // goroutines that parse; 0 means one for each processor

	// BlockSize is the approximate size of a batch in bytes; 0 means 32 KiB. A batch has at most 8192 lines,
	// so that short lines do not make it large. Memory is about 3·BlockSize·(Workers+3), and more if lines are
	// shorter than 100 bytes.
	BlockSize int

	// Prepare returns a function that gets each batch before Next returns it; nil means none. It is called
	// once for each goroutine that parses: work on the lines of a batch is done by several goroutines at once,
	// each with its own function.
	Prepare func() func(*Batch)
}

// A Batch is some adjacent lines of a file.
type Batch struct {
	Entries []Entry // lines that were read, in file order
	Skipped []Skip  // lines that were not, in file order
	Data    any     // for Options.Prepare: a later batch that uses this batch's memory again has it, too
	block   *block
	file    *File
}

// Lines returns the number of lines in the batch: read and skipped ones. Blank lines, comments and
// directives do not count.
func (b *Batch) Lines() int { return len(b.Entries) + len(b.Skipped) }

// Release frees the batch's memory for later batches. Its texts are no longer valid. The garbage
// collector frees batches that are not released.
func (b *Batch) Release() {
	if b == nil || b.block == nil {
		return
	}
	block, f := b.block, b.file
	b.block = nil
	select {
	case f.free <- block:
	default:
	}
}

func (b *Batch) skip(line int64, reason string, text []byte) {
	b.Skipped = append(b.Skipped, Skip{Line: line, Reason: reason, Sample: str(text[:min(len(text), maxSample)])})
}

// A File is an open access log. Only one goroutine may call Next; the other methods are safe for
// concurrent use.
type File struct {
	format format
	found  facts // from the first lines

	src   *source
	cut   cutter
	order chan *block // blocks in file order
	work  chan *block // the same, for the workers
	free  chan *block
	stop  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	err   error // of the reader; valid after order is closed
	note  atomic.Pointer[error]
}

// Open opens an access log, plain or compressed with gzip or zstd, and detects its format. "-" is
// standard input. Open reads the first lines, so it waits for them if path is a pipe.
//
// An empty file is not an error. If the format cannot be detected or is invalid, the error is a
// [*FormatError].
func Open(path string, opts Options) (*File, error) {
	src, err := openSource(path)
	if err != nil {
		return nil, err
	}
	f, err := newFile(src, opts)
	if err != nil {
		src.Close()
		src.free()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func newFile(src *source, opts Options) (*File, error) {
	workers := opts.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	size := opts.BlockSize
	if size <= 0 {
		size = blockSize
	}
	f := &File{
		src:   src,
		cut:   cutter{src: src, size: size, line: 1},
		order: make(chan *block, workers+1),
		work:  make(chan *block, workers+1),
		free:  make(chan *block, 4*workers+16), // all that are under way, also if the caller holds several
		stop:  make(chan struct{}),
	}
	detect, err := newDetector(opts)
	if err != nil {
		return nil, err
	}
	f.cut.directives = true // as long as the format is unknown
	var first []*block
	more := true
	for more && !detect.done {
		b := newBlock()
		if more = f.cut.next(b); more {
			first = append(first, b)
			detect.add(b)
		}
	}
	if err := f.cut.err; err != nil && !ended(err) && !src.damaged(err) {
		return nil, err
	}
	if f.format, f.found, err = detect.result(); err != nil {
		return nil, err
	}
	f.cut.directives = f.format.directives

	f.wg.Add(1 + workers)
	go f.read(first, more)
	for range workers {
		w := &worker{parser: f.format.parser, clock: clock{zone: opts.Zone}, metric: opts.Metric}
		prepare := func(*Batch) {}
		if opts.Prepare != nil {
			prepare = opts.Prepare()
		}
		go func() {
			defer f.wg.Done()
			for {
				select {
				case <-f.stop:
					return
				case b, more := <-f.work:
					if !more {
						return
					}
					w.run(b)
					prepare(&b.batch)
					b.done <- struct{}{}
				}
			}
		}()
	}
	return f, nil
}

func newBlock() *block { return &block{done: make(chan struct{}, 1)} }

// read returns the first blocks, then splits the rest of the source into blocks.
func (f *File) read(first []*block, more bool) {
	defer f.wg.Done()
	defer close(f.work)
	defer close(f.order)
	for _, b := range first {
		if !f.handOut(b) {
			return
		}
	}
	for more {
		var b *block
		select {
		case b = <-f.free:
		default:
			b = newBlock()
		}
		if more = f.cut.next(b); more && !f.handOut(b) {
			return
		}
	}
	switch err := f.cut.err; {
	case ended(err):
	case f.src.damaged(err):
		err = fmt.Errorf("%s: the compressed data is damaged or truncated; the data before that was read: %w",
			f.src.name, err)
		f.note.Store(&err)
	default:
		f.err = err
	}
}

// handOut passes a block to Next and to the workers. It returns false after Close.
func (f *File) handOut(b *block) bool {
	select {
	case f.order <- b:
	case <-f.stop:
		return false
	}
	select {
	case f.work <- b:
	case <-f.stop:
		return false
	}
	return true
}

// Next returns the next lines, or io.EOF at the end. After an error it returns the same error
// again. After Close it returns [os.ErrClosed].
func (f *File) Next() (*Batch, error) {
	for {
		select {
		case <-f.stop:
			return nil, os.ErrClosed
		default:
		}
		var b *block
		var more bool
		select {
		case <-f.stop:
			return nil, os.ErrClosed
		case b, more = <-f.order:
		}
		if !more {
			if f.err != nil {
				return nil, f.err
			}
			return nil, io.EOF
		}
		select {
		case <-f.stop:
			return nil, os.ErrClosed
		case <-b.done:
		}
		b.batch.block, b.batch.file = b, f
		if b.batch.Lines() > 0 {
			return &b.batch, nil
		}
		b.batch.Release()
	}
}

// Close stops reading, also in the middle of the file, and waits for the goroutines. A call of Next
// in another goroutine returns. Close does not wait for a read of standard input, because such a
// read cannot be stopped.
func (f *File) Close() error {
	var err error
	f.once.Do(func() {
		close(f.stop)
		err = f.src.Close()
		if !f.src.stuck() {
			f.wg.Wait()
			f.src.free()
		}
	})
	return err
}

// Format returns the name of the file's format, one of [Formats], "custom" for
// a format string, or "" for an empty file whose format was not given.
func (f *File) Format() string { return f.format.name }

// Has returns the facts that the log has, according to its first lines.
func (f *File) Has() Fields { return f.found.has }

// Resolution returns the unit of the log's times according to its first lines: a second,
// millisecond, microsecond or nanosecond.
func (f *File) Resolution() time.Duration {
	if f.found.resolution == 0 {
		return time.Second
	}
	return f.found.resolution
}

// Zoned reports whether the times have a known zone: logged with them, or
// fixed by the format. If not, Options.Zone was applied.
func (f *File) Zoned() bool { return !f.found.zoneless }

// Progress returns how many bytes of the file have been read, before decompression, and its size; 0
// if that is unknown.
func (f *File) Progress() (read, size int64) { return f.src.read.Load(), f.src.size }

// Note returns the problem of a file that could be read only in part: a truncated or damaged
// compressed file. It is nil before that point.
func (f *File) Note() error {
	if err := f.note.Load(); err != nil {
		return *err
	}
	return nil
}

// A FormatError says why a log's format is unknown.
type FormatError struct {
	Format string // as given; "" if it was to be detected
	Column int    // position of the error in Format, from 1; 0 if it has no position
	Msg    string
	Hint   string // what to do
}

func (e *FormatError) Error() string {
	switch {
	case e.Format == "":
		return e.Msg
	case e.Column > 0:
		return fmt.Sprintf("format %q: column %d: %s", e.Format, e.Column, e.Msg)
	}
	return fmt.Sprintf("format %q: %s", e.Format, e.Msg)
}
