package logreplay

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
	"fairshare/memlimit"
)

// Rules for clients without a name are limits for everybody. How much such a limit allows comes
// from the log: twice what any client needed that may be a person, see programs. Then the limit is
// tried on the log, and what it refuses says how much it helps.

const (
	// trialMemory is the size of the counters of one tried rule.
	trialMemory = 2 << 20
	// leastErrors and leastFailures are from how many refused errors (4xx) and failed attempts to log
	// in on a rule helps, if these are at least a fifth of all.
	leastErrors, leastFailures = 100, 20
	fifth                      = 0.2
)

// A form is a limit whose amount comes from the log.
type form struct {
	name     string
	match    string // in YAML, without that of verified bots; "" for all requests
	resource string
	per      string
	by       string
	floor    int64  // the least amount, in the resource's unit; time: microseconds
	noun     string // what is limited: "pages"
}

const assetPaths = `{path: ["*.css", "*.js", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.ico", "*.woff2"]}`

// forms returns the limits that are tried.
func (s *session) forms(base *replay.Report) []form {
	all := []form{
		{"pages of a client in ten minutes", "pages", "requests", "10m", "addr", 30, "pages"},
		{"pages of a client in an hour", "pages", "requests", "1h", "addr", 60, "pages"},
		{"pages of a client in a day", "pages", "requests", "1d", "addr", 300, "pages"},
		{"pages of a network in an hour", "pages", "requests", "1h", "network", 120, "pages"},
		{"pages of a network in a day", "pages", "requests", "1d", "network", 600, "pages"},
		{"pages of a fleet in an hour", "pages", "requests", "1h", "fleet", 300, "pages"},
		{"missing pages of a client", "", "errors", "10m", "addr", 20, "errors (4xx)"},
		{"missing pages of a client in a day", "", "errors", "1d", "addr", 50, "errors (4xx)"},
		{"missing pages of a network in a day", "", "errors", "1d", "network", 100, "errors (4xx)"},
		{"failed logins of a client in a day", "attempt: [login, credentials]", "failures", "1d", "addr", 10,
			"failed logins"},
		{"failed logins of a network in a day", "attempt: [login, credentials]", "failures", "1d", "network", 20,
			"failed logins"},
	}
	if base.HasBytes {
		all = append(all, form{"bytes of a client in an hour", "", "bytes", "1h", "addr", leastBytes, "bytes"},
			form{"bytes of a client in a day", "", "bytes", "1d", "addr", 10 * leastBytes, "bytes"},
			form{"bytes of a network in a day", "", "bytes", "1d", "network", 20 * leastBytes, "bytes"})
	}
	if base.HasTime {
		all = append(all, form{"time of a client in an hour", "", "time", "1h", "addr", leastSeconds * 1e6, "time"},
			form{"time of a network in an hour", "", "time", "1h", "network", 2 * leastSeconds * 1e6, "time"})
	}
	if s.owners != nil {
		all = append(all, form{"pages of an owner in an hour", "asn: hosting", "requests", "1h", "asn", 300,
			"requests"})
	}
	// Paths that take much, and paths that few people want.
	tried := 0
	for _, row := range base.PathPatterns {
		if tried == 4 || row.Usage.Requests < leastEvidence || mostOf(row.Usage, base.Total) < largeShare {
			break
		}
		if row.Path == "/" || row.Path == "" || row.Path == "*" || strings.Trim(row.Path, "/*") == "" ||
			strings.ContainsAny(row.Path, "\uFFFD\"\\") {
			continue
		}
		tried++
		match := fmt.Sprintf("path: [%q]", row.Path)
		all = append(all, form{"requests of a client for " + row.Path, match, "requests", "1h", "addr", 30, "requests"},
			form{"requests of a network for " + row.Path, match, "requests", "1h", "network", 60, "requests"})
		if base.HasTime {
			all = append(all, form{"time for " + row.Path, match, "time", "1h", "addr", leastSeconds * 1e6, "time"})
		}
	}
	return all
}

// yaml returns the rule with an amount.
func (f *form) yaml(name string, n int64) string {
	var match string
	switch f.match {
	case "pages":
		match = "{not: [{bot: verified}, " + assetPaths + "]}"
	case "":
		match = "{not: {bot: verified}}"
	default:
		match = "{" + f.match + ", not: {bot: verified}}"
	}
	return fmt.Sprintf("- name: %s\n  match: %s\n  limit: {%s: %s, per: %s, by: %s}\n", quoteYAML(name), match,
		f.resource, f.amount(n), f.per, f.by)
}

