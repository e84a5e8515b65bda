package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairshare"
)

func costly(r fairshare.Resource, n int64, per time.Duration) *fairshare.Limit {
	return &fairshare.Limit{Resource: r, N: n, Window: per}
}

// Logged costs are charged once, at the line's time: the bytes, the CPU time of a logged
// Server-Timing, and the upstream's time. Without an upstream's time, the time of the
// whole request counts. A refused line has no cost.
func TestCostsAreChargedAtOnce(t *testing.T) {
	line := func(clock, rest string) string {
		return entryAt("192.0.2.1", clock, `"GET / HTTP/1.1" 200 100 "-" "curl/8.1" `+rest)
	}
	for _, c := range []struct {
		name  string
		limit *fairshare.Limit
		lines []string
		want  string
	}{
		{"time of the whole request", costly(fairshare.Time, 3e6, time.Hour),
			[]string{line("10:00:00", "rt=2.000"), line("10:00:00", "rt=0.999"), line("10:00:01", "rt=9.000"),
				line("10:00:02", "rt=0.001"), line("10:00:03", "rt=0.000")}, "allow allow allow refuse refuse"},
		{"the upstream's time is preferred", costly(fairshare.Time, 3e6, time.Hour),
			[]string{line("10:00:00", `rt=9.000 urt="1.000, 1.000"`), line("10:00:00", "rt=9.000 urt=-"),
				line("10:00:01", "rt=9.000 urt=1.000"), line("10:00:02", "rt=0.001 urt=0.001")},
			"allow allow allow refuse"},
		{"CPU", costly(fairshare.CPU, 1_050_000, 15*time.Second), // windows begin at 10:00:00 and 10:00:15
			[]string{line("10:00:00", `rt=9.000 server_timing="cpu;dur=1049.999"`), line("10:00:01", "rt=9.000"),
				line("10:00:01", `rt=0.1 server_timing="cpu;dur=0.001"`),
				line("10:00:14", `server_timing="cpu;dur=50"`), line("10:00:15", ""), line("10:00:16", "")},
			"allow allow allow refuse refuse allow"},
		{"bytes", costly(fairshare.Bytes, 250, time.Hour),
			[]string{line("10:00:00", ""), line("10:00:00", ""), line("10:00:00", ""), line("10:00:00", "")},
			"allow allow allow refuse"},
		{"cost is in no log", costly(fairshare.Cost, 1, time.Hour),
			[]string{line("10:00:00", "rt=1.000"), line("10:00:00", "rt=1.000"), line("10:00:00", "rt=1.000")},
			"allow allow allow"},
		{"CPU is not in this log", costly(fairshare.CPU, 1, time.Hour),
			[]string{line("10:00:00", "rt=1.000"), line("10:00:00", "rt=1.000"), line("10:00:00", "rt=1.000")},
			"allow allow allow"},
	} {
		policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: c.limit},
			{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 99}}}}
		opts := Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "access.log", c.lines...)}}
		lines, j := judgeAll(t, opts)
		var got []string
		for _, l := range lines {
			got = append(got, l.enforced.action.String())
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: verdicts %s, want %s", c.name, got, c.want)
		}
		compare(t, opts, lines, j)
	}
}

// The report lists the costs that are not in the log, and a share.
func TestUnmeasuredCosts(t *testing.T) {
	rules := []fairshare.Rule{
		{Name: "seven percent", Limit: costly(fairshare.CPU, 1_050_000, 15*time.Second)},
		{Name: "slow pages", Limit: costly(fairshare.Time, 30e6, time.Minute)},
		{Name: "units", Limit: costly(fairshare.Cost, 100, time.Minute)},
		{Name: "volume", Limit: costly(fairshare.Bytes, 500e6, time.Hour)},
	}
	const cpu, durations, cost = "seven percent: cpu: the log holds no CPU time",
		"slow pages: time: the log holds no durations", "units: cost: the log holds no cost"
	for _, c := range []struct {
		name, format, line string
		share              bool
		want               []string
	}{
		{"combined", "", entryAt("192.0.2.1", "10:00:00", ""), false, []string{cpu, durations, cost}},
		{"with the whole time", "", entryAt("192.0.2.1", "10:00:00", `"GET / HTTP/1.1" 200 100 "-" "-" rt=1.0`),
			false, []string{cpu, cost}},
		{"with the upstream's time", "", entryAt("192.0.2.1", "10:00:00", `"GET / HTTP/1.1" 200 100 "-" "-" urt=1.0`),
			false, []string{cpu, cost}},
		{"with CPU time", "", entryAt("192.0.2.1", "10:00:00",
			`"GET / HTTP/1.1" 200 100 "-" "-" server_timing="cpu;dur=3"`), false, []string{durations, cost}},
		{"a Server-Timing of other things", "", entryAt("192.0.2.1", "10:00:00",
			`"GET / HTTP/1.1" 200 100 "-" "-" server_timing="db;dur=3"`), false, []string{cpu, durations, cost}},
		{"no bytes", `$remote_addr [$time_local] $status $request_time`,
			`192.0.2.1 [17/May/2015:10:00:00 +0000] 200 0.1`, false,
			[]string{cpu, cost, "volume: bytes: the log holds no byte counts"}},
		{"a share", "", entryAt("192.0.2.1", "10:00:00", ""), true, []string{cpu, durations, cost,
			"share of a busy upstream: share: a log does not tell how busy the upstream was: nobody waits for a turn, is refused for want of one, or gets the waiting room"}},
		{"a share, nothing read", "", "", true, nil},
	} {
		opts := Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", c.line)}, Share: c.share}
		opts.Log.Format = c.format
		report := replayAll(t, opts)
		var got []string
		for _, u := range report.Unmeasured {
			got = append(got, u.Rule+": "+u.Fact+": "+u.Why)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// The JSON report shows the allowance of every limit. The text shows it for limits of
// other resources than requests.
func TestAllowancesAreReported(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "own", Match: fairshare.Match{Path: []string{"/own"}}, Action: fairshare.Allow},
		{Name: "rapid", Limit: requests(3, time.Second)},
		{Name: "slow pages", Limit: costly(fairshare.Time, 30e6, time.Minute)},
	}}
	report := replayAll(t, Options{
		Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs:      []string{writeLines(t, "log", entryAt("192.0.2.1", "10:00:00", ""))},
		Allowance: func(l *fairshare.Limit) string { return fmt.Sprintf("%d of %s in %v", l.N, l.Resource, l.Window) },
	})
	var out bytes.Buffer
	if err := report.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Rules []struct{ Resource, Allowance string }
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(read.Rules),
		"[{ } {requests 3 of requests in 1s} {time 30000000 of time in 1m0s}]"; got != want {
		t.Errorf("rules %s, want %s", got, want)
	}
	out.Reset()
	if err := report.WriteText(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text,
		"slow pages                       1          –          –          –          –\n    30000000 of time in 1m0s\n") || strings.Contains(text, "of requests in") {
		t.Errorf("report:\n%s", text)
	}
}
