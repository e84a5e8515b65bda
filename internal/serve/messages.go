package serve

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/prose"
	"fairshare/policyfile"
	"fairshare/redislimit"
)

// prefix begins each line of the log.
const prefix = "fairshare: "

// printf writes a line to the log without waiting for its reader.
func (s *server) printf(format string, args ...any) {
	fmt.Fprintf(s.journal, prefix+format+"\n", args...)
}

func (s *server) printLines(lines []string) {
	for _, line := range lines {
		s.printf("%s", line)
	}
}

// introduce writes the messages at the start: the upstream, the policy, the source
// of client addresses, lists, sessions, costs, the state folder, the journal and
// warnings.
func (s *server) introduce() {
	rt := s.runtime.Load()
	print := func(format string, args ...any) { fmt.Fprintf(s.options.Stderr, prefix+format+"\n", args...) }
	if s.options.Auth {
		print("%s answers for another server, %s; docs/forward-auth.md has its configuration", s.address(), rt.mode())
	} else {
		print("%s protects %s, %s", s.address(), rt.protected(), rt.mode())
		for i := range rt.File.Sites {
			print("%s", rt.File.Sites[i].Description())
		}
	}
	if s.options.answersQuestions() {
		s.introduceAuth(print)
	}
	if s.plain != nil {
		print("listen_http: %s redirects to https", addressText(s.plain.inbound.Addr(), false))
	}
	if s.inbound.IsShared() {
		print("listens on the socket that systemd handed over; listen and --listen have no effect")
	}
	print("policy: %s, %s, %s of memory for counters", rt.File.Name, ruleCount(len(rt.File.Policy.Rules)),
		policyfile.FormatSize(rt.Limiter.Stats(s.policy.Now()).Memory))
	clients := rt.clientSource()
	if setup := s.options.proxySetup(); setup != "" {
		clients += "; " + setup
	}
	print("clients: %s", clients)
	if rt.Group != nil {
		print("store: %s", groupText(rt.Group.Status()))
	}
	if lists := rt.Lists.String(); lists != "" {
		print("lists: %s", lists)
	}
	if rt.Owners != nil {
		print("asn: %s", rt.Owners.Table())
	}
	if livepolicy.SharedCookies(rt.File) != "" {
		print("sessions: %s", rt.sharedSessions())
	}
	if costs := rt.costSource(); costs != "" {
		print("costs: %s", costs)
	}
	if !s.options.Auth {
		print("share: %s", rt.sharing())
	}
	print("state: %s", s.policy.DescribeState())
	if s.private != nil {
		print("admin: %s", s.describePrivate())
	}
	if s.admin != nil {
		print("admin: %s: /metrics, /healthz, /readyz, /api/v1/openapi.json, and / for people",
			addressText(s.admin.Addr(), s.adminTLS != nil))
	}
	if export := s.policy.DescribeExport(); export != "" {
		print("export: %s", export)
	}
	print("journal: %s; to load the policy again: kill -HUP %d", rt.journalTarget(), os.Getpid())
	if rt.File.AccessLog != nil {
		print("access_log: %s", rt.accessTarget())
	}
	if rt.File.OpenTelemetry != nil {
		print("opentelemetry: %s", rt.tracingTarget())
	}
	for _, warning := range s.warnings(rt) {
		print("warning: %s", warning)
	}
}

// status returns the line that systemctl status shows.
func (s *server) status() string {
	rt := s.runtime.Load()
	attack := ""
	if s.policy.Attack() != "" {
		attack = ", attack mode"
	}
	if s.options.Auth {
		return fmt.Sprintf("%s answers for another server by %s, %s%s", s.address(),
			ruleCount(len(rt.File.Policy.Rules)), rt.mode(), attack)
	}
	return fmt.Sprintf("%s protects %s by %s, %s%s", s.address(), rt.protected(), ruleCount(len(rt.File.Policy.Rules)),
		rt.mode(), attack)
}

// address returns where the server listens, as a URL where it has one.
func (s *server) address() string {
	return addressText(s.listener.Addr(), s.acme != nil)
}

