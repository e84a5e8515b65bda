package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"fairshare/internal/outbound"
)

const (
	// headDelay is how long the head of an answer without a length waits for the
	// beginning of its body, so that both are sent together.
	headDelay = 2 * time.Millisecond

	// maxHints is how many interim answers (such as 103) one request may get.
	maxHints = 16
)

// An exchange is one request to the upstream and its answer. It is used once.
type exchange struct {
	*setup
	proxy  *Proxy
	pool   *pool
	up     *upstream // the last one that was tried
	w      http.ResponseWriter
	r      *http.Request           // the client's
	ctx    context.Context         // of the transport; nil: it is not used
	cancel context.CancelCauseFunc // of ctx
	trace  httptrace.ClientTrace
	call   *outbound.Call   // nil: the transport is used
	filled bool             // the header of the answer is that of w already
	body   *body            // nil: none
	own    []outbound.Field // of the request, besides the client's header; nil: the header has them

	patience patience

	mu     sync.Mutex // of what follows, and of w until the answer is there
	hints  int
	begun  bool // the answer has arrived: no more hints
	headed bool // its head is written

	over bool // finish was called; by one goroutine after the other
}

// forward sends the request to the upstream and its answer to the client. It returns
// when the upstream is done, even if the client has left. It panics with
// http.ErrAbortHandler if the client must see that the answer is incomplete.
func (p *Proxy) forward(s *setup, pool *pool, w http.ResponseWriter, r *http.Request) {
	q := &exchange{setup: s, proxy: p, pool: pool, w: w, r: r}
	upgrade := pool.websocket(r)
	if !pool.isUp() {
		q.allDown()
		return
	}
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		q.body = p.newBody(w, r, pool.bothAtOnce(r))
		defer q.body.end()
		if err := q.body.readAhead(); err != nil {
			q.refuseBody(err)
			return
		}
	}
	if q.body != nil && !q.body.whole && pool.Slots != nil {
		if !q.enterUploads() {
			return
		}
		defer func() { pool.uploads.leave(pool.Slots()) }()
	}
	if !q.turn() {
		return
	}

	q.patience.abandoned, q.patience.time = &p.abandoned, s.patience
	defer q.endCall()
	defer q.patience.end()
	stop := afterEnd(r.Context(), q.patience.clientLeft)
	defer stop()
	resp, err := q.send(upgrade)
	if q.up == nil { // the last one went down while the request waited
		q.finish(nil)
		q.allDown()
		return
	}
	defer q.up.release()
	q.mu.Lock()
	q.begun = true
	q.mu.Unlock()
	if q.body != nil {
		q.body.setAnswered()
	}
	if err == nil {
		q.up.answered()
		if q.up.silent.Load() && q.up.silent.Swap(false) {
			s.Log.Printf("%supstream %s answers again", pool.of(), q.up.url.Host)
		}
	}
	if err == nil && s.readsCosts() {
		s.noteSilence(q.up, resp)
		q.readCosts(resp.Header)
	}
	switch {
	case err != nil:
		q.failed(err)
	case resp.StatusCode < 100: // net/http's server would panic
		resp.Body.Close()
		q.failed(fmt.Errorf("malformed HTTP response: status %q", resp.Status))
	case q.body != nil && q.body.failed() != nil: // it answers an incomplete request
		io.CopyN(io.Discard, resp.Body, maxDropped)
		resp.Body.Close()
		q.finish(resp)
		if q.filled {
			clear(q.w.Header())
		}
		q.refuseBody(q.body.failed())
	case resp.StatusCode == http.StatusSwitchingProtocols:
		q.switched(resp, upgrade, stop)
	default:
		q.answer(resp)
	}
}

