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

	"fairshare/httpguard"
	"fairshare/internal/outbound"
)

// maxHints is how many interim answers (such as 103) one request may get.
const maxHints = 16

// A request is a client's request that may be forwarded.
type request struct {
	*setup
	pool       *pool
	w          http.ResponseWriter
	r          *http.Request
	target     string  // for the upstream
	repeat     *repeat // of the client's connection; nil: none
	isRepeated bool    // it is probably as the last one, but repeat does not know that
}

// An exchange is one request to the upstream and its answer.
type exchange struct {
	request
	proxy  *Proxy
	up     *upstream               // the last one that was tried
	ctx    context.Context         // of the transport; nil: it is not used
	cancel context.CancelCauseFunc // of ctx
	trace  httptrace.ClientTrace
	call   *outbound.Call   // nil: the transport is used
	filled bool             // w has the header of the answer already, see outbound.Request.Answer
	body   *body            // nil: none
	lines  []byte           // of the request, if repeat knows them
	own    []outbound.Field // of the request, besides the client's header; nil: the header has them

	patience patience
	watched  watchable   // the client's context; nil: it is not watched so
	unwatch  func() bool // ends the watch of another context
	shared   bool        // something may still refer to the exchange when forward returns
	uploads  bool        // the request is among the uploads of the pool

	mu     sync.Mutex // of what follows, and of w until the answer is there
	hints  int
	begun  bool // the answer has arrived: no more hints
	headed bool // its head is written

	over bool // finish was called; by one goroutine after the other

	space [usualFields]outbound.Field // for own

	// These stay when the exchange is used again.
	clientLeft func() // of patience
	onHint     func(code int, header textproto.MIMEHeader) error
}

// newExchange returns an empty exchange, which another request may have used.
func (p *Proxy) newExchange() *exchange {
	if q, ok := p.exchanges.Get().(*exchange); ok {
		return q
	}
	q := new(exchange)
	q.clientLeft, q.onHint = q.patience.clientLeft, q.hint
	return q
}

// reuse lets another request use q, and the memory of the client's request, unless something may still refer to it.
func (q *exchange) reuse() {
	if q.shared || q.body != nil || q.ctx != nil || q.patience.hasClientLeft() {
		return
	}
	httpguard.NothingKept(q.w)
	p := q.proxy
	*q = exchange{clientLeft: q.clientLeft, onHint: q.onHint}
	p.exchanges.Put(q)
}

// forward sends the request to the upstream and its answer to the client. It returns
// when the upstream is done, even if the client has left. It panics with
// http.ErrAbortHandler if the client must see that the answer is incomplete.
func (p *Proxy) forward(r *request) {
	q := p.newExchange()
	q.request, q.proxy = *r, p
	q.run()
	q.reuse() // not after a panic
}

// run is forward.
func (q *exchange) run() {
	defer q.close()
	s, p, pool, w, r := q.setup, q.proxy, q.pool, q.w, q.r
	upgrade := !q.repeat.isKnown() && pool.websocket(r)
	if !pool.isUp() {
		q.allDown()
		return
	}
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		q.body = p.newBody(w, r, pool.bothAtOnce(r))
		if err := q.body.readAhead(); err != nil {
			q.refuseBody(err)
			return
		}
	}
	if q.body != nil && !q.body.whole && pool.Slots != nil {
		if q.uploads = q.enterUploads(); !q.uploads {
			return
		}
	}
	if !q.turn() {
		return
	}

	q.patience.abandoned, q.patience.time = &p.abandoned, s.patience
	q.watchClient()
	resp, err := q.send(upgrade)
	if q.up == nil { // the last one went down while the request waited
		q.finish(nil)
		q.allDown()
		return
	}
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
		q.switched(resp, upgrade)
	default:
		q.answer(resp)
	}
}

// close ends what run has begun, also after a panic.
func (q *exchange) close() {
	if q.up != nil {
		q.up.release()
	}
	q.unwatchClient()
	q.patience.end()
	q.endCall()
	if q.uploads {
		q.pool.uploads.leave(q.pool.Slots())
	}
	if q.body != nil {
		q.body.end()
	}
}