// quoteYAML returns a name in quotes if it needs them.
func quoteYAML(name string) string {
	if strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz ") == "" {
		return name
	}
	return strconv.Quote(name)
}

// amount writes an amount as a policy does.
func (f *form) amount(n int64) string {
	switch f.resource {
	case "bytes":
		return sizeText(float64(n))
	case "time":
		return strconv.FormatInt((n+999_999)/1e6, 10) + "s"
	}
	return strconv.FormatInt(n, 10)
}

// A tried rule is a candidate with its trial.
type tried struct {
	candidate
	form *form // nil for rules with a fixed amount

	least int64 // what clients that may be people need
	trial *replay.Trial

	programs []replay.TopClient // of a rule for these clients
}

// value says how much of the site's load, errors and failed logins a rule refuses, from 0 to 1.
func (t *tried) value(base *replay.Report, passed *replay.Tested) float64 {
	refused := &t.trial.Refused
	v := mostOf(refused.Usage, base.Total)
	switch {
	case t.sure && refused.Requests >= leastBroken:
		v = max(v, leastSaved)
	case v < leastSaved:
		v = 0
	}
	if part := share(float64(refused.Errors), float64(passed.Errors)); refused.Errors >= leastErrors && part >= fifth {
		v = max(v, part/4)
	}
	if part := share(float64(refused.Failures), float64(passed.Failures)); refused.Failures >= leastFailures &&
		part >= fifth {
		v = max(v, part/2)
	}
	return v
}

// preference is a factor for the value of a rule: one that names a bot or user agent touches nobody
// else.
func (t *tried) preference() float64 {
	if t.form == nil && t.programs == nil {
		return 1
	}
	return 0.9
}

// candidateRule parses a rule.
func (s *session) candidateRule(yaml string) ([]fairshare.Rule, error) {
	return s.parseRules([]candidate{{rule: replay.AdvisedRule{YAML: yaml}}})
}

// trialRun replays the log with more rules, and with trials.
func (s *session) trialRun(more []candidate, trials *replay.Trials) (*replay.Report, error) {
	rules, err := s.parseRules(more)
	if err != nil {
		return nil, err
	}
	policy := s.file.Policy
	at := leadingAllows(policy.Rules)
	policy.Rules = slices.Concat(policy.Rules[:at], rules, policy.Rules[at:])
	options, _, err := s.options()
	if err != nil {
		return nil, err
	}
	options.Policy, options.Trials, options.Attempts = &policy, trials, true
	options.TrialLimiter = func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		return memlimit.New(limits, memlimit.Options{Memory: trialMemory})
	}
	return s.replay(options, nil)
}

// tryAll finds the rules that help most: at most mostAdvised, each with its trial, and the function
// that says which requests must not be refused.
func (s *session) tryAll(base *replay.Report, named []candidate) (
	found []candidate, protected func(*fairshare.Request, netip.Addr) bool, err error) {
	profiles := &replay.Trials{Profiles: map[netip.Addr]*replay.Profile{}}
	if _, err := s.trialRun(nil, profiles); err != nil {
		return nil, nil, err
	}
	groups := s.crowds(profiles.Profiles)
	protected, program := s.protects(base, profiles.Profiles, groups)
	pool := make([]*tried, 0, 32)
	for _, c := range named {
		pool = append(pool, &tried{candidate: c})
	}
	if all := s.programs(base, program); len(all) > 0 {
		pool = append(pool, &tried{candidate: s.programRule(base, all), programs: all})
	}
	measure := &replay.Trials{Protected: protected, Measure: true}
	var measured []*tried
	forms := append(s.forms(base), s.ownerForms(base, groups)...)
	for i := range forms {
		rules, err := s.candidateRule(forms[i].yaml("trial", forms[i].floor))
		if err != nil {
			return nil, nil, err
		}
		t := &tried{form: &forms[i], trial: &replay.Trial{Rules: rules}}
		measured, measure.All = append(measured, t), append(measure.All, t.trial)
	}
	if _, err := s.trialRun(nil, measure); err != nil {
		return nil, nil, err
	}
	for _, t := range measured {
		if t.least = t.trial.Least; t.least > math.MaxInt64/8 {
			continue // there were too many keys
		}
		n := int64(math.Round(nice(float64(max(t.form.floor, 2*t.least)))))
		t.rule.Name = s.newName(t.form.name)
		t.rule.YAML = t.form.yaml(t.rule.Name, n)
		pool = append(pool, t)
	}
	for len(found) < mostAdvised && len(pool) > 0 {
		round := &replay.Trials{Protected: protected}
		for _, t := range pool {
			rules, err := s.candidateRule(t.rule.YAML)
			if err != nil {
				return nil, nil, err
			}
			t.trial = &replay.Trial{Rules: rules}
			round.All = append(round.All, t.trial)
		}
		if _, err := s.trialRun(found, round); err != nil {
			return nil, nil, err
		}
		// Other clients may share the address of a program.
		if i := slices.IndexFunc(pool, func(t *tried) bool {
			return t.programs != nil && len(t.trial.Harmed) > 0
		}); i >= 0 {
			left := slices.DeleteFunc(pool[i].programs, func(c replay.TopClient) bool {
				_, harmed := pool[i].trial.Harmed[netip.MustParseAddr(c.Client)]
				return harmed
			})
			if pool = slices.Delete(pool, i, i+1); len(left) > 0 {
				pool = append(pool, &tried{candidate: s.programRule(base, left), programs: left})
			}
			continue
		}
		value := func(t *tried) float64 { return t.value(base, &round.Passed) }
		pool = slices.DeleteFunc(pool, func(t *tried) bool { return len(t.trial.Harmed) > 0 || value(t) == 0 })
		if len(pool) == 0 {
			break
		}
		best := slices.MaxFunc(pool, func(a, b *tried) int {
			return cmp.Compare(value(a)*a.preference(), value(b)*b.preference())
		})
		if best.form != nil {
			best.describe(base)
		}
		found = append(found, best.candidate)
		pool = slices.DeleteFunc(pool, func(t *tried) bool { return t == best })
	}
	return found, protected, nil
}

