package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/reports"
	"fairshare/internal/setup"
	"fairshare/internal/toplist"
	"fairshare/internal/traffic"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A lines is the log of a server.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Many goroutines report requests at once. All that counts them has the same sums as a recorder that is called
// for each request: lists, totals, metrics, registry and journal.
func TestAllThatCountsHasTheSameSums(t *testing.T) {
	log, folder := new(lines), t.TempDir()
	opts := Options{Flags: Flags{Policy: writeFile(t, "site.yaml", "upstream: http://127.0.0.1:9\nrules:\n"+
		"  - {name: one, limit: {requests: 1, per: 1h, by: addr}}\n  - {name: two, match: {path: /b}, block: true}\n"),
		Listen: "127.0.0.1:0"}, State: folder, Now: time.Now, Stderr: log}
	file, err := opts.load(opts.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(t.Context(), file, opts)
	if err != nil {
		t.Fatal(err)
	}
	s.policy.Start(t.Context())
	slow, rules := traffic.New(s.policy.Now()), file.Policy.Rules
	guard := s.guardOptions(s.runtime.Load())
	const each, clients = 3000, 5
	var mu sync.Mutex
	spent := map[netip.Addr]registry.Spent{}
	refusals := 0
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(n)))
			for i := range each {
				addr := netip.AddrFrom4([4]byte{203, 0, 113, byte(r.IntN(clients))})
				req := &fairshare.Request{Time: s.policy.Now(), Addr: addr,
					Method: "GET", Host: "www.example.org", Path: fmt.Sprint("/", r.IntN(3)),
					UserAgent: fmt.Sprint("agent ", r.IntN(3))}
				client := file.Policy.Client(req.Addr)
				var sum registry.Spent
				if r.IntN(3) == 0 {
					c := &httpguard.Completion{Client: httpguard.Client{Addr: addr}, Method: req.Method,
						Host: req.Host,
						Path: req.Path, UserAgent: req.UserAgent, Time: req.Time, Took: time.Duration(r.IntN(100)),
						Status: 100 * (2 + r.IntN(4)), Bytes: int64(r.IntN(1000))}
					guard.Passed(c)
					g := reports.OfCompletion(c)
					g.Client = client
					slow.Passed(g)
					sum = registry.Spent{Requests: 1, Time: c.Took, Bytes: c.Bytes}
					if c.Status == 400 {
						sum.Errors = 1
					}
				} else {
					rule := &rules[r.IntN(2)]
					report := &httpguard.Report{Request: req, Status: 429, ID: "0123456789", DryRun: r.IntN(5) == 0,
						Finding: fairshare.Finding{Action: fairshare.Refuse, Rule: rule, Limit: rule.Limit}}
					sum = registry.Spent{Requests: 1, Refused: 1}
					if rule.Limit == nil {
						report.Finding.Action, report.Status = fairshare.Block, 403
						sum = registry.Spent{Requests: 1, Blocked: 1}
					}
					if report.DryRun {
						sum = registry.Spent{DryRun: 1}
					}
					guard.Refused(report)
					g := reports.OfReport(report)
					g.Client = client
					slow.Refused(g)
				}
				mu.Lock()
				total := spent[req.Addr]
				total.Add(sum)
				spent[req.Addr] = total
				refusals += int(sum.Refused + sum.Blocked + sum.DryRun)
				if i%1000 == 0 { // by one goroutine at a time, as serve calls it
					s.policy.FrequentReport()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s.policy.FlushReports()

	if got, want := s.console.Traffic.Totals(), slow.Totals(); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
	counted, want := s.console.Traffic.Rules(), slow.Rules()
	for name, w := range want {
		got := counted[name]
		got.Last, w.Last = time.Time{}, time.Time{}
		if got != w {
			t.Errorf("rule %s: %+v, want %+v", name, got, w)
		}
		metric := func(action string, dry string) int64 {
			return int64(testutil.ToFloat64(s.metrics.refusals.WithLabelValues("", name, action, dry)))
		}
		if n := metric("refuse", "false") + metric("block", "false"); n != w.Refused+w.Blocked {
			t.Errorf("metric of rule %s: %d, want %d", name, n, w.Refused+w.Blocked)
		}
	}
	for d := range traffic.Dimensions {
		if got, want := topOf(s.console.Traffic, d), topOf(slow, d); !reflect.DeepEqual(got, want) {
			t.Errorf("dimension %d: %v, want %v", d, got, want)
		}
	}
	if got := len(s.console.Traffic.Recent(1<<20, nil)); got != traffic.RecentKept {
		t.Errorf("%d refusals are kept", got)
	}
	passed := 0.0
	for _, class := range statusClasses {
		passed += testutil.ToFloat64(s.metrics.requests.WithLabelValues("", class))
	}
	if passed != float64(slow.Totals().Passed) {
		t.Errorf("metrics: %v passed, want %d", passed, slow.Totals().Passed)
	}

	// What was reported last is stored, too.
	s.policy.Stop()
	s.listener.Close()
	s.close()
	store, err := sqlregistry.Open(t.Context(), filepath.Join(folder, setup.RegistryFile), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for addr, want := range spent {
		r, err := store.Client(t.Context(), fairshare.PrefixID(file.Policy.Client(addr)))
		if err != nil || r.Record.Spent != want {
			t.Errorf("%v spent %+v, want %+v; %v", addr, r.Record.Spent, want, err)
		}
	}
	lines, sum := 0, 0
	for line := range strings.Lines(log.text.String()) {
		var entry struct{ Status, Repeated, Summed, Lost int }
		if line[0] != '{' {
			continue
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if sum += entry.Repeated + entry.Summed + entry.Lost; entry.Status > 0 {
			lines++
		}
	}
	// Of each client and rule, in dry run and not.
	if lines != clients*2*2 || lines+sum != refusals {
		t.Errorf("the journal has %d refusals in lines of their own and %d in others, want %d in all", lines, sum,
			refusals)
	}
}

// topOf returns the sums of all keys of a dimension.
func topOf(r *traffic.Recorder, d traffic.Dimension) map[string]toplist.Amounts {
	all := map[string]toplist.Amounts{}
	w := r.Top(d, time.Hour, r.Began().Add(time.Minute))
	for m := range toplist.Measures {
		for _, row := range w.Top(m, 100) {
			all[row.Key] = row.Low
		}
	}
	return all
}
