package policyfile

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// maxCompared is the largest number of rules that are compared with each other, and
// of prefixes in two sets.
const maxCompared = 200

// maxWalked is the largest number of rules for which sample requests are judged:
// the rules are compiled again for them.
const maxWalked = 2000

// warnings finds values that are valid and probably a mistake. Each warn function
// below says in its comment what the mistake would cause.
func (r *reader) warnings() {
	if r.file.ProxyProtocol && len(r.file.TrustedProxies) == 0 {
		r.warn(firstNode(find(r.root, "proxy_protocol")), "name the balancer: clients: {trusted_proxies: [192.0.2.10]}",
			"proxy_protocol without trusted_proxies: no peer may send it, and requests of a balancer are answered with 400")
	}
	if r.file.FailOpen {
		r.warn(firstNode(find(r.root, "fail")), "fail: closed answers requests with 503 in that case",
			"fail: open: while the counters fail, no limit is enforced")
	}
	r.warnBounds()
	r.warnLogs()
	r.warnAbandon()
	r.warnSources()
	r.warnDNS()
	r.warnOpenTelemetry()
	r.warnAgents()
	r.warnSessions()
	r.warnUpstream()
	r.warnShare()
	r.warnVisitors()
	r.warnWaitingRoom()
	r.warnLanguages()
	r.warnLanguages()
	r.warnASN()
	r.warnBanExport()
	r.forEachSite(r.warnRules)
	slices.SortStableFunc(r.file.Warnings, func(a, b Warning) int {
		return cmp.Or(r.compareFiles(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r.file.Warnings = slices.Compact(r.file.Warnings) // an alias gives several rules the same match
}

// forEachSite calls warn for the rules without a site and for those of each site. Meanwhile the
// file has only these rules.
func (r *reader) forEachSite(warn func()) {
	policy, nodes := r.file.Policy, r.rules
	defer func() { r.file.Policy, r.rules = policy, nodes }()
	for first := 0; first < len(policy.Rules) || first == 0; { // they are one after the other
		end := first
		r.file.Policy.Sites, r.file.Policy.Rules = nil, nil
		for ; end < len(policy.Rules) && policy.Rules[end].Site == policy.Rules[first].Site; end++ {
			rule := policy.Rules[end]
			rule.Site = ""
			r.file.Policy.Rules = append(r.file.Policy.Rules, rule)
		}
		r.rules = nodes[first:end]
		if warn(); end == 0 {
			return
		}
		first = end
	}
}

// warnRules finds such values in rules that hold for the same requests.
func (r *reader) warnRules() {
	rules := r.file.Policy.Rules
	if len(rules) > maxCompared {
		r.warn(firstNode(find(r.root, "rules")), "",
			"%d rules are more than %d: they are not checked for unreachable rules and for mistakes in allows and limits", len(rules), maxCompared)
	}
	for i := range rules {
		at := r.rules[i]
		if at.builtIn {
			continue
		}
		unless := find(find(at.node, "ban"), "unless")
		r.warnMatch(at.match)
		r.warnMatch(unless)
		r.warnBots(at.match, rules[i].Action == fairshare.Allow)
		r.warnBots(unless, true)
		r.warnListed(at.match, &rules[i].Match)
		if rules[i].Action != fairshare.Allow {
			r.warnBotBlock(i)
		}
		r.warnBrowserBlock(i)
		if rules[i].Limit != nil {
			r.warnByBot(i)
			r.warnBotLast(i)
			r.warnCosts(i)
		}
		if len(rules) > maxCompared {
			continue
		}
		r.warnUnreachable(i)
		r.warnHosts(i)
		r.warnTrap(i)
		switch {
		case rules[i].Action == fairshare.Allow:
			r.warnAllow(i)
		case rules[i].Limit != nil:
			r.warnLimit(i)
		}
	}
	if len(rules) <= maxWalked {
		r.warnRobots()
		r.warnUnlimited()
	} else {
		r.warn(firstNode(find(r.root, "rules")), "",
			"%d rules are more than %d: they are not checked for access to /robots.txt and for clients without any limit", len(rules), maxWalked)
	}
}

// warnAbandon warns of concurrent limits that a client evades by disconnecting: the
// client gets its slot back while the upstream still works on the request.
func (r *reader) warnAbandon() {
	at := find(r.root, "abandon")
	if r.file.Cancels {
		if at != nil && r.file.Abandon > 0 {
			r.warn(at, "remove it", "abandon has no effect with cancels: true: the upstream stops at once")
		}
		return
	}
	if r.file.Abandon > 0 {
		return
	}
	for i := range r.file.Policy.Rules {
		if rule := &r.file.Policy.Rules[i]; rule.Limit != nil && rule.Limit.Resource == fairshare.Concurrent {
			r.warn(firstNode(at), "set upstream: {cancels: true} if the upstream stops by itself",
				"abandon: 0s: a client that sends requests and disconnects evades %s, if the upstream continues its work",
				quote(rule.Name))
			return
		}
	}
}

// find returns the value of a key of a map; nil if the map has no such key.
func find(n *node, name string) *node {
	if n != nil {
		for _, e := range n.entries {
			if e.key.text == name {
				return e.value
			}
		}
	}
	return nil
}

// firstNode returns the first of the nodes that is not nil, or the begin of the
// file.
func firstNode(nodes ...*node) *node {
	for _, n := range nodes {
		if n != nil {
			return n
		}
	}
	return &node{line: 1, column: 1}
}

// warnUnreachable warns when a rule above ends the walk for all requests that rule i
// matches: a block below an allow that includes it never blocks, and a limit below
// such a rule never counts.
func (r *reader) warnUnreachable(i int) {
	rules := r.file.Policy.Rules
	for j := range rules[:i] {
		above := &rules[j]
		permits := above.Last && !above.DryRun || above.Action == fairshare.Allow
		ends := permits || above.Action == fairshare.Block && !above.DryRun
		if !ends || !covers(condition{&above.Match, permits}, conditionOf(&rules[i])) {
			continue
		}
		only := "no request"
		switch {
		case permits && testsPath(&above.Match):
			only = "only a request with an odd path"
		case permits && testsQuery(&above.Match):
			only = "only a request that sends a parameter twice"
		}
		r.warn(r.rules[i].node, "move it up", "%s reaches this rule: %s in line %d matches all others", only,
			quote(above.Name), r.lineOf(r.rules[j].node))
		return
	}
}

func testsPath(m *fairshare.Match) bool {
	return m.Path != nil || slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return testsPath(&not) })
}

// testsClientInput reports whether m tests values that any client can send.
func testsClientInput(m *fairshare.Match) bool {
	return m.UserAgent != nil || m.Cookie != nil || m.Referer != nil || m.Header != nil || m.Query != nil ||
		m.Form != nil ||
		slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return testsClientInput(&not) })
}

