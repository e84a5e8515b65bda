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

// engine reports whether a bot is a verified search engine.
func engine(b *fairshare.Bot) bool {
	return b.State == fairshare.Verified && slices.Contains(b.Categories, "search")
}

// Bounds of the warning about search engines.
const (
	mostEngines     = 64 // distinguished
	reportedEngines = 4  // in one line
)

// engines counts the refusals of verified search engines since the last report. The
// zero engines is empty. It is safe for concurrent use.
type engines struct {
	mu       sync.Mutex
	refused  map[refusedEngine]int64
	reported time.Time // zero: never
	idle     time.Time // the latest time without a refused engine
}

// A refusedEngine is a search engine with the rule that refused it.
type refusedEngine struct {
	bot, rule string
	action    fairshare.Action
	dry       bool
}

func (e *engines) add(a refusedEngine, n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.refused[a]; !known && len(e.refused) >= mostEngines {
		return // enough others are reported
	}
	if e.refused == nil {
		e.refused = map[refusedEngine]int64{}
	}
	e.refused[a] += n
}

// warnings returns the warnings that are due now: at once, then every five minutes.
func (e *engines) warnings(now time.Time) []string {
	e.mu.Lock()
	counts, since := e.refused, prose.Last(now.Sub(e.idle))
	switch {
	case len(counts) == 0:
		e.idle = now
	case e.reported.IsZero() || now.Sub(e.reported) >= warnAgainIn:
		e.refused, e.reported, e.idle = nil, now, now
	default:
		counts = nil
	}
	e.mu.Unlock()
	var lines []string
	for _, dry := range []bool{false, true} {
		var all []refusedEngine
		for a := range counts {
			if a.dry == dry {
				all = append(all, a)
			}
		}
		slices.SortFunc(all, func(a, b refusedEngine) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a.bot, b.bot),
				strings.Compare(a.rule, b.rule), cmp.Compare(a.action, b.action))
		})
		if len(all) > 0 {
			lines = append(lines, enginesText(all, counts, since))
		}
	}
	return lines
}

// enginesText returns the line about engines that were refused, or would have been.
func enginesText(all []refusedEngine, counts map[refusedEngine]int64, since string) string {
	var b strings.Builder
	b.WriteString("WARNING: ")
	blocked, dry, turns := false, all[0].dry, 0
	were := " was "
	if dry {
		were = " would have been "
	}
	for i, a := range all {
		blocked = blocked || a.action == fairshare.Block
		if i == reportedEngines {
			fmt.Fprintf(&b, " and %d more", len(all)-i)
		}
		if i >= reportedEngines {
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
		fmt.Fprintf(&b, "%s (verified)%s%s %s %s", a.bot, were, did, prose.Times(counts[a]), by)
	}
	fmt.Fprintf(&b, " in %s: ", since)
	if blocked {
		b.WriteString("a search engine that is blocked drops the pages from its index")
	} else {
		b.WriteString("a search engine that is refused crawls less often")
	}
	if turns < min(len(all), reportedEngines) {
		b.WriteString(
			"; if that is not intended, put a rule with match: {bot: search} and allow: true above, and send SIGHUP")
	}
	if turns > 0 {
		b.WriteString("; share: {weights: {bots: {search: 4}}} gives search engines a larger part of a busy upstream")
	}
	return b.String()
}

// botsText returns the text about requests of bots, "" if there are none.
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
