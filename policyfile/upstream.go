package policyfile

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// UpstreamCPU sets how the upstream's CPU time is measured.
type UpstreamCPU struct {
	From       string        // "server-timing", "process" or "cgroup"; "" means that it is not measured
	Metric     string        // server-timing: name of the metric in the header Server-Timing
	KeepHeader bool          // server-timing: the header reaches the client
	PIDFile    string        // process: see File.ResolvePath; "" means the process that listens at the upstream's port
	Cgroup     string        // cgroup: a path below /sys/fs/cgroup that begins with "/", or a systemd service
	Every      time.Duration // process, cgroup: interval between samples; 0 means the default
	Cores      float64       // of the upstream; 0 means the number of this machine
}

// UpstreamCost sets the header in which the upstream reports the cost of a request.
type UpstreamCost struct {
	Header string // "" means that it reports no costs
	Max    int64  // largest cost of one request, in units; higher costs count as Max
}

// Defaults and bounds of the costs that an upstream reports.
const (
	DefaultMetric   = "cpu"
	DefaultMaxCost  = 1_000_000
	DefaultSampling = 50 * time.Millisecond

	defaultTimeout = 60 * time.Second // of serve

	minSampling = 10 * time.Millisecond
	maxSampling = time.Second
	minCores    = 0.1
	maxCores    = 4096
)

func upstreamKeys() []key[File] {
	return []key[File]{
		{"url", func(r *reader, n *node, f *File) { f.Upstream = r.url(n, "url") }},
		{"cancels", func(r *reader, n *node, f *File) { f.Cancels = r.boolean(n, "cancels") }},
		{"timeout", func(r *reader, n *node, f *File) { f.Timeout = r.duration(n, "timeout", time.Second, time.Hour) }},
		{"cpu", readUpstreamCPU},
		{"cost", readUpstreamCost},
	}
}

func readUpstream(r *reader, n *node, f *File) {
	if n.kind != mapNode {
		f.Upstream = r.url(n, "upstream")
		return
	}
	if got := readMap(r, n, "upstream", "", upstreamKeys(), f); got != nil && !got.has("url") && !got.has("cpu") &&
		!got.has("cost") {
		r.missing(n, "upstream: {url: http://127.0.0.1:3000}", "upstream: a url is needed")
	}
}

func upstreamCPUKeys() []key[UpstreamCPU] {
	return []key[UpstreamCPU]{
		{"from", func(r *reader, n *node, c *UpstreamCPU) { c.From = r.cpuSource(n) }},
		{"metric", func(r *reader, n *node, c *UpstreamCPU) {
			if c.Metric = r.line(n, "metric"); c.Metric != "" && !isToken(c.Metric) {
				hint := ""
				if name, _, found := strings.Cut(c.Metric, ";"); found && isToken(name) {
					hint = "metric: " + name
				}
				r.fault(n, hint, "metric: %s is not the name of a metric in Server-Timing", quote(c.Metric))
			}
		}},
		{"keep", func(r *reader, n *node, c *UpstreamCPU) { c.KeepHeader = r.boolean(n, "keep") }},
		{"pid_file", func(r *reader, n *node, c *UpstreamCPU) { c.PIDFile = r.pidFile(n) }},
		{"service", func(r *reader, n *node, c *UpstreamCPU) { c.Cgroup = r.service(n) }},
		{"cgroup", func(r *reader, n *node, c *UpstreamCPU) { c.Cgroup = r.cgroup(n) }},
		{"every", func(r *reader, n *node, c *UpstreamCPU) {
			c.Every = r.duration(n, "every", minSampling, maxSampling)
		}},
		{"cores", func(r *reader, n *node, c *UpstreamCPU) { c.Cores = r.number(n, "cores", minCores, maxCores) }},
	}
}

// cpuSources are the values of from, each with the keys that belong to it.
var cpuSources = []struct {
	name string
	keys []string
}{
	{"server-timing", []string{"metric", "keep"}},
	{"process", []string{"pid_file", "every"}},
	{"cgroup", []string{"service", "cgroup", "every"}},
}

