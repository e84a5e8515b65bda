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

// Bounds of what is said.
const (
	namedPeers = 8  // in trusted_proxies; more are said as loopback and private
	isLoud     = 60 // missing headers since the last call: more than health checks would be
)

// Lines returns what the operator should be told of the time since the last
// call, one text each; to be called once a minute, with the present Resolver.
// A text may end with lines for the policy file, so that it has newlines
// within, and none at its end. Texts hold addresses, numbers and names from
// the policy, nothing that a client sent.
//
//   - Suspected proxies that sent requests, with the lines to add.
//   - Peers that send no forwarding header for many different user agents:
//     probably proxies too. Said once an hour.
//   - Trusted proxies that did not name a client. When it may be but their
//     health checks, it is said once an hour.
//
// now may come from any clock that does not run backwards. Calls must not
// overlap each other; they may overlap Look.
func (w *Watch) Lines(now time.Time, r *Resolver) []string {
	lines := w.peerLines(now, r)
	return append(lines, w.proxyLines(now, r)...)
}

func (w *Watch) peerLines(now time.Time, r *Resolver) []string {
	var suspects, hiding []netip.Addr
	var idle []netip.Addr
	all := w.peers.all()
	full := len(all) >= maxSilent
	for addr, p := range all {
		requests := p.requests.Load()
		asked := requests > p.told
		p.told = requests
		if asked {
			p.askedAt = now
		}
		if p.seen.Swap(false) || p.headerAt.IsZero() {
			p.headerAt = now
		}
		suspect := p.suspect.Load()
		switch {
		case suspect && now.Sub(p.headerAt) >= forgetAfter,
			!suspect && now.Sub(p.askedAt) >= forgetAfter,
			!suspect && !asked && full:
			idle = append(idle, addr)
		case !asked, r.start(addr, !addr.IsValid()).PeerTrusted: // by now
		case suspect:
			suspects = append(suspects, addr)
		case p.hiding.Load() && (p.spared.Swap(false) || p.saidAt.IsZero() || now.Sub(p.saidAt) >= forgetAfter):
			p.saidAt = now
			hiding = append(hiding, addr)
		}
	}
	w.peers.drop(idle)
	var lines []string
	if len(suspects) > 0 {
		lines = append(lines, suspectLine(r, all, suspects))
	}
	if len(hiding) > 0 {
		lines = append(lines, hidingLine(r, hiding))
	}
	return lines
}

// suspectLine says what suspected proxies did, and what to add to the policy.
func suspectLine(r *Resolver, all map[netip.Addr]*peer, suspects []netip.Addr) string {
	slices.SortFunc(suspects, netip.Addr.Compare)
	var requests, checked int64
	var by headerCounts
	for _, addr := range suspects {
		p := all[addr]
		requests += p.requests.Load()
		checked += p.checked.Load()
		for i := range by {
			by[i] += p.by[i].Load()
		}
	}
	// The header that nearly all requests carry is the proxies' own. One that
	// some carry is what clients sent.
	best, kept := 0, -1
	for i := range by {
		switch {
		case by[best] >= checked*9/10:
		case by[i] > by[best]:
			best = i
		}
		if forwarding[i].key == r.header && by[i] >= checked*9/10 {
			kept = i
		}
	}
	if kept >= 0 && best != 0 {
		best = kept
	}
	name := forwarding[best].name
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in %d of %d requests looked at, of %d in all, for %d or more clients, who all count as one. "+
		"Unless suspected_proxies is enforce, %s never banned and limits that count by client only report for %s. ",
		some(suspects, "looks like a proxy that nobody named", "look like proxies that nobody named"),
		name, by[best], checked, requests, suspectClients, one(suspects, "it is", "they are"), one(suspects, "it", "them"))
	if r.header != "" && r.header != forwarding[best].key {
		fmt.Fprintf(&b, "There is one header for all trusted proxies: the others have to send %s too. ", name)
	}
	if by[best] >= checked*9/10 {
		fmt.Fprintf(&b, "If %s yours and %s the header itself%s, add to the policy:", one(suspects, "it is", "they are"), one(suspects, "sets", "set"), setting(name))
	} else {
		// Trusting it as it is would let clients name themselves.
		fmt.Fprintf(&b, "Requests without it show that clients may have sent it: have the proxy set it always%s, then add to the policy:", setting(name))
	}
	b.WriteString(policyLines(r, suspects, name))
	return b.String()
}

