package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/journal"
	"fairshare/policyfile"
)

const wordsPrefix = "fairshare: "

// say writes a line without waiting for whoever reads it.
func (s *server) say(format string, args ...any) {
	fmt.Fprintf(s.journal, wordsPrefix+format+"\n", args...)
}

// note is a line about what goes on beside requests. It may be called from any
// goroutine, at start too.
func (s *server) note(line string) {
	if log := s.loud.Load(); log != nil {
		log.Print(line)
		return
	}
	fmt.Fprintf(s.stderr, wordsPrefix+"%s\n", line)
}

// relisted hears that a list has another version.
func (s *server) relisted(file *policyfile.File, name string) {
	if st := s.site.Load(); st == nil || st.file != file || !slices.Contains(file.TrustedProxies, name) {
		return
	}
	select {
	case s.relist <- name:
	default:
	}
}

func (s *server) sayAll(lines []string) {
	for _, line := range lines {
		s.say("%s", line)
	}
}

// introduce says what is protected and how far, by which policy, whom it
// believes, what lists hold, which sessions are shared, where the journal goes and how to reload.
func (s *server) introduce() {
	st := s.site.Load()
	say := func(format string, args ...any) { fmt.Fprintf(s.stderr, wordsPrefix+format+"\n", args...) }
	say("%s protects %s, %s", s.at(), st.upstream, st.mode())
	if s.inbound.IsShared() {
		say("listens on the socket that systemd handed over; listen and --listen are not looked at")
	}
	say("policy: %s, %s, %s of memory for counters", st.file.Name, rules(len(st.file.Policy.Rules)), policyfile.FormatSize(st.limiter.Stats(s.clock.Now()).Memory))
	clients := st.believes()
	if s.setup != "" {
		clients += "; " + s.setup
	}
	say("clients: %s", clients)
	if lists := holdings(st.lists); lists != "" {
		say("lists: %s", lists)
	}
	if sharedCookies(st.file) != "" {
		say("sessions: %s", st.shares())
	}
	if costs := st.costs(); costs != "" {
		say("costs: %s", costs)
	}
	if sharing := st.sharing(); sharing != "" {
		say("share: %s", sharing)
	}
	say("state: %s", s.memory.where())
	say("journal: %s; to read the policy anew: kill -HUP %d", st.journals(), os.Getpid())
	for _, warning := range s.warnings(st) {
		say("warning: %s", warning)
	}
}

// status is what systemctl status shows.
func (s *server) status() string {
	st := s.site.Load()
	return fmt.Sprintf("%s protects %s by %s, %s", s.at(), st.upstream, rules(len(st.file.Policy.Rules)), st.mode())
}

// at returns where the server listens, as a URL where it has one.
func (s *server) at() string {
	encrypted, unix := s.certs.Load() != nil, s.listener.Addr().Network() == "unix"
	at := s.listener.Addr().String()
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

// warnings are what may be wrong with a site where the server listens.
func (s *server) warnings(st *site) (all []string) {
	if s.listener.Addr().Network() == "unix" && !st.clients.TrustsPeer("@") {
		all = append(all, "all who come by the Unix socket count as one client; trusted_proxies: unix believes the header of the proxy in front")
	}
	if s.memory.registrar == nil && len(unknownLabels(&st.file.Policy, nil)) > 0 {
		all = append(all, "rules look at labels, and without a registry nobody has one")
	}
	if warning := s.certificateWarning(time.Now()); warning != "" {
		all = append(all, warning)
	}
	return all
}

// renewBefore is how long before its end somebody should have renewed a
// certificate: those who renew by themselves do it a month before.
const renewBefore = 7 * 24 * time.Hour

// certificateWarning says that the certificate ends, or has ended.
func (s *server) certificateWarning(now time.Time) string {
	certs := s.certs.Load()
	if certs == nil {
		return ""
	}
	until := certs.until().Format(time.DateTime + " MST")
	switch left := certs.until().Sub(now); {
	case left <= 0:
		return fmt.Sprintf("certificate %s was good until %s: browsers refuse it", certs.certFile, until)
	case left < renewBefore:
		return fmt.Sprintf("certificate %s is good until %s only; a new one is taken up by itself", certs.certFile, until)
	}
	return ""
}

// reportCertificate warns once a day while the certificate ends.
func (s *server) reportCertificate(now time.Time) {
	if now.Sub(s.certificateSaid) < 24*time.Hour {
		return
	}
	if warning := s.certificateWarning(now); warning != "" {
		s.certificateSaid = now
		s.say("warning: %s", warning)
	}
}

// mode tells whether a site enforces its policy.
func (st *site) mode() string {
	dry := 0
	for i := range st.file.Policy.Rules {
		if st.file.Policy.Rules[i].DryRun {
			dry++
		}
	}
	switch {
	case st.file.Policy.DryRun:
		return "dry run: everything is let through"
	case dry > 0:
		return fmt.Sprintf("enforcing, but %s in dry run", rules(dry))
	}
	return "enforcing"
}

// believes tells whom a site believes about its clients' addresses.
func (st *site) believes() string {
	proxies, header := strings.Join(st.file.TrustedProxies, ", "), cmp.Or(st.file.Header, st.clients.Header())
	switch {
	case proxies == "":
		return "the address that connects; no header is believed"
	case st.file.ProxyProtocol:
		return fmt.Sprintf("by the PROXY protocol, then %s, of %s; from anybody else no header is believed", header, proxies)
	}
	return fmt.Sprintf("by %s of %s; from anybody else no header is believed", header, proxies)
}

// journals tells where a site's refusals are written.
func (st *site) journals() string {
	j := &st.file.Journal
	if j.File == "" {
		return fmt.Sprintf("refusals, as lines of %s, here", j.Format)
	}
	return fmt.Sprintf("refusals, as lines of %s, in %s", j.Format, beside(st.file.Name, j.File))
}

// sharedCookies names the cookies of sessions that bots share, "" when they
// share none.
func sharedCookies(file *policyfile.File) string {
	if file.Sessions == nil || !file.Sessions.Share {
		return ""
	}
	return strings.Join(file.Sessions.Cookies, ", ")
}

// shares tells which sessions bots share.
func (st *site) shares() string {
	if cookies := sharedCookies(st.file); cookies != "" {
		return "bots share those of " + cookies
	}
	return "none are shared"
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
		s.say("warning: %v; until it does, requests are answered 502", err)
	}
}

