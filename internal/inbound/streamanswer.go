package inbound

import (
	"net/http"
	"sync"
	"time"
)

// pieceBytes is the largest part of an answer that is written to a stream at once.
const pieceBytes = 32 << 10

// unpacedBytes is the beginning of an answer that cannot block its handler: net/http
// buffers it.
const unpacedBytes = 4 << 10

// Bounds of HTTP/2 streams. A stream uses memory even if the client does not read its
// answer, and may need a descriptor for the upstream. A client (see PerAddr) may have
// four streams for each connection that it may have. If all clients together have more
// streams than Config.Connections, each may have only 16 of them, or an equal part of all
// if that is less.
const (
	streamsPerConn = 4
	leastStreams   = 256 // of a client: as many as one connection may have
	freeStreams    = 16
)

// countStreams adds n streams, or removes them if n is negative.
func (c *conn) countStreams(n int) {
	c.l.streams.Add(int64(n))
	if p := c.entry.peer; p != nil {
		p.streams.Add(int64(n))
	}
}

// freeStreams is how many streams each client may have when there are too many in all.
func (l *Listener) freeStreams() int64 {
	return min(freeStreams, max(1, l.streamsInAll.Load()/max(1, l.clients.Load())))
}

// mayOpenStream reports whether the newest stream, already counted, may stay open.
func (c *conn) mayOpenStream() bool {
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

// A streamAnswer is an answer on a stream of HTTP/2. The client must read each stream at
// the minimum rate of a connection: flow control can stop one stream while others of the
// connection continue. The streams of a connection share its bandwidth. So if the
// connection itself is fast enough, a stream gets 20 s for each stream that is not
// answered yet.
type streamAnswer struct {
	http.ResponseWriter
	s     *streams
	total int64

	mu    sync.Mutex
	timer *time.Timer // nil: not needed yet
	armed bool
	over  bool
	run   pace
	base  int64         // bytes that the connection had sent when the run began
	since time.Duration // when the present Write began, since s.began; 0: there is none
}

func (h *trackingHandler) serveStream(w http.ResponseWriter, r *http.Request, s *streams) {
	a := streamAnswer{ResponseWriter: w, s: s}
	defer a.end()
	if r.ContentLength != 0 {
		b := &incoming{ReadCloser: r.Body, c: s.conn, s: s}
		r.Body = b
		b.begin()
		defer b.end()
	}
	h.next.ServeHTTP(&a, r)
}

// end sets the deadline for the rest of the answer, which net/http writes after the
// handler: the time in which a connection must send the rests of all its streams.
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

// enter begins to count the time of a Write. It does not change a running timer: when the
// timer fires, checkPace looks at the present Write.
func (a *streamAnswer) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = max(1, time.Since(a.s.began))
	if a.run == (pace{}) {
		a.base = a.s.conn.sent.Load()
	}
	switch {
	case a.timer == nil:
		a.timer, a.armed = time.AfterFunc(runTime, a.checkPace), true
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

// checkPace is called by the timer. It resets the stream if the client is too slow.
func (a *streamAnswer) checkPace() {
	sharers := max(1, a.s.unanswered())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if a.over || a.since == 0 {
		return
	}
	spent := a.run.spent + time.Since(a.s.began) - a.since
	rest := runTime - spent
	if rest <= 0 {
		sent := a.s.conn.sent.Load() - a.base
		if sent < minRate*int64(spent/time.Second) || spent >= runTime*time.Duration(sharers) {
			a.s.conn.l.notices.closedSlow()
			http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second))
			return
		}
		rest = runTime
	}
	a.timer.Reset(rest)
	a.armed = true
}
