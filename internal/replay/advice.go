package replay

import (
	"fmt"
	"strings"
	"time"

	"fairshare/internal/prose"
)

// Advice says what to do about a log.
type Advice struct {
	// Findings are the clients that take most of the site and are not refused, the largest share first.
	Findings []Finding `json:"findings"`

	// Measured says that Rules were replayed. A log of many lines is replayed only once, and
	// fairshare suggest does the rest.
	Measured bool `json:"measured"`
	// Rules would have helped most: at most three. Together they have the figures here.
	Rules []AdvisedRule `json:"rules"`

	Suggest string `json:"suggest,omitempty"` // a command that measures the rules

	// Notes describe clients that take much and get no rule.
	Notes []string `json:"notes"`

	// Estimated says that the figures of Rules are estimates from the use in each hour.
	Estimated bool `json:"estimated,omitempty"`
}

// A Finding is a bot or client that takes much of the site.
type Finding struct {
	Name          string  `json:"name"` // "gptbot", "192.0.2.7 (hey)"
	Usage                 // that was not refused
	RequestsShare float64 `json:"requests_share"` // of all judged requests, from 0 to 1
	BytesShare    float64 `json:"bytes_share"`
	TimeShare     float64 `json:"time_share"`
}

// An AdvisedRule is a rule for the policy.
type AdvisedRule struct {
	Name    string   `json:"name"`
	Reasons []string `json:"reasons"` // a sentence each
	YAML    string   `json:"yaml"`    // the rule as an item of "rules", without indentation
	// Refused has the requests that the rule refused. A replay with all advised rules prints the
	// same figures.
	Refused Usage `json:"refused"`
	Clients int64 `json:"clients"` // refused by it
	People  int64 `json:"people"`  // of Clients: those that look like people

	// Estimated says that the rule was not replayed: Refused is an estimate, and Clients has all
	// clients that it concerns.
	Estimated bool `json:"estimated,omitempty"`
}

// AddFinding adds a bot or client that takes a share of all that the log has.
func (a *Advice) AddFinding(name string, u, all Usage) {
	f := Finding{Name: name, Usage: u, RequestsShare: part(u.Requests, all.Requests),
		BytesShare: part(u.Bytes, all.Bytes)}
	if all.Seconds > 0 {
		f.TimeShare = u.Seconds / all.Seconds
	}
	a.Findings = append(a.Findings, f)
}

// Shares describes the shares that matter: "31 % of the requests and 81 % of the bytes".
func (f *Finding) Shares() string {
	var parts []string
	most := max(f.RequestsShare, f.BytesShare, f.TimeShare)
	for _, s := range []struct {
		share float64
		of    string
	}{{f.RequestsShare, "requests"}, {f.BytesShare, "bytes"}, {f.TimeShare, "time"}} {
		if s.share >= 0.1 || s.share == most {
			parts = append(parts, prose.Share(s.share)+" of the "+s.of)
		}
	}
	return prose.List(parts, "and")
}

// Text describes figures with their units: "2,826 requests, 730.0 MB and 12.5 s".
func (u Usage) Text() string {
	parts := []string{prose.Plural(u.Requests, "request")}
	if u.Bytes > 0 {
		parts = append(parts, prose.Size(u.Bytes))
	}
	if u.Seconds > 0 {
		parts = append(parts, duration(u.Seconds))
	}
	return prose.List(parts, "and")
}

// duration describes a sum of seconds.
func duration(seconds float64) string {
	if seconds < 120 {
		return prose.Seconds((time.Duration(seconds * float64(time.Second))).Round(10 * time.Millisecond))
	}
	return prose.Duration(time.Duration(seconds) * time.Second)
}

// Effect describes what the rule would have done.
func (r *AdvisedRule) Effect() string {
	people := "none that looks like a person"
	if r.People > 0 {
		people = fmt.Sprintf("%s of them look like people", prose.Number(r.People))
		if r.People == 1 {
			people = "1 of them looks like a person"
		}
	}
	if r.Estimated {
		return fmt.Sprintf("By the use in each hour, it would have refused about %s. It concerns %s, %s.",
			r.Refused.Text(), prose.Plural(r.Clients, "client"), people)
	}
	return fmt.Sprintf("It would have refused %s of %s, %s.", r.Refused.Text(), prose.Plural(r.Clients, "client"),
		people)
}

// advice writes what to do.
func (p *printer) advice(r *Report) {
	a := r.Advice
	if a == nil {
		return
	}
	p.heading("What to do")
	switch {
	case a.Estimated:
		p.text(2, 2, "The figures are estimates: this log has too many lines to replay it several times without being asked.")
		p.w.WriteByte('\n')
	case len(a.Rules) > 0:
	case a.Measured && len(a.Findings) == 0:
		p.text(2, 2, "No rule is needed: nothing that the policy lets pass takes much of the site without signs of people.")
	case a.Measured:
		p.text(2, 2, "No rule is needed: no further one would have helped much without touching people.")
	default:
		for i := range a.Findings {
			p.text(2, 2, fmt.Sprintf("%s: %s pass the policy.", prose.Printable(a.Findings[i].Name),
				a.Findings[i].Shares()))
		}
		if len(a.Findings) == 0 {
			p.text(2, 2, "No crawler or tool with a name takes much of the site.")
		}
		p.text(2, 2, "No rules were tried: this log has too many lines to replay it several times without being asked. "+
			"This does it, for clients without a name as well, and writes a policy:")
		p.line("    %s", prose.Printable(a.Suggest))
	}
	for i := range a.Rules {
		rule := &a.Rules[i]
		if i > 0 {
			p.w.WriteByte('\n')
		}
		for k, reason := range rule.Reasons {
			lead := "   "
			if k == 0 {
				lead = fmt.Sprintf("%d. ", i+1)
			}
			for n, l := range prose.Wrap(prose.Printable(reason), p.Width-5) {
				if n > 0 {
					lead = "   "
				}
				p.line("  %s%s", lead, l)
			}
		}
		p.text(5, 0, rule.Effect())
		for _, l := range strings.Split(strings.TrimSuffix(rule.YAML, "\n"), "\n") {
			p.line("       %s", l)
		}
	}
	if len(a.Rules) > 0 {
		p.w.WriteByte('\n')
		what := "This writes a policy with these rules, to replay and use:"
		if a.Estimated {
			what = "This replays the log, tries limits for clients without a name as well, and writes a policy:"
		}
		p.text(2, 2, what)
		p.line("    %s", prose.Printable(a.Suggest)) // in one line, to paste
	}
	for _, note := range a.Notes {
		p.text(2, 2, prose.Printable(note))
	}
}
