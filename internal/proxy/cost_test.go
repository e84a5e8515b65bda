package proxy

import (
	"log"
	"math"
	"net/http"
	"strings"
	"testing"
)

func TestCost(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		lines string // separated by "\n"
		want  int64
	}{
		{"12", 12},
		{" 12\t", 12},
		{"0", 0},
		{"0.0", 0},
		{"3.0", 3},
		{"2.1", 3}, // rounded up
		{"1e2", 100},
		{"1000", 1000},
		{"1001", 1000},
		{"999.5", 1000},
		{"18446744073709551617", 1000},
		{"1e999", 1000},
		{"3\n3", 3},
		{"3, 3.0", 3},
		{"1001\n5000", 1000},
		{"3\n4", none},
		{"3, 4", none},
		{"3\n", none},
		{"3,", none},
		{"", none},
		{"-1", none},
		{"-", none},
		{"1 2", none},
		{"1;x=2", none},
		{"0x10", none},
		{"1_000", none},
		{"inf", none},
		{"NaN", none},
		{"much", none},
	} {
		got, reported := cost(strings.Split(test.lines, "\n"), 1000)
		if reported != (test.want != none) || reported && got != test.want {
			t.Errorf("%q: %d, reported %v; want %d", test.lines, got, reported, test.want)
		}
	}
	if got, reported := cost([]string{"9007199254740993"}, 1<<53); got != 1<<53 || !reported {
		t.Errorf("the highest cost: %d, %v", got, reported)
	}
}

func FuzzCost(f *testing.F) {
	for _, seed := range []string{"12", "2.5\n3", "1e999", "-0", "3,3", "", "+1.e+2", "0,1e-9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
		want, wantReported := int64(0), len(lines) > 0
		for i, item := range strings.Split(strings.Join(lines, ","), ",") {
			one := int64(1000)
			if r := readNumber(strings.Trim(item, " \t")); r == nil {
				wantReported = false
			} else if f, _ := r.Float64(); f < 1000 {
				one = int64(math.Ceil(f))
			}
			if i > 0 && one != want {
				wantReported = false
			}
			want = one
		}
		got, reported := cost(lines, 1000)
		if reported != wantReported || got < 0 || got > 1000 {
			t.Errorf("%q: %d, reported %v; want %v", text, got, reported, wantReported)
		}
		if reported && got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	})
}

func TestHeadersThatCannotReportCostsStay(t *testing.T) {
	var out lines
	p := New(Config{Upstream: &urlOfNobody, CostHeader: "set-cookie", MaxCost: -1, Log: log.New(&out, "", 0)})
	defer p.Close()
	s := p.setup.Load()
	h := http.Header{"Set-Cookie": {"a=b"}}
	if s.stripCosts(h); h.Get("Set-Cookie") != "a=b" || s.isCostHeader("Set-Cookie") || s.readsCosts() ||
		!strings.Contains(out.String(), "Set-Cookie cannot report costs") {
		t.Errorf("%v, and the log says %q", h, out.String())
	}
	if s.MaxCost != DefaultMaxCost {
		t.Errorf("at most %d", s.MaxCost)
	}
}

func TestCheckCostHeader(t *testing.T) {
	for _, name := range []string{"X-Cost", "x-cost", "X_Cost", "Cost", "X-GitLab-Score-Gitaly", "Request-Score"} {
		if err := CheckCostHeader(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "X Cost", "X:Cost", "X.Cost", "X-Cöst", "\"X\"",
		"connection", "Transfer-Encoding", "TE", "Trailer", "Upgrade", "Keep-Alive", "Expect", // of the connection
		"Content-Length", "content_length", "Content-Type", "Content-Encoding", "Host", "Range", "Date",
		"Cookie", "Set-Cookie", "Authorization", "WWW-Authenticate", "Proxy-Authorization", "Sec-Fetch-Site",
		"Cache-Control", "ETag", "If-None-Match", "Vary", "Location", "Accept", "Accept-Encoding", "User-Agent",
		"Server-Timing",
		"X-Forwarded-For", "X_Forwarded_For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "Fairshare-Client",
		"Retry-After", "RateLimit",
		"Access-Control-Allow-Origin", "X-Accel-Redirect", "Grpc-Status", "X-HTTP-Method-Override",
	} {
		if err := CheckCostHeader(name); err == nil {
			t.Errorf("%q may report costs", name)
		}
	}
}
