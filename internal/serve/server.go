// Package serve is the reverse proxy: a listener, the guard of a policy file and
// the requests to the upstream. Start with [Run]. A policy file takes this way:
// Run loads it, newServer and newRuntime put it together, and reload puts the
// next one in its place.
package serve

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/clientaddr/proxyprotocol"
	"fairshare/httpguard"
	"fairshare/internal/acmecerts"
	"fairshare/internal/admin"
	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/inbound"
	"fairshare/internal/journal"
	"fairshare/internal/livepolicy"
	"fairshare/internal/otlp"
	"fairshare/internal/proxy"
	"fairshare/internal/sessions"
	"fairshare/internal/setup"
	"fairshare/internal/systemd"
	"fairshare/policyfile"
)

// Bounds of the server.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	maxStreams        = 128 // HTTP/2 requests at once on one connection
	upstreamTimeout   = 2 * time.Second
	// http.Server.Shutdown looks every 500 ms, and up to 100 ms later, whether all requests have ended.
	shutdownPoll = 600 * time.Millisecond
	// streamGrace is for requests without an end of their own, if the successor already accepts
	// connections on the same socket.
	streamGrace = time.Second
	saveGrace   = 15 * time.Second // to write the registry and the counters
)

// Options say how Run serves.
type Options struct {
	Flags
	State      string // the folder for files that outlive the process; "" means the default one
	NoRegistry bool
	// RegistryURL names a PostgreSQL registry in place of the policy file's; "" for none.
	RegistryURL string
	Admin       admin.Options    // Addr "": no listener for operators
	Now         func() time.Time // the system's clock
	Stderr      io.Writer
	Reload      <-chan os.Signal // each signal reloads the policy
	StopNow     <-chan struct{}  // closed: do not wait for requests in progress
}

// Run serves until ctx ends, then lets requests in progress end.
func Run(ctx context.Context, opts Options) error {
	file, err := opts.load(opts.Stderr)
	if err != nil {
		return err
	}
	s, err := newServer(ctx, file, opts)
	if err != nil {
		return setup.PrintFaults(opts.Stderr, err)
	}
	defer s.close()
	// net/http logs some things only with the standard logger.
	log.SetFlags(0)
	log.SetOutput(s.log.Writer())
	defer log.SetOutput(os.Stderr)
	return s.serve(ctx)
}

// A server protects one upstream.
type server struct {
	options Options
	runtime atomic.Pointer[runtime]          // of the policy in force
	certs   atomic.Pointer[siteCertificates] // nil without TLS
	acme    *acmecerts.Set                   // nil without TLS
	policy  *livepolicy.Policy
	journal *journal.Journal
	access  *journal.AccessLog
	spans   *otlp.Exporter
	tracing atomic.Pointer[tracing]    // nil: no request becomes a span
	log     *log.Logger                // lines that clients may cause, for the journal
	logger  atomic.Pointer[log.Logger] // other lines, once there is a journal
	manager *systemd.Notifier

	inbound  *inbound.Listener
	listener net.Listener // lane
	lane     *inbound.Lane
	http     http.Server
	guard    *httpguard.Handler
	sessions *sessions.Handler
	proxy    *proxy.Proxy

	metrics  *metrics         // nil without admin
	console  *console.Console // likewise
	auth     *sideServer      // nil: nobody asks, or http answers questions only
	plain    *sideServer      // redirects to https; nil: none
	admin    *admin.Server    // nil: none
	private  *admin.Server    // at the socket in the state folder; nil: none
	serving  sync.WaitGroup   // of private
	adminTLS *certificates    // nil: admin has no TLS
	stopping atomic.Bool

	privateProblem string // why there is no private socket, as it was last logged

	changing             sync.Mutex // held while a version of the policy file is tried or put in force
	looks                *looks
	reloads              chan reloadCall
	settler              *settler // nil: no log is read
	wrongQuestions       wrongQuestions
	changedProxies       chan string // a list of trusted proxies that has changed
	certificateWarningAt time.Time   // of the last warning that the certificate ends
}

