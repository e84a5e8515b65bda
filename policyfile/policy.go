package policyfile

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gaissmai/bart"
)

// topKeys are the keys of a policy file.
func topKeys() []key[File] {
	return []key[File]{
		{"listen", func(r *reader, n *node, f *File) { f.Listen = r.listen(n) }},
		{"upstream", readUpstream},
		{"tls", readTLS},
		{"contact", func(r *reader, n *node, f *File) { f.Contact = r.line(n, "contact") }},
		{"grace", func(r *reader, n *node, f *File) { f.Grace = r.duration(n, "grace", time.Millisecond, 24*time.Hour) }},
		{"proxy_protocol", func(r *reader, n *node, f *File) { f.ProxyProtocol = r.boolean(n, "proxy_protocol") }},
		{"dry_run", func(r *reader, n *node, f *File) { f.Policy.DryRun = r.boolean(n, "dry_run") }},
		{"clients", func(r *reader, n *node, f *File) {
			readMap(r, n, "clients", "{trusted_proxies: [loopback]}", clientKeys(), f)
		}},
		{"lists", readLists},
		{"rules", readRules},
		{"hosts", readHosts},
		{"underscores", func(r *reader, n *node, f *File) { f.KeepUnderscores = r.underscores(n) }},
		{"h2c", func(r *reader, n *node, f *File) { f.H2C = r.boolean(n, "h2c") }},
		{"abandon", func(r *reader, n *node, f *File) { f.Abandon = r.duration(n, "abandon", 0, 10*time.Minute) }},
		{"journal", readJournal},
		{"bounds", readBounds},
		{"bots", readBots},
		{"dns", readDNS},
		{"sessions", readSessions},
		{"registry", readRegistry},
		{"share", readShare},
	}
}

func clientKeys() []key[File] {
	return []key[File]{
		{"trusted_proxies", readTrustedProxies},
		{"header", readClientHeader},
		{"ipv4_prefix", func(r *reader, n *node, f *File) { f.Policy.IPv4Prefix = int(r.integer(n, "ipv4_prefix", 1, 32)) }},
		{"ipv6_prefix", func(r *reader, n *node, f *File) { f.Policy.IPv6Prefix = int(r.integer(n, "ipv6_prefix", 1, 128)) }},
		{"memory", func(r *reader, n *node, f *File) { f.Memory = r.bytes(n, "memory", minMemory, maxMemory) }},
		{"suspected_proxies", func(r *reader, n *node, f *File) {
			f.EnforceSuspects = r.word(n, "suspected_proxies", []string{"report", "enforce"}, map[string]string{
				"true": "report", "on": "report", "dry_run": "report", "false": "enforce", "off": "enforce", "refuse": "enforce",
			}) == "enforce"
		}},
	}
}

func tlsKeys() []key[TLS] {
	return []key[TLS]{
		{"cert", func(r *reader, n *node, t *TLS) { t.Cert = r.line(n, "cert") }},
		{"key", func(r *reader, n *node, t *TLS) { t.Key = r.line(n, "key") }},
	}
}

// policy reads the whole file. What rules name comes first, wherever it
// stands.
func (r *reader) policy(root *node) {
	keys := topKeys()
	rank := func(e entry) int {
		switch e.key.text {
		case "lists", "dns", "bots", "upstream":
			return 0
		}
		return 1
	}
	if root.kind == mapNode {
		slices.SortStableFunc(root.entries, func(a, b entry) int { return rank(a) - rank(b) })
	}
	if root.kind == listNode {
		r.fault(root, "rules: is the key that the list of rules belongs to", "a map is needed, not a list")
		return
	}
	got := readMap(r, root, "the policy", "", keys, r.file)
	if got == nil {
		return
	}
	r.root = root
	if r.file.H2C && r.file.TLS != nil {
		r.fault(got.at("h2c"), "leave h2c out: with tls, HTTP/2 is spoken without it", "h2c beside tls: it is HTTP/2 without TLS")
	}
	r.file.cores = r.cores()
	r.checkJournal(got)
	r.checkCostHeader()
	if !got.has("rules") {
		r.missing(root, "rules: [{use: default}] takes the built-in rules", "rules are needed")
	}
}

// line reads a text of one line that is not empty.
func (r *reader) line(n *node, what string) string {
	s, ok := r.text(n, what)
	switch {
	case !ok:
	case s == "":
		r.fault(n, "leave the key out", "%s is empty", what)
	case strings.ContainsFunc(s, control):
		r.fault(n, "", "%s: control characters and line ends are not allowed", what)
	default:
		return s
	}
	return ""
}

// listen reads the address that serve listens at.
func (r *reader) listen(n *node) string {
	s := r.line(n, "listen")
	if s == "" || strings.HasPrefix(s, "unix:") {
		return s
	}
	hint := "listen: 127.0.0.1:8080"
	switch {
	case plainDigits(s):
		hint = fmt.Sprintf("listen: :%s is every address of this machine, 127.0.0.1:%s is this machine alone", shorten(s), shorten(s))
	case strings.Contains(s, "://"):
		_, rest, _ := strings.Cut(s, "://")
		hint = "listen: " + strings.TrimRight(rest, "/")
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		r.fault(n, hint, "listen: an address with a port is needed, not %s", quote(s))
		return ""
	}
	if p, err := strconv.Atoi(port); !plainDigits(port) || err != nil || p > 65535 {
		r.fault(n, hint, "listen: %s is no port", quote(port))
		return ""
	}
	return s
}

