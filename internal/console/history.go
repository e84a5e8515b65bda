package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/traffic"
)

// HistoryDimensions are what History can show.
var HistoryDimensions = []string{"client", "network", "owner", "fleet", "bot"}

// HistorySpans are the times that History can look back.
var HistorySpans = map[string]time.Duration{"1h": time.Hour, "2d": 48 * time.Hour}

// History returns what a key did in the last hour, by minutes, or in the last two days, by hours. The
// server counts this for the keys with the most requests, refusals, bytes or time. Of others it knows the
// latest refusals. key is one of a dimension, as Top lists it. A client may also be a network or a bot.
func (c *Console) History(by, key, span string) (*History, error) {
	length := HistorySpans[span]
	switch {
	case !slices.Contains(HistoryDimensions, by):
		return nil, wrong("by", by, HistoryDimensions)
	case length == 0:
		return nil, wrong("span", span, []string{"1h", "2d"})
	}
	wall := c.wall()
	v := &History{By: by, Key: key, Step: 60, Source: "counts", Points: []HistoryPoint{}}
	step := time.Minute
	if length > time.Hour {
		v.Step, step = 3600, time.Hour
	}
	all, of, err := c.histories(v, wall)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		v.Source = "journal"
		c.addRefusals(v, of, wall.Truncate(step).Add(step-length), step)
		return v, nil
	}
	for _, h := range all {
		if since := h.Since.UTC(); v.Since == nil || since.Before(*v.Since) {
			v.Since = &since
		}
		spans := h.Minutes
		if step == time.Hour {
			spans = h.Hours
		}
		for i := range spans {
			p := v.point(spans[i].At)
			p.Sums, p.More = p.Sums.plus(sumsOf(spans[i].Sums)), p.More+spans[i].More
		}
	}
	return v, nil
}

// histories returns the histories of the key of v, which are several for a bot, and which refusals are of
// the key. It writes the key of v as commands spell it.
func (c *Console) histories(v *History, wall time.Time) (all []traffic.History, of func(*traffic.Refusal) bool,
	err error) {
	add := func(h traffic.History, ok bool) {
		if ok {
			all = append(all, h)
		}
	}
	switch v.By {
	case "owner":
		asn, err := strconv.ParseUint(strings.TrimPrefix(v.Key, "AS"), 10, 32)
		if err != nil || asn == 0 {
			return nil, nil, cli.WrongUsage(cli.Hint(
				fmt.Errorf("key: %q is not the number of an owner", v.Key), "such as AS64500"))
		}
		v.Key = fmt.Sprintf("AS%d", asn)
		add(c.counts().OwnerHistory(uint32(asn), wall))
		return all, func(r *traffic.Refusal) bool { return r.Owner.ASN == uint32(asn) }, nil
	case "fleet":
		add(c.counts().FleetHistory(v.Key, wall))
		return all, func(r *traffic.Refusal) bool { return r.Fleet == v.Key }, nil
	}
	id, _, err := c.clientID(v.Key)
	if err != nil {
		return nil, nil, err
	}
	v.Key = id.String()
	if id.Bot != "" {
		v.By = "bot"
		for _, state := range []fairshare.BotState{fairshare.Verified, fairshare.Claimed, fairshare.Pending,
			fairshare.Forged} {
			add(c.counts().BotHistory(fairshare.Bot{Name: id.Bot, State: state}, wall))
		}
	} else {
		add(c.counts().ClientHistory(id.Prefix, wall))
	}
	return all, func(r *traffic.Refusal) bool { return within(r, id) }, nil
}

// addRefusals adds the latest refusals since a time.
func (c *Console) addRefusals(v *History, of func(*traffic.Refusal) bool, since time.Time, step time.Duration) {
	for _, r := range c.counts().Recent(traffic.RecentKept, of) {
		if r.At.Before(since) {
			continue
		}
		p := v.point(r.At.Truncate(step))
		if r.DryRun {
			p.Sums = p.Sums.plus(Sums{Requests: r.N, DryRun: r.N})
		} else {
			p.Sums = p.Sums.plus(Sums{Requests: r.N, Refused: r.N})
		}
	}
}

// point returns the point that begins at a time, and adds it in its place if it is missing.
func (v *History) point(at time.Time) *HistoryPoint {
	at = at.UTC()
	i, found := slices.BinarySearchFunc(v.Points, at,
		func(p HistoryPoint, at time.Time) int { return p.At.Compare(at) })
	if !found {
		v.Points = slices.Insert(v.Points, i, HistoryPoint{At: at})
	}
	return &v.Points[i]
}

func (s Sums) plus(t Sums) Sums {
	return Sums{Requests: s.Requests + t.Requests, Refused: s.Refused + t.Refused, DryRun: s.DryRun + t.DryRun,
		Bytes: s.Bytes + t.Bytes, Seconds: s.Seconds + t.Seconds}
}
