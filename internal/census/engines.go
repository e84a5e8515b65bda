package census

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// engine reports whether a bot is a search engine that it is known to be.
func engine(b *fairshare.Bot) bool {
	return b.State == fairshare.Verified && slices.Contains(b.Categories, "search")
}

// Bounds of the warning about search engines.
const (
	mostAway = 64 // distinguished
	toldAway = 4  // in one line
)

// engines are the verified search engines that were refused since that was
// told last. The zero engines are none. It is safe for concurrent use.
type engines struct {
	mu   sync.Mutex
	away map[away]int64
	told time.Time // zero: never
	idle time.Time // the latest time at which there was none
}

// An away is who was refused, by what.
type away struct {
	bot, rule string
	action    fairshare.Action
	dry       bool
}

func (e *engines) add(a away) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.away[a]; !known && len(e.away) >= mostAway {
		return // the many others are told
	}
	if e.away == nil {
		e.away = map[away]int64{}
	}
	e.away[a]++
}

// warnings returns the warnings that are due now: at once, then every five minutes.
func (e *engines) warnings(now time.Time) []string {
	e.mu.Lock()
	gone, since := e.away, prose.Last(now.Sub(e.idle))
	switch {
	case len(gone) == 0:
		e.idle = now
	case e.told.IsZero() || now.Sub(e.told) >= warnAgainIn:
		e.away, e.told, e.idle = nil, now, now
	default:
		gone = nil
	}
	e.mu.Unlock()
	var lines []string
	for _, dry := range []bool{false, true} {
		var all []away
		for a := range gone {
			if a.dry == dry {
				all = append(all, a)
			}
		}
		slices.SortFunc(all, func(a, b away) int {
			return cmp.Or(cmp.Compare(gone[b], gone[a]), strings.Compare(a.bot, b.bot),
				strings.Compare(a.rule, b.rule), cmp.Compare(a.action, b.action))
		})
		if len(all) > 0 {
			lines = append(lines, enginesText(all, gone, since))
		}
	}
	return lines
}

// enginesText makes one line of those that were refused, or would have
// been.
func enginesText(all []away, gone map[away]int64, since string) string {
	var b strings.Builder
	b.WriteString("WARNING: ")
	blocked, dry, turns := false, all[0].dry, 0
	were := " was "
	if dry {
		were = " would have been "
	}
	for i, a := range all {
		blocked = blocked || a.action == fairshare.Block
		if i == toldAway {
			fmt.Fprintf(&b, " and %d more", len(all)-i)
		}
		if i >= toldAway {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		did := "refused"
		if a.action == fairshare.Block {
			did = "blocked"
		}
		by := fmt.Sprintf("by rule %q", a.rule)
		if a.rule == fairshare.BusyUpstream.Name {
			by, turns = "because the upstream was busy", turns+1
		}
		fmt.Fprintf(&b, "%s (verified)%s%s %s %s", a.bot, were, did, prose.Times(gone[a]), by)
	}
	fmt.Fprintf(&b, " in %s: ", since)
	if blocked {
		b.WriteString("a search engine that is blocked drops the pages from its index")
	} else {
		b.WriteString("a search engine that is refused crawls less often")
	}
	if turns < min(len(all), toldAway) {
		b.WriteString(
			"; if that is not intended, put a rule with match: {bot: search} and allow: true above, and send SIGHUP")
	}
	if turns > 0 {
		b.WriteString("; share: {weights: {bots: {search: 4}}} gives search engines a larger part of a busy upstream")
	}
	return b.String()
}

// botsText tells how many of the requests came from bots, "" if none.
func (t *tally) botsText() string {
	known := t.known.Load()
	if known == 0 {
		return ""
	}
	var of []string
	if n := t.engines.Load(); n > 0 {
		of = append(of, prose.Number(n)+" from verified search engines")
	}
	if n := t.forged.Load(); n > 0 {
		of = append(of, prose.Number(n)+" from forged ones")
	}
	text := fmt.Sprintf("%s of the %s came from known bots", prose.Number(known),
		prose.Plural(t.requests.Load(), "request"))
	if of != nil {
		text += ", " + strings.Join(of, " and ")
	}
	return text
}
