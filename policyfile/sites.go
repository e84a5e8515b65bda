package policyfile

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// A Site says where the requests for some hosts go.
type Site struct {
	fairshare.Site
	Upstreams []string      // URLs, all with the same scheme; at least one
	Timeout   time.Duration // until the upstream starts its answer; 0 means File.Timeout
	Health    *Health       // nil means the defaults, if there are several upstreams
	SlowStart time.Duration // how long a recovered upstream gets fewer requests; 0 means DefaultSlowStart
	Policy    string        // the file of its rules; "" means that they are in the main file
	DryRun    bool          // its rules refuse nothing
	Cert, Key string        // files of a certificate for its hosts: see [File.ResolvePath]; "" means File.TLS
}

// Health says when an upstream of a site is up.
type Health struct {
	Path    string        // of the request; "" means that the upstream only has to accept a connection
	Every   time.Duration // 0 means DefaultHealthEvery
	Timeout time.Duration // 0 means DefaultHealthTimeout
	Fails   int           // failed checks or connections in a row after which it is down; 0 means 3
	Passes  int           // checks in a row after which it is up again; 0 means 2
}

// Defaults and bounds of sites.
const (
	DefaultHealthEvery   = 5 * time.Second
	DefaultHealthTimeout = 2 * time.Second
	DefaultSlowStart     = 10 * time.Second

	maxSites      = 1000
	maxSiteName   = 100
	maxUpstreams  = 100 // of one site
	maxHealthRuns = 100 // fails and passes
)

// siteDraft is a site that is being read.
type siteDraft struct {
	Site
	hosts []*node
	at    *node // the key
}

func siteKeys() []key[siteDraft] {
	return []key[siteDraft]{
		{"hosts", func(r *reader, n *node, d *siteDraft) { d.hosts = r.list(n, "hosts") }},
		{"upstream", func(r *reader, n *node, d *siteDraft) { r.siteUpstream(n, d) }},
		{"policy", func(r *reader, n *node, d *siteDraft) { d.Policy = r.fileName(n, "policy", "") }},
		{"rules", func(r *reader, n *node, d *siteDraft) {}}, // site reads them: they need its name
		{"dry_run", func(r *reader, n *node, d *siteDraft) { d.DryRun = r.boolean(n, "dry_run") }},
		{"tls", readSiteTLS},
	}
}

// readSiteTLS reads the certificate of a site.
func readSiteTLS(r *reader, n *node, d *siteDraft) {
	got := readMap(r, n, "tls of a site", "{cert: shop.pem, key: shop.key}", []key[siteDraft]{
		{"cert", func(r *reader, n *node, d *siteDraft) { d.Cert = r.line(n, "cert") }},
		{"key", func(r *reader, n *node, d *siteDraft) { d.Key = r.line(n, "key") }},
	}, d)
	if got != nil && (d.Cert == "" || d.Key == "") {
		r.missing(n, "", "tls: both cert and key are needed")
	}
	if r.file.TLS == nil { // the other sites have no certificate
		r.file.TLS = &TLS{}
	}
}

func siteUpstreamKeys() []key[siteDraft] {
	return []key[siteDraft]{
		{"url", func(r *reader, n *node, d *siteDraft) { r.siteURLs(n, "url", d) }},
		{"timeout", func(r *reader, n *node, d *siteDraft) {
			d.Timeout = r.duration(n, "timeout", time.Second, time.Hour)
		}},
		{"health", func(r *reader, n *node, d *siteDraft) {
			d.Health = &Health{}
			readMap(r, n, "health", "{path: /health}", healthKeys(), d.Health)
		}},
		{"slow_start", func(r *reader, n *node, d *siteDraft) {
			d.SlowStart = r.duration(n, "slow_start", time.Millisecond, time.Hour)
		}},
	}
}

func healthKeys() []key[Health] {
	return []key[Health]{
		{"path", func(r *reader, n *node, h *Health) {
			h.Path = r.line(n, "path")
			if u, err := url.ParseRequestURI(h.Path); h.Path != "" &&
				(err != nil || u.Host != "" || !strings.HasPrefix(h.Path, "/") || strings.ContainsAny(h.Path, "# ")) {
				r.fault(n, "path: /health", "path: %s is not a path", quote(h.Path))
			}
		}},
		{"every", func(r *reader, n *node, h *Health) { h.Every = r.duration(n, "every", time.Second, time.Hour) }},
		{"timeout", func(r *reader, n *node, h *Health) {
			h.Timeout = r.duration(n, "timeout", 100*time.Millisecond, time.Minute)
		}},
		{"fails", func(r *reader, n *node, h *Health) { h.Fails = int(r.integer(n, "fails", 1, maxHealthRuns)) }},
		{"passes", func(r *reader, n *node, h *Health) { h.Passes = int(r.integer(n, "passes", 1, maxHealthRuns)) }},
	}
}

