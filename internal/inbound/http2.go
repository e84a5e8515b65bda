package inbound

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// headerTime is how long a client may take for the preface of HTTP/2, for its first
	// request, and for each frame or block of header frames. DATA may take longer, in
	// proportion to its length. net/http bounds only the time of the preface.
	headerTime = 10 * time.Second

	// A client may not have more than this number and more than half of its streams
	// reset in 30 s, by itself or because it breaks rules.
	resetWindow = 30 * time.Second
	maxResets   = 200

	// Frames without effect, such as PING, are free in proportion to the traffic: two
	// for each kB sent to the client, and some for each request. Of others there may be
	// 1000 at once and 100 a second.
	idleFramesPerKB      = 2
	idleFramesPerRequest = 16
	maxIdleFrames        = 1000
	idleFrameTime        = 10 * time.Millisecond // until another one may come
	smallData            = 16                    // bytes; DATA up to this length counts too

	readAhead = 1 << 10
	endedKept = 128  // streams, ended by errCodeEnded
	openKept  = 1024 // streams that are not answered yet

	errCodeProtocol = 0x1 // RFC 9113 §7: PROTOCOL_ERROR
	errCodeFlow     = 0x3 // FLOW_CONTROL_ERROR
	errCodeEnded    = 0x5 // STREAM_CLOSED
	errCodeRefused  = 0x7 // REFUSED_STREAM
)

// Reasons to close a connection because of its client.
const (
	tooManyResets     = "its client had too many HTTP/2 streams reset"
	tooManyIdleFrames = "its client sent too many HTTP/2 frames without effect"
)

var abuses = []string{tooManyResets, tooManyIdleFrames}

var errAbuse = errors.New("the client abuses HTTP/2")

// Names of the HTTP/2 handlers in net/http, and in golang.org/x/net/http2.
const (
	overTLS   = "h2"
	overPlain = "unencrypted_http2"
)

// wrapHTTP2 puts streams between net/http's HTTP/2 and its connections. The data
// there is not encrypted, even with TLS.
func wrapHTTP2(srv *http.Server) {
	plain, secure := srv.TLSNextProto[overPlain], srv.TLSNextProto[overTLS]
	if plain == nil || secure == nil {
		return
	}
	srv.TLSNextProto[overPlain] = func(srv *http.Server, carried *tls.Conn, h http.Handler) {
		// The client's preface has been read.
		outer := carried.NetConn().(interface{ UnencryptedNetConn() net.Conn }).UnencryptedNetConn()
		if c := connOf(outer); c != nil {
			carried = carry(outer, newStreams(outer, c))
		}
		plain(srv, carried, h)
	}
	srv.TLSNextProto[overTLS] = func(srv *http.Server, outer *tls.Conn, h http.Handler) {
		c := connOf(outer)
		if c == nil {
			secure(srv, outer, h)
			return
		}
		s := newStreams(outer, c)
		if s.readPreface() {
			plain(srv, carry(outer, secureStreams{s, outer}), h)
		}
	}
}

// A carrier passes a connection to the HTTP/2 handler after its preface: the handlers
// of http.Server take only *tls.Conn.
type carrier struct {
	net.Conn
	plain net.Conn
}

func carry(outer, plain net.Conn) *tls.Conn { return tls.Client(carrier{outer, plain}, nil) }

func (c carrier) UnencryptedNetConn() net.Conn { return c.plain }

// secureStreams are the streams of a connection with TLS.
type secureStreams struct {
	*streams
	outer *tls.Conn
}

func (s secureStreams) ConnectionState() tls.ConnectionState { return s.outer.ConnectionState() }

// streams are an HTTP/2 connection after the client's preface.
type streams struct {
	net.Conn // the connection for net/http
	conn     *conn
	began    time.Time

	// One Read at a time.
	buffered   []byte // read from the client, and not yet returned by Read
	buffer     []byte
	in         scanner
	opened     bool          // a first request has come
	block      bool          // a block of header frames has begun and not ended
	frameBegan time.Duration // since began, as all times here
	blockBegan time.Duration
	due        time.Time // the present deadline; zero: none

	writing   sync.Mutex // held while something is written
	out       scanner
	frameSent bool // net/http has sent its first frame
	goAwayDue bool // write goAwayFrame after the present frame

	mu            sync.Mutex // what follows
	top           uint32     // the highest stream of the client
	window        time.Duration
	requests      int // since window began
	resets        int // since window began
	ended         []uint32
	free          int64 // free frames without effect that have come
	requestsInAll int64
	tokens        int // frames without effect that may still come
	tokensAt      time.Duration
	open          map[uint32]struct{} // streams without an answer
	bodies        int                 // of requests, that still come
	closed        bool
}

