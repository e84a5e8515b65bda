package clientaddr

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of reports.
const (
	namedPeers = 8 // listed in trusted_proxies; if there are more, as loopback and private

	// A trusted proxy is reported if it did not name the client of at least 20
	// requests and of more than 5 % of its requests.
	failedRequests = 20
	failedPercent  = 5

	// Requests without a header may be health checks, which the proxy itself sends:
	// they have at most 2 user agents, and there are at most 60 a minute.
	checkAgents     = 2
	checksPerMinute = 60
)

// Reports returns one text for each finding since the last call. Call it once a
// minute, with the present Resolver. A text may end with lines for the policy
// file; so it can contain newlines, but does not end with one. Texts hold
// addresses, numbers and names from the policy, nothing that a client sent.
//
//   - Untrusted peers that named clients, with the lines that trust or deny them.
//   - Peers that send no forwarding header but many different user agents: these
//     are probably proxies too. They are reported once an hour.
//   - Trusted proxies that did not name their clients. A report needs at least
//     20 requests with a missing or unreadable header, and more than 5 % of the
//     proxy's requests. They are counted since its last report, for at most an
//     hour. Missing headers are not reported if these requests have at most two
//     user agents and are at most 60 a minute: those are health checks, and a
//     quiet site may get nothing else.
//
// now may come from any clock that does not run backwards. Calls must not
// overlap each other; they may overlap Observe.
func (w *Watch) Reports(now time.Time, r *Resolver) []string {
	return append(w.reportPeers(now, r), w.reportProxies(now, r)...)
}

func (w *Watch) reportPeers(now time.Time, r *Resolver) []string {
	var naming, hiding []netip.Addr
	var idle []netip.Addr
	all := w.peers.all()
	full := len(all) >= maxSilent
	for addr, p := range all {
		forwarded, requests := p.forwarded.Load(), p.requests.Load()
		active, named := requests > p.lastRequests, forwarded > p.lastForwarded
		p.lastRequests, p.lastForwarded = requests, forwarded
		if active {
			p.activeAt = now
		}
		switch {
		case now.Sub(p.activeAt) >= forgetAfter, forwarded == 0 && !active && full:
			idle = append(idle, addr)
		case !active, !r.MayNameClients(addr), r.start(addr, !addr.IsValid()).PeerTrusted: // r may be newer
		case named:
			naming = append(naming, addr)
		case p.hiding.Load() &&
			(p.exempted.Swap(false) || p.reportedAt.IsZero() || now.Sub(p.reportedAt) >= forgetAfter):
			p.reportedAt = now
			hiding = append(hiding, addr)
		}
	}
	w.peers.drop(idle)
	var reports []string
	if len(naming) > 0 {
		reports = append(reports, reportNaming(r, all, naming))
	}
	if len(hiding) > 0 {
		reports = append(reports, reportHiding(r, hiding))
	}
	return reports
}

// reportNaming reports untrusted peers that named clients, with the policy lines
// that trust or deny them.
func reportNaming(r *Resolver, all map[netip.Addr]*peer, naming []netip.Addr) string {
	slices.SortFunc(naming, netip.Addr.Compare)
	var requests, forwarded, checked int64
	var by headerCounts
	clients := 0
	for _, addr := range naming {
		p := all[addr]
		requests += p.requests.Load()
		forwarded += p.forwarded.Load()
		checked += p.checked.Load()
		clients = max(clients, p.clients.len())
		for i := range by {
			by[i] += p.by[i].Load()
		}
	}
	// The proxies set the header that nearly all requests carry. Clients sent one
	// that only some requests carry.
	best, configured := 0, -1
	for i := range by {
		switch {
		case by[best] >= checked*9/10:
		case by[i] > by[best]:
			best = i
		}
		if forwarding[i].key == r.configuredHeader.key && by[i] >= checked*9/10 {
			configured = i
		}
	}
	if configured >= 0 && best != 0 {
		best = configured
	}
	name := forwarding[best].name
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d requests named %d or more clients. "+
		"Each of these clients is counted provisionally, by its address together with this peer: "+
		"limits and bans apply to it, permissions do not. ",
		describePeers(naming, "is not a trusted proxy but names clients", "are not trusted proxies but name clients"),
		forwarded, requests, clients)
	if r.header != "" && r.header != forwarding[best].key {
		fmt.Fprintf(&b, "All trusted proxies must send the same header, so the others must send %s too. ", name)
	}
	trust := fmt.Sprintf("%s a reverse proxy that sets %s itself%s, add to the policy:%s",
		pick(naming, "If it is", "If each is"), name, nginxSetting(name), policyLines(r, naming, name))
	deny := fmt.Sprintf(
		"%s (NAT, a forwarded port of a container), the clients wrote the header themselves; add to the policy:%s",
		pick(naming, "If it only translates addresses", "If they only translate addresses"), denyLines(r))
	if by[best] < checked*9/10 { // trusting this peer would let clients choose their addresses
		fmt.Fprintf(&b, "Some requests have no %s, so clients may have sent it themselves. ", name)
		trust, deny = deny, trust
	}
	b.WriteString(trust + "\n\n" + deny)
	return b.String()
}

