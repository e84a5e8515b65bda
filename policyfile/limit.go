package policyfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/prose"
)

func limitKeys() []key[fairshare.Limit] {
	count := func(res fairshare.Resource) func(*reader, *node, *fairshare.Limit) {
		return func(r *reader, n *node, d *fairshare.Limit) {
			d.Resource = res
			d.N = r.integer(n, res.String(), 1, fairshare.MaxN)
		}
	}
	amount := func(res fairshare.Resource) func(*reader, *node, *fairshare.Limit) {
		// checkLimit reads the amount, which may be a share of per.
		return func(r *reader, n *node, d *fairshare.Limit) { d.Resource = res }
	}
	return []key[fairshare.Limit]{
		{"requests", func(r *reader, n *node, d *fairshare.Limit) {
			d.Resource = fairshare.Requests
			d.N = r.integer(n, "requests", 0, fairshare.MaxN)
		}},
		{"concurrent", count(fairshare.Concurrent)},
		{"bytes", func(r *reader, n *node, d *fairshare.Limit) {
			d.Resource = fairshare.Bytes
			d.N = r.bytes(n, "bytes", 1, fairshare.MaxBytes)
		}},
		{"errors", count(fairshare.Errors)},
		{"failures", count(fairshare.Failures)},
		{"cpu", amount(fairshare.CPU)},
		{"time", amount(fairshare.Time)},
		{"cost", func(r *reader, n *node, d *fairshare.Limit) {
			d.Resource = fairshare.Cost
			d.N = r.integer(n, "cost", 1, fairshare.MaxBytes)
		}},
		{"robots", func(r *reader, n *node, d *fairshare.Limit) { r.crawlDelay(n, d) }},
		{"per", func(r *reader, n *node, d *fairshare.Limit) {
			d.Window = r.duration(n, "per", fairshare.MinWindow, fairshare.MaxWindow)
		}},
		{"by", func(r *reader, n *node, d *fairshare.Limit) { d.By = r.keyParts(n) }},
		{"distinct", readDistinct},
		{"algorithm", readAlgorithm},
		{"count", readCount},
		// checkLimit reads it: its unit depends on the resource
		{"burst", func(r *reader, n *node, d *fairshare.Limit) {}},
		{"when", func(r *reader, n *node, d *fairshare.Limit) { d.When = r.when(n) }},
		{"exact", func(r *reader, n *node, d *fairshare.Limit) { d.Exact = r.boolean(n, "exact") }},
		{"shared", func(r *reader, n *node, d *fairshare.Limit) { d.EachMember = !r.boolean(n, "shared") }},
		{"statuses", func(r *reader, n *node, d *fairshare.Limit) { d.Statuses = r.statuses(n, "statuses", false) }},
		// checkLimit reads it: it has the resource of the limit
		{"newcomers", func(r *reader, n *node, d *fairshare.Limit) {}},
	}
}

// resources are the keys that name the resource of a limit. A limit has one of
// them.
var resources = []string{"requests", "concurrent", "bytes", "errors", "failures", "cpu", "time", "cost", "robots"}

func (r *reader) limit(n *node) *fairshare.Limit {
	d := &fairshare.Limit{}
	example := "{requests: 3, per: 3s}"
	if n.kind == scalarNode {
		if plainDigits(n.text) {
			example = fmt.Sprintf("{requests: %s, per: 1m}", shorten(n.text))
		} else if hint := numberHint(n.text, "requests"); strings.Contains(hint, "per:") {
			example = "{" + hint + "}"
		}
	}
	got := readMap(r, n, "limit", example, limitKeys(), d)
	if got == nil {
		return nil
	}
	given := slices.DeleteFunc(slices.Clone(resources), func(name string) bool { return !got.has(name) })
	slices.SortFunc(given, func(a, b string) int {
		return (got.keys[a].line-got.keys[b].line)<<16 + got.keys[a].column - got.keys[b].column
	})
	if len(given) == 0 {
		if slices.ContainsFunc(n.entries, func(e entry) bool {
			return slices.Contains(resources, synonyms[strings.ToLower(e.key.text)]) ||
				prose.DidYouMean(e.key.text, resources) != ""
		}) {
			return d // already reported as an unknown key
		}
		r.missing(n, "limit: {requests: 3, per: 3s}",
			"limit: a resource is needed: requests, concurrent, bytes, errors, failures, cpu, time, cost or robots")
		return d
	}
	for _, more := range given[1:] {
		r.fault(got.at(more), "make it two rules", "limit: %s and %s: a limit counts one resource", more, given[0])
	}
	if given[0] == "robots" {
		r.checkCrawlDelay(got, d)
		return d
	}
	r.checkLimit(got, given[0], d)
	return d
}

