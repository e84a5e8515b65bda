package policyfile

import (
	"fmt"
	"math/big"
	"strconv"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A share of CPU is percent × cores × per, exact to the microsecond, whatever the
// order of the keys in the file.
func TestSharesOfCPUAreExact(t *testing.T) {
	for _, c := range []struct {
		limit, upstream string
		n, burst        int64
	}{
		{"cpu: 7%, per: 15s", "cores: 4", 4_200_000, 0},
		{"per: 15s, cpu: 7%", "cores: 4", 4_200_000, 0},
		{"cpu: 7%, per: 15s", "from: server-timing", 8_400_000, 0}, // of the 8 cores of this machine
		{"cpu: 100%, per: 15s", "cores: 0.1", 1_500_000, 0},
		{"cpu: 100.000%, per: 1s", "cores: 4096", 4_096_000_000, 0},
		{"cpu: 0.1%, per: 1ms", "cores: 0.9999", 0, 0}, // a fault: not a microsecond
		{"cpu: 0.1%, per: 1ms", "cores: 1", 1, 0},
		{"cpu: 0.1%, per: 1ms", "cores: 1.9999", 1, 0}, // rounded down
		{"cpu: 0.07%, per: 1s", "cores: 0.3", 210, 0},  // 209.99999… in floating point
		{"cpu: 33.333333333%, per: 31d", "cores: 3", 2_678_399_999_973, 0},
		{"cpu: 1.05s, per: 15s", "cores: 4", 1_050_000, 0},
		{"cpu: 0.0019ms, per: 15s", "cores: 4", 1, 0},
		{"cpu: 7%, per: 15s, algorithm: gcra, burst: 1.5%", "cores: 4", 4_200_000, 900_000},
		{"cpu: 7%, per: 15s, algorithm: gcra, burst: 1m", "cores: 4", 4_200_000, 60_000_000},
		{"time: 50%, per: 1m", "cores: 4", 30_000_000, 0}, // cores are nothing to time
		{"time: 250%, per: 1m", "cores: 4", 150_000_000, 0},
		{"time: 30s, per: 1m", "cores: 4", 30_000_000, 0},
		{"time: 13031d5h58m26.842624s, per: 1m", "cores: 4", fairshare.MaxMicros, 0},
		{"time: 13031d5h58m26.842625s, per: 1m", "cores: 4", 0, 0},
		{"cpu: 100%, per: 31d", "cores: 420", 1_124_928_000_000_000, 0},
		{"cpu: 100%, per: 31d", "cores: 421", 0, 0}, // above MaxMicros
	} {
		for _, order := range []string{"upstream: {cpu: {%[2]s}}\nrules: [{name: a, limit: {%[1]s}}]",
			"rules: [{name: a, limit: {%[1]s}}]\nupstream: {cpu: {%[2]s}}"} {
			text := fmt.Sprintf(order, c.limit, c.upstream)
			f, err := Options{Cores: 8}.Parse("site.yaml", []byte(text))
			if c.n == 0 {
				if len(Faults(err)) != 1 {
					t.Errorf("%s: %v, want one fault", text, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if lim := f.Policy.Rules[0].Limit; lim.N != c.n || lim.Burst != c.burst {
				t.Errorf("%s: %d µs, burst %d, want %d and %d", text, lim.N, lim.Burst, c.n, c.burst)
			}
		}
	}
}

// Shares equal the result of a computation with fractions of whole numbers.
func TestSharesEqualFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		billionths := rapid.Int64Range(1, 100e9).Draw(t, "percent in billionths")
		tenths := rapid.Int64Range(1, 40960).Draw(t, "cores in tenths")
		ms := rapid.Int64Range(1, 31*86400e3).Draw(t, "per in ms")
		cpu := rapid.Bool().Draw(t, "cpu")
		resource := map[bool]string{true: "cpu", false: "time"}[cpu]
		text := fmt.Sprintf("upstream: {cpu: {cores: %d.%d}}\nrules: [{name: a, limit: {%s: %d.%09d%%, per: %dms}}]",
			tenths/10, tenths%10, resource, billionths/1e9, billionths%1e9, ms)
		want := new(big.Int).Mul(big.NewInt(billionths), big.NewInt(ms))
		want.Mul(want, big.NewInt(1000))
		over := big.NewInt(1e11)
		if cpu {
			want.Mul(want, big.NewInt(tenths))
			over = big.NewInt(1e12)
		}
		want.Quo(want, over)
		f, err := Parse("site.yaml", []byte(text))
		if want.Sign() == 0 || want.Cmp(big.NewInt(fairshare.MaxMicros)) > 0 {
			if len(Faults(err)) != 1 {
				t.Fatalf("%s: %v, want one fault", text, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := f.Policy.Rules[0].Limit.N; got != want.Int64() {
			t.Fatalf("%s: %d, want %v", text, got, want)
		}
	})
}

func TestFormattedMicrosAreReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, fairshare.MaxMicros).Draw(t, "µs")
		if got, ok := parseDuration(formatMicros(n)); !ok || got != time.Duration(n)*time.Microsecond {
			t.Fatalf("%d µs are written %s, read %v", n, formatMicros(n), got)
		}
	})
	for n, want := range map[int64]string{1: "0.001ms", 1500: "1.5ms", 999_999: "999.999ms", 1e6: "1s",
		4_200_000: "4.2s", 60e6: "1m", 90e6: "1m30s", 90_000_001: "90.000001s"} {
		if got := formatMicros(n); got != want {
			t.Errorf("%d µs are written %s, want %s", n, got, want)
		}
	}
}

