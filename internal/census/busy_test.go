package census

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

// busied has clients from to to find no turn, so many times each.
func (t *traffic) busied(from, to, times int, person bool) {
	for n := from; n < to; n++ {
		for range times {
			t.Saw(addr(n), netip.Addr{})
			t.Refused(request(n, person), &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream,
				Wait: time.Second}, t.policy.DryRun)
		}
	}
}

const (
	room = `No rule causes this. The upstream needs capacity (more workers, faster pages, or a larger capacity in share: if that is set too low),` +
		` or tighter limits for the clients that use most of it: see fairshare clients --sort cpu`
	tight = `If this is not an attack, the rule is too tight: raise its limit or set dry_run: true in it, and send SIGHUP; fairshare check FILE --try shows its effect on a request, fairshare replay on a whole log`
)

// When a busy upstream has no turn for many, that is overload and no rule's
// fault; what rules refuse is judged without it.
func TestOverloadIsNoRulesFault(t *testing.T) {
	tr := newTraffic(policyOf(false))
	tr.saw(0, 100)
	tr.busied(0, 20, 9, true) // a fifth
	tr.refused(20, 40, pages, 9, false)
	tr.wait(10 * time.Second)
	compare(t, "a fifth each", tr.said, nil)
	tr.busied(90, 91, 1, false)
	tr.wait(10 * time.Second)
	compare(t, "one more", tr.said, []string{
		`15s WARNING: THE UPSTREAM IS OVERLOADED: 21 of 100 clients of the last 15 seconds (21 %) were refused because the upstream was busy, 181 requests. MOST OF THEM LOOK LIKE PEOPLE (20). ` + room,
	})
	tr.said = nil
	tr.refused(91, 92, pages, 1, false)
	tr.wait(10 * time.Second)
	compare(t, "by a rule, too", tr.said, []string{
		`25s WARNING: MANY CLIENTS ARE BEING REFUSED: 21 of 100 clients of the last 25 seconds (21 %) were refused or blocked, all by rule "pages". None of them looks like a person. ` + tight,
	})
	tr.said = nil
	for minute := range 12 { // as long as that is recent it is said again
		if minute == 6 {
			tr.said = nil
		}
		tr.saw(0, 100)
		tr.wait(time.Minute)
	}
	compare(t, "there is room", tr.said, []string{
		"10m5s fewer clients are refused: 0 % of the clients of the last 5 minutes were refused or blocked",
		"10m5s the upstream is no longer overloaded: 0 % of the clients of the last 5 minutes were refused because the upstream was busy",
	})
}

// In a dry run the summary tells both, apart.
func TestOverloadInADryRun(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.saw(0, 50)
	tr.refused(0, 2, pages, 5, false)
	tr.busied(10, 40, 2, false)
	tr.wait(5 * time.Second)
	compare(t, "dry", tr.end(), []string{
		`5s WARNING: THE UPSTREAM IS OVERLOADED: 30 of 50 clients of the last 5 seconds (60 %) would have been refused because the upstream was busy, 60 requests. None of them looks like a person. ` + room,
		`end dry run, from start to end, 5 seconds: 10 requests of 2 clients (4 % of 50) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"` +
			`; a busy upstream would have refused 60 further requests of 30 clients`,
	})
	tr = newTraffic(policyOf(true))
	tr.busied(0, 1, 1, false)
	compare(t, "nothing else", tr.end(), []string{
		`end dry run, from start to end, 0 seconds: no request would have been refused or blocked; 1 client seen; a busy upstream would have refused 1 further request of 1 client`,
	})
}

// A search engine for which there is no turn is told of, and what helps it.
func TestOverloadAndSearchEngines(t *testing.T) {
	tr := newTraffic(policyOf(false))
	google := bot(1, "googlebot", "search", fairshare.Verified)
	tr.Refused(google, &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream, Wait: time.Second},
		false)
	tr.wait(5 * time.Second)
	const larger = "; share: {weights: {bots: {search: 4}}} gives search engines a larger part of a busy upstream"
	compare(t, "no turn", tr.said, []string{
		`5s WARNING: googlebot (verified) was refused once because the upstream was busy in the last 5 seconds: a search engine that is refused crawls less often` + larger,
	})
	tr.said = nil
	tr.Refused(google, &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream, Wait: time.Second},
		false)
	tr.Refused(google, finding(tr.policy, pages), false)
	tr.wait(5 * time.Minute)
	compare(t, "both", tr.said, []string{
		`5m5s WARNING: googlebot (verified) was refused once by rule "pages", googlebot (verified) was refused once because the upstream was busy in the last 5 minutes: a search engine that is refused crawls less often` +
			engineHint + larger,
	})
}
