package serve

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/inbound"
	"fairshare/internal/livepolicy"
	"fairshare/internal/proxy"
	"fairshare/policyfile"
)

// A runtime is what the server makes of one version of the policy file. A reload
// makes another.
type runtime struct {
	*livepolicy.Runtime
	upstream *url.URL
	meter    *meter // nil: CPU time is reported by the upstream, or not measured
}

// newRuntime opens what a new version of the policy file names. The caller uses
// or discards it.
func (s *server) newRuntime(ctx context.Context, file *policyfile.File) (*runtime, error) {
	upstream, err := s.options.parseUpstream(file)
	if err != nil {
		return nil, err
	}
	next, err := s.policy.Prepare(ctx, file)
	if err != nil {
		return nil, err
	}
	meter, err := openMeter(file, upstream, s.logLine, s.runtime.Load().meter)
	if err != nil {
		s.policy.Discard(next)
		return nil, err
	}
	return &runtime{Runtime: next, upstream: upstream, meter: meter}, nil
}

func (f *Flags) parseUpstream(file *policyfile.File) (*url.URL, error) {
	if file.Upstream == "" && f.Auth {
		return new(url.URL), nil
	}
	if file.Upstream == "" {
		return nil, cli.WrongUsage(cli.Hint(errors.New("no upstream is given"),
			"fairshare serve --upstream http://127.0.0.1:3000, or upstream: in the policy file"))
	}
	upstream, err := proxy.ParseUpstream(file.Upstream)
	if err != nil {
		return nil, cli.Hint(err, upstreamHint)
	}
	return upstream, nil
}

func (s *server) inboundConfig(rt *runtime) inbound.Config {
	return inbound.Config{
		Connections: rt.File.Bounds.Connections,
		PerAddr:     rt.File.Bounds.PerAddr,
		IPv4Prefix:  rt.File.Policy.IPv4Prefix,
		IPv6Prefix:  rt.File.Policy.IPv6Prefix,
		Exempt:      rt.Clients.Trusts,
		Log:         s.log,
	}
}

func (s *server) proxyConfig(rt *runtime) proxy.Config {
	file := rt.File
	var values policyfile.Sessions
	if file.Sessions != nil {
		values = *file.Sessions
	}
	return proxy.Config{
		Session:         values.Person,
		BotSession:      values.Bot,
		Upstream:        rt.upstream,
		Trusts:          rt.Clients.TrustsPeer,
		Header:          rt.Clients.Header(),
		ReadForwarded:   rt.Clients.Forwarded,
		Log:             s.log,
		Timeout:         file.Timeout,
		Abandon:         file.Abandon,
		MaxAbandoned:    s.inboundConfig(rt).Filled().Connections / 4,
		Cancels:         file.Cancels || file.Abandon == 0,
		Hosts:           file.Hosts,
		HostsJudged:     hostsJudged(&file.Policy),
		KeepUnderscores: file.KeepUnderscores,
		KeepHeaders:     file.KeepHeaders,
		Fields:          file.Bounds.Fields,
		HeaderBytes:     int(file.Bounds.Header),
		Timing:          metric(&file.UpstreamCPU),
		KeepTiming:      file.UpstreamCPU.KeepHeader,
		CostHeader:      file.UpstreamCost.Header,
		MaxCost:         file.UpstreamCost.Max,
		Slots:           rt.Slots(),
	}
}

// hostsJudged reports whether rules depend on the host of a request.
func hostsJudged(p *fairshare.Policy) bool {
	var usesHost func(m fairshare.Match) bool
	usesHost = func(m fairshare.Match) bool { return m.Host != nil || slices.ContainsFunc(m.Not, usesHost) }
	for _, rule := range p.Rules {
		if usesHost(rule.Match) || rule.Ban != nil && rule.Ban.Unless != nil && usesHost(*rule.Ban.Unless) {
			return true
		}
		if rule.Limit != nil && slices.ContainsFunc(rule.Limit.By,
			func(part fairshare.KeyPart) bool { return part.Kind == fairshare.ByHost }) {
			return true
		}
	}
	return false
}

func (s *server) guardOptions(rt *runtime) httpguard.Options {
	base := httpguard.Options{
		HandlerAwaits:     true,
		Meter:             rt.meter.asMeter(),
		HandlerReportsCPU: metric(&rt.File.UpstreamCPU) != "",
		Refused:           s.writeRefusal,
	}
	if rt.File.AccessLog != nil {
		base.Answered = func(a *httpguard.Access) {
			entry := s.policy.AccessEntry(a)
			s.access.Add(&entry)
		}
	}
	if m := s.metrics; m != nil {
		base.Refused = func(r *httpguard.Report) {
			m.refused(r)
			s.console.Refused(r)
			s.writeRefusal(r)
		}
		base.Passed = func(c *httpguard.Completion) {
			m.passed(c)
			s.console.Passed(c)
		}
		base.Unjudged = func(_ *http.Request, passed bool) {
			m.unjudged(passed)
			s.console.Unjudged()
		}
	}
	return s.policy.GuardOptions(rt.Runtime, base)
}

// writeRefusal writes a refusal to the journal.
func (s *server) writeRefusal(r *httpguard.Report) {
	entry := s.policy.JournalEntry(r)
	s.journal.Add(&entry)
}