const sitesExample = "{shop.example.org: http://127.0.0.1:3000}"

// readSites reads the sites, by name. The other keys were read before.
func readSites(r *reader, n *node, f *File) {
	if n.kind != mapNode || len(n.entries) == 0 {
		r.fault(n, "sites: "+sitesExample, "sites: a map from names to sites is needed, not %s", n.describe())
		return
	}
	if len(n.entries) > maxSites {
		r.fault(n, "", "sites: more than %d", maxSites)
		return
	}
	names, hosts := map[string]*node{}, map[string]*node{}
	for _, e := range n.entries {
		name := e.key.text
		if first := names[name]; first != nil {
			r.fault(e.key, "", "the site %s is in this map twice, first in line %d", quote(name), r.lineOf(first))
			continue
		}
		names[name] = e.key
		if d := r.site(name, e); d != nil {
			r.siteHosts(d, hosts)
			f.Sites = append(f.Sites, d.Site)
		}
	}
}

// site reads one site.
func (r *reader) site(name string, e entry) *siteDraft {
	d := &siteDraft{at: e.key}
	d.Name = name
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*"
	if name == "" || len(name) > maxSiteName || strings.Trim(name, letters) != "" {
		r.fault(e.key, "sites: {shop: {hosts: [shop.example.org], upstream: http://127.0.0.1:3000}}",
			"sites: the name of a site has letters, digits and . _ - only, at most %d, not %s", maxSiteName, quote(name))
		return nil
	}
	if e.value.kind != mapNode {
		r.siteURLs(e.value, "upstream", d)
		return d
	}
	got := readMap(r, e.value, "site "+name, "", siteKeys(), d)
	if got == nil {
		return nil
	}
	if !got.has("upstream") {
		r.missing(e.key, "upstream: http://127.0.0.1:3000", "site %s: an upstream is needed", name)
	}
	switch {
	case got.has("rules") && got.has("policy"):
		r.fault(got.at("policy"), "", "site %s: rules and policy: use only one of them", name)
	case got.has("rules"):
		r.siteRules(d, got.values["rules"])
	case d.Policy != "":
		r.sitePolicy(d, got.values["policy"])
	}
	if d.DryRun && !d.OwnRules {
		r.fault(got.at("dry_run"), "rules: [{use: default}] for this site",
			"site %s: dry_run: its rules hold for other sites too", name)
	}
	for i := range r.file.Policy.Rules {
		if rule := &r.file.Policy.Rules[i]; d.DryRun && rule.Site == name && rule.Action != fairshare.Allow {
			rule.DryRun = true
		}
	}
	return d
}

// siteHosts reads the hosts of a site; without the key its name is its host.
func (r *reader) siteHosts(d *siteDraft, known map[string]*node) {
	nodes := d.hosts
	if nodes == nil {
		named := *d.at
		named.kind = scalarNode
		nodes = []*node{&named}
	}
	for _, n := range nodes {
		host, ok := "*", true
		if n.kind != scalarNode || n.text != "*" {
			host, ok = r.host(n)
		}
		if !ok {
			continue
		}
		if first := known[host]; first != nil {
			r.fault(n, "", "hosts: %s is a host of a site in line %d already", quote(host), r.lineOf(first))
			continue
		}
		known[host] = n
		d.Hosts = append(d.Hosts, host)
	}
}

// siteUpstream reads where the requests of a site go.
func (r *reader) siteUpstream(n *node, d *siteDraft) {
	if n.kind != mapNode {
		r.siteURLs(n, "upstream", d)
		return
	}
	got := readMap(r, n, "upstream of a site", "", siteUpstreamKeys(), d)
	if got == nil {
		return
	}
	for _, k := range []string{"cpu", "cost", "cancels"} {
		if find(n, k) != nil {
			return // an unknown key, which is reported
		}
	}
	if !got.has("url") {
		r.missing(n, "upstream: {url: [http://10.0.0.1:3000, http://10.0.0.2:3000]}", "upstream: a url is needed")
	}
	if got.has("slow_start") && len(d.Upstreams) < 2 {
		r.fault(got.at("slow_start"), "", "slow_start: with one upstream no other can take its requests")
	}
}