// Parse returns the sources of costs and the share in fields of the file.
func TestParseReadsCostsAndShares(t *testing.T) {
	part := func(kind fairshare.KeyKind, name string) fairshare.KeyPart {
		return fairshare.KeyPart{Kind: kind, Name: name}
	}
	byDefault := DefaultShareBy(false)
	for text, want := range map[string]File{
		"": {},
		`upstream: {url: "http://127.0.0.1:3000", cpu: {cores: 2.5}}`: {
			Serve: Serve{Upstream: "http://127.0.0.1:3000", UpstreamCPU: UpstreamCPU{Cores: 2.5}},
		},
		"upstream: {cpu: {from: server-timing}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "server-timing", Metric: "cpu"}},
		},
		"upstream: {cpu: {keep: true, metric: Total, from: server-timing, cores: 4}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "server-timing", Metric: "Total", KeepHeader: true, Cores: 4}},
		},
		"upstream: {cpu: {from: process}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "process"}},
		},
		"upstream: {cpu: {from: process, pid_file: run/x.pid, every: 50ms}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "process", PIDFile: "run/x.pid", Every: 50 * time.Millisecond}},
		},
		"upstream: {cpu: {from: cgroup, service: php8.2-fpm, every: 1s}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "cgroup", Cgroup: "php8.2-fpm", Every: time.Second}},
		},
		"upstream: {cpu: {from: cgroup, cgroup: /system.slice/x.service}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "cgroup", Cgroup: "/system.slice/x.service"}},
		},
		"upstream: {cpu: {from: cgroup, cgroup: /sys/fs/cgroup/a}}": {
			Serve: Serve{UpstreamCPU: UpstreamCPU{From: "cgroup", Cgroup: "/a"}},
		},
		"upstream: {cost: {header: X-Cost}}": {
			Serve: Serve{UpstreamCost: UpstreamCost{Header: "X-Cost", Max: 1e6}},
		},
		"upstream: {cost: {max: 8796093022208, header: x-gitlab-score}}": {
			Serve: Serve{UpstreamCost: UpstreamCost{Header: "x-gitlab-score", Max: fairshare.MaxBytes}},
		},
		"share: 32": {Share: &Share{Capacity: 32, By: byDefault, Wait: 10 * time.Second, Queue: 1024,
			Ages: true}},
		"share: auto": {Share: &Share{Min: 1, Max: 1024, By: byDefault, Wait: 10 * time.Second,
			Queue: 1024, Ages: true}},
		"share: {capacity: 65536}": {Share: &Share{Capacity: 65536, By: byDefault, Wait: 10 * time.Second,
			Queue: 1024, Ages: true}},
		"share: {min: 4, capacity: auto, max: 256}": {Share: &Share{Min: 4,
			Max: 256, By: byDefault, Wait: 10 * time.Second, Queue: 1024, Ages: true}},
		"share: {min: 2000, capacity: auto, by: bot, wait: 0s, queue: 0, known_after: 0s}": {Share: &Share{Min: 2000,
			Max: 2000, By: []fairshare.KeyPart{part(fairshare.ByBot, "")}}},
		"share: {capacity: 1, by: [host, header:X-Team, cookie:sid, user_agent], wait: 10m, queue: 1048576, known_after: 31d, weights: {labels: {VIP: 100}, bots: {Googlebot: 0.01, ai: 2}}}": {Share: &Share{
			Capacity: 1, By: []fairshare.KeyPart{part(fairshare.ByHost, ""), part(fairshare.ByHeader, "X-Team"),
				part(fairshare.ByCookie, "sid"), part(fairshare.ByUserAgent, "")},
			Wait: 10 * time.Minute, Queue: 1 << 20, Ages: true,
			Labels: map[string]float64{"vip": 100}, Bots: map[string]float64{"googlebot": 0.01, "ai": 2},
		}},
	} {
		f, err := Options{Bots: someBots}.Parse("site.yaml", []byte(text+"\nrules: []"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := File{Share: f.Share,
			Serve: Serve{Upstream: f.Upstream, UpstreamCPU: f.UpstreamCPU, UpstreamCost: f.UpstreamCost}}
		if diff := cmp.Diff(want, got, compareFiles); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	// An error of the file with the process ID has the position in the policy.
	f := parsed(t, "rules: []\nupstream: {cpu: {from: process, pid_file: /run/x.pid}}")
	if fault := f.Fault("/run/x.pid", fmt.Errorf("gone"), ""); fault.Line != 2 {
		t.Errorf("%v", fault)
	}
}

// A header with a standard meaning cannot carry costs, in upper or lower case.
func TestReservedHeadersCannotCarryCosts(t *testing.T) {
	for _, name := range append([]string{"HOST", "Sec-Fetch-Site", "access-control-allow-origin", "Fairshare-Client",
		"X-Forwarded-For"}, reservedHeaders...) {
		if _, err := Parse("site.yaml", []byte("upstream: {cost: {header: "+strconv.Quote(name)+
			"}}\nrules: []")); len(Faults(err)) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"X-Cost", "cost", "X-Complexity", "x-gitlab-score-gitaly", "X_Cost"} {
		if f, err := Parse("site.yaml", []byte("upstream: {cost: {header: "+name+"}}\nrules: []")); err != nil ||
			f.UpstreamCost.Header != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
