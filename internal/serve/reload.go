package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// reload loads the policy and the certificates again and reopens the journal.
// Counters of limits that stay, and bans, are kept; requests in progress are
// settled by the policy that judged them. With an error nothing changes. by begins the messages. accept may refuse
// what was read of the policy file; nil: everything is accepted.
func (s *server) reload(ctx context.Context, by string, accept func(*policyfile.File) error) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.manager.Reloading()
	defer func() { s.manager.Ready(s.status()) }()
	err := setup.PrintFaults(s.journal, s.tryReload(ctx, by, accept))
	s.refreshCertificates() // those of --admin
	if s.metrics != nil {
		s.metrics.reloaded(err == nil)
	}
	if err != nil {
		cli.PrintError(s.journal, err)
		s.printf("%s: nothing has changed; the old policy stays in force", by)
	}
	return err
}

func (s *server) tryReload(ctx context.Context, by string, accept func(*policyfile.File) error) error {
	file, err := s.options.load(s.journal)
	if err != nil {
		return err
	}
	if accept != nil {
		if err := accept(file); err != nil {
			return err
		}
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
		s.lane.Use(!file.NoFastLane)
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
	if err := s.checkAddresses(next); err != nil {
		return err
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
		return errors.Join(err, livepolicy.ReplaceJournal(s.journal, s.runtime.Load().File))
	}
	s.useTracing(tracing)
	useTLS()
	return nil
}

// checkAddresses returns an error if an upstream has an address of this server.
func (s *server) checkAddresses(next *runtime) error {
	if err := checkItself(s.inbound.Addr(), next); err != nil {
		return err
	}
	for _, side := range []*sideServer{s.auth, s.plain} {
		if err := side.checkItself(next); err != nil {
			return err
		}
	}
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
