package fairshare_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// exampleTime is the time of the first request of an example.
var exampleTime = time.Unix(1_800_000_000, 0)

// exampleGuard returns a guard that counts in memory.
func exampleGuard(policy *fairshare.Policy) *fairshare.Guard {
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	return guard
}

// decide judges a request, prints the verdict and settles it.
func decide(guard *fairshare.Guard, after time.Duration, method, target string) fairshare.Verdict {
	req := fairshare.Request{Time: exampleTime.Add(after), Addr: netip.MustParseAddr("192.0.2.1"), Method: method}
	req.SetTarget(target)
	v, err := guard.Decide(context.Background(), &req)
	if err != nil {
		panic(err)
	}
	rule := "no rule"
	if v.Rule != nil {
		rule = v.Rule.Name
	}
	fmt.Println(method, target, v.Action, "by", rule, v.Wait.Round(time.Second))
	if err := guard.Settle(context.Background(), &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
		panic(err)
	}
	return v
}

// One limit for each client address.
func ExampleGuard_Decide() {
	guard := exampleGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "two a minute", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Minute},
	}}})
	for range 3 {
		decide(guard, 0, "GET", "/")
	}
	decide(guard, 2*time.Minute, "GET", "/")
	// Output:
	// GET / allow by no rule 0s
	// GET / allow by no rule 0s
	// GET / refuse by two a minute 1m30s
	// GET / allow by no rule 0s
}

// Rules are evaluated from top to bottom: allow and block end the walk, limits
// are gathered and taken together.
func ExamplePolicy() {
	guard := exampleGuard(&fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "styles", Match: fairshare.Match{Path: []string{"*.css"}}, Action: fairshare.Allow},
		{Name: "secrets", Match: fairshare.Match{Path: []string{"*.env"}}, Action: fairshare.Block},
		{Name: "logins", Match: fairshare.Match{Method: []string{"POST"}, Path: []string{"/login"}},
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}},
	}})
	decide(guard, 0, "GET", "/site.css")
	decide(guard, 0, "GET", "/.env")
	decide(guard, 0, "POST", "/login")
	decide(guard, 0, "POST", "/login")
	// Output:
	// GET /site.css allow by no rule 0s
	// GET /.env block by secrets 0s
	// POST /login allow by no rule 0s
	// POST /login refuse by logins 2m0s
}

// Refusals of a rule become a ban of the client.
func ExampleBanTerms() {
	guard := exampleGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "pages", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Second},
		Ban: &fairshare.BanTerms{After: 2, For: time.Hour},
	}}})
	for range 3 {
		v := decide(guard, 0, "GET", "/")
		fmt.Println("  ban started:", v.Ban == fairshare.BanStarted)
	}
	v := decide(guard, 10*time.Minute, "GET", "/")
	fmt.Println("  ban in force:", v.Ban == fairshare.BanInForce)
	// Output:
	// GET / allow by no rule 0s
	//   ban started: false
	// GET / refuse by pages 2s
	//   ban started: false
	// GET / refuse by pages 1h1m55s
	//   ban started: true
	// GET / refuse by pages 51m55s
	//   ban in force: true
}

// A rule in dry run reports what it would do and enforces nothing.
func ExampleRule_dryRun() {
	guard := exampleGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "new limit", DryRun: true,
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute},
	}}})
	for range 2 {
		v := decide(guard, 0, "GET", "/")
		fmt.Println("  the dry run:", v.DryRunFinding.Action)
	}
	// Output:
	// GET / allow by no rule 0s
	//   the dry run: undecided
	// GET / allow by no rule 0s
	//   the dry run: refuse
}

// Explain says for each rule whether its match holds for a request, and why.
func ExamplePolicy_Explain() {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "office", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("198.51.100.0/24")}},
			Action: fairshare.Allow},
		{Name: "secrets", Match: fairshare.Match{Path: []string{"*.env"}}, Action: fairshare.Block},
		{Name: "everything", Action: fairshare.Allow},
	}}
	req := fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET"}
	req.SetTarget("/.env")
	steps, err := policy.Explain(&req)
	if err != nil {
		panic(err)
	}
	for _, step := range steps {
		fmt.Println(policy.Rules[step.Rule].Name, "reached:", step.Reached, "holds:", step.Holds)
	}
	// Output:
	// office reached: true holds: false
	// secrets reached: true holds: true
	// everything reached: false holds: false
}