func newStreams(outer net.Conn, c *conn) *streams {
	s := &streams{Conn: outer, conn: c, began: time.Now(), buffer: make([]byte, readAhead), tokens: maxIdleFrames,
		open: make(map[uint32]struct{})}
	s.goAwayDue = c.l.draining.Load()
	c.h2.Store(s)
	if c.gone.Load() {
		s.end()
	}
	return s
}

// NetConn returns the connection below the streams.
func (s *streams) NetConn() net.Conn { return s.Conn }

// readPreface reads the client's preface.
func (s *streams) readPreface() bool {
	if s.setDue(headerTime) != nil {
		return false
	}
	var preface [len(clientPreface)]byte
	_, err := io.ReadFull(s.Conn, preface[:])
	return err == nil && string(preface[:]) == clientPreface
}

// Read reads from the client. It fails if the client does not complete a frame in
// time, or sends too many frames without effect.
func (s *streams) Read(b []byte) (int, error) {
	if len(s.buffered) == 0 && len(b) > 0 {
		into := b
		if len(b) < len(s.buffer) {
			into = s.buffer
		}
		if err := s.setDue(s.allowed()); err != nil {
			return 0, err
		}
		n, err := s.Conn.Read(into)
		if n == 0 {
			return 0, err
		}
		if !s.check(into[:n]) {
			return 0, errAbuse
		}
		if len(into) == len(b) {
			return n, nil
		}
		s.buffered = into[:n]
	}
	n := copy(b, s.buffered)
	s.buffered = s.buffered[n:]
	return n, nil
}

// allowed returns the time by which the client has to complete its frame or block;
// 0: there is no limit.
func (s *streams) allowed() time.Duration {
	switch {
	case !s.opened:
		return headerTime
	case s.block:
		return s.blockBegan + headerTime
	case !s.in.within():
		return 0
	}
	due := s.frameBegan + headerTime
	if s.in.have == frameHeadLen && s.in.kind == frameData {
		due += time.Duration(s.in.length) * time.Second / time.Duration(minRate)
	}
	return due
}

// setDue sets the deadline of the next Read.
func (s *streams) setDue(at time.Duration) error {
	due := time.Time{}
	if at > 0 {
		due = s.began.Add(at)
	}
	if due.Equal(s.due) {
		return nil
	}
	s.due = due
	return s.Conn.SetReadDeadline(due)
}

// check checks the read bytes, and reports whether the connection may stay.
func (s *streams) check(b []byte) bool {
	now := time.Since(s.began)
	why := ""
	s.mu.Lock()
	fresh := !s.in.within() // the next frame to end began in b
	s.in.scan(b, func(f *frame) {
		if fresh {
			s.frameBegan = now
		}
		fresh = true
		if fault := s.note(f, now); why == "" {
			why = fault
		}
	})
	if fresh && s.in.within() {
		s.frameBegan = now
	}
	s.mu.Unlock()
	return s.mayStay(why)
}

// mayStay closes the connection if why is not "", unless the client is exempt.
func (s *streams) mayStay(why string) bool {
	if why == "" || s.conn.isExempt() {
		return true
	}
	s.conn.l.notices.closedFor(why)
	s.conn.Close()
	return false
}

// note counts one frame of the client. It returns why the connection must be closed,
// "" if it may stay.
func (s *streams) note(f *frame, now time.Duration) (why string) {
	switch f.kind {
	case frameHeaders:
		if f.stream > s.top { // otherwise trailers
			s.top = f.stream
			s.startWindow(now)
			s.requests++
			s.requestsInAll++
			if len(s.open) < openKept && !s.closed { // net/http allows fewer
				s.open[f.stream] = struct{}{}
				s.conn.countStreams(1)
				s.noteBodies(false)
			}
		}
		s.block, s.blockBegan = true, s.frameBegan
		s.noteBlock(f)
		return ""
	case frameContinuation:
		s.noteBlock(f)
		if f.length > 0 {
			return ""
		}
	case frameReset:
		s.answered(f.stream)
		return s.noteReset(now)
	case frameData:
		if f.length > smallData || f.flags&flagEndStream != 0 {
			return ""
		}
	}
	return s.noteIdle(now)
}

