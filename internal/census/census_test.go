package census

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
)

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// policyOf has a limit, a block and a limit in dry run.
func policyOf(dry bool) *fairshare.Policy {
	return &fairshare.Policy{DryRun: dry, Rules: []fairshare.Rule{
		{Name: "pages", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}},
		{Name: "bad bots", Action: fairshare.Block},
		{Name: "tried", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}, DryRun: true},
	}}
}

const (
	pages = iota
	badBots
	tried
)

// addr is the n-th client.
func addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"

func request(n int, person bool) *fairshare.Request {
	req := &fairshare.Request{Addr: addr(n), UserAgent: "curl/8.1"}
	if person {
		req.UserAgent = firefox
		req.Header = http.Header{"Accept-Language": {"de,en-US;q=0.7"}, "Referer": {"https://shop.example/"}}
	}
	return req
}

func finding(p *fairshare.Policy, rule int) *fairshare.Finding {
	f := &fairshare.Finding{Action: fairshare.Refuse, Rule: &p.Rules[rule]}
	if rule == badBots {
		f.Action = fairshare.Block
	}
	return f
}

// A traffic is a census with a clock and some clients.
type traffic struct {
	*Census
	policy *fairshare.Policy
	now    time.Time
	said   []string
}

func newTraffic(p *fairshare.Policy) *traffic {
	return &traffic{Census: newCensus(p, start, [2]uint64{0x0123456789ABCDEF, 0xFEDCBA9876543210}), policy: p, now: start}
}

// wait lets time pass as serve does.
func (t *traffic) wait(d time.Duration) {
	const tick = 5 * time.Second
	for end := t.now.Add(d); t.now.Before(end); {
		t.now = t.now.Add(tick)
		for _, line := range t.Tick(t.now) {
			t.said = append(t.said, fmt.Sprintf("%v %s", t.now.Sub(start), line))
		}
	}
}

// refused has clients from to to ask, and so many of a rule's requests refused.
func (t *traffic) refused(from, to, rule int, times int, person bool) {
	for n := from; n < to; n++ {
		for range times {
			t.Saw(addr(n))
			t.Refused(request(n, person), finding(t.policy, rule), t.policy.DryRun || t.policy.Rules[rule].DryRun)
		}
	}
}

func (t *traffic) saw(from, to int) {
	for n := from; n < to; n++ {
		t.Saw(addr(n))
	}
}

func (t *traffic) end() []string {
	for _, line := range t.End(t.now) {
		t.said = append(t.said, "end "+line)
	}
	return t.said
}

func TestSummaryOfADryRun(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.saw(100, 400)
	tr.refused(0, 35, pages, 33, false)
	tr.refused(33, 35, pages, 1, true)
	tr.refused(35, 37, badBots, 12, false)
	tr.wait(90 * time.Minute)
	tr.refused(36, 38, badBots, 1, false)
	want := []string{
		`1h0m5s dry run, the last hour: 1,181 requests of 37 clients (11 % of 337) would have been refused or blocked; 2 of these clients look like people; by rule "pages": 1,157 requests of 35 clients, 2 like people; "bad bots": 24 requests of 2 clients`,
		`end dry run, the last 30 minutes: 2 requests of 2 clients (100 % of 2) would have been refused or blocked; none of these clients looks like a person; all by rule "bad bots"`,
		`end dry run, from start to end, 90 minutes: 1,183 requests of 38 clients (11 % of 338) would have been refused or blocked; 2 of these clients look like people; by rule "pages": 1,157 requests of 35 clients, 2 like people; "bad bots": 26 requests of 3 clients`,
	}
	got := tr.end()
	if !slices.Equal(got, want) {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
