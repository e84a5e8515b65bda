package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// A reloadCall asks the goroutine of serve to reload, or only what a reload would change.
type reloadCall struct {
	ctx    context.Context
	plan   string
	apply  bool
	answer chan reloadAnswer // has room for one
}

type reloadAnswer struct {
	changes *console.Reload
	err     error
}

// callReload is the reload of operators: see [console.Options].
func (s *server) callReload(ctx context.Context, plan string, apply bool) (*console.Reload, error) {
	call := reloadCall{ctx, plan, apply, make(chan reloadAnswer, 1)}
	select {
	case s.reloads <- call:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-call.answer:
		return a.changes, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerReload does what a call asks for.
func (s *server) answerReload(ctx context.Context, call reloadCall) (*console.Reload, error) {
	if call.ctx.Err() != nil {
		return nil, call.ctx.Err() // nobody waits for it any more
	}
	changes := s.changes(ctx)
	switch {
	case len(changes.Faults) > 0 || !call.apply:
		return changes, nil
	case changes.Plan != call.plan:
		return nil, console.ErrChanged
	}
	changes.Applied = s.reload(ctx, "reload")
	if !changes.Applied { // a file has changed in this moment, or cannot be written
		changes.Faults = []string{"the reload failed, and nothing has changed; the log of the server says why\n"}
	}
	return changes, nil
}

// texts collects what is written, one entry for each write.
type texts []string

func (t *texts) Write(text []byte) (int, error) {
	*t = append(*t, string(text))
	return len(text), nil
}

// changes returns what a reload would change.
func (s *server) changes(ctx context.Context) *console.Reload {
	c := console.NewReload(s.runtime.Load().File.Name)
	var written texts
	if err := s.tryChanges(ctx, c, &written); err != nil {
		cli.PrintError(&written, setup.PrintFaults(&written, err))
		c.Faults = append(c.Faults, written...)
	} else {
		c.Warnings = append(append([]string{}, written...), c.Warnings...)
	}
	return c
}

// tryChanges fills c, and writes warnings, each with one write. An error, and what was written before it, is about
// the policy.
func (s *server) tryChanges(ctx context.Context, c *console.Reload, w io.Writer) error {
	file, err := s.options.load(w)
	if err != nil {
		return err
	}
	old := s.runtime.Load()
	differ, sum := old.File.Changes(file), file.Sum()
	c.SetRules(&differ)
	c.Restart = append(c.Restart, keepUntilRestart(old.File, file)...)
	upstream, sites, err := s.options.parseUpstreams(file)
	if err != nil {
		return err
	}
	trial, effects, err := s.policy.Try(ctx, file)
	if err != nil {
		return err
	}
	defer s.policy.Discard(trial)
	next := newRuntime(trial, upstream, sites, old.meter)
	if err := checkItself(s.inbound.Addr(), next); err != nil {
		return err
	}
	if _, err := newTracing(file); err != nil {
		return err
	}
	if file.TLS != nil {
		if _, err := s.prepareTLS(file); err != nil {
			return err
		}
	}
	if old.mode() != next.mode() {
		c.Settings = append(c.Settings, "mode: "+next.mode())
	}
	c.Settings = append(c.Settings, changes(old, next)...)
	if other := undescribed(differ.Settings, c.Settings, c.Restart); len(other) > 0 {
		c.Settings = append(c.Settings, "other settings that change: "+strings.Join(other, ", "))
	}
	c.FromZero = append(c.FromZero, effects.FromZero...)
	c.Bans = effects.Bans
	for _, b := range effects.Suspended {
		c.Suspended = append(c.Suspended, fmt.Sprintf("%s (%s)", b.Rule, prose.Plural(b.N, "ban")))
	}
	c.Warnings = append(c.Warnings, setup.UnknownOwners(file, trial.Owners)...)
	for _, warning := range s.warnings(next) {
		c.Warnings = append(c.Warnings, "warning: "+warning+"\n")
	}
	shown, err := json.Marshal(c)
	if err != nil {
		return err
	}
	c.Plan = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(shown, " %x %x", old.File.Sum(), sum)))[:32]
	return nil
}

// undescribed returns the keys that neither a line nor a setting of a restart names.
func undescribed(keys, lines, restart []string) (other []string) {
	for _, key := range keys {
		described := key == "dry_run" || slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, key+":")
		}) || slices.ContainsFunc(restart, func(name string) bool { return name == key })
		if !described {
			other = append(other, key)
		}
	}
	return other
}

// reload loads the policy and the certificates again and reopens the journal.
// Counters of limits that stay, and bans, are kept; requests in progress are
// settled by the policy that judged them. With an error nothing changes. by begins the messages.
func (s *server) reload(ctx context.Context, by string) (done bool) {
	s.manager.Reloading()
	defer func() { s.manager.Ready(s.status()) }()
	err := setup.PrintFaults(s.journal, s.tryReload(ctx, by))
	s.refreshCertificates() // those of --admin
	if s.metrics != nil {
		s.metrics.reloaded(err == nil)
	}
	if err != nil {
		cli.PrintError(s.journal, err)
		s.printf("%s: nothing has changed; the old policy stays in force", by)
	}
	return err == nil
}

