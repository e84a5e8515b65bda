package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/botauth"
	"fairshare/bots"
	"fairshare/browser"
	"fairshare/internal/amount"
	"fairshare/internal/prose"
	"fairshare/internal/proxy"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// WalkOptions are what [Policy.Walk] has to know apart from the request.
type WalkOptions struct {
	Target string        // the request target as sent, for robots.txt
	Busy   bool          // the upstream is busy
	All    bool          // also the rules that do not hold or are not reached
	Times  int           // how many requests are played; 0 and 1 mean one
	Every  time.Duration // between one request and the next
}

// Walk decides one request with a new guard, whose counters are empty. It
// writes for each rule that matched why, and then the verdict. Then it repeats the request, and writes
// which verdicts the repetitions get.
func (p *Policy) Walk(ctx context.Context, w io.Writer, req *fairshare.Request, o WalkOptions) error {
	file, target, busy := p.File, o.Target, o.Busy
	claimed := req.Browser != fairshare.NotBrowser
	signature := p.prepare(ctx, req, target)
	steps, err := file.Policy.Explain(req)
	if err != nil {
		return err
	}
	guard, err := p.newGuard(busy)
	if err != nil {
		return err
	}
	var lookups unanswered
	req.Lookups = &lookups
	if o.Times > 1 {
		req.Time = req.Time.Truncate(24 * time.Hour) // windows begin on the clock: the output is always the same
	}
	verdict, err := guard.Decide(ctx, req)
	if err != nil {
		return err
	}
	client := fairshare.PrefixID(netip.PrefixFrom(req.Addr, req.Addr.BitLen()))
	client.Via = req.Via
	fmt.Fprintf(w, "%s %s from %s:\n", req.Method, req.Path, client)
	for _, step := range signature {
		fmt.Fprintf(w, "signature: %s\n", step)
	}
	if file.UsesBrowsers() && req.Browser != fairshare.NotBrowser {
		fmt.Fprintf(w, "browser: %s\n", browserText(req))
	} else if file.UsesBrowsers() && claimed {
		fmt.Fprintf(w, "browser: no: the user agent is that of the bot %q; try --user-agent with that of a browser\n",
			req.Bot.Name)
	}
	if p.robots != nil && req.Bot.State != fairshare.NoBot {
		fmt.Fprintf(w, "robots.txt: %s\n", &req.Robots)
	} else if p.robots != nil {
		fmt.Fprintln(w, "robots.txt: the client is not a bot, so it does not count")
	}
	for i := range file.Sites {
		if site := &file.Sites[i]; site.Name == guard.SiteOf(req.Host) {
			fmt.Fprintln(w, site.Description())
		}
	}
	hidden := 0
	for _, step := range steps {
		switch {
		case step.Elsewhere:
		case !o.All && !(step.Reached && step.Holds):
			hidden++
		default:
			writeStep(w, &file.Policy.Rules[step.Rule], step, busy)
		}
	}
	if hidden > 0 {
		fmt.Fprintf(w, "  (--all shows why %s did not match)\n", prose.Plural(hidden, "other rule"))
	}
	fmt.Fprintf(w, "verdict: %s\n", verdictText(&verdict))
	if verdict.Enforced() == fairshare.Allow {
		p.writePassage(w, req, steps, o)
	}
	if bool(lookups) || req.Bot.State == fairshare.Pending {
		fmt.Fprintf(w, "the DNS was not asked about %s: conditions that need its answer do not match here\n", req.Addr)
	}
	if err := guard.Settle(ctx, &verdict, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil || o.Times < 2 {
		return err
	}
	return repeat(ctx, w, guard, req, &verdict, o)
}

// prepare sets all facts of a request that its client does not send. It returns what the signature of the request
// shows.
func (p *Policy) prepare(ctx context.Context, req *fairshare.Request, target string) (signature []string) {
	signature = p.setBot(ctx, req, target)
	if p.robots != nil {
		req.Robots = p.robots.Judge(&req.Bot, req.UserAgent, target)
	}
	if req.Bot.State != fairshare.NoBot && req.Browser != fairshare.BrowserLikely { // --browser says likely, no header
		req.Browser = fairshare.NotBrowser
	}
	req.Owner = p.owners.Owner(req.Addr)
	req.Lookups = new(unanswered)
	return signature
}

// newGuard returns a guard that has counted nothing.
func (p *Policy) newGuard(busy bool) (*fairshare.Guard, error) {
	limiter, err := memlimit.New(p.File.Policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		return nil, err
	}
	p.File.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true, Fleets: true,
		Busy: true, Browsers: true, Robots: true, Attempts: true, Forms: true})
	guard, err := fairshare.NewGuard(&p.File.Policy, limiter, membans.New(0))
	if err == nil {
		guard.UseBusy(func() bool { return busy })
	}
	return guard, err
}

// setBot sets the bot of a request with a target as sent. If the request has a signature, it returns what the
// signature shows, and waits for the keys of its agent.
func (p *Policy) setBot(ctx context.Context, req *fairshare.Request, target string) (signature []string) {
	bot := p.bots.Verifier.Look(req.Addr, req.UserAgent)
	defer func() { req.SetBot(bot) }()
	header, _ := req.Header.(http.Header)
	if len(header["Signature-Input"]) == 0 {
		return nil
	}
	explained := bots.Explanation{Bot: bot}
	p.bots.Verifier.ExplainSigned(ctx, &explained, &botauth.Request{Method: req.Method, Host: req.Host, Target: target,
		Header: header}, req.Addr, req.Time)
	bot = explained.Bot
	return explained.Steps
}

