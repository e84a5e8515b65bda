package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/limittest"
)

// A ledger is a limiter that records each charge and its time.
type ledger struct {
	fairshare.Limiter
	limits []fairshare.Limit
	start  time.Time

	mu    sync.Mutex
	lines []string
}

func (l *ledger) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range charges {
		if c.Cost == 0 && !c.Ends {
			continue
		}
		end := ""
		if c.Ends {
			end = " in all " + fmt.Sprint(c.Total)
		}
		l.lines = append(l.lines, fmt.Sprintf("%v %s %+d%s", now.Sub(l.start), l.limits[c.Limit].Resource, c.Cost, end))
	}
	return l.Limiter.Settle(ctx, now, charges)
}

// charged returns the lines about one resource.
func (l *ledger) charged(r fairshare.Resource) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		if strings.Contains(line, " "+r.String()+" ") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "; ")
}

// metered puts a handler behind a guard with one limit of each resource.
func metered(t *testing.T, opts httpguard.Options, handler http.HandlerFunc,
	resources ...fairshare.Resource) (*ledger, http.Handler) {
	t.Helper()
	var p fairshare.Policy
	for _, r := range resources {
		n := int64(fairshare.MaxN)
		if r != fairshare.Errors && r != fairshare.Requests {
			n = fairshare.MaxBytes
		}
		p.Rules = append(p.Rules, fairshare.Rule{Name: r.String(),
			Limit: &fairshare.Limit{Resource: r, N: n, Window: time.Minute}})
	}
	l := &ledger{Limiter: limittest.NewModel(p.Limits()), limits: p.Limits(), start: time.Now().Round(0)}
	guard, err := fairshare.NewGuard(&p, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, httpguard.Middleware(guard, opts)(handler)
}

func visitOnce(handler http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", target, nil)
	handler.ServeHTTP(w, r)
	return w
}

func TestLongRequestsAreChargedWhileTheyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock watchedClock
		l, handler := metered(t, httpguard.Options{Now: clock.now}, func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				time.Sleep(700 * time.Millisecond)
				w.Write(make([]byte, 100))
			}
		}, fairshare.Bytes, fairshare.Time, fairshare.CPU, fairshare.Errors)
		visitOnce(handler, "/")
		for resource, want := range map[fairshare.Resource]string{
			fairshare.Bytes: "1s bytes +100; 1.5s bytes +100; 2.1s bytes +100 in all 300",
			// No CPU time is reported: the time that the request took counts.
			fairshare.Time:   "500ms time +500000; 1s time +500000; 1.5s time +500000; 2s time +500000; 2.1s time +100000 in all 2100000",
			fairshare.CPU:    "500ms cpu +500000; 1s cpu +500000; 1.5s cpu +500000; 2s cpu +500000; 2.1s cpu +100000 in all 2100000",
			fairshare.Errors: "700ms errors +0 in all 0", // with the status
		} {
			if got := l.charged(resource); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", resource, got, want)
			}
		}
		time.Sleep(time.Minute)
		looks := clock.looks.Load()
		time.Sleep(time.Minute)
		if n := clock.looks.Load() - looks; n != 0 {
			t.Errorf("%d looks at the clock while nothing is in progress", n)
		}
		visitOnce(handler, "/")
		if got := l.charged(fairshare.Bytes); !strings.HasSuffix(got,
			"; 2m3.1s bytes +100; 2m3.6s bytes +100; 2m4.2s bytes +100 in all 300") {
			t.Errorf("later: %s", got)
		}
	})
}

// A watchedClock counts how often it is read.
type watchedClock struct{ looks atomic.Int64 }

func (c *watchedClock) now() time.Time {
	c.looks.Add(1)
	return time.Now().Round(0)
}

func TestNothingRunsForRequestsThatNeedNoCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock watchedClock
		l, handler := metered(t, httpguard.Options{Now: clock.now}, func(w http.ResponseWriter, r *http.Request) {
			looks := clock.looks.Load()
			time.Sleep(3 * time.Second)
			if n := clock.looks.Load() - looks; n != 0 {
				t.Errorf("%d looks at the clock", n)
			}
		}, fairshare.Requests)
		visitOnce(handler, "/")
		if got := l.charged(fairshare.Errors); got != "" {
			t.Error(got)
		}
	})
}

// A lateMeter reports the cost of a path some time after its request has ended.
type lateMeter struct {
	costs map[string]time.Duration
	late  time.Duration
	open  sync.WaitGroup
}

type lateMetering struct {
	m     *lateMeter
	path  string
	began time.Time
	ended atomic.Bool
}

func (m *lateMeter) Begin(path string) httpguard.Metering {
	m.open.Add(1)
	return &lateMetering{m: m, path: path, began: time.Now()}
}

func (m *lateMetering) Spent() time.Duration {
	if m.ended.Load() {
		panic("asked after its end")
	}
	return time.Since(m.began) / 10
}

