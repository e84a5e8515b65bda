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

	"fairshare/internal/prose"
)

// topKeys are the keys of a policy file.
func topKeys() []key[File] {
	return []key[File]{
		{"listen", func(r *reader, n *node, f *File) { f.Listen = r.listen(n, "listen", "127.0.0.1:8080") }},
		{"listen_http", func(r *reader, n *node, f *File) { f.ListenHTTP = r.listen(n, "listen_http", ":80") }},
		{"upstream", readUpstream},
		{"tls", readTLS},
		{"contact", func(r *reader, n *node, f *File) { f.Contact = r.line(n, "contact") }},
		{"grace", func(r *reader, n *node, f *File) {
			f.Grace = r.duration(n, "grace", time.Millisecond, 24*time.Hour)
		}},
		{"proxy_protocol", func(r *reader, n *node, f *File) { f.ProxyProtocol = r.boolean(n, "proxy_protocol") }},
		{"fail", func(r *reader, n *node, f *File) { f.FailOpen = r.failOpen(n) }},
		{"dry_run", func(r *reader, n *node, f *File) { f.Policy.DryRun = r.boolean(n, "dry_run") }},
		{"case_insensitive_paths", func(r *reader, n *node, f *File) {
			f.Policy.FoldPaths = r.boolean(n, "case_insensitive_paths")
		}},
		{"clients", func(r *reader, n *node, f *File) {
			readMap(r, n, "clients", "{trusted_proxies: [loopback]}", clientKeys(), f)
		}},
		{"lists", readLists},
		{"rules", readRules},
		{"hosts", readHosts},
		{"underscores", func(r *reader, n *node, f *File) { f.KeepUnderscores = r.underscores(n) }},
		{"keep_headers", func(r *reader, n *node, f *File) { f.KeepHeaders = r.keepHeaders(n) }},
		{"h2c", func(r *reader, n *node, f *File) { f.H2C = r.boolean(n, "h2c") }},
		{"fast_lane", func(r *reader, n *node, f *File) { f.NoFastLane = !r.boolean(n, "fast_lane") }},
		{"abandon", func(r *reader, n *node, f *File) { f.Abandon = r.duration(n, "abandon", 0, 10*time.Minute) }},
		{"journal", readJournal},
		{"access_log", readAccessLog},
		{"opentelemetry", readOpenTelemetry},
		{"bounds", readBounds},
		{"bots", readBots},
		{"dns", readDNS},
		{"asn", readASN},
		{"sessions", readSessions},
		{"registry", readRegistry},
		{"store", readStore},
		{"share", readShare},
		{"visitors", readVisitors},
		{"waiting_room", readWaitingRoom},
		{"bans", readBans},
		{"answers", readAnswers},
		{"robots", readRobots},
		{"count_sites", func(r *reader, n *node, f *File) { f.Policy.SitesApart = r.countApart(n) }},
		{"sites", readSites},
		{"tests", readTests},
	}
}

func clientKeys() []key[File] {
	return []key[File]{
		{"trusted_proxies", readTrustedProxies},
		{"header", readClientHeader},
		{"ipv4_prefix", func(r *reader, n *node, f *File) {
			f.Policy.IPv4Prefix = int(r.integer(n, "ipv4_prefix", 1, 32))
		}},
		{"ipv6_prefix", func(r *reader, n *node, f *File) {
			f.Policy.IPv6Prefix = int(r.integer(n, "ipv6_prefix", 1, 128))
		}},
		{"memory", func(r *reader, n *node, f *File) { f.Memory = r.bytes(n, "memory", minMemory, maxMemory) }},
		{"unnamed_proxies", func(r *reader, n *node, f *File) {
			f.IgnoreUnnamed = r.choice(n, "unnamed_proxies", []string{"provisional", "ignore"}, map[string]string{
				"true": "provisional", "on": "provisional", "false": "ignore", "off": "ignore", "deny": "ignore",
			}) == "ignore" || f.IgnoreUnnamed
		}},
	}
}

func tlsKeys() []key[TLS] {
	return []key[TLS]{
		{"cert", func(r *reader, n *node, t *TLS) { t.Cert = r.line(n, "cert") }},
		{"key", func(r *reader, n *node, t *TLS) { t.Key = r.line(n, "key") }},
		{"acme", readACME},
	}
}