func (s *streams) noteBlock(f *frame) {
	if f.flags&flagEndHeaders != 0 {
		s.block, s.opened = false, true
	}
}

// startWindow begins a new window of resets when the last one is over.
func (s *streams) startWindow(now time.Duration) {
	if now-s.window >= resetWindow {
		s.window, s.requests, s.resets = now, 0, 0
	}
}

func (s *streams) noteReset(now time.Duration) string {
	s.startWindow(now)
	s.resets++
	if s.resets > maxResets && 2*s.resets > s.requests {
		return tooManyResets
	}
	return ""
}

func (s *streams) noteIdle(now time.Duration) string {
	if s.free < idleFramesPerRequest*s.requestsInAll+s.conn.sent.Load()*idleFramesPerKB/1000 {
		s.free++
		return ""
	}
	if more := int((now - s.tokensAt) / idleFrameTime); more > 0 {
		s.tokens = min(maxIdleFrames, s.tokens+more)
		s.tokensAt = now
	}
	if s.tokens == 0 {
		return tooManyIdleFrames
	}
	s.tokens--
	return ""
}

// answered removes a stream. mu is held.
func (s *streams) answered(stream uint32) {
	if _, ok := s.open[stream]; ok {
		delete(s.open, stream)
		s.conn.countStreams(-1)
		s.noteBodies(false)
	}
}

// countBodies counts bodies of requests that still come, or notes progress if by is 0.
func (s *streams) countBodies(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies += by
	s.noteBodies(by == 0)
}

// noteBodies records whether the connection waits for its client: all requests without an answer have bodies that
// still come. mu is held.
func (s *streams) noteBodies(progress bool) {
	waits := s.bodies > 0 && s.bodies >= len(s.open)
	if waits == s.conn.receiving.Load() && !(waits && progress) {
		return
	}
	s.conn.receiving.Store(waits)
	s.conn.l.wait(s.conn, waits)
}

// end removes all streams: the connection is closed.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.countStreams(-len(s.open))
	clear(s.open)
	s.closed = true
}

// hasRequests reports whether a stream has been opened.
func (s *streams) hasRequests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requestsInAll > 0
}

// unanswered returns the number of streams whose answers are not complete.
func (s *streams) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Write writes the frames of net/http, and goAwayFrame between them.
func (s *streams) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.Conn.Write(b)
	why := ""
	s.mu.Lock()
	s.out.scan(b[:n], func(f *frame) {
		s.frameSent = true
		if fault := s.noteSent(f); why == "" {
			why = fault
		}
	})
	s.mu.Unlock()
	if err == nil && s.goAwayDue {
		err = s.writeGoAway()
	}
	if !s.mayStay(why) {
		return n, errAbuse
	}
	return n, err
}

// noteSent counts one frame of net/http. A stream that it resets counts if the client
// has broken a rule.
func (s *streams) noteSent(f *frame) (why string) {
	if f.kind != frameReset {
		if (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0 {
			s.answered(f.stream)
		}
		return ""
	}
	s.answered(f.stream)
	switch f.first {
	case errCodeProtocol, errCodeFlow, errCodeRefused:
	case errCodeEnded:
		// A client may send much more of an unused body before it gets the reset; each
		// piece is answered by another reset.
		if slices.Contains(s.ended, f.stream) {
			return ""
		}
		if len(s.ended) == endedKept {
			s.ended = s.ended[:copy(s.ended, s.ended[1:])]
		}
		s.ended = append(s.ended, f.stream)
	default:
		return ""
	}
	return s.noteReset(time.Since(s.began))
}

// goAway asks the client to open no more streams. It may block for a Write.
func (s *streams) goAway() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.goAwayDue = true
	s.writeGoAway()
}

func (s *streams) writeGoAway() error {
	if !s.frameSent || s.out.within() {
		return nil
	}
	s.goAwayDue = false
	_, err := s.Conn.Write(goAwayFrame)
	return err
}