// newServer builds a server and starts to listen, but answers no request yet.
func newServer(ctx context.Context, file *policyfile.File, opts Options) (_ *server, err error) {
	s := &server{options: opts, changedProxies: make(chan string, 1),
		reloads: make(chan reloadCall), spans: otlp.New()}
	s.manager = systemd.NewNotifier(s.logLine)
	s.looks = newLooks(func() *console.Reload {
		changes, _ := s.look(ctx)
		return changes
	})
	var cleanup cleanups
	defer func() {
		if err != nil {
			cleanup.run()
		}
	}()
	rt, err := s.openPolicy(ctx, file)
	if err != nil {
		return nil, err
	}
	cleanup.add(s.policy.Close)
	cleanup.add(func() { rt.meter.end(nil) })
	if err := s.openTLS(file); err != nil {
		return nil, err
	}
	listener, err := listen(file.Listen)
	if err != nil {
		return nil, err
	}
	cleanup.add(func() { listener.Close() })
	if err := checkItself(listener.Addr(), rt); err != nil {
		return nil, err
	}
	if s.journal, err = livepolicy.OpenJournal(file, opts.Stderr); err != nil {
		return nil, err
	}
	cleanup.add(func() { s.journal.Close() })
	s.policy.UseJournal(s.journal, false)
	if s.access, err = livepolicy.OpenAccessLog(s.journal, file); err != nil {
		return nil, err
	}
	cleanup.add(s.closeAccessLog)
	tracing, err := newTracing(file)
	if err != nil {
		return nil, err
	}
	s.useTracing(tracing)
	cleanup.add(s.closeSpans)
	// Only now: a second server by mistake ends before it touches the state folder.
	if err := s.policy.OpenState(ctx); err != nil {
		return nil, err
	}
	s.log = proxy.NewLog(s.journal, prefix)
	s.logger.Store(proxy.NewLog(s.journal, prefix))
	s.proxy = proxy.New(s.proxyConfig(rt))
	s.sessions = sessions.New(livepolicy.SessionsConfig(file), s.proxy)
	if s.hasAdmin() {
		s.metrics = newMetrics(s.figures)
		s.policy.Record(s.metrics)
		s.console = s.newConsole()
	}
	s.guard = httpguard.New(rt.Guard, s.guardOptions(rt), s.sessions)
	cleanup.add(func() {
		s.closeAdmin()
		s.looks.stop()
	})
	if err := s.openAdmin(); err != nil {
		return nil, err
	}
	s.openPrivate()
	if err := s.openSettler(); err != nil {
		return nil, err
	}
	cleanup.add(s.settler.close)
	if err := s.openAuth(rt); err != nil {
		return nil, err
	}
	cleanup.add(s.auth.close)
	if err := s.openRedirect(rt); err != nil {
		return nil, err
	}
	s.configureHTTP(file)
	s.inbound = inbound.New(listener, s.inboundConfig(rt))
	s.inbound.Attach(&s.http)
	s.listener = s.inbound
	if file.ProxyProtocol {
		s.listener = proxyprotocol.Listener(s.inbound,
			func(peer string) bool { return s.runtime.Load().Clients.TrustsPeer(peer) },
			func(peer net.Addr, err error) {
				s.log.Printf("connection of %s: %v", peer, err)
			})
	}
	s.lane = s.inbound.NewLane(s.listener, &s.http)
	s.lane.Use(!file.NoFastLane)
	s.listener = s.lane
	return s, nil
}

// cleanups undo the first steps of newServer when a later one fails.
type cleanups []func()

func (c *cleanups) add(undo func()) { *c = append(*c, undo) }

func (c cleanups) run() {
	for i := len(c) - 1; i >= 0; i-- {
		c[i]()
	}
}

// openPolicy opens the policy file and what it names, but not yet the state.
func (s *server) openPolicy(ctx context.Context, file *policyfile.File) (*runtime, error) {
	upstream, sites, err := s.options.parseUpstreams(file)
	if err != nil {
		return nil, err
	}
	folder, err := setup.StateFolder(s.options.State)
	if err != nil && setup.NeedsStateFolder(file) {
		return nil, err
	}
	s.policy, err = livepolicy.New(ctx, file, livepolicy.Options{
		Folder:     folder,
		MustWrite:  s.options.State != "" || os.Getenv("STATE_DIRECTORY") != "",
		NoRegistry: s.options.NoRegistry, RegistryURL: s.options.RegistryURL,
		OneUpstream: !s.options.Auth,
		Clock:       httpguard.NewClockOf(s.options.Now),
		Log:         s.logLine,
		ProxiesChanged: func(list string) {
			select {
			case s.changedProxies <- list:
			default: // a reload is pending already
			}
		},
	})
	if err != nil {
		return nil, err
	}
	rt := newRuntime(s.policy.Current(), upstream, sites, nil)
	if rt.meter, err = openMeter(file, upstream, s.logLine, nil); err != nil {
		s.policy.Close()
		return nil, err
	}
	s.runtime.Store(rt)
	return rt, nil
}

