package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"fairshare"
)

// A counted counts resets.
type counted struct {
	resetter
	resets int
}

func (c *counted) Reset() {
	c.resets++
	c.resetter.Reset()
}

// A log that is sorted by client restarts with each client. Hundreds of restarts share one
// limiter, which is cleared occasionally. The verdicts are those of new limiters.
func TestManyRestartsShareALimiter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 11))
	var lines []string
	begin := time.Date(2015, 5, 17, 0, 0, 0, 0, time.UTC)
	for client := range 600 {
		n := 4 + rnd.IntN(12)
		for i := range n {
			at := begin.Add(time.Duration(i)*100*time.Second + time.Duration(rnd.IntN(100))*time.Second)
			if i == n-1 {
				at = begin.Add(3 * time.Hour)
			}
			lines = append(lines, fmt.Sprintf(`192.0.2.%d - - [%s] "GET /%d HTTP/1.1" %d %d "-" "agent" %d.5`,
				client%7, at.Format("02/Jan/2006:15:04:05 -0700"),
				rnd.IntN(3), one(rnd, 200, 404, 304), rnd.IntN(900), rnd.IntN(200)))
		}
	}
	var notModified fairshare.StatusSet
	notModified.Add(304, 304)
	by := []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "window", Limit: requests(4, 10*time.Minute), Refund: notModified,
			Ban: &fairshare.BanTerms{After: 2, Within: time.Hour, For: 5 * time.Minute}},
		{Name: "steady", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 6, Window: time.Hour,
			Algorithm: fairshare.GCRA}, DryRun: true},
		{Name: "pause", Match: fairshare.Match{Path: []string{"/2"}},
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 4 * time.Minute,
				Algorithm: fairshare.Quiet, By: by}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 3, Window: time.Hour}},
		{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 4000, Window: time.Hour}},
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1,
			By: []fairshare.KeyPart{{Kind: fairshare.ByPath}}}},
	}}
	made := 0
	var shared *counted
	opts := Options{Policy: policy, Client: clientFunc(t), Logs: []string{writeLines(t, "log", lines...)},
		Memory: 1 << 20}
	opts.Limiter = func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		made++
		l, err := memory(1 << 20)(limits)
		if err == nil {
			shared = &counted{resetter: l.(resetter)}
		}
		return shared, err
	}
	got, j := judgeAll(t, opts)
	if len(got) != len(lines) || j.restarts.Count != 599 || made != 1 {
		t.Fatalf("%d lines of %d, %d restarts, %d limiters; want 599 and 1", len(got), len(lines), j.restarts.Count,
			made)
	}
	if most := len(lines) * len(j.limits) / int(leftover(1<<20)); shared.resets == 0 || shared.resets > most {
		t.Errorf("cleared %d times in %d restarts, want 1 to %d", shared.resets, j.restarts.Count, most)
	}
	compare(t, opts, got, j)

	opts.Limiter = func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		made++
		l, err := memory(1 << 18)(limits)
		return struct{ fairshare.Limiter }{l}, err // cannot be reset
	}
	want, _ := judgeAll(t, opts)
	if made != 1+600 {
		t.Errorf("%d limiters, want 600 fresh ones", made-1)
	}
	spoke := map[int]int{}
	for i := range want {
		if got[i].modelVerdict.enforced != want[i].modelVerdict.enforced ||
			got[i].modelVerdict.dryRun != want[i].modelVerdict.dryRun {
			t.Fatalf("line %d: %+v, fresh %+v", i+1, got[i].modelVerdict, want[i].modelVerdict)
		}
		spoke[want[i].enforced.rule]++
		spoke[want[i].dryRun.rule]++
	}
	for i := range policy.Rules {
		if spoke[i] == 0 {
			t.Errorf("rule %s had no effect", policy.Rules[i].Name)
		}
	}
}
