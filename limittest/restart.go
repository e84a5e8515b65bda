package limittest

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
)

// RunRestart checks that a restart resets no counter. After restarts, with the
// same policy or an edited one, a limiter must answer like one that was never
// restarted.
//
// restart gets the limiter, the limits of the policy after the restart,
// and the times of saving and loading.
//
// N of a limit of bytes is at most doubled, and that of a GCRA limit stays.
func RunRestart(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter,
	restart func(t testing.TB, before fairshare.Limiter, limits []fairshare.Limit, saved,
		loaded time.Time) fairshare.Limiter) {
	scripts := 120
	if testing.Short() {
		scripts = 30
	}
	for seed := range scripts {
		s := newScript(uint64(seed))
		s.steady = true  // a limiter of another size may find an older copy of a state that is ahead
		s.oneRate = true // loading rewinds a state that is too far ahead for the limit's own rate
		model, subject := NewModel(s.limits), open(t, s.limits)
		restarted := s.now.Add(-fairshare.MaxWindow)
		for n := range 120 {
			if s.step(); s.now.Before(restarted) {
				s.now = restarted // a clock is not set back over a restart
			}
			if n%30 == 29 {
				saved := s.now
				for range s.rand.IntN(3) {
					s.step()
				}
				if s.now.Before(saved) {
					s.now = saved
				}
				restarted = s.now
				if seed%3 > 0 {
					s.edit()
				}
				s.taken = nil // who has asked is not waiting any more
				model, subject = model.Restart(s.limits), restart(t, subject, s.limits, saved, s.now)
			}
			if s.play(t, fmt.Sprintf("seed %d, step %d", seed, n), model, subject); t.Failed() {
				return
			}
		}
	}
}

// edit changes the policy.
func (s *script) edit() {
	r := s.rand
	var limits []fairshare.Limit
	for _, i := range r.Perm(len(s.limits)) {
		l := s.limits[i]
		switch r.IntN(8) {
		case 0:
			continue // it is gone
		case 1:
			l.Name += ", renamed"
		case 2:
			if l.Resource != fairshare.Concurrent && !l.CrawlDelay {
				l.Window = min(l.Window+1, fairshare.MaxWindow)
			}
		case 3:
			l.DryRun = !l.DryRun
		case 4:
			if l.CrawlDelay {
				break // a state may be further ahead than a smaller burst allows: loading rewinds it
			}
			if l.Algorithm == fairshare.GCRA {
				l.Burst = 1 + r.Int64N(l.Allowed())
			} else {
				l.N = 1 + r.Int64N(max(l.N, 1))
			}
		case 5:
			if l.Algorithm != fairshare.GCRA && l.N < 1<<20 {
				l.N += r.Int64N(l.N + 1)
			}
		}
		limits = append(limits, l)
	}
	if len(limits) == 0 || r.IntN(4) == 0 {
		l := s.limit(len(s.limits))
		l.Name += fmt.Sprint(" since ", s.now.UnixNano())
		limits = append(limits, l)
	}
	s.limits = limits
}