// policy reads the whole file. It reads the keys first to which rules refer,
// wherever they are in the file.
func (r *reader) policy(root *node) {
	keys := topKeys()
	rank := func(e entry) int {
		switch e.key.text {
		case "lists", "dns", "bots", "asn", "upstream":
			return 0
		case "rules":
			return 2
		case "sites":
			return 3
		case "tests":
			return 4
		}
		return 1
	}
	if root.kind == mapNode {
		slices.SortStableFunc(root.entries, func(a, b entry) int { return rank(a) - rank(b) })
	}
	if root.kind == listNode {
		r.fault(root, "put the list under the key rules:", "a map is needed, not a list")
		return
	}
	got := readMap(r, root, "the policy", "", keys, r.file)
	if got == nil {
		return
	}
	r.root = root
	if r.file.H2C && r.file.TLS != nil {
		r.fault(got.at("h2c"), "remove h2c: with tls, HTTP/2 is on by default",
			"h2c and tls: h2c is HTTP/2 without TLS")
	}
	r.file.cores = r.cores()
	r.checkSites(got)
	r.checkACME(got)
	r.checkListenHTTP(got)
	r.checkSiteLimits()
	r.checkOwners()
	r.checkBrowsers()
	r.checkVisitors()
	if s := r.file.Share; s != nil && s.By == nil {
		s.By = DefaultShareBy(len(r.file.ASN.Files) > 0)
	}
	r.checkLogs(got)
	r.checkCostHeader()
	r.checkWhen()
	r.noteAnswers()
	r.checkRobots()
	if !got.has("rules") && !r.everySiteHasRules() {
		r.missing(root, "rules: [{use: default}] takes the built-in rules", "rules are needed")
	}
}

// line reads a text of one line that is not empty. It returns "" after a fault.
func (r *reader) line(n *node, what string) string {
	s, ok := r.text(n, what)
	switch {
	case !ok:
	case s == "":
		r.fault(n, "remove the key", "%s is empty", what)
	case strings.ContainsFunc(s, control):
		r.fault(n, "", "%s: control characters and line ends are not allowed", what)
	default:
		return s
	}
	return ""
}

// listen reads an address on which serve listens, the value of a key.
func (r *reader) listen(n *node, key, example string) string {
	s := r.line(n, key)
	if s == "" || strings.HasPrefix(s, "unix:") {
		return s
	}
	hint := key + ": " + example
	switch {
	case plainDigits(s):
		hint = fmt.Sprintf(":%s listens on every address of this machine, 127.0.0.1:%s only on this machine",
			shorten(s), shorten(s))
	case strings.Contains(s, "://"):
		_, rest, _ := strings.Cut(s, "://")
		hint = key + ": " + strings.TrimRight(rest, "/")
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		r.fault(n, hint, "%s: an address with a port is needed, not %s", key, quote(s))
		return ""
	}
	if p, err := strconv.Atoi(port); !plainDigits(port) || err != nil || p > 65535 {
		r.fault(n, hint, "%s: %s is not a port", key, quote(port))
		return ""
	}
	return s
}

func readTLS(r *reader, n *node, f *File) {
	f.TLS = &TLS{}
	got := readMap(r, n, "tls", "{cert: site.pem, key: site.key}", tlsKeys(), f.TLS)
	if got != nil && (got.has("cert") != got.has("key") || !got.has("cert") && !got.has("acme")) {
		r.missing(n, "", "tls: both cert and key are needed")
	}
}

// proxyNames are the names of sets of addresses that trusted_proxies accepts.
var proxyNames = []string{"loopback", "private", "unix", "cloudflare", "fastly", "cloudfront"}

// fixedNames are the proxyNames that a list cannot redefine.
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
	f.IgnoreUnnamed = f.IgnoreUnnamed || n.kind == listNode && len(n.items) == 0
	var trusted bart.Lite
	for _, item := range items {
		s, ok := r.text(item, "trusted_proxies")
		if !ok {
			continue
		}
		switch prefix, err := parsePrefix(s); {
		case f.Lists[s] != nil: // before proxyNames: a list may redefine one
			if slices.Contains(f.TrustedProxies, s) {
				continue
			}
			if r.fetched(s) {
				r.fault(item, "download it into a file, check it, and name the file",
					"trusted_proxies: the list %s comes from a URL: an attacker that changes the content could pretend any address", quote(s))
				continue
			}
			for _, t := range f.Lists[s].tables() {
				trusted.Union(t)
			}
		case slices.Contains(proxyNames, s):
		case err != nil:
			r.fault(item, prose.DidYouMean(s, known),
				"trusted_proxies: %s is not an address, a prefix, a list or one of %s", quote(s),
				strings.Join(proxyNames, ", "))
			continue
		case prefix.IsSingleIP() && prefix.Addr().IsUnspecified():
			r.fault(item, "for all addresses write 0.0.0.0/0 and ::/0",
				"trusted_proxies: no proxy has the address %s", quote(s))
		default:
			trusted.Insert(prefix)
		}
		f.TrustedProxies = append(f.TrustedProxies, s)
	}
	trusted.Aggregate()
	for _, whole := range []string{"0.0.0.0/0", "2000::/3"} {
		if trusted.LookupPrefix(netip.MustParsePrefix(whole)) {
			r.warn(n, "name the addresses of your proxies",
				"trusted_proxies contains the whole internet (%s): every client could pretend any address", whole)
		}
	}
}

func readClientHeader(r *reader, n *node, f *File) {
	s := r.line(n, "header")
	if s != "" && !isToken(s) {
		r.fault(n, "", "header: %s is not a header name", quote(s))
		return
	}
	f.Header = s
}