// browserText says what shows that the client is a browser.
func browserText(req *fairshare.Request) string {
	claim := browser.ClaimOf(req.UserAgent)
	s := req.Browser.String() + "; the user agent claims " + claim.String()
	if reason := browser.Contradiction(req, claim, browser.Conn{}); reason != "" {
		s += "; " + reason
	}
	return s
}

// writePassage writes what happens to a request that the rules let pass.
func (p *Policy) writePassage(w io.Writer, req *fairshare.Request, steps []fairshare.Step, o WalkOptions) {
	switch proxy.HostStatus(p.File.Hosts, req.Host) {
	case http.StatusBadRequest:
		fmt.Fprintf(w, "then 400: %q is not a host\n", req.Host)
	case http.StatusMisdirectedRequest:
		fmt.Fprintf(w, "then 421: %q is not among hosts\n", req.Host)
	}
	if settled := settledLater(&p.File.Policy, steps, o.Busy); settled != "" {
		fmt.Fprintf(w, "the cost is known only with the answer, and is charged then: %s\n", settled)
		if o.Times > 1 {
			fmt.Fprintln(w, "--times assumes that the answers cost nothing")
		}
	}
	if s := p.File.ServedShare(); s != nil && !p.File.Policy.DryRun {
		if s.Wait > 0 && s.Queue > 0 {
			fmt.Fprintf(w, "while the upstream is busy it waits for its turn, %s at most\n",
				policyfile.FormatDuration(s.Wait))
		} else {
			fmt.Fprintln(w, "while the upstream is busy it gets 503")
		}
	}
}

// settledLater returns the rules that charge a request only with its answer,
// and the resource that each counts.
func settledLater(p *fairshare.Policy, steps []fairshare.Step, busy bool) string {
	var rules []string
	for _, step := range steps {
		if rule := &p.Rules[step.Rule]; step.Holds && rule.Limit != nil && rule.Limit.Resource.Settled() &&
			(busy || rule.Limit.When != fairshare.Busy) {
			rules = append(rules, fmt.Sprintf("%s (%s)", rule.Limit.Resource, rule.Name))
		}
	}
	return strings.Join(rules, ", ")
}

// An unanswered is a [fairshare.Lookups] without answers. It is true once there
// was a lookup.
type unanswered bool

func (u *unanswered) Hostnames(netip.Addr) []string { *u = true; return nil }

func (u *unanswered) Listed(string, netip.Addr) []netip.Addr { *u = true; return nil }

// writeStep writes the part of one rule: whether it matched, why, and what
// follows.
func writeStep(w io.Writer, rule *fairshare.Rule, step fairshare.Step, busy bool) {
	if !step.Reached {
		fmt.Fprintf(w, "  %s: not reached\n", rule.Name)
		return
	}
	var reasons []string
	for _, r := range step.Reasons {
		if r.Holds == step.Holds {
			reasons = append(reasons, r.Text)
		}
	}
	if len(step.Reasons) == 0 {
		reasons = []string{"every request"}
	}
	why := strings.Join(reasons, "; ")
	if !step.Holds {
		fmt.Fprintf(w, "  %s: no: %s\n", rule.Name, why)
		return
	}
	if rule.Limit != nil && rule.Limit.When == fairshare.Busy && !busy {
		fmt.Fprintf(w, "  %s: not now: only while the upstream is busy (--busy): %s\n", rule.Name, why)
		return
	}
	effect := "blocked"
	switch {
	case rule.Limit != nil && rule.Limit.Resource == fairshare.Requests && rule.Limit.N == 0:
		effect = "refused"
	case rule.Limit != nil:
		effect = "counted by " + amount.Key(rule.Limit.By)
		if rule.Limit.Resource.Settled() {
			effect = rule.Limit.Resource.String() + " " + effect
		}
		switch rule.Limit.Distinct {
		case fairshare.DistinctPaths:
			effect += " once for each path"
		case fairshare.DistinctQueries:
			effect += " once for each path and query"
		}
	case rule.Action == fairshare.Block && rule.Ban != nil:
		effect = "blocked, and counted for a ban unless someone else may have caused it"
	case rule.Action == fairshare.Allow:
		effect = "allowed"
	}
	if rule.DryRun {
		effect += " in a dry run"
	}
	fmt.Fprintf(w, "  %s: yes, %s: %s\n", rule.Name, effect, why)
}

// verdictText returns a verdict and the rule that made it.
func verdictText(v *fairshare.Verdict) string {
	s := v.Action.String()
	if v.Rule != nil {
		s += " by " + v.Rule.Name
	}
	if v.Ban == fairshare.BanStarted {
		s += ", which starts a ban of " + policyfile.FormatDuration(banLength(&v.Finding))
	}
	if found := &v.DryRunFinding; found.Action != fairshare.Undecided {
		ban := ""
		if found.Ban == fairshare.BanStarted {
			ban = " and start a ban of " + policyfile.FormatDuration(banLength(found))
		}
		s += fmt.Sprintf(" (%s would %s%s)", found.Rule.Name, found.Action, ban)
	}
	if v.DryRun && v.Action != fairshare.Allow {
		s += " (let through: the whole policy is in dry run)"
	}
	return s
}

// banLength returns the length of the ban that a finding has started, without the part of up to a tenth that the guard
// adds to it.
func banLength(f *fairshare.Finding) time.Duration {
	terms := f.Rule.Ban
	length, most := float64(terms.For), float64(cmp.Or(terms.Max, max(24*time.Hour, terms.For)))
	for terms.Growth > 1 && length < most && length*1.1 <= float64(f.Wait) {
		length = min(length*terms.Growth, most)
	}
	return time.Duration(length).Round(time.Millisecond)
}
