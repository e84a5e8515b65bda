package replay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

// crawlers returns lines of addrs addresses that claim to be the same bot.
func crawlers(addrs, lines int) []string {
	var out []string
	for i := range lines {
		n, at := i%addrs, i*3599/lines
		out = append(out, entryAt(fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255),
			fmt.Sprintf("10:%02d:%02d", at/60, at%60), `"GET / HTTP/1.1" 200 100 "-" "GoodBot/1.0"`))
	}
	return out
}

// A lag is a DNS that answers after delay and verifies every address.
type lag struct {
	slowDNS
	delay time.Duration
}

func (d *lag) resolve(ctx context.Context, addr netip.Addr, list string) {
	d.mu.Lock()
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	select {
	case <-time.After(d.delay):
	case <-ctx.Done():
	}
	d.mu.Lock()
	d.now--
	d.mu.Unlock()
	d.slowDNS.resolve(ctx, addr, list)
}

func (d *lag) bot(addr netip.Addr, userAgent string) fairshare.Bot {
	b := testBot(addr, userAgent)
	if b.Name == "goodbot" && d.knows(addr, "") {
		b.State = fairshare.Verified
	}
	return b
}

// The DNS is asked once for each address, with maxCalls calls at a time, and no line is
// judged before its answer.
func TestDNSQuestionsRunConcurrently(t *testing.T) {
	path := writeLines(t, "log", crawlers(10_000, 20_000)...)
	synctest.Test(t, func(t *testing.T) {
		dns := &lag{delay: time.Second}
		begin := time.Now()
		policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "kind",
			Match: fairshare.Match{Bot: []string{"goodbot"}}, Action: fairshare.Allow}}}
		report := replayAll(t, Options{
			Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{path},
			Bot: dns.bot, Resolve: dns.resolve,
		})
		if took := time.Since(begin); took != 10*time.Second || dns.most != maxCalls {
			t.Errorf("10,000 questions took %v, at most %d at once; want 10s with %d", took, dns.most, maxCalls)
		}
		for q, n := range dns.calls {
			if n != 1 {
				t.Fatalf("%v: %d calls", q, n)
			}
		}
		want := []BotReport{{Name: "goodbot", Category: "search", State: "verified", Clients: 10_000,
			BotShare: BotShare{Usage: Usage{Requests: 20_000, Bytes: 2_000_000}, RequestsShare: 1, BytesShare: 1}}}
		if len(dns.calls) != 10_000 || report.Rules[0].Matched != 20_000 || !slices.Equal(report.Bots, want) {
			t.Errorf("%d calls, %d matched, %+v", len(dns.calls), report.Rules[0].Matched, report.Bots)
		}
	})
}

// While some lines wait for the DNS, later lines are read. All lines are judged in order.
func TestLinesAreReadWhileEarlierOnesWait(t *testing.T) {
	var lines []string
	for i := range 4000 {
		l := entryAt("192.0.2.9", fmt.Sprintf("10:%02d:%02d", i/60%60, i%60), "")
		if i%100 == 0 {
			l = crawlers(i+1, i+1)[i]
		}
		lines = append(lines, l)
	}
	path := writeLines(t, "log", lines...)
	synctest.Test(t, func(t *testing.T) {
		dns := &lag{delay: 2 * time.Second}
		var verdicts strings.Builder
		opts := Options{
			Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{path},
			Bot: dns.bot, Resolve: dns.resolve, Verdicts: &verdicts,
		}
		opts.Log.BlockSize = 8 << 10 // some 90 lines
		begin := time.Now()
		replayAll(t, opts)
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("40 addresses in 40 batches took %v: batches do not wait together", took)
		}
		for i, l := range strings.Split(strings.TrimSpace(verdicts.String()), "\n")[1:] {
			if !strings.HasPrefix(l, fmt.Sprintf("%d\t", i+1)) {
				t.Fatalf("line %d of the verdicts is %q", i+1, l)
			}
		}
	})
}

// A run that waits for the DNS ends with its context.
func TestRunThatWaitsForDNSEndsWithItsContext(t *testing.T) {
	path := writeLines(t, "log", crawlers(1500, 3000)...)
	synctest.Test(t, func(t *testing.T) {
		dns := &lag{delay: 365 * 24 * time.Hour}
		r, err := New(Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{path, path}, Bot: dns.bot, Resolve: dns.resolve})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(30 * time.Second)
			if p := r.Progress(); p.Questions < maxCalls || p.Answers != 0 || p.Lines != 0 {
				t.Errorf("progress %+v, want %d questions and no judged line", p, maxCalls)
			}
		})
		if _, err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the run ended after %v", took)
		}
		wg.Wait()
	})
}

