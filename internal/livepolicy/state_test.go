package livepolicy

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/registrar"
	"fairshare/internal/reports"
	"fairshare/memlimit"
	"fairshare/registry"
)

// The counters are written every minute and at the end. A successor can read them
// after handOver. An error is logged once, and the next try comes in a minute.
func TestCountersAreWrittenEveryMinute(t *testing.T) {
	dir := t.TempDir()
	limits := []fairshare.Limit{{Name: "one", Resource: fairshare.Requests, N: 1, Window: time.Hour}}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		logged := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lines)
		}
		open := func() (*State, *memlimit.Limiter) {
			limiter, err := memlimit.New(limits, memlimit.Options{Memory: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			m, err := (&Policy{options: Options{Folder: dir, NoRegistry: true, Clock: httpguard.NewClock(),
				Log: func(line string) {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, line)
				}}}).openState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m.restoreCounters(t.Context(), limiter, nil, httpguard.NewClock(), time.Now())
			return m, limiter
		}
		over := func(l *memlimit.Limiter) bool {
			tallies := make([]fairshare.Tally, 1)
			if err := l.Take(t.Context(), time.Now(), []fairshare.Take{{Key: []byte("client"), Cost: 1}},
				tallies); err != nil {
				t.Fatal(err)
			}
			return tallies[0].Over
		}
		path := filepath.Join(dir, CountersFile)
		m, limiter := open()
		if over(limiter) {
			t.Error("a first request is over the limit")
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.run(ctx, func() (*memlimit.Limiter, time.Time) { return limiter, time.Now() })
		}()
		time.Sleep(saveEvery - time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before a minute is over: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("after a minute: %v", err)
		}

		// A folder with the name of the file cannot be replaced.
		os.Remove(path)
		if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * saveEvery)
		synctest.Wait()
		if logged := logged(); len(logged) != 1 || !strings.Contains(logged[0], "the counters could not be written") {
			t.Errorf("logged %q", logged)
		}
		os.RemoveAll(path)
		time.Sleep(saveEvery)
		synctest.Wait()
		if logged := logged(); len(logged) != 2 || logged[1] != "the counters are written again" {
			t.Errorf("logged %q", logged)
		}

		// After handOver they belong to the successor: the end does not change them.
		m.handOver(limiter, time.Now())
		next, counted := open()
		if !over(counted) {
			t.Error("a restart has dropped the counters")
		}
		next.close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		end()
		<-done
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("written after they were handed over: %v", err)
		}
		m.close()
	})
}

// A lazyStore takes a while to write. Nothing is in it.
type lazyStore struct {
	registry.Store
	mu      sync.Mutex
	written []fairshare.BanRecord
	stories []registry.Story
}

// bans returns how many bans were written.
func (s *lazyStore) bans() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.written)
}

func (s *lazyStore) Write(_ context.Context, b registry.Batch) error {
	time.Sleep(50 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.stories = append(s.written, b.Bans...), append(s.stories, b.Stories...)
	return nil
}

func (*lazyStore) Changes(context.Context, registry.Version) (registry.Changes, error) {
	return registry.Changes{}, nil
}

// The answer that reports a ban waits until the ban is on disk.
func TestBansAreStoredBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "rapid"}}}
		client := netip.MustParseAddr("203.0.113.9")
		for _, c := range []struct {
			report httpguard.Report
			waits  bool
		}{
			{httpguard.Report{Finding: fairshare.Finding{Ban: fairshare.BanStarted}}, true},
			{httpguard.Report{Finding: fairshare.Finding{Ban: fairshare.BanInForce}}, true},
			{httpguard.Report{Finding: fairshare.Finding{Ban: fairshare.BanStarted}, DryRun: true}, false},
			{httpguard.Report{}, false},
		} {
			store := &lazyStore{}
			m := &State{registrar: registrar.New(registrar.Options{Store: store, Prefix: policy.Client})}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- m.registrar.Run(ctx) }()
			m.registrar.Banned(fairshare.BanRecord{Client: fairshare.PrefixID(policy.Client(client)), Rule: "rapid",
				Kind: fairshare.ByAddr, Began: time.Now(), Until: time.Now().Add(time.Hour)})
			c.report.Request = &fairshare.Request{Addr: client, Time: time.Now()}
			c.report.Finding.Action, c.report.Finding.Rule = fairshare.Refuse, &policy.Rules[0]
			m.recordRefused(reports.OfReport(&c.report))
			if !c.report.DryRun {
				m.settle(&c.report.Finding)
			}
			if waited := store.bans() > 0; waited != c.waits {
				t.Errorf("ban %v, dry run %v: waited %v", c.report.Finding.Ban, c.report.DryRun, waited)
			}
			stop()
			if err := <-ended; err != nil || store.bans() == 0 {
				t.Errorf("written in the end: %d, %v", store.bans(), err)
			}
		}
	})
}

