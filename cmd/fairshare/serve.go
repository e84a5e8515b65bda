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
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/clientaddr/proxyprotocol"
	"fairshare/httpguard"
	"fairshare/internal/census"
	"fairshare/internal/inbound"
	"fairshare/internal/journal"
	"fairshare/internal/proxy"
	"fairshare/internal/sessions"
	"fairshare/internal/systemd"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/share"
)

type serveCmd struct {
	Policy   string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy holds."`
	Listen   string `placeholder:"ADDR" help:"Address to listen on, as 127.0.0.1:8080, :80 or unix:/run/fairshare.sock; the policy's own, or 127.0.0.1:8080."`
	Upstream string `placeholder:"URL" help:"The site to stand in front of, as http://127.0.0.1:3000; the policy's own."`
	Behind   string `placeholder:"NAME" help:"What stands in front: ${behind}; sets the trusted proxies and their header."`
	State    string `placeholder:"DIR" help:"Folder for what outlives the process: the registry, counters, copies of lists; systemd's, or the one of whoever runs it."`
	Registry string `placeholder:"none" help:"With none no client, ban or reference is remembered, and operators' commands reach nobody."`
	DryRun   bool   `help:"Let everything through, and report what would have been refused."`

	setup string // of Behind
}

func (c *serveCmd) Help() string {
	return "Each refusal and block is one line of JSON on stderr. SIGHUP reads the policy and certificates anew. SIGTERM and SIGINT let requests in progress end; the second stops at once."
}

// load reads the policy file, and what the command line says instead of it.
// Faults and warnings go to w.
func (c *serveCmd) load(w io.Writer) (*policyfile.File, error) {
	file, err := loadPolicy(c.Policy, w)
	if err != nil {
		return nil, err
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
	if c.Behind != "" {
		preset, err := clientaddr.Behind(c.Behind)
		if err != nil {
			var unknown *clientaddr.BehindError
			if errors.As(err, &unknown) {
				return nil, &hintError{fmt.Errorf("--behind: %w", err), unknown.Hint()}
			}
			return nil, err
		}
		file.TrustedProxies, file.Header = preset.Config.TrustedProxies, preset.Config.Header
		c.setup = preset.Setup
	}
	if c.Registry != "" && c.Registry != "none" {
		return nil, &hintError{fmt.Errorf("--registry: %q is not known", c.Registry), "--registry none goes without; where it is kept is said by --state DIR"}
	}
	if c.DryRun {
		file.Policy.DryRun = true
	}
	return file, nil
}

// Bounds of the server.
const (
	defaultListen     = "127.0.0.1:8080"
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	maxStreams        = 128 // HTTP/2 requests at once on one connection
	upstreamTrial     = 2 * time.Second
	sessionWait       = time.Second
	sharedPatience    = time.Second            // with what has no end of its own
	shutdownLooks     = 600 * time.Millisecond // http.Server.Shutdown looks every half second, and a tenth more, whether all has ended
	afterGrace        = 15 * time.Second       // to write down what is remembered
)

// How often the server looks after itself.
const (
	often  = 5 * time.Second // certificates, and who is refused
	seldom = time.Minute     // memory, and the proxies in front
)

func (c *serveCmd) Run(env *environment) error {
	// Whoever reads stderr may go away without taking the site along.
	signal.Ignore(syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	file, err := c.load(env.stderr)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent(file.Memory)))
	}
	state, err := stateDir(c.State)
	if err != nil && remembers(file) {
		return err
	}
	s, err := newServer(env.ctx, file, memoryTerms{dir: state, named: c.State != "" || os.Getenv("STATE_DIRECTORY") != "", registry: c.Registry == ""}, env.stderr)
	if err != nil {
		return tellFaults(env.stderr, err)
	}
	defer s.close()
	// What net/http says by the way has no other door.
	log.SetFlags(0)
	log.SetOutput(s.log.Writer())
	defer log.SetOutput(os.Stderr)
	s.load, s.setup, s.again, s.hangups = c.load, c.setup, env.again, hangups
	return s.serve(env.ctx)
}

// gcPercent has the process take about 64 MiB beside the counters' memory
// before garbage is collected. Go would double it.
func gcPercent(memory int64) int {
	const beside = 64 << 20
	return int(min(max(100*beside/(memory+4<<20), 1), 100))
}