// browsers are user agents of common browsers.
var browsers = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36",
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36 Edg/138.0.0.0",
	"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
}

// directories are usual names of folders: a path that ends with one usually has
// other paths below it.
var directories = strings.Fields(
	`admin administrator api app assets backend backup backups cache cgi-bin config content css
	data dist docs download downloads files fonts forum images img include includes internal js lib libs log logs media
	modules node_modules old phpmyadmin plugins private pub public resources scripts secret secure shop site static
	storage themes tmp upload uploads user users vendor wiki wp-admin wp-content wp-includes wp-json .git .svn .well-known`)

// warnMatch warns of conditions that match every browser, no request at all, or one
// page instead of a folder. It also checks the matches in not.
func (r *reader) warnMatch(n *node) {
	if n == nil {
		return
	}
	for _, item := range items(find(n, "user_agent")) {
		if inEveryBrowser(item.text) {
			r.warn(item, "", "user_agent: the user agent of every browser contains %s", quote(item.text))
		}
		r.warnStar(item, "user_agent", `""`)
	}
	if header := find(n, "header"); header != nil {
		for _, e := range header.entries {
			for _, item := range items(e.value) {
				r.warnStar(item, "header", "{"+e.key.text+`: ""}`)
			}
		}
	}
	paths := items(find(n, "path"))
	for _, item := range paths {
		path := item.text
		last := strings.ToLower(strings.TrimSuffix(path[strings.LastIndexByte(strings.TrimSuffix(path, "/"), '/')+1:],
			"/"))
		switch {
		case isRegexp(path):
		case strings.Contains(path, "?"):
			r.warn(item, `use query: {name: "*"} for the part after the ?`,
				"path: %s: a path does not include the query", quote(path))
		case decoded(path) != path && !fitsItself(path):
			r.warn(item, fmt.Sprintf("write %q", decoded(path)),
				"path: %s fits no request: paths are decoded before the test", quote(path))
		case path != "" && path[0] != '/' && path[0] != '*' && !strings.Contains(path, ":"):
			r.warn(item, fmt.Sprintf("write %q, or %q for any folder", "/"+path, "*/"+path),
				"path: %s: a path begins with /", quote(path))
		case strings.Contains(path, "*") || !slices.Contains(directories, last):
		case !slices.ContainsFunc(paths, func(p *node) bool {
			return isRegexp(p.text) || strings.Contains(p.text, "*") &&
				strings.HasPrefix(p.text, strings.TrimSuffix(path, "/"))
		}):
			r.warn(item, "", "path: %s matches only that page; %s/* matches everything below it", quote(path),
				printable(strings.TrimSuffix(path, "/")))
		}
	}
	for _, item := range items(find(n, "host")) {
		if !isRegexp(item.text) && strings.ContainsFunc(item.text, func(c rune) bool { return c >= 0x80 }) {
			r.warn(item, "write it in ASCII, as browsers send it: xn--…", "host: %s: no request has such a host",
				quote(item.text))
		}
	}
	r.warnForm(n)
	r.warnLabels(n)
	for _, item := range items(find(n, "not")) {
		r.warnMatch(item)
	}
}

