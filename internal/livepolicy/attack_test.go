package livepolicy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/policyfile"
	"fairshare/registry"
)

// openAttacked returns a policy whose log is collected.
func openAttacked(t *testing.T) (p *Policy, log *[]string) {
	t.Helper()
	log = new([]string)
	p, err := New(t.Context(), policyfile.BuiltIn(), Options{Clock: httpguard.NewClock(),
		Log: func(line string) { *log = append(*log, line) }})
	if err != nil {
		t.Fatal(err)
	}
	p.started.Store(true)
	t.Cleanup(p.Close)
	return p, log
}

func TestAttackModeIsReportedAndEnds(t *testing.T) {
	p, log := openAttacked(t)
	wall := p.Wall(p.Now())
	mode := registry.AttackMode{Since: wall, Until: wall.Add(time.Hour), By: "ann", Reason: "searches"}
	if p.attack.isOn(p.Now) || p.Attack() != "" || p.attackReport() != "" {
		t.Error("the mode is on at the start")
	}
	p.setAttack(mode)
	p.setAttack(mode) // another change of operators
	if len(*log) != 1 || !strings.Contains((*log)[0], "by ann: searches; newcomers wait first") {
		t.Errorf("log %q", *log)
	}
	report := strings.Join(p.MinuteReport(t.Context()), "\n")
	if !p.attack.isOn(p.Now) || !strings.Contains(report, "attack mode: on since ") {
		t.Error("the mode is not on, or not in the report")
	}
	p.setAttack(registry.AttackMode{Since: wall, By: "ben"})
	if p.attack.isOn(p.Now) || len(*log) != 2 || (*log)[1] != "attack mode: off, by ben" {
		t.Errorf("after off: log %q", *log)
	}

	// By itself it ends with one line.
	mode.Until = wall.Add(time.Hour)
	p.setAttack(mode)
	over := *p.attack.mode.Load()
	over.Until = p.Now().Add(-time.Second)
	p.attack.mode.Store(&over)
	first, second := p.FrequentReport(), p.FrequentReport()
	if strings.Join(first, "") != "attack mode: off, its time is over" || second != nil {
		t.Errorf("reports %q and %q", first, second)
	}
	if p.attack.isOn(p.Now) {
		t.Error("the mode is on after its end")
	}

	// A mode from a clock that was ahead keeps its length.
	mode.Since, mode.Until = wall.Add(240*time.Hour), wall.Add(241*time.Hour)
	p.setAttack(mode)
	if left := p.attack.mode.Load().Until.Sub(p.Now()); left > time.Hour {
		t.Errorf("%v are left of one hour", left)
	}
}

// Only clients about which nothing good is known wait first.
func TestNewcomersWaitFirstInTheAttackMode(t *testing.T) {
	p, _ := openAttacked(t)
	rt := p.Current()
	request := func(change func(*fairshare.Request)) *fairshare.Request {
		req := &fairshare.Request{Time: p.Now(), Addr: netip.MustParseAddr("203.0.113.9")}
		if change != nil {
			change(req)
		}
		return req
	}
	via := netip.MustParseAddr("10.0.0.1")
	cases := []struct {
		name string
		req  *fairshare.Request
		want bool
	}{
		{"a newcomer", request(nil), true},
		{"a visitor with a cookie", request(func(r *fairshare.Request) { r.Visitor.ID = 7 }), false},
		{"a verified bot", request(func(r *fairshare.Request) {
			r.Bot = fairshare.Bot{Name: "googlebot", State: fairshare.Verified}
		}), false},
		{"a forged bot", request(func(r *fairshare.Request) {
			r.Bot = fairshare.Bot{Name: "googlebot", State: fairshare.Forged}
		}), true},
		{"a bot that anybody can send", request(func(r *fairshare.Request) {
			r.Bot = fairshare.Bot{Name: "facebookexternalhit", State: fairshare.Verified, UserTriggered: true}
		}), true},
		{"a label", request(func(r *fairshare.Request) { r.Override.Labels = []string{"partner"} }), false},
		{"an allow", request(func(r *fairshare.Request) { r.Override.Action = fairshare.Allow }), false},
		{"a health check of a proxy", request(func(r *fairshare.Request) { r.Proxy = true }), false},
		{"robots.txt", request(func(r *fairshare.Request) { r.Path = "/robots.txt" }), false},
		{"a challenge for a certificate", request(func(r *fairshare.Request) {
			r.Path = "/.well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"
		}), false},
		{"a path below a challenge", request(func(r *fairshare.Request) {
			r.Path = "/.well-known/acme-challenge/x/../../wp-login.php"
		}), true},
		{"a label of an address that only a peer names", request(func(r *fairshare.Request) {
			r.Override.Labels, r.Via = []string{"partner"}, via
		}), true},
	}
	for _, c := range cases {
		if p.waitsFirst(rt, c.req) {
			t.Errorf("%s waits although the mode is off", c.name)
		}
	}
	wall := p.Wall(p.Now())
	p.setAttack(registry.AttackMode{Since: wall, Until: wall.Add(time.Hour)})
	for _, c := range cases {
		if got := p.waitsFirst(rt, c.req); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// A client that has been known for ten minutes has standing.
	known := request(nil)
	if _, err := rt.Guard.Decide(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	known.Time = known.Time.Add(11 * time.Minute)
	if p.waitsFirst(rt, known) {
		t.Error("a known client waits first")
	}
}
