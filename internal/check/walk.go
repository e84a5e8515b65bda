package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"fairshare"
	"fairshare/internal/amount"
	"fairshare/internal/proxy"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// Walk decides one request with a new guard, whose counters are empty. It
// writes for each rule whether it matched and why, and then the verdict.
func (p *Policy) Walk(ctx context.Context, w io.Writer, req *fairshare.Request) error {
	file := p.File
	req.SetBot(p.bots.Verifier.Look(req.Addr, req.UserAgent))
	req.Owner = p.owners.Owner(req.Addr)
	steps, err := file.Policy.Explain(req)
	if err != nil {
		return err
	}
	limiter, err := memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		return err
	}
	file.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true})
	guard, err := fairshare.NewGuard(&file.Policy, limiter, membans.New(0))
	if err != nil {
		return err
	}
	var lookups unanswered
	req.Lookups = &lookups
	verdict, err := guard.Decide(ctx, req)
	if err != nil {
		return err
	}
	client := fairshare.PrefixID(netip.PrefixFrom(req.Addr, req.Addr.BitLen()))
	client.Via = req.Via
	fmt.Fprintf(w, "%s %s from %s:\n", req.Method, req.Path, client)
	for _, step := range steps {
		writeStep(w, &file.Policy.Rules[step.Rule], step)
	}
	fmt.Fprintf(w, "verdict: %s\n", verdictText(&verdict))
	if verdict.Enforced() == fairshare.Allow {
		p.writePassage(w, req, steps)
	}
	if bool(lookups) || req.Bot.State == fairshare.Pending {
		fmt.Fprintf(w, "the DNS was not asked about %s: conditions that need its answer do not match here\n", req.Addr)
	}
	return guard.Settle(ctx, &verdict, fairshare.Outcome{Time: req.Time, Status: 200})
}

// writePassage writes what happens to a request that the rules let pass.
func (p *Policy) writePassage(w io.Writer, req *fairshare.Request, steps []fairshare.Step) {
	switch proxy.HostStatus(p.File.Hosts, req.Host) {
	case http.StatusBadRequest:
		fmt.Fprintf(w, "then 400: %q is not a host\n", req.Host)
	case http.StatusMisdirectedRequest:
		fmt.Fprintf(w, "then 421: %q is not among hosts\n", req.Host)
	}
	if settled := settledLater(&p.File.Policy, steps); settled != "" {
		fmt.Fprintf(w, "the cost is known only with the answer, and is charged then: %s\n", settled)
	}
	if s := p.File.Share; s != nil && !p.File.Policy.DryRun {
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
func settledLater(p *fairshare.Policy, steps []fairshare.Step) string {
	var rules []string
	for _, step := range steps {
		if rule := &p.Rules[step.Rule]; step.Holds && rule.Limit != nil && rule.Limit.Resource.Settled() {
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
func writeStep(w io.Writer, rule *fairshare.Rule, step fairshare.Step) {
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
	effect := "blocked"
	switch {
	case rule.Limit != nil:
		effect = "counted by " + amount.Key(rule.Limit.By)
		if rule.Limit.Resource.Settled() {
			effect = rule.Limit.Resource.String() + " " + effect
		}
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
	if v.DryRunFinding.Action != fairshare.Undecided {
		s += fmt.Sprintf(" (%s would %s)", v.DryRunFinding.Rule.Name, v.DryRunFinding.Action)
	}
	if v.DryRun && v.Action != fairshare.Allow {
		s += " (let through: the whole policy is in dry run)"
	}
	return s
}
