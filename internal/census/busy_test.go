package census

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

// busied records refusals by a busy upstream for a range of clients, n for each.
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
		` or tighter limits for the clients that use most of it: see fairshare clients --sort time.` +
		` If this is an attack: fairshare attack on`
	tight = `If this is not an attack, the rule is too tight: raise its limit or set dry_run: true in it, and send SIGHUP; fairshare check FILE --try shows its effect on a request, fairshare replay on a whole log`
)

// Refusals by a busy upstream are reported as overload. They do not count as refusals by
// rules.
func TestOverloadIsReportedSeparately(t *testing.T) {
	tr := newTraffic(policyOf(false))
	tr.saw(0, 100)
	tr.busied(0, 20, 9, true) // a fifth
	tr.refused(20, 40, pages, 9, false)
	tr.wait(10 * time.Second)
	compare(t, "a fifth each", tr.lines, nil)
	tr.busied(90, 91, 1, false)
	tr.wait(10 * time.Second)
	compare(t, "one more", tr.lines, []string{
		`15s WARNING: THE UPSTREAM IS OVERLOADED: 21 of 100 clients of the last 15 seconds (21 %) were refused because the upstream was busy, 181 requests. MOST OF THEM LOOK LIKE PEOPLE (20). ` + room,
	})
	tr.lines = nil
	tr.refused(91, 92, pages, 1, false)
	tr.wait(10 * time.Second)
	compare(t, "by a rule, too", tr.lines, []string{
		`25s WARNING: MANY CLIENTS ARE BEING REFUSED: 21 of 100 clients of the last 25 seconds (21 %) were refused or blocked, all by rule "pages". None of them looks like a person. ` + tight,
	})
	tr.lines = nil
	for minute := range 12 { // it is repeated while that is recent
		if minute == 6 {
			tr.lines = nil
		}
		tr.saw(0, 100)
		tr.wait(time.Minute)
	}
	compare(t, "there is room", tr.lines, []string{
		"10m5s fewer clients are refused: 0 % of the clients of the last 5 minutes were refused or blocked",
		"10m5s the upstream is no longer overloaded: 0 % of the clients of the last 5 minutes were refused because the upstream was busy",
	})
}

// The summary of a dry run contains both separately.
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

// A search engine that a busy upstream refuses is reported, with a remedy.
func TestOverloadReportsSearchEngines(t *testing.T) {
	tr := newTraffic(policyOf(false))
	google := bot(1, "googlebot", "search", fairshare.Verified)
	tr.Refused(google, &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream, Wait: time.Second},
		false)
	tr.wait(5 * time.Second)
	const larger = "; share: {weights: {bots: {search: 4}}} gives search engines a larger part of a busy upstream"
	compare(t, "no turn", tr.lines, []string{
		`5s WARNING: googlebot (verified) was refused once because the upstream was busy in the last 5 seconds: a search engine that is refused crawls less often` + larger,
	})
	tr.lines = nil
	tr.Refused(google, &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream, Wait: time.Second},
		false)
	tr.Refused(google, finding(tr.policy, pages), false)
	tr.wait(5 * time.Minute)
	compare(t, "both", tr.lines, []string{
		`5m5s WARNING: googlebot (verified) was refused once by rule "pages", googlebot (verified) was refused once because the upstream was busy in the last 5 minutes: a search engine that is refused crawls less often` +
			engineHint + larger,
	})
}