// configureHTTP sets the handler, bounds and protocols of the HTTP server.
func (s *server) configureHTTP(file *policyfile.File) {
	if s.options.Auth {
		s.http.Handler = s.forwardAuth()
		s.boundHTTP(&s.http, file, authHeaderBytes)
	} else {
		s.http.Handler = s.traced(s.guard)
		s.boundHTTP(&s.http, file, 0)
	}
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(file.H2C)
}

// boundHTTP sets the bounds of a server for HTTP/1. Its requests may have that many more bytes of
// header than the policy file allows.
func (s *server) boundHTTP(srv *http.Server, file *policyfile.File, moreHeader int) {
	streams, header := maxStreams, maxHeaderBytes
	if file.Bounds.Streams > 0 {
		streams = file.Bounds.Streams
	}
	if file.Bounds.Header > 0 {
		header = int(file.Bounds.Header)
	}
	srv.ReadHeaderTimeout = readHeaderTimeout
	srv.IdleTimeout = idleTimeout
	srv.MaxHeaderBytes = header + moreHeader
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.DisableGeneralOptionsHandler = true
	srv.ErrorLog = log.New(withoutMissingCertificates{s.log.Writer()}, "", 0)
}

// serve answers requests until ctx ends, then lets those in progress end.
func (s *server) serve(ctx context.Context) error {
	s.introduce()
	s.policy.Start(ctx)
	s.runtime.Load().meter.start()
	defer func() {
		s.runtime.Load().meter.end(nil) // what it reports last is stored too
		s.policy.Stop()
	}()
	stopped := make(chan error, 3)
	s.auth.start(stopped)
	s.plain.start(stopped)
	go func() { stopped <- s.http.Serve(s.listener) }()
	if s.acme != nil {
		obtaining, stopObtaining := context.WithCancel(ctx)
		var obtain sync.WaitGroup
		obtain.Go(func() { s.acme.Run(obtaining) })
		defer obtain.Wait()
		defer stopObtaining()
	}
	if s.console != nil {
		counting, stopCounting := context.WithCancel(ctx)
		defer s.serving.Wait()
		defer s.closeAdmin()
		defer stopCounting()
		s.serving.Go(func() { s.console.Run(counting) })
		s.servePrivate()
	}
	if s.admin != nil {
		s.serving.Go(func() {
			if err := s.admin.Serve(); err != nil {
				s.printf("admin: %v", err)
			}
		})
	}
	stopSettling := s.settler.start()
	defer stopSettling()
	s.manager.Ready(s.status())
	beats, stopBeats := s.manager.Beats()
	defer stopBeats()
	s.tryUpstream(ctx)
	asking, stopAsking := context.WithCancel(ctx)
	var asks sync.WaitGroup
	if rt := s.runtime.Load(); len(rt.upstreams()) > 0 {
		asks.Go(func() { s.policy.RunRobots(asking, s.askRobots) })
		asks.Go(func() { s.proxy.RunChecks(asking) })
	}
	defer asks.Wait()
	defer stopAsking()
	frequent, minute := time.NewTicker(5*time.Second), time.NewTicker(time.Minute)
	defer frequent.Stop()
	defer minute.Stop()
	provisional := s.policy.Provisional()
	for {
		select {
		case err := <-stopped:
			s.printf("listen: %v", err)
			return cli.ErrReported
		case <-beats:
			if s.inbound.Accepts() && s.auth.accepts() && s.plain.accepts() {
				s.manager.Beat()
			}
		case <-frequent.C:
			s.refreshCertificates()
			s.takePrivate()
			s.printLines(s.policy.FrequentReport())
		case <-minute.C:
			s.printLines(s.policy.MinuteReport(ctx))
			s.reportLostLines(s.access.Lost())
			s.reportLostSpans()
			s.warnOfCertificate(time.Now())
		case <-provisional: // the operator should know of the proxy before a minute has passed
			s.printLines(s.policy.ProxyReport())
			provisional = nil
		case <-s.options.Reload:
			s.reload(ctx, "SIGHUP", nil)
		case list := <-s.changedProxies:
			s.printf("list %s has changed, and trusted_proxies uses it: the policy is loaded again", list)
			s.reload(ctx, "list "+list, nil)
		case call := <-s.reloads:
			answer, err := s.answerReload(ctx, call)
			call.answer <- reloadAnswer{answer, err}
		case <-ctx.Done():
			err := s.drain()
			<-stopped
			s.printLines(s.policy.FinalReport())
			return err
		}
	}
}