// A server stands in front of one upstream.
type server struct {
	site    atomic.Pointer[site]         // what holds now
	certs   atomic.Pointer[certificates] // nil without TLS
	load    func(io.Writer) (*policyfile.File, error)
	clock   *httpguard.Clock
	watch   *clientaddr.Watch
	census  *census.Census
	memory  *memory
	journal *journal.Journal
	log     *log.Logger
	manager *systemd.Notifier
	stderr  io.Writer // until serving begins; then all goes through the journal

	inbound  *inbound.Listener
	listener net.Listener // the same, or what takes the PROXY protocol from it
	http     http.Server
	guard    *httpguard.Handler
	sessions *sessions.Handler
	proxy    *proxy.Proxy

	share   *share.Queue   // nil: nobody waits for the upstream
	shared  share.Stats    // as last told
	meeting sync.WaitGroup // of what tells a share who is known
	ending  context.Context
	end     context.CancelFunc

	terms           siteTerms
	relist          chan string                // has the name of a list of trusted proxies that has another version
	loud            atomic.Pointer[log.Logger] // log, once it is there
	setup           string                     // what the proxy in front has to be told; "" if it has no name
	certificateSaid time.Time                  // that it ends

	lost    int64            // counters that were forgotten, as last told
	found   sync.Once        // the first suspected proxy
	urgent  chan struct{}    // closed with the first suspected proxy
	again   <-chan struct{}  // closed: stop at once
	hangups <-chan os.Signal // SIGHUP
}

// newServer puts everything together and takes the address, but serves nobody
// yet.
func newServer(ctx context.Context, file *policyfile.File, remember memoryTerms, stderr io.Writer) (s *server, err error) {
	s = &server{clock: httpguard.NewClock(), watch: clientaddr.NewWatch(), urgent: make(chan struct{}), relist: make(chan string, 1), stderr: stderr}
	s.manager = systemd.NewNotifier(s.note)
	ending, end := context.WithCancel(context.Background())
	s.ending, s.end = ending, end
	s.terms = siteTerms{bans: fairshare.NewBans(0), state: remember.dir, log: s.note, list: s.relisted}
	st, err := newSite(ctx, file, s.terms, nil)
	if err != nil {
		end()
		return nil, err
	}
	defer func() {
		if err != nil {
			end()
			st.who.close(nil)
			st.meter.end(nil)
		}
	}()
	s.site.Store(st)
	if err := s.encrypt(file); err != nil {
		return nil, err
	}
	taken, err := listen(file.Listen)
	if err != nil {
		return nil, err
	}
	if isItself(taken.Addr(), st.upstream) {
		taken.Close()
		return nil, itselfError(st.upstream)
	}
	if s.journal, err = openJournal(file, stderr); err != nil {
		taken.Close()
		return nil, err
	}
	remember.file, remember.bans, remember.now, remember.log = file, s.terms.bans, s.clock.Now, s.note
	remember.client = func(addr netip.Addr) netip.Prefix { return s.site.Load().file.Policy.Client(addr) }
	remember.lift = func(id fairshare.ClientID, at time.Time) {
		if _, err := s.site.Load().guard.Lift(context.Background(), id, at, s.clock.Now()); err != nil {
			s.note(err.Error())
		}
	}
	if s.memory, err = openMemory(ctx, remember); err != nil {
		taken.Close()
		s.journal.Close()
		return nil, err
	}
	s.memory.recall(ctx, st.limiter, st.guard, s.clock.Now())
	s.log = proxy.NewLog(s.journal, wordsPrefix)
	s.loud.Store(s.log)
	s.census = census.New(&file.Policy, s.clock.Now())
	st.share = s.shareOf(st)
	s.proxy = proxy.New(s.proxyConfig(st))
	s.sessions = sessions.New(sessionsConfig(st.file), s.proxy)
	s.guard = httpguard.New(st.guard, s.guardOptions(st), s.sessions)

	streams, header := maxStreams, maxHeaderBytes
	if file.Bounds.Streams > 0 {
		streams = file.Bounds.Streams
	}
	if file.Bounds.Header > 0 {
		header = int(file.Bounds.Header)
	}
	s.http.Handler = s.guard
	s.http.ReadHeaderTimeout = readHeaderTimeout
	s.http.IdleTimeout = idleTimeout
	s.http.MaxHeaderBytes = header
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.http.Protocols = new(http.Protocols)
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(file.H2C)
	s.http.DisableGeneralOptionsHandler = true
	s.http.ErrorLog = s.log

	s.inbound = inbound.New(taken, s.inboundConfig(st))
	s.inbound.Attach(&s.http)
	s.listener = s.inbound
	if file.ProxyProtocol {
		s.listener = proxyprotocol.Listener(s.inbound, func(peer string) bool { return s.site.Load().clients.TrustsPeer(peer) }, func(peer net.Addr, err error) {
			s.log.Printf("connection of %s: %v", peer, err)
		})
	}
	return s, nil
}

