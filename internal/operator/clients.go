package operator

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/policyfile"
	"fairshare/registry"
)

// ClientsOptions say which clients to list, and how.
type ClientsOptions struct {
	Sort   string // as registry.Query.Sort
	Bot    string // only clients that were recognized as this bot; "" for all
	Label  string // only clients with this label of their own; "" for all
	Sticky bool   // only clients that operators have set something on
	Top    int    // how many at most; 0 for all
	By     string // sums by network, owner, fleet or bot in place of clients; "" for clients
	JSON   bool   // one object a line
}

// Clients lists clients.
func Clients(env *cli.Environment, state string, opts ClientsOptions) error {
	o, err := openToRead(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	if opts.By != "" {
		return o.groups(opts)
	}
	top := opts.Top
	if top == 0 {
		top = math.MaxInt32 - 1
	}
	records, err := o.Clients(o.Context, registry.Query{Sort: opts.Sort, Bot: opts.Bot, Label: opts.Label,
		Sticky: opts.Sticky, Limit: top + 1})
	if err != nil {
		return o.failed(err)
	}
	more := len(records) > top
	records = records[:min(len(records), top)]
	if opts.JSON {
		out := bufio.NewWriter(o.Stdout)
		for i := range records {
			if err := writeJSON(out, jsonClient(&records[i])); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	if err := o.printAttack(); err != nil {
		return err
	}
	if err := o.printHolder(); err != nil {
		return err
	}
	if len(records) == 0 {
		if opts.Bot+opts.Label != "" || opts.Sticky {
			o.Printf("no recorded client matches")
		} else {
			o.Printf("no client is recorded yet; serve records new clients within seconds")
		}
		return nil
	}
	if err := o.heaviest(); err != nil {
		return err
	}
	if err := o.table(records, opts.Sort); err != nil || !more {
		return err
	}
	o.Printf("there are more: --top 100 shows 100, --top 0 shows all")
	return nil
}

// leastTime is how much of the site's time all clients must have used before
// the share of one client means anything.
const leastTime = time.Minute

// heaviest prints the client that used more than half of the site's time, if
// there is one.
func (o *operation) heaviest() error {
	top, err := o.Clients(o.Context, registry.Query{Sort: "time", Limit: 2})
	if err != nil || len(top) < 2 {
		return o.failed(err)
	}
	total, err := o.TotalTime(o.Context)
	if used := top[0].Spent.Time; err == nil && total >= leastTime && used > total/2 {
		o.Printf("%s had %.0f %% of the site's time that is recorded here (%s of %s), in %s",
			top[0].Client, 100*used.Seconds()/total.Seconds(), spent(used), spent(total),
			prose.Counted(top[0].Spent.Requests, "request", "requests"))
	}
	return o.failed(err)
}

// holderFresh is how long a server's report about who holds most of the upstream is
// shown: it repeats the report each minute while it is so.
const holderFresh = 2 * time.Minute

// printHolder prints which client, network, owner or fleet holds most of the
// upstream now, if there is one.
func (o *operation) printHolder() error {
	h, err := o.Holder(o.Context)
	if err == nil && h.Text != "" && o.now.Sub(h.At).Abs() <= holderFresh {
		o.Printf("now: %s", prose.Printable(h.Text))
	}
	return o.failed(err)
}

// table writes clients as a table, without columns in which all are 0.
func (o *operation) table(records []registry.ClientRecord, sort string) error {
	dryRun, cpu, siteTime := sort == "dry-run", sort == "cpu", sort == "time"
	for i := range records {
		dryRun = dryRun || records[i].Spent.DryRun > 0
		cpu = cpu || records[i].Spent.CPU > 0
		siteTime = siteTime || records[i].Spent.Time > 0
	}
	head := []string{"client", ">requests", ">refused", ">blocked"}
	if dryRun {
		head = append(head, ">dry run")
	}
	if cpu {
		head = append(head, ">cpu")
	}
	if siteTime {
		head = append(head, ">time")
	}
	if sort == "bytes" {
		head = append(head, ">bytes")
	}
	if sort == "errors" {
		head = append(head, ">errors")
	}
	t := o.newTable(append(head, ">last seen", "")...)
	t.fit = true
	for i := range records {
		r := &records[i]
		row := []string{r.Client.String(), orDash(r.Spent.Requests), orDash(r.Spent.Refused), orDash(r.Spent.Blocked)}
		if dryRun {
			row = append(row, orDash(r.Spent.DryRun))
		}
		if cpu {
			row = append(row, spent(r.Spent.CPU))
		}
		if siteTime {
			row = append(row, spent(r.Spent.Time))
		}
		if sort == "bytes" {
			row = append(row, size(r.Spent.Bytes))
		}
		if sort == "errors" {
			row = append(row, orDash(r.Spent.Errors))
		}
		if err := t.row(append(row, o.ago(r.LastSeen), o.aboutClient(r))...); err != nil {
			return err
		}
	}
	return t.flush()
}

// aboutClient returns the facts about a client that are not numbers.
func (o *operation) aboutClient(r *registry.ClientRecord) string {
	var parts []string
	if r.Override != nil && o.inForce(r.Override.Until) {
		decision := "banned"
		if r.Override.Action == fairshare.Allow {
			decision = "allowed"
		}
		parts = append(parts, decision)
	}
	if r.Bot != "" {
		parts = append(parts, fmt.Sprintf("%s (%s)", prose.Printable(r.Bot), r.BotState))
	}
	if r.Fleet != "" {
		parts = append(parts, prose.Printable(r.Fleet))
	}
	for _, l := range r.Labels {
		parts = append(parts, "["+prose.Printable(l)+"]")
	}
	if r.Note != "" {
		parts = append(parts, "(note: "+prose.Printable(r.Note)+")")
	}
	if r.UserAgent != "" {
		parts = append(parts, prose.Printable(r.UserAgent))
	}
	return strings.Join(parts, " ")
}

func orDash(n int64) string {
	if n == 0 {
		return "–"
	}
	return prose.Number(n)
}

// spent returns a time that was used, "–" for none.
func spent(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return policyfile.FormatDuration(d)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return prose.ShortDuration(d)
}
