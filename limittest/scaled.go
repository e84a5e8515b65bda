package limittest

import (
	"context"
	"testing"
	"time"

	"fairshare"
)

// scale is by how much RunScaled stretches all times: its limiters may round to a
// microsecond.
const scale = 1000

// RunScaled is [Run] for limiters that count in steps of a microsecond: all times of
// the tables are a thousand times as long. It leaves out the tests whose windows
// would be too long, and those of means, which each member of a group has for
// itself.
func RunScaled(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	runTests(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		long := make([]fairshare.Limit, len(limits))
		for i, l := range limits {
			if !l.CrawlDelay {
				l.Window *= scale
			}
			long[i] = l
		}
		return &scaled{open(t, long)}
	}, []conformanceTest{
		{"tables", runTables},
		{"paced", runPaced},
		{"all or none", runAllOrNone},
		{"dry group", runDryGroup},
		{"settled", runSettled},
		{"refunds", runRefunds},
		{"slots", runSlots},
		{"no drift", func(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
			checkNoDrift(t, open, 400)
		}},
		{"settling is capped", runCap},
		{"a day ahead", runFarAhead},
		{"peek", runPeek},
	})
}

// A scaled limiter has longer times than its caller knows.
type scaled struct{ limiter fairshare.Limiter }

func stretch(at time.Time) time.Time { return start.Add(scale * at.Sub(start)) }

// shrink returns a duration as the caller knows it, rounded up.
func shrink(d time.Duration) time.Duration { return (d + scale - 1) / scale }

func (s *scaled) stretch(takes []fairshare.Take) []fairshare.Take {
	long := make([]fairshare.Take, len(takes))
	for i, t := range takes {
		t.Every *= scale
		long[i] = t
	}
	return long
}

func (s *scaled) Take(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	err := s.limiter.Take(ctx, stretch(now), s.stretch(takes), tallies)
	shrinkAll(tallies)
	return err
}

func (s *scaled) Peek(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	err := s.limiter.(fairshare.Peeker).Peek(ctx, stretch(now), s.stretch(takes), tallies)
	shrinkAll(tallies)
	return err
}

func shrinkAll(tallies []fairshare.Tally) {
	for i := range tallies {
		tallies[i].Wait, tallies[i].Reset = shrink(tallies[i].Wait), shrink(tallies[i].Reset)
	}
}

func (s *scaled) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	long := make([]fairshare.Charge, len(charges))
	for i, c := range charges {
		c.Every *= scale
		if !c.At.IsZero() {
			c.At = stretch(c.At)
		}
		long[i] = c
	}
	return s.limiter.Settle(ctx, stretch(now), long)
}
