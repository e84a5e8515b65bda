package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/share"
)

// A handler may report CPU time that a meter measures too. Its report counts, early
// or late, and Passed is called once.
func TestReportedCPUReplacesMeasuredCPU(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		for _, thread := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				meter := &lateMeter{costs: map[string]time.Duration{"/": 300 * time.Millisecond}, late: late}
				got := ""
				l, handler := metered(t, httpguard.Options{Meter: meter, ThreadCPU: thread,
					Passed: func(p *httpguard.Completion) {
						got += fmt.Sprint("passed ", p.CPU, "; ")
					}}, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(100 * time.Millisecond)
					httpguard.ReportCPU(w, 7*time.Millisecond)
					httpguard.UpstreamDone(w)
				}, fairshare.CPU)
				visitOnce(handler, "/")
				meter.open.Wait()
				synctest.Wait()
				if got += l.charged(fairshare.CPU); got != "passed 7ms; 100ms cpu +7000 in all 7000" {
					t.Errorf("late by %v, thread %v: %s", late, thread, got)
				}
			})
		}
	}
}

// A crawler that gets no turn for /robots.txt must not conclude that everything is
// allowed. The answer that it gets must not be kept as the site's own.
func TestRobotsOfABusySite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, Queue: -1}, httpguard.Options{},
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/robots.txt" {
					fmt.Fprint(w, "User-agent: *\nDisallow: /search\n")
				}
				time.Sleep(time.Hour)
			})
		s.request(t.Context(), "192.0.2.1", "/search")
		for _, want := range []string{"503 ", "200 User-agent: *\nDisallow: /search\n"} {
			s.request(t.Context(), "192.0.2.2", "/robots.txt")
			if w := s.answers["/robots.txt"]; !strings.HasPrefix(fmt.Sprint(w.Code, " ", w.Body), want) {
				t.Errorf("%d %s, want %s", w.Code, w.Body, want)
			}
			time.Sleep(2 * time.Hour)
			s.request(t.Context(), "192.0.2.2", "/robots.txt") // there is a turn for this one
			time.Sleep(2 * time.Hour)
			s.request(t.Context(), "192.0.2.1", "/search")
		}
		s.all.Wait()
	})
}

// While a request runs, it is charged the CPU time of its thread, not elapsed time.
func TestThreadCPUIsChargedWhileTheHandlerRuns(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads are measured on Linux")
	}
	synctest.Test(t, func(t *testing.T) {
		l, handler := metered(t, httpguard.Options{ThreadCPU: true},
			func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }, fairshare.CPU)
		visitOnce(handler, "/") // the hour is the bubble's: it takes a moment
		_, all, _ := strings.Cut(l.charged(fairshare.CPU), "in all ")
		if us, err := strconv.Atoi(all); err != nil || us > int(20*time.Minute/time.Microsecond) {
			t.Errorf("charged %s µs, %v", all, err)
		}
	})
}

// If the client of a /robots.txt leaves while it waits, the site has not answered
// it: there is no empty copy.
func TestRobotsWithoutATurnIsNotCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, Queue: 1}, httpguard.Options{}, work(time.Hour))
		s.request(t.Context(), "192.0.2.1", "/search")
		ctx, leave := context.WithCancel(t.Context())
		s.request(ctx, "192.0.2.2", "/robots.txt")
		leave()
		synctest.Wait()
		s.request(t.Context(), "192.0.2.3", "/waits")
		s.request(t.Context(), "192.0.2.1", "/robots.txt")
		if code := s.answers["/robots.txt"].Code; code != 503 {
			t.Errorf("answered %d", code)
		}
		s.all.Wait()
	})
}

// All middlewares around a handler get its reports.
func TestAllGuardsAroundGetReports(t *testing.T) {
	for _, awaits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := httpguard.Options{HandlerAwaits: awaits, HandlerReportsCPU: true}
			resources := []fairshare.Resource{fairshare.CPU, fairshare.Time, fairshare.Cost, fairshare.Errors}
			inner, handler := metered(t, opts, func(w http.ResponseWriter, r *http.Request) {
				if !httpguard.AwaitTurn(w, r) {
					t.Error("no turn")
				}
				time.Sleep(100 * time.Millisecond)
				httpguard.ReportCPU(w, 7*time.Millisecond)
				httpguard.ReportCost(w, 3)
				httpguard.UpstreamDone(w)
				time.Sleep(time.Second)
				httpguard.NoUpstreamAnswer(w)
				w.WriteHeader(http.StatusNotFound)
			}, resources...)
			outer, handler := metered(t, opts, handler.ServeHTTP, resources...)
			visitOnce(handler, "/")
			want := []string{"1.1s cpu +0 in all 7000", "1.1s cost +3 in all 3", "1.1s errors +0 in all 0"}
			for name, l := range map[string]*ledger{"inner": inner, "outer": outer} {
				got := []string{l.charged(fairshare.CPU), l.charged(fairshare.Cost), l.charged(fairshare.Errors)}
				got[0] = got[0][strings.LastIndex(got[0], "1.1s"):]
				if took := l.charged(fairshare.Time); !slices.Equal(got, want) ||
					!strings.HasSuffix(took, "in all 100000") {
					t.Errorf("awaits %v, %s: %q, time %s; want %q", awaits, name, got, took, want)
				}
			}
		})
	}
}

// An answer of a guard itself does not count as an error in the guard around it.
func TestRefusalsOfAnInnerMiddlewareAreNotErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, Queue: -1}, httpguard.Options{}, work(time.Hour),
			fairshare.Rule{Name: "one", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour}})
		var mu sync.Mutex
		var passed []int
		l, handler := metered(t, httpguard.Options{Passed: func(p *httpguard.Completion) {
			mu.Lock()
			defer mu.Unlock()
			passed = append(passed, p.Status)
		}}, s.handler.ServeHTTP, fairshare.Errors)
		s.handler = handler
		s.request(t.Context(), "192.0.2.1", "/works")
		s.request(t.Context(), "192.0.2.1", "/again") // one is enough
		s.request(t.Context(), "192.0.2.2", "/busy")
		if a, b := s.answers["/again"].Code, s.answers["/busy"].Code; a != 429 || b != 503 {
			t.Errorf("answered %d, %d", a, b)
		}
		mu.Lock()
		if got := l.charged(fairshare.Errors); got != "0s errors +0 in all 0; 0s errors +0 in all 0" ||
			!slices.Equal(passed, []int{0, 0}) {
			t.Errorf("%s, the site answered %v", got, passed)
		}
		mu.Unlock()
		s.all.Wait()
	})
}
