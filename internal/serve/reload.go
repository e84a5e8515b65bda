package serve

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/inbound"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// reload loads the policy and the certificates again and reopens the journal.
// Counters of limits that stay, and bans, are kept; requests in progress are
// settled by the policy that judged them. With an error nothing changes.
func (s *server) reload(ctx context.Context) {
	s.manager.Reloading()
	defer func() { s.manager.Ready(s.status()) }()
	err := setup.PrintFaults(s.journal, s.tryReload(ctx))
	s.refreshCertificates() // those of --admin
	if s.metrics != nil {
		s.metrics.reloaded(err == nil)
	}
	if err != nil {
		cli.PrintError(s.journal, err)
		s.printf("SIGHUP: nothing has changed; the old policy stays in force")
	}
}

func (s *server) tryReload(ctx context.Context) error {
	file, err := s.options.load(s.journal)
	if err != nil {
		return err
	}
	old := s.runtime.Load()
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
		s.auth.replace(func() inbound.Config { return s.authInboundConfig(next) })
		s.proxy.Replace(s.proxyConfig(next))
		s.sessions.Replace(livepolicy.SessionsConfig(file))
		s.guard.Replace(next.Guard, s.guardOptions(next))
		old.meter.end(next.meter)
	})
	next.meter.start()
	s.forgetSites(old, next)
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
	if s.auth != nil {
		if err := checkItself(s.auth.inbound.Addr(), next); err != nil {
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
	if err := livepolicy.ReplaceJournal(s.journal, next.File); err != nil {
		return err
	}
	if err := livepolicy.ReplaceAccessLog(s.access, next.File); err != nil {
		return err
	}
	useTLS()
	return nil
}

// reportReload writes what a reload has changed.
func (s *server) reportReload(old, now *runtime, needRestart []string) {
	s.printf("SIGHUP: %s was loaded again: %s, %s; %s", now.File.Name, ruleCount(len(now.File.Policy.Rules)),
		now.mode(),
		keptCounters(now.Limiter.Fresh()))
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
	return lines
}

// keepUntilRestart returns the names of settings that have changed and that a
// running server cannot change. It sets them to their old values.
func keepUntilRestart(old, file *policyfile.File) (names []string) {
	if file.Listen != old.Listen {
		names, file.Listen = append(names, "listen"), old.Listen
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