// siteURLs reads one or several URLs of upstreams.
func (r *reader) siteURLs(n *node, what string, d *siteDraft) {
	items := r.list(n, what)
	if len(items) > maxUpstreams {
		r.fault(n, "", "%s: more than %d upstreams", what, maxUpstreams)
		return
	}
	for _, item := range items {
		s := strings.TrimSuffix(r.url(item, what), "/")
		switch {
		case s == "":
		case slices.Contains(d.Upstreams, s):
			r.fault(item, "", "%s: %s is in the list twice", what, quote(s))
		case len(d.Upstreams) > 0 && scheme(s) != scheme(d.Upstreams[0]):
			r.fault(item, "", "%s: all upstreams of a site have the same scheme", what)
		default:
			d.Upstreams = append(d.Upstreams, s)
		}
	}
}

func scheme(u string) string {
	s, _, _ := strings.Cut(u, "://")
	return s
}

// siteRules reads the rules of one site. Their names get the name of the site.
func (r *reader) siteRules(d *siteDraft, n *node) {
	d.OwnRules = true
	first, usedDefault := len(r.file.Policy.Rules), r.usedDefault
	r.usedDefault = false
	readRules(r, n, r.file)
	r.usedDefault = usedDefault
	taken := map[string]*node{} // names of the file's own rules that a rule of this site may get
	for i := range r.file.Policy.Rules[:first] {
		if rule := &r.file.Policy.Rules[i]; rule.Site == "" && strings.HasPrefix(rule.Name, d.Name+"/") {
			taken[rule.Name] = nameNode(r.rules[i].node)
		}
	}
	for i := first; i < len(r.file.Policy.Rules); i++ {
		rule := &r.file.Policy.Rules[i]
		rule.Name, rule.Site = siteRuleName(d.Name, rule.Name), d.Name
		if n := taken[rule.Name]; n != nil {
			r.fault(nameNode(r.rules[i].node), "", "the name %s is used twice, first in line %d", quote(rule.Name),
				r.lineOf(n))
		}
	}
}

func siteRuleName(site, rule string) string { return site + "/" + rule }

// sitePolicy reads the rules of one site from a file. Nothing else may be in it.
func (r *reader) sitePolicy(d *siteDraft, n *node) {
	path := r.file.ResolvePath(d.Policy)
	data, err := readBounded(path)
	if err != nil {
		r.fault(n, "the name is relative to the folder of this file", "site %s: policy: %v", d.Name, err)
		return
	}
	line, ok := readable(data)
	text := textOf(data)
	defer r.enter(path, text)()
	if !ok {
		r.faultAt(line, 1, "save it as UTF-8", "the file is not UTF-8 text")
		return
	}
	root := r.tree(text)
	r.shift(root)
	if root == nil || root.kind != mapNode {
		r.faultAt(1, 1, "rules: [{use: default}]", "the file needs rules")
		return
	}
	for _, e := range root.entries {
		if e.key.text == "rules" {
			r.siteRules(d, e.value)
			continue
		}
		hint := "only rules are needed here"
		if slices.Contains(names(topKeys()), e.key.text) {
			hint = fmt.Sprintf("%s belongs in %s, and holds for all sites", e.key.text, r.file.Name)
		}
		r.fault(e.key, hint, "the policy of a site has rules only, not %s", quote(e.key.text))
	}
	if !d.OwnRules {
		r.missing(root, "rules: [{use: default}]", "rules are needed")
	}
}

func readBounded(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%s is larger than %s", path, FormatSize(maxSize))
	}
	return data, err
}

// An include is a file that the policy file includes. Its lines come after those of the files
// before it: line n of the reader is line n−before of the file.
type include struct {
	name   string
	before int
}

// enter reads another file from now on, until the function that it returns is called.
func (r *reader) enter(path, text string) (leave func()) {
	dir, broken := r.dir, r.broken
	r.includes = append(r.includes, include{path, len(r.lines)})
	r.base = len(r.lines)
	r.lines = append(r.lines, strings.Split(text, "\n")...)
	r.dir = filepath.Dir(path)
	return func() { r.dir, r.base, r.broken = dir, 0, broken || r.broken }
}

// shift gives the nodes of an included file their lines in the reader.
func (r *reader) shift(n *node) {
	base := r.base
	r.base = 0
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		n.line += base
		for _, item := range n.items {
			walk(item)
		}
		for _, e := range n.entries {
			walk(e.key)
			walk(e.value)
		}
	}
	walk(n)
}