// askRobots asks the upstream for the robots.txt of a host.
func (s *server) askRobots(ctx context.Context, host string) {
	otherwise := "localhost"
	if upstream := s.runtime.Load().upstream; upstream != nil && upstream.Host != "" {
		otherwise = upstream.Host
	}
	s.guard.AskRobots(ctx, host, otherwise)
}

// drain accepts no new connections and waits for requests in progress, at most
// for the grace period, or until StopNow.
func (s *server) drain() error {
	grace := s.runtime.Load().File.Grace
	if grace == 0 {
		grace = policyfile.DefaultGrace
	}
	s.manager.Stopping(grace + saveGrace)
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// Requests without an end of their own, such as event streams, are ended a little before the
	// grace period. With a shared socket they are ended soon: new clients wait until the successor
	// accepts them.
	beforeEnd := grace - max(grace/10, shutdownPoll)
	waiting := time.AfterFunc(beforeEnd, s.policy.RefuseWaiting)
	defer waiting.Stop()
	if s.inbound.IsShared() {
		beforeEnd = min(beforeEnd, streamGrace)
	}
	streams := time.AfterFunc(beforeEnd, s.proxy.Stop)
	defer streams.Stop()
	ended := make(chan error, 1)
	go func() {
		var questions sync.WaitGroup
		questions.Go(func() { s.auth.drain(ctx) })
		questions.Go(func() { s.plain.drain(ctx) })
		s.inbound.Drain(ctx)
		questions.Wait()
		s.policy.HandOver()
		err := s.http.Shutdown(ctx)
		if err == nil {
			err = s.lane.Wait(ctx)
		}
		if err == nil { // Shutdown does not wait for websockets
			err = s.proxy.Wait(ctx)
		}
		ended <- err
	}()
	s.printf("stopping; requests in progress have %v to end; a second SIGTERM or SIGINT stops at once", grace)
	const cut = "some requests were still in progress and have been cut off"
	for {
		select {
		case err := <-ended:
			if err != nil {
				s.cutOff()
				s.printf(cut)
			}
			return nil
		case <-s.options.StopNow:
			s.cutOff()
			s.printf(cut)
			cancel()
			<-ended // it uses the state folder
			return cli.ErrReported
		case <-s.options.Reload: // too late for a reload
		case call := <-s.reloads:
			call.answer <- reloadAnswer{err: errStopping}
		}
	}
}

// cutOff ends all requests at once.
func (s *server) cutOff() {
	s.proxy.Stop()
	s.http.Close()
	s.lane.CloseAll()
}

// close ends what newServer began.
func (s *server) close() {
	s.closeAdmin()
	s.looks.stop()
	s.auth.close()
	s.plain.close()
	s.settler.close()
	s.proxy.Close()
	s.policy.Close()
	s.closeSpans()
	s.closeAccessLog()
	s.journal.Close()
}

// closeAccessLog writes the rest of the access log.
func (s *server) closeAccessLog() { s.reportLostLines(s.access.Close()) }

// reportLostLines reports lines of the access log that were lost.
func (s *server) reportLostLines(lost int64) {
	if line := livepolicy.AccessReport(lost); line != "" {
		s.printf("warning: %s", line)
	}
}

// logLine writes a line to the log. Any goroutine may call it, before the journal
// is open too.
func (s *server) logLine(line string) {
	if logger := s.logger.Load(); logger != nil {
		logger.Print(line)
		return
	}
	fmt.Fprintf(s.options.Stderr, prefix+"%s\n", line)
}