// decoded returns a path without percent escapes; a path that has none, or an invalid one, as it is.
func decoded(path string) string {
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}

// fitsItself reports whether a request for a path as it is written in a rule has a reading that fits the rule.
func fitsItself(path string) bool {
	rule := fairshare.Rule{Name: "path", Action: fairshare.Block, Match: fairshare.Match{Path: []string{path}}}
	req := fairshare.Request{Method: "GET"}
	req.SetTarget(strings.ReplaceAll(path, "*", "x"))
	for range walker(&fairshare.Policy{Rules: []fairshare.Rule{rule}})(&req) {
		return true
	}
	return false
}

// warnStar warns of a "*" in a field that has no wildcards. absent is the value that
// matches requests without the field.
func (r *reader) warnStar(item *node, what, absent string) {
	if item.text == "*" {
		r.warn(item, fmt.Sprintf("remove the field to match any value; not: {%s: %s} matches any value that is sent",
			what, absent),
			`%s: "*" is a literal star`, what)
	}
}

// items returns the items of a list field.
func items(n *node) []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == listNode:
		return n.items
	}
	return []*node{n}
}

// inEveryBrowser reports whether a value of user_agent matches all browsers.
func inEveryBrowser(text string) bool {
	holds := func(agent string) bool {
		return text != "" && strings.Contains(strings.ToLower(agent), strings.ToLower(text))
	}
	if expr, ok := strings.CutPrefix(text, "re:"); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return false
		}
		holds = re.MatchString
	}
	return !slices.ContainsFunc(browsers, func(agent string) bool { return !holds(agent) })
}

