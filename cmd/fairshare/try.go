package main

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/amount"
	"fairshare/internal/cli"
	"fairshare/internal/proxy"
	"fairshare/internal/setup"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// request returns the request that --try and its companions describe.
func (c *checkCmd) request() (*fairshare.Request, error) {
	req := &fairshare.Request{Method: "GET", Host: c.Host, UserAgent: c.UserAgent, Time: time.Now()}
	method, target, found := strings.Cut(strings.TrimSpace(c.Try), " ")
	if found {
		req.Method = method
	} else {
		target = method
	}
	target, _, _ = strings.Cut(strings.TrimSpace(target), " ") // a protocol may stand behind it
	if target == "" || target[0] != '/' && target != "*" && !strings.Contains(target, ":") {
		return nil, fmt.Errorf("--try: a method and a path are needed, as in --try 'GET /x', not %q", c.Try)
	}
	req.SetTarget(target)
	addr := c.Addr
	if addr == "" {
		addr = "203.0.113.1"
	}
	var err error
	if req.Addr, err = netip.ParseAddr(addr); err != nil {
		return nil, fmt.Errorf("--addr: %q is no address", c.Addr)
	}
	req.Addr = req.Addr.Unmap().WithZone("")
	if c.Through != "" {
		peer, err := netip.ParseAddr(c.Through)
		if err != nil || !clientaddr.IsLocal(peer) {
			return nil, fmt.Errorf("--through: %q is no address of this machine or a private network", c.Through)
		}
		req.Via = peer.Unmap().WithZone("")
	}
	header := http.Header{}
	for _, line := range c.Header {
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, fmt.Errorf("--header: a name, a colon and a value are needed, not %q", line)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	if c.UserAgent != "" {
		header.Set("User-Agent", c.UserAgent)
	} else {
		req.UserAgent = header.Get("User-Agent")
	}
	if c.Cookie != "" {
		cookie := c.Cookie
		if !strings.Contains(cookie, "=") {
			cookie += "=1"
		}
		header.Add("Cookie", cookie)
	}
	if c.Host == "" {
		req.Host = header.Get("Host")
	}
	req.Header = header
	for _, s := range c.Label {
		label, err := policyfile.ParseLabel(s)
		if err != nil {
			return nil, fmt.Errorf("--label: %w: %s", err, err.(*policyfile.LabelError).Hint())
		}
		req.Override.Labels = append(req.Override.Labels, label)
	}
	return req, nil
}

// try walks the request through a fresh guard and tells what each rule said.
func (c *checkCmd) try(env *cli.Environment, file *policyfile.File, identifier *setup.BotIdentifier) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	req.SetBot(identifier.Verifier.Look(req.Addr, req.UserAgent))
	steps, err := file.Policy.Explain(req)
	if err != nil {
		return err
	}
	limiter, err := memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		return err
	}
	file.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true})
	guard, err := fairshare.NewGuard(&file.Policy, limiter, nil)
	if err != nil {
		return err
	}
	var asked unasked
	req.Lookups = &asked
	verdict, err := guard.Decide(env.Context, req)
	if err != nil {
		return err
	}
	from := fairshare.PrefixID(netip.PrefixFrom(req.Addr, req.Addr.BitLen()))
	from.Via = req.Via
	fmt.Fprintf(env.Stdout, "%s %s from %s:\n", req.Method, req.Path, from)
	for _, step := range steps {
		tellStep(env.Stdout, &file.Policy.Rules[step.Rule], step)
	}
	fmt.Fprintf(env.Stdout, "verdict: %s\n", verdictWords(&verdict))
	if verdict.Enforced() == fairshare.Allow {
		switch proxy.HostStatus(file.Hosts, req.Host) {
		case http.StatusBadRequest:
			fmt.Fprintf(env.Stdout, "then 400: %q is not a host\n", req.Host)
		case http.StatusMisdirectedRequest:
			fmt.Fprintf(env.Stdout, "then 421: %q is not among hosts\n", req.Host)
		}
	}
	if settled := settledLater(&file.Policy, steps); settled != "" && verdict.Enforced() == fairshare.Allow {
		fmt.Fprintf(env.Stdout, "what it costs is known only with its answer, and counted then: %s\n", settled)
	}
	if s := file.Share; s != nil && verdict.Enforced() == fairshare.Allow && !file.Policy.DryRun {
		if s.Wait > 0 && s.Queue > 0 {
			fmt.Fprintf(env.Stdout, "while the upstream is busy it waits for its turn, %s at most\n",
				policyfile.FormatDuration(s.Wait))
		} else {
			fmt.Fprintln(env.Stdout, "while the upstream is busy it gets 503")
		}
	}
	if bool(asked) || req.Bot.State == fairshare.Pending {
		fmt.Fprintf(env.Stdout, "the DNS was not asked about %s: what it alone can tell does not hold here\n", req.Addr)
	}
	return guard.Settle(env.Context, &verdict, fairshare.Outcome{Time: req.Time, Status: 200})
}

// settledLater names the rules that charge a request only with its answer, and
// what they count.
func settledLater(p *fairshare.Policy, steps []fairshare.Step) string {
	var rules []string
	for _, step := range steps {
		if rule := &p.Rules[step.Rule]; step.Holds && rule.Limit != nil && rule.Limit.Resource.Settled() {
			rules = append(rules, fmt.Sprintf("%s (%s)", rule.Limit.Resource, rule.Name))
		}
	}
	return strings.Join(rules, ", ")
}

// An unasked is Lookups that know nothing. It tells whether they were asked.
type unasked bool

func (u *unasked) Hostnames(netip.Addr) []string { *u = true; return nil }

func (u *unasked) Listed(string, netip.Addr) []netip.Addr { *u = true; return nil }

// tellStep writes one rule's part: whether it held, why, and what follows.
func tellStep(w io.Writer, rule *fairshare.Rule, step fairshare.Step) {
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
	what := "blocked"
	switch {
	case rule.Limit != nil:
		what = "counted by " + amount.Key(rule.Limit.By)
		if rule.Limit.Resource.Settled() {
			what = rule.Limit.Resource.String() + " " + what
		}
	case rule.Action == fairshare.Allow:
		what = "allowed"
	}
	if rule.DryRun {
		what += " in a dry run"
	}
	fmt.Fprintf(w, "  %s: yes, %s: %s\n", rule.Name, what, why)
}

func verdictWords(v *fairshare.Verdict) string {
	s := v.Action.String()
	if v.Rule != nil {
		s += " by " + v.Rule.Name
	}
	if v.DryRunFinding.Action != fairshare.Undecided {
		s += fmt.Sprintf(" (%s would %s)", v.DryRunFinding.Rule.Name, v.DryRunFinding.Action)
	}
	if v.DryRun && v.Action != fairshare.Allow {
		s += " (let through: the whole policy is dry)"
	}
	return s
}