// describe gives the reasons of a rule.
func (t *tried) describe(base *replay.Report) {
	clients := make([]string, 0, 3)
	for _, top := range slices.Concat(base.Top, base.TopByBytes, base.TopByTime, refusedOf(base)) {
		addr, err := netip.ParseAddr(top.Client)
		if _, refused := t.trial.Clients[addr]; err == nil && refused && len(clients) < 3 &&
			!slices.Contains(clients, top.Client) {
			clients = append(clients, top.Client)
		}
	}
	who := prose.Plural(int64(len(t.trial.Clients)), "client") + " without signs of a person"
	if len(clients) > 0 && len(clients) < len(t.trial.Clients) {
		who += ", among them " + prose.List(clients, "and") + ","
	} else if len(clients) > 0 {
		who = prose.List(clients, "and") + " without signs of a person"
	}
	verb := "exceed"
	if len(t.trial.Clients) == 1 {
		verb = "exceeds"
	}
	t.taker = t.form.name
	t.uses = t.trial.Refused.Usage
	t.rule.Reasons = []string{fmt.Sprintf("%s %s this limit of %s.", upperFirst(who), verb, t.form.noun)}
	need := "No client that may be a person needs any of it."
	if t.least > 0 {
		need = fmt.Sprintf("Of clients that may be people, none needs more than %s; the limit is at least twice that.",
			t.form.need(t.least))
	}
	t.rule.Reasons = append(t.rule.Reasons, need)
}

func refusedOf(r *replay.Report) (all []replay.TopClient) {
	for _, m := range r.MostRefused {
		all = append(all, m.TopClient)
	}
	return all
}

// need describes an amount.
func (f *form) need(n int64) string {
	switch f.resource {
	case "bytes":
		return prose.Size(n)
	case "time":
		return strconv.FormatInt((n+999_999)/1e6, 10) + " s"
	case "requests":
		return prose.Plural(n, "request")
	case "failures":
		return prose.Plural(n, "failure")
	}
	return prose.Plural(n, "error")
}

const (
	// programPages is how many pages without an asset and without referers only a program gets;
	// surePages with referers.
	programPages, surePages = 50, 300
	// assetsPart is how many pages a program gets for each asset, or more.
	assetsPart = 50
	// programFailures is from how many failed logins on a client is a program, if it does nothing else.
	programFailures = 10
	// fewClients is up to how many clients a library is one program and not the part of an app.
	fewClients = 20
)

