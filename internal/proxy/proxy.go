// Package proxy hands requests on to the upstream. Start with [New].
package proxy

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where requests go and whose word about them is taken.
type Config struct {
	Upstream *url.URL // scheme and host; see ParseUpstream

	// Hosts are the names that the site is asked by: exact ones and
	// "*.example.org", for any name below. Any other Host is answered 421. nil
	// means all.
	Hosts []string

	// Trusts tells whether a peer, as in http.Request.RemoteAddr, is a proxy
	// whose forwarding headers are handed on. nil means nobody is.
	Trusts func(peer string) bool

	// Header is one more header that only trusted proxies may send, the one
	// that the client's address is taken from. "" means none.
	Header string

	// KeepUnderscores lets header names with "_" through, but for those that
	// an upstream could take for a header that is set, judged or taken off
	// here. Otherwise they are dropped.
	KeepUnderscores bool

	// Fields and HeaderBytes bound a request's header: more are answered 431.
	// 0 means DefaultFields and DefaultHeaderBytes.
	Fields      int
	HeaderBytes int

	// Timeout is how long the upstream may take to begin its answer once it
	// has the whole request; 0 means DefaultTimeout.
	Timeout time.Duration

	// Abandon is how long the answer is awaited, read and dropped when the
	// client left, up to 16 MiB of it; 0 means DefaultAbandon. The handler
	// returns no earlier, so that who asks and hangs up has no more requests
	// in progress than who waits.
	Abandon time.Duration

	// Cancels says that the upstream stops by itself when its connection is
	// closed: a request ends with its client. Abandon means nothing then.
	Cancels bool

	// Timing is the metric of Server-Timing by which the upstream tells CPU time:
	// "cpu" in "Server-Timing: cpu;dur=12.5", in milliseconds, in the header of an
	// answer or its trailer. Letters count as they are. "" means that it does not.
	Timing string

	// KeepTiming hands the entries of that metric on to the client. Otherwise
	// they are taken out.
	KeepTiming bool

	// CostHeader is a header, or a trailer, by which the upstream tells what a
	// request has cost, in units of its own: a number, rounded up. It is taken out
	// of requests and answers. "" means none, and so does one that
	// CheckCostHeader finds fault with.
	CostHeader string

	// MaxCost is what one answer may tell at most; what is more counts as this.
	// 0 means DefaultMaxCost.
	MaxCost int64

	// Slots tells how many requests a shared upstream works on at once. Those
	// whose bodies still come take half of them at most. nil means that it is not
	// shared.
	Slots func() int

	// Session is how long a session is worth keeping, and BotSession one of a
	// bot, as the upstream is told in whole seconds. 0 means DefaultSession and
	// DefaultBotSession.
	Session, BotSession time.Duration

	// Log is told what went wrong with the upstream, a line each; the client
	// is not. nil means nobody.
	Log *log.Logger
}

// What a zero Config.Timeout and a zero Config.Abandon mean.
const (
	DefaultTimeout = 60 * time.Second
	DefaultAbandon = 60 * time.Second
)

// A Proxy is an http.Handler that asks the upstream. It changes the headers of
// the requests that it is given. It is safe for concurrent use.
type Proxy struct {
	setup     atomic.Pointer[setup]
	replacing sync.Mutex

	spaces    spaces
	bodies    budget
	chunks    chunks
	answers   budget
	abandoned abandoned
	live      live
	uploads   uploads

	ailing atomic.Bool   // the upstream did not answer; nobody said yet that it does again
	inside atomic.Int64  // requests in progress
	empty  chan struct{} // has one while nobody is known to be inside
}

// A setup is a Config that is in use.
type setup struct {
	Config
	hosts      *hosts
	patience   time.Duration // Abandon, or 0
	scheme     string        // of URLs
	session    []string      // Session and BotSession as values of a header
	botSession []string
	costFolded string // CostHeader, see fold
	transport  *http.Transport
	untimed    silence // answers that tell no CPU time
	uncosted   silence // and no cost
}

// New returns a proxy to an upstream.
func New(c Config) *Proxy {
	p := &Proxy{empty: make(chan struct{}, 1)}
	p.bodies.max, p.answers.max = bodyBudget, answerBudget
	p.Replace(c)
	return p
}

