// Package proxy forwards requests to the upstream. Start with [New].
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

// Config configures the upstream, and which headers are believed.
type Config struct {
	Upstream *url.URL // scheme and host; see ParseUpstream. Not used with Pools

	// Pools are the upstreams of several sites. nil means one site with Upstream. Site
	// returns the index of the pool for a host; −1 means that the request is answered 421.
	Pools []Pool
	Site  func(host string) int

	// Hosts are the names of the site: exact names, and "*.example.org" for any name
	// below it. A request with another Host is answered 421. nil means any host.
	Hosts []string

	// Trusts reports whether a peer is a trusted proxy. It gets a text like
	// http.Request.RemoteAddr, or an address alone. nil means that no peer is.
	Trusts func(peer string) bool

	// Header is the header with the client's address. "" means X-Forwarded-For.
	Header string

	// ReadForwarded returns the host and the scheme of the client's request from the
	// values of a trusted proxy's Forwarded header, "" for missing ones. It is needed
	// if Header is Forwarded.
	ReadForwarded func(values []string) (host, proto string)

	// HostsJudged says that rules check the host. Then a trusted proxy's
	// X-Forwarded-Host and similar headers must name the same host as Host, which was
	// judged.
	HostsJudged bool

	// KeepHeaders are headers that pass although the upstream may take a path or method
	// from them that was not judged; see CheckKeepHeader.
	KeepHeaders []string

	// KeepUnderscores lets header names with "_" pass, except those that an upstream
	// could confuse with a header that is set, judged or removed here. Otherwise all
	// are removed.
	KeepUnderscores bool

	// Fields and HeaderBytes bound a request's header: more are answered 431.
	// 0 means DefaultFields and DefaultHeaderBytes.
	Fields      int
	HeaderBytes int

	// Timeout is how long the upstream may take to begin its answer once it
	// has the whole request, and before to take the next part of the body; 0 means
	// DefaultTimeout.
	Timeout time.Duration

	// Abandon is how long the proxy waits for the answer, and reads up to 16 MiB of it,
	// after the client has left; 0 means DefaultAbandon. The handler returns no
	// earlier: otherwise clients evade limits of requests in progress by disconnecting
	// early.
	Abandon time.Duration

	// MaxAbandoned bounds the number of such requests at a time: each needs a file
	// descriptor. If there are more, the oldest is cancelled. 0 and more than 1024 mean
	// 1024.
	MaxAbandoned int

	// Cancels says that the upstream stops its work when its connection is closed. Then
	// a request ends with its client, and Abandon has no effect.
	Cancels bool

	// OnlyTransport says that all requests are sent by http.Transport. Otherwise, simple
	// requests to an upstream without TLS are sent at less cost.
	OnlyTransport bool

	// Timing is the metric of Server-Timing by which the upstream reports CPU time:
	// "cpu" in "Server-Timing: cpu;dur=12.5", in milliseconds, in the header or trailer
	// of an answer. It is case-sensitive. "" means that it reports none.
	Timing string

	// KeepTiming forwards the entries of that metric to the client. Otherwise they are
	// removed.
	KeepTiming bool

	// CostHeader is a header or trailer by which the upstream reports the cost of a
	// request, in units of its own: a number, rounded up. It is removed from requests
	// and answers. "" means none, and so does a name that CheckCostHeader refuses.
	CostHeader string

	// MaxCost is the highest cost of one answer; a higher one counts as this. 0 means
	// DefaultMaxCost.
	MaxCost int64

	// Slots returns how many requests a shared upstream works on at once. Requests
	// whose bodies still come use at most half of them. nil means that it is not
	// shared.
	Slots func() int

	// Session is how long the upstream should keep an idle session, and BotSession one
	// of a bot. It gets them in whole seconds. 0 means DefaultSession and
	// DefaultBotSession.
	Session, BotSession time.Duration

	// Log gets one line for each problem with the upstream. nil means no log.
	Log *log.Logger
}

// The defaults of Config.Timeout and Config.Abandon.
const (
	DefaultTimeout = 60 * time.Second
	DefaultAbandon = 60 * time.Second
)

// A Proxy is an http.Handler that forwards requests to the upstream. It changes the
// headers of these requests. It is safe for concurrent use.
type Proxy struct {
	setup     atomic.Pointer[setup]
	replacing sync.Mutex

	exchanges sync.Pool // of *exchange
	spaces    spaces
	bodies    budget
	chunks    chunks
	answers   budget
	abandoned abandoned
	live      live

	inside atomic.Int64  // requests in progress
	empty  chan struct{} // holds a value while no request may be in progress
}

// A setup is a Config in use.
type setup struct {
	Config
	hosts         *hosts
	patience      time.Duration // Abandon, or 0
	pools         []*pool       // one without Config.Pools
	session       string        // Session and BotSession as text, in seconds
	botSession    string
	costFolded    string          // CostHeader, see fold
	addrHeader    string          // Header, likewise
	keepHeaders   map[string]bool // KeepHeaders, in canonical form
	overrideNoted sync.Once
	untimed       silence // answers without CPU time
	uncosted      silence // answers without a cost
}

