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
	"fairshare/internal/registrar"
	"fairshare/share"
)

// The names, units and help texts are as Prometheus recommends.
func TestMetricsFollowTheConventions(t *testing.T) {
	stats := share.New(share.Options{Capacity: 1}).Stats()
	m := newMetrics(func() livepolicy.Figures {
		return livepolicy.Figures{Share: &stats, Registry: new(registrar.Stats)}
	})
	m.passed(&httpguard.Completion{Status: 200, Took: time.Second, Bytes: 1})
	m.refused(&httpguard.Report{Finding: fairshare.Finding{Action: fairshare.Refuse}})
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
	m := newMetrics(func() livepolicy.Figures { return livepolicy.Figures{} })
	passed := &httpguard.Completion{Status: 200, Took: time.Second, Bytes: 1}
	refused := &httpguard.Report{Finding: fairshare.Finding{Action: fairshare.Refuse,
		Rule: &fairshare.Rule{Name: "three"}}}
	m.refused(refused)
	if n := testing.AllocsPerRun(1000, func() {
		m.passed(passed)
		m.refused(refused)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMetrics(b *testing.B) {
	m := newMetrics(func() livepolicy.Figures { return livepolicy.Figures{} })
	passed := &httpguard.Completion{Status: 200, Took: 20 * time.Millisecond, Bytes: 1000}
	b.ReportAllocs()
	for b.Loop() {
		m.passed(passed)
	}
}

// The documentation describes all metrics, and the alerts and the dashboard use no others.
func TestMetricsAreDocumented(t *testing.T) {
	stats := share.New(share.Options{Capacity: 1}).Stats()
	m := newMetrics(func() livepolicy.Figures {
		return livepolicy.Figures{Share: &stats, Registry: new(registrar.Stats)}
	})
	m.refused(new(httpguard.Report))
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