// reportMemory says when counters had to be forgotten since it was last
// called.
func (s *server) reportMemory() {
	stats := s.site.Load().limiter.Stats(s.clock.Now())
	if stats.Lost > s.lost {
		s.log.Printf("the memory for counters is too small: %d were forgotten in the last minute; memory: %s would do", stats.Lost-s.lost, policyfile.FormatSize(stats.Needed))
	}
	s.lost = stats.Lost
}

// reportProxies says what is wrong with the proxies in front.
func (s *server) reportProxies() {
	for _, line := range s.watch.Lines(s.clock.Now(), s.site.Load().clients) {
		s.say("error: %s", line)
	}
}

// withoutUserinfo returns the path of a request. That of CONNECT is a host and
// a port, and some send a password before it.
func withoutUserinfo(req *fairshare.Request) string {
	if req.Method == http.MethodConnect {
		return req.Path[strings.LastIndexByte(req.Path, '@')+1:]
	}
	return req.Path
}

// record puts a refusal into the journal.
func (s *server) record(r *httpguard.Report) {
	s.census.Refused(r.Request, &r.Finding, r.DryRun)
	e := journal.Entry{
		Time:       r.Request.Time,
		Client:     r.Request.Addr,
		Method:     r.Request.Method,
		Host:       r.Request.Host,
		Path:       withoutUserinfo(r.Request),
		Query:      r.Request.Query,
		UserAgent:  r.Request.UserAgent,
		Bot:        r.Request.Bot.Name,
		BotState:   r.Request.Bot.State.String(),
		Cookies:    fairshare.Cookies(r.Request.Header),
		Action:     r.Finding.Action.String(),
		DryRun:     r.DryRun,
		Status:     r.Status,
		RetryAfter: r.RetryAfter,
		ID:         r.ID,
	}
	if rule := r.Finding.Rule; rule != nil {
		e.Rule = rule.Name
		if r.Finding.Action == fairshare.Refuse && r.Finding.Ban != fairshare.BanInForce && rule.Limit != nil {
			e.Resource, e.Used, e.Allowed = rule.Limit.Resource.String(), r.Finding.Tally.Used, rule.Limit.Allowed()
		}
	}
	switch r.Finding.Ban {
	case fairshare.BanStarted:
		e.Ban = journal.BanStarted
	case fairshare.BanInForce:
		e.Ban = journal.BanInForce
	}
	s.journal.Add(&e)
	s.memory.refused(r, e.Path)
}

// refreshCertificates reads the certificate anew if its files have changed.
func (s *server) refreshCertificates() {
	certs := s.certs.Load()
	if certs == nil {
		return
	}
	switch changed, err := certs.refresh(); {
	case err != nil:
		s.say("the certificate stays what it was: %s", oneLine(err))
	case changed:
		s.say("certificate %s was read anew; it is good until %s", certs.certFile, certs.until().Format(time.DateTime+" MST"))
	}
}