func readUpstreamCPU(r *reader, n *node, f *File) {
	example := "{from: server-timing}"
	if n.kind == scalarNode && r.guessSource(n.text) != "" {
		example = "{from: " + r.guessSource(n.text) + "}"
	} else if n.kind == scalarNode && plainDigits(n.text) {
		example = "{cores: " + shorten(n.text) + "}"
	}
	c := &f.UpstreamCPU
	got := readMap(r, n, "cpu", example, upstreamCPUKeys(), c)
	if got == nil {
		return
	}
	if len(n.entries) == 0 {
		r.fault(n, "cpu: "+example, "cpu: the map is empty")
	}
	for _, k := range []string{"metric", "keep", "pid_file", "service", "cgroup", "every"} {
		var of []string
		for _, source := range cpuSources {
			if slices.Contains(source.keys, k) {
				of = append(of, source.name)
			}
		}
		if got.has(k) && !slices.Contains(of, c.From) && (c.From != "" || !got.has("from")) {
			r.fault(got.at(k), "from: "+of[0], "%s belongs to from: %s", k, strings.Join(of, " and from: "))
		}
	}
	switch {
	case got.has("service") && got.has("cgroup"):
		r.fault(got.at("cgroup"), "", "cgroup and service: use only one of them")
	case c.From == "cgroup" && !got.has("service") && !got.has("cgroup"):
		r.missing(n, "cpu: {from: cgroup, service: php8.2-fpm}",
			"cpu: from: cgroup needs a service, or the path of a cgroup")
	}
	if c.From == "server-timing" && c.Metric == "" {
		c.Metric = DefaultMetric
	}
}

// cpuSource reads the source of CPU times.
func (r *reader) cpuSource(n *node) string {
	var known []string
	for _, source := range cpuSources {
		known = append(known, source.name)
		if n.kind == scalarNode && n.text == source.name {
			return source.name
		}
	}
	hint := ""
	if n.kind == scalarNode {
		switch meant := r.guessSource(n.text); {
		case meant != "":
			hint = fmt.Sprintf("did you mean %q?", meant)
		case slices.Contains([]string{"none", "off", "no", "false", "time"}, strings.ToLower(n.text)):
			hint = "remove the key: the time of the upstream counts by default"
		case slices.Contains([]string{"middleware", "thread", "handler"}, strings.ToLower(n.text)):
			hint = "remove the key: a Go program turns on the measurement of its handlers"
		default:
			hint = prose.DidYouMean(n.text, known)
		}
	}
	r.fault(n, hint, "from: one of %s is needed, not %s", strings.Join(known, ", "), n.describe())
	return ""
}

// guessSource returns the source of CPU times that a similar word means; "" if
// there is none.
func (r *reader) guessSource(s string) string {
	switch strings.ReplaceAll(strings.ToLower(s), "_", "-") {
	case "server-timing", "servertiming", "header", "timing", "upstream":
		return "server-timing"
	case "process", "processes", "pid", "pid-file", "pidfile", "proc", "port", "children":
		return "process"
	case "cgroup", "cgroups", "cgroup2", "systemd", "service", "unit", "container", "docker":
		return "cgroup"
	}
	return ""
}

// pidFile reads the name of a file with a process ID.
func (r *reader) pidFile(n *node) string {
	if n.kind == scalarNode && plainDigits(n.text) {
		r.fault(n, "pid_file: /run/php-fpm.pid; without it, the process that listens at the upstream's port",
			"pid_file: the name of a file is needed, not the number of a process, which changes with each start")
		return ""
	}
	return r.fileName(n, "pid_file", "")
}