func addressText(addr net.Addr, encrypted bool) string {
	at, unix := addr.String(), addr.Network() == "unix"
	switch {
	case unix && encrypted:
		return unixPrefix + at + " (TLS)"
	case unix:
		return unixPrefix + at
	case encrypted:
		return "https://" + at
	}
	return "http://" + at
}

// warnings returns warnings about a runtime and the address of the server.
func (s *server) warnings(rt *runtime) (all []string) {
	if s.listener.Addr().Network() == "unix" && !rt.Clients.TrustsPeer("@") {
		all = append(all,
			"all requests over the Unix socket count as one client; trusted_proxies: unix uses the header of the proxy in front")
	}
	if !s.policy.HasRegistry() && usesLabels(&rt.File.Policy) {
		all = append(all, "rules use labels, but without a registry no client has one")
	}
	bounds := s.inboundConfig(rt)
	if asked, held := rt.File.Bounds.PerAddr, bounds.Filled(); asked > held.PerAddr {
		all = append(all, fmt.Sprintf("connections_per_addr: %d is more than a quarter of %d connections: %d is used",
			asked, held.Connections, held.PerAddr))
	}
	if needed, allowed := bounds.Descriptors(); allowed > 0 && needed > allowed {
		all = append(all,
			fmt.Sprintf(
				"%d connections may need %d open files, and the limit is %d: new clients may have to wait; raise the limit or lower bounds: {connections}",
				bounds.Filled().Connections, needed, allowed))
	}
	all = append(all, s.certs.Load().uncovered(rt.File)...)
	return append(all, s.certificateWarnings(time.Now())...)
}

// renewBefore is how long before the end of a certificate the warnings begin.
// Programs that renew certificates do it a month before.
const renewBefore = 7 * 24 * time.Hour

// allCertificates returns those of the site and of the admin listener, as far as they have any.
func (s *server) allCertificates() (all []*certificates) {
	s.certs.Load().each(func(certs *certificates) { all = append(all, certs) })
	if s.adminTLS != nil {
		all = append(all, s.adminTLS)
	}
	return all
}

// certificateWarnings returns warnings of certificates that end soon or have ended.
func (s *server) certificateWarnings(now time.Time) (all []string) {
	for _, certs := range s.allCertificates() {
		until := certs.until().Format(time.DateTime + " MST")
		switch left := certs.until().Sub(now); {
		case left <= 0:
			all = append(all, fmt.Sprintf("certificate %s was valid until %s: browsers refuse it", certs.certFile,
				until))
		case left < renewBefore:
			all = append(all, fmt.Sprintf("certificate %s is valid only until %s; a new one is loaded automatically",
				certs.certFile, until))
		}
	}
	return all
}

// warnOfCertificate warns once a day while the certificate ends.
func (s *server) warnOfCertificate(now time.Time) {
	if now.Sub(s.certificateWarningAt) < 24*time.Hour {
		return
	}
	for _, warning := range s.certificateWarnings(now) {
		s.certificateWarningAt = now
		s.printf("warning: %s", warning)
	}
}

// mode describes whether the policy is enforced.
func (rt *runtime) mode() string {
	dry := 0
	for i := range rt.File.Policy.Rules {
		if rt.File.Policy.Rules[i].DryRun {
			dry++
		}
	}
	switch {
	case rt.File.Policy.DryRun:
		return "dry run: every request passes"
	case dry > 0:
		return fmt.Sprintf("enforcing, but %s in dry run", ruleCount(dry))
	}
	return "enforcing"
}

// clientSource describes where the addresses of clients come from.
func (rt *runtime) clientSource() string {
	proxies, header := strings.Join(rt.File.TrustedProxies, ", "), cmp.Or(rt.File.Header, rt.Clients.Header())
	if proxies == "" {
		if rt.File.IgnoreUnnamed {
			return "the address that connects; no header is used"
		}
		return "the address that connects; clients that a local peer names in a header count provisionally"
	}
	others := "clients that another local peer names in a header count provisionally"
	if rt.File.IgnoreUnnamed {
		others = "headers of other peers are ignored"
	}
	if rt.File.ProxyProtocol {
		header = "the PROXY protocol, then " + header + ","
	}
	return fmt.Sprintf("by %s of %s; %s", header, proxies, others)
}

