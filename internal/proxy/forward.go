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
)

const (
	// headDelay is how long the head of an answer without a length waits for
	// the first of its body, so that both travel together.
	headDelay = 2 * time.Millisecond

	// maxHints is how many interim answers (103 and the like) one request may
	// get.
	maxHints = 16
)

// A passage is one request on its way to the upstream, and its answer on the
// way back. It is used once.
type passage struct {
	*setup
	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request // the client's
	ctx   context.Context
	trace httptrace.ClientTrace
	body  *body // nil: none

	patience patience

	mu     sync.Mutex // of what follows, and of w until the answer is there
	hints  int
	begun  bool // the answer is there: no more hints
	headed bool // its head is written

	over bool // done was called; by one goroutine after the other
}

// forward asks the upstream and hands its answer on. It returns when the
// upstream is done, even if the client is not there any more, and panics with
// http.ErrAbortHandler where the client must see that the answer is not whole.
func (p *Proxy) forward(s *setup, w http.ResponseWriter, r *http.Request) {
	q := &passage{setup: s, proxy: p, w: w, r: r}
	upgrade := s.websocket(r)
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		q.body = p.newBody(w, r, s.bothAtOnce(r))
		defer q.body.end()
		if err := q.body.readAhead(); err != nil {
			q.refuseBody(err)
			return
		}
	}
	if q.body != nil && !q.body.whole && s.Slots != nil {
		if !q.uploads() {
			return
		}
		defer func() { p.uploads.leave(s.Slots()) }()
	}
	if !q.turn() {
		return
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	q.patience.cancel, q.patience.abandoned, q.patience.time = cancel, &p.abandoned, s.patience
	defer q.patience.end()
	stop := context.AfterFunc(r.Context(), q.patience.left)
	defer stop()
	q.ctx = ctx
	if r.ProtoAtLeast(1, 1) {
		q.trace.Got1xxResponse = q.hint
	}
	if q.body != nil && !q.body.whole && s.Upstream.Scheme != "h2c" {
		q.trace.GotConn = q.body.sentOver
	}
	ctx = httptrace.WithClientTrace(ctx, &q.trace)
	resp, err := s.transport.RoundTrip(q.request(ctx, upgrade))
	q.mu.Lock()
	q.begun = true
	q.mu.Unlock()
	if q.body != nil {
		q.body.asked()
	}
	if err == nil && p.ailing.Load() && p.ailing.Swap(false) {
		s.Log.Printf("upstream %s answers again", s.Upstream.Host)
	}
	if err == nil && s.listens() {
		s.noteSilence(resp)
		q.told(resp.Header)
	}
	switch {
	case err != nil:
		q.failed(err)
	case resp.StatusCode < 100: // net/http's server would panic
		resp.Body.Close()
		q.failed(fmt.Errorf("malformed HTTP response: status %q", resp.Status))
	case q.body != nil && q.body.failed() != nil: // it answers to half a request
		io.CopyN(io.Discard, resp.Body, maxDropped)
		resp.Body.Close()
		q.done(resp)
		q.refuseBody(q.body.failed())
	case resp.StatusCode == http.StatusSwitchingProtocols:
		q.switched(resp, upgrade, stop)
	default:
		q.answer(resp)
	}
}

// request returns what the upstream is asked. The header is the client's own,
// changed.
func (q *passage) request(ctx context.Context, upgrade bool) *http.Request {
	r := q.r
	out := r.WithContext(ctx)
	u := &url.URL{Scheme: q.scheme, Host: q.Upstream.Host}
	if t := target(r); strings.HasPrefix(t, "//") {
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery
	} else {
		u.Opaque = t
	}
	q.onward(q.w, r, upgrade)
	out.URL, out.RequestURI, out.Close, out.Body, out.Trailer = u, "", false, nil, nil
	if q.body != nil {
		q.body.tell(out, q.patience.left)
	}
	return out
}

// hint hands an interim answer on. It is called by the transport's goroutine,
// maybe even after RoundTrip returned.
func (q *passage) hint(code int, header textproto.MIMEHeader) error {
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
	q.keep(http.Header(header))
	back(h, http.Header(header))
	q.w.WriteHeader(code)
	clear(h)
	add(h, own)
	return nil
}

// answer hands the upstream's answer on.
func (q *passage) answer(resp *http.Response) {
	defer resp.Body.Close()
	h := q.w.Header()
	back(h, resp.Header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // else net/http guesses one
	}
	announced := q.announce(resp)
	if resp.Body == http.NoBody {
		q.done(resp)
		q.head(resp)
		q.trailer(resp, announced)
		return
	}
	if err := q.copy(resp); err != nil {
		panic(http.ErrAbortHandler)
	}
	q.trailer(resp, announced)
}

