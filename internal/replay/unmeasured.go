package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
)

// An Unmeasured is a fact that a rule tests and the logs do not have. It was judged as
// absent.
type Unmeasured struct {
	Rule string `json:"rule"`
	Fact string `json:"what"` // by its name in policies
	Why  string `json:"why"`
}

// A requiredFact is a fact that a rule tests.
type requiredFact struct {
	fact   string
	noun   string           // in "the log holds no …"
	needs  accesslog.Fields // 0 if no log has it
	window time.Duration    // the log's times must be at least this fine; 0 for facts
	why    string           // no log has it: a hint
}

// requiredFacts returns the facts that a rule tests and a log may lack, each once.
func requiredFacts(r *fairshare.Rule, opts *Options) []requiredFact {
	var found []requiredFact
	add := func(l requiredFact) {
		if !slices.ContainsFunc(found, func(f requiredFact) bool { return f.fact == l.fact }) {
			found = append(found, l)
		}
	}
	cookie := func() { add(requiredFact{fact: "cookie", noun: "cookies", needs: accesslog.HasCookie}) }
	header := func(name string) {
		l := requiredFact{fact: "header " + name, noun: "header " + name}
		switch strings.ToLower(name) {
		case "cookie":
			l.needs = accesslog.HasCookie
		case "host":
			l.needs = accesslog.HasHost
		case "referer":
			l.needs = accesslog.HasReferer
		case "user-agent":
			l.needs = accesslog.HasUserAgent
		case "x-forwarded-for":
			l.needs = accesslog.HasForwarded
		}
		add(l)
	}
	host := func() { add(requiredFact{fact: "host", noun: "host", needs: accesslog.HasHost}) }
	path := func() { add(requiredFact{fact: "path", noun: "path", needs: accesslog.HasPath}) }
	bot := func() {
		l := requiredFact{fact: "bot", noun: "user agent", needs: accesslog.HasUserAgent}
		if opts.Bot == nil {
			l.why = "nobody was asked who is a bot"
		}
		add(l)
	}
	signed := func(names []string) {
		for _, name := range names {
			if slices.Contains(opts.Signed, name) {
				add(requiredFact{fact: "signature", why: "a log does not hold the signatures of requests: " + name +
					" is not verified by them"})
			}
		}
	}
	dns := func(fact string) {
		if opts.Resolve == nil {
			add(requiredFact{fact: fact, why: "only the DNS knows: --resolve asks it"})
		}
	}
	owner := func() {
		if opts.Owner == nil {
			add(requiredFact{fact: "asn", why: "the policy names no table of the owners of addresses"})
		}
	}
	agent := func() { add(requiredFact{fact: "user_agent", noun: "user agent", needs: accesslog.HasUserAgent}) }
	browser := func() {
		agent()
		header("Referer")
		add(requiredFact{fact: "browser", why: "a log does not hold the headers that contradict a user agent, and the " +
			"cookies that come back: nobody is contradicted, and fewer clients are likely to be browsers"})
	}
	robots := func() {
		agent()
		if opts.Robots == nil {
			add(requiredFact{fact: "robots", why: "a log does not hold robots.txt: --robots FILE or URL names it"})
		}
	}
	attempt := func() {
		path()
		add(requiredFact{fact: "method", noun: "method", needs: accesslog.HasMethod})
		add(requiredFact{fact: "status", noun: "status", needs: accesslog.HasStatus})
		add(requiredFact{fact: "attempt", why: "a log does not hold credentials, cookies and the targets of redirects: " +
			"wrong credentials are not seen, and each login that is redirected counts as a success"})
	}
	form := func() { add(requiredFact{fact: "form", why: "a log does not hold the bodies of requests"}) }
	label := func() {
		if opts.Override == nil {
			add(requiredFact{fact: "label", why: "labels are in the registry of serve: --state DIR names its folder"})
		}
	}

	var match func(m *fairshare.Match)
	match = func(m *fairshare.Match) {
		if m.Method != nil {
			add(requiredFact{fact: "method", noun: "method", needs: accesslog.HasMethod})
		}
		if m.Host != nil {
			host()
		}
		if m.Path != nil {
			path()
		}
		if m.Query != nil {
			add(requiredFact{fact: "query", noun: "query", needs: accesslog.HasQuery})
		}
		if m.Form != nil {
			form()
		}
		if m.UserAgent != nil {
			agent()
		}
		if m.Cookie != nil {
			cookie()
		}
		if m.Referer != nil {
			header("Referer")
			if slices.Contains(m.Referer, "own") != slices.Contains(m.Referer, "other") {
				host() // tells them apart
			}
		}
		for _, name := range slices.Sorted(maps.Keys(m.Header)) {
			header(name)
		}
		if m.TestsBots() {
			bot()
			signed(m.Bot)
		}
		if m.Hostname != nil {
			dns("hostname")
		}
		if m.Listed != nil {
			dns("listed")
		}
		if m.Seen != nil {
			add(requiredFact{fact: "seen", noun: "path", needs: accesslog.HasPath})
		}
		if m.Label != nil {
			label()
		}
		if m.ASN != nil {
			owner()
		}
		if m.Browser != nil {
			browser()
		}
		if m.Robots != nil {
			robots()
		}
		if m.Attempt != nil {
			attempt()
		}
		for i := range m.Not {
			match(&m.Not[i])
		}
	}
	if r.Limit != nil && r.Limit.When == fairshare.Busy {
		return []requiredFact{{fact: "when", why: "a log does not tell when the upstream was busy: the limit never held"}}
	}
	match(&r.Match)
	if l := r.Limit; l != nil {
		for _, part := range l.By {
			switch part.Kind {
			case fairshare.ByUserAgent:
				agent()
			case fairshare.ByBot, fairshare.ByOperator, fairshare.ByPurpose:
				bot()
			case fairshare.ByASN:
				owner()
			case fairshare.ByVisitor:
				add(requiredFact{fact: "visitor", why: "a log does not hold the visitors' cookies"})
			case fairshare.ByFleet:
				path()
				agent()
				add(requiredFact{fact: "fleet", why: "most headers and the types of answers are not in a log: other fleets " +
					"may be found"})
			case fairshare.ByHost:
				host()
			case fairshare.ByPath:
				path()
			case fairshare.ByCookie:
				cookie()
			case fairshare.ByHeader:
				header(part.Name)
			case fairshare.ByForm:
				form()
			case fairshare.ByValue:
				add(requiredFact{fact: "value", why: "only a program that uses the library gives values"})
			}
		}
		if l.CrawlDelay {
			robots()
			return found
		}
		switch l.Resource {
		case fairshare.Bytes:
			add(requiredFact{fact: "bytes", noun: "byte counts", needs: accesslog.HasBytes})
		case fairshare.Errors:
			add(requiredFact{fact: "errors", noun: "status", needs: accesslog.HasStatus})
		case fairshare.Failures:
			attempt()
		case fairshare.CPU:
			add(requiredFact{fact: "cpu", noun: "CPU time", needs: accesslog.HasCPU})
		case fairshare.Time:
			add(requiredFact{fact: "time", noun: "durations", needs: accesslog.HasDuration})
		case fairshare.Cost:
			add(requiredFact{fact: "cost", noun: "cost"})
		case fairshare.Concurrent:
			add(requiredFact{fact: "concurrent", noun: "durations", needs: accesslog.HasDuration})
		}
		switch l.Distinct {
		case fairshare.DistinctQueries:
			add(requiredFact{fact: "query", noun: "query", needs: accesslog.HasQuery})
			path()
		case fairshare.DistinctPaths:
			path()
		}
		if !r.Refund.Empty() {
			add(requiredFact{fact: "refund", noun: "status", needs: accesslog.HasStatus})
		}
		if l.Count == fairshare.Pages {
			add(requiredFact{fact: "count", why: "a log does not hold the headers that say what a request is for: only the " +
				"extension of its path and the first second show the parts of a page"})
		}
		if l.Window > 0 {
			add(requiredFact{fact: "window", window: l.Window})
		}
	}
	if r.Ban != nil && r.Ban.Unless != nil {
		match(r.Ban.Unless)
	}
	if r.Ban != nil && r.Action == fairshare.Block { // it bans nobody for what others caused
		header("Sec-Fetch-Site")
		header("Referer")
		if r.BanKind() == fairshare.ByBot {
			bot()
		}
	}
	return found
}

