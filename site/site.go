// Package site protects a web site of a Go program by a policy file. It gives an
// [http.Handler] middleware with the lists, DNS lookups, bots, trusted proxies,
// labels, registry and reload of the command fairshare serve: a rule means the
// same in both. Start with [Open].
//
//	s, err := site.Open(ctx, "policy.yaml", site.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer s.Close()
//	http.ListenAndServe(addr, s.Handler(mux))
//
// Settings that are about the reverse proxy itself have no effect in a program:
// listen, tls, upstream and the like. Open logs a warning that names those which
// the policy file has.
package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/sessions"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// Options change what Open does. The zero Options are good for a program that
// keeps nothing over a restart.
type Options struct {
	// State is the folder for what outlives the process: the registry of clients
	// and bans, a snapshot of the counters, and copies of lists. The commands of
	// operators, such as fairshare ban, need it. "" means that nothing is kept.
	// Two programs must not share a folder for counters: the second one starts
	// with empty counters.
	State string

	// DryRun lets every request pass and reports what would have been refused, as
	// dry_run: true in the policy file does.
	DryRun bool

	// Logger gets warnings and errors, and reports on refused clients. nil means
	// slog.Default().
	Logger *slog.Logger

	// Guard has further options of the middleware, such as ThreadCPU and Refused.
	// Client, Bot, SignedBot, CanSign, Lookups, Override, Contact, Share, Visitors,
	// Members, Secure, ReferenceKey, FailOpen, Now and Wall are set by the policy file
	// and have to be zero.
	Guard httpguard.Options
}

// A Site is a policy file in force. It is safe for concurrent use.
type Site struct {
	path    string
	options Options
	policy  *livepolicy.Policy

	mu       sync.Mutex // of what follows, and held while a policy is loaded
	handlers []*handler
	closed   bool

	running context.Context
	stop    context.CancelFunc // of running
	asking  sync.WaitGroup     // for robots.txt
	stopped chan struct{}      // closed when run has ended
	changed chan struct{}      // a list of trusted proxies has changed
}

// A handler is what Handler returns.
type handler struct {
	*httpguard.Handler
	sessions *sessions.Handler
}

// ErrClosed is the error of a Reload after Close.
var ErrClosed = errors.New("site: closed")

// askRobots asks the program for the robots.txt of a host.
func (h *handler) askRobots(ctx context.Context, host string) { h.AskRobots(ctx, host, AnyHost) }

// AnyHost is the host of a request that the site itself sends when no name of the site is known.
const AnyHost = "localhost"

// Open loads a policy file and what it names; "" means the built-in policy.
// Lists from URLs may take up to ten seconds. An error names the file, the line
// and, where possible, a fix; [policyfile.Faults] takes it apart. Call Close in
// the end: until then goroutines keep lists, the registry and counters up to
// date.
func Open(ctx context.Context, path string, opts Options) (*Site, error) {
	if name := reservedField(&opts.Guard); name != "" {
		return nil, fmt.Errorf("site: Options.Guard.%s has to be zero: the policy file sets it", name)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Site{path: path, options: opts, stopped: make(chan struct{}), changed: make(chan struct{}, 1)}
	file, err := s.load()
	if err != nil {
		return nil, explained(err)
	}
	s.policy, err = livepolicy.New(ctx, file, livepolicy.Options{
		Folder: opts.State, MustWrite: true, NoRegistry: opts.State == "",
		Clock: httpguard.NewClock(), Log: s.log,
		ProxiesChanged: func(string) {
			select {
			case s.changed <- struct{}{}:
			default: // a reload is pending already
			}
		},
	})
	if err != nil {
		return nil, explained(err)
	}
	if err := s.policy.OpenState(ctx); err != nil {
		s.policy.Close()
		return nil, explained(err)
	}
	s.warnOf(file)
	s.policy.Start(ctx)
	running, stop := context.WithCancel(context.Background())
	s.running, s.stop = running, stop
	go s.run(running)
	return s, nil
}

// Handler returns a handler that judges each request by the policy before next
// gets it. A reload changes all handlers of the site.
func (s *Site) Handler(next http.Handler) http.Handler { return s.newHandler(next) }

func (s *Site) newHandler(next http.Handler) *handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	rt := s.policy.Current()
	h := &handler{sessions: sessions.New(livepolicy.SessionsConfig(rt.File), next)}
	h.Handler = httpguard.New(rt.Guard, s.policy.GuardOptions(rt, s.options.Guard), h.sessions)
	s.handlers = append(s.handlers, h)
	if len(s.handlers) == 1 {
		s.asking.Go(func() { s.policy.RunRobots(s.running, h.askRobots) })
	}
	return h
}