// The story of a refusal has the line of robots.txt that it is based on, and not one that allows a
// request during a ban.
func TestStoriesHaveTheLineOfRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := &fairshare.Rule{Name: "robots", Match: fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}}}
		for _, c := range []struct {
			rule *fairshare.Rule
			ban  fairshare.BanState
			want string
		}{
			{rule, fairshare.NotBanned, "line 12, Disallow: /private"},
			{rule, fairshare.BanInForce, ""},
			{&fairshare.Rule{Name: "rapid"}, fairshare.NotBanned, ""},
		} {
			store := &lazyStore{}
			m := &State{registrar: registrar.New(registrar.Options{Store: store, Prefix: new(fairshare.Policy).Client})}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- m.registrar.Run(ctx) }()
			m.recordRefused(reports.OfReport(&httpguard.Report{ID: "7k3m9x2abc",
				Finding: fairshare.Finding{Action: fairshare.Block, Rule: c.rule, Ban: c.ban},
				Request: &fairshare.Request{Addr: netip.MustParseAddr("203.0.113.9"), Time: time.Now(),
					Robots: fairshare.Robots{Disallowed: true, Line: 12, Rule: "Disallow: /private"}}}))
			stop()
			if err := <-ended; err != nil || len(store.stories) != 1 || store.stories[0].Robots != c.want {
				t.Errorf("%s, ban %v: %+v, %v; want %q", c.rule.Name, c.ban, store.stories, err, c.want)
			}
		}
	})
}

// What requests in progress cost after handOver is written at the end, unless another process has used the folder
// since.
func TestCostsAfterHandOverAreWritten(t *testing.T) {
	limits := []fairshare.Limit{{Name: "cost", Resource: fairshare.Requests, N: 100, Window: time.Hour}}
	now := time.Now()
	for _, test := range []struct {
		name string
		next func(open func() (*State, *memlimit.Limiter), charge func(*memlimit.Limiter, int64) bool)
		want int64
	}{
		{"nobody else", func(func() (*State, *memlimit.Limiter), func(*memlimit.Limiter, int64) bool) {}, 30},
		{"a successor that ended", func(open func() (*State, *memlimit.Limiter),
			charge func(*memlimit.Limiter, int64) bool) {
			s, limiter := open()
			charge(limiter, 40)
			s.saveCounters(limiter, now)
			s.close()
		}, 50},
		{"a successor", func(open func() (*State, *memlimit.Limiter),
			charge func(*memlimit.Limiter, int64) bool) {
			s, limiter := open()
			charge(limiter, 40)
			t.Cleanup(s.close)
		}, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			open := func() (*State, *memlimit.Limiter) {
				t.Helper()
				limiter, err := memlimit.New(limits, memlimit.Options{Memory: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				s, err := (&Policy{options: Options{Folder: dir, NoRegistry: true, Clock: httpguard.NewClock(),
					Log: func(string) {}}}).openState(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.restoreCounters(t.Context(), limiter, nil, httpguard.NewClock(), now)
				return s, limiter
			}
			charge := func(l *memlimit.Limiter, cost int64) (over bool) {
				t.Helper()
				tallies := make([]fairshare.Tally, 1)
				if err := l.Take(t.Context(), now, []fairshare.Take{{Key: []byte("client"), Cost: cost}},
					tallies); err != nil {
					t.Fatal(err)
				}
				return tallies[0].Over
			}
			s, limiter := open()
			charge(limiter, 10)
			s.handOver(limiter, now)
			charge(limiter, 20)
			test.next(open, charge)
			ended, end := context.WithCancel(t.Context())
			end()
			s.run(ended, func() (*memlimit.Limiter, time.Time) { return limiter, now })
			s.close()
			saved, err := memlimit.New(limits, memlimit.Options{Memory: 1 << 20})
			if err == nil {
				_, err = saved.LoadFile(filepath.Join(dir, CountersFile), now)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !charge(saved, 100-test.want+1) || charge(saved, 100-test.want) {
				t.Errorf("the counters do not have %d", test.want)
			}
		})
	}
}

// The main loop of a server does not wait for a snapshot that is being written, such as on a disk that hangs.
func TestReportsDoNotWaitForTheDisk(t *testing.T) {
	p := openPolicy(t, "rules: [{use: default}]")
	p.state.mu.Lock() // as saveCounters does
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.FrequentReport()
		p.MinuteReport(t.Context())
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it waits")
	}
	p.state.mu.Unlock()
	<-done
}