// denyLines returns the lines of a policy file that ignore the headers of
// untrusted peers.
func denyLines(r *Resolver) string {
	if len(r.configured) == 0 {
		return "\nclients:\n  trusted_proxies: []"
	}
	return "\nclients:\n  unnamed_proxies: ignore"
}

// reportHiding reports likely proxies that do not name their clients.
func reportHiding(r *Resolver, hiding []netip.Addr) string {
	slices.SortFunc(hiding, netip.Addr.Compare)
	name := "X-Forwarded-For"
	if r.configuredHeader.key != "" {
		name = headerName(r.configuredHeader.key)
	}
	return fmt.Sprintf(
		"%s: no header names a client, but there are %d or more user agents. All of them count as one client. "+
			"Only HTTP/1.0 requests, which nginx sends by default, count by the ceilings for such a peer instead. "+
			"If %s and not NAT, make the proxy send %s%s and add to the policy:%s",
		describePeers(hiding, "may be a proxy", "may be proxies"), hidingAgents,
		pick(hiding, "it is your proxy", "they are your proxies"), name,
		nginxSetting(name), policyLines(r, hiding, name))
}

// policyLines returns the lines of a policy file that make peers trusted.
func policyLines(r *Resolver, peers []netip.Addr, header string) string {
	var proxies []string
	add := func(proxy string) {
		if strings.Trim(proxy, "abcdefghijklmnopqrstuvwxyz0123456789./") != "" {
			proxy = strconv.Quote(proxy) // YAML might not read ::1 as text
		}
		if !slices.Contains(proxies, proxy) {
			proxies = append(proxies, proxy)
		}
	}
	for _, proxy := range r.configured {
		add(proxy)
	}
	for _, addr := range peers {
		switch {
		case !addr.IsValid():
			add("unix")
		case len(peers) <= namedPeers:
			add(addr.String())
		case addr.IsLoopback():
			add("loopback")
		default:
			add("private")
		}
	}
	return fmt.Sprintf("\nclients:\n  trusted_proxies: [%s]\n  header: %s", strings.Join(proxies, ", "), header)
}

// A failure sums up the trusted proxies that did not name their clients.
type failure struct {
	proxies int // that failed

	// Of the proxy that failed most often.
	addr     netip.Addr
	failed   int64 // requests without a client
	requests int64
	period   time.Duration // in which the requests came
	instead  headerCounts  // other forwarding headers of the failed requests
}

// count adds one more proxy.
func (f *failure) count(addr netip.Addr, failed, requests int64, period time.Duration, instead headerCounts) {
	if failed == 0 {
		return
	}
	f.proxies++
	if failed > f.failed {
		f.addr, f.failed, f.requests, f.period, f.instead = addr, failed, requests, period, instead
	}
}

// last returns the period as text, such as "last 2 minutes".
func (f *failure) last() string {
	if minutes := int(f.period.Round(time.Minute).Minutes()); minutes > 1 {
		return fmt.Sprintf("last %d minutes", minutes)
	}
	return "last minute"
}

