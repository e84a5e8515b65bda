// Package httpguard puts a [fairshare.Guard] in front of an [http.Handler].
// Start with [Middleware], or with [New] where the policy changes while
// requests are in progress. It needs nothing beside the standard library.
package httpguard

import (
	"crypto/rand"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/share"
)

// Options change what Middleware does. The zero Options are good for a server
// that faces its clients directly.
type Options struct {
	// Client tells who asks. nil means the peer's address, never a header.
	Client func(r *http.Request) Client

	// Bot tells what a client is taken for. It must not wait. nil means that
	// nobody is taken for a bot.
	Bot func(addr netip.Addr, userAgent string) fairshare.Bot

	// Lookups tells what others know of an address, for rules that ask. nil
	// means that nothing is known.
	Lookups fairshare.Lookups

	// Word tells what operators have said of a client. It must not wait. nil
	// means that they have said nothing.
	Word func(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Word

	// Contact is shown to whoever is refused: an address, a URL, a sentence.
	// "" means none.
	Contact string

	// Refused hears of each refusal and block, real or dry, before it is
	// answered. It is called by many goroutines at once and is to be quick.
	// The report is good during the call only. nil means nobody listens.
	Refused func(*Report)

	// Passed hears of each request that was let through when it has ended. It is
	// called by many goroutines at once and is to be quick. The passage is good
	// during the call only. nil means nobody listens.
	Passed func(*Passage)

	// Share hands out turns at the upstream while it is busy. nil means that
	// nobody waits.
	Share *share.Queue

	// HandlerAwaits says that the handler calls AwaitTurn itself, just before it
	// asks the upstream. Otherwise the turn is awaited before the handler is
	// called.
	HandlerAwaits bool

	// Meter measures the CPU time of the upstream. nil means that the handler
	// tells it, see SpentCPU; what it tells goes before what is measured.
	Meter fairshare.Meter

	// ThreadCPU measures the CPU time of the handler's own goroutine, which has a
	// thread for itself meanwhile, and what MeasureCPU adds to it. That makes
	// switching between goroutines dearer: some µs each. It works on Linux;
	// elsewhere a request counts as the time that it took.
	ThreadCPU bool

	// TellsCPU says that the handler tells CPU time by SpentCPU as a rule. Then
	// a request counts nothing before it ends or CPU time is told; but what has
	// no end of its own, as an event stream, counts without.
	TellsCPU bool

	// ReferenceKey makes the references that refused clients are shown: with the
	// same secret key they are the same after a restart. nil means a random one.
	ReferenceKey []byte

	// Failed hears of each error of the guard's limiter. nil means nobody.
	Failed func(error)

	// FailOpen lets requests through that the guard could not judge for an
	// error of its limiter. Otherwise they are answered 503.
	FailOpen bool

	// Now is the clock. nil means that of [NewClock], which steps of the
	// system's clock do not reach.
	Now func() time.Time
}

// A Client is who sent a request.
type Client struct {
	Addr    netip.Addr // unmapped, no zone; invalid when unknown
	Proxy   bool       // Addr is a trusted proxy's own
	Suspect bool       // Addr is likely to be a proxy's that nobody named; see fairshare.Request
}

// Middleware returns what wraps a handler so that guard judges each request
// first: those refused or blocked are answered at once, all others reach the
// handler and are settled when it returns or panics. It is safe for
// concurrent use.
func Middleware(guard *fairshare.Guard, opts Options) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return New(guard, opts, next) }
}

// A Handler judges each request before the handler that it wraps gets it. It
// is safe for concurrent use.
type Handler struct {
	next    http.Handler
	current atomic.Pointer[handler]
	robots  robots
	visits  sync.Pool
	running running
	key     [32]byte // of references, unless Options have one
}

// New returns a Handler around next, as Middleware does.
func New(guard *fairshare.Guard, opts Options, next http.Handler) *Handler {
	h := &Handler{next: next}
	rand.Read(h.key[:]) // it never fails
	h.visits.New = func() any { return new(visit) }
	h.Replace(guard, opts)
	return h
}

// Replace has another guard judge the requests that come from now on. Those
// in progress are settled by the guard that judged them.
func (h *Handler) Replace(guard *fairshare.Guard, opts Options) {
	if opts.Client == nil {
		opts.Client = peer
	}
	if opts.Now == nil {
		opts.Now = NewClock().Now
	}
	if opts.ReferenceKey == nil {
		opts.ReferenceKey = h.key[:]
	}
	h.current.Store(&handler{Handler: h, Options: opts, guard: guard, answers: newAnswers(guard.Policy(), opts.Contact)})
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.current.Load().serve(w, r)
}

// peer is the client when no proxy is trusted.
func peer(r *http.Request) Client {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return Client{Addr: a.Addr().Unmap().WithZone("")}
}

// A handler is what a Handler has of one policy.
type handler struct {
	*Handler
	Options
	guard   *fairshare.Guard
	answers *answers
}

// A visit is what judging and answering one request needs. It is used again.
type visit struct {
	req    fairshare.Request
	report Report
	fields [8]field
	buf    []byte
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
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
		unavailable(w, r)
	}
}

func (h *handler) fill(req *fairshare.Request, r *http.Request) {
	req.Time = h.Now()
	client := h.Client(r)
	req.Addr, req.Proxy, req.Suspect = client.Addr, client.Proxy, client.Suspect
	req.Method, req.Host, req.UserAgent, req.Header = r.Method, r.Host, "", canonical(r.Header)
	if agents := r.Header["User-Agent"]; len(agents) > 0 {
		req.UserAgent = agents[0]
	}
	target := r.RequestURI
	if target == "" { // made inside this process
		target = r.URL.RequestURI()
	}
	req.SetTarget(target)
	req.Lookups = h.Lookups
	if h.Bot != nil {
		req.SetBot(h.Bot(req.Addr, req.UserAgent))
	}
	req.Word = fairshare.Word{}
	if h.Word != nil && req.Addr.IsValid() {
		req.Word = h.Word(req.Addr, req.Bot, req.Time)
	}
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
	x := &exchange{w: w, head: r.Method == http.MethodHead, h: h, verdict: *v, passage: Passage{
		Asker: Asker{Addr: vis.req.Addr, Proxy: vis.req.Proxy || vis.req.Suspect, Bot: vis.req.Bot},
		Time:  vis.req.Time, UserAgent: vis.req.UserAgent,
	}}
	defer x.end()
	h.tell(vis, v)
	x.prepare(vis)
	if r.URL.Path == robotsPath {
		r = h.robots.watch(x, r, h.Now())
	}
	if h.ThreadCPU {
		x.work.gauge.thread = new(threadCPU)
		r = r.WithContext(x.work.gauge.thread.context(r.Context()))
	}
	w = x.writer()
	if h.HandlerAwaits || x.await(w, r) {
		h.next.ServeHTTP(w, r)
	}
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
	vis.report = Report{Request: &vis.req, Finding: *f, DryRun: true, Status: rule.status(f), RetryAfter: rule.retryAfter(f), ID: h.reference(&vis.req, f.Rule)}
	h.Refused(&vis.report)
}