// The number of questions is bounded, and the report warns if the bound was reached.
func TestQuestionsAreBounded(t *testing.T) {
	dns := &slowDNS{}
	r, err := New(Options{
		Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", crawlers(500, 1000)...)},
		Bot:  (&lag{}).bot, Resolve: dns.resolve,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.dns.most = 100
	report, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(dns.calls) != 100 || len(report.Warnings) != 1 ||
		!strings.HasPrefix(report.Warnings[0].Text, "More than 100 DNS lookups") {
		t.Errorf("%d calls, warnings %+v", len(dns.calls), report.Warnings)
	}
	if p := r.Progress(); p.Questions != 100 || p.Answers != 100 {
		t.Errorf("progress %+v", p)
	}
}

// The DNS is asked about a client only if all other conditions of the match hold, and
// never about a proxy.
func TestOnlyNeededQuestionsAreAsked(t *testing.T) {
	post := func(agent, forwarded string) string {
		return `"POST /x HTTP/1.1" 200 1 "-" "` + agent + `" "` + forwarded + `"`
	}
	path := writeLines(t, "log",
		entryAt("192.0.2.1", "10:00:00", `"GET / HTTP/1.1" 200 1 "-" "Mozilla" "-"`),
		entryAt("192.0.2.2", "10:00:00", post("Mozilla", "-")),
		entryAt("192.0.2.2", "10:00:01", post("Mozilla", "-")),
		entryAt("192.0.2.3", "10:00:01", post("GoodBot", "-")), // is verified first, then looked up in the list
		entryAt("198.51.100.7", "10:00:01", `"GET / HTTP/1.1" 200 1 "-" "GoodBot" "-"`),
		entryAt("10.0.0.1", "10:00:02", post("GoodBot", "-")), // the proxy itself
		entryAt("10.0.0.1", "10:00:02", post("Mozilla", "203.0.113.5")),
		entryAt("192.0.2.4", "10:00:02", `"PUT / HTTP/1.1" 200 1 "-" "Mozilla" "-"`),
	)
	post1 := []string{"POST"}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "own", Match: fairshare.Match{Method: []string{"PUT"}, Hostname: []string{"*.example.org"}},
			Action: fairshare.Allow},
		{Name: "spam", Match: fairshare.Match{Method: post1, Listed: []fairshare.Listing{{List: "drone"}}},
			Action: fairshare.Block},
		{Name: "bots", Match: fairshare.Match{Method: post1, Bot: []string{"verified"},
			Listed: []fairshare.Listing{{List: "pot", HTTPBL: true}}}, Action: fairshare.Block},
		{Name: "ban", Limit: requests(9, time.Minute), Ban: &fairshare.BanTerms{After: 1, For: time.Second,
			Unless: &fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("203.0.113.0/24")},
				Hostname: []string{"x"}}}},
	}}
	dns := &slowDNS{}
	report := replayAll(t, Options{
		Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t, "10.0.0.0/8"), Logs: []string{path},
		Bot: dns.bot, Lookups: dns, Resolve: dns.resolve,
	})
	var got []string
	for q, n := range dns.calls {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d %v %s", n, q.addr, q.list)))
	}
	slices.Sort(got)
	want := []string{
		"1 192.0.2.2 drone", "1 192.0.2.3", "1 192.0.2.3 drone", "1 192.0.2.3 pot", "1 192.0.2.4",
		"1 198.51.100.7", "1 203.0.113.5", "1 203.0.113.5 drone",
	}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q\nwant  %q", got, want)
	}
	var states []string
	for _, b := range report.Bots {
		states = append(states, fmt.Sprintf("%s %s %d", b.Name, b.State, b.Requests))
	}
	if got, want := strings.Join(states, ", "), "goodbot pending 2, goodbot verified 1"; got != want {
		t.Errorf("bots %s, want %s", got, want)
	}
	// The DNS knows nothing about one of both; the other one is the proxy itself.
	if report.BotSummary.Pending != 1 || len(report.Unmeasured) != 1 ||
		report.Unmeasured[0].Why != "1 request of bots could not be verified or found forged" {
		t.Errorf("%d pending, unmeasured %+v", report.BotSummary.Pending, report.Unmeasured)
	}
}
