package proxy

import (
	"log"
	"net/http"
	"strings"
	"testing"
)

func TestCost(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		lines string // "\n" ends one
		want  int64
	}{
		{"12", 12},
		{" 12\t", 12},
		{"0", 0},
		{"0.0", 0},
		{"3.0", 3},
		{"2.1", 3}, // nothing is free
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
		got, told := cost(strings.Split(test.lines, "\n"), 1000)
		if told != (test.want != none) || told && got != test.want {
			t.Errorf("%q: %d, told %v; want %d", test.lines, got, told, test.want)
		}
	}
	if got, told := cost([]string{"9007199254740993"}, 1<<53); got != 1<<53 || !told {
		t.Errorf("the most that is told: %d, %v", got, told)
	}
}

func FuzzCost(f *testing.F) {
	for _, seed := range []string{"12", "2.5\n3", "1e999", "-0", "3,3", "", "+1.e+2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
		want, wantTold := int64(0), len(lines) > 0
		for i, item := range strings.Split(strings.Join(lines, ","), ",") {
			// A unit is a nanosecond of the other parser, a millionth of a number.
			one := int64(1000)
			switch d := readMilliseconds(strings.Trim(item, " \t")); {
			case d < 0:
				wantTold = false
			case d < 1_000_000_000:
				one = (int64(d) + 999_999) / 1_000_000
			}
			if i > 0 && one != want {
				wantTold = false
			}
			want = one
		}
		got, told := cost(lines, 1000)
		if told != wantTold || got < 0 || got > 1000 {
			t.Errorf("%q: %d, told %v; want %v", text, got, told, wantTold)
		}
		if told && got != want && got != want+1 { // the model does not see less than a millionth
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
			t.Errorf("%q may tell costs", name)
		}
	}
}