func (s *server) tryReload(ctx context.Context, by string) error {
	file, err := s.options.load(s.journal)
	if err != nil {
		return err
	}
	old := s.runtime.Load()
	rules := new(console.Reload)
	rules.SetRules(new(old.File.Changes(file)))
	needRestart := keepUntilRestart(old.File, file)
	next, err := s.newRuntime(ctx, file)
	if err != nil {
		return err
	}
	if err := s.prepareReload(next); err != nil {
		s.policy.Discard(next.Runtime)
		next.meter.end(old.meter)
		return err
	}
	s.runtime.Store(next)
	s.policy.Use(ctx, next.Runtime, func() {
		s.inbound.Replace(s.inboundConfig(next))
		if s.lane != nil {
			s.lane.Use(!file.NoFastLane)
		}
		for _, side := range []*sideServer{s.auth, s.plain} {
			side.replace(s.sideInboundConfig(next))
		}
		s.proxy.Replace(s.proxyConfig(next))
		s.sessions.Replace(livepolicy.SessionsConfig(file))
		s.guard.Replace(next.Guard, s.guardOptions(next))
		old.meter.end(next.meter)
	})
	next.meter.start()
	s.forgetSites(old, next)
	s.printf("%s: %s was loaded again: %s, %s; %s", by, next.File.Name, ruleCount(len(next.File.Policy.Rules)),
		next.mode(), keptCounters(next.Limiter.Fresh()))
	s.printLines(rules.RuleLines())
	s.reportReload(old, next, needRestart)
	if !slices.EqualFunc(next.upstreams(), old.upstreams(), func(a, b *url.URL) bool { return *a == *b }) {
		s.tryUpstream(ctx)
	}
	return nil
}

// prepareReload does the last steps of a reload that can fail.
func (s *server) prepareReload(next *runtime) error {
	if err := checkItself(s.inbound.Addr(), next); err != nil {
		return err
	}
	for _, side := range []*sideServer{s.auth, s.plain} {
		if err := side.checkItself(next); err != nil {
			return err
		}
	}
	useTLS := func() {}
	if next.File.TLS != nil {
		var err error
		if useTLS, err = s.prepareTLS(next.File); err != nil {
			return err
		}
	}
	tracing, err := newTracing(next.File)
	if err != nil {
		return err
	}
	if err := livepolicy.ReplaceJournal(s.journal, next.File); err != nil {
		return err
	}
	if err := livepolicy.ReplaceAccessLog(s.access, next.File); err != nil {
		return err
	}
	s.useTracing(tracing)
	useTLS()
	return nil
}

// reportReload writes what a reload has changed, apart from rules.
func (s *server) reportReload(old, now *runtime, needRestart []string) {
	s.printLines(changes(old, now))
	if len(needRestart) > 0 {
		s.printf("warning: changes of %s take effect after a restart", strings.Join(needRestart, ", "))
	}
	for _, warning := range s.warnings(now) {
		s.printf("warning: %s", warning)
	}
}

// changes returns what a reload has changed of the messages at the start.
func changes(old, now *runtime) (lines []string) {
	compare := func(what, before, after string) {
		if after != before {
			lines = append(lines, what+": "+after)
		}
	}
	compare("upstream", old.protected(), now.protected())
	lines = append(lines, siteChanges(old.File.Sites, now.File.Sites)...)
	compare("fail", old.failMode(), now.failMode())
	compare("clients", old.clientSource(), now.clientSource())
	compare("asn", old.Owners.Table().String(), now.Owners.Table().String())
	compare("lists", cmp.Or(old.Lists.String(), "none"), cmp.Or(now.Lists.String(), "none"))
	compare("sessions", old.sharedSessions(), now.sharedSessions())
	compare("costs", cmp.Or(old.costSource(), "no rule needs them"), cmp.Or(now.costSource(), "no rule needs them"))
	compare("share", old.sharing(), now.sharing())
	compare("journal", old.journalTarget(), now.journalTarget())
	compare("access_log", old.accessTarget(), now.accessTarget())
	compare("opentelemetry", old.tracingTarget(), now.tracingTarget())
	return lines
}

// keepUntilRestart returns the names of settings that have changed and that a
// running server cannot change. It sets them to their old values.
func keepUntilRestart(old, file *policyfile.File) (names []string) {
	if file.Listen != old.Listen {
		names, file.Listen = append(names, "listen"), old.Listen
	}
	if file.ListenHTTP != old.ListenHTTP {
		names, file.ListenHTTP = append(names, "listen_http"), old.ListenHTTP
	}
	if file.Memory != old.Memory {
		names, file.Memory = append(names, "clients.memory"), old.Memory
	}
	if file.ProxyProtocol != old.ProxyProtocol {
		names, file.ProxyProtocol = append(names, "proxy_protocol"), old.ProxyProtocol
	}
	if file.H2C != old.H2C {
		names, file.H2C = append(names, "h2c"), old.H2C
	}
	if file.Registry != old.Registry {
		names, file.Registry = append(names, "registry"), old.Registry
	}
	if !file.Store.Equal(old.Store) {
		names, file.Store = append(names, "store"), old.Store
	}
	if (file.TLS == nil) != (old.TLS == nil) {
		names, file.TLS = append(names, "tls"), old.TLS
	}
	if file.Bounds.Streams != old.Bounds.Streams || file.Bounds.Header != old.Bounds.Header {
		names = append(names, "bounds.streams and bounds.header")
		file.Bounds.Streams, file.Bounds.Header = old.Bounds.Streams, old.Bounds.Header
	}
	return names
}

// keptCounters says which limits start from zero after a reload.
func keptCounters(fresh []string) string {
	if len(fresh) == 0 {
		return "all counters and bans are kept"
	}
	return "counters that start from zero: " + livepolicy.FirstNames(fresh) + "; other counters and all bans are kept"
}

// ruleCount returns a number of rules as text.
func ruleCount(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
