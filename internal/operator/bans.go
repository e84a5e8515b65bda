package operator

import (
	"bufio"
	"fmt"
	"strconv"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
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
	words, _, err := o.Overrides(o.Context)
	if err != nil {
		return o.failed(err)
	}
	if opts.JSON {
		return o.bansJSON(words, opts.All)
	}
	t := o.newTable("client", ">since", "until (UTC)", ">left", ">no.", "by")
	allowed := o.newTable("allowed", ">since", "until (UTC)", ">left", "by")
	for i := range words {
		switch s := &words[i]; {
		case s.Action == fairshare.Allow && o.holds(s.Until):
			err = allowed.row(s.Client.String(), o.ago(s.Since), o.end(s), o.left(s), "an operator"+because(s.Reason))
		case s.Action != fairshare.Allow && (opts.All || o.holds(s.Until)):
			err = t.row(s.Client.String(), o.ago(s.Since), o.end(s), o.left(s), "", "an operator"+because(s.Reason))
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
		said := fairshare.OverrideRecord{Until: b.Until}
		if err := t.row(b.Client.String(), o.ago(b.Began), o.end(&said), o.left(&said), strconv.Itoa(b.Number),
			by); err != nil {
			return err
		}
	}
	if t.n == 0 {
		o.Printf("nobody is banned")
	} else if err := t.flush(); err != nil {
		return err
	} else {
		o.tellDryRun()
	}
	if allowed.n > 0 {
		o.Printf("")
		return allowed.flush()
	}
	return nil
}

// end writes when a word ends.
func (o *operation) end(s *fairshare.OverrideRecord) string {
	if s.Until.IsZero() {
		return "for ever"
	}
	return s.Until.UTC().Format("2006-01-02 15:04:05")
}

// left writes how long a word holds yet.
func (o *operation) left(s *fairshare.OverrideRecord) string {
	switch {
	case s.Until.IsZero():
		return ""
	case !o.holds(s.Until):
		return "over"
	}
	return prose.ShortDuration(s.Until.Sub(o.now))
}

func (o *operation) bansJSON(words []fairshare.OverrideRecord, all bool) error {
	out := bufio.NewWriter(o.Stdout)
	for i := range words {
		if s := &words[i]; s.Action != fairshare.Allow && (all || o.holds(s.Until)) {
			if err := writeJSON(out, o.jsonBanOf(s)); err != nil {
				return err
			}
		}
	}
	for b, err := range o.Bans(o.Context, o.now, all) {
		if err != nil {
			out.Flush()
			return o.failed(err)
		}
		if err := writeJSON(out, o.jsonBan(&b)); err != nil {
			return err
		}
	}
	return out.Flush()
}
