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

// An Unmeasured is a fact that a rule looked at and the logs do not hold. It
// was judged as absent.
type Unmeasured struct {
	Rule string `json:"rule"`
	What string `json:"what"` // as the policy spells it
	Why  string `json:"why"`
}

// A look is one fact that a rule looks at.
type look struct {
	what   string
	noun   string           // in "the log holds no …"
	needs  accesslog.Fields // 0 when no log holds it
	window time.Duration    // needs a clock as fine as this; 0 for facts
	why    string           // no log holds it: what to do
}

// looks returns what a rule looks at and a log may lack, each once.
func looks(r *fairshare.Rule, opts *Options) []look {
	var found []look
	add := func(l look) {
		if !slices.ContainsFunc(found, func(f look) bool { return f.what == l.what }) {
			found = append(found, l)
		}
	}
	cookie := func() { add(look{what: "cookie", noun: "cookies", needs: accesslog.HasCookie}) }
	header := func(name string) {
		l := look{what: "header " + name, noun: "header " + name}
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
	host := func() { add(look{what: "host", noun: "host", needs: accesslog.HasHost}) }
	path := func() { add(look{what: "path", noun: "path", needs: accesslog.HasPath}) }
	bot := func() {
		l := look{what: "bot", noun: "user agent", needs: accesslog.HasUserAgent}
		if opts.Bot == nil {
			l.why = "nobody was asked who is a bot"
		}
		add(l)
	}
	dns := func(what string) {
		if opts.Resolve == nil {
			add(look{what: what, why: "only the DNS knows: --resolve asks it"})
		}
	}
	owner := func() {
		if opts.Owner == nil {
			add(look{what: "asn", why: "the policy names no table of the owners of addresses"})
		}
	}
	label := func() {
		if opts.Override == nil {
			add(look{what: "label", why: "labels are in the registry of serve: --state DIR names its folder"})
		}
	}
	agent := func() { add(look{what: "user_agent", noun: "user agent", needs: accesslog.HasUserAgent}) }

	var match func(m *fairshare.Match)
	match = func(m *fairshare.Match) {
		if m.Method != nil {
			add(look{what: "method", noun: "method", needs: accesslog.HasMethod})
		}
		if m.Host != nil {
			host()
		}
		if m.Path != nil {
			path()
		}
		if m.Query != nil {
			add(look{what: "query", noun: "query", needs: accesslog.HasQuery})
		}
		if m.UserAgent != nil {
			agent()
		}
		if m.Cookie != nil {
			cookie()
		}
		for _, name := range slices.Sorted(maps.Keys(m.Header)) {
			header(name)
		}
		if m.Bot != nil {
			bot()
		}
		if m.Hostname != nil {
			dns("hostname")
		}
		if m.Listed != nil {
			dns("listed")
		}
		if m.Seen != nil {
			add(look{what: "seen", noun: "path", needs: accesslog.HasPath})
		}
		if m.Label != nil {
			label()
		}
		if m.ASN != nil {
			owner()
		}
		for i := range m.Not {
			match(&m.Not[i])
		}
	}
	match(&r.Match)
	if l := r.Limit; l != nil {
		for _, part := range l.By {
			switch part.Kind {
			case fairshare.ByUserAgent:
				agent()
			case fairshare.ByBot:
				bot()
			case fairshare.ByASN:
				owner()
			case fairshare.ByHost:
				host()
			case fairshare.ByPath:
				path()
			case fairshare.ByCookie:
				cookie()
			case fairshare.ByHeader:
				header(part.Name)
			case fairshare.ByValue:
				add(look{what: "value", why: "only a program that uses the library gives values"})
			}
		}
		switch l.Resource {
		case fairshare.Bytes:
			add(look{what: "bytes", noun: "byte counts", needs: accesslog.HasBytes})
		case fairshare.Errors:
			add(look{what: "errors", noun: "status", needs: accesslog.HasStatus})
		case fairshare.CPU:
			add(look{what: "cpu", noun: "CPU time", needs: accesslog.HasCPU})
		case fairshare.Time:
			add(look{what: "time", noun: "durations", needs: accesslog.HasDuration})
		case fairshare.Cost:
			add(look{what: "cost", noun: "cost"})
		case fairshare.Concurrent:
			add(look{what: "concurrent", noun: "durations", needs: accesslog.HasDuration})
		}
		if !r.Refund.Empty() {
			add(look{what: "refund", noun: "status", needs: accesslog.HasStatus})
		}
		if l.Window > 0 {
			add(look{what: "window", window: l.Window})
		}
	}
	if r.Ban != nil && r.Ban.Unless != nil {
		match(r.Ban.Unless)
	}
	return found
}

// unmeasured returns what the rules looked at in vain. A log without a line
// that could be judged says nothing.
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
		for _, l := range looks(&rules[i], rec.opts) {
			if l.why != "" && len(read) > 0 {
				out = append(out, Unmeasured{Rule: rules[i].Name, What: l.what, Why: l.why})
				continue
			}
			if l.what == "bot" && rec.pending > 0 {
				out = append(out, Unmeasured{Rule: rules[i].Name, What: l.what, Why: rec.pendingWhy()})
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
			subject, s := "the log", "s" // it holds
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
			out = append(out, Unmeasured{Rule: rules[i].Name, What: l.what, Why: why})
		}
	}
	if rec.opts.Share && len(read) > 0 {
		out = append(out, Unmeasured{Rule: fairshare.BusyUpstream.Name, What: "share",
			Why: "a log does not tell how busy the upstream was: nobody waits for a turn, and nobody is refused for want of one"})
	}
	return out
}

// pendingWhy says why it is not known whether some bots are what they say.
func (rec *recorder) pendingWhy() string {
	claims := prose.Plural(rec.pending, "request") + " of bots could not be verified "
	if rec.opts.Resolve != nil {
		return claims + "or found forged"
	}
	return claims + "by published addresses: --resolve asks the DNS"
}
