package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/sqlregistry"
)

type clientCmd struct {
	registryFlag
	JSON   bool   `name:"json" help:"Print one JSON object."`
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom."`
}

func (c *clientCmd) Help() string {
	return "Numbers, words and labels of operators, bans, and stories of refusals."
}

func (c *clientCmd) Run(env *environment) error {
	o, err := c.read(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(c.Client)
	if err != nil {
		return err
	}
	all, err := o.find(id)
	switch {
	case err != nil:
		return err
	case len(all) == 0 && id.err != nil:
		return id.err
	case len(all) == 0:
		return &hintError{fmt.Errorf("nothing is known of %s", id), o.command("clients") + " lists who is known, a verified bot by its name; serve writes new ones within some seconds"}
	}
	if c.JSON {
		list := make([]*foundJSON, len(all))
		for i, f := range all {
			if list[i], err = o.jsonFound(f); err != nil {
				return err
			}
		}
		list[0].Around = list[1:]
		return writeJSON(o.stdout, list[0])
	}
	for i, f := range all {
		if i > 0 {
			o.printf("")
		}
		switch at := f.Record.Client; {
		case at == id.ClientID:
			o.found(id.String(), f)
		case at.Prefix.IsSingleIP():
			o.found(at.Prefix.String(), f)
		default:
			o.found(fmt.Sprintf("%s, which %s is in", f.Record.Client, c.Client), f)
		}
	}
	return nil
}

// usualBits are lengths of prefixes that policies count clients by, the
// longest first.
var usualBits = map[bool][]int{true: {32, 24, 16}, false: {128, 64, 56, 48, 32}}

// find returns what is known of a client, then of recorded prefixes around it,
// as another policy may have counted.
func (o *operator) find(id named) (all []*sqlregistry.Found, err error) {
	ids := []fairshare.ClientID{id.ClientID}
	if id.addr.IsValid() {
		if single := fairshare.PrefixID(netip.PrefixFrom(id.addr, id.addr.BitLen())); single != id.ClientID {
			ids = slices.Insert(ids, 0, single)
		}
	}
	if p := id.Prefix; p.IsValid() {
		for _, bits := range usualBits[p.Addr().Is4()] {
			if bits < p.Bits() {
				ids = append(ids, fairshare.PrefixID(netip.PrefixFrom(p.Addr(), bits)))
			}
		}
	}
	for _, at := range ids {
		f, err := o.Client(o.ctx, at)
		if err != nil {
			return nil, o.failed(err)
		}
		if f == nil {
			continue
		}
		own := at == id.ClientID || at.Prefix.IsSingleIP() && f.Record.Sticky // what operators said of wider ones is told with the client
		if !own && f.Record.FirstSeen.IsZero() && f.Record.Note == "" {
			continue
		}
		if at != id.ClientID { // the rest has been told, or is of others
			f.Within, f.Labels, f.Stories = nil, nil, nil
			f.Bans = slices.DeleteFunc(f.Bans, func(b fairshare.Banned) bool { return b.Client != at })
		}
		slices.SortStableFunc(f.Bans, func(a, b fairshare.Banned) int { return b.Until.Compare(a.Until) }) // in force first
		f.Record.Client = at
		all = append(all, f)
	}
	return all, nil
}

// found tells what is known of one client.
func (o *operator) found(title string, f *sqlregistry.Found) {
	r := &f.Record
	line := func(head, format string, args ...any) {
		o.printf("  %-9s %s", head, fmt.Sprintf(format, args...))
	}
	o.printf("%s", title)
	if r.FirstSeen.IsZero() {
		seen := "never"
		if slices.ContainsFunc(f.Stories, func(s fairshare.Story) bool { return s.Client == r.Client }) {
			seen = "not yet written, or forgotten"
		}
		line("seen", "%s", seen)
	} else {
		line("seen", "last %s (%s), first %s (%s)", moment(r.LastSeen), o.ago(r.LastSeen), moment(r.FirstSeen), o.ago(r.FirstSeen))
		line("requests", "%s, %s refused, %s blocked", count(r.Spent.Requests), count(r.Spent.Refused), count(r.Spent.Blocked))
		if r.Spent.Trial > 0 {
			line("dry run", "%s would have been refused or blocked", count(r.Spent.Trial))
		}
		var had []string
		if r.Spent.CPU > 0 {
			had = append(had, spent(r.Spent.CPU)+" of CPU")
		}
		if r.Spent.Time > 0 {
			had = append(had, spent(r.Spent.Time)+" of the site's time")
		}
		if r.Spent.Bytes > 0 {
			had = append(had, size(r.Spent.Bytes))
		}
		if r.Spent.Errors > 0 {
			had = append(had, counted(r.Spent.Errors, "answer", "answers")+" with a status from 400 to 499")
		}
		if len(had) > 0 {
			line("had", "%s", strings.Join(had, ", "))
		}
		if r.UserAgent != "" {
			line("agent", "%s", printable(r.UserAgent))
		}
		if r.Bot != "" {
			line("taken for", "%s (%s)", printable(r.Bot), r.BotState)
		}
	}
	if f.Inside > 0 {
		more := counted(f.Inside, "client", "clients")
		if f.Inside >= 1000 {
			more = "1,000 clients or more"
		}
		line("within", "%s", more)
	}
	head := "word"
	if r.Said != nil {
		line(head, "%s (said %s)", o.word(r.Said), moment(r.Said.Since))
		head = ""
	}
	for i := range f.Within {
		line(head, "%s is %s", f.Within[i].Client, o.word(&f.Within[i]))
		head = ""
	}
	head = "labels"
	if len(r.Labels) > 0 {
		line(head, "%s", strings.Join(r.Labels, ", "))
		head = ""
	}
	for _, l := range f.Labels {
		line(head, "%s, of %s", l.Name, l.Client)
		head = ""
	}
	if r.Note != "" {
		line("note", "%s", printable(r.Note))
	}
	if r.Sticky {
		line("sticky", "yes: what operators said stays, whatever it does")
	}
	head = "bans"
	for i := range f.Bans {
		b := &f.Bans[i]
		text := o.ban(b)
		if b.Client != r.Client {
			text = b.Client.String() + " " + text
		}
		if !b.DryRun {
			text += fmt.Sprintf("; a next one would be the %s", ordinal(b.Number+1))
		}
		line(head, "%s", text)
		head = ""
	}
	head = "stories"
	for i := range f.Stories {
		if i == fewStories {
			line(head, "and %s", counted(len(f.Stories)-i, "older one", "older ones"))
			break
		}
		s := &f.Stories[i]
		of := ""
		if s.Client != r.Client {
			of = s.Client.String() + " by "
		}
		line(head, "%s  %srule %q, %s, last %s", s.ID, of, printable(s.Rule), times(s.Count), o.ago(s.Last))
		head = ""
	}
}

// size writes a number of bytes.
func size(n int64) string {
	unit, names := 1.0, []string{"kB", "MB", "GB", "TB", "PB"}
	name := "B"
	for _, next := range names {
		if float64(n) < unit*1000 {
			break
		}
		unit, name = unit*1000, next
	}
	if name == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", float64(n)/unit, name)
}
