package policyfile

import (
	"slices"
	"strings"

	"fairshare"
)

// robotsWords are the values of match: {robots: …}.
var robotsWords = []string{fairshare.RobotsDisallowed}

// robots reads the values of robots in a match.
func (r *reader) robots(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "robots") {
		if word := r.choice(item, "robots", robotsWords, map[string]string{
			"disallow": "disallowed", "denied": "disallowed", "forbidden": "disallowed", "violation": "disallowed",
			"violated": "disallowed", "true": "disallowed",
		}); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// Defaults and bounds of a limit by crawl delay.
const (
	crawlBurst    = 5
	maxCrawlBurst = 1000
)

// crawlDelay reads the resource robots of a limit.
func (r *reader) crawlDelay(n *node, d *fairshare.Limit) {
	if r.choice(n, "robots", []string{"crawl-delay"}, map[string]string{
		"crawl_delay": "crawl-delay", "delay": "crawl-delay", "request-rate": "crawl-delay", "true": "crawl-delay",
	}) == "" {
		return
	}
	d.CrawlDelay, d.Resource, d.Algorithm = true, fairshare.Requests, fairshare.GCRA
	d.N, d.Window, d.Burst = 1, fairshare.MaxCrawlDelay, crawlBurst
}

// checkCrawlDelay reads the keys of a limit by crawl delay that depend on others, and
// reports those that do not belong to it.
func (r *reader) checkCrawlDelay(got *reading, d *fairshare.Limit) {
	for _, name := range []string{"per", "algorithm", "distinct", "count", "statuses", "newcomers"} {
		if got.has(name) {
			r.fault(got.at(name), "", "%s: robots.txt sets the rate of this limit", name)
		}
	}
	if !d.CrawlDelay {
		return
	}
	d.Resource, d.Algorithm, d.N, d.Window = fairshare.Requests, fairshare.GCRA, 1, fairshare.MaxCrawlDelay
	d.Distinct, d.Count, d.Newcomers, d.Statuses = fairshare.EveryRequest, 0, nil, fairshare.StatusSet{}
	d.Burst = crawlBurst
	if n := got.values["burst"]; n != nil {
		d.Burst = r.integer(n, "burst", 1, maxCrawlBurst)
	}
	if !got.has("by") {
		d.By = []fairshare.KeyPart{{Kind: fairshare.ByBot}}
	}
}

// readRobots reads whether robots.txt is read.
func readRobots(r *reader, n *node, f *File) {
	f.NoRobots = r.choice(n, "robots", []string{"on", "off"}, map[string]string{
		"true": "on", "yes": "on", "read": "on", "auto": "on", "enforce": "on",
		"false": "off", "no": "off", "none": "off", "never": "off", "ignore": "off",
	}) == "off"
}

// checkRobots reports rules of the file that never hold because robots.txt is not read. The
// built-in rules are part of many files, and may stay without effect.
func (r *reader) checkRobots() {
	for i := range r.file.Policy.Rules {
		rule, at := &r.file.Policy.Rules[i], r.rules[i]
		if at.builtIn || !usesRobots(rule) {
			continue
		}
		r.file.robotsRules = append(r.file.robotsRules, rule.Name)
		if r.file.NoRobots {
			r.fault(at.node, "robots: on", "%s looks at robots.txt, and never holds: robots: off says that it is not read",
				quote(rule.Name))
		}
	}
}

// UsesRobots reports whether robots.txt is read, since a rule looks at
// Request.Robots.
func (f *File) UsesRobots() bool {
	return !f.NoRobots && slices.ContainsFunc(f.Policy.Rules, func(r fairshare.Rule) bool { return usesRobots(&r) })
}

func usesRobots(rule *fairshare.Rule) bool {
	return byRobots(&rule.Match) || rule.Limit != nil && rule.Limit.CrawlDelay ||
		rule.Ban != nil && rule.Ban.Unless != nil && byRobots(rule.Ban.Unless)
}

func byRobots(m *fairshare.Match) bool {
	return m.Robots != nil || slices.ContainsFunc(m.Not, func(n fairshare.Match) bool { return byRobots(&n) })
}

const robotsRemedy = "; open the policy with package site, or set Request.Robots by package robots and call " +
	"File.Provide(Facts{Robots: true})"

// robotsText describes the requests for which a condition on robots.txt holds.
func robotsText(m condition) string {
	if m.favorable && m.Bot == nil {
		return "of a verified bot that robots.txt disallows for it"
	}
	return "that robots.txt disallows for its bot"
}

// coversRobots compares conditions on robots.txt.
func coversRobots(a, b condition) bool {
	return b.Robots != nil && (!a.favorable || b.favorable)
}

// robotsSetting describes the key robots; "" unless it is off.
func (f *File) robotsSetting() string {
	if !f.NoRobots {
		return ""
	}
	text := "robots: off: robots.txt is not read."
	if names := f.withoutRobots(); names != nil {
		text += " These rules never hold: " + strings.Join(names, ", ") + "."
	}
	return text
}

func (f *File) withoutRobots() (names []string) {
	for i := range f.Policy.Rules {
		if rule := &f.Policy.Rules[i]; usesRobots(rule) {
			names = append(names, printable(rule.Name))
		}
	}
	return names
}