// New returns a proxy to an upstream.
func New(c Config) *Proxy {
	p := &Proxy{empty: make(chan struct{}, 1)}
	p.bodies.max, p.answers.max = bodyBudget, answerBudget
	p.Replace(c)
	return p
}

// Replace changes the config. Requests in progress keep the config of their start.
// Connections to the upstream stay open if the upstream and Timeout are the same.
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
	c.Header = nonZero(http.CanonicalHeaderKey(c.Header), "X-Forwarded-For")
	if c.MaxCost <= 0 {
		c.MaxCost = DefaultMaxCost
	}
	c.CostHeader = http.CanonicalHeaderKey(c.CostHeader)
	if c.CostHeader != "" {
		if err := CheckCostHeader(c.CostHeader); err != nil {
			c.Log.Printf("costs of answers are not read: %v", err)
			c.CostHeader = ""
		}
	}
	s := &setup{Config: c, hosts: newHosts(c.Hosts), patience: c.Abandon}
	s.session = seconds(nonZero(c.Session, DefaultSession))
	s.botSession = seconds(nonZero(c.BotSession, DefaultBotSession))
	s.costFolded, s.addrHeader = fold(c.CostHeader), fold(c.Header)
	s.keepHeaders = make(map[string]bool)
	for _, name := range c.KeepHeaders {
		s.keepHeaders[http.CanonicalHeaderKey(name)] = true
	}
	if c.Cancels {
		s.patience = 0
	}

	p.abandoned.bound(c.MaxAbandoned)
	p.replacing.Lock()
	defer p.replacing.Unlock()
	old := p.setup.Load()
	pools := c.Pools
	if pools == nil {
		pools = []Pool{{Upstreams: []*url.URL{c.Upstream}, Slots: c.Slots}}
	}
	before := map[string]*pool{}
	if old != nil {
		for _, pool := range old.pools {
			before[pool.Name] = pool
		}
	}
	kept := map[*upstream]bool{}
	for _, c := range pools {
		pool := newPool(c, s.Timeout, before[c.Name])
		s.pools = append(s.pools, pool)
		for _, up := range pool.ups {
			kept[up] = true
		}
	}
	p.setup.Store(s)
	for _, pool := range before {
		for _, up := range pool.ups {
			if !kept[up] {
				up.closeIdle()
			}
		}
	}
}

// seconds returns a time in whole seconds as a header's value.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(d/time.Second), 10)
}

func nonZero[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Close drops the idle connections to the upstream.
func (p *Proxy) Close() {
	for _, pool := range p.setup.Load().pools {
		for _, up := range pool.ups {
			up.closeIdle()
		}
	}
}

// Stop ends the requests that may not end soon: websockets, event streams, and
// requests whose clients have left. It also ends later ones at once.
func (p *Proxy) Stop() {
	p.live.stop()
	p.abandoned.stop()
}

// Wait waits until no request is in progress, or until ctx is done; then it returns
// the error of ctx. Websockets count as requests; http.Server.Shutdown ignores them.
// Only one call may wait at a time.
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
	last, target := repeatOf(r), target(r)
	if target != "" && last.compare(s, w, r) {
		p.forward(&request{setup: s, pool: last.pool, w: w, r: r, target: target, repeat: last})
		return
	}
	size := sizeOf(r)
	isRepeated := last != nil && last.size == size
	if last != nil {
		last.size = size
	}
	status, pool := s.hosts.status(r.Host), s.poolOf(r.Host)
	if status == http.StatusOK && pool == nil {
		status = http.StatusMisdirectedRequest
	}
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		answer(w, r, http.StatusMethodNotAllowed, "This site does not support the method of the request.")
	case size.fields > s.Fields || size.bytes > s.HeaderBytes:
		w.Header().Set("Connection", "close")
		answer(w, r, http.StatusRequestHeaderFieldsTooLarge,
			"The request's header is too large. If this is a browser, delete the cookies of this site.")
	case target == "" || status == http.StatusBadRequest || twoHosts(r) || !validMethod(r.Method):
		answer(w, r, http.StatusBadRequest, "The address of this page cannot be read.")
	case status == http.StatusMisdirectedRequest:
		answer(w, r, http.StatusMisdirectedRequest, "There is no such site here.")
	default:
		p.forward(&request{setup: s, pool: pool, w: w, r: r, target: target, repeat: last, isRepeated: isRepeated})
	}
}

// poolOf returns the upstreams for a host; nil if no site has it.
func (s *setup) poolOf(host string) *pool {
	if s.Pools == nil {
		return s.pools[0]
	}
	if i := s.Site(host); i >= 0 {
		return s.pools[i]
	}
	return nil
}

// websocket reports whether a request is for a websocket, the only protocol that a
// connection may change to. Any other one would be a tunnel to the upstream for
// requests that no rule judges.
func (p *pool) websocket(r *http.Request) bool {
	up := r.Header["Upgrade"]
	return len(up) == 1 && strings.EqualFold(up[0], "websocket") && listed(r.Header["Connection"], "upgrade") &&
		r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ProtoMinor > 0 && r.ContentLength == 0 &&
		p.scheme != "h2c"
}