// afterEnd is context.AfterFunc. Some contexts can do the same at less cost: they have
// the method that context.AfterFunc looks for.
func afterEnd(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// send sends the request to the least busy upstream. If it accepts no connection, so that
// nothing was sent, send tries the others of the site. q.up is nil if none is up.
func (q *exchange) send(upgrade bool) (*http.Response, error) {
	if q.up = q.pool.pick(nil, time.Now()); q.up == nil {
		return nil, errAllDown
	}
	q.own = q.rewriteHeader(q.w, q.r, upgrade)
	var tried []*upstream
	for {
		resp, err := q.roundTrip(upgrade)
		if err == nil || !isDialError(err) || q.patience.cancelled() != nil {
			return resp, err
		}
		q.pool.failedConnection(q.up, q.Log, err)
		tried = append(tried, q.up)
		next := q.pool.pick(tried, time.Now())
		if next == nil {
			return nil, err
		}
		q.up.release()
		q.up = next
	}
}

var errAllDown = errors.New("all upstreams are down")

// directBody is the longest body that a direct call sends: the kernel takes it at once, even if
// the upstream answers without reading it.
const directBody = 4 << 10

// roundTrip sends the request to q.up: with a direct call if the request is a simple one, otherwise
// with the transport.
func (q *exchange) roundTrip(upgrade bool) (*http.Response, error) {
	if q.up.direct != nil && !q.OnlyTransport && !upgrade && (q.body == nil || q.body.whole && q.body.n <= directBody) {
		if resp, err := q.callDirectly(); err != outbound.ErrUnfit {
			return resp, err
		}
	}
	return q.up.transport.RoundTrip(q.request())
}

// callDirectly sends the request, whose body is complete, and reads the head of the answer.
func (q *exchange) callDirectly() (*http.Response, error) {
	q.endCall()
	q.call = q.up.direct.Call()
	q.patience.onCancel(q.call.Stop)
	r := outbound.Request{Method: q.r.Method, Target: target(q.r), Host: q.r.Host, Header: q.r.Header,
		Fields: q.own}
	if q.r.ProtoAtLeast(1, 1) {
		r.Hint = q.hint
	}
	if q.body != nil {
		r.Body = q.body.complete()
	}
	if h := q.w.Header(); len(h) == 0 {
		r.Answer = h
	}
	resp, err := q.call.Do(&r)
	q.filled = len(r.Answer) > 0
	return resp, err
}

// endCall ends the use of a direct call.
func (q *exchange) endCall() {
	if q.call != nil {
		q.patience.onCancel(nil)
		q.call.Release()
		q.call = nil
	}
}

// request returns the request for the transport. It shares the client's header, which was
// changed.
func (q *exchange) request() *http.Request {
	q.endCall()
	r := q.r
	if q.own != nil {
		setFields(r.Header, q.own)
		q.own = nil
	}
	if q.ctx == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		q.cancel = cancel
		if r.ProtoAtLeast(1, 1) {
			q.trace.Got1xxResponse = q.hint
		}
		if q.body != nil && !q.body.whole && q.pool.scheme != "h2c" {
			q.trace.GotConn = q.body.setConn
		}
		q.ctx = httptrace.WithClientTrace(ctx, &q.trace)
	}
	q.patience.onCancel(q.cancel) // also after a direct call to another upstream
	out := r.WithContext(q.ctx)
	u := &url.URL{Scheme: q.up.scheme, Host: q.up.url.Host}
	if t := target(r); strings.HasPrefix(t, "//") {
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery
	} else {
		u.Opaque = t
	}
	out.URL, out.RequestURI, out.Close, out.Body, out.Trailer = u, "", false, nil, nil
	if q.body != nil {
		q.body.attach(out, q.patience.clientLeft)
	}
	return out
}

// hint forwards an interim answer. The transport's goroutine calls it, maybe even
// after RoundTrip has returned.
func (q *exchange) hint(code int, header textproto.MIMEHeader) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hints++; q.hints > maxHints {
		return fmt.Errorf("malformed HTTP response: more than %d interim answers", maxHints)
	}
	if q.begun || code == http.StatusContinue {
		return nil
	}
	h := q.w.Header()
	own := h.Clone()
	q.stripCosts(http.Header(header))
	copyAnswerHeader(h, http.Header(header))
	q.w.WriteHeader(code)
	clear(h)
	add(h, own)
	return nil
}

// answer forwards the upstream's answer.
func (q *exchange) answer(resp *http.Response) {
	defer resp.Body.Close()
	h := q.w.Header()
	if q.filled {
		dropConnectionFields(h)
	} else {
		copyAnswerHeader(h, resp.Header)
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // else net/http guesses one
	}
	announced := q.announce(resp)
	if resp.Body == http.NoBody {
		q.finish(resp)
		q.head(resp)
		q.trailer(resp, announced)
		return
	}
	if err := q.copy(resp); err != nil {
		panic(http.ErrAbortHandler)
	}
	q.trailer(resp, announced)
}

// announce announces the trailers that the client may get, and returns how many.
func (q *exchange) announce(resp *http.Response) int {
	if len(resp.Trailer) == 0 {
		return 0
	}
	names := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		if name != q.CostHeader && !(name == timingHeader && q.stripsTiming()) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		h := q.w.Header()
		h["Trailer"] = append(h["Trailer"], strings.Join(names, ", "))
	}
	return len(names)
}

// closeEarly closes an HTTP/1 connection after the answer if the client is still
// sending: the rest of the body must not be parsed as another request.
func (q *exchange) closeEarly() {
	if q.body != nil && q.body.http1 && !q.body.sent() {
		q.w.Header()["Connection"] = connectionClose
	}
}

// head writes the head of the answer once.
func (q *exchange) head(resp *http.Response) {
	if q.headed {
		return
	}
	q.headed = true
	q.closeEarly()
	q.w.WriteHeader(resp.StatusCode)
}