type headerCounts [len(forwarding)]int64

func (w *Watch) reportProxies(now time.Time, r *Resolver) []string {
	var missing, malformed failure
	var idle []netip.Addr
	all := w.proxies.all()
	for _, addr := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		p := all[addr]
		if p.since.IsZero() {
			p.since = now.Add(-time.Minute)
		}
		period := now.Sub(p.since)
		absent, bad, requests := p.missing.Load(), p.malformed.Load(), p.requests.Load()
		many := func(failed int64) bool { return failed >= failedRequests && failed*100 > requests*failedPercent }
		checks := p.agents.len() <= checkAgents && float64(absent) <= checksPerMinute*max(period.Minutes(), 1)
		reportMissing, reportMalformed := many(absent) && !checks, many(bad)
		if !reportMissing && !reportMalformed && period < forgetAfter {
			continue
		}
		if absent+bad == 0 {
			idle = append(idle, addr)
		}
		var instead headerCounts
		for i := range instead {
			instead[i] = p.instead[i].Swap(0)
		}
		absent, bad, requests = p.missing.Swap(0), p.malformed.Swap(0), p.requests.Swap(0)
		p.agents.clear()
		p.since = now
		if reportMissing {
			missing.count(addr, absent, requests, period, instead)
		}
		if reportMalformed {
			malformed.count(addr, bad, requests, period, instead)
		}
	}
	w.proxies.drop(idle)
	name := headerName(r.header)
	if name == "" {
		return nil // no proxy is trusted any more
	}
	var reports []string
	if f := missing; f.failed > 0 {
		text := fmt.Sprintf(
			"the trusted proxy %s sent no %s with %d of its %d requests in the %s: they all count as one client%s%s",
			peerName(f.addr), name, f.failed, f.requests, f.last(), otherProxies(f.proxies), nginxSetting(name))
		for i, n := range f.instead {
			if n*10 >= f.failed*9 {
				text += fmt.Sprintf("; %d of them carried %s: if the proxy sets that itself, write header: %s", n,
					forwarding[i].name, forwarding[i].name)
				break
			}
		}
		reports = append(reports, text)
	}
	if f := malformed; f.failed > 0 {
		reports = append(reports, fmt.Sprintf(
			"the trusted proxy %s sent an unreadable %s with %d of its %d requests in the %s: "+
				"they count as the last readable address, or as the proxy%s",
			peerName(f.addr), name, f.failed, f.requests, f.last(), otherProxies(f.proxies)))
	}
	return reports
}

// nginxSetting returns the directive that makes nginx send a header, in
// parentheses; "" for other headers than these two.
func nginxSetting(name string) string {
	switch name {
	case "X-Forwarded-For":
		return " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"
	case "X-Real-IP":
		return " (nginx: proxy_set_header X-Real-IP $remote_addr;)"
	}
	return ""
}

// headerName returns the usual spelling of a canonical header name.
func headerName(key string) string {
	for i := range forwarding {
		if forwarding[i].key == key {
			return forwarding[i].name
		}
	}
	return key
}

func peerName(addr netip.Addr) string {
	if !addr.IsValid() {
		return "on the Unix socket"
	}
	return addr.String()
}

// describePeers names the first peer and counts the others, followed by the text
// for one or for many.
func describePeers(peers []netip.Addr, one, many string) string {
	name := peerName(peers[0])
	if !peers[0].IsValid() {
		name = "the peer on the Unix socket"
	}
	if len(peers) == 1 {
		return name + " " + one
	}
	return fmt.Sprintf("%s and %d more %s", name, len(peers)-1, many)
}

// otherProxies returns the end of a report that names one of several proxies.
func otherProxies(proxies int) string {
	if proxies < 2 {
		return ""
	}
	return fmt.Sprintf("; %d more trusted proxies do the same", proxies-1)
}

// pick returns the text for one peer or for many.
func pick(peers []netip.Addr, one, many string) string {
	if len(peers) == 1 {
		return one
	}
	return many
}
