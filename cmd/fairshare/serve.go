package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/clientaddr/proxyprotocol"
	"fairshare/httpguard"
	"fairshare/internal/journal"
	"fairshare/internal/proxy"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

type serveCmd struct {
	Policy   string `short:"c" name:"policy" placeholder:"FILE" help:"Policy file; without one the built-in policy holds."`
	Listen   string `placeholder:"ADDR" help:"Address to listen on, as 127.0.0.1:8080 or :80; the policy's own, or 127.0.0.1:8080."`
	Upstream string `placeholder:"URL" help:"The site to stand in front of, as http://127.0.0.1:3000; the policy's own."`
	DryRun   bool   `help:"Let everything through, and report what would have been refused."`
}

func (c *serveCmd) Help() string {
	return "Each refusal and block is one line of JSON on stderr. SIGTERM and SIGINT let requests in progress end."
}

// Bounds of the server.
const (
	defaultListen     = "127.0.0.1:8080"
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	maxStreams        = 128 // HTTP/2 requests at once on one connection
	memoryReports     = time.Minute
	upstreamTrial     = 2 * time.Second
)

func (c *serveCmd) Run(env *environment) error {
	file, err := loadPolicy(c.Policy, env.stderr)
	if err != nil {
		return err
	}
	if c.Listen != "" {
		file.Listen = c.Listen
	}
	if file.Listen == "" {
		file.Listen = defaultListen
	}
	if c.Upstream != "" {
		file.Upstream = c.Upstream
	}
	if c.DryRun {
		file.Policy.DryRun = true
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent(file.Memory)))
	}
	s, err := newServer(file, env.stderr)
	if err != nil {
		return err
	}
	defer s.close()
	return s.serve(env.ctx)
}

// gcPercent has the process take about 32 MiB beside the counters' memory
// before garbage is collected. Go would double it.
func gcPercent(memory int64) int {
	const beside = 32 << 20
	return int(min(max(100*beside/(memory+4<<20), 1), 100))
}

// A server stands in front of one upstream.
type server struct {
	file     *policyfile.File
	clock    *httpguard.Clock
	upstream *url.URL
	clients  *clientaddr.Resolver
	limiter  *memlimit.Limiter
	proxy    *proxy.Proxy
	journal  *journal.Journal
	log      *log.Logger
	stderr   io.Writer
	listener net.Listener
	http     http.Server
}

// newServer puts everything together and takes the address, but serves nobody
// yet.
func newServer(file *policyfile.File, stderr io.Writer) (*server, error) {
	s := &server{file: file, clock: httpguard.NewClock(), stderr: stderr, log: proxy.NewLog(stderr, "fairshare: ")}
	if file.Upstream == "" {
		return nil, &hintError{errors.New("no upstream is given"), "fairshare serve --upstream http://127.0.0.1:3000, or upstream: in the policy file"}
	}
	var err error
	if s.upstream, err = proxy.ParseUpstream(file.Upstream); err != nil {
		return nil, &hintError{err, "give the site's own scheme, host and port: http://127.0.0.1:3000"}
	}
	if s.clients, err = clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header}); err != nil {
		return nil, err
	}
	if s.limiter, err = memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: file.Memory}); err != nil {
		return nil, err
	}
	guard, err := fairshare.NewGuard(&file.Policy, s.limiter, nil)
	if err != nil {
		return nil, err
	}
	if file.TLS != nil {
		cert, err := tls.LoadX509KeyPair(file.TLS.Cert, file.TLS.Key)
		if err != nil {
			return nil, &hintError{fmt.Errorf("certificate %s with key %s: %w", file.TLS.Cert, file.TLS.Key, err), "both are PEM files; the certificate comes first in its file, then those that signed it"}
		}
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if s.listener, err = listen(file.Listen); err != nil {
		return nil, err
	}
	if file.ProxyProtocol {
		s.listener = proxyprotocol.Listener(s.listener, s.clients.TrustsPeer, func(peer net.Addr, err error) {
			s.log.Printf("connection of %s: %v", peer, err)
		})
	}

	s.proxy = proxy.New(proxy.Config{Upstream: s.upstream, Trusts: s.clients.TrustsPeer, Header: s.clients.Header(), Log: s.log})
	s.journal = journal.New(stderr)
	s.http.Handler = httpguard.Middleware(guard, httpguard.Options{
		Client:  s.client,
		Contact: file.Contact,
		Refused: s.record,
		Failed:  func(err error) { s.log.Print(err) },
		Now:     s.clock.Now,
	})(s.proxy)
	s.http.ReadHeaderTimeout = readHeaderTimeout
	s.http.IdleTimeout = idleTimeout
	s.http.MaxHeaderBytes = maxHeaderBytes
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	s.http.DisableGeneralOptionsHandler = true
	s.http.ErrorLog = s.log
	return s, nil
}

// listen takes an address, and says what to do when that fails.
func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	hint := "an address is a host and a port: 127.0.0.1:8080, or :80 for every address of this machine"
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err, hint = fmt.Errorf("%s is in use", addr), "another program listens there (ss -ltnp shows which); stop it, or take another port with --listen"
	case errors.Is(err, os.ErrPermission):
		err, hint = fmt.Errorf("%s may not be listened on", addr), "ports below 1024 need a privilege: AmbientCapabilities=CAP_NET_BIND_SERVICE in systemd, or a port above"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err, hint = fmt.Errorf("%s is no address of this machine", addr), "ip address shows which there are"
	default:
		err = fmt.Errorf("listen: %w", err)
	}
	return nil, &hintError{err, hint}
}

