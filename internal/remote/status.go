package remote

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
	"fairshare/internal/traffic"
)

// heaviest is how many keys of a dimension Status shows.
const heaviest = 3

// Status prints the state of the server on one screen.
func (s *Server) Status(env *cli.Environment) error {
	var now console.Now
	if err := s.Get(env.Context, "now", nil, &now); err != nil {
		return err
	}
	var rules console.Rules
	if err := s.Get(env.Context, "rules", nil, &rules); err != nil {
		return err
	}
	mode := "enforcing"
	if now.Mode == "dry_run" {
		mode = "dry run: every request passes"
	}
	env.Printf("%s protects %s, %s", prose.Printable(now.Address), prose.Printable(now.Upstream), mode)
	env.Printf("policy    %s, %s; version %s", prose.Printable(now.Policy), prose.Plural(now.Rules, "rule"),
		now.Version)
	if now.Attack != "" {
		env.Printf("ATTACK    %s", prose.Printable(now.Attack))
	}
	env.Printf("minute    %s", counts(&now.Minute))
	env.Printf("in all    %s", counts(&now.Totals))
	env.Printf("since     %s", prose.Moment(now.Since))
	if now.Shared {
		env.Printf("upstream  %s in progress of %d at once, %s waiting", prose.Plural(now.InProgress, "request"),
			now.Capacity, prose.Number(int64(now.Waiting)))
	}
	if now.Holder != "" {
		env.Printf("          %s", prose.Printable(now.Holder))
	}
	state := prose.Plural(now.Bans, "ban") + " of rules in force; registry: " + now.Registry
	if now.CountersLost > 0 {
		state += "; counters were lost, because the memory for them is too small"
	}
	env.Printf("state     %s", state)
	env.Printf("")
	if err := s.heavy(env); err != nil {
		return err
	}
	return printRules(env.Stdout, append(rules.Rules, rules.Others...))
}

// counts returns what was counted.
func counts(t *traffic.Totals) string {
	return fmt.Sprintf("%s passed (%s in dry run, %s failed), %s refused, %s blocked", prose.Number(t.Passed),
		prose.Number(t.DryRun), prose.Number(t.Failed), prose.Number(t.Refused), prose.Number(t.Blocked))
}

// heavy prints the heaviest keys of the last 15 minutes.
func (s *Server) heavy(env *cli.Environment) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "requests\tof all\trefused\ttime\t  last 15 minutes\n")
	for _, by := range []string{"client", "network", "owner", "fleet", "bot", "agent", "path"} {
		var list console.TopList
		if err := s.Get(env.Context, "top", url.Values{"by": {by}, "window": {"15m"}}, &list); err != nil {
			return err
		}
		for _, row := range list.Rows[:min(len(list.Rows), heaviest)] {
			more := ""
			if row.Error.Requests > 0 {
				more = "+"
			}
			name := prose.Cut(prose.Printable(strings.TrimSpace(row.Key+" "+row.Name)), 40)
			fmt.Fprintf(w, "%s%s\t%.0f %%\t%s\t%s\t  %s %s\n", prose.Number(row.Requests), more, 100*row.Share,
				prose.Number(row.Refused), seconds(row.Seconds), by, name)
		}
	}
	return w.Flush()
}

// printRules prints what the rules did that did something.
func printRules(out io.Writer, rules []console.Rule) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	n := 0
	for _, r := range rules {
		if r.Refused+r.Blocked+r.WouldBe == 0 {
			continue
		}
		if n++; n == 1 {
			fmt.Fprint(w, "\nrefused\tblocked\tdry run\tbans\t  rule, since the start\n")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t  %s\n", prose.Number(r.Refused), prose.Number(r.Blocked),
			prose.Number(r.WouldBe), prose.Number(r.Bans), prose.Cut(prose.Printable(r.Name), 44))
	}
	return w.Flush()
}

func seconds(s float64) string {
	return prose.ShortDuration(time.Duration(s * float64(time.Second)))
}