// checkLimit reads the keys that depend on the resource, and reports keys that do
// not belong to it.
func (r *reader) checkLimit(got *reading, resource string, d *fairshare.Limit) {
	switch value := got.values[resource]; {
	case resource == "concurrent":
		if got.has("per") {
			r.fault(got.at("per"), "", "per: concurrent counts requests in progress and has no per")
		}
		if got.has("algorithm") {
			r.fault(got.at("algorithm"), "", "algorithm: concurrent has none")
		}
	case !got.has("per"):
		if value.kind == scalarNode && strings.HasSuffix(value.text, "%") {
			r.missing(value, fmt.Sprintf("%s: %s, per: 15s", resource, shorten(value.text)),
				"%s is a share of a window: per is needed", shorten(value.text))
		} else if value.kind == scalarNode && strings.Contains(value.text, "/") {
			break // already reported
		} else {
			r.missing(got.node, fmt.Sprintf("%s: %s, per: 1m", resource, shorten(value.text)),
				"limit: per is needed: the window that %s counted in", resourceWithVerb(resource))
		}
	}
	if d.Resource == fairshare.CPU || d.Resource == fairshare.Time {
		if n := got.values[d.Resource.String()]; n != nil {
			d.N = r.micros(n, d.Resource.String(), d)
		}
	}
	if n := got.values["burst"]; n != nil {
		switch resource {
		case "bytes":
			d.Burst = r.bytes(n, "burst", 1, fairshare.MaxBytes)
		case "cost":
			d.Burst = r.integer(n, "burst", 1, fairshare.MaxBytes)
		case "cpu", "time":
			d.Burst = r.micros(n, "burst", d)
		default:
			d.Burst = r.integer(n, "burst", 1, fairshare.MaxN)
		}
		if d.Algorithm != fairshare.GCRA {
			r.fault(got.at("burst"), "algorithm: gcra", "burst belongs to algorithm: gcra")
		}
	}
	if got.has("shared") && resource != "concurrent" {
		r.fault(got.at("shared"), "", "shared belongs to concurrent")
		d.EachMember = false
	}
	if got.has("statuses") && resource != "errors" {
		r.fault(got.at("statuses"), "", "statuses belongs to errors")
	}
	if got.has("count") && resource != "requests" {
		r.fault(got.at("count"), "", "count belongs to requests")
	} else if got.has("count") && d.Algorithm == fairshare.Quiet {
		r.fault(got.at("count"), "algorithm: window or gcra", "count does not go with algorithm: quiet")
	}
	if n := got.values["newcomers"]; n != nil {
		r.newcomers(got.at("newcomers"), n, resource, d)
	}
	switch {
	case d.Algorithm == fairshare.Quiet && resource != "requests":
		r.fault(got.values["algorithm"], "", "algorithm: quiet counts requests only")
	case d.Algorithm != fairshare.Window && resource == "requests" && got.values[resource].text == "0":
		r.fault(got.at("algorithm"), "", "requests: 0 lets no request pass, and takes no algorithm")
	}
	if at := got.at("distinct"); got.has("distinct") {
		switch {
		case resource != "requests":
			r.fault(at, "", "distinct belongs to requests")
		case d.Algorithm == fairshare.Quiet:
			r.fault(at, "", "distinct is not possible with algorithm: quiet")
		case got.has("per") && d.Window > 0 && d.Window < fairshare.MinDistinctWindow:
			r.fault(got.values["per"], "", "per: at least 1s is needed with distinct, not %s", FormatDuration(d.Window))
		}
	}
}

// newcomers reads the limit of each newcomer while the shared limit is exceeded.
func (r *reader) newcomers(key, n *node, resource string, d *fairshare.Limit) {
	if n.kind == scalarNode && n.text == "none" {
		d.Newcomers = &fairshare.Limit{Resource: d.Resource, Count: d.Count}
		return
	}
	for _, name := range []string{"by", "statuses", "distinct", "newcomers", "when", "count"} {
		if inner := find(n, name); inner != nil {
			r.fault(inner, "",
				"newcomers: %s does not belong here: newcomers are counted by address, for the same requests",
				name)
			return
		}
	}
	if n.kind == mapNode && find(n, resource) == nil {
		r.missing(n, fmt.Sprintf("newcomers: {%s: 10, per: 1m}", resource),
			"newcomers: %s is needed, as in the limit", resource)
		return
	}
	if !d.Shared() {
		r.fault(key, "by: network, user_agent, everyone …",
			"newcomers belongs to a limit whose key unrelated clients share")
	}
	if d.Newcomers = r.limit(n); d.Newcomers != nil {
		d.Newcomers.Statuses, d.Newcomers.Count = d.Statuses, d.Count
		d.Newcomers.Distinct = d.Distinct
		switch n := d.Newcomers; {
		case d.Distinct == fairshare.EveryRequest || n.N == 0:
		case n.Algorithm == fairshare.Quiet:
			r.fault(key, "", "newcomers: distinct is not possible with algorithm: quiet")
		case n.Window > 0 && n.Window < fairshare.MinDistinctWindow:
			r.fault(key, "", "newcomers: per: at least 1s is needed with distinct, not %s", FormatDuration(n.Window))
		}
	}
}