func (m *lateMetering) End(report func(time.Duration)) {
	if m.ended.Swap(true) {
		panic("ended twice")
	}
	if m.m.late == 0 {
		report(m.m.costs[m.path])
		m.m.open.Done()
		return
	}
	time.AfterFunc(m.m.late, func() {
		report(m.m.costs[m.path])
		m.m.open.Done()
	})
}

func TestCPUThatIsSampledIsChargedWhenItIsKnown(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			meter := &lateMeter{costs: map[string]time.Duration{"/slow page": 300 * time.Millisecond}, late: late}
			var passed []string
			l, handler := metered(t, httpguard.Options{Meter: meter, Passed: func(p *httpguard.Completion) {
				passed = append(passed, fmt.Sprint(p.Took, p.CPU, p.Status, p.Bytes))
			}}, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(1200 * time.Millisecond)
				w.Write([]byte("slow"))
				httpguard.UpstreamDone(w)
				time.Sleep(200 * time.Millisecond) // a slow client: no work of the upstream
			}, fairshare.CPU, fairshare.Time, fairshare.Bytes)
			visitOnce(handler, "/slow%20page?q=1")
			meter.open.Wait()
			synctest.Wait()
			want := "500ms cpu +50000; 1s cpu +50000; 1.4s cpu +200000 in all 300000"
			if got := l.charged(fairshare.CPU); got != want {
				t.Errorf("late by %v: %s, want %s", late, got, want)
			}
			if got := l.charged(fairshare.Time); !strings.HasSuffix(got, "1.4s time +200000 in all 1200000") {
				t.Errorf("late by %v: %s", late, got)
			}
			if want := []string{"1.2s 300ms 200 4"}; !slices.Equal(passed, want) {
				t.Errorf("late by %v: passed %q, want %q", late, passed, want)
			}
		})
	}
}

// A meter may report the final time after the handler has returned. A later report
// of a handler's goroutine does not replace it.
func TestCPUReportedAfterTheHandlerReturnedIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := &lateMeter{costs: map[string]time.Duration{"/": 30 * time.Millisecond}, late: 700 * time.Millisecond}
		passed := 0
		var writer http.ResponseWriter
		l, handler := metered(t, httpguard.Options{Meter: meter, Passed: func(p *httpguard.Completion) {
			if passed++; p.CPU != 30*time.Millisecond {
				t.Errorf("CPU %v", p.CPU)
			}
		}}, func(w http.ResponseWriter, r *http.Request) {
			writer = w
			httpguard.UpstreamDone(w)
			time.Sleep(600 * time.Millisecond)
		}, fairshare.CPU, fairshare.Errors)
		visitOnce(handler, "/")
		httpguard.ReportCPU(writer, time.Hour)
		if passed != 0 || l.charged(fairshare.Errors) == "" || l.charged(fairshare.CPU) != "" {
			t.Errorf("at the end: passed %d, charged %q, %q", passed, l.charged(fairshare.Errors),
				l.charged(fairshare.CPU))
		}
		meter.open.Wait()
		synctest.Wait()
		if got := l.charged(fairshare.CPU); got != "700ms cpu +30000 in all 30000" || passed != 1 {
			t.Errorf("later: %q, passed %d", got, passed)
		}
	})
}

func TestReportedCostsAreCharged(t *testing.T) {
	for _, test := range []struct {
		name      string
		opts      httpguard.Options
		tell      func(http.ResponseWriter)
		cpu, cost string
		passed    time.Duration
	}{
		{"both", httpguard.Options{HandlerReportsCPU: true}, func(w http.ResponseWriter) {
			httpguard.ReportCPU(w, 12500*time.Microsecond)
			httpguard.ReportCost(w, 7)
		}, "1.9s cpu +12500 in all 12500", "1.9s cost +7 in all 7", 12500 * time.Microsecond},
		{"the final report", httpguard.Options{HandlerReportsCPU: true}, func(w http.ResponseWriter) {
			httpguard.ReportCPU(w, time.Second)
			httpguard.ReportCPU(w, time.Millisecond)
			httpguard.ReportCost(w, 700)
			httpguard.ReportCost(w, 0)
		}, "1.9s cpu +1000 in all 1000", "1.9s cost +0 in all 0", time.Millisecond},
		{"below zero", httpguard.Options{HandlerReportsCPU: true}, func(w http.ResponseWriter) {
			httpguard.ReportCPU(w, -1)
			httpguard.ReportCost(w, -1)
		}, "1.9s cpu +0 in all 0", "1.9s cost +0 in all 0", 0},
		{"nothing, though it would", httpguard.Options{HandlerReportsCPU: true}, func(http.ResponseWriter) {},
			"1.9s cpu +1900000 in all 1900000", "1.9s cost +1 in all 1", 1900 * time.Millisecond},
		{"nothing", httpguard.Options{}, func(http.ResponseWriter) {},
			"500ms cpu +500000; 1s cpu +500000; 1.5s cpu +500000; 1.9s cpu +400000 in all 1900000",
			"1.9s cost +1 in all 1", 0},
		{"not before the handler awaits a turn", httpguard.Options{HandlerAwaits: true}, func(http.ResponseWriter) {},
			"1.9s cpu +0 in all 0", "1.9s cost +0 in all 0", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			test.opts.Passed = func(p *httpguard.Completion) {
				if p.CPU != test.passed {
					t.Errorf("%s: passed %v, want %v", test.name, p.CPU, test.passed)
				}
			}
			l, handler := metered(t, test.opts, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(1900 * time.Millisecond)
				test.tell(w)
			}, fairshare.CPU, fairshare.Cost)
			visitOnce(handler, "/")
			if got := l.charged(fairshare.CPU); got != test.cpu {
				t.Errorf("%s: %s, want %s", test.name, got, test.cpu)
			}
			if got := l.charged(fairshare.Cost); got != test.cost {
				t.Errorf("%s: %s, want %s", test.name, got, test.cost)
			}
		})
	}
}

func TestFailedRequestsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, handler := metered(t, httpguard.Options{}, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(300 * time.Millisecond)
			panic(http.ErrAbortHandler)
		}, fairshare.CPU, fairshare.Time)
		func() {
			defer func() { recover() }()
			visitOnce(handler, "/")
		}()
		if got := l.charged(fairshare.CPU); got != "300ms cpu +300000 in all 300000" {
			t.Error(got)
		}
		if got := l.charged(fairshare.Time); got != "300ms time +300000 in all 300000" {
			t.Error(got)
		}
	})
}

// An event stream is open for hours and does almost nothing. If its CPU time is
// not measured, the time until its header counts.
func TestStreamsAreNotChargedForTheirDuration(t *testing.T) {
	for _, reports := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := httpguard.Options{HandlerReportsCPU: reports}
			l, handler := metered(t, opts, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(200 * time.Millisecond)
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				w.Write([]byte("data: 1\n\n"))
				time.Sleep(time.Hour)
			}, fairshare.CPU, fairshare.Time)
			visitOnce(handler, "/")
			if got := l.charged(fairshare.CPU); got != "500ms cpu +200000; 1h0m0.2s cpu +0 in all 200000" {
				t.Errorf("reports %v: %s", reports, got)
			}
			if got := l.charged(fairshare.Time); !strings.HasSuffix(got, "in all 3600200000") {
				t.Error(got[max(0, len(got)-200):])
			}
		})
	}
}

// A stream that begins before the upstream gets the request, or after it is done,
// does not change the cost.
func TestStreamOutsideTheUpstreamsTimeChangesNoCost(t *testing.T) {
	stream := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	}
	for name, handle := range map[string]http.HandlerFunc{
		"after": func(w http.ResponseWriter, r *http.Request) {
			httpguard.AwaitTurn(w, r)
			time.Sleep(200 * time.Millisecond)
			httpguard.UpstreamDone(w)
			time.Sleep(time.Second)
			stream(w)
		},
		"before": func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			time.Sleep(time.Second)
			httpguard.AwaitTurn(w, r)
			time.Sleep(200 * time.Millisecond)
		},
		"twice": func(w http.ResponseWriter, r *http.Request) {
			httpguard.AwaitTurn(w, r)
			time.Sleep(200 * time.Millisecond)
			stream(w)
			time.Sleep(time.Second)
			http.NewResponseController(w).Hijack()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, handler := metered(t, httpguard.Options{HandlerAwaits: true}, handle, fairshare.CPU)
			handler.ServeHTTP(hijackable{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
			if got := l.charged(fairshare.CPU); !strings.HasSuffix(got, "in all 200000") {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

func TestManyRequestsInProgressAreChargedEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		var clock watchedClock
		l, handler := metered(t, httpguard.Options{Now: clock.now}, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Duration(r.ContentLength) * time.Millisecond)
		}, fairshare.Time)
		var all sync.WaitGroup
		var want int64
		looks := 0
		for i := range n {
			ms := int64(10*(i*7%n) + 5) // they do not end in the order in which they begin
			want += 1000 * ms
			looks += int(ms / 500)
			all.Go(func() {
				r := httptest.NewRequest("POST", "/", nil)
				r.ContentLength, r.RemoteAddr = ms, fmt.Sprintf("192.0.2.%d:1234", i/2)
				handler.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		ticks := clock.looks.Load()
		time.Sleep(time.Minute)
		if ticks != clock.looks.Load() {
			t.Error("some still count as in progress")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		var sum, ended int64
		for _, line := range l.lines {
			var at, resource string
			var cost, total int64
			if k, _ := fmt.Sscanf(line, "%s %s %d in all %d", &at, &resource, &cost, &total); k == 4 {
				ended += total
			} else {
				looks--
			}
			sum += cost
		}
		// With so many calls the clock is some ms old.
		if sum != ended || max(sum-want, want-sum) > n*5_000 || looks != 0 {
			t.Errorf("charged %d, reported at the end %d, want about %d; %d charges too few meanwhile", sum, ended, want,
				looks)
		}
	})
}