// hidingLine says that proxies do not name their clients.
func hidingLine(r *Resolver, hiding []netip.Addr) string {
	slices.SortFunc(hiding, netip.Addr.Compare)
	name := "X-Forwarded-For"
	if r.header != "" {
		name = headerName(r.header)
	}
	return fmt.Sprintf("%s: no header names a client, and there are %d or more user agents, who all count as one client. "+
		"Unless suspected_proxies is enforce, limits that count by client only report for its requests by HTTP/1.0, as nginx sends them that was told no more than proxy_pass. "+
		"If %s yours, and no NAT, have the proxy send %s%s and add to the policy:%s",
		some(hiding, "may be a proxy", "may be proxies"), hidingAgents, one(hiding, "it is", "they are"), name, setting(name), policyLines(r, hiding, name))
}

// policyLines are what makes peers trusted, as they stand in a policy file.
func policyLines(r *Resolver, peers []netip.Addr, header string) string {
	var words []string
	add := func(word string) {
		if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789./") != "" {
			word = strconv.Quote(word) // as ::1, which YAML may take for something else
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	for _, word := range r.words {
		add(word)
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
	return fmt.Sprintf("\nclients:\n  trusted_proxies: [%s]\n  header: %s", strings.Join(words, ", "), header)
}

// A failure is what trusted proxies did not tell since the last call.
type failure struct {
	proxies  int          // that failed so
	addr     netip.Addr   // of the one that did most often
	failed   int64        // its requests without a client
	requests int64        // all of its
	instead  headerCounts // what they carried
}

// count adds what one more proxy did.
func (f *failure) count(addr netip.Addr, failed, requests int64, instead headerCounts) {
	if failed == 0 {
		return
	}
	f.proxies++
	if failed > f.failed {
		f.addr, f.failed, f.requests, f.instead = addr, failed, requests, instead
	}
}

type headerCounts [len(forwarding)]int64

func (w *Watch) proxyLines(now time.Time, r *Resolver) []string {
	var missing, malformed failure
	var idle []netip.Addr
	all := w.proxies.all()
	for _, addr := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		p := all[addr]
		absent, bad, requests := p.missing.Swap(0), p.malformed.Swap(0), p.requests.Swap(0)
		var instead headerCounts
		for i := range instead {
			instead[i] = p.instead[i].Swap(0)
		}
		failed := absent + bad
		if failed > 0 || p.failedAt.IsZero() {
			p.failedAt = now
		}
		if now.Sub(p.failedAt) >= forgetAfter {
			idle = append(idle, addr)
		}
		loud := failed*10 >= requests && (failed >= isLoud || p.agents.len() > 1)
		if failed == 0 || !loud && !p.saidAt.IsZero() && now.Sub(p.saidAt) < forgetAfter {
			continue
		}
		p.saidAt = now
		missing.count(addr, absent, requests, instead)
		malformed.count(addr, bad, requests, instead)
	}
	w.proxies.drop(idle)
	name := headerName(r.header)
	if name == "" {
		return nil // nobody is trusted any more
	}
	var lines []string
	if f := missing; f.failed > 0 {
		line := fmt.Sprintf("the trusted proxy %s sent no %s with %d of its %d requests in the last minute: they all count as one client%s%s",
			peerName(f.addr), name, f.failed, f.requests, more(f.proxies), setting(name))
		for i, n := range f.instead {
			if n*10 >= f.failed*9 {
				line += fmt.Sprintf("; %d of them carried %s: if the proxy sets that itself, say header: %s", n, forwarding[i].name, forwarding[i].name)
				break
			}
		}
		lines = append(lines, line)
	}
	if f := malformed; f.failed > 0 {
		lines = append(lines, fmt.Sprintf("the trusted proxy %s sent %s that cannot be read to its end with %d of its %d requests in the last minute: "+
			"they count as the last address that could be read, or as the proxy%s", peerName(f.addr), name, f.failed, f.requests, more(f.proxies)))
	}
	return lines
}

// setting says how to have nginx send a header, "" when it has no word for it.
func setting(name string) string {
	switch name {
	case "X-Forwarded-For":
		return " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"
	case "X-Real-IP":
		return " (nginx: proxy_set_header X-Real-IP $remote_addr;)"
	}
	return ""
}

// headerName returns a canonical name as it is usually written.
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

// some names the first of peers and counts the others.
func some(peers []netip.Addr, one, many string) string {
	name := peerName(peers[0])
	if !peers[0].IsValid() {
		name = "who asks on the Unix socket"
	}
	if len(peers) == 1 {
		return name + " " + one
	}
	return fmt.Sprintf("%s and %d more %s", name, len(peers)-1, many)
}

func more(proxies int) string {
	if proxies < 2 {
		return ""
	}
	return fmt.Sprintf("; %d more trusted proxies do so too", proxies-1)
}

// one picks the word for one peer or for many.
func one(peers []netip.Addr, one, many string) string {
	if len(peers) == 1 {
		return one
	}
	return many
}
