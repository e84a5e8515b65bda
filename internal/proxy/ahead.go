package proxy

import (
	"io"
	"sync"
)

const (
	answerAhead  = 1 << 20  // of an answer, read before the client took it
	answerBudget = 64 << 20 // for all answers together, beside one chunk of each

	// leastRead is the room that a chunk has at least when it is read into.
	leastRead = 4 << 10
)

// An ahead reads an answer faster than the client takes it. One goroutine
// runs, another takes.
type ahead struct {
	src    io.Reader
	proxy  *Proxy
	finish func() // called when src ended, well or not, before take says so

	mu      sync.Mutex
	changed sync.Cond
	queue   []*chunk // the first is written, the last is filled; never empty
	err     error    // that src ended with; io.EOF for the whole answer
	drop    bool     // nobody takes any more
}

// newAhead goes on where first ends, which it owns.
func (p *Proxy) newAhead(src io.Reader, first *chunk, finish func()) *ahead {
	a := &ahead{src: src, proxy: p, finish: finish, queue: []*chunk{first}}
	a.changed.L = &a.mu
	return a
}

// run reads until the answer ends. Of one that nobody takes it reads at most
// maxDropped more.
func (a *ahead) run() {
	dropped := 0
	for {
		c := a.room()
		n, err := a.src.Read(c.space[c.to:])
		if err != nil {
			a.finish()
		}
		a.mu.Lock()
		if c.to += n; a.drop {
			if dropped += n; dropped > maxDropped && err == nil {
				err = errAbandoned
			}
		}
		a.err = err
		a.changed.Signal()
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// room returns a chunk to read into, once there is one.
func (a *ahead) room() *chunk {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		last := a.queue[len(a.queue)-1]
		switch {
		case len(a.queue) == 1 && (a.drop || last.from == last.to):
			last.from, last.to = 0, 0
			return last
		case chunkSize-last.to >= leastRead:
			return last
		case len(a.queue) < answerAhead/chunkSize && a.proxy.answers.take(chunkSize):
			last = a.proxy.chunks.get()
			a.queue = append(a.queue, last)
			return last
		}
		a.changed.Wait()
	}
}

// take waits for a part of the answer and returns it. It stays good until it
// is told to took. The error comes after the last part.
func (a *ahead) take() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		c := a.queue[0]
		switch {
		case c.from < c.to:
			return c.space[c.from:c.to], nil
		case len(a.queue) > 1:
			a.pop()
		case a.err != nil:
			return nil, a.err
		default:
			a.changed.Wait()
		}
	}
}

// took tells that n bytes of what take returned are written.
func (a *ahead) took(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue[0].from += n
	a.changed.Signal()
}

// pop gives the first chunk back. mu is held.
func (a *ahead) pop() {
	a.proxy.chunks.put(a.queue[0])
	a.proxy.answers.give(chunkSize)
	a.queue = append(a.queue[:0], a.queue[1:]...)
	a.changed.Signal()
}

// leave tells that nobody takes any more, and waits until the upstream is
// done.
func (a *ahead) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop = true
	for len(a.queue) > 1 {
		a.pop()
	}
	a.changed.Signal()
	for a.err == nil {
		a.changed.Wait()
	}
}

// end gives back what is held once take returned an error or leave returned.
func (a *ahead) end() {
	a.proxy.chunks.put(a.queue[0])
	a.queue = nil
}