// A Middleware judges requests for servers whose handlers are not http.Handlers.
type Middleware struct{ h *handler }

// Middleware returns a middleware for a server whose handlers return errors, such as Caddy. own answers
// requests that the site itself sends, for robots.txt. A reload changes all middlewares of the site.
func (s *Site) Middleware(own http.Handler) *Middleware { return &Middleware{s.newHandler(own)} }

// Do judges one request and calls next if it may pass, as [httpguard.Handler.Do] does.
func (m *Middleware) Do(w http.ResponseWriter, r *http.Request,
	next func(http.ResponseWriter, *http.Request) error) error {
	return m.h.Do(w, r, func(w http.ResponseWriter, r *http.Request) error { return m.h.sessions.Do(w, r, next) })
}

// Check returns the error with which Open would refuse a policy file. It reads only this file: neither
// the lists that it names nor the state folder. "" means the built-in policy.
func Check(path string) error {
	_, err := setup.ReadPolicy(path)
	if err != nil {
		return explained(err)
	}
	return nil
}

// Guard returns the guard in force, for what is not HTTP. A reload makes another
// guard with the same counters.
func (s *Site) Guard() *fairshare.Guard { return s.policy.Current().Guard }

// Reload loads the policy file again. Counters of limits that stay, and bans, are
// kept; requests in progress are settled by the policy that judged them. With an
// error nothing changes. The site reloads by itself when a list changes that
// trusted_proxies names; a change of clients.memory or registry needs a new Open.
func (s *Site) Reload(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	file, err := s.load()
	if err != nil {
		return explained(err)
	}
	next, err := s.policy.Prepare(ctx, file)
	if err != nil {
		return explained(err)
	}
	s.warnOf(file)
	s.policy.Use(ctx, next, func() {
		for _, h := range s.handlers {
			h.sessions.Replace(livepolicy.SessionsConfig(file))
			h.Replace(next.Guard, s.policy.GuardOptions(next, s.options.Guard))
		}
	})
	return nil
}

// Close writes the registry and the counters and ends all goroutines of the site.
// Call it when no request is in progress.
func (s *Site) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.stop()
	<-s.stopped
	s.asking.Wait()
	s.logAll(s.policy.FinalReport())
	s.policy.Stop()
	s.policy.Close()
}

