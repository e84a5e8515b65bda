package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/limittest"
	"fairshare/share"
)

// pipes is a listener whose connections are pipes, for synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	half := &halfPipe{Conn: server}
	select {
	case p.conns <- half:
		return &pipe{client, half}, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	}
}

// A pipe is one end of a connection. Its writing side can be closed alone.
type pipe struct {
	net.Conn
	to *halfPipe
}

func (p *pipe) CloseWrite() error {
	p.to.ended.Store(true)
	return p.to.Conn.SetReadDeadline(longAgo)
}

type halfPipe struct {
	net.Conn
	ended atomic.Bool
}

func (p *halfPipe) Read(b []byte) (int, error) {
	if !p.ended.Load() {
		if n, err := p.Conn.Read(b); !p.ended.Load() {
			return n, err
		}
	}
	return 0, io.EOF
}

// A site is a proxy behind a guard, with a server of net/http in front of it and one as
// its upstream. They are connected by pipes, so that it works in synctest.
type site struct {
	t                 *testing.T
	proxy             *Proxy
	clients, upstream *pipes
	log               lines
	charged           *ledger
}

// A ledger records the charges of settled limits.
type ledger struct {
	fairshare.Limiter
	limits []fairshare.Limit

	mu  sync.Mutex
	sum map[fairshare.Resource]map[string]int64 // by key
}

func newLedger(p *fairshare.Policy) *ledger {
	return &ledger{Limiter: limittest.NewModel(p.Limits()), limits: p.Limits(),
		sum: make(map[fairshare.Resource]map[string]int64)}
}

func (l *ledger) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	l.mu.Lock()
	for _, c := range charges {
		if resource := l.limits[c.Limit].Resource; resource.Settled() && resource != fairshare.Bytes {
			if l.sum[resource] == nil {
				l.sum[resource] = make(map[string]int64)
			}
			l.sum[resource][string(c.Key)] += c.Cost
		}
	}
	l.mu.Unlock()
	return l.Limiter.Settle(ctx, now, charges)
}

// of returns the charges of a resource to the key that contains a text.
func (l *ledger) of(r fairshare.Resource, text string) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, n := range l.sum[r] {
		if strings.Contains(key, text) {
			sum += n
		}
	}
	return sum
}

// total returns all charges of a resource, and resets them.
func (l *ledger) total(r fairshare.Resource) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.sum[r] {
		sum += n
	}
	delete(l.sum, r)
	return sum
}

// lines is a log that tests read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newSite(t *testing.T, upstream http.HandlerFunc, c Config, rules ...fairshare.Rule) *site {
	t.Helper()
	return newSharedSite(t, upstream, c, nil, rules...)
}

// newSharedSite makes a site whose upstream is shared by q.
func newSharedSite(t *testing.T, upstream http.HandlerFunc, c Config, q *share.Queue, rules ...fairshare.Rule) *site {
	t.Helper()
	s := &site{t: t, clients: newPipes(), upstream: newPipes()}
	if c.Upstream == nil {
		c.Upstream = &url.URL{Scheme: "http", Host: "upstream"}
	}
	c.Log = log.New(&s.log, "", 0)
	s.proxy = New(c)
	s.proxy.setup.Load().pools[0].ups[0].transport.DialContext = wrapDial(s.upstream.dial)
	policy := &fairshare.Policy{Rules: rules}
	s.charged = newLedger(policy)
	guard, err := fairshare.NewGuard(policy, s.charged, nil)
	if err != nil {
		t.Fatal(err)
	}
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	quiet := log.New(io.Discard, "", 0)
	front := &http.Server{Handler: httpguard.Middleware(guard,
		httpguard.Options{Share: q, HandlerAwaits: true, HandlerReportsCPU: c.Timing != ""})(s.proxy), Protocols: both,
		ErrorLog: quiet, DisableGeneralOptionsHandler: true}
	server := &http.Server{Handler: upstream, Protocols: both, ErrorLog: quiet}
	go front.Serve(s.clients)
	go server.Serve(s.upstream)
	t.Cleanup(func() {
		front.Close()
		s.proxy.Stop()
		s.proxy.Wait(context.Background())
		s.proxy.Close()
		server.Close()
		if n := s.proxy.bodies.used.Load(); n != 0 {
			t.Errorf("%d bytes of the budget of bodies were not given back", n)
		}
		if n := s.proxy.answers.used.Load(); n != 0 {
			t.Errorf("%d bytes of the budget of answers were not given back", n)
		}
		if n := s.proxy.abandoned.list.Len(); n != 0 {
			t.Errorf("%d requests are still among the abandoned", n)
		}
	})
	return s
}

// A visitor is a connection to a site. The test writes its HTTP/1 requests as text.
type visitor struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (s *site) visitor() *visitor {
	s.t.Helper()
	conn, err := s.clients.dial(context.Background(), "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return &visitor{conn, s.t, bufio.NewReader(conn)}
}

// send writes text; its lines end in "\n".
func (v *visitor) send(text string) {
	v.t.Helper()
	if _, err := io.WriteString(v, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		v.t.Errorf("sending %.60q: %v", text, err)
	}
}

// head reads the head of an answer.
func (v *visitor) head() *http.Response {
	v.t.Helper()
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		v.t.Fatalf("reading an answer: %v", err)
	}
	return resp
}

// get requests path on a new connection and returns status and body.
func (s *site) get(path string) (int, string) {
	s.t.Helper()
	v := s.visitor()
	defer v.Close()
	v.send("GET " + path + " HTTP/1.1\nHost: site.example\n\n")
	resp := v.head()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Errorf("reading the answer to %s: %v", path, err)
	}
	return resp.StatusCode, string(body)
}

// http2 is a client that speaks HTTP/2 with the site.
func (s *site) http2() *http.Client {
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DialContext: s.clients.dial, Protocols: only, DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// slots limits a client to n requests in progress.
func slots(n int64) fairshare.Rule {
	return fairshare.Rule{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: n}}
}

var urlOfNobody = url.URL{Scheme: "http", Host: "nobody"}
