//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// String returns one line for people who watch.
func (r result) String() string {
	if r.Error != "" {
		return fmt.Sprintf("%s, %s: failed", r.Attack, r.Peer)
	}
	text := fmt.Sprintf("%s, %s: %s reached PHP, %s of its time, harmed %s, p50 %d/%d/%d ms, p99 %d/%d/%d ms",
		r.Attack, r.Peer, r.reached(), percent(r.Capacity), r.harmed(),
		r.P50[0], r.P50[1], r.P50[2], r.P99[0], r.P99[1], r.P99[2])
	for _, h := range r.Harmed {
		text += fmt.Sprintf("\n\t%s: %v %s", h.Person, h.Requests, h.First)
	}
	if r.Links.Refused > 0 {
		text += fmt.Sprintf("\n\tlink checker: %d of %d links refused", r.Links.Refused, r.Links.Checked)
	}
	for _, s := range r.Stalled {
		text += "\n\t" + s
	}
	for _, s := range r.Notes {
		text += "\n\t" + s
	}
	return text
}

func (r result) reached() string { return fmt.Sprintf("%d of %d", r.Reached, r.Sent) }

func (r result) harmed() string {
	if len(r.Harmed) == 0 {
		return "0"
	}
	kinds := make(map[string]bool)
	for _, h := range r.Harmed {
		kinds[strings.TrimRight(h.Person, " 0123456789")] = true
	}
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return fmt.Sprintf("%d (%s)", len(r.Harmed), strings.Join(names, ", "))
}

func percent(part float64) string {
	if part > 0 && part < 0.095 {
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// table returns the results as tables in Markdown: one for each measure, with a row for each attack and a
// column for each peer.
func table(results []result) string {
	var attacks, peers []string
	cells := make(map[[2]string]result)
	people := 0
	for _, r := range results {
		if !slices.Contains(attacks, r.Attack) {
			attacks = append(attacks, r.Attack)
		}
		if !slices.Contains(peers, r.Peer) {
			peers = append(peers, r.Peer)
		}
		cells[[2]string{r.Attack, r.Peer}] = r
		people = max(people, r.People)
	}
	var b strings.Builder
	for _, m := range []struct {
		title string
		cell  func(r result) string
	}{
		{"requests of the attack that reached PHP", result.reached},
		{"time of PHP that the attack took", func(r result) string { return percent(r.Capacity) }},
		{fmt.Sprintf("people harmed, of %d", people), result.harmed},
		{"people's p50, p99 in ms during the attack",
			func(r result) string { return fmt.Sprintf("%d, %d", r.P50[during], r.P99[during]) }},
	} {
		fmt.Fprintf(&b, "\n| %s | %s |\n", m.title, strings.Join(peers, " | "))
		fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("---|", len(peers)))
		for _, a := range attacks {
			fmt.Fprintf(&b, "| %s |", a)
			for _, p := range peers {
				switch r, played := cells[[2]string{a, p}]; {
				case !played:
					b.WriteString(" |")
				case r.Error != "":
					b.WriteString(" failed |")
				default:
					fmt.Fprintf(&b, " %s |", m.cell(r))
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