// run writes reports to the log, and reloads the policy when trusted proxies have
// changed.
func (s *Site) run(ctx context.Context) {
	defer close(s.stopped)
	frequent, minute := time.NewTicker(5*time.Second), time.NewTicker(time.Minute)
	defer frequent.Stop()
	defer minute.Stop()
	for {
		select {
		case <-frequent.C:
			s.logAll(s.locked(s.policy.FrequentReport))
		case <-minute.C:
			s.logAll(s.locked(func() []string { return s.policy.MinuteReport(ctx) }))
		case <-s.changed:
			if err := s.Reload(ctx); err != nil && !errors.Is(err, ErrClosed) {
				s.options.Logger.Error("policy not reloaded", "file", s.path, "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// locked calls report while no reload is in progress.
func (s *Site) locked(report func() []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return report()
}

func (s *Site) load() (*policyfile.File, error) {
	file, err := setup.ReadPolicy(s.path)
	if err == nil && s.options.DryRun {
		file.Policy.DryRun = true
	}
	return file, err
}

// warnOf logs the warnings of a policy file, and its settings without effect.
func (s *Site) warnOf(file *policyfile.File) {
	for i := range file.Warnings {
		s.options.Logger.Warn(file.Warnings[i].String(), "hint", file.Warnings[i].Hint)
	}
	if names := withoutEffect(file); len(names) > 0 {
		s.options.Logger.Warn("settings of fairshare serve have no effect in a program", "file", file.Name,
			"settings", names)
	}
}

// log writes a line. Its first word may be its level.
func (s *Site) log(line string) {
	for prefix, level := range map[string]slog.Level{
		"warning: ": slog.LevelWarn, "WARNING: ": slog.LevelWarn, "error: ": slog.LevelError,
	} {
		if text, found := strings.CutPrefix(line, prefix); found {
			s.options.Logger.Log(context.Background(), level, text)
			return
		}
	}
	s.options.Logger.Info(line)
}

func (s *Site) logAll(lines []string) {
	for _, line := range lines {
		s.log(line)
	}
}

// reservedField names the first field that the policy file sets and that is not
// zero; "" for none.
func reservedField(o *httpguard.Options) string {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Client", o.Client != nil}, {"Bot", o.Bot != nil}, {"SignedBot", o.SignedBot != nil},
		{"CanSign", o.CanSign != nil}, {"Lookups", o.Lookups != nil},
		{"Override", o.Override != nil}, {"Contact", o.Contact != ""}, {"Share", o.Share != nil},
		{"ReferenceKey", o.ReferenceKey != nil}, {"FailOpen", o.FailOpen}, {"Now", o.Now != nil},
		{"Wall", o.Wall != nil}, {"Visitors", o.Visitors != nil}, {"Members", o.Members != nil},
		{"Secure", o.Secure != nil},
	} {
		if field.set {
			return field.name
		}
	}
	return ""
}

// withoutEffect names the settings of a policy file that only the reverse proxy
// can obey.
func withoutEffect(file *policyfile.File) (names []string) {
	for _, setting := range []struct {
		name string
		set  bool
	}{
		{"listen", file.Listen != ""},
		{"tls", file.TLS != nil},
		{"h2c", file.H2C},
		{"hosts (except for signatures of bots)", file.Hosts != nil},
		{"bounds", file.Bounds != policyfile.Bounds{}},
		{"grace", file.Grace != 0},
		{"journal", file.Journal.File != ""},
		{"access_log", file.AccessLog != nil},
		{"opentelemetry", file.OpenTelemetry != nil},
		{"proxy_protocol", file.ProxyProtocol},
		{"underscores", file.KeepUnderscores},
		{"keep_headers", file.KeepHeaders != nil},
		{"sessions.person and sessions.bot", file.Sessions != nil},
		{"upstream", file.Upstream != ""},
		{"upstream.cpu", file.UpstreamCPU.From != ""},
		{"upstream.cost", file.UpstreamCost.Header != ""},
	} {
		if setting.set {
			names = append(names, setting.name)
		}
	}
	return names
}

// An explainedError shows the hints of an error in its text.
type explainedError struct {
	error
	text string
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.error }

// explained adds the hints of an error to its text.
func explained(err error) error {
	var text strings.Builder
	add := func(line, hint string) {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(line)
		if hint != "" {
			text.WriteString(" (hint: " + hint + ")")
		}
	}
	faults := policyfile.Faults(err)
	for _, fault := range faults {
		add(fault.Error(), fault.Hint)
	}
	if len(faults) == 0 {
		hint := ""
		if hinted := (*cli.HintError)(nil); errors.As(err, &hinted) {
			hint = hinted.Hint
		}
		add(err.Error(), hint)
	}
	return &explainedError{err, text.String()}
}