// when reads in which state of the upstream a limit holds.
func (r *reader) when(n *node) fairshare.When {
	if r.choice(n, "when", []string{"busy", "always"}, map[string]string{
		"overloaded": "busy", "loaded": "busy", "waiting": "busy", "full": "busy",
		"true": "always", "on": "always", "any": "always", "idle": "always",
	}) == "busy" {
		return fairshare.Busy
	}
	return fairshare.Always
}

// checkWhen reports limits that hold only while the upstream is busy in a file that
// says that no request waits for the upstream: it would never be busy. The rules of
// the built-in policy are part of many files, and may stay without effect.
func (r *reader) checkWhen() {
	for i := range r.file.Policy.Rules {
		rule := &r.file.Policy.Rules[i]
		if rule.Limit == nil || rule.Limit.When != fairshare.Busy || r.rules[i].builtIn {
			continue
		}
		r.file.busyRules = append(r.file.busyRules, rule.Name)
		if r.file.NoShare {
			r.fault(firstNode(find(r.rules[i].limit, "when"), r.rules[i].node), "share: auto",
				"when: busy: the limit never holds: with share: none nobody notices when the upstream is busy")
		}
	}
}

func readDistinct(r *reader, n *node, d *fairshare.Limit) {
	switch r.choice(n, "distinct", []string{"paths", "queries"}, map[string]string{
		"true": "paths", "yes": "paths", "page": "paths", "pages": "paths", "url": "paths", "urls": "paths",
		"uri": "paths",
	}) {
	case "paths":
		d.Distinct = fairshare.DistinctPaths
	case "queries":
		d.Distinct = fairshare.DistinctQueries
	}
}

func resourceWithVerb(resource string) string {
	if resource == "cpu" || resource == "time" || resource == "cost" {
		return resource + " is"
	}
	return resource + " are"
}

func readAlgorithm(r *reader, n *node, d *fairshare.Limit) {
	known := []string{fairshare.Window.String(), fairshare.GCRA.String(), fairshare.Quiet.String()}
	if n.kind == scalarNode {
		if i := slices.Index(known, n.text); i >= 0 {
			d.Algorithm = fairshare.Algorithm(i)
			return
		}
	}
	hint := prose.DidYouMean(n.text, known)
	switch strings.ToLower(n.text) {
	case "token_bucket", "leaky_bucket", "token-bucket", "leaky-bucket":
		hint = `did you mean "gcra"?`
	case "sliding_window", "sliding-window", "sliding", "fixed_window":
		hint = `did you mean "window"?`
	}
	r.fault(n, hint, "algorithm: one of %s is needed, not %s", strings.Join(known, ", "), n.describe())
}

// keyKinds are the kinds that by can name, in the order of messages.
var keyKinds = []fairshare.KeyKind{
	fairshare.ByAddr, fairshare.ByNetwork, fairshare.ByBot, fairshare.ByUserAgent, fairshare.ByHost, fairshare.ByPath,
	fairshare.ByEveryone, fairshare.ByASN, fairshare.ByVisitor, fairshare.ByFleet,
	fairshare.ByOperator, fairshare.ByPurpose,
}

// maxParts is the largest number of parts of a key.
const maxParts = 8

func (r *reader) keyParts(n *node) []fairshare.KeyPart {
	var parts []fairshare.KeyPart
	for i, item := range r.list(n, "by") {
		if i == maxParts {
			r.fault(item, "", "by: more than %d parts", maxParts)
			break
		}
		s, ok := r.text(item, "by")
		if !ok {
			parts = append(parts, fairshare.KeyPart{})
			continue
		}
		part := r.keyPart(item, s)
		if part.Kind != 0 && slices.Contains(parts, part) {
			r.fault(item, "", "by: %s is listed twice", s)
		}
		parts = append(parts, part)
	}
	return parts
}