// encrypt takes up the certificate that a policy names.
func (s *server) encrypt(file *policyfile.File) error {
	if file.TLS == nil {
		return nil
	}
	certs, err := loadCertificates(beside(file.Name, file.TLS.Cert), beside(file.Name, file.TLS.Key))
	if err != nil {
		return err
	}
	s.certs.Store(certs)
	s.http.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certs.Load().get(hello) },
	}
	return nil
}

// beside returns where a file that a policy names is, as beside the policy.
func beside(policy, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(policy), path)
}

func (s *server) inboundConfig(st *site) inbound.Config {
	return inbound.Config{
		Connections: st.file.Bounds.Connections,
		PerAddr:     st.file.Bounds.PerAddr,
		Exempt:      func(addr netip.Addr) bool { return st.clients.Trusts(addr) || s.watch.Suspects(addr) },
		Log:         s.log,
	}
}

// sessionsConfig says which sessions bots share.
func sessionsConfig(file *policyfile.File) sessions.Config {
	if file.Sessions == nil || !file.Sessions.Share {
		return sessions.Config{}
	}
	return sessions.Config{
		Cookies: file.Sessions.Cookies,
		Wait:    sessionWait,
		Who: func(w http.ResponseWriter) (netip.Addr, fairshare.Bot, bool) {
			asker, known := httpguard.Who(w)
			return asker.Addr, asker.Bot, known && !asker.Proxy
		},
	}
}

func (s *server) proxyConfig(st *site) proxy.Config {
	var worth policyfile.Sessions
	if st.file.Sessions != nil {
		worth = *st.file.Sessions
	}
	return proxy.Config{
		Session:         worth.Person,
		BotSession:      worth.Bot,
		Upstream:        st.upstream,
		Trusts:          st.clients.TrustsPeer,
		Header:          st.clients.Header(),
		Log:             s.log,
		Timeout:         st.file.Timeout,
		Abandon:         st.file.Abandon,
		Cancels:         st.file.Cancels || st.file.Abandon == 0,
		Hosts:           st.file.Hosts,
		KeepUnderscores: st.file.KeepUnderscores,
		Fields:          st.file.Bounds.Fields,
		HeaderBytes:     int(st.file.Bounds.Header),
		Timing:          metric(&st.file.UpstreamCPU),
		KeepTiming:      st.file.UpstreamCPU.Keep,
		CostHeader:      st.file.UpstreamCost.Header,
		MaxCost:         st.file.UpstreamCost.Max,
		Slots:           st.slots(),
	}
}

func (s *server) guardOptions(st *site) httpguard.Options {
	return httpguard.Options{
		Client: func(r *http.Request) httpguard.Client {
			found := st.clients.Resolve(r.RemoteAddr, r.Header)
			suspect := s.watch.Look(st.clients, found, r.Header)
			if !found.PeerTrusted && !r.ProtoAtLeast(1, 1) {
				// nginx asks so when it is told nothing but proxy_pass.
				suspect = suspect || s.watch.Hides(found.Peer)
			}
			if suspect {
				s.found.Do(func() { close(s.urgent) })
				suspect = !st.file.EnforceSuspects
			}
			s.census.Saw(found.Addr)
			return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy, Suspect: suspect}
		},
		Bot:     st.who.verifier.Look,
		Lookups: st.who.asks(),
		Word:    s.memory.word(),
		Contact: st.file.Contact,
		Refused: s.record,
		Passed:  s.memory.passed(),

		Share:         st.share,
		HandlerAwaits: true,
		Meter:         st.meter.meters(),
		TellsCPU:      metric(&st.file.UpstreamCPU) != "",

		ReferenceKey: s.memory.key,

		Failed: func(err error) { s.log.Print(err) },
		Now:    s.clock.Now,
	}
}

