package main

import (
	"bufio"
	"fmt"
	"strconv"

	"fairshare"
)

type bansCmd struct {
	registryFlag
	All  bool `help:"Former bans too, as far as they are remembered: a next one is longer for them."`
	JSON bool `name:"json" help:"Print one JSON object a line."`
}

func (c *bansCmd) Help() string {
	return "Bans in force: operators' first, then the rules'. At the end, whom operators allow."
}

func (c *bansCmd) Run(env *environment) error {
	o, err := c.read(env)
	if err != nil {
		return err
	}
	defer o.close()
	words, _, err := o.Words(o.ctx)
	if err != nil {
		return o.failed(err)
	}
	if c.JSON {
		return o.bansJSON(words, c.All)
	}
	t := o.newTable("client", ">since", "until (UTC)", ">left", ">no.", "by")
	allowed := o.newTable("allowed", ">since", "until (UTC)", ">left", "by")
	for i := range words {
		switch s := &words[i]; {
		case s.Action == fairshare.Allow && o.holds(s.Until):
			err = allowed.row(s.Client.String(), o.ago(s.Since), o.end(s), o.left(s), "an operator"+because(s.Reason))
		case s.Action != fairshare.Allow && (c.All || o.holds(s.Until)):
			err = t.row(s.Client.String(), o.ago(s.Since), o.end(s), o.left(s), "", "an operator"+because(s.Reason))
		}
		if err != nil {
			return err
		}
	}
	for b, err := range o.Bans(o.ctx, o.now, c.All) {
		if err != nil {
			t.flush()
			return o.failed(err)
		}
		by := fmt.Sprintf("rule %q", printable(b.Rule))
		if b.DryRun {
			by += " (dry run: would have been)"
		}
		said := fairshare.Said{Until: b.Until}
		if err := t.row(b.Client.String(), o.ago(b.Began), o.end(&said), o.left(&said), strconv.Itoa(b.Number), by); err != nil {
			return err
		}
	}
	if t.n == 0 {
		o.printf("nobody is banned")
	} else if err := t.flush(); err != nil {
		return err
	} else {
		o.tellDryRun()
	}
	if allowed.n > 0 {
		o.printf("")
		return allowed.flush()
	}
	return nil
}

// end writes when a word ends.
func (o *operator) end(s *fairshare.Said) string {
	if s.Until.IsZero() {
		return "for ever"
	}
	return s.Until.UTC().Format("2006-01-02 15:04:05")
}

// left writes how long a word holds yet.
func (o *operator) left(s *fairshare.Said) string {
	switch {
	case s.Until.IsZero():
		return ""
	case !o.holds(s.Until):
		return "over"
	}
	return span(s.Until.Sub(o.now))
}

func (o *operator) bansJSON(words []fairshare.Said, all bool) error {
	out := bufio.NewWriter(o.stdout)
	for i := range words {
		if s := &words[i]; s.Action != fairshare.Allow && (all || o.holds(s.Until)) {
			if err := writeJSON(out, o.jsonBanOf(s)); err != nil {
				return err
			}
		}
	}
	for b, err := range o.Bans(o.ctx, o.now, all) {
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
