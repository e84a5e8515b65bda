package remote

import (
	"net/url"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
)

// Explain prints the walk of a request through the rules, with what is counted now.
func (s *Server) Explain(env *cli.Environment, q console.Question) error {
	query := url.Values{}
	for name, value := range map[string]string{"client": q.Client, "path": q.Path, "method": q.Method, "host": q.Host,
		"user_agent": q.UserAgent} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var v console.Explanation
	if err := s.Get(env.Context, "explain", query, &v); err != nil {
		return err
	}
	path, _, _ := strings.Cut(v.Path, "?")
	env.Printf("%s %s from %s:", prose.Printable(v.Method), prose.Printable(v.Host+path), prose.Printable(v.Client))
	for _, text := range v.Assumed {
		env.Printf("  assumed: %s", prose.Printable(text))
	}
	if d := v.Decision; d != nil {
		env.Printf("  an operator's decision about %s: %s", prose.Printable(d.Client), d.Action)
	}
	for _, b := range v.Bans {
		env.Printf("  banned: %s until %s, by rule %q", prose.Printable(b.Client), prose.Moment(b.Until),
			prose.Printable(b.Rule))
	}
	for i := range v.Steps {
		printStep(env, &v.Steps[i])
	}
	env.Printf("verdict: %s", prose.Printable(v.Verdict))
	return nil
}

func printStep(env *cli.Environment, step *console.Step) {
	name := prose.Printable(step.Rule)
	if !step.Reached {
		env.Printf("  %s: not reached", name)
		return
	}
	does := "does not match"
	if step.Holds {
		does = "matches"
	}
	if len(step.Reasons) > 0 {
		does += ": " + prose.Printable(strings.Join(step.Reasons, "; "))
	}
	env.Printf("  %s: %s", name, does)
	for _, u := range step.Limits {
		state := "passes"
		if u.Over {
			state = "over"
			if u.Wait > 0 {
				state += ", for " + seconds(u.Wait)
			}
		}
		if step.DryRun {
			state += " (dry run)"
		}
		env.Printf("    now %s, by %s: %s", u.Text, prose.Printable(u.By), state)
	}
}
