package journal

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Bounds of an outlet.
const (
	maxWaiting = 1 << 20               // bytes
	enough     = 32 << 10              // bytes that are written at once; half of a pipe's capacity
	delay      = 20 * time.Millisecond // how long fewer bytes wait for more
	retryDelay = time.Second           // after a write that failed
)

// A sink takes whole lines. It returns how many bytes are finished, always at the end
// of a line. It remembers how much of the next line is already written. If it is an
// io.Closer, the outlet closes it.
type sink interface {
	put(lines []byte) (n int, err error)
}

// An outlet writes lines from a goroutine of its own. It retries failed writes; no
// accepted line is lost while the outlet is open.
type outlet struct {
	sink     sink
	lostLine func(n int64) []byte // a line about lost messages

	mu                sync.Mutex
	lines             []byte  // not yet taken by the goroutine
	counts            []int64 // the number of entries of each waiting line
	waiting           int     // bytes
	accepted, written int64   // lines
	seen              int64   // accepted at the last call of behind
	lost              int64   // messages without space
	closed            bool

	some chan struct{} // the first line has come
	many chan struct{} // there are enough lines to write at once
	quit chan struct{} // no more lines will come
	done chan struct{} // the goroutine has ended
}

func newOutlet(s sink) *outlet {
	return &outlet{
		sink: s,
		some: make(chan struct{}, 1), many: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// add adds a line for n entries, or returns false if there is no space.
func (o *outlet) add(line []byte, n int64) bool { return o.addWithin(line, n, maxWaiting) }

// addWithin adds a line if at most that many bytes wait then.
func (o *outlet) addWithin(line []byte, n int64, space int) bool {
	o.mu.Lock()
	before := o.waiting
	if o.closed || before+len(line) > space {
		o.mu.Unlock()
		return false
	}
	o.accept(line, n)
	o.mu.Unlock()
	o.wake(before, before+len(line))
	return true
}

// addMessages adds lines without entries. Without space they are lost.
func (o *outlet) addMessages(lines []byte) {
	o.mu.Lock()
	before := o.waiting
	if o.closed || before+len(lines) > maxWaiting {
		o.lost += countLines(lines)
		o.mu.Unlock()
		return
	}
	for line := range bytes.Lines(lines) {
		if line[len(line)-1] != '\n' {
			line = append(bytes.Clone(line), '\n')
		}
		o.accept(line, 0)
	}
	o.mu.Unlock()
	o.wake(before, before+len(lines))
}

func (o *outlet) accept(line []byte, n int64) {
	o.lines = append(o.lines, line...)
	o.counts = append(o.counts, n)
	o.waiting += len(line)
	o.accepted++
}

func (o *outlet) wake(before, after int) {
	if before == 0 {
		signal(o.some)
	}
	if before < enough && after >= enough {
		signal(o.many)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func countLines(b []byte) int64 { return int64(bytes.Count(b, []byte("\n"))) }

// behind reports whether lines from before its last false result are still not
// written.
func (o *outlet) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written < o.seen {
		return true
	}
	o.seen = o.accepted
	return false
}

// run writes lines until the outlet is closed.
func (o *outlet) run() {
	defer close(o.done)
	if c, ok := o.sink.(io.Closer); ok {
		defer c.Close()
	}
	var room []byte
	wait := time.NewTimer(delay)
	defer wait.Stop()
	for open := true; open; {
		select {
		case <-o.some:
			wait.Reset(delay)
			select {
			case <-wait.C:
			case <-o.many:
			case <-o.quit:
			}
		case <-o.quit:
			open = false
		}
		lines := o.take(room[:0])
		room = lines
		for len(lines) > 0 {
			n, err := o.put(lines)
			if lines = lines[n:]; err == nil {
				continue
			}
			if !open {
				return
			}
			wait.Reset(retryDelay)
			select {
			case <-wait.C:
			case <-o.quit:
				open = false
				lines = append(bytes.Clone(lines), o.take(nil)...)
			}
		}
	}
}

// take returns the waiting lines, and after them a line about lost messages. room
// becomes the memory for the next lines.
func (o *outlet) take(room []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost > 0 {
		o.accept(o.lostLine(o.lost), 0)
		o.lost = 0
	}
	lines := o.lines
	o.lines = room
	return lines
}

// put writes lines and counts the written ones.
func (o *outlet) put(lines []byte) (n int, err error) {
	if n, err = o.sink.put(lines); n == 0 && err == nil {
		err = io.ErrShortWrite
	}
	if n > 0 {
		k := int(countLines(lines[:n]))
		o.mu.Lock()
		o.counts = append(o.counts[:0], o.counts[k:]...)
		o.waiting -= n
		o.written += int64(k)
		again := o.waiting > 0 || o.lost > 0
		o.mu.Unlock()
		if again {
			signal(o.some)
		}
	}
	return n, err
}

// close writes all waiting lines until late. It returns the number of entries that
// were not written.
func (o *outlet) close(late <-chan time.Time) (lost int64) {
	o.mu.Lock()
	closed := o.closed
	o.closed = true
	o.mu.Unlock()
	if !closed {
		close(o.quit)
	}
	select {
	case <-o.done:
	case <-late:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.counts {
		lost += n
	}
	return lost
}

// A stream is a sink without an end, such as stderr.
type stream struct {
	w    io.Writer
	part int // bytes of the next line that are written
}

func (s *stream) put(lines []byte) (int, error) {
	n, err := s.w.Write(lines[s.part:])
	n = s.part + min(max(n, 0), len(lines)-s.part)
	done := bytes.LastIndexByte(lines[:n], '\n') + 1
	s.part = n - done
	return done, err
}