func (r *reader) keyPart(n *node, s string) fairshare.KeyPart {
	var known []string
	for _, kind := range keyKinds {
		part := fairshare.KeyPart{Kind: kind}
		if s == part.String() {
			return part
		}
		known = append(known, part.String())
	}
	if lengths, ok := strings.CutPrefix(s, "network/"); ok {
		return r.networkPart(n, s, lengths)
	}
	for prefix, kind := range map[string]fairshare.KeyKind{"cookie": fairshare.ByCookie, "header": fairshare.ByHeader,
		"value": fairshare.ByValue, "form": fairshare.ByForm} {
		name, ok := strings.CutPrefix(s, prefix+":")
		if s != prefix && !ok {
			continue
		}
		noun := prefix
		if prefix == "form" {
			noun = "field of a form"
		}
		name = strings.TrimSpace(name)
		valid := isToken(name) ||
			kind == fairshare.ByForm && name != "" && !strings.ContainsFunc(name, unicode.IsControl)
		if !valid || s == prefix {
			r.fault(n, "", "by: %s:NAME needs the name of a %s", prefix, noun)
			return fairshare.KeyPart{}
		}
		return fairshare.KeyPart{Kind: kind, Name: name}
	}
	hint := prose.DidYouMean(s, append(known, "cookie:NAME", "header:NAME", "form:NAME"))
	if length, ok := strings.CutPrefix(s, "/"); ok && plainDigits(length) {
		hint = "by: network" + shorten(s)
	}
	switch strings.ToLower(s) {
	case "owner", "as", "asnum", "provider", "isp", "organization":
		hint = `did you mean "asn"?`
	case "subnet", "prefix", "cidr", "net":
		hint = `did you mean "network"? network/16 is a wider one`
	case "ip", "client", "remote_addr", "source":
		hint = `did you mean "addr"?`
	case "all", "global", "everything", "total":
		hint = `did you mean "everyone"?`
	case "url", "uri":
		hint = `did you mean "path"?`
	case "session":
		hint = "use by: cookie:NAME with the name of the session cookie"
	}
	r.fault(n, hint, "by: one of %s, cookie:NAME, header:NAME is needed, not %s", strings.Join(known, ", "), quote(s))
	return fairshare.KeyPart{}
}

// networkPart reads the prefix lengths of a network: "16" or "16/32". A single
// length is for IPv4, and the length for IPv6 is twice that.
func (r *reader) networkPart(n *node, s, lengths string) fairshare.KeyPart {
	text4, text6, both := strings.Cut(lengths, "/")
	bits4, err4 := strconv.Atoi(text4)
	bits6, err6 := 2*bits4, error(nil)
	if both {
		bits6, err6 = strconv.Atoi(text6)
	}
	switch {
	case err4 != nil || err6 != nil || text4 != strconv.Itoa(bits4) ||
		both && text6 != strconv.Itoa(bits6) || bits4 < 0 || bits6 < 0:
		r.fault(n, "by: network/16 is an IPv4 /16 or an IPv6 /32, and network/16/40 an IPv4 /16 or an IPv6 /40",
			"by: %s has no prefix lengths", quote(s))
	case bits4 == 0 && bits6 == 0:
		r.fault(n, "by: everyone", "by: %s: all clients would be one network", quote(s))
	case bits4 < 1 || bits4 > 32:
		hint := "by: network/24/48 is an IPv4 /24 or an IPv6 /48"
		if !both && bits4 > 32 && bits4 <= 128 {
			hint = fmt.Sprintf("by: network/24/%d, if that is the length for IPv6", bits4)
		}
		r.fault(n, hint, "by: %s: the prefix length for IPv4 is 1 to 32", quote(s))
	case bits6 < 1 || bits6 > 128:
		r.fault(n, "", "by: %s: the prefix length for IPv6 is 1 to 128", quote(s))
	case bits4 == network.Bits4 && bits6 == network.Bits6:
		return fairshare.KeyPart{Kind: fairshare.ByNetwork}
	default:
		return fairshare.KeyPart{Kind: fairshare.ByNetwork, Bits4: uint8(bits4), Bits6: uint8(bits6)}
	}
	return fairshare.KeyPart{}
}

// statuses reads status codes and classes. In a refund, 3xx means redirects only:
// 301, 303, 307 and 308.
func (r *reader) statuses(n *node, what string, refund bool) fairshare.StatusSet {
	var set fairshare.StatusSet
	for _, item := range r.list(n, what) {
		s, ok := r.text(item, what)
		if !ok {
			continue
		}
		if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok && len(class) == 1 && class[0] >= '1' &&
			class[0] <= '5' {
			first := int(class[0]-'0') * 100
			if refund && first == 300 {
				set.Add(301, 303)
				set.Add(307, 308)
			} else {
				set.Add(first, first+99)
			}
			continue
		}
		code, err := strconv.Atoi(s)
		if err != nil || len(s) != 3 || code < 100 || code > 599 {
			hint := ""
			if first, last, found := strings.Cut(s, "-"); found && len(first) == 3 && len(last) == 3 {
				hint = fmt.Sprintf("write a class as %cxx", s[0])
			}
			r.fault(item, hint, "%s: a status from 100 to 599 or a class such as 4xx is needed, not %s", what, quote(s))
			continue
		}
		set.Add(code, code)
	}
	return set
}
