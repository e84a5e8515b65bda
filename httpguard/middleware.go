// Package httpguard puts a [fairshare.Guard] in front of an [http.Handler].
// Start with [Middleware]. It needs nothing beside the standard library.
package httpguard

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"fairshare"
)

// Options change what Middleware does. The zero Options are good for a server
// that faces its clients directly.
type Options struct {
	// Client tells who asks. Proxy says that addr is a trusted proxy's own,
	// which is never banned. nil means the peer's address, never a header.
	Client func(r *http.Request) (addr netip.Addr, proxy bool)

	// Contact is shown to whoever is refused: an address, a URL, a sentence.
	// "" means none.
	Contact string

	// Refused hears of each refusal and block, real or dry, before it is
	// answered. It is called by many goroutines at once and is to be quick.
	// The report is good during the call only. nil means nobody listens.
	Refused func(*Report)

	// Failed hears of each error of the guard's limiter. nil means nobody.
	Failed func(error)

	// FailOpen lets requests through that the guard could not judge for an
	// error of its limiter. Otherwise they are answered 503.
	FailOpen bool

	// Now is the clock. nil means that of [NewClock], which steps of the
	// system's clock do not reach.
	Now func() time.Time
}

// Middleware returns what wraps a handler so that guard judges each request
// first: those refused or blocked are answered at once, all others reach the
// handler and are settled when it returns or panics. It is safe for
// concurrent use.
func Middleware(guard *fairshare.Guard, opts Options) func(http.Handler) http.Handler {
	if opts.Client == nil {
		opts.Client = peer
	}
	if opts.Now == nil {
		opts.Now = NewClock().Now
	}
	return func(next http.Handler) http.Handler {
		h := &handler{Options: opts, guard: guard, next: next, answers: newAnswers(guard.Policy(), opts.Contact)}
		h.visits.New = func() any { return new(visit) }
		return h
	}
}

// peer is the client when no proxy is trusted.
func peer(r *http.Request) (netip.Addr, bool) {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return a.Addr().Unmap().WithZone(""), false
}

type handler struct {
	Options
	guard   *fairshare.Guard
	next    http.Handler
	answers *answers
	robots  robots
	visits  sync.Pool
}

// A visit is what judging and answering one request needs. It is used again.
type visit struct {
	req    fairshare.Request
	report Report
	random [512]byte // what is left of it is at its end
	left   int       // bytes of random that are left
	fields [8]field
	buf    []byte
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	vis := h.visits.Get().(*visit)
	h.fill(&vis.req, r)
	v, err := h.guard.Decide(r.Context(), &vis.req)
	if err != nil && h.Failed != nil {
		h.Failed(err)
	}
	switch v.Enforced() {
	case fairshare.Allow:
		h.pass(w, r, vis, &v)
	case fairshare.Refuse, fairshare.Block:
		h.refuse(w, r, vis, &v)
		h.release(vis)
	default:
		if err != nil && h.FailOpen {
			h.pass(w, r, vis, &v)
			return
		}
		h.release(vis)
		unavailable(w)
	}
}

func (h *handler) fill(req *fairshare.Request, r *http.Request) {
	req.Time = h.Now()
	req.Addr, req.Proxy = h.Client(r)
	req.Method, req.Host, req.UserAgent, req.Header = r.Method, r.Host, "", canonical(r.Header)
	if agents := r.Header["User-Agent"]; len(agents) > 0 {
		req.UserAgent = agents[0]
	}
	target := r.RequestURI
	if target == "" { // made inside this process
		target = r.URL.RequestURI()
	}
	req.SetTarget(target)
}

// canonical is a header that is asked with canonical names only, as a Guard
// asks: http.Header would look at the spelling again.
type canonical http.Header

func (h canonical) Values(name string) []string { return h[name] }

func (h *handler) release(vis *visit) {
	vis.req, vis.report, vis.fields = fairshare.Request{}, Report{}, [8]field{}
	if cap(vis.buf) > 64<<10 {
		vis.buf = nil
	}
	h.visits.Put(vis)
}

// pass hands the request to the handler and settles it afterwards, whatever
// the handler does, or who is told before it.
func (h *handler) pass(w http.ResponseWriter, r *http.Request, vis *visit, v *fairshare.Verdict) {
	x := &exchange{w: w, head: r.Method == http.MethodHead}
	defer func() {
		out := fairshare.Outcome{Time: h.Now(), Status: x.outcome(), Bytes: x.bytes}
		// The client may be gone and its context with it; what it spent stays spent.
		if err := h.guard.Settle(context.Background(), v, out); err != nil && h.Failed != nil {
			h.Failed(err)
		}
	}()
	h.tell(vis, v)
	h.release(vis)
	if r.URL.Path == robotsPath {
		r = h.robots.watch(x, r, h.Now())
	}
	h.next.ServeHTTP(x.writer(), r)
	x.returned = true
	if x.copy != nil {
		h.robots.learn(x, r.Host, h.Now())
	}
}

// tell reports what a request that passes would have met.
func (h *handler) tell(vis *visit, v *fairshare.Verdict) {
	if h.Refused == nil {
		return
	}
	if v.Action != fairshare.Allow {
		h.reportDry(vis, &v.Finding)
	}
	if v.Trial.Action != fairshare.Undecided {
		h.reportDry(vis, &v.Trial)
	}
}

func (h *handler) reportDry(vis *visit, f *fairshare.Finding) {
	rule := h.answers.rule(f.Rule)
	vis.report = Report{Request: &vis.req, Finding: *f, DryRun: true, Status: rule.status(f), RetryAfter: rule.retryAfter(f), ID: vis.newID()}
	h.Refused(&vis.report)
}