// protects returns a function that says which requests must not be refused: those of clients that
// may be people, of search engines, and of bots that act for people or the operators of a site.
//
// program reports whether a client behaves as people do not.
func (s *session) protects(base *replay.Report, profiles map[netip.Addr]*replay.Profile, groups *crowds) (
	protected func(*fairshare.Request, netip.Addr) bool, program func(netip.Addr) bool) {
	// Pages have assets if at least one browser in twenty fetches some: most others may be programs.
	var with, without int
	for _, p := range profiles {
		if p.Browser && p.Bot == "" && p.Pages >= 2 {
			if p.Assets > 0 {
				with++
			} else {
				without++
			}
		}
	}
	usual := with >= 10 && 20*with >= with+without
	clients := map[string]int64{}
	for _, b := range base.Bots {
		clients[b.Name] += b.Clients
	}
	floods := map[string]bool{}
	for _, t := range s.floods(base) {
		floods[t.Name] = true
	}
	program = func(addr netip.Addr) bool {
		p := profiles[addr]
		switch {
		case p == nil:
			return false // unknown
		case p.IsProgram():
			return true
		case p.Failures >= programFailures && 3*p.Failures >= p.Requests && p.Assets == 0:
			return true
		case !p.Browser: // an app does not fetch the assets of pages
			return false
		case p.Assets == 0 && p.Bot == "" && groups.has(addr):
			return true
		case !usual || assetsPart*p.Assets > p.Pages+p.Posts:
			return false
		}
		return p.Pages >= surePages || p.Pages >= programPages && 10*p.Referers < p.Requests ||
			p.Posts >= programPages && 10*p.Posts > 9*p.Requests && 10*p.Referers < p.Requests
	}
	protected = func(req *fairshare.Request, addr netip.Addr) bool {
		p := profiles[addr]
		b := s.identifier.Table.Bot(req.Bot.Name)
		if floods[req.UserAgent] {
			return false
		}
		if req.Bot.Name == "" || b == nil {
			return !program(addr)
		}
		if b.Main() == "search" && req.Bot.State == fairshare.Forged {
			return !program(addr) // its addresses may have changed since
		}
		if slices.Contains([]string{"search", "fetcher", "feed", "monitor", "preview"}, b.Main()) {
			return true
		}
		if _, purpose := s.purpose(req.Bot.Name); purpose == replay.ByUser {
			return true
		}
		if slices.Contains(notOneProgram, req.Bot.Name) || slices.Contains(tools, b.Main()) {
			few := clients[req.Bot.Name] <= fewClients && p != nil && p.Requests >= leastEvidence
			return !few && !program(addr) || s.isProxy(addr.String())
		}
		return false
	}
	return protected, program
}

// programs returns the largest clients that behave as people do not and have no name.
func (s *session) programs(base *replay.Report, program func(netip.Addr) bool) (found []replay.TopClient) {
	for _, t := range slices.Concat(base.Top, base.TopByBytes, base.TopByTime) {
		addr, err := netip.ParseAddr(t.Client)
		known := slices.ContainsFunc(found, func(f replay.TopClient) bool { return f.Client == t.Client })
		if err == nil && !known && t.Bot == "" && !t.Approximate && t.Requests >= leastEvidence &&
			!s.isProxy(t.Client) && program(addr) && mostOf(passedOf(&t), base.Total) >= leastOf/2 {
			found = append(found, t)
		}
	}
	return found
}

// passedOf returns how much of a client passes the policy.
func passedOf(t *replay.TopClient) replay.Usage {
	part := 1 - float64(t.Refused+t.Blocked)/float64(t.Requests)
	return replay.Usage{Requests: t.Requests - t.Refused - t.Blocked, Bytes: int64(float64(t.Bytes) * part),
		Seconds: t.Seconds * part}
}

// programRule returns a limit for some clients.
func (s *session) programRule(base *replay.Report, all []replay.TopClient) candidate {
	var names, quoted []string
	var uses replay.Usage
	for i := range all {
		names, quoted = append(names, all[i].Client), append(quoted, strconv.Quote(all[i].Client))
		uses = sumOf(uses, passedOf(&all[i]))
	}
	c := candidate{taker: prose.List(names, "and"), uses: uses, allowance: allowance{"requests", leastRequests},
		clients: int64(len(all))}
	for i := range all {
		if l := base.Loads.Clients[all[i].Client]; l != nil {
			c.takers = append(c.takers, l)
		}
	}
	verb := "takes"
	if len(names) > 1 {
		verb = "take"
	}
	c.rule = replay.AdvisedRule{Name: s.newName("programs with the name of a browser"), Reasons: []string{
		fmt.Sprintf("%s %s %s of the site, and without signs of a person: no assets of pages, or hardly anything but errors.",
			c.taker, verb, sharesOf(uses, base)),
		fmt.Sprintf("Each may send %d requests an hour. If one is yours, leave it out.", leastRequests)}}
	c.rule.YAML = fmt.Sprintf("- name: %s\n  match: {addr: [%s]}\n  limit: {requests: %d, per: 1h, by: addr}\n",
		c.rule.Name, strings.Join(quoted, ", "), leastRequests)
	return c
}
