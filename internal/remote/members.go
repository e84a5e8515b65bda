package remote

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
)

// Members prints the programs that count together with the server.
func (s *Server) Members(env *cli.Environment) error {
	var g console.Group
	if err := s.Get(env.Context, "members", nil, &g); err != nil {
		return err
	}
	if g.Name == "" {
		return cli.Hint(errors.New("this server counts for itself: its policy has no store"),
			"store: redis://127.0.0.1:6379 in the policy file of each server; docs/machines.md")
	}
	env.Printf("group     %s, %s in %s (%s)", prose.Printable(g.Name), prose.Plural(len(g.Members), "member"),
		prose.Printable(g.Store), g.Topology)
	switch {
	case !g.Away && g.RoundTrip50 == 0:
		env.Printf("store     answers; nobody had to wait for it in the last minute")
	case !g.Away:
		env.Printf("store     answers; round trip %s, 99 of 100 within %s", milliseconds(g.RoundTrip50),
			milliseconds(g.RoundTrip99))
	case g.Divided > 1:
		env.Printf("STORE     away since %s: %s; this server admits 1/%d of each limit", prose.Moment(*g.AwaySince),
			prose.Printable(g.Reason), g.Divided)
	default:
		env.Printf("STORE     away since %s: %s", prose.Moment(*g.AwaySince), prose.Printable(g.Reason))
	}
	judged := g.Questions + g.Credit + g.Refused + g.DecidedAway
	env.Printf("decisions %s asked the store (%s), %s passed without, %s were refused without, %s while it was away or "+
		"late",
		prose.Number(g.Questions), prose.Percent(g.Questions, max(judged, 1)), prose.Number(g.Credit),
		prose.Number(g.Refused), prose.Number(g.DecidedAway))
	if g.HandedOver > 0 || g.Unreadable > 0 {
		env.Printf("          %s reported after the store was away; %s in the store unreadable",
			prose.Plural(g.HandedOver, "count"), prose.Plural(g.Unreadable, "state"))
	}
	if updates := g.Replaced + g.Contended; updates > 0 {
		env.Printf("updates   %s replaced counts in the store; %s were decided there, since another member was first",
			prose.Percent(g.Replaced, updates), prose.Percent(g.Contended, updates))
	}
	if b := &g.Bans; b.Shared {
		env.Printf("bans      the store has %s of all members, with those that were lifted; %s of this server wait",
			prose.Plural(b.Stored, "ban"), prose.Number(b.Waiting))
	} else {
		env.Printf("BANS      not shared at present: this server bans for itself, and hands its bans over later")
	}
	if ahead := time.Duration(g.ClockAhead * float64(time.Second)); ahead.Abs() >= 10*time.Millisecond {
		env.Printf("clock     the store's clock differs by %s from this machine's; the store's counts",
			ahead.Abs().Round(time.Millisecond))
	}
	for _, q := range g.Queues {
		site := "the upstream"
		if q.Site != "" {
			site = prose.Printable(q.Site)
		}
		switch {
		case q.Away:
			env.Printf("QUEUE     %s: this server does not hear the others, and has %s of %s", site,
				prose.Plural(q.Slots, "slot"), prose.Number(q.Capacity))
		case q.Leads:
			env.Printf("queue     %s: %s for %s, %s here; this server finds the capacity", site,
				prose.Plural(q.Capacity, "slot"), prose.Plural(q.Members, "member"), prose.Number(q.Slots))
		default:
			env.Printf("queue     %s: %s for %s, %s here", site, prose.Plural(q.Capacity, "slot"),
				prose.Plural(q.Members, "member"), prose.Number(q.Slots))
		}
	}
	env.Printf("")
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tID\tPOLICY\tSINCE\t")
	for _, m := range g.Members {
		mark := ""
		if m.Self {
			mark = "this one"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", prose.Printable(m.Name), m.ID, m.Policy, prose.Moment(m.Since), mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range g.Members {
		if g.Members[i].Policy != g.Members[0].Policy {
			env.Printf("\nMembers with different policies count only what both have: same rule, resource, per and by.")
			break
		}
	}
	return nil
}

func milliseconds(s float64) string { return fmt.Sprintf("%.3g ms", s*1000) }