// underscores reports whether headers with "_" in their names reach the upstream.
func (r *reader) underscores(n *node) bool {
	return r.choice(n, "underscores", []string{"drop", "keep"}, map[string]string{
		"true": "keep", "on": "keep", "yes": "keep", "allow": "keep", "pass": "keep",
		"false": "drop", "off": "drop", "no": "drop", "block": "drop", "remove": "drop",
	}) == "keep"
}

// countApart reports whether each site has counters of its own.
func (r *reader) countApart(n *node) bool {
	return r.choice(n, "count_sites", []string{"together", "apart"}, map[string]string{
		"separate": "apart", "separately": "apart", "each": "apart", "own": "apart", "true": "apart",
		"shared": "together", "all": "together", "false": "together",
	}) == "apart"
}

// failOpen reports whether requests pass while they cannot be counted.
func (r *reader) failOpen(n *node) bool {
	return r.choice(n, "fail", []string{"open", "closed"}, map[string]string{
		"true": "closed", "close": "closed", "block": "closed", "refuse": "closed", "503": "closed",
		"false": "open", "pass": "open", "allow": "open",
	}) == "open"
}

// maxKeptHeaders is the largest number of names in keep_headers.
const maxKeptHeaders = 100

// keepHeaders reads the names of headers that serve does not remove.
func (r *reader) keepHeaders(n *node) []string {
	list := []string{}
	items := r.list(n, "keep_headers")
	if len(items) > maxKeptHeaders {
		r.fault(n, "", "keep_headers: more than %d names", maxKeptHeaders)
		return nil
	}
	for _, item := range items {
		s := r.line(item, "keep_headers")
		if s == "" {
			continue
		}
		if !isToken(s) {
			r.fault(item, "keep_headers: X-HTTP-Method-Override", "keep_headers: %s is not the name of a header",
				quote(s))
			continue
		}
		if r.options.KeepHeader != nil {
			if err := r.options.KeepHeader(s); err != nil {
				r.fault(item, "", "keep_headers: %v", err)
				continue
			}
		}
		list = append(list, s)
	}
	return list
}

// choice reads one of the known words. For hints, synonyms maps other words in
// lower case to known ones. Any other word is a fault, and "" is returned.
func (r *reader) choice(n *node, what string, known []string, synonyms map[string]string) string {
	if n.kind == scalarNode && slices.Contains(known, n.text) {
		return n.text
	}
	hint := ""
	if n.kind == scalarNode {
		if hint = prose.DidYouMean(n.text, known); synonyms[strings.ToLower(n.text)] != "" {
			hint = fmt.Sprintf("did you mean %q?", synonyms[strings.ToLower(n.text)])
		}
	}
	oneOf := "one of "
	if len(known) == 1 {
		oneOf = ""
	}
	r.fault(n, hint, "%s: %s%s is needed, not %s", what, oneOf, strings.Join(known, ", "), n.describe())
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

// keyLocations returns the map to which each key belongs, such as "limit of a rule:
// {…}" for per. A key that belongs to several maps has the value "".
func keyLocations() map[string]string {
	found := map[string]string{}
	add := func(location string, keys []string) {
		for _, k := range keys {
			if _, twice := found[k]; twice {
				found[k] = ""
			} else {
				found[k] = location
			}
		}
	}
	add("clients: {…}", names(clientKeys()))
	add("upstream: {…}", []string{"url", "cancels", "timeout"})
	add("upstream: {cpu: {…}}", []string{"from", "metric", "pid_file", "service", "cgroup", "cores"})
	add("a site: {…}", []string{"policy"})
	add("upstream of a site: {…}", []string{"health", "slow_start"})
	add("health of an upstream: {…}", []string{"fails", "passes"})
	add("share: {…}", []string{"capacity", "wait", "queue", "known_after", "weights"})
	add("journal: {…}", names(journalKeys()))
	add("access_log: {…}", names(accessLogKeys()))
	add("opentelemetry: {…}", names(openTelemetryKeys()))
	add("bounds: {…}", names(boundsKeys()))
	add("bots: {…}", names(botsKeys()))
	add("dns: {…}", []string{"server"})
	add("dns: {lists: {NAME: {…}}}", names(dnsListKeys()))
	add("sessions: {…}", []string{"cookies", "person"})
	add("registry: {…}", []string{"stories"})
	add("match of a rule: {listed: {NAME: {…}}}", names(listingKeys()))
	add("bans: {export: {…}}", []string{"nftables", "nginx", "haproxy", "command"})
	add("a rule", names(ruleKeys()))
	add("match of a rule: {…}", names(matchKeys()))
	add("limit of a rule: {…}", names(limitKeys()))
	add("ban of a rule: {…}", names(banKeys()))
	add("answer of a rule: {…}", names(answerKeys()))
	add("the top of the file", names(topKeys()))
	return found
}