// service reads the name of a systemd service.
func (r *reader) service(n *node) string {
	s := r.line(n, "service")
	switch {
	case s == "":
	case strings.Contains(s, "/"):
		hint := "service: php8.2-fpm"
		if !strings.Contains(s, "..") {
			hint = "cgroup: /" + shorten(strings.TrimPrefix(s, "/"))
		}
		r.fault(n, hint, "service: the name of a systemd service is needed, not %s", quote(s))
	case len(s) > 255 ||
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.\\@-") != "" ||
		strings.Trim(s, ".") == "":
		r.fault(n, "service: php8.2-fpm", "service: %s is not the name of a systemd service", quote(s))
	default:
		return s
	}
	return ""
}

// cgroup reads the path of a control group.
func (r *reader) cgroup(n *node) string {
	s := r.line(n, "cgroup")
	path := strings.TrimPrefix(s, "/sys/fs/cgroup")
	switch {
	case s == "":
	case slices.Contains(strings.Split(path, "/"), ".."), len(path) > 4096:
		r.fault(n, "", "cgroup: %s is not a path below /sys/fs/cgroup", quote(s))
	case !strings.HasPrefix(s, "/") && !strings.Contains(s, "/"):
		r.fault(n, "service: "+shorten(s),
			"cgroup: a path below /sys/fs/cgroup such as /system.slice/x.service is needed, not %s", quote(s))
	case !strings.HasPrefix(path, "/"):
		r.fault(n, "cgroup: /"+shorten(s),
			"cgroup: a path below /sys/fs/cgroup such as /system.slice/x.service is needed, not %s", quote(s))
	case strings.Trim(path, "/") == "":
		r.fault(n, "cgroup: /system.slice/x.service", "cgroup: %s is the whole machine", quote(s))
	default:
		return path
	}
	return ""
}

func upstreamCostKeys() []key[UpstreamCost] {
	return []key[UpstreamCost]{
		{"header", func(r *reader, n *node, c *UpstreamCost) { c.Header = r.costHeader(n) }},
		{"max", func(r *reader, n *node, c *UpstreamCost) { c.Max = r.integer(n, "max", 1, fairshare.MaxBytes) }},
	}
}

func readUpstreamCost(r *reader, n *node, f *File) {
	example := "{header: X-Cost}"
	if n.kind == scalarNode && isToken(n.text) && !plainDigits(n.text) {
		example = "{header: " + shorten(n.text) + "}"
	}
	f.UpstreamCost = UpstreamCost{Max: DefaultMaxCost}
	if got := readMap(r, n, "cost", example, upstreamCostKeys(), &f.UpstreamCost); got != nil && !got.has("header") {
		r.missing(n, "cost: "+example, "cost: a header is needed: the one in which the upstream reports the cost")
	}
}

// reservedHeaders have a standard meaning, so they cannot carry costs: the header of
// costs is removed from requests and answers.
var reservedHeaders = strings.Fields(
	`connection proxy-connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade
	http2-settings expect host content-length content-type content-encoding content-range content-location content-disposition content-language
	content-security-policy content-security-policy-report-only cookie set-cookie authorization www-authenticate server-timing date location
	cache-control expires etag last-modified vary age pragma allow accept accept-encoding accept-language accept-ranges range if-match
	if-none-match if-modified-since if-unmodified-since if-range user-agent referer origin link refresh retry-after ratelimit ratelimit-policy
	strict-transport-security alt-svc forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-real-ip x-requested-with
	x-frame-options x-content-type-options via server warning`)

// costHeader reads the name of the header that carries costs.
func (r *reader) costHeader(n *node) string {
	s := r.line(n, "header")
	word := strings.ToLower(s)
	switch {
	case s == "":
	case !isToken(s):
		hint := ""
		if name, _, found := strings.Cut(s, ":"); found && isToken(name) {
			hint = "header: " + name
		}
		r.fault(n, hint, "header: %s is not a header name", quote(s))
	case word == "server-timing":
		r.fault(n, "cpu: {from: server-timing}", "header: %s reports CPU time, not a cost", quote(s))
	case slices.Contains(reservedHeaders, word) || strings.HasPrefix(word, "sec-") ||
		strings.HasPrefix(word, "access-control-") || strings.HasPrefix(word, "fairshare-"):
		r.fault(n, "header: X-Cost",
			"header: %s has another meaning, and the header of the cost is removed in both directions",
			quote(s))
	default:
		if r.options.CostHeader == nil {
			return s
		}
		err := r.options.CostHeader(s)
		if err == nil {
			return s
		}
		r.fault(n, "header: X-Cost", "header: %v", err)
	}
	return ""
}