// announce tells the client which trailers are to come, and returns how many.
// Those that it may not get are not among them.
func (q *passage) announce(resp *http.Response) int {
	if len(resp.Trailer) == 0 {
		return 0
	}
	names := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		if name != q.CostHeader && !(name == timingHeader && q.takesTiming()) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		h := q.w.Header()
		h["Trailer"] = append(h["Trailer"], strings.Join(names, ", "))
	}
	return len(names)
}

// closeEarly has a connection of HTTP/1 whose client still sends closed after
// the answer: the rest of a body must not be taken for another request.
func (q *passage) closeEarly() {
	if q.body != nil && q.body.http1 && !q.body.sent() {
		q.w.Header()["Connection"] = connectionClose
	}
}

// head writes the head of the answer once.
func (q *passage) head(resp *http.Response) {
	if q.headed {
		return
	}
	q.headed = true
	q.closeEarly()
	q.w.WriteHeader(resp.StatusCode)
}

// trailer hands on what the upstream sent behind the body.
func (q *passage) trailer(resp *http.Response, announced int) {
	if len(resp.Trailer) == 0 {
		return
	}
	// net/http then does not count the length of a short body itself.
	http.NewResponseController(q.w).Flush()
	h := q.w.Header()
	for name, values := range resp.Trailer {
		if hopByHop(name) || name == "Content-Length" {
			continue // not the business of a trailer (RFC 9110 §6.5.1)
		}
		if len(resp.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}

// copy hands the body on. The error is that of either side; it is logged.
func (q *passage) copy(resp *http.Response) error {
	to := sink{w: q.w, flush: resp.ContentLength < 0}
	if eventStream(resp.Header) {
		return q.stream(resp, &to)
	}
	c := q.proxy.chunks.get()
	n, err := q.first(resp, c)
	if err == nil && int64(n) != resp.ContentLength {
		q.head(resp)
		c.to = n
		return q.ahead(resp, c, &to)
	}
	defer q.proxy.chunks.put(c)
	if err == io.EOF {
		err = nil
	}
	q.done(resp)
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

// first reads the first of a body: all of it where that is known to be
// short.
func (q *passage) first(resp *http.Response, c *chunk) (int, error) {
	if n := resp.ContentLength; n > 0 && n <= chunkSize {
		n, err := io.ReadFull(resp.Body, c.space[:n])
		if err == nil && resp.ProtoMajor == 2 && (len(resp.Trailer) > 0 || q.listens()) {
			resp.Body.Read(nil) // the trailer comes behind what is counted
		}
		return n, err
	} else if n > 0 {
		return resp.Body.Read(c.space)
	}
	// Who waits for a line now and then is not to wait for the head.
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
		q.done(resp)
	}
	early.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.head(resp)
	return n, err
}

// ahead hands a longer body on, and reads on while the client takes it.
func (q *passage) ahead(resp *http.Response, first *chunk, to *sink) error {
	a := q.proxy.newAhead(resp.Body, first, func() { q.done(resp) })
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
			q.patience.left()
			a.leave()
			return err
		}
		a.took(len(p))
	}
}

// stream hands events on as they come, as long as there is somebody to take
// them.
func (q *passage) stream(resp *http.Response, to *sink) error {
	space := q.proxy.spaces.get(0)
	defer q.proxy.spaces.put(0, space)
	q.patience.goesOn()
	q.proxy.live.add(&q.patience, func() { q.patience.cancel(errStopped) })
	defer q.proxy.live.remove(&q.patience)
	q.head(resp)
	to.flush = true
	http.NewResponseController(q.w).Flush()
	for {
		n, err := resp.Body.Read(*space)
		if err != nil {
			q.done(resp)
		}
		if n > 0 {
			if err := to.write((*space)[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || err != nil && context.Cause(q.ctx) == errStopped:
			return nil
		case err != nil:
			q.brokeOff(err)
			return err
		}
	}
}

func (q *passage) brokeOff(err error) {
	if q.ctx.Err() == nil && !errors.Is(err, errAbandoned) {
		q.Log.Printf("upstream %s broke off in the middle of an answer: %v", q.Upstream.Host, err)
	}
}

func eventStream(h http.Header) bool {
	const kind = "text/event-stream"
	v := h["Content-Type"]
	return len(v) > 0 && len(v[0]) >= len(kind) && strings.EqualFold(v[0][:len(kind)], kind) &&
		(len(v[0]) == len(kind) || strings.IndexByte("; \t,", v[0][len(kind)]) >= 0)
}

// A sink is where a body is written to: the client. How fast it is to take
// what is written is the listener's business.
type sink struct {
	w     http.ResponseWriter
	flush bool // what is written is to arrive at once
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