func readTLS(r *reader, n *node, f *File) {
	f.TLS = &TLS{}
	got := readMap(r, n, "tls", "{cert: site.pem, key: site.key}", tlsKeys(), f.TLS)
	if got != nil && !(got.has("cert") && got.has("key")) {
		r.missing(n, "", "tls: both cert and key are needed")
	}
}

// proxyNames are the words that trusted_proxies knows beside addresses.
var proxyNames = []string{"loopback", "private", "unix", "cloudflare", "fastly", "cloudfront"}

// fixedNames are those of them that no list replaces.
var fixedNames = []string{"loopback", "private", "unix"}

func readTrustedProxies(r *reader, n *node, f *File) {
	items := []*node{n}
	switch n.kind {
	case listNode:
		items = n.items
	case nullNode:
		items = nil
	}
	known := append(slices.Sorted(maps.Keys(f.Lists)), proxyNames...)
	f.TrustedProxies = []string{}
	var trusted bart.Lite
	for _, item := range items {
		s, ok := r.text(item, "trusted_proxies")
		if !ok {
			continue
		}
		switch prefix, err := parsePrefix(s); {
		case f.Lists[s] != nil: // before the built-in names: it replaces them
			if slices.Contains(f.TrustedProxies, s) {
				continue
			}
			if r.fetched(s) {
				r.fault(item, "fetch it into a file yourself, look at it, and name the file", "trusted_proxies: the list %s comes from a URL: whoever changes what is there could claim to be anybody", quote(s))
				continue
			}
			for _, t := range f.Lists[s].tables() {
				trusted.Union(t)
			}
		case slices.Contains(proxyNames, s):
		case err != nil:
			r.fault(item, didYouMean(s, known), "trusted_proxies: %s is no address, no prefix, no list, and none of %s", quote(s), strings.Join(proxyNames, ", "))
			continue
		case prefix.IsSingleIP() && prefix.Addr().IsUnspecified():
			r.fault(item, "for all addresses write 0.0.0.0/0 and ::/0", "trusted_proxies: no proxy has the address %s", quote(s))
		default:
			trusted.Insert(prefix)
		}
		f.TrustedProxies = append(f.TrustedProxies, s)
	}
	trusted.Aggregate()
	for _, whole := range []string{"0.0.0.0/0", "2000::/3"} {
		if trusted.LookupPrefix(netip.MustParsePrefix(whole)) {
			r.warn(n, "name the addresses of your proxies", "trusted_proxies hold the whole internet (%s): everybody could claim to be anybody", whole)
		}
	}
}

func readClientHeader(r *reader, n *node, f *File) {
	s := r.line(n, "header")
	if s != "" && !isToken(s) {
		r.fault(n, "", "header: %s is no header name", quote(s))
		return
	}
	f.Header = s
}

// underscores reports whether headers with "_" in their names are kept.
func (r *reader) underscores(n *node) bool {
	return r.word(n, "underscores", []string{"drop", "keep"}, map[string]string{
		"true": "keep", "on": "keep", "yes": "keep", "allow": "keep", "pass": "keep",
		"false": "drop", "off": "drop", "no": "drop", "block": "drop", "remove": "drop",
	}) == "keep"
}

// word reads one of the known words; slips are what else may be written for
// them. What is none of them is a fault, and "" is returned.
func (r *reader) word(n *node, what string, known []string, slips map[string]string) string {
	if n.kind == scalarNode && slices.Contains(known, n.text) {
		return n.text
	}
	hint := ""
	if n.kind == scalarNode {
		if hint = didYouMean(n.text, known); slips[strings.ToLower(n.text)] != "" {
			hint = fmt.Sprintf("did you mean %q?", slips[strings.ToLower(n.text)])
		}
	}
	r.fault(n, hint, "%s: one of %s is needed, not %s", what, strings.Join(known, ", "), n.describe())
	return ""
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7F || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// places tells for each key which maps know it, as "limit" for "per"; keys of
// the policy itself and of several places are left out.
func places() map[string]string {
	found := map[string]string{}
	add := func(place string, keys []string) {
		for _, k := range keys {
			if _, twice := found[k]; twice {
				found[k] = ""
			} else {
				found[k] = place
			}
		}
	}
	add("clients: {…}", names(clientKeys()))
	add("upstream: {…}", []string{"url", "cancels", "timeout"})
	add("upstream: {cpu: {…}}", []string{"from", "metric", "pid_file", "service", "cgroup", "cores"})
	add("share: {…}", []string{"capacity", "wait", "queue", "known_after", "weights"})
	add("journal: {…}", names(journalKeys()))
	add("bounds: {…}", names(boundsKeys()))
	add("bots: {…}", names(botsKeys()))
	add("dns: {…}", []string{"server"})
	add("dns: {lists: {NAME: {…}}}", names(dnsListKeys()))
	add("sessions: {…}", []string{"cookies", "person"})
	add("registry: {…}", []string{"stories"})
	add("a rule's match: {listed: {NAME: {…}}}", names(listingKeys()))
	add("a rule", names(ruleKeys()))
	add("a rule's match: {…}", names(matchKeys()))
	add("a rule's limit: {…}", names(limitKeys()))
	add("a rule's ban: {…}", names(banKeys()))
	add("a rule's answer: {…}", names(answerKeys()))
	add("the top of the file", names(topKeys()))
	return found
}
