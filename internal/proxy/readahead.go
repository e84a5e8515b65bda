package proxy

import (
	"io"
	"sync"
)

const (
	answerAhead  = 1 << 20  // bytes of an answer that are read before the client takes them
	answerBudget = 64 << 20 // bytes for all answers together, besides one chunk of each

	// leastRead is the minimum of free space in a chunk to read into it.
	leastRead = 4 << 10
)

// A readAhead reads an answer faster than the client takes it. One goroutine calls
// run, another one the other methods.
type readAhead struct {
	src    io.Reader
	proxy  *Proxy
	finish func(error) // called with the end of src or an error, before take returns it

	mu      sync.Mutex
	changed sync.Cond
	queue   []*chunk // the first is being written, the last is being filled; never empty
	err     error    // of src; io.EOF for a complete answer
	drop    bool     // the client has left
}

// newReadAhead continues an answer after its first chunk, which it owns.
func (p *Proxy) newReadAhead(src io.Reader, first *chunk, finish func(error)) *readAhead {
	a := &readAhead{src: src, proxy: p, finish: finish, queue: []*chunk{first}}
	a.changed.L = &a.mu
	return a
}

// run reads until the answer ends. After the client has left, it reads at most
// maxDropped bytes more.
func (a *readAhead) run() {
	dropped := 0
	for {
		c := a.room()
		n, err := a.src.Read(c.space[c.to:])
		if err != nil {
			a.finish(err)
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

// room waits for a chunk with free space and returns it.
func (a *readAhead) room() *chunk {
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

// take waits for a part of the answer and returns it. The part is valid until the
// call of release. The error comes after the last part.
func (a *readAhead) take() ([]byte, error) {
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

// release frees the first n bytes that take returned.
func (a *readAhead) release(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue[0].from += n
	a.changed.Signal()
}

// pop frees the first chunk. mu is held.
func (a *readAhead) pop() {
	a.proxy.chunks.put(a.queue[0])
	a.proxy.answers.give(chunkSize)
	a.queue = append(a.queue[:0], a.queue[1:]...)
	a.changed.Signal()
}

// abandon is called when the client has left. It waits until the upstream is done.
func (a *readAhead) abandon() {
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

// end frees the last chunk. It is called after take returned an error, or after
// abandon.
func (a *readAhead) end() {
	a.proxy.chunks.put(a.queue[0])
	a.queue = nil
}
