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
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
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
	Policy   string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy holds."`
	Listen   string `placeholder:"ADDR" help:"Address to listen on, as 127.0.0.1:8080, :80 or unix:/run/fairshare.sock; the policy's own, or 127.0.0.1:8080."`
	Upstream string `placeholder:"URL" help:"The site to stand in front of, as http://127.0.0.1:3000; the policy's own."`
	DryRun   bool   `help:"Let everything through, and report what would have been refused."`
}

func (c *serveCmd) Help() string {
	return "Each refusal and block is one line of JSON on stderr. SIGTERM and SIGINT let requests in progress end; the second stops at once."
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
	// Whoever reads stderr may go away without taking the site along.
	signal.Ignore(syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
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
	s.again, s.hangups = env.again, hangups
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
	stderr   io.Writer // until serving begins; then all goes through the journal
	listener net.Listener
	http     http.Server
	again    <-chan struct{}  // closed: stop at once
	hangups  <-chan os.Signal // SIGHUP
}

// newServer puts everything together and takes the address, but serves nobody
// yet.
func newServer(file *policyfile.File, stderr io.Writer) (*server, error) {
	s := &server{file: file, clock: httpguard.NewClock(), stderr: stderr}
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
		certFile, keyFile := beside(file.Name, file.TLS.Cert), beside(file.Name, file.TLS.Key)
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, &hintError{fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err), "both are PEM files; the certificate comes first in its file, then those that signed it"}
		}
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if s.listener, err = listen(file.Listen); err != nil {
		return nil, err
	}
	if isItself(s.listener.Addr(), s.upstream) {
		s.listener.Close()
		return nil, &hintError{fmt.Errorf("upstream %s is where fairshare itself listens", s.upstream), "the site has to listen elsewhere, as on 127.0.0.1:3000: --upstream http://127.0.0.1:3000; --listen says where fairshare does"}
	}
	s.journal = journal.New(stderr)
	s.log = proxy.NewLog(s.journal, wordsPrefix)
	if file.ProxyProtocol {
		s.listener = proxyprotocol.Listener(s.listener, s.clients.TrustsPeer, func(peer net.Addr, err error) {
			s.log.Printf("connection of %s: %v", peer, err)
		})
	}

	s.proxy = proxy.New(proxy.Config{Upstream: s.upstream, Trusts: s.clients.TrustsPeer, Header: s.clients.Header(), Log: s.log})
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

// beside returns where a file that a policy names is, as beside the policy.
func beside(policy, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(policy), path)
}

// client finds who asks.
func (s *server) client(r *http.Request) httpguard.Client {
	found := s.clients.Resolve(r.RemoteAddr, r.Header)
	return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy}
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
			s.say("listen: %v", err)
			return errSilent
		case <-reports.C:
			lost = s.reportMemory(lost)
		case <-s.hangups:
			s.say("SIGHUP: this version does not reload; restart to read the policy anew")
		case <-ctx.Done():
			err := s.drain()
			<-stopped
			return err
		}
	}
}

// drain takes no new connections and waits for requests in progress, at most
// for the grace period, or until it is told again to stop.
func (s *server) drain() error {
	grace := s.file.Grace
	if grace == 0 {
		grace = policyfile.DefaultGrace
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.http.Shutdown(ctx) }()
	s.say("stopping; requests in progress have %v to end; again to stop at once", grace)
	const cut = "some requests were still in progress and have been cut off"
	for {
		select {
		case err := <-ended:
			if err != nil {
				s.http.Close()
				s.say(cut)
			}
			return nil
		case <-s.again:
			s.http.Close()
			s.say(cut)
			return errSilent
		case <-s.hangups: // nothing left to say
		}
	}
}

const wordsPrefix = "fairshare: "

// say writes a line without waiting for whoever reads it.
func (s *server) say(format string, args ...any) {
	fmt.Fprintf(s.journal, wordsPrefix+format+"\n", args...)
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
	say := func(format string, args ...any) { fmt.Fprintf(s.stderr, wordsPrefix+format+"\n", args...) }
	encrypted, unix := s.http.TLSConfig != nil, s.listener.Addr().Network() == "unix"
	at := s.listener.Addr().String()
	switch {
	case unix && encrypted:
		at = unixPrefix + at + " (TLS)"
	case unix:
		at = unixPrefix + at
	case encrypted:
		at = "https://" + at
	default:
		at = "http://" + at
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
	say("%s protects %s, %s", at, s.upstream, mode)
	say("policy: %s, %s, %s of memory for counters", s.file.Name, rules(len(s.file.Policy.Rules)), policyfile.FormatSize(s.limiter.Stats(s.clock.Now()).Memory))
	switch proxies := s.file.TrustedProxies; {
	case len(proxies) == 0:
		say("clients: the address that connects; no header is believed")
	case s.file.ProxyProtocol:
		say("clients: by the PROXY protocol, then %s, of %s; from anybody else no header is believed", s.clients.Header(), strings.Join(proxies, ", "))
	default:
		say("clients: by %s of %s; from anybody else no header is believed", s.clients.Header(), strings.Join(proxies, ", "))
	}
	if unix && !s.clients.TrustsPeer("@") {
		say("warning: all who come by the Unix socket count as one client; trusted_proxies: unix believes the header of the proxy in front")
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
		s.say("warning: %v", err)
	}
}
