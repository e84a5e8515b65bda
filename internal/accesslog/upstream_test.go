package accesslog

import (
	"strings"
	"testing"
	"time"
)

// The upstream's time is distinguished from the time of the whole request, and from a missing time.
func TestUpstreamTimes(t *testing.T) {
	const head = `971211336.250 192.0.2.7 "GET /a?b=c HTTP/1.1" 200 2326 `
	for _, c := range []struct {
		name, format, tail string
		whole, upstream    time.Duration
		has                Fields
	}{
		{"both", `$request_time $upstream_response_time`, `0.500 0.100`, 500 * time.Millisecond,
			100 * time.Millisecond, HasDuration | HasUpstream},
		{"the other way round", `$upstream_response_time $request_time`, `0.100, 0.200 : 0.005 0.500`,
			500 * time.Millisecond, 305 * time.Millisecond, HasDuration | HasUpstream},
		{"some of a list failed", `$request_time $upstream_response_time`, `0.500 -, 0.020`, 500 * time.Millisecond,
			20 * time.Millisecond, HasDuration | HasUpstream},
		{"a list of nothing", `$request_time $upstream_response_time`, `0.500 -, -`, 500 * time.Millisecond, 0,
			HasDuration | HasUpstream},
		{"nobody was asked", `$request_time $upstream_response_time`, `0.500 -`, 500 * time.Millisecond, 0,
			HasDuration | HasUpstream},
		{"in quotes", `$request_time "$upstream_response_time"`, `0.500 "0.020, 0.030"`, 500 * time.Millisecond,
			50 * time.Millisecond, HasDuration | HasUpstream},
		{"alone", `$upstream_response_time`, `0.100`, 100 * time.Millisecond, 100 * time.Millisecond,
			HasDuration | HasUpstream},
		{"no number", `$request_time "$upstream_response_time"`, `0.500 "soon"`, 500 * time.Millisecond, 0,
			HasDuration},
		{"not logged", `$request_time`, `0.500`, 500 * time.Millisecond, 0, HasDuration},
		{"endless", `$upstream_response_time`, strings.Repeat("1000000000, ", 20) + "1000000000", maxDuration,
			maxDuration, HasDuration | HasUpstream},
	} {
		e, reason := parseLine(compiled(t, `$msec $remote_addr "$request" $status $body_bytes_sent `+c.format),
			head+c.tail)
		if has := e.Has & (HasDuration | HasUpstream); reason != "" || e.Duration != c.whole ||
			e.Upstream != c.upstream || has != c.has {
			t.Errorf("%s: %v, upstream %v, has %b (%s); want %v, %v, %b", c.name, e.Duration, e.Upstream, has, reason,
				c.whole, c.upstream, c.has)
		}
	}
}

func TestServerTimingHasCPUTime(t *testing.T) {
	for _, c := range []struct {
		in    string
		want  time.Duration
		found bool
	}{
		{`cpu;dur=12.5`, 12500 * time.Microsecond, true},
		{`db;dur=53.2, cpu ; DUR = "12.5" ;desc=x`, 12500 * time.Microsecond, true},
		{`cpu;desc="a;dur=9, cpu;dur=8 \" ,";dur=7`, 7 * time.Millisecond, true},
		{`cpu;dur=1;dur=2`, time.Millisecond, true},
		{`cpu;dur=1, cpu;dur=2.25`, 3250 * time.Microsecond, true},
		{`cpu;dur=0`, 0, true},
		{`cpu`, 0, false},
		{`cpu;dur=-1`, 0, false},
		{`cpu;dur=1e3`, time.Second, true},
		{`cpu;dur=2.5e-05`, 25 * time.Nanosecond, true},
		{`cpu;dur=9e99, cpu;dur=1`, 24 * time.Hour, true},
		{`cpu;dur=NaN`, 0, false},
		{`cpu;dur=0x10`, 0, false},
		{`CPU;dur=3`, 0, false},
		{`cpux;dur=3, db;cpu=4`, 0, false},
		{`cpu;desc="never ends;dur=3`, 0, false},
		{``, 0, false},
	} {
		e := Entry{}
		if new(worker).setTiming(&e, c.in); e.CPU != c.want || e.Has&HasCPU != 0 != c.found {
			t.Errorf("%q: %v, found %v; want %v, %v", c.in, e.CPU, e.Has&HasCPU != 0, c.want, c.found)
		}
	}
	e := Entry{}
	if (&worker{metric: "app"}).setTiming(&e, "cpu;dur=1, app;dur=2"); e.CPU != 2*time.Millisecond {
		t.Errorf("metric app: %v, want 2ms", e.CPU)
	}
	nginx := compiled(t,
		`$msec $remote_addr "$request" $status "$upstream_http_server_timing" "$sent_http_server_timing"`)
	e, reason := parseLine(nginx,
		`971211336.250 192.0.2.7 "GET / HTTP/1.1" 200 "cpu;desc=\x22a, b\x22;dur=3" "cpu;dur=9"`)
	if e.CPU != 3*time.Millisecond || reason != "" {
		t.Errorf("nginx: %v (%s), want the upstream's 3ms", e.CPU, reason)
	}
	e, reason = parseLine(compiled(t, `%h %t "%r" %>s %b "%{Server-Timing}o"`),
		`192.0.2.7 [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5 "cpu;dur=3"`)
	if e.CPU != 3*time.Millisecond || reason != "" {
		t.Errorf("Apache: %v (%s), want 3ms", e.CPU, reason)
	}
}

func FuzzServerTiming(f *testing.F) {
	for _, s := range []string{`cpu;dur=12.5`, `a;b="c, d", cpu;dur="3";x`, `cpu;desc="\"`, `,;=,cpu;dur`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sum, found := timeOf(s, "cpu")
		if sum < 0 || sum > maxCPU || !found && sum != 0 {
			t.Errorf("%q: %v, found %v", s, sum, found)
		}
		if strings.ContainsAny(s, `"`) {
			return
		}
		// Another entry of the metric adds its value; another metric adds nothing.
		more, _ := timeOf("cpu;dur=2,x;dur=5,"+s, "cpu")
		if want := min(sum+2*time.Millisecond, maxCPU); more != want {
			t.Errorf("%q: with 2ms more %v, want %v", s, more, want)
		}
	})
}
