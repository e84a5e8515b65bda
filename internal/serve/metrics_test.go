package serve

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/livepolicy"
	"fairshare/internal/proxy"
	"fairshare/internal/registrar"
	"fairshare/internal/reports"
	"fairshare/internal/storebans"
	"fairshare/redislimit"
	"fairshare/share"
)

// allFigures returns figures with which every metric has a value.
func allFigures(stats *share.Stats) figures {
	return figures{Figures: livepolicy.Figures{Share: stats, Registry: new(registrar.Stats),
		Group: new(redislimit.Status), Shared: new(storebans.Stats)},
		upstreams: []proxy.PoolState{{Site: "shop",
			Upstreams: []proxy.UpstreamState{{URL: "http://a", Checked: true}}}},
		certificates: []certificateState{{name: "shop.example.org"}}, spans: new(spanFigures)}
}

// twoSites returns the runtime of a policy with the sites www and shop.
func twoSites(t testing.TB) *runtime {
	table, err := fairshare.NewSites([]fairshare.Site{{Name: "www", Hosts: []string{"www.example.org"}},
		{Name: "shop", Hosts: []string{"shop.example.org"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime{table: table, sites: []proxy.Pool{{Name: "www"}, {Name: "shop"}}}
}

// Labels have the names of sites. A host that no site has adds none. What was counted for a site goes
// with it.
func TestMetricsCountBySite(t *testing.T) {
	m := newMetrics(func() figures { return figures{} })
	m.use(twoSites(t))
	for _, host := range []string{"www.example.org", "WWW.example.org:443", "shop.example.org", "made.up.example"} {
		m.Passed(reports.OfCompletion(&httpguard.Completion{Host: host, Status: 200, Took: time.Second, Bytes: 1}))
		m.Refused(reports.OfReport(&httpguard.Report{Request: &fairshare.Request{Host: host},
			Finding: fairshare.Finding{Action: fairshare.Refuse}}))
	}
	for site, want := range map[string]float64{"www": 2, "shop": 1, "": 1} {
		passed := testutil.ToFloat64(m.requests.WithLabelValues(site, "2xx"))
		refused := testutil.ToFloat64(m.refusals.WithLabelValues(site, "", "refuse", "false"))
		bytes := testutil.ToFloat64(m.bytes.WithLabelValues(site))
		if passed != want || refused != want || bytes != want {
			t.Errorf("site %q: %v passed, %v refused, %v bytes; want %v", site, passed, refused, bytes, want)
		}
	}
	m.forget("www")
	for name, n := range map[string]int{"requests": testutil.CollectAndCount(m.requests),
		"refusals": testutil.CollectAndCount(m.refusals), "bytes": testutil.CollectAndCount(m.bytes),
		"took": testutil.CollectAndCount(m.took)} {
		if want := map[string]int{"requests": 12, "refusals": 2, "bytes": 2, "took": 2}[name]; n != want {
			t.Errorf("%s: %d series after www was removed, want %d", name, n, want)
		}
	}
}

// The names, units and help texts are as Prometheus recommends.
func TestMetricsFollowTheConventions(t *testing.T) {
	stats := share.New(share.Options{Capacity: 1}).Stats()
	stats.Group = share.GroupStats{Members: 2, Capacity: 1}
	m := newMetrics(func() figures { return allFigures(&stats) })
	m.use(&runtime{})
	m.Passed(reports.OfCompletion(&httpguard.Completion{Status: 200, Took: time.Second, Bytes: 1}))
	m.Refused(reports.OfReport(&httpguard.Report{Request: &fairshare.Request{},
		Finding: fairshare.Finding{Action: fairshare.Refuse}}))
	m.unjudged(true)
	m.reloaded(false)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCountingARequestAllocatesNothing(t *testing.T) {
	m := newMetrics(func() figures { return figures{} })
	m.use(twoSites(t))
	passed := reports.OfCompletion(&httpguard.Completion{Host: "www.example.org", Status: 200, Took: time.Second,
		Bytes: 1})
	refused := reports.OfReport(&httpguard.Report{Request: &fairshare.Request{},
		Finding: fairshare.Finding{Action: fairshare.Refuse, Rule: &fairshare.Rule{Name: "three"}}})
	m.Refused(refused)
	if n := testing.AllocsPerRun(1000, func() {
		m.Passed(passed)
		m.Refused(refused)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMetrics(b *testing.B) {
	m := newMetrics(func() figures { return figures{} })
	m.use(twoSites(b))
	passed := reports.OfCompletion(&httpguard.Completion{Host: "www.example.org", Status: 200,
		Took: 20 * time.Millisecond, Bytes: 1000})
	b.ReportAllocs()
	for b.Loop() {
		m.Passed(passed)
	}
}

// The documentation describes all metrics, and the alerts and the dashboard use no others.
func TestMetricsAreDocumented(t *testing.T) {
	stats := share.New(share.Options{Capacity: 1}).Stats()
	stats.Group = share.GroupStats{Members: 2, Capacity: 1}
	m := newMetrics(func() figures { return allFigures(&stats) })
	m.use(&runtime{})
	m.Refused(reports.OfReport(&httpguard.Report{Request: &fairshare.Request{}}))
	m.unjudged(true)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, f := range families {
		has[f.GetName()] = true
	}
	read := func(path string) string {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	described := map[string]bool{}
	for _, cell := range regexp.MustCompile("(?m)^\\| `(.*)` \\| (?:counter|gauge|histogram) ").
		FindAllStringSubmatch(read("docs/metrics.md"), -1) {
		for name := range strings.SplitSeq(cell[1], "`, `") {
			name, _, _ = strings.Cut(name, "{")
			described["fairshare_"+name] = true
		}
	}
	for name := range has {
		if strings.HasPrefix(name, "fairshare_") && !described[name] {
			t.Errorf("docs/metrics.md does not describe %s", name)
		}
	}
	for name := range described {
		if !has[name] {
			t.Errorf("docs/metrics.md describes %s, which does not exist", name)
		}
	}
	for _, path := range []string{"deploy/prometheus/alerts.yaml", "deploy/prometheus/grafana.json"} {
		names := regexp.MustCompile(`\b(fairshare|process)_[a-z_]+`).FindAllString(read(path), -1)
		if len(names) < 8 {
			t.Errorf("%s: %d metrics", path, len(names))
		}
		for _, name := range names {
			if !has[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: %s does not exist", path, name)
			}
		}
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read("deploy/prometheus/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 || p.Targets[0].Expr == "" {
			t.Errorf("a panel without a query: %+v", p)
		}
	}
}