// serve answers requests until ctx ends, then lets those in progress end.
func (s *server) serve(ctx context.Context) error {
	s.introduce()
	s.memory.tellCommands(ctx, s.site.Load())
	s.site.Load().start(s.terms)
	defer func() { s.site.Load().stop() }()
	remembering, end := context.WithCancel(context.Background())
	remembered := make(chan struct{})
	go func() {
		defer close(remembered)
		s.memory.run(remembering, s.counters)
	}()
	defer func() {
		s.site.Load().meter.end(nil) // what it tells is remembered too
		end()
		<-remembered
	}()
	stopped := make(chan error, 1)
	go func() {
		if s.http.TLSConfig != nil {
			stopped <- s.http.ServeTLS(s.listener, "", "")
		} else {
			stopped <- s.http.Serve(s.listener)
		}
	}()
	s.manager.Ready(s.status())
	beats, still := s.manager.Beats()
	defer still()
	s.tryUpstream(ctx)
	oftenTicks, seldomTicks := time.NewTicker(often), time.NewTicker(seldom)
	defer oftenTicks.Stop()
	defer seldomTicks.Stop()
	urgent := s.urgent
	for {
		select {
		case err := <-stopped:
			s.say("listen: %v", err)
			return errSilent
		case <-beats:
			if s.inbound.Accepts() {
				s.manager.Beat()
			}
		case <-oftenTicks.C:
			s.refreshCertificates()
			s.sayAll(s.census.Tick(s.clock.Now()))
		case <-seldomTicks.C:
			s.reportMemory()
			s.reportProxies()
			s.tellShare()
			if s.memory.untold {
				s.memory.tellCommands(ctx, s.site.Load())
			}
			s.reportCertificate(time.Now())
		case <-urgent:
			s.reportProxies()
			urgent = nil
		case <-s.hangups:
			s.reload(ctx)
		case name := <-s.relist:
			s.say("list %s has changed, and trusted_proxies name it: the policy is read anew", name)
			s.reload(ctx)
		case <-ctx.Done():
			err := s.drain()
			<-stopped
			s.reportProxies()
			s.tellShare()
			s.sayAll(s.census.End(s.clock.Now()))
			return err
		}
	}
}

// drain takes no new connections and waits for requests in progress, at most
// for the grace period, or until it is told again to stop.
func (s *server) drain() error {
	grace := s.site.Load().file.Grace
	if grace == 0 {
		grace = policyfile.DefaultGrace
	}
	s.manager.Stopping(grace + afterGrace)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// What has no end of its own, as event streams, goes a little before the rest.
	// With a shared socket new clients wait meanwhile, and the successor takes
	// up who comes again.
	patience := grace - max(grace/10, shutdownLooks)
	if s.share != nil { // who waits for a turn still is told that none comes
		waiting := time.AfterFunc(patience, s.share.TurnAway)
		defer waiting.Stop()
	}
	if s.inbound.IsShared() {
		patience = min(patience, sharedPatience)
	}
	endless := time.AfterFunc(patience, s.proxy.Stop)
	defer endless.Stop()
	ended := make(chan error, 1)
	go func() {
		s.inbound.Drain(ctx)
		s.memory.handOver(s.counters()) // a successor may come now
		err := s.http.Shutdown(ctx)
		if err == nil { // it knows nothing of websockets
			err = s.proxy.Wait(ctx)
		}
		ended <- err
	}()
	s.say("stopping; requests in progress have %v to end; a second SIGTERM or SIGINT stops at once", grace)
	const cut = "some requests were still in progress and have been cut off"
	for {
		select {
		case err := <-ended:
			if err != nil {
				s.proxy.Stop()
				s.http.Close()
				s.say(cut)
			}
			return nil
		case <-s.again:
			s.proxy.Stop()
			s.http.Close()
			s.say(cut)
			return errSilent
		case <-s.hangups: // nothing left to say
		}
	}
}

// close ends what newServer began.
func (s *server) close() {
	s.end()
	s.meeting.Wait()
	s.proxy.Close()
	s.site.Load().who.close(nil)
	s.memory.close()
	s.journal.Close()
}

// counters returns the limiter that counts now, and the time that it goes by.
func (s *server) counters() (*memlimit.Limiter, time.Time) {
	return s.site.Load().limiter, s.clock.Now()
}
