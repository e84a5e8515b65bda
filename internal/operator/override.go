package operator

import (
	"fmt"
	"slices"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// recordOverride writes an override to the registry and prints what changes.
// done is the participle of the command, such as "banned"; undo is the command
// that removes the override.
func (o *operation) recordOverride(id named, override registry.OverrideRecord, done, undo string) error {
	if err := o.create(); err != nil {
		return err
	}
	near, err := o.overridesNear(id.ClientID)
	if err != nil {
		return err
	}
	if err := o.SetOverride(o.Context, override); err != nil {
		return o.failed(err)
	}
	o.Printf("%s: %s %s%s", done, id, o.untilText(override.Until), reasonText(override.Reason))
	if near.own != nil {
		o.Printf("  replaces: %s", o.overrideText(near.own))
	}
	for _, s := range near.wider {
		o.Printf("  %s is %s; for %s this decision comes first", s.Client, o.overrideText(&s), override.Client)
	}
	if other := near.exceptionsTo(override.Action); len(other) > 0 {
		o.Printf("  exceptions: %s", o.overrideList(other))
	}
	o.printUndo(undo + " " + id.argument)
	return nil
}

// nearbyOverrides are the overrides of a client, of prefixes around it and of
// prefixes within it. All of them are in force.
type nearbyOverrides struct {
	own    *registry.OverrideRecord
	wider  []registry.OverrideRecord // of prefixes around it, the longest first
	within []registry.OverrideRecord // of prefixes within it, sorted
}

// overridesNear returns the overrides that concern a client.
func (o *operation) overridesNear(id fairshare.ClientID) (near nearbyOverrides, err error) {
	if o.overrides == nil {
		if o.overrides, _, err = o.Overrides(o.Context); err != nil {
			return near, o.failed(err)
		}
	}
	for _, s := range o.overrides {
		switch p := s.Client.Prefix; {
		case !o.inForce(s.Until):
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
		func(a, b registry.OverrideRecord) int { return b.Client.Prefix.Bits() - a.Client.Prefix.Bits() })
	slices.SortFunc(near.within,
		func(a, b registry.OverrideRecord) int { return a.Client.Prefix.Compare(b.Client.Prefix) })
	return near, nil
}

// effective returns the override that applies to the client, nil for none.
func (n *nearbyOverrides) effective() *registry.OverrideRecord {
	switch {
	case n.own != nil:
		return n.own
	case len(n.wider) > 0:
		return &n.wider[0]
	}
	return nil
}

// exceptionsTo returns the overrides within the client that contradict an
// action.
func (n *nearbyOverrides) exceptionsTo(action fairshare.Action) (other []registry.OverrideRecord) {
	for _, s := range n.within {
		if (s.Action == fairshare.Allow) != (action == fairshare.Allow) {
			other = append(other, s)
		}
	}
	return other
}

// mostListed bounds how many overrides or clients are listed one by one.
const mostListed = 3

// overrideList returns overrides as one line of text.
func (o *operation) overrideList(overrides []registry.OverrideRecord) (text string) {
	for i, s := range overrides {
		switch {
		case i == mostListed:
			return text + fmt.Sprintf(" and %s more", prose.Number(int64(len(overrides)-i)))
		case i > 0:
			text += ", "
		}
		text += fmt.Sprintf("%s (%s)", s.Client, o.overrideText(&s))
	}
	return text
}

// printDryRun prints that bans have no effect yet, if serve is in dry run.
func (o *operation) printDryRun() {
	if o.settings.DryRun {
		o.Printf("serve is in dry run: it lets even banned clients through until the policy enforces its rules")
	}
}