// trailer forwards the trailers of the upstream.
func (q *exchange) trailer(resp *http.Response, announced int) {
	if len(resp.Trailer) == 0 {
		return
	}
	// net/http then does not count the length of a short body itself.
	http.NewResponseController(q.w).Flush()
	h := q.w.Header()
	for name, values := range resp.Trailer {
		if isHopByHop(name) || name == "Content-Length" {
			continue // not allowed in a trailer (RFC 9110 §6.5.1)
		}
		if len(resp.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}

// copy forwards the body. The error is of either side; it is logged.
func (q *exchange) copy(resp *http.Response) error {
	to := sink{w: q.w, flush: resp.ContentLength < 0}
	if eventStream(resp.Header) {
		return q.stream(resp, &to)
	}
	c := q.proxy.chunks.get()
	n, err := q.first(resp, c)
	if err == nil && int64(n) != resp.ContentLength {
		q.head(resp)
		c.to = n
		return q.copyAhead(resp, c, &to)
	}
	defer q.proxy.chunks.put(c)
	if err == io.EOF {
		err = nil
	}
	q.finish(resp)
	q.head(resp)
	if err != nil {
		q.brokeOff(err)
	}
	to.flush = to.flush && err != nil
	if n > 0 {
		if werr := to.write(c.space[:n]); err == nil {
			err = werr
		}
	}
	return err
}

// first reads the beginning of a body, or a short body completely.
func (q *exchange) first(resp *http.Response, c *chunk) (int, error) {
	if n := resp.ContentLength; n > 0 && n <= chunkSize {
		n, err := io.ReadFull(resp.Body, c.space[:n])
		if err == nil && resp.ProtoMajor == 2 && (len(resp.Trailer) > 0 || q.readsCosts()) {
			resp.Body.Read(nil) // the trailer comes after the counted bytes
		}
		return n, err
	} else if n > 0 {
		return resp.Body.Read(c.space)
	}
	// A client of a slow stream must not wait for the head.
	early := time.AfterFunc(headDelay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.headed {
			q.head(resp)
			http.NewResponseController(q.w).Flush()
		}
	})
	n, err := resp.Body.Read(c.space)
	if err != nil {
		q.finish(resp)
	}
	early.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.head(resp)
	return n, err
}

// copyAhead forwards a longer body, and reads ahead while the client takes it.
func (q *exchange) copyAhead(resp *http.Response, first *chunk, to *sink) error {
	a := q.proxy.newReadAhead(resp.Body, first, func() { q.finish(resp) })
	go a.run()
	defer a.end()
	for {
		p, err := a.take()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			q.brokeOff(err)
			return err
		}
		if err := to.write(p); err != nil {
			q.patience.clientLeft()
			a.abandon()
			return err
		}
		a.release(len(p))
	}
}

// stream forwards events as they come, until the client leaves.
func (q *exchange) stream(resp *http.Response, to *sink) error {
	space := q.proxy.spaces.get(0)
	defer q.proxy.spaces.put(0, space)
	q.patience.setLive()
	q.proxy.live.add(&q.patience, func() { q.patience.cancel(errStopped) })
	defer q.proxy.live.remove(&q.patience)
	q.head(resp)
	to.flush = true
	http.NewResponseController(q.w).Flush()
	for {
		n, err := resp.Body.Read(*space)
		if err != nil {
			q.finish(resp)
		}
		if n > 0 {
			if err := to.write((*space)[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || err != nil && q.patience.cancelled() == errStopped:
			return nil
		case err != nil:
			q.brokeOff(err)
			return err
		}
	}
}

func (q *exchange) brokeOff(err error) {
	if q.patience.cancelled() == nil && !errors.Is(err, errAbandoned) {
		q.Log.Printf("%supstream %s ended in the middle of an answer: %v", q.pool.of(), q.up.url.Host, err)
	}
}

func eventStream(h http.Header) bool {
	const kind = "text/event-stream"
	v := h["Content-Type"]
	return len(v) > 0 && len(v[0]) >= len(kind) && strings.EqualFold(v[0][:len(kind)], kind) &&
		(len(v[0]) == len(kind) || strings.IndexByte("; \t,", v[0][len(kind)]) >= 0)
}

// A sink writes a body to the client. The listener bounds how slowly the client may
// read.
type sink struct {
	w     http.ResponseWriter
	flush bool // send each write at once
}

func (s *sink) write(p []byte) error {
	if n, err := s.w.Write(p); err != nil {
		return err
	} else if n < len(p) {
		return io.ErrShortWrite
	}
	if s.flush {
		return http.NewResponseController(s.w).Flush()
	}
	return nil
}