// locate returns the file and the line of a line of the reader.
func (r *reader) locate(line int) (name string, local int) {
	name, local = r.file.Name, line
	for _, i := range r.includes {
		if line > i.before {
			name, local = i.name, line-i.before
		}
	}
	return name, local
}

// lineOf returns the line of a node in its file.
func (r *reader) lineOf(n *node) int {
	_, line := r.locate(n.line)
	return line
}

// checkSites reports keys that cannot be used together with sites, or only with them.
func (r *reader) checkSites(got *reading) {
	f := r.file
	if !got.has("sites") {
		if got.has("count_sites") {
			r.fault(got.at("count_sites"), "remove it", "count_sites: there are no sites")
		}
		return
	}
	if f.Upstream != "" {
		r.fault(got.at("upstream"), "name the upstream of each site: sites: "+sitesExample,
			"upstream and sites: each site has an upstream of its own")
	}
	if got.has("hosts") {
		r.fault(got.at("hosts"), "remove it: the hosts of sites are served, and no others",
			"hosts and sites: each site has hosts of its own")
	}
	if c := f.UpstreamCPU; c.From == "process" && c.PIDFile == "" {
		r.fault(firstNode(find(find(r.root, "upstream"), "cpu"), got.at("upstream")), "add a pid_file, or from: cgroup",
			"cpu: from: process measures what listens at one upstream, and each site has an upstream of its own")
	}
	f.Hosts = nil
	for i := range f.Sites {
		f.Policy.Sites = append(f.Policy.Sites, f.Sites[i].Site)
		f.Hosts = append(f.Hosts, f.Sites[i].Hosts...)
	}
	if slices.Contains(f.Hosts, "*") {
		f.Hosts = nil
	}
}

// everySiteHasRules reports whether no site needs rules without a site.
func (r *reader) everySiteHasRules() bool {
	return len(r.file.Sites) > 0 && !slices.ContainsFunc(r.file.Sites, func(s Site) bool { return !s.OwnRules })
}

// maxSiteLimits bounds the limits of all sites together: see package memlimit.
const maxSiteLimits = 4000

// checkSiteLimits reports sites whose rules have more limits than can be counted.
func (r *reader) checkSiteLimits() {
	if n := len(r.file.Policy.Limits()); len(r.file.Sites) > 0 && n > maxSiteLimits {
		r.fault(firstNode(find(r.root, "sites")),
			"sites without rules of their own share those of the file; count_sites: apart counts them apart",
			"sites: their rules need %d counters for each client, and at most %d are possible", n, maxSiteLimits)
	}
}

// Description says in one sentence which requests a site gets and where they go.
func (s *Site) Description() string {
	text := fmt.Sprintf("site %s: %s", s.Name, prose.List(s.Hosts, "and"))
	if slices.Equal(s.Hosts, []string{s.Name}) {
		text = "site " + s.Name + ":"
	} else if slices.Contains(s.Hosts, "*") {
		text = fmt.Sprintf("site %s: every host that no other site has", s.Name)
	}
	text = strings.TrimSuffix(text, ":") + " → " + strings.Join(s.Upstreams, ", ")
	if len(s.Upstreams) > 1 {
		text += ", the one with the fewest requests in progress first"
	}
	if h := s.health(); h != nil {
		text += fmt.Sprintf("; checked every %s", FormatDuration(cmp.Or(h.Every, DefaultHealthEvery)))
		if h.Path != "" {
			text += " by " + h.Path
		}
	}
	switch {
	case s.Policy != "":
		text += "; rules of " + s.Policy
	case s.OwnRules:
		text += "; rules of its own"
	}
	return text + "."
}

// health returns how the upstreams are checked; nil if they are not.
func (s *Site) health() *Health {
	if s.Health == nil && len(s.Upstreams) > 1 {
		return &Health{}
	}
	return s.Health
}

// Checks returns how the upstreams of the site are checked, with all defaults filled in;
// nil if they are not: one upstream without health.
func (s *Site) Checks() *Health {
	h := s.health()
	if h == nil {
		return nil
	}
	return &Health{Path: h.Path, Every: cmp.Or(h.Every, DefaultHealthEvery),
		Timeout: cmp.Or(h.Timeout, DefaultHealthTimeout), Fails: cmp.Or(h.Fails, 3), Passes: cmp.Or(h.Passes, 2)}
}
