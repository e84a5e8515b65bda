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
	enough     = 32 << 10              // bytes that are written at once; half of what a pipe holds
	delay      = 20 * time.Millisecond // how long fewer bytes wait for more
	retryDelay = time.Second           // after a write that failed
)

// A sink takes whole lines. It returns how many bytes of them are done with,
// always at the end of a line; it keeps in mind how much of the next line it
// has taken already. If it is an io.Closer, it is closed in the end.
type sink interface {
	put(lines []byte) (n int, err error)
}

// An outlet writes lines from a goroutine of its own. What cannot be written
// waits and is tried again; nothing is lost as long as the outlet is open.
type outlet struct {
	sink      sink
	lostWords func(n int64) []byte // a line about words that were lost

	mu                sync.Mutex
	lines             []byte  // not yet taken by the goroutine
	counts            []int64 // of each line that waits: how many entries it stands for
	waiting           int     // bytes
	accepted, written int64   // lines
	seen              int64   // accepted, when behind was last asked
	lost              int64   // words for which there was no room
	closed            bool

	some chan struct{} // there are lines where there were none
	many chan struct{} // there are enough lines not to wait for more
	quit chan struct{} // no more will come
	done chan struct{} // the goroutine ended
}

func newOutlet(s sink) *outlet {
	return &outlet{
		sink: s,
		some: make(chan struct{}, 1), many: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// add takes a line that stands for n entries, or tells that there is no room.
func (o *outlet) add(line []byte, n int64) bool {
	o.mu.Lock()
	before := o.waiting
	if o.closed || before+len(line) > maxWaiting {
		o.mu.Unlock()
		return false
	}
	o.accept(line, n)
	o.mu.Unlock()
	o.wake(before, before+len(line))
	return true
}

// addWords takes lines that stand for no entries. Without room they are lost.
func (o *outlet) addWords(lines []byte) {
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

// behind tells whether what waited when it last said no is still not written.
func (o *outlet) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written < o.seen {
		return true
	}
	o.seen = o.accepted
	return false
}

// run writes what comes until the outlet is closed.
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

// take returns the lines that came and, after them, how many words were lost.
// What comes next has its place in room.
func (o *outlet) take(room []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost > 0 {
		o.accept(o.lostWords(o.lost), 0)
		o.lost = 0
	}
	lines := o.lines
	o.lines = room
	return lines
}

// put writes lines and takes note of how many of them are written.
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

// close has all that waits written until late. It returns how many entries
// were not.
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

// A stream is a sink without an end, as stderr is.
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