// warnAllow warns of an allow with which any client evades the limits below it.
func (r *reader) warnAllow(i int) {
	rules := r.file.Policy.Rules
	m := &rules[i].Match
	at := firstNode(r.rules[i].match, r.rules[i].node)
	if byIdentity(m) {
		return
	}
	if m.Path == nil && testsClientInput(m) {
		hint := "name the addresses: match: {addr: …}"
		if bot := r.botOf(m.UserAgent); bot != "" {
			hint = "match: {bot: " + bot + "} holds only for the real bot"
		}
		r.warn(at, hint, "%s allows requests by a value that any client can send", quote(rules[i].Name))
		return
	}
	for j := range rules[:i] {
		lim := rules[j].Limit
		if lim != nil && countsAll(lim) && byClient(lim.By) && !rules[j].DryRun && lim.When == fairshare.Always &&
			covers(conditionOf(&rules[j]), conditionOf(&rules[i])) {
			return
		}
	}
	allowed := "everything"
	switch {
	case m.Path != nil:
		allowed = "by path"
	case m.Host != nil:
		allowed = "by host"
	case m.Method != nil:
		allowed = "by method"
	}
	r.warn(at, "put a limit by addr above it: {requests: 1200, per: 1m, by: addr}",
		"%s allows %s, and no limit above it counts these requests", quote(rules[i].Name), allowed)
}

// warnLimit warns of a limit that clients can evade, or that one client can use up
// for all, unless another limit counts the same requests.
func (r *reader) warnLimit(i int) {
	rules := r.file.Policy.Rules
	rule := &rules[i]
	lim := rule.Limit
	by := firstNode(find(r.rules[i].limit, "by"), r.rules[i].limit)
	// alsoCounted reports whether another limit counts all requests that this one
	// counts, and is enforced if this one is. Below this rule's last, no limit
	// counts them. Below an allow or a last of another rule, a limit does not count
	// the requests that the other rule matches.
	alsoCounted := func(fits func(*fairshare.Rule) bool) bool {
		for j := range rules {
			other := &rules[j]
			if j == i {
				if rule.Last && !rule.DryRun {
					return false
				}
				continue
			}
			counts := other.Limit != nil && (!other.DryRun || rule.DryRun) &&
				(other.Limit.When == fairshare.Always || lim.When == fairshare.Busy) && fits(other)
			if counts && covers(conditionOf(other), conditionOf(rule)) {
				return true
			}
			trusted := other.Action == fairshare.Allow && byIdentity(&other.Match)
			ends := other.Last && !other.DryRun || other.Action == fairshare.Allow
			if j > i && ends && !trusted && !counts && overlap(conditionOf(other), conditionOf(rule)) {
				return false
			}
		}
		return false
	}
	if k := slices.IndexFunc(lim.By,
		func(part fairshare.KeyPart) bool { return part.Kind == fairshare.ByValue }); k >= 0 {
		r.warn(by, "serve gives no values: use by: cookie:NAME or by: header:NAME there",
			"%s counts by %s, which only a Go program can give; without it a client is counted by its address",
			quote(rule.Name), lim.By[k])
	}
	if part, narrow := r.narrowerThanClient(lim.By); narrow {
		r.warn(by, "by: addr counts by client",
			"%s counts by %s, which is less than one client: a client with several addresses evades the limit",
			quote(rule.Name), part)
	}
	if chosenByClient(lim.By) && !alsoCounted(func(other *fairshare.Rule) bool {
		return byClient(other.Limit.By) && (countsAll(other.Limit) || other.Limit.Resource == lim.Resource &&
			other.Limit.Distinct == lim.Distinct)
	}) {
		r.warn(by, "put a second limit by addr or network above it",
			"%s counts by a value that clients choose: a client that changes it each time evades the limit",
			quote(rule.Name))
	}
	fleet := slices.Contains(lim.By, fairshare.KeyPart{Kind: fairshare.ByUserAgent}) &&
		(rule.Match.UserAgent != nil || rule.Match.TestsBots()) || byOwner(lim.By) && rule.Match.ASN != nil
	if shared(lim.By) && !fleet && lim.Newcomers == nil {
		r.warn(by,
			"by: addr counts each client alone; newcomers: {…} sets the limit of each client after others have used it up",
			"%s counts %s together: one of them can use up the limit of all", quote(rule.Name), sharedText(lim.By))
	}
	if !rule.Refund.Empty() && !alsoCounted(func(other *fairshare.Rule) bool {
		return other.Refund.Empty() && countsAll(other.Limit) && byClient(other.Limit.By)
	}) {
		r.warn(firstNode(find(r.rules[i].node, "refund")), "put a wider limit without refund above it",
			"%s has refunds, and no other limit without refunds counts these requests: refunded requests are not limited at all",
			quote(rule.Name))
	}
}