// client finds who asks.
func (s *server) client(r *http.Request) (netip.Addr, bool) {
	found := s.clients.Resolve(r.RemoteAddr, r.Header)
	return found.Addr, found.Proxy
}

// record puts a refusal into the journal.
func (s *server) record(r *httpguard.Report) {
	e := journal.Entry{
		Time:       r.Request.Time,
		Client:     r.Request.Addr,
		Method:     r.Request.Method,
		Host:       r.Request.Host,
		Path:       r.Request.Path,
		UserAgent:  r.Request.UserAgent,
		Action:     r.Finding.Action.String(),
		DryRun:     r.DryRun,
		Status:     r.Status,
		RetryAfter: r.RetryAfter,
		ID:         r.ID,
	}
	if rule := r.Finding.Rule; rule != nil {
		e.Rule = rule.Name
		if r.Finding.Action == fairshare.Refuse && r.Finding.Ban != fairshare.BanInForce && rule.Limit != nil {
			e.Used, e.Allowed = r.Finding.Tally.Used, rule.Limit.Allowed()
		}
	}
	switch r.Finding.Ban {
	case fairshare.BanStarted:
		e.Ban = journal.BanStarted
	case fairshare.BanInForce:
		e.Ban = journal.BanInForce
	}
	s.journal.Add(&e)
}

// serve answers requests until ctx ends, then lets those in progress end.
func (s *server) serve(ctx context.Context) error {
	s.introduce()
	stopped := make(chan error, 1)
	go func() {
		if s.http.TLSConfig != nil {
			stopped <- s.http.ServeTLS(s.listener, "", "")
		} else {
			stopped <- s.http.Serve(s.listener)
		}
	}()
	s.tryUpstream(ctx)
	reports := time.NewTicker(memoryReports)
	defer reports.Stop()
	lost := int64(0)
	for {
		select {
		case err := <-stopped:
			return fmt.Errorf("listen: %w", err)
		case <-reports.C:
			lost = s.reportMemory(lost)
		case <-ctx.Done():
			err := s.drain()
			<-stopped
			return err
		}
	}
}

// drain takes no new connections and waits for requests in progress, at most
// for the grace period.
func (s *server) drain() error {
	grace := s.file.Grace
	if grace == 0 {
		grace = policyfile.DefaultGrace
	}
	fmt.Fprintf(s.stderr, "fairshare: stopping; requests in progress have %v to end\n", grace)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		fmt.Fprintln(s.stderr, "fairshare: some requests were still in progress and have been cut off")
		s.http.Close()
	}
	return nil
}

// close ends what newServer began.
func (s *server) close() {
	s.proxy.Close()
	s.journal.Close()
}

// reportMemory says when counters had to be forgotten since lost of them were.
func (s *server) reportMemory(lost int64) int64 {
	stats := s.limiter.Stats(s.clock.Now())
	if stats.Lost > lost {
		s.log.Printf("the memory for counters is too small: %d were forgotten in the last minute; memory: %s would do", stats.Lost-lost, policyfile.FormatSize(stats.Needed))
	}
	return stats.Lost
}

// introduce says what is protected, by which policy, whom it believes and
// where refusals go.
func (s *server) introduce() {
	say := func(format string, args ...any) { fmt.Fprintf(s.stderr, "fairshare: "+format+"\n", args...) }
	scheme := "http"
	if s.http.TLSConfig != nil {
		scheme = "https"
	}
	dry := 0
	for i := range s.file.Policy.Rules {
		if s.file.Policy.Rules[i].DryRun {
			dry++
		}
	}
	mode := "enforcing"
	switch {
	case s.file.Policy.DryRun:
		mode = "dry run: everything is let through"
	case dry > 0:
		mode = fmt.Sprintf("enforcing, but %s in dry run", rules(dry))
	}
	say("%s://%s protects %s, %s", scheme, s.listener.Addr(), s.upstream, mode)
	say("policy: %s, %s, %s of memory for counters", s.file.Name, rules(len(s.file.Policy.Rules)), policyfile.FormatSize(s.limiter.Stats(s.clock.Now()).Memory))
	switch proxies := s.file.TrustedProxies; {
	case len(proxies) == 0:
		say("clients: the address that connects; no header is believed")
	case s.file.ProxyProtocol:
		say("clients: by the PROXY protocol, then %s, of %s; from anybody else no header is believed", s.clients.Header(), strings.Join(proxies, ", "))
	default:
		say("clients: by %s of %s; from anybody else no header is believed", s.clients.Header(), strings.Join(proxies, ", "))
	}
	say("refusals: one line of JSON each, here")
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}

// tryUpstream warns if the upstream does not answer: it may come later.
func (s *server) tryUpstream(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTrial)
	defer cancel()
	if err := s.proxy.Reach(ctx); err != nil && ctx.Err() != context.Canceled {
		fmt.Fprintf(s.stderr, "fairshare: warning: the upstream does not answer yet: %v\n", err)
	}
}
