package operator

import (
	"fairshare/internal/prose"
	"fmt"
	"slices"

	"fairshare"
)

// sayIt puts a word into the registry, and tells what that changes.
func (o *operation) sayIt(id named, said fairshare.OverrideRecord, done, undo string) error {
	if err := o.make(); err != nil {
		return err
	}
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	if err := o.SetOverride(o.Context, said); err != nil {
		return o.failed(err)
	}
	o.Printf("%s: %s %s%s", done, id, o.until(said.Until), because(said.Reason))
	if near.own != nil {
		o.Printf("  replaces: %s", o.word(near.own))
	}
	for _, s := range near.wider {
		o.Printf("  %s is %s; for %s this decision comes first", s.Client, o.word(&s), said.Client)
	}
	if other := near.against(said.Action); len(other) > 0 {
		o.Printf("  exceptions: %s", o.list(other))
	}
	o.printUndo(undo + " " + id.word)
	return nil
}

// nearWords are operators' words that have to do with those about a client.
// All of them hold.
type nearWords struct {
	own    *fairshare.OverrideRecord
	wider  []fairshare.OverrideRecord // on prefixes around it, the longest first
	within []fairshare.OverrideRecord // on longer ones, sorted
}

func (o *operation) near(id fairshare.ClientID) (near nearWords, err error) {
	if o.said == nil {
		if o.said, _, err = o.Overrides(o.Context); err != nil {
			return near, o.failed(err)
		}
	}
	for _, s := range o.said {
		switch p := s.Client.Prefix; {
		case !o.holds(s.Until):
		case s.Client == id:
			near.own = &s
		case !p.IsValid() || !p.Overlaps(id.Prefix):
		case p.Bits() < id.Prefix.Bits():
			near.wider = append(near.wider, s)
		default:
			near.within = append(near.within, s)
		}
	}
	slices.SortFunc(near.wider,
		func(a, b fairshare.OverrideRecord) int { return b.Client.Prefix.Bits() - a.Client.Prefix.Bits() })
	slices.SortFunc(near.within, func(a, b fairshare.OverrideRecord) int { return a.Client.Prefix.Compare(b.Client.Prefix) })
	return near, nil
}

// speaks returns the word that holds for the client.
func (n *nearWords) speaks() *fairshare.OverrideRecord {
	switch {
	case n.own != nil:
		return n.own
	case len(n.wider) > 0:
		return &n.wider[0]
	}
	return nil
}

// against returns the words within that say the contrary of an action.
func (n *nearWords) against(action fairshare.Action) (other []fairshare.OverrideRecord) {
	for _, s := range n.within {
		if (s.Action == fairshare.Allow) != (action == fairshare.Allow) {
			other = append(other, s)
		}
	}
	return other
}

// fewWords are told one by one.
const fewWords = 3

// list tells of words within a prefix.
func (o *operation) list(words []fairshare.OverrideRecord) (text string) {
	for i, s := range words {
		switch {
		case i == fewWords:
			return text + fmt.Sprintf(" and %s more", prose.Number(int64(len(words)-i)))
		case i > 0:
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", s.Client, o.word(&s))
	}
	return text
}

// tellDryRun says that bans do nothing yet where serve is in dry run.
func (o *operation) tellDryRun() {
	if o.settings.DryRun {
		o.Printf("serve is in dry run: it lets even banned clients through until the policy enforces its rules")
	}
}
