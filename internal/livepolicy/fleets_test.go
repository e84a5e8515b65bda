package livepolicy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/fleets"
	"fairshare/httpguard"
	"fairshare/policyfile"
)

// The log says once that a fleet was found, and once that it ended.
func TestFleetsAreLogged(t *testing.T) {
	file, err := policyfile.Parse("site.yaml", []byte("rules:\n"+
		"  - {name: fleets, limit: {requests: 600, per: 1m, by: fleet, newcomers: {requests: 10, per: 1m}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(context.Background(), file, Options{Clock: httpguard.NewClock(), Log: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	get := func(addr, agent, path, kind string) {
		a := netip.MustParseAddr(addr)
		p.fleets.Arrived(&fairshare.Request{Time: now, Addr: a, Method: "GET", Path: path, UserAgent: agent})
		p.fleets.Answered(&fleets.Answer{Addr: a, Method: "GET", Path: path, Status: 200, Type: kind}, now)
	}
	for i := range 100 {
		reader := fmt.Sprintf("81.%d.2.3", i)
		get(reader, "Mozilla/5.0 (X11) Firefox/133.0", "/", "text/html")
		get(reader, "Mozilla/5.0 (X11) Firefox/133.0", "/a.css", "text/css")
		for k := range 5 {
			get(fmt.Sprintf("20.%d.%d.3", i, k), "Mozilla/5.0 (X11) Chrome/131", "/page", "text/html")
		}
		now = now.Add(time.Second)
	}
	lines := p.fleetReport(now)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "A FLEET: fleet-") ||
		!strings.Contains(lines[0], `user agent "Mozilla/5.0 (X11) Chrome/131": none of `) ||
		!strings.Contains(lines[0], `most began at "/page"`) ||
		!strings.Contains(lines[0], "Limits by fleet count it as one client.") {
		t.Errorf("found: %q", lines)
	}
	if lines := p.fleetReport(now.Add(time.Minute)); len(lines) != 0 {
		t.Errorf("again: %q", lines)
	}
	lines = p.fleetReport(now.Add(6 * time.Minute))
	if len(lines) != 1 || !strings.Contains(lines[0], " ended: ") || !strings.Contains(lines[0], "0 of them refused") {
		t.Errorf("ended: %q", lines)
	}
}
