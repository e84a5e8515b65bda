package inbound

import (
	"net/http"
	"sync"
	"time"
)

// pieceBytes is how much of an answer is written to a stream at once.
const pieceBytes = 32 << 10

// unpacedBytes of an answer cannot block while its handler runs: net/http
// keeps them.
const unpacedBytes = 4 << 10

// Streams of HTTP/2 cost memory whether their answers are taken or not: of one
// address, as of PerAddr, there may be four for each of its connections; beyond
// as many as there may be connections in all, none may have more than 16, or than
// an equal part: each may need a descriptor for the upstream.
const (
	streamsPerConn = 4
	leastStreams   = 256 // of an address, so that a single connection may have all of its own
	freeStreams    = 16
)

// countStreams counts streams that were opened, or answered.
func (c *conn) countStreams(n int) {
	c.l.streams.Add(int64(n))
	if p := c.entry.peer; p != nil {
		p.streams.Add(int64(n))
	}
}

// freeStreams is how many streams a client may have when there are too many in
// all: an equal part of them.
func (l *Listener) freeStreams() int64 {
	return min(freeStreams, max(1, l.streamsInAll.Load()/max(1, l.clients.Load())))
}

// mayAsk reports whether a stream that was counted may stay open.
func (c *conn) mayAsk() bool {
	p := c.entry.peer
	if p == nil {
		return true
	}
	n := p.streams.Load()
	if n <= c.l.freeStreams() || n <= c.l.streamsPerAddr.Load() && c.l.streams.Load() <= c.l.streamsInAll.Load() {
		return true
	}
	return c.isExempt()
}

// A streamAnswer is an answer on a stream of HTTP/2, whose client must take it
// at the pace of a connection: a stream may stand still, by its flow control,
// while others of the same connection flow. Those share what the connection
// carries, so a stream whose connection keeps its pace gets as many times 20 s
// as it has streams that are not answered yet.
type streamAnswer struct {
	http.ResponseWriter
	s     *streams
	total int64

	mu    sync.Mutex
	timer *time.Timer // nil: not needed yet
	armed bool
	over  bool
	run   pace
	base  int64         // sent by the connection when the run began
	since time.Duration // of the Write that is blocked; 0: none is
}

func (h *handler) serveStream(w http.ResponseWriter, r *http.Request, s *streams) {
	a := streamAnswer{ResponseWriter: w, s: s}
	defer a.end()
	h.next.ServeHTTP(&a, r)
}

// end gives the rest, which net/http writes now, its time: as long as a
// connection may take for what is left of all its streams.
func (a *streamAnswer) end() {
	a.mu.Lock()
	a.over = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	rests := time.Duration(a.s.unanswered()) * unpacedBytes * time.Second / time.Duration(minRate)
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(runTime + rests))
}

func (a *streamAnswer) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+pieceBytes)]
		a.total += int64(len(piece))
		paced := a.total > unpacedBytes
		if paced {
			a.enter()
		}
		m, err := a.ResponseWriter.Write(piece)
		if paced {
			a.leave(m)
		}
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

func (a *streamAnswer) Flush() { a.FlushError() }

func (a *streamAnswer) FlushError() error {
	a.enter()
	defer a.leave(0)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (a *streamAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// enter begins to count time. A timer that runs is left alone: it looks at
// what has become of the Write.
func (a *streamAnswer) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = max(1, time.Since(a.s.began))
	if a.run == (pace{}) {
		a.base = a.s.conn.sent.Load()
	}
	switch {
	case a.timer == nil:
		a.timer, a.armed = time.AfterFunc(runTime, a.look), true
	case !a.armed:
		a.timer.Reset(max(1, runTime-a.run.spent))
		a.armed = true
	}
}

func (a *streamAnswer) leave(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.run.bytes += int64(n)
	a.run.spent += time.Since(a.s.began) - a.since
	a.since = 0
	if a.run.bytes >= runBytes {
		a.run = pace{}
	}
}

// look is called by the timer.
func (a *streamAnswer) look() {
	sharers := max(1, a.s.unanswered())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if a.over || a.since == 0 {
		return
	}
	spent := a.run.spent + time.Since(a.s.began) - a.since
	left := runTime - spent
	if left <= 0 {
		flowed := a.s.conn.sent.Load() - a.base
		if flowed < minRate*int64(spent/time.Second) || spent >= runTime*time.Duration(sharers) {
			a.s.conn.l.notices.closedSlow()
			http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second))
			return
		}
		left = runTime
	}
	a.timer.Reset(left)
	a.armed = true
}