// A watchable is a context that reports its end at less cost than context.AfterFunc.
type watchable interface {
	// OnEnd has f called at the end. It returns false if it cannot.
	OnEnd(f func()) bool
	// OffEnd returns whether f will not be called.
	OffEnd() bool
}

// watchClient has patience learn when the client leaves.
func (q *exchange) watchClient() {
	ctx := q.r.Context()
	if c, ok := ctx.(watchable); ok && c.OnEnd(q.clientLeft) {
		q.watched = c
		return
	}
	q.unwatch = context.AfterFunc(ctx, q.clientLeft)
}

// unwatchClient ends the watch.
func (q *exchange) unwatchClient() {
	stopped := true
	if q.watched != nil {
		stopped = q.watched.OffEnd()
	} else if q.unwatch != nil {
		stopped = q.unwatch()
	}
	q.watched, q.unwatch = nil, nil
	q.shared = q.shared || !stopped
}

// send sends the request to the least busy upstream. If it accepts no connection, so that
// nothing was sent, send tries the others of the site. q.up is nil if none is up.
func (q *exchange) send(upgrade bool) (*http.Response, error) {
	if q.up = q.pool.pickNow(nil); q.up == nil {
		return nil, errAllDown
	}
	q.rewrite(upgrade)
	var tried []*upstream
	for {
		resp, err := q.roundTrip(upgrade)
		if err == nil || !isDialError(err) || q.patience.cancelled() != nil {
			return resp, err
		}
		q.pool.failedConnection(q.up, q.Log, err)
		tried = append(tried, q.up)
		next := q.pool.pickNow(tried)
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
	return q.up.transport.RoundTrip(q.transportRequest())
}

// callDirectly sends the request, whose body is complete, and reads the head of the answer.
func (q *exchange) callDirectly() (*http.Response, error) {
	q.endCall()
	q.call = q.up.direct.Call()
	q.patience.onCancel(q.call.StopFunc())
	r := outbound.Request{Method: q.r.Method, Target: q.target, Host: q.r.Host, Header: q.r.Header,
		Fields: q.own, Lines: q.lines}
	if q.r.ProtoAtLeast(1, 1) {
		r.Hint = q.onHint
	}
	if q.body != nil {
		r.Body = q.body.complete()
	} else {
		r.Whole = !q.readsCosts() && httpguard.AwaitsWhole(q.w)
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

// transportRequest returns the request for the transport. It shares the client's header, which was
// changed.
func (q *exchange) transportRequest() *http.Request {
	q.endCall()
	r := q.r
	if q.lines != nil && q.own == nil {
		q.own = q.rewriteHeader(nil, q.w, r, false)
	}
	q.lines = nil
	if q.own != nil {
		setFields(r.Header, q.own)
		q.own = nil
	}
	if q.ctx == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		q.cancel = cancel
		if r.ProtoAtLeast(1, 1) {
			q.trace.Got1xxResponse = q.onHint
		}
		if q.body != nil && !q.body.whole && q.pool.scheme != "h2c" {
			q.trace.GotConn = q.body.setConn
		}
		if q.body != nil {
			q.trace.WroteRequest = q.body.setWritten
			q.body.gone, q.body.timeout = q.patience.clientLeft, q.up.timeout
			q.body.stuck = func() { q.patience.cancel(errStuck) }
		}
		q.ctx = httptrace.WithClientTrace(ctx, &q.trace)
	}
	q.patience.onCancel(q.cancel) // also after a direct call to another upstream
	out := r.WithContext(q.ctx)
	u := &url.URL{Scheme: q.up.scheme, Host: q.up.url.Host}
	if strings.HasPrefix(q.target, "//") {
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery
	} else {
		u.Opaque = q.target
	}
	out.URL, out.RequestURI, out.Close, out.Body, out.Trailer = u, "", false, nil, nil
	if q.body != nil {
		q.body.attach(out)
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
