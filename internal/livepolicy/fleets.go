package livepolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/fleets"
	"fairshare/internal/prose"
	"fairshare/registry"
)

const (
	fleetsShownFor  = 24 * time.Hour // after their end
	mostEndedFleets = 64
	publishFleets   = time.Minute
)

// fleetReport returns lines for the log about the fleets that were found, and those
// that ended, since the last call. It publishes all fleets in the registry.
func (p *Policy) fleetReport(now time.Time) (lines []string) {
	found, ended := p.fleets.Changes(now)
	for i := range found {
		lines = append(lines, foundText(&found[i], p.Current()))
	}
	for i := range ended {
		fl := &ended[i]
		lines = append(lines, fmt.Sprintf("%s ended: %s from %s addresses in %s networks in %s, %s of them refused",
			fl.Name, prose.Counted(fl.Requests, "request for a page", "requests for pages"),
			prose.Estimate(fl.Addresses),
			prose.Estimate(fl.Networks), prose.Duration(fl.Last.Sub(fl.Since)), prose.Number(fl.Refused)))
		p.endedFleets = append(p.endedFleets, p.fleetRecord(fl, true))
	}
	present := p.fleets.Fleets(now)
	if len(found)+len(ended) == 0 && (len(present) == 0 || now.Sub(p.fleetsAt) < publishFleets) {
		return lines
	}
	p.fleetsAt = now
	if line := p.publish(present, now); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// publish writes the fleets to the registry, for operators' commands.
func (p *Policy) publish(present []fleets.Fleet, now time.Time) (line string) {
	wall := p.Wall(now)
	p.endedFleets = slices.DeleteFunc(p.endedFleets, func(r registry.FleetRecord) bool {
		return wall.Sub(r.Last) > fleetsShownFor ||
			slices.ContainsFunc(present, func(fl fleets.Fleet) bool { return fl.Name == r.Name })
	})
	p.endedFleets = p.endedFleets[max(len(p.endedFleets)-mostEndedFleets, 0):]
	if p.state.registrar == nil {
		return ""
	}
	all := make([]registry.FleetRecord, 0, len(present)+len(p.endedFleets))
	for i := range present {
		all = append(all, p.fleetRecord(&present[i], false))
	}
	for _, r := range slices.Backward(p.endedFleets) {
		all = append(all, r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), settingsTimeout)
	defer cancel()
	if err := p.state.store.SetFleets(ctx, all); err != nil {
		return fmt.Sprintf("warning: fairshare clients --by fleet does not know the latest fleets: %v", err)
	}
	return ""
}

func (p *Policy) fleetRecord(fl *fleets.Fleet, ended bool) registry.FleetRecord {
	return registry.FleetRecord{Name: fl.Name, Since: p.Wall(fl.Since).UTC(), Last: p.Wall(fl.Last).UTC(), Ended: ended,
		Shared: fl.Shared(), Evidence: fl.Evidence(), Addresses: fl.Addresses, Networks: fl.Networks,
		Requests: fl.Requests, Refused: fl.Refused}
}

// readFleets reads the fleets of earlier processes. They have ended: they are found
// again if they still come.
func (p *Policy) readFleets(ctx context.Context) {
	if p.state.store == nil {
		return
	}
	r := p.state.store.reader()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstSync)
	defer cancel()
	all, err := r.Fleets(ctx)
	for _, fl := range slices.Backward(all) {
		fl.Ended = true
		p.endedFleets = append(p.endedFleets, fl)
	}
	if err != nil {
		p.options.Log(fmt.Sprintf("warning: could not read the fleets of earlier days: %v", err))
	}
}

// foundText returns the line about a fleet that was found.
func foundText(fl *fleets.Fleet, rt *Runtime) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A FLEET: %s: %s addresses in %s networks with %s: %s. ", fl.Name,
		prose.Estimate(fl.Addresses), prose.Estimate(fl.Networks), fl.Shared(), fl.Evidence())
	if rt.Share != nil {
		b.WriteString("While the site is busy, the fleet has the share of one network. ")
	}
	if countsFleets(rt.File.Policy.Rules) {
		b.WriteString("Limits by fleet count it as one client. ")
	} else {
		b.WriteString("A limit with by: fleet counts it as one client (docs/fleets.md). ")
	}
	b.WriteString("fairshare clients --by fleet shows it")
	return b.String()
}

// countsFleets reports whether a limit counts by fleet.
func countsFleets(rules []fairshare.Rule) bool {
	for i := range rules {
		if rules[i].Limit == nil {
			continue
		}
		for _, part := range rules[i].Limit.By {
			if part.Kind == fairshare.ByFleet {
				return true
			}
		}
	}
	return false
}
