package console

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"fairshare"
	"fairshare/internal/cli"
)

// A Question is a request to explain. Only Client is needed.
type Question struct {
	Client    string // an address
	Method    string // "" means GET
	Host      string
	Path      string // with a query, if rules ask for one; "" means /
	UserAgent string // "" means the latest of this client that is recorded
}

// Explain walks a request through the rules, with what is counted now. Nothing is counted.
func (c *Console) Explain(ctx context.Context, q Question) (*Explanation, error) {
	id, addr, err := c.clientID(q.Client)
	if err != nil {
		return nil, err
	}
	if id.Bot != "" || strings.Contains(q.Client, "/") {
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("%s is not an address", q.Client),
			"a request comes from one address: 203.0.113.9"))
	}
	known := &Client{}
	if err := c.records(ctx, id, known); err != nil {
		return nil, err
	}
	rt := c.Policy.Current()
	v := &Explanation{Client: id.String(), Method: cmp.Or(strings.ToUpper(q.Method), "GET"), Host: q.Host,
		Path: cmp.Or(q.Path, "/"), Agent: cmp.Or(q.UserAgent, known.UserAgent), Decision: known.Decision,
		Bans:  []Ban{},
		Steps: []Step{}, Assumed: []string{"it has no header but Host and User-Agent, and no cookie"}}
	if v.Path[0] != '/' {
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("path: %q does not begin with /", v.Path),
			"such as /shop?page=2"))
	}
	switch {
	case q.UserAgent == "" && v.Agent != "":
		v.Assumed = append(v.Assumed, "its user agent is the latest of this client")
	case v.Agent == "":
		v.Assumed = append(v.Assumed, "it has no user agent, because none of this client is recorded")
	}
	if known.Fleet != "" {
		v.Assumed = append(v.Assumed, "it belongs to "+known.Fleet+", as the latest request of this client")
	}
	for _, b := range known.Bans {
		if b.InForce && !b.DryRun && covers(b.Client, id) {
			v.Bans = append(v.Bans, b)
		}
	}
	req := c.request(addr, v.Method, v.Host, v.Path, v.Agent, known.Fleet)
	steps, err := rt.File.Policy.Explain(req)
	if err != nil {
		return nil, err
	}
	used, err := c.usage(ctx, req)
	if err != nil {
		return nil, err
	}
	banned := rt.Guard.Banned(req, c.Policy.Now())
	verdict := "it passes: no rule refuses it"
	over, wait := "", 0.0
	for _, s := range steps {
		rule := &rt.File.Policy.Rules[s.Rule]
		step := Step{Rule: rule.Name, Reached: s.Reached, Holds: s.Holds, Action: actionOf(rule),
			DryRun: rule.DryRun || rt.File.Policy.DryRun, Reasons: []string{}, Limits: []Usage{}}
		for _, r := range s.Reasons {
			if r.Holds == s.Holds {
				step.Reasons = append(step.Reasons, r.Text)
			}
		}
		for _, u := range used {
			if u.Rule != rule.Name {
				continue
			}
			step.Limits = append(step.Limits, u)
			if u.Over && !rule.DryRun && (over == "" || u.Wait > wait) {
				over, wait = fmt.Sprintf("it is refused by rule %q: %s", rule.Name, u.Text), u.Wait
			}
		}
		if s.Holds && !rule.DryRun {
			switch rule.Action {
			case fairshare.Allow:
				verdict = fmt.Sprintf("it passes: rule %q allows it", rule.Name)
			case fairshare.Block:
				over, verdict = "", fmt.Sprintf("it is blocked by rule %q", rule.Name)
			}
		}
		v.Steps = append(v.Steps, step)
	}
	switch {
	case v.Decision != nil:
		verdict = fmt.Sprintf("an operator's decision about %s comes first: %s", v.Decision.Client, v.Decision.Action)
	case banned.Rule != nil:
		client := v.Client
		for _, b := range v.Bans {
			if b.Rule == banned.Rule.Name {
				client = b.Client
			}
		}
		verdict = fmt.Sprintf("it is refused: rule %q has banned %s", banned.Rule.Name, client)
	case over != "":
		verdict = over
	}
	if rt.File.Policy.DryRun {
		verdict = "it passes, because the policy is in dry run; otherwise " + verdict
	}
	v.Verdict = verdict
	return v, nil
}

// covers reports whether a ban of a client covers another client.
func covers(ban string, id fairshare.ClientID) bool {
	b, err := fairshare.ParseClientID(ban)
	return err == nil && (b == id || b.Prefix.IsValid() && id.Prefix.IsValid() &&
		b.Prefix.Bits() <= id.Prefix.Bits() &&
		b.Prefix.Contains(id.Prefix.Addr()))
}