// checkCostHeader reports a header that would carry both the cost and the client's
// address.
func (r *reader) checkCostHeader() {
	client := r.file.Header
	if cost := r.file.UpstreamCost.Header; cost != "" && strings.EqualFold(cost, client) {
		r.fault(find(find(find(r.root, "upstream"), "cost"), "header"), "header: X-Cost",
			"header: %s contains the address of the client", quote(cost))
	}
}

// url reads the address of an upstream.
func (r *reader) url(n *node, what string) string {
	s := r.line(n, what)
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "h2c") && u.Hostname() != "" &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil {
		return s
	}
	hint := ""
	switch {
	case !strings.Contains(s, "://"):
		hint = what + ": http://" + s
	case err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https"):
		hint = fmt.Sprintf("%s: %s://%s", what, u.Scheme, u.Host)
	case err == nil && (u.Scheme == "unix" || u.Scheme == "fastcgi" || u.Scheme == "tcp"):
		hint = "the upstream must speak HTTP at a TCP address"
	}
	r.fault(n, hint, "%s: a URL with http, https or h2c, a host and a port is needed, not %s", what, quote(s))
	return ""
}

// hasRemoteUpstream reports whether the upstream seems to be on another machine.
func (r *reader) hasRemoteUpstream() bool { return isRemoteUpstream(r.file.Upstream) }

// hasRemoteUpstream reports whether an upstream, or that of a site, seems to be on another machine.
func (f *File) hasRemoteUpstream() bool {
	return isRemoteUpstream(f.Upstream) || slices.ContainsFunc(f.Sites, func(s Site) bool {
		return slices.ContainsFunc(s.Upstreams, isRemoteUpstream)
	})
}

func isRemoteUpstream(upstream string) bool {
	u, err := url.Parse(upstream)
	return err == nil && u.Hostname() != "" && !isLocalHost(u.Hostname())
}

// warnUpstream warns when processes of this machine would be measured for an
// upstream on another machine.
func (r *reader) warnUpstream() {
	from := r.file.UpstreamCPU.From
	if (from == "process" || from == "cgroup") && r.hasRemoteUpstream() {
		r.warn(find(find(find(r.root, "upstream"), "cpu"), "from"),
			"from: server-timing, if the site reports its CPU time",
			"from: %s measures processes of this machine, and the upstream seems to be on another", from)
	}
}

// warnCosts warns of a limit whose resource is not measured, so that it counts
// something else.
func (r *reader) warnCosts(i int) {
	lim := r.file.Policy.Rules[i].Limit
	name, at := quote(r.file.Policy.Rules[i].Name), firstNode(r.rules[i].limit)
	switch lim.Resource {
	case fairshare.CPU:
		if r.file.UpstreamCPU.From == "" {
			r.warn(at, "upstream: {cpu: {from: …}} measures it: server-timing, process or cgroup",
				"%s counts the time of the upstream, at most one core for each request: CPU time is not measured", name)
		}
		if r.file.percents[lim] != "" && r.file.UpstreamCPU.Cores == 0 && r.hasRemoteUpstream() {
			r.warn(at, "set upstream: {cpu: {cores: 4}}",
				"%s is a share of the %s of this machine, and the upstream seems to be on another", name,
				coresText(r.cores()))
		}
	case fairshare.Cost:
		if r.file.UpstreamCost.Header == "" {
			r.warn(at, "upstream: {cost: {header: X-Cost}}, which the site sets",
				"%s counts a cost that the upstream does not report: each request costs 1", name)
		}
	}
}
