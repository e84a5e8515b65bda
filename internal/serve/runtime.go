package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

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
	upstream *url.URL // nil with sites
	sites    []proxy.Pool
	table    *fairshare.Sites // nil without sites
	// redirects reports whether requests without TLS for a host are redirected to https.
	redirects func(host string) bool
	meter     *meter // nil: CPU time is reported by the upstream, or not measured
}

// newRuntime opens what a new version of the policy file names. The caller uses
// or discards it.
func (s *server) newRuntime(ctx context.Context, file *policyfile.File) (*runtime, error) {
	upstream, sites, err := s.options.parseUpstreams(file)
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
	return newRuntime(next, upstream, sites, meter), nil
}

func newRuntime(policy *livepolicy.Runtime, upstream *url.URL, sites []proxy.Pool, meter *meter) *runtime {
	rt := &runtime{Runtime: policy, upstream: upstream, sites: sites, meter: meter,
		redirects: proxy.HostTest(policy.File.RedirectHosts())}
	rt.table, _ = fairshare.NewSites(policy.File.Policy.Sites) // the policy was checked
	return rt
}

// parseUpstreams returns the upstream of a policy file, or those of its sites.
func (f *Flags) parseUpstreams(file *policyfile.File) (*url.URL, []proxy.Pool, error) {
	if len(file.Sites) == 0 {
		upstream, err := f.parseUpstream(file)
		return upstream, nil, err
	}
	var pools []proxy.Pool
	for i := range file.Sites {
		site := &file.Sites[i]
		pool := proxy.Pool{Name: site.Name, Timeout: site.Timeout,
			SlowStart: cmp.Or(site.SlowStart, policyfile.DefaultSlowStart)}
		for _, text := range site.Upstreams {
			u, err := proxy.ParseUpstream(text)
			if err != nil {
				return nil, nil, cli.Hint(fmt.Errorf("site %s: %w", site.Name, err), upstreamHint)
			}
			pool.Upstreams = append(pool.Upstreams, u)
		}
		if h := site.Checks(); h != nil {
			pool.Check = &proxy.Check{Path: h.Path, Every: h.Every, Timeout: h.Timeout,
				Fails: h.Fails, Passes: h.Passes}
			if host := site.Hosts[0]; !strings.Contains(host, "*") {
				pool.Check.Host = host
			}
		}
		pools = append(pools, pool)
	}
	return nil, pools, nil
}

// pools returns the upstreams of all sites for the proxy.
func (rt *runtime) pools() []proxy.Pool {
	pools := slices.Clone(rt.sites)
	for i := range pools {
		pools[i].Slots = rt.Slots(pools[i].Name)
	}
	return pools
}

// upstreams returns the URLs of all upstreams; none if no request is forwarded.
func (rt *runtime) upstreams() []*url.URL {
	switch {
	case rt.upstream == nil:
	case rt.upstream.Host == "": // it answers questions of another server
		return nil
	default:
		return []*url.URL{rt.upstream}
	}
	var all []*url.URL
	for _, pool := range rt.sites {
		all = append(all, pool.Upstreams...)
	}
	return all
}

// protected names what the server protects, for messages.
func (rt *runtime) protected() string {
	switch {
	case rt.upstream != nil:
		return rt.upstream.String()
	case len(rt.sites) == 1:
		return "1 site"
	}
	return fmt.Sprintf("%d sites", len(rt.sites))
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
		Pools:           rt.pools(),
		Site:            rt.table.Find,
		Trusts:          rt.Clients.TrustsPeer,
		Header:          rt.Clients.Header(),
		ReadForwarded:   rt.Clients.Forwarded,
		Log:             s.log,
		Timeout:         file.Timeout,
		Abandon:         file.Abandon,
		MaxAbandoned:    s.inboundConfig(rt).Filled().Connections / 4,
		Cancels:         file.Cancels || file.Abandon == 0,
		Hosts:           file.Hosts,
		OnlyTransport:   file.NoFastLane,
		HostsJudged:     len(file.Sites) > 0 || hostsJudged(&file.Policy),
		KeepUnderscores: file.KeepUnderscores,
		KeepHeaders:     file.KeepHeaders,
		Fields:          file.Bounds.Fields,
		HeaderBytes:     int(file.Bounds.Header),
		Timing:          metric(&file.UpstreamCPU),
		KeepTiming:      file.UpstreamCPU.KeepHeader,
		CostHeader:      file.UpstreamCost.Header,
		MaxCost:         file.UpstreamCost.Max,
		Slots:           rt.Slots(""),
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
		Forms:             true,
		Meter:             rt.meter.asMeter(),
		HandlerReportsCPU: metric(&rt.File.UpstreamCPU) != "",
		Reuse:             true,
	}
	if logs := rt.File.AccessLog != nil; logs || rt.File.OpenTelemetry != nil {
		base.Answered = func(a *httpguard.Access) {
			span := spanOf(a.HTTP)
			if !logs && span == nil {
				return
			}
			entry := s.policy.AccessEntry(a)
			s.access.Add(&entry)
			if span != nil {
				s.spans.Add(span.finish(a, &entry, logs))
			}
		}
	}
	if m := s.metrics; m != nil {
		m.use(rt)
		base.Unjudged = func(_ *http.Request, passed bool) {
			m.unjudged(passed)
			s.console.Unjudged()
		}
	}
	return s.policy.GuardOptions(rt.Runtime, base)
}
