package main

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"time"

	"fairshare"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

type clientsCmd struct {
	registryFlag
	Sort   string `enum:"requests,refused,cpu,last-seen" default:"requests" placeholder:"BY" help:"By what, the most or latest first: requests, refused (then in dry run), cpu or last-seen (default requests)."`
	Bot    string `placeholder:"NAME" help:"Only those that are taken for this bot."`
	Label  string `placeholder:"LABEL" help:"Only those with this label of their own."`
	Sticky bool   `help:"Only those that operators have set something on: a word, a label or a note."`
	Top    int    `default:"20" placeholder:"N" help:"How many at most, also with --json; 0 for all (default 20)."`
	JSON   bool   `name:"json" help:"Print one JSON object a line."`
}

// Validate is asked by kong.
func (c *clientsCmd) Validate() (err error) {
	if c.Top < 0 {
		return fmt.Errorf("--top: %d is below 0", c.Top)
	}
	c.Bot = strings.ToLower(c.Bot)
	if c.Label != "" {
		c.Label, err = labelName(c.Label)
	}
	return err
}

func (c *clientsCmd) Run(env *environment) error {
	o, err := c.read(env)
	if err != nil {
		return err
	}
	defer o.close()
	top := c.Top
	if top == 0 {
		top = math.MaxInt32 - 1
	}
	records, err := o.Clients(o.ctx, sqlregistry.Query{Sort: c.Sort, Bot: c.Bot, Label: c.Label, Sticky: c.Sticky, Limit: top + 1})
	if err != nil {
		return o.failed(err)
	}
	more := len(records) > top
	records = records[:min(len(records), top)]
	if c.JSON {
		out := bufio.NewWriter(o.stdout)
		for i := range records {
			if err := writeJSON(out, jsonClient(&records[i])); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	if len(records) == 0 {
		if c.Bot+c.Label != "" || c.Sticky {
			o.printf("no such client is known")
		} else {
			o.printf("no client is known yet; serve writes new ones within some seconds")
		}
		return nil
	}
	if err := o.table(records, c.Sort); err != nil || !more {
		return err
	}
	o.printf("and more: --top 100 shows a hundred, --top 0 all")
	return nil
}

// table writes clients for people. Columns of what nobody had are left out.
func (o *operator) table(records []fairshare.ClientRecord, sort string) error {
	trial, cpu, took := false, sort == "cpu", false
	for i := range records {
		trial = trial || records[i].Spent.Trial > 0
		cpu = cpu || records[i].Spent.CPU > 0
		took = took || records[i].Spent.Time > 0
	}
	head := []string{"client", ">requests", ">refused", ">blocked"}
	if trial {
		head = append(head, ">dry run")
	}
	if cpu {
		head = append(head, ">cpu")
	}
	if took {
		head = append(head, ">time")
	}
	t := o.newTable(append(head, ">last seen", "")...)
	t.fit = true
	for i := range records {
		r := &records[i]
		row := []string{r.Client.String(), orDash(r.Spent.Requests), orDash(r.Spent.Refused), orDash(r.Spent.Blocked)}
		if trial {
			row = append(row, orDash(r.Spent.Trial))
		}
		if cpu {
			row = append(row, spent(r.Spent.CPU))
		}
		if took {
			row = append(row, spent(r.Spent.Time))
		}
		if err := t.row(append(row, o.ago(r.LastSeen), o.who(r))...); err != nil {
			return err
		}
	}
	return t.flush()
}

// who tells what is known of a client besides numbers.
func (o *operator) who(r *fairshare.ClientRecord) string {
	var parts []string
	if r.Said != nil && o.holds(r.Said.Until) {
		word := "banned"
		if r.Said.Action == fairshare.Allow {
			word = "allowed"
		}
		parts = append(parts, word)
	}
	if r.Bot != "" {
		parts = append(parts, fmt.Sprintf("%s (%s)", printable(r.Bot), r.BotState))
	}
	for _, l := range r.Labels {
		parts = append(parts, "["+l+"]")
	}
	if r.Note != "" {
		parts = append(parts, "(note: "+printable(r.Note)+")")
	}
	if r.UserAgent != "" {
		parts = append(parts, printable(r.UserAgent))
	}
	return strings.Join(parts, " ")
}

func orDash(n int64) string {
	if n == 0 {
		return "–"
	}
	return count(n)
}

// spent writes a time that was used up.
func spent(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return policyfile.FormatDuration(d)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
	return span(d)
}
