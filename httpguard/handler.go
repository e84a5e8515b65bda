// Package httpguard puts a [fairshare.Guard] in front of an [http.Handler].
//
// Start with [Limit] for one limit, with [Middleware] for a policy, and with
// [New] if the policy changes while requests are in progress. [Handler.Do] is
// for servers that have their own kind of handler. A handler finds its request
// with [From]. The package needs nothing but the standard library.
package httpguard

import (
	"crypto/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/logins"
	"fairshare/share"
)

// Middleware returns a function that wraps a handler. The guard judges each
// request first. A request that is refused or blocked is answered at once. All
// others reach the handler, and are settled when it returns or panics.
//
// It panics if guard is nil.
func Middleware(guard *fairshare.Guard, opts Options) func(http.Handler) http.Handler {
	checkGuard(guard)
	return func(next http.Handler) http.Handler { return New(guard, opts, next) }
}

// A Handler judges each request before the handler that it wraps gets it. It
// is safe for concurrent use.
type Handler struct {
	next        http.Handler
	current     atomic.Pointer[generation]
	generations atomic.Uint64 // how many there have been
	robots      robotsCopies
	visits      sync.Pool
	exchanges   sync.Pool // of *Exchange: those of which nothing was kept
	inProgress  inProgress
	lists       listWait
	formBytes   atomic.Int64 // of long forms in memory
	key         [32]byte     // of references, unless Options have one
}

// New returns a Handler around next, which works as [Middleware] does. next may
// be nil if only [Handler.Do] is called. New panics if guard is nil.
func New(guard *fairshare.Guard, opts Options, next http.Handler) *Handler {
	h := &Handler{next: next}
	rand.Read(h.key[:]) // it never fails
	h.visits.New = func() any { return new(visit) }
	h.Replace(guard, opts)
	return h
}

// Replace sets the guard and the options for the requests that come from now
// on. Requests in progress are settled by the guard that judged them. Replace
// panics if guard is nil.
func (h *Handler) Replace(guard *fairshare.Guard, opts Options) {
	checkGuard(guard)
	if opts.Client == nil {
		opts.Client = peer
	}
	if opts.Wait == 0 {
		opts.Wait = DefaultWait
	}
	if opts.Now == nil {
		opts.Now = NewClock().Now
	}
	if opts.ReferenceKey == nil {
		opts.ReferenceKey = h.key[:]
	}
	next := &generation{Handler: h, Options: opts, guard: guard, answers: newAnswers(guard.Policy(), &opts),
		testsForms: guard.Policy().TestsForms(), looksFirst: opts.Logins != nil || guard.Policy().TestsBrowsers(),
		number: h.generations.Add(1)}
	next.answers.number = next.number
	h.current.Store(next)
	if (opts.Share != nil || len(opts.Shares) > 0) && !guard.HasBusy() {
		guard.UseBusyOf(func(site string) bool {
			q := h.current.Load().queueOf(site) // another one after a Replace with the same guard
			return q != nil && q.IsBusy()
		})
	}
}

func checkGuard(guard *fairshare.Guard) {
	if guard == nil {
		panic("httpguard: the guard is nil")
	}
}

// ServeHTTP judges the request and passes it to the handler, or answers it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.current.Load().serve(w, r, nil)
}

// Do judges one request, for servers whose handlers are not http.Handlers. If
// the request may pass, Do calls next with the ResponseWriter and the Request
// that it must use, settles the request when next returns or panics, and
// returns the error of next. Otherwise Do answers the request itself and returns
// nil.
//
// Some servers write the answer only after their middleware has returned. If
// next returns an error and nothing is written, Options.ErrorStatus gives the
// status that counts. If next returns nil, it reports what the server is about
// to write: From(r.Context()).ReportAnswer.
func (h *Handler) Do(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	return h.current.Load().serve(w, r, next)
}

// A generation is what a Handler has of one guard and its options.
type generation struct {
	*Handler
	Options
	guard   *fairshare.Guard
	answers *answers

	testsForms bool // a rule looks at fields of forms
	looksFirst bool // judging needs to know whether the client is a browser

	number uint64 // among those of the Handler, from 1
}

// queueOf returns the queue of a site; nil if its requests do not wait.
func (o *Options) queueOf(site string) *share.Queue {
	if q := o.Shares[site]; q != nil {
		return q
	}
	return o.Share
}

// queueFor returns the queue for the requests of a host.
func (g *generation) queueFor(host string) *share.Queue {
	if len(g.Shares) == 0 {
		return g.Share
	}
	return g.queueOf(g.guard.SiteOf(host))
}

