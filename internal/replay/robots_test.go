package replay

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/robots"
)

// A log of three bots and a browser, and what the report says of them.
func TestReportSaysWhichBotsBreakRobots(t *testing.T) {
	file, err := robots.Parse([]byte("User-agent: GoodBot\nDisallow: /good\nCrawl-delay: 5\n\n"+
		"User-agent: *\nDisallow: /private\nDisallow: /cart\nCrawl-delay: 10\nContent-Signal: ai-train=no\nFoo: bar\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	line := func(after time.Duration, client, path, agent string) {
		fmt.Fprintf(&log, "%s - - [%s] \"GET %s HTTP/1.1\" 200 1000 \"-\" %q\n", client,
			at.Add(after).Format("02/Jan/2006:15:04:05 -0700"), path, agent)
	}
	for i := range 30 {
		after := time.Duration(i) * 2 * time.Second
		line(after, "192.0.2.1", fmt.Sprintf("/private/%d?token=secret", i), "BadBot/1.0")
		line(after, "192.0.2.2", "/private/x", "Firefox")
		if i%3 == 0 {
			line(after, "192.0.2.3", "/private/but/allowed/for/it", "GoodBot/2.0")
		}
	}
	line(time.Minute, "192.0.2.1", "/cart", "BadBot/1.0")
	line(time.Minute, "192.0.2.1", "/robots.txt", "BadBot/1.0")
	line(time.Minute, "192.0.2.4", "/private", "ToolBot/1.0") // not a crawler

	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "robots.txt", Action: fairshare.Block,
		Match: fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}}}}}
	opts := Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t), Robots: file,
		Logs: []string{writeLines(t, "access.log", strings.Split(strings.TrimSpace(log.String()), "\n")...)}}
	opts.Bot = func(_ netip.Addr, agent string) fairshare.Bot {
		name, _, found := strings.Cut(agent, "/")
		category := "search"
		if name == "ToolBot" {
			category = "tool"
		}
		if !found {
			return fairshare.Bot{}
		}
		return fairshare.Bot{Name: strings.ToLower(name), Categories: []string{category}, State: fairshare.Claimed}
	}
	report := replayAll(t, opts)
	if report.Verdicts.Block != 31 {
		t.Errorf("%d blocked, want 31", report.Verdicts.Block)
	}
	o := report.Robots
	if o == nil || len(o.Bots) != 2 || o.Requests != 41 || o.Disallowed != 31 || len(o.Faults) != 1 ||
		len(o.Statements) != 1 {
		t.Fatalf("%+v", o)
	}
	bad, good := o.Bots[0], o.Bots[1]
	if bad.Name != "badbot" || bad.Named || bad.Requests != 31 || bad.Disallowed != 31 ||
		bad.DisallowedBytes != 31_000 || bad.TooSoon != 30 || bad.BusiestMinute != 30 || bad.DelaySeconds != 10 ||
		bad.AllowedPerMinute != 6 ||
		bad.MeanSeconds != 2 || bad.DelayLine != 8 {
		t.Errorf("%+v", bad)
	}
	want := []RobotsLine{{Line: 6, Rule: "Disallow: /private", Requests: 30, Example: "/private/0"},
		{Line: 7, Rule: "Disallow: /cart", Requests: 1, Example: "/cart"}}
	if fmt.Sprint(bad.Lines) != fmt.Sprint(want) {
		t.Errorf("lines %v, want %v", bad.Lines, want)
	}
	if good.Name != "goodbot" || !good.Named || good.Disallowed != 0 || good.TooSoon != 0 {
		t.Errorf("%+v", good)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text, Style{Width: 100}); err != nil {
		t.Fatal(err)
	}
	joined := strings.Join(strings.Fields(text.String()), " ")
	for _, part := range []string{
		"31 of 41 requests of bots that it concerns are disallowed (76 %).",
		"badbot (known): 31 of 31 requests disallowed (100 %), 31.0 kB",
		"line 6, Disallow: /private: 30, such as /private/0",
		"badbot (known): faster than line 8 asks: 30 of 31 requests came less than 10s after the one before, " +
			"on average 2s; 30 in the busiest minute instead of 6",
		"1 other bot kept it.",
		`line 10 (without effect): "Foo" is not a key`,
		"line 9 (about the use of pages): Content-Signal: ai-train=no (for *)",
	} {
		if !strings.Contains(joined, part) {
			t.Errorf("the text lacks %q:\n%s", part, text.String())
		}
	}
	if strings.Contains(text.String(), "secret") {
		t.Error("the text has a query")
	}
}