// Replace changes the config. Requests in progress keep the one they began
// with. Connections to the upstream stay if it and Timeout are the same.
func (p *Proxy) Replace(c Config) {
	if c.Trusts == nil {
		c.Trusts = func(string) bool { return false }
	}
	if c.Log == nil {
		c.Log = log.New(io.Discard, "", 0)
	}
	c.Timeout = nonZero(c.Timeout, DefaultTimeout)
	c.Abandon = nonZero(c.Abandon, DefaultAbandon)
	c.Fields = nonZero(c.Fields, DefaultFields)
	c.HeaderBytes = nonZero(c.HeaderBytes, DefaultHeaderBytes)
	c.Header = http.CanonicalHeaderKey(c.Header)
	if c.MaxCost <= 0 {
		c.MaxCost = DefaultMaxCost
	}
	c.CostHeader = http.CanonicalHeaderKey(c.CostHeader)
	if c.CostHeader != "" {
		if err := CheckCostHeader(c.CostHeader); err != nil {
			c.Log.Printf("costs are not read: %v", err)
			c.CostHeader = ""
		}
	}
	s := &setup{Config: c, hosts: newHosts(c.Hosts), patience: c.Abandon, scheme: urlScheme(c.Upstream)}
	s.session = seconds(nonZero(c.Session, DefaultSession))
	s.botSession = seconds(nonZero(c.BotSession, DefaultBotSession))
	s.costFolded = fold(c.CostHeader)
	if c.Cancels {
		s.patience = 0
	}

	p.replacing.Lock()
	defer p.replacing.Unlock()
	old := p.setup.Load()
	if old != nil && *old.Upstream == *c.Upstream && old.Timeout == c.Timeout {
		s.transport = old.transport
		p.setup.Store(s)
		return
	}
	s.transport = newTransport(c.Upstream, c.Timeout)
	p.setup.Store(s)
	if old != nil {
		old.transport.CloseIdleConnections()
	}
}

// seconds returns a time in whole seconds as a header's value.
func seconds(d time.Duration) []string {
	return []string{strconv.FormatInt(int64(d/time.Second), 10)}
}

func nonZero[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Close drops the idle connections to the upstream.
func (p *Proxy) Close() { p.setup.Load().transport.CloseIdleConnections() }

// Stop ends what would not end by itself soon: websockets, event streams, and
// requests whose clients are gone; those that come later too.
func (p *Proxy) Stop() {
	p.live.stop()
	p.abandoned.stop()
}

// Wait waits until no request is in progress, or until ctx is done, whose
// error it returns. Websockets count, which http.Server.Shutdown does not know
// of. There is to be one waiter at a time.
func (p *Proxy) Wait(ctx context.Context) error {
	for p.inside.Load() > 0 {
		select {
		case <-p.empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *Proxy) leave() {
	if p.inside.Add(-1) == 0 {
		select {
		case p.empty <- struct{}{}:
		default:
		}
	}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.inside.Add(1)
	defer p.leave()
	s := p.setup.Load()
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		answer(w, r, http.StatusMethodNotAllowed, "This site does not know the method.")
	case !s.bounded(r):
		w.Header().Set("Connection", "close")
		answer(w, r, http.StatusRequestHeaderFieldsTooLarge, "The request's header is too large. If this is a browser, delete the cookies of this site.")
	case target(r) == "" || !validHost(r.Host) || !validMethod(r.Method):
		answer(w, r, http.StatusBadRequest, "The address of this page cannot be read.")
	case s.hosts != nil && !s.hosts.have(r.Host):
		answer(w, r, http.StatusMisdirectedRequest, "There is no such site here.")
	default:
		p.forward(s, w, r)
	}
}

// websocket reports whether a request asks for a websocket, the only protocol
// that is changed to: anything else would be a tunnel to the upstream through
// which requests come that nobody judges.
func (s *setup) websocket(r *http.Request) bool {
	up := r.Header["Upgrade"]
	return len(up) == 1 && strings.EqualFold(up[0], "websocket") && listed(r.Header["Connection"], "upgrade") &&
		r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoMinor > 0 && r.ContentLength == 0 &&
		s.Upstream.Scheme != "h2c"
}
