package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/bots"
)

// sequential is the model of Run: one goroutine reads, judges and counts one line after the other.
func sequential(t *testing.T, opts Options) *Report {
	t.Helper()
	opts.Log.Workers = 1
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j, err := newJudge(r)
	if err != nil {
		t.Fatal(err)
	}
	j.now = new(atomic.Pointer[judging]) // nothing is done before the judge asks for it
	r.judge.Store(nil)
	if !j.early { // the judge looks for fleets, whatever the policy is
		j.early = true
		j.fleets.restart()
	}
	rec := newRecorder(r)
	rec.bots = &j.bots
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(rec.verdicts.header())
	for _, f := range j.feeds {
		f.next = -1 // before the first batch
	}
	more := func(f *feed) bool { // the next line of f, if there is one
		for f.cur == nil || f.next == len(f.cur.items) {
			if f.cur != nil {
				rec.skips(f.cur)
			}
			file, err := f.log.open()
			check(err)
			src, err := file.Next()
			if errors.Is(err, io.EOF) {
				f.log.done()
				return false
			}
			check(err)
			f.cur, f.next = src.Data.(*batch), 0
			f.cur.log = f.log
		}
		f.at = f.cur.items[f.next].req.Time.UnixNano()
		return true
	}
	feeds := slices.DeleteFunc(slices.Clone(j.feeds), func(f *feed) bool { return !more(f) })
	for len(feeds) > 0 {
		first := slices.MinFunc(feeds, func(f, g *feed) int {
			if f.before(g) {
				return -1
			}
			return 1
		})
		items := first.cur.items[first.next:][:1]
		check(j.judge(t.Context(), &items[0], first))
		rec.line(&items[0], first.log)
		check(rec.verdicts.write(items, first.log.path))
		if first.next++; !more(first) {
			feeds = slices.DeleteFunc(feeds, func(f *feed) bool { return f == first })
		}
	}
	check(rec.verdicts.flush())
	return newReport(r, j, rec)
}

// Verdicts and report are the same on any number of cores, as those of one goroutine.
func TestOutputIsTheSameOnAnyNumberOfCores(t *testing.T) {
	dir := t.TempDir()
	random := func(seed uint64, lines int) string {
		path := filepath.Join(dir, fmt.Sprintf("%d.log", seed))
		peers := []string{"192.0.2.1", "192.0.2.9", "198.51.100.7", "2001:db8::1", "2001:db8:1::2", "10.0.0.2"}
		text := randomLog(rand.New(rand.NewPCG(seed, 1)), peers, lines,
			time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
		text = append(text, "not a line of a log\n"...)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	swarm := newLogWriter()
	swarm.swarm()
	logs := map[string][]string{
		"one random log":     {random(1, 5000)},
		"three random logs":  {random(2, 2000), random(3, 300), random(4, 3000)},
		"semicomplete":       {"testdata/semicomplete-2015.log.gz"},
		"airisdata":          {"testdata/airisdata-2016.log.gz"},
		"two real logs":      {"testdata/semicomplete-2015.log.gz", "testdata/airisdata-2016.log.gz"},
		"a swarm of clients": {swarm.write(t)},
	}
	policies := map[string]*fairshare.Policy{"five rules": fivePolicy()}
	for _, name := range []string{"windows", "gcra and quiet", "bots"} {
		policies[name] = realPolicies()[name]
	}
	look := bots.NewVerifier(bots.Options{}).Look
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for log, paths := range logs {
		for name, policy := range policies {
			if random := strings.Contains(log, "random"); !random && (name != "windows" || testing.Short()) {
				continue // enough
			}
			run := func(cores int) (verdicts, text string) {
				var out, report bytes.Buffer
				opts := Options{Policy: policy, Limiter: memory(4 << 20), Client: clientFunc(t, "10.0.0.0/8"),
					Logs: paths, Bot: look, Browsers: true, Attempts: true, Verdicts: &out}
				opts.Log.BlockSize = 8 << 10 // many batches
				var got *Report
				if cores == 0 {
					got = sequential(t, opts)
				} else {
					runtime.GOMAXPROCS(cores)
					got = replayAll(t, opts)
				}
				got.BrowserFleets = nil // estimates; TestFleetsAfterTheVerdicts looks at them
				if err := got.WriteJSON(&report); err != nil {
					t.Fatal(err)
				}
				return withoutFleets(out.String()), report.String()
			}
			wantVerdicts, wantReport := run(0)
			for _, cores := range []int{1, 2, 16} {
				verdicts, report := run(cores)
				if verdicts != wantVerdicts {
					t.Errorf("%s, %q: other verdicts on %d cores: %s", log, name, cores,
						firstDifference(verdicts, wantVerdicts))
				}
				if report != wantReport {
					t.Errorf("%s, %q: another report on %d cores: %s", log, name, cores,
						firstDifference(report, wantReport))
				}
			}
		}
	}
}

// withoutFleets removes the column of the fleet: when a fleet is found depends on an estimate with
// random hashes.
func withoutFleets(verdicts string) string {
	var b strings.Builder
	for line := range strings.Lines(verdicts) {
		fields := strings.Split(line, "\t")
		b.WriteString(strings.Join(slices.Delete(fields, 10, 11), "\t"))
	}
	return b.String()
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n%s\nwant\n%s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// The recorder finds the fleets that the judge finds.
func TestFleetsAfterTheVerdicts(t *testing.T) {
	l := newLogWriter()
	l.swarm()
	var out bytes.Buffer
	opts := Options{Policy: fivePolicy(), Limiter: memory(4 << 20), Client: clientFunc(t), Logs: []string{l.write(t)},
		Verdicts: &out}
	got := replayAll(t, opts).BrowserFleets
	members := strings.Count(out.String(), "\tfleet-")
	out.Reset()
	want := sequential(t, opts).BrowserFleets
	if n := strings.Count(out.String(), "\tfleet-"); n < 5000 || members < n*9/10 || members > n*11/10 {
		t.Errorf("%d lines of fleets, want %d", members, n)
	}
	names := func(all []BrowserFleet) (names []string) {
		for i := range all {
			names = append(names, all[i].Name)
		}
		slices.Sort(names)
		return names
	}
	if !slices.Equal(names(got), names(want)) {
		t.Errorf("fleets %+v, want %+v", got, want)
	}
}