// failMode returns what happens to requests that cannot be counted, as in the
// policy file.
func (rt *runtime) failMode() string {
	if rt.File.FailOpen {
		return "open"
	}
	return "closed"
}

// journalTarget describes where refusals are written.
func (rt *runtime) journalTarget() string {
	j := &rt.File.Journal
	if j.File == "" {
		return fmt.Sprintf("refusals, as lines of %s, here", j.Format)
	}
	return fmt.Sprintf("refusals, as lines of %s, in %s", j.Format, rt.File.ResolvePath(j.File))
}

// accessTarget describes where all requests are logged.
func (rt *runtime) accessTarget() string {
	switch l := rt.File.AccessLog; {
	case l == nil:
		return "none"
	case l.File == "":
		return fmt.Sprintf("all requests, in %s format, here", l.Format)
	default:
		return fmt.Sprintf("all requests, in %s format, in %s", l.Format, rt.File.ResolvePath(l.File))
	}
}

// sharedSessions describes which sessions bots share.
func (rt *runtime) sharedSessions() string {
	if cookies := livepolicy.SharedCookies(rt.File); cookies != "" {
		return "bots share those of " + cookies
	}
	return "none are shared"
}

// sharing describes how the upstream is shared.
func (rt *runtime) sharing() string {
	f := rt.File.Share
	if f == nil {
		return "none: requests do not wait for the upstream"
	}
	given := ""
	if f.Default {
		given = "auto (the default): "
	}
	slots := prose.Plural(f.Capacity, "request") + " at once"
	if f.Capacity == 0 {
		slots = fmt.Sprintf("as many requests at once as it answers well, %d to %d", f.Min, f.Max)
	}
	var by []string
	for _, part := range f.By {
		by = append(by, part.String())
	}
	waiting := fmt.Sprintf("up to %d wait, %s at most", f.Queue, policyfile.FormatDuration(f.Wait))
	if f.Queue == 0 || f.Wait == 0 {
		waiting = "requests do not wait: without a turn the answer is 503"
	}
	return given + fmt.Sprintf("the upstream works on %s; shared by %s while it is busy, %s", slots,
		strings.Join(by, ", then "), waiting)
}

// tryUpstream warns if the upstream does not answer. It may start later.
func (s *server) tryUpstream(ctx context.Context) {
	if len(s.runtime.Load().upstreams()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	for _, problem := range s.proxy.Unreachable(ctx) {
		s.printf("warning: %s; until it does, requests are answered 502", problem)
	}
}

// refreshCertificates loads certificates again if their files have changed.
func (s *server) refreshCertificates() {
	for _, certs := range s.allCertificates() {
		switch changed, err := certs.refresh(); {
		case err != nil:
			s.printf("the old certificate stays in use: %s", cli.OneLine(err))
		case changed:
			s.printf("certificate %s was loaded again; it is valid until %s", certs.certFile,
				certs.until().Format(time.DateTime+" MST"))
		}
	}
}

// usesLabels reports whether a rule depends on labels.
func usesLabels(p *fairshare.Policy) bool {
	var uses func(m fairshare.Match) bool
	uses = func(m fairshare.Match) bool { return len(m.Label) > 0 || slices.ContainsFunc(m.Not, uses) }
	return slices.ContainsFunc(p.Rules, func(r fairshare.Rule) bool {
		return uses(r.Match) || r.Ban != nil && r.Ban.Unless != nil && uses(*r.Ban.Unless)
	})
}

// groupText describes the group that counts together.
func groupText(g redislimit.Status) string {
	text := fmt.Sprintf("counts together in %s, as the group %q; ", g.Store, g.Group)
	if g.Away {
		return text + "it is away: " + g.Reason + "; until it answers, this program counts for itself"
	}
	return text + prose.Plural(len(g.Members), "member") + " now"
}
