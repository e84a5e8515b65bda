package registrar

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"fairshare"
	"fairshare/registry"
)

// Overrides are operators' overrides and labels, indexed for lookups. They never
// change, so they are safe for concurrent use.
type Overrides struct {
	empty bool
	addrs bart.Table[*decision]
	bots  map[string]*decision
}

// A decision is what operators have set for one prefix or bot.
type decision struct {
	registry.OverrideRecord           // its Action is Undecided if there are only labels
	labels                  []string  // its own and those of all wider prefixes; sorted, each once
	wider                   *decision // of the longest prefix that contains this one; nil if there is none
}

// NewOverrides returns the Overrides of these records and labels. It ignores those
// without a client. A Refuse without an end becomes a Block.
func NewOverrides(overrides []registry.OverrideRecord, labels []registry.Label) *Overrides {
	all := map[fairshare.ClientID]*decision{}
	of := func(id fairshare.ClientID) *decision {
		if id.Bot != "" {
			id = fairshare.ClientID{Bot: strings.ToLower(id.Bot)}
		} else {
			id = fairshare.PrefixID(id.Prefix)
		}
		if all[id] == nil {
			all[id] = &decision{OverrideRecord: registry.OverrideRecord{Client: id}}
		}
		return all[id]
	}
	for _, o := range overrides {
		d := of(o.Client)
		id := d.Client
		d.OverrideRecord = o
		if d.Client = id; o.Action == fairshare.Refuse && o.Until.IsZero() {
			d.Action = fairshare.Block // it never ends
		}
	}
	for _, l := range labels {
		d := of(l.Client)
		d.labels = append(d.labels, l.Name)
	}
	index := &Overrides{empty: true, bots: map[string]*decision{}}
	var addrs []*decision
	for id, d := range all {
		switch {
		case id.Bot != "":
			index.bots[id.Bot] = d
			d.labels = sorted(d.labels)
		case id.Prefix.IsValid():
			addrs = append(addrs, d)
		default:
			continue
		}
		index.empty = false
	}
	slices.SortFunc(addrs, func(c, d *decision) int {
		a, b := c.Client.Prefix, d.Client.Prefix
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var wider *decision // the previous one, then those that contain it
	for _, d := range addrs {
		p := d.Client.Prefix
		for wider != nil && !wider.Client.Prefix.Overlaps(p) {
			wider = wider.wider
		}
		if d.wider = wider; wider != nil {
			if d.labels == nil {
				d.labels = wider.labels
			} else {
				d.labels = append(d.labels, wider.labels...)
			}
		}
		d.labels = sorted(d.labels)
		index.addrs.Insert(p, d)
		wider = d
	}
	return index
}

// sorted returns the names of labels in ascending order, each once.
func sorted(labels []string) []string {
	if slices.IsSorted(labels) && len(slices.Compact(slices.Clone(labels))) == len(labels) {
		return slices.Clip(labels)
	}
	slices.Sort(labels)
	return slices.Clip(slices.Compact(labels))
}

// Override returns the override in force at time now for a client with this
// address, recognized as this bot. The override of the longest prefix that has not
// ended applies; if there is none, that of the bot. An Allow or a label of a bot
// applies only to a verified bot that is not user-triggered. The zero Override
// means that operators have set nothing.
func (o *Overrides) Override(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	if o.empty {
		return fairshare.Override{}
	}
	return o.find(addr, bot.Name, trusted(&bot), now)
}

// trusted reports whether a bot is verified and not user-triggered.
func trusted(bot *fairshare.Bot) bool { return bot.State == fairshare.Verified && !bot.UserTriggered }

// find returns the override of an address, and of a bot unless its name is "";
// sure means that the bot is trusted.
func (o *Overrides) find(addr netip.Addr, bot string, sure bool, now time.Time) (found fairshare.Override) {
	if d, known := o.addrs.Lookup(addr.Unmap()); known {
		found.Labels = d.labels
		for ; d != nil && !d.inForce(now); d = d.wider {
		}
		if d != nil {
			found.Action, found.Wait = d.Action, d.wait(now)
		}
	}
	if bot == "" || len(o.bots) == 0 {
		return found
	}
	d := o.bots[bot]
	if d == nil {
		return found
	}
	if found.Action == fairshare.Undecided && d.inForce(now) && (sure || d.Action != fairshare.Allow) {
		found.Action, found.Wait = d.Action, d.wait(now)
	}
	if sure && len(d.labels) > 0 {
		if len(found.Labels) == 0 {
			found.Labels = d.labels
		} else {
			found.Labels = sorted(slices.Concat(found.Labels, d.labels))
		}
	}
	return found
}

// inForce reports whether there is an override that has not ended.
func (d *decision) inForce(now time.Time) bool {
	return d.Action != fairshare.Undecided && (d.Until.IsZero() || now.Before(d.Until))
}

// wait returns the time until a Refuse ends; 0 for other actions.
func (d *decision) wait(now time.Time) time.Duration {
	if d.Action != fairshare.Refuse {
		return 0
	}
	return max(min(d.Until.Sub(now), d.Until.Sub(d.Since)), 1)
}
