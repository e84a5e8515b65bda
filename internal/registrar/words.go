package registrar

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"fairshare"
)

// Overrides are what operators have decided of clients, ready to be asked. They do
// not change.
type Overrides struct {
	none  bool
	addrs bart.Table[*word]
	bots  map[string]*word
}

// A word is what was said of one prefix or bot.
type word struct {
	fairshare.OverrideRecord          // its Action is Undecided when only labels were given
	labels                   []string // its own and those of all wider prefixes
	wider                    *word    // of the longest prefix that holds this one; nil: there is none
}

// NewOverrides returns words that say this.
func NewOverrides(said []fairshare.OverrideRecord, labels []fairshare.Label) *Overrides {
	all := map[fairshare.ClientID]*word{}
	of := func(id fairshare.ClientID) *word {
		if id.Bot != "" {
			id = fairshare.ClientID{Bot: strings.ToLower(id.Bot)}
		} else {
			id = fairshare.PrefixID(id.Prefix)
		}
		if all[id] == nil {
			all[id] = &word{OverrideRecord: fairshare.OverrideRecord{Client: id}}
		}
		return all[id]
	}
	for _, s := range said {
		w := of(s.Client)
		id := w.Client
		w.OverrideRecord = s
		if w.Client = id; s.Action == fairshare.Refuse && s.Until.IsZero() {
			w.Action = fairshare.Block // no end: for ever
		}
	}
	for _, l := range labels {
		w := of(l.Client)
		w.labels = append(w.labels, l.Name)
	}
	words := &Overrides{none: true, bots: map[string]*word{}}
	var addrs []*word
	for id, w := range all {
		switch {
		case id.Bot != "":
			words.bots[id.Bot] = w
			w.labels = sorted(w.labels)
		case id.Prefix.IsValid():
			addrs = append(addrs, w)
		default:
			continue
		}
		words.none = false
	}
	slices.SortFunc(addrs, func(v, w *word) int {
		a, b := v.Client.Prefix, w.Client.Prefix
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var holding *word // the one before, then those that hold it
	for _, w := range addrs {
		p := w.Client.Prefix
		for holding != nil && !holding.Client.Prefix.Overlaps(p) {
			holding = holding.wider
		}
		if w.wider = holding; holding != nil {
			if w.labels == nil {
				w.labels = holding.labels
			} else {
				w.labels = append(w.labels, holding.labels...)
			}
		}
		w.labels = sorted(w.labels)
		words.addrs.Insert(p, w)
		holding = w
	}
	return words
}

// sorted returns the names of labels in order, each once.
func sorted(labels []string) []string {
	if slices.IsSorted(labels) && len(slices.Compact(slices.Clone(labels))) == len(labels) {
		return slices.Clip(labels)
	}
	slices.Sort(labels)
	return slices.Clip(slices.Compact(labels))
}

// Override returns what was said of who sends a request and holds at time now. The
// longest prefix whose word has not ended speaks; if none does, that about the
// bot which the client is taken for. What was said in favour of a bot holds
// only for one that is verified and that nobody can steer.
func (w *Overrides) Override(addr netip.Addr, bot fairshare.Bot, now time.Time) fairshare.Override {
	if w.none {
		return fairshare.Override{}
	}
	return w.find(addr, bot.Name, trusted(&bot), now)
}

// trusted reports whether a client is the bot that it is taken for, and nobody
// steers it.
func trusted(bot *fairshare.Bot) bool { return bot.State == fairshare.Verified && !bot.UserTriggered }

// find finds the word about an address, and about a bot if it has a name; sure
// says that it is trusted.
func (w *Overrides) find(addr netip.Addr, bot string, sure bool, now time.Time) (found fairshare.Override) {
	if of, known := w.addrs.Lookup(addr.Unmap()); known {
		found.Labels = of.labels
		for ; of != nil && !of.speaks(now); of = of.wider {
		}
		if of != nil {
			found.Action, found.Wait = of.Action, of.wait(now)
		}
	}
	if bot == "" || len(w.bots) == 0 {
		return found
	}
	of := w.bots[bot]
	if of == nil {
		return found
	}
	if found.Action == fairshare.Undecided && of.speaks(now) && (sure || of.Action != fairshare.Allow) {
		found.Action, found.Wait = of.Action, of.wait(now)
	}
	if sure && len(of.labels) > 0 {
		if len(found.Labels) == 0 {
			found.Labels = of.labels
		} else {
			found.Labels = sorted(slices.Concat(found.Labels, of.labels))
		}
	}
	return found
}

// speaks reports whether there is a word that has not ended.
func (w *word) speaks(now time.Time) bool {
	return w.Action != fairshare.Undecided && (w.Until.IsZero() || now.Before(w.Until))
}

// wait returns how long a refusal still holds.
func (w *word) wait(now time.Time) time.Duration {
	if w.Action != fairshare.Refuse {
		return 0
	}
	return max(min(w.Until.Sub(now), w.Until.Sub(w.Since)), 1)
}