// unmeasured returns the facts that rules tested and the logs lack. Logs without a valid
// line are ignored.
func (rec *recorder) unmeasured() []Unmeasured {
	rules, logs := rec.opts.Policy.Rules, rec.logs
	out := []Unmeasured{}
	var read []*logFile
	for _, l := range logs {
		if l.entries > 0 {
			read = append(read, l)
		}
	}
	for i := range rules {
		for _, l := range requiredFacts(&rules[i], rec.opts) {
			if l.why != "" && len(read) > 0 {
				out = append(out, Unmeasured{Rule: rules[i].Name, Fact: l.fact, Why: l.why})
				continue
			}
			if l.fact == "bot" && rec.pending > 0 {
				out = append(out, Unmeasured{Rule: rules[i].Name, Fact: l.fact, Why: rec.pendingWhy()})
			}
			var lacking []*logFile
			for _, log := range read {
				if l.window > 0 && l.window < log.resolution ||
					l.window == 0 && (l.needs == 0 || log.has&l.needs == 0) {
					lacking = append(lacking, log)
				}
			}
			if len(lacking) == 0 {
				continue
			}
			subject, s := "the log", "s" // it has
			switch {
			case len(read) == 1:
			case len(lacking) == len(read):
				subject, s = "the logs", ""
			case len(lacking) == 1:
				subject = lacking[0].path
			default:
				subject, s = fmt.Sprintf("%s and %d more", lacking[0].path, len(lacking)-1), ""
			}
			why := fmt.Sprintf("%s hold%s no %s", subject, s, l.noun)
			if l.window > 0 {
				why = fmt.Sprintf("%s tell%s time in steps of %s, the window is %s", subject, s,
					prose.ExactDuration(lacking[0].resolution), prose.ExactDuration(l.window))
			}
			out = append(out, Unmeasured{Rule: rules[i].Name, Fact: l.fact, Why: why})
		}
	}
	if rec.opts.Share && len(read) > 0 {
		out = append(out, Unmeasured{Rule: fairshare.BusyUpstream.Name, Fact: "share",
			Why: "a log does not tell how busy the upstream was: nobody waits for a turn, is refused for want of one, or gets the waiting room"})
	}
	return out
}

// pendingWhy returns why the claims of some bots are not decided.
func (rec *recorder) pendingWhy() string {
	claims := prose.Plural(rec.pending, "request") + " of bots could not be verified "
	if rec.opts.Resolve != nil {
		return claims + "or found forged"
	}
	return claims + "by published addresses: --resolve asks the DNS"
}
