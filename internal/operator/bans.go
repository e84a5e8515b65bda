package operator

import (
	"bufio"
	"fmt"
	"strconv"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// BansOptions say which bans to list, and how.
type BansOptions struct {
	All  bool // former bans too
	JSON bool // one object a line
}

// Bans lists the bans and what operators allow.
func Bans(env *cli.Environment, state string, opts BansOptions) error {
	o, err := openToRead(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	overrides, _, err := o.Overrides(o.Context)
	if err != nil {
		return o.failed(err)
	}
	if opts.JSON {
		return o.bansJSON(overrides, opts.All)
	}
	owners, _ := o.owners()
	t := o.newTable("client", ">since", "until (UTC)", ">left", ">no.", "by")
	if owners != nil {
		t = o.newTable("client", ">since", "until (UTC)", ">left", ">no.", "by", "owner")
	}
	row := func(client fairshare.ClientID, cells ...string) error {
		if owners != nil {
			cells = append(cells, ownerText(ownerOf(owners, client)))
		}
		return t.row(append([]string{client.String()}, cells...)...)
	}
	allowed := o.newTable("allowed", ">since", "until (UTC)", ">left", "by")
	for i := range overrides {
		switch s := &overrides[i]; {
		case s.Action == fairshare.Allow && o.inForce(s.Until):
			err = allowed.row(s.Client.String(), o.ago(s.Since), o.endText(s.Until), o.remaining(s.Until),
				"an operator"+reasonText(s.Reason))
		case s.Action != fairshare.Allow && (opts.All || o.inForce(s.Until)):
			err = row(s.Client, o.ago(s.Since), o.endText(s.Until), o.remaining(s.Until), "",
				"an operator"+reasonText(s.Reason))
		}
		if err != nil {
			return err
		}
	}
	for b, err := range o.Bans(o.Context, o.now, opts.All) {
		if err != nil {
			t.flush()
			return o.failed(err)
		}
		by := fmt.Sprintf("rule %q", prose.Printable(b.Rule))
		if b.DryRun {
			by += " (dry run: would have been)"
		}
		if err := row(b.Client, o.ago(b.Began), o.endText(b.Until), o.remaining(b.Until),
			strconv.Itoa(b.Number), by); err != nil {
			return err
		}
	}
	if t.n == 0 {
		o.Printf("nobody is banned")
	} else if err := t.flush(); err != nil {
		return err
	} else {
		o.printDryRun()
	}
	if allowed.n > 0 {
		o.Printf("")
		return allowed.flush()
	}
	return nil
}

// endText returns the end of a ban for a column of a table.
func (o *operation) endText(until time.Time) string {
	if until.IsZero() {
		return "no end"
	}
	return until.UTC().Format("2006-01-02 15:04:05")
}

// remaining returns how long a ban remains in force.
func (o *operation) remaining(until time.Time) string {
	switch {
	case until.IsZero():
		return ""
	case !o.inForce(until):
		return "over"
	}
	return prose.ShortDuration(until.Sub(o.now))
}

func (o *operation) bansJSON(overrides []registry.OverrideRecord, all bool) error {
	out := bufio.NewWriter(o.Stdout)
	owners, _ := o.owners()
	write := func(j *banJSON, client fairshare.ClientID) error {
		owner := ownerOf(owners, client)
		j.ASN, j.Owner = owner.ASN, owner.Name
		return writeJSON(out, j)
	}
	for i := range overrides {
		if s := &overrides[i]; s.Action != fairshare.Allow && (all || o.inForce(s.Until)) {
			if err := write(o.jsonBanOf(s), s.Client); err != nil {
				return err
			}
		}
	}
	for b, err := range o.Bans(o.Context, o.now, all) {
		if err != nil {
			out.Flush()
			return o.failed(err)
		}
		if err := write(o.jsonBan(&b), b.Client); err != nil {
			return err
		}
	}
	return out.Flush()
}