// countsAll reports whether the limit counts every request that its rule matches.
func countsAll(lim *fairshare.Limit) bool {
	return lim.Resource == fairshare.Requests && lim.Distinct == fairshare.EveryRequest
}

// requestedUnasked are paths that browsers, systems and legitimate crawlers request
// although no page links to them, and the entry of a site.
var requestedUnasked = strings.Fields(`/ /robots.txt /favicon.ico /sitemap.xml /sitemap_index.xml /ads.txt /app-ads.txt
	/humans.txt /security.txt /.well-known/security.txt /.well-known/change-password /.well-known/assetlinks.json
	/.well-known/apple-app-site-association /apple-app-site-association /apple-touch-icon.png
	/apple-touch-icon-precomposed.png /apple-touch-icon-120x120.png /browserconfig.xml /crossdomain.xml /manifest.json
	/site.webmanifest /sw.js /feed /rss.xml /index.html /index.php /login /search`)

// warnTrap warns of a trap that a person's browser or an legitimate crawler steps into.
func (r *reader) warnTrap(i int) {
	node := find(r.rules[i].node, "trap")
	rule := r.file.Policy.Rules[i]
	if node == nil || rule.Action != fairshare.Block || rule.Match.Path == nil {
		return
	}
	rule.Match, rule.DryRun = fairshare.Match{Path: rule.Match.Path}, false
	walk := walker(&fairshare.Policy{Rules: []fairshare.Rule{rule}, FoldPaths: r.file.Policy.FoldPaths})
	for _, path := range requestedUnasked {
		req := fairshare.Request{Method: "GET"}
		req.SetTarget(path)
		for range walk(&req) {
			r.warn(firstNode(find(r.rules[i].match, "path"), node), "use a path that nothing but a hidden link names",
				"%s includes %s, which people and legitimate clients request: it would ban them", quote(rule.Name), path)
			return
		}
	}
}

// narrowerThanClient returns the part of a key by which the addresses of one
// client have several keys.
func (r *reader) narrowerThanClient(by []fairshare.KeyPart) (part fairshare.KeyPart, narrow bool) {
	client4, client6 := network.ClientBits(r.file.Policy.IPv4Prefix, r.file.Policy.IPv6Prefix)
	for _, part := range by {
		bits4, bits6 := part.PrefixLengths()
		if part.Kind == fairshare.ByNetwork && (bits4 > client4 || bits6 > client6) {
			return part, true
		}
	}
	return fairshare.KeyPart{}, false
}

// byIdentity reports whether m selects clients by an identity that a client cannot
// forge to get a permission.
func byIdentity(m *fairshare.Match) bool {
	return m.Addr != nil || m.TestsBots() || m.Hostname != nil || m.Label != nil || m.ASN != nil
}

// botOf returns the verifiable bot that one of the values of user_agent names; ""
// if there is none.
func (r *reader) botOf(texts []string) string {
	for _, text := range texts {
		word, _, _ := strings.Cut(strings.ToLower(text), "/") // of Googlebot/2.1
		if r.bots[word].verifiable || r.bots == nil && slices.Contains(crawlers, word) {
			return word
		}
	}
	return ""
}

// chosenByClient reports whether a client can choose the whole key.
func chosenByClient(by []fairshare.KeyPart) bool {
	found := false
	for _, part := range by {
		switch part.Kind {
		case fairshare.ByAddr, fairshare.ByNetwork, fairshare.ByBot, fairshare.ByValue, fairshare.ByASN,
			fairshare.ByVisitor, fairshare.ByFleet, fairshare.ByOperator, fairshare.ByPurpose:
			return false
		case fairshare.ByEveryone: // always the same
		default:
			found = true
		}
	}
	return found
}

// byClient reports whether the key is only the address, network or bot.
func byClient(by []fairshare.KeyPart) bool {
	return len(by) == 0 || len(by) == 1 && slices.Contains(
		[]fairshare.KeyKind{fairshare.ByAddr, fairshare.ByNetwork, fairshare.ByBot, fairshare.ByVisitor,
			fairshare.ByOperator, fairshare.ByPurpose}, by[0].Kind)
}