// A visit is what judging and answering one request needs. It is used again.
type visit struct {
	req     fairshare.Request
	report  Report
	arrived time.Time // req.Time is later if the request waited
	fields  [8]*field
	buf     []byte
	lines   []byte
	cookie  string // of the visitor, as sent; "" if there was none
	signs   browser.Sighting
	login   *logins.Attempt // nil for most requests
	auth    *authAnswer     // another server serves the request; nil if this one does

	// These stay for the next request.
	referenced referenced // by reference
	reference  string
	lined      lined // the refusal that line shows
	line       []byte
}

// serve judges one request. next is nil for the handler that h wraps.
func (g *generation) serve(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	if r.Method == http.MethodPost && g.hasCalls(w, r) {
		return g.serveCalls(w, r, next)
	}
	if g.testsForms {
		return g.serveForm(w, r, next)
	}
	return g.judge(w, r, fairshare.Form{}, nil, next)
}

// judge judges one request, whose form is known. calls is nil for all but XML-RPC.
func (g *generation) judge(w http.ResponseWriter, r *http.Request, form fairshare.Form, calls *calls,
	next func(http.ResponseWriter, *http.Request) error) error {
	vis := g.visits.Get().(*visit)
	vis.report.HTTP = r
	vis.auth, _ = w.(*authAnswer)
	g.fill(&vis.req, r)
	vis.req.Form = form
	vis.arrived = vis.req.Time
	vis.cookie = g.readVisitor(&vis.req, r)
	if g.looksFirst {
		g.lookForSigns(vis, r)
	}
	if g.Fleets != nil {
		g.Fleets.Arrived(&vis.req)
	}
	if g.Logins != nil {
		vis.login = g.Logins.Arrived(&vis.req, g.guard)
		if calls != nil && vis.login != nil {
			vis.login.Called(&vis.req, calls.begun, calls.whole)
		}
	}
	v, gone, err := g.decide(r, vis)
	g.reportFailed(r, err)
	if gone {
		vis.req.Time = g.Now()
		g.reportAnswered(vis, &v, func(a *Access) { a.Gone = true })
		g.release(vis)
		return nil
	}
	verdict := v.Enforced()
	refused := verdict == fairshare.Refuse || verdict == fairshare.Block
	if !g.looksFirst && !refused {
		g.lookForSigns(vis, r)
	}
	switch {
	case verdict == fairshare.Allow:
		if g.inRoom(w, r, vis, &v) {
			g.release(vis)
			return nil
		}
		return g.pass(w, r, vis, &v, next)
	case refused:
		g.refuse(w, r, vis, &v)
		g.release(vis)
		g.reuse(w)
	default:
		open := err != nil && (g.FailOpen || g.guard.Policy().DryRun)
		if g.Unjudged != nil {
			g.Unjudged(r, open)
		}
		if open {
			return g.pass(w, r, vis, &v, next)
		}
		g.reportAnswered(vis, &v, func(a *Access) { a.Status = http.StatusServiceUnavailable })
		g.release(vis)
		g.answers.unavailable(w, r)
	}
	return nil
}

// reuse lets the server use the memory of a request again. It returns false if the server does not.
func (g *generation) reuse(w http.ResponseWriter) bool {
	reused, ok := w.(interface{ Reuse() })
	if ok = ok && g.Reuse; ok {
		reused.Reuse()
	}
	return ok
}

// reportWaited calls Options.Waited.
func (g *generation) reportWaited(r *http.Request, wait time.Duration) {
	if g.Waited != nil {
		g.Waited(r, wait)
	}
}

// reportFailed calls Options.Failed if there is an error.
func (g *generation) reportFailed(r *http.Request, err error) {
	if err != nil && g.Failed != nil {
		g.Failed(r, err)
	}
}

func (g *generation) fill(req *fairshare.Request, r *http.Request) {
	req.Time = g.Now()
	client := g.Client(r)
	req.Addr, req.Proxy, req.Via = client.Addr, client.Proxy, client.Via
	req.Method, req.Host, req.UserAgent, req.Header = r.Method, r.Host, "", canonical(r.Header)
	if agents := r.Header["User-Agent"]; len(agents) > 0 {
		req.UserAgent = agents[0]
	}
	target := r.RequestURI
	if target == "" { // made inside this process
		target = r.URL.RequestURI()
	}
	req.SetTarget(target)
	req.Lookups = g.Lookups
	if g.Values != nil {
		req.Values = g.Values(r)
	}
	if g.Bot != nil {
		bot := g.Bot(req.Addr, req.UserAgent)
		if g.SignedBot != nil && len(r.Header["Signature-Input"]) > 0 {
			bot = g.SignedBot(r, req.Addr, bot)
		}
		req.SetBot(bot)
	}
	req.Robots = fairshare.Robots{}
	if g.Robots != nil && req.Bot.State != fairshare.NoBot {
		req.Robots = g.Robots.Judge(&req.Bot, req.Host, req.UserAgent, target, req.Time)
	}
	req.Owner = fairshare.Owner{}
	if g.Owner != nil && req.Addr.IsValid() {
		req.Owner = g.Owner(req.Addr)
	}
	req.Override, req.ViaOverride = fairshare.Override{}, fairshare.Override{}
	if g.Override != nil && req.Addr.IsValid() {
		req.Override = g.Override(req.Addr, req.Bot, req.Time)
	}
	if g.Override != nil && req.Via.IsValid() {
		req.ViaOverride = g.Override(req.Via, fairshare.Bot{}, req.Time)
	}
}

