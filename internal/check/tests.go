package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/internal/proxy"
	"fairshare/policyfile"
)

// RunTests runs the tests of the policy. It writes how many passed to out, and each failure with its position to
// failures. failed reports whether there was one.
func (p *Policy) RunTests(ctx context.Context, out, failures io.Writer) (failed bool, err error) {
	tests := p.File.Tests
	if len(tests) == 0 {
		return false, nil
	}
	n := 0
	for i := range tests {
		switch err := p.runTest(ctx, &tests[i]); {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			n++
			fmt.Fprint(failures, tests[i].Fault(fmt.Errorf("the test %q fails: %w", tests[i].Name, err),
				"fairshare check "+p.File.Name+" --try shows why the rules match a request").Text())
		}
	}
	if n > 0 {
		fmt.Fprintf(out, "tests: %d of %s failed.\n", n, prose.Plural(int64(len(tests)), "test"))
		return true, nil
	}
	fmt.Fprintf(out, "tests: %s passed.\n", prose.Plural(int64(len(tests)), "test"))
	return false, nil
}

// runTest plays the requests of a test, and returns how the verdict on the last one differs from the expected one.
func (p *Policy) runTest(ctx context.Context, t *policyfile.Test) error {
	described := Request{Target: t.Request, Addr: t.Addr, Through: t.Through, UserAgent: t.UserAgent, Cookie: t.Cookie,
		Host: t.Host, Labels: t.Labels, Attempts: t.Attempts, Browser: t.Browser}
	for _, name := range slices.Sorted(maps.Keys(t.Header)) {
		described.Header = append(described.Header, name+": "+t.Header[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.Form)) {
		described.Form = append(described.Form, name+"="+t.Form[name])
	}
	req, err := described.Parse()
	if err != nil {
		return err
	}
	p.prepare(ctx, req, described.RawTarget())
	if t.BotState != fairshare.NoBot {
		if req.Bot.State == fairshare.NoBot {
			return fmt.Errorf("state: %s: the user agent names no bot", t.BotState)
		}
		bot := req.Bot
		bot.State = t.BotState
		if req.SetBot(bot); req.Bot.State != t.BotState {
			return fmt.Errorf("state: %s: a client that a peer names (through) proves nothing", t.BotState)
		}
	}
	guard, err := p.newGuard(t.Busy)
	if err != nil {
		return err
	}
	times := max(t.Times, 1)
	req.Time = req.Time.Truncate(24 * time.Hour)
	var last fairshare.Verdict
	for n := range times {
		next := *req
		next.Time = req.Time.Add(time.Duration(n) * t.Every)
		if last, err = guard.Decide(ctx, &next); err != nil {
			return err
		}
		if n == times-1 {
			break
		}
		if err := guard.Settle(ctx, &last, fairshare.Outcome{Time: next.Time, Status: http.StatusOK}); err != nil {
			return err
		}
	}
	if err := p.compare(&t.Expect, &last, req); err != nil {
		if times > 1 {
			return fmt.Errorf("the last of %s requests: %w", prose.Number(int64(times)), err)
		}
		return err
	}
	return guard.Settle(ctx, &last, fairshare.Outcome{Time: req.Time, Status: http.StatusOK})
}

// compare returns how a verdict differs from what is expected.
func (p *Policy) compare(want *policyfile.Expectation, v *fairshare.Verdict, req *fairshare.Request) error {
	got, rule := v.Action, v.Rule
	if want.DryRun {
		got, rule = v.DryRunFinding.Action, v.DryRunFinding.Rule
		if got == fairshare.Undecided {
			return fmt.Errorf("expected that a rule in dry run would %s, but none does", want.Action)
		}
	}
	if got == fairshare.Allow {
		var err error
		if rule, err = p.allowing(req); err != nil {
			return err
		}
	}
	name := ""
	if rule != nil {
		name = rule.Name
	}
	if got != want.Action || want.Rule != "" && want.Rule != name {
		return fmt.Errorf("expected %s, got %s", verdictOf(want.Action, want.Rule), verdictOf(got, name))
	}
	if status := p.status(got, rule, req.Host); want.Status != 0 && want.Status != status {
		return fmt.Errorf("expected status %d, got %d", want.Status, status)
	}
	return nil
}

// allowing returns the rule that allows a request and ends its walk; nil if none does.
func (p *Policy) allowing(req *fairshare.Request) (*fairshare.Rule, error) {
	steps, err := p.File.Policy.Explain(req)
	for _, step := range steps {
		rule := &p.File.Policy.Rules[step.Rule]
		if step.Reached && step.Holds && rule.Limit == nil && rule.Action == fairshare.Allow {
			return rule, err
		}
	}
	return nil, err
}

func verdictOf(action fairshare.Action, rule string) string {
	if rule == "" {
		return action.String()
	}
	return fmt.Sprintf("%s by %q", action, rule)
}

// status returns the status of the answer, and 200 if the request passes and its host is one of the policy's.
func (p *Policy) status(action fairshare.Action, rule *fairshare.Rule, host string) int {
	switch {
	case action == fairshare.Allow:
		return proxy.HostStatus(p.File.Hosts, host)
	case rule != nil && rule.Answer != nil && rule.Answer.Status != 0:
		return rule.Answer.Status
	case rule != nil && rule.Answer != nil && rule.Answer.Redirect != "":
		return http.StatusSeeOther
	case action == fairshare.Block:
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}