// shared reports whether unrelated clients have the same key.
func shared(by []fairshare.KeyPart) bool {
	for _, part := range by {
		switch part.Kind {
		case fairshare.ByEveryone, fairshare.ByUserAgent, fairshare.ByHost, fairshare.ByPath, fairshare.ByASN,
			fairshare.ByFleet:
		default:
			return false
		}
	}
	return len(by) > 0
}

func sharedText(by []fairshare.KeyPart) string {
	var parts []string
	for _, part := range by {
		if part.Kind != fairshare.ByEveryone {
			parts = append(parts, part.String())
		}
	}
	if parts == nil {
		return "all clients"
	}
	if len(by) == 1 && by[0].Kind == fairshare.ByFleet {
		return "all clients of a fleet, and people who are counted with it at first,"
	}
	return "all clients with the same " + strings.Join(parts, " and ")
}

// warnRobots warns of strict limits that count requests for /robots.txt. A crawler
// that cannot read it may stop, or fetch pages that the file forbids.
func (r *reader) warnRobots() {
	p := r.file.Policy
	if p.DryRun {
		return
	}
	walk := walker(&p)
	warned := map[int]bool{}
	crawlers := r.sampleBots()
	for _, sample := range r.samples() {
		for _, crawler := range crawlers {
			req := *sample
			req.UserAgent, req.Bot = crawler.agent, crawler.Bot
			req.Method, req.Header = "GET", headers{"Accept": {"*/*"}}
			req.SetTarget("/robots.txt")
			for i := range walk(&req) {
				rule := &p.Rules[i]
				if rule.Limit == nil || rule.DryRun || r.rules[i].builtIn || warned[i] || !tight(rule.Limit) {
					continue
				}
				warned[i] = true
				r.warn(firstNode(r.rules[i].limit),
					"put below a wide limit by addr and above this one: {name: robots, match: {path: /robots.txt}, allow: true}",
					"%s counts requests for /robots.txt: crawlers that cannot read it may stop, or fetch pages that it forbids", quote(rule.Name))
			}
		}
	}
}

// tight reports whether a crawler at a usual rate could exceed the limit.
func tight(lim *fairshare.Limit) bool {
	switch lim.Resource {
	case fairshare.Requests:
		return lim.N < 300 || lim.N < int64(lim.Window/time.Second)
	case fairshare.Concurrent, fairshare.Errors, fairshare.Failures:
		return lim.N < 20
	}
	return false
}

// warnUnlimited warns if no limit and no block matches a client with a cookie and a
// browser's user agent, whatever it requests: then every client can evade all
// limits.
func (r *reader) warnUnlimited() {
	p := r.file.Policy
	p.Rules = slices.Clone(p.Rules)
	for i := range p.Rules { // a sample cannot be made from a regexp, so the rule matches without it
		m := &p.Rules[i].Match
		if slices.ContainsFunc(m.Path, isRegexp) && p.Rules[i].Limit != nil {
			m.Path = nil
		}
		if slices.ContainsFunc(m.Host, isRegexp) && p.Rules[i].Limit != nil {
			m.Host = nil
		}
		if p.Rules[i].Limit != nil {
			m.Query, m.Form = nil, nil
		}
	}
	samples := r.samples()
	if samples == nil {
		return
	}
	walk := walker(&p)
	for _, req := range samples {
		for _, agent := range browsers {
			req.UserAgent, req.Browser = agent, fairshare.BrowserLikely
			for i := range walk(req) {
				lim := p.Rules[i].Limit
				if lim != nil && lim.When == fairshare.Always && lim.Distinct == fairshare.EveryRequest ||
					p.Rules[i].Action == fairshare.Block {
					return
				}
			}
		}
	}
	at := firstNode(find(r.root, "rules"))
	r.warn(at, "put a wide limit first: {requests: 1200, per: 1m, by: addr}",
		"no limit counts a client that has a cookie and the user agent of a browser")
}