// canonical is a header that a Guard asks, with canonical names only.
// http.Header would look at the spelling again.
type canonical http.Header

func (h canonical) Values(name string) []string { return h[name] }

func (h *Handler) release(vis *visit) {
	vis.req, vis.report, vis.fields, vis.cookie = fairshare.Request{}, Report{}, [8]*field{}, ""
	vis.signs, vis.login, vis.auth = browser.Sighting{}, nil, nil
	if cap(vis.buf) > 64<<10 {
		vis.buf = nil
	}
	h.visits.Put(vis)
}

// pass hands the request to the handler and settles it afterwards, even if the
// handler or a hook panics.
func (g *generation) pass(w http.ResponseWriter, r *http.Request, vis *visit, v *fairshare.Verdict,
	next func(http.ResponseWriter, *http.Request) error) (err error) {
	if vis.auth != nil {
		g.authorize(r, vis, v)
		return nil
	}
	x := g.newExchange()
	x.verdict, x.visitorCookie, x.signs = *v, vis.cookie, vis.signs
	c, req := &x.completion, &vis.req
	c.Addr, c.Proxy, c.Via, c.Bot = req.Addr, req.Proxy, req.Via, req.Bot
	c.HTTP, c.Time, c.Method, c.Host, c.Path = r, req.Time, req.Method, req.Host, req.Path
	c.UserAgent, c.Owner, c.Fleet = req.UserAgent, req.Owner, req.Fleet
	res := &x.response
	res.w, res.x, res.head, res.alone = w, x, r.Method == http.MethodHead, true
	forEachExchange(w, func(outer *Exchange) bool {
		res.alone, outer.isShared = false, true
		return true
	})
	x.work.bodyless = r.ContentLength == 0
	if vis.login != nil {
		x.login = &watchedLogin{Attempt: vis.login}
		x.login.Passed()
	}
	x.secure = g.Visitors != nil && g.isSecure(r)
	if g.Answered != nil {
		access := g.noteAccess(vis, v)
		x.access = &access
	}
	defer x.end()
	if vis.req.Time.After(vis.arrived) {
		g.reportWaited(r, vis.req.Time.Sub(vis.arrived))
	}
	g.reportDryRun(vis, v)
	if g.RateLimitFields {
		x.setRateLimitFields(w.Header())
	}
	x.prepare(vis)
	if isRobots(r) {
		r = g.watchRobots(&x.response, r)
	}
	if x.login != nil {
		r = x.watchLogin(r)
	}
	if g.Context || g.ThreadCPU || next != nil {
		x.isShared = true
		r = r.WithContext(x.context(r.Context(), g.Context || next != nil))
	}
	w = x.response.writer()
	if g.HandlerAwaits || x.await(w, r) {
		if next == nil {
			g.next.ServeHTTP(w, r)
		} else if err = next(w, r); err != nil {
			x.answerError(err)
		}
		x.finishHeader()
	}
	x.response.returned = true
	if x.response.tap != nil && x.response.tap.copy != nil {
		g.learnRobots(&x.response, r.Host)
	}
	return err
}

// reportDryRun reports what would have happened to a request that passes
// because of a dry run.
func (g *generation) reportDryRun(vis *visit, v *fairshare.Verdict) {
	if g.Refused == nil {
		return
	}
	if v.Action == fairshare.Refuse || v.Action == fairshare.Block {
		g.reportDry(vis, &v.Finding)
	}
	if v.DryRunFinding.Action != fairshare.Undecided {
		g.reportDry(vis, &v.DryRunFinding)
	}
}

func (g *generation) reportDry(vis *visit, f *fairshare.Finding) {
	rule := g.answers.rule(f.Rule)
	vis.report = Report{Request: &vis.req, HTTP: vis.report.HTTP, Finding: *f, DryRun: true, Status: rule.status(f),
		RetryAfter: rule.retryAfter(f), ID: g.reference(vis, f.Rule)}
	g.Refused(&vis.report)
}
