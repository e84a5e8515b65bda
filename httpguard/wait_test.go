package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// A burstSite is a site behind a guard that counts in memory. Its requests come
// and go in a synctest bubble.
type burstSite struct {
	*testing.T
	handler *httpguard.Handler
	limiter *memlimit.Limiter
	all     sync.WaitGroup

	mu      sync.Mutex
	reached map[string]int // requests that reached the site, by client
	now     map[string]int // of these, in progress
	most    map[string]int // at the same time
	order   []string       // the paths that were reached
	codes   map[string]map[int]int
	reports []httpguard.Report
	times   map[string]time.Duration // what the last request of a client took
}

// A page is the work of the site for a request.
type page struct {
	takes  time.Duration
	uses   time.Duration // CPU time
	cost   int64
	bytes  int
	status int // 0 means 200
}

func newBurstSite(t *testing.T, p *fairshare.Policy, opts httpguard.Options, pages map[string]page) *burstSite {
	t.Helper()
	s := &burstSite{
		T: t, reached: map[string]int{}, now: map[string]int{}, most: map[string]int{},
		codes: map[string]map[int]int{}, times: map[string]time.Duration{},
	}
	opts.Refused = func(r *httpguard.Report) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports = append(s.reports, *r)
	}
	guard := s.guard(p)
	s.handler = httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := r.RemoteAddr
		s.mu.Lock()
		s.reached[client]++
		s.now[client]++
		s.most[client] = max(s.most[client], s.now[client])
		s.order = append(s.order, r.URL.Path)
		s.mu.Unlock()
		page := pages[r.URL.Path]
		time.Sleep(page.takes)
		httpguard.ReportCPU(w, page.uses)
		httpguard.ReportCost(w, page.cost)
		s.mu.Lock()
		s.now[client]--
		s.mu.Unlock()
		w.WriteHeader(max(page.status, http.StatusOK))
		w.Write(make([]byte, page.bytes))
	}))
	return s
}

func (s *burstSite) guard(p *fairshare.Policy) *fairshare.Guard {
	s.Helper()
	var err error
	if s.limiter == nil {
		s.limiter, err = memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
	} else {
		s.limiter, err = s.limiter.With(p.Limits())
	}
	if err != nil {
		s.Fatal(err)
	}
	guard, err := fairshare.NewGuard(p, s.limiter, membans.New(0))
	if err != nil {
		s.Fatal(err)
	}
	return guard
}

// send sends a request in the background.
func (s *burstSite) send(ctx context.Context, client, method, path string) {
	s.all.Go(func() {
		w, began := httptest.NewRecorder(), time.Now()
		r := httptest.NewRequestWithContext(ctx, method, path, nil)
		r.RemoteAddr = client
		s.handler.ServeHTTP(w, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.codes[client] == nil {
			s.codes[client] = map[int]int{}
		}
		if s.codes[client][w.Code]++; ctx.Err() != nil {
			s.codes[client][w.Code]--
		}
		s.times[client] = time.Since(began)
	})
}

// pause runs check while all requests in progress sleep or wait.
func (s *burstSite) pause(check func()) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	check()
}

// visits sends requests one after another.
func (s *burstSite) visits(client, method, path string, times int) {
	for range times {
		s.send(s.Context(), client, method, path)
		s.all.Wait()
	}
}

// bursts sends requests at once and waits for all answers.
func (s *burstSite) bursts(client, method, path string, times int) {
	for range times {
		s.send(s.Context(), client, method, path)
	}
	s.all.Wait()
}

func limited(l fairshare.Limit) *fairshare.Policy {
	return &fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: &l}}}
}

const (
	attacker = "192.0.2.1:1"
	friend   = "198.51.100.1:1"
	client3  = "203.0.113.1:1"
)

// Cheap requests before a burst do not raise the number of expensive ones that
// pass, whether they are of the same key, the same page or others.
func TestBurstsAfterCheapRequestsAreBounded(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	for _, test := range []struct {
		name      string
		limit     fairshare.Limit
		expensive page
		each      int64 // its cost
		mostTimes int64 // that it is admitted
	}{
		{"cost", fairshare.Limit{Resource: fairshare.Cost, N: 1000, Window: time.Minute},
			page{takes: time.Second, cost: 100}, 100, 26},
		{"other cost", fairshare.Limit{Resource: fairshare.Cost, N: 77, Window: time.Hour, Algorithm: fairshare.GCRA},
			page{takes: 2500 * time.Millisecond, cost: 13}, 13, 22},
		{"seven percent", fairshare.Limit{Resource: fairshare.CPU, N: 105 * second / 100, Window: 15 * time.Second},
			page{takes: time.Second, uses: time.Second / 2}, second / 2, 19},
		{"time", fairshare.Limit{Resource: fairshare.Time, N: 10 * second, Window: time.Minute},
			page{takes: 2 * time.Second}, 2 * second, 26},
		{"bytes", fairshare.Limit{Resource: fairshare.Bytes, N: 1 << 20, Window: time.Minute},
			page{takes: 700 * time.Millisecond, bytes: 100_000}, 100_000, 27},
		{"of a network", fairshare.Limit{Resource: fairshare.Cost, N: 1000, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}},
			page{takes: time.Second, cost: 100}, 100, 138},
	} {
		for _, primed := range []struct {
			name  string
			prime func(*burstSite)
		}{
			{"fresh", func(*burstSite) {}},
			{"own cheap requests", func(s *burstSite) { s.visits(attacker, "GET", "/cheap", 300) }},
			{"cheap requests of others", func(s *burstSite) { s.visits(friend, "GET", "/cheap", 300) }},
			{"the page cheap", func(s *burstSite) {
				s.visits(friend, "GET", "/expensive", 1)
				time.Sleep(time.Hour)
				s.visits(friend, "HEAD", "/cheap1", 100)
				s.visits(attacker, "GET", "/cheap2", 100)
			}},
			{"idle", func(s *burstSite) { s.visits(attacker, "GET", "/cheap", 300); time.Sleep(24 * time.Hour) }},
		} {
			t.Run(test.name+", "+primed.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newBurstSite(t, limited(test.limit), httpguard.Options{HandlerReportsCPU: true},
						map[string]page{"/expensive": test.expensive})
					primed.prime(s)
					cheap := s.reached[attacker]
					s.bursts(attacker, "GET", "/expensive", 500)
					got := int64(s.reached[attacker] - cheap)
					bound := (test.limit.N + (test.mostTimes-test.limit.N/test.each)*test.each) / test.each
					if got > min(test.mostTimes, bound) || got < 1 {
						t.Errorf("%d of 500 were admitted, want at most %d", got, test.mostTimes)
					}
				})
			})
		}
	}
}

// When a page is known to be expensive, requests for it pass as if they came one
// after another, or each holds a quarter of the allowance.
func TestBurstsForAKnownPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBurstSite(t, limited(fairshare.Limit{Resource: fairshare.Cost, N: 1000, Window: time.Minute}),
			httpguard.Options{},
			map[string]page{"/report/7": {takes: time.Second, cost: 100}, "/report/8": {takes: time.Second, cost: 100}})
		s.visits(friend, "GET", "/report/7", 1)
		s.visits(attacker, "GET", "/cheap", 300)
		s.bursts(attacker, "GET", "/report/8", 500)
		if got := s.reached[attacker] - 300; got != 10 {
			t.Errorf("%d of 500 were admitted, want 10", got)
		}
	})
}

// Simultaneous guesses of one client run one after another: each counts as an
// error until its answer is known.
func TestParallelGuessesAreCounted(t *testing.T) {
	for _, n := range []int64{1, 3, 10, 12} {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			synctest.Test(t, func(t *testing.T) {
				l := fairshare.Limit{Resource: fairshare.Errors, N: n, Window: 10 * time.Minute, Algorithm: algorithm}
				s := newBurstSite(t, limited(l), httpguard.Options{Now: time.Now},
					map[string]page{"/wrong": {takes: 100 * time.Millisecond, status: 401}})
				for i := range 600 {
					s.visits(fmt.Sprintf("198.51.100.%d:1", i%250), "POST", "/right", 1)
				}
				s.bursts(attacker, "POST", "/wrong", 600)
				if got := int64(s.reached[attacker]); got != n {
					t.Errorf("errors: %d, %v: %d of 600 guesses reached the site", n, algorithm, got)
				}
			})
		}
	}
}

// The built-in policy does not refuse a client without errors for the errors of
// others: its requests wait some milliseconds.
func TestParallelPagesOfNewClientsPassTheBuiltInPolicy(t *testing.T) {
	for _, test := range []struct{ scanners, links, clients, pages int }{{20, 8, 3, 30}, {200, 11, 5, 100},
		{0, 0, 2, 120}} {
		synctest.Test(t, func(t *testing.T) {
			file := policyfile.BuiltIn()
			file.Provide(policyfile.Facts{Bots: true, Labels: true, Attempts: true})
			policy := file.Policy
			s := newBurstSite(t, &policy, httpguard.Options{}, map[string]page{
				"/dead": {takes: time.Millisecond, status: 404}, "/page": {takes: 20 * time.Millisecond},
			})
			for i := range test.scanners {
				s.bursts(fmt.Sprintf("198.51.%d.1:1", i), "GET", "/dead", test.links)
			}
			s.reports = nil
			began := time.Now()
			for i := range test.clients {
				for range test.pages {
					s.send(t.Context(), fmt.Sprintf("203.0.%d.1:1", i), "GET", "/page")
				}
			}
			s.all.Wait()
			for i := range test.clients {
				if got := s.codes[fmt.Sprintf("203.0.%d.1:1", i)][200]; got != test.pages {
					t.Errorf("%+v: client %d got %d pages", test, i, got)
				}
			}
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("%+v: it took %v", test, took)
			}
			for i := range s.reports {
				t.Errorf("%+v: refused: %+v", test, s.reports[i].Finding)
			}
		})
	}
}

// All assets of a page pass at once under a limit of CPU time.
func TestAssetsOfAPagePass(t *testing.T) {
	for _, test := range []struct {
		name  string
		prime int
		most  time.Duration
	}{
		{"new client", 0, 50 * time.Millisecond}, // 5 ms with no limit
		{"known client", 30, 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := fairshare.Limit{Resource: fairshare.CPU, N: 1_050_000, Window: 15 * time.Second} // 7 % of one core
			s := newBurstSite(t, limited(l), httpguard.Options{HandlerReportsCPU: true},
				map[string]page{"/asset": {takes: 5 * time.Millisecond, uses: 5 * time.Millisecond}})
			s.visits(client3, "GET", "/asset", test.prime)
			began := time.Now()
			s.bursts(client3, "GET", "/asset", 100)
			if got := s.codes[client3][200] - test.prime; got != 100 {
				t.Errorf("%s: %d of 100 passed", test.name, got)
			}
			took := time.Since(began)
			t.Logf("%s: the page took %v", test.name, took)
			if took > test.most {
				t.Errorf("%s: the page took %v, want at most %v", test.name, took, test.most)
			}
		})
	}
}

// Long polls of an office do not cause refusals of its other requests.
func TestIdleRequestsRefuseNoOthers(t *testing.T) {
	for _, resource := range []fairshare.Resource{fairshare.Errors, fairshare.CPU, fairshare.Bytes, fairshare.Cost} {
		for _, tells := range []bool{false, true} {
			for _, kind := range []string{"event stream", "websocket", "download", "long poll"} {
				if kind == "long poll" && resource == fairshare.Errors {
					continue // whether it is an error is open
				}
				t.Run(fmt.Sprintf("%v, %s, CPU time is reported %v", resource, kind, tells), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := limited(fairshare.Limit{Resource: resource, N: 1_000_000, Window: time.Hour,
							Algorithm: fairshare.GCRA})
						if resource == fairshare.Errors {
							p.Rules[0].Limit.N = 12
						}
						if kind == "download" && resource == fairshare.CPU {
							p.Rules[0].Limit.N = 200_000_000 // it counts as work
						}
						limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
						if err != nil {
							t.Fatal(err)
						}
						guard, err := fairshare.NewGuard(p, limiter, membans.New(0))
						if err != nil {
							t.Fatal(err)
						}
						open, stop := 0, make(chan struct{})
						var mu sync.Mutex
						around := httpguard.Middleware(guard, httpguard.Options{HandlerReportsCPU: tells})
						visits := around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							httpguard.ReportCPU(w, 0)
							httpguard.ReportCost(w, 0)
						}))
						handler := around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							mu.Lock()
							open++
							mu.Unlock()
							switch kind {
							case "event stream":
								w.Header().Set("Content-Type", "text/event-stream")
								w.WriteHeader(http.StatusOK)
							case "websocket":
								http.NewResponseController(w).Hijack()
							case "download":
								httpguard.ReportCost(w, 1)
								httpguard.ReportCPU(w, time.Millisecond)
								w.WriteHeader(http.StatusOK)
							case "long poll":
								if !tells {
									httpguard.ReportCPU(w, 0)
								}
							}
							<-stop
						}))
						for range 12 { // the pages of the application
							r := httptest.NewRequest("GET", "/news", nil)
							r.RemoteAddr = attacker
							visits.ServeHTTP(httptest.NewRecorder(), r)
						}
						var all sync.WaitGroup
						for range 4 { // ten more each five seconds
							for range 10 {
								all.Go(func() {
									r := httptest.NewRequest("GET", "/news", nil)
									r.RemoteAddr = attacker
									handler.ServeHTTP(hijackable{httptest.NewRecorder()}, r)
								})
							}
							time.Sleep(5500 * time.Millisecond)
						}
						synctest.Wait()
						if open != 40 {
							t.Errorf("%d of 40 are open", open)
						}
						close(stop)
						all.Wait()
					})
				})
			}
		}
	}
}

// waitingSite has one slow request in progress, which takes the whole limit.
func waitingSite(t *testing.T, p *fairshare.Policy, opts httpguard.Options, takes time.Duration) *burstSite {
	s := newBurstSite(t, p, opts, map[string]page{"/slow": {takes: takes}, "/wrong": {takes: takes, status: 403}})
	s.send(t.Context(), attacker, "GET", "/slow")
	synctest.Wait()
	return s
}

func oneError() *fairshare.Policy {
	return limited(fairshare.Limit{Resource: fairshare.Errors, N: 1, Window: time.Minute})
}

func TestRequestsWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, time.Second)
		for i := range 9 {
			s.send(t.Context(), attacker, "GET", fmt.Sprint("/", i))
			synctest.Wait()
		}
		s.all.Wait()
		if got, want := fmt.Sprint(s.order), "[/slow /0 /1 /2 /3 /4 /5 /6 /7 /8]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		if s.most[attacker] != 1 || s.codes[attacker][200] != 10 {
			t.Errorf("%d at once, answers %v", s.most[attacker], s.codes)
		}
	})
}

// A request that waits for too long is refused: with the shortest wait, a report of
// the requests in progress, and without counting towards a ban.
func TestWaitingIsBounded(t *testing.T) {
	for _, test := range []struct{ option, takes, want time.Duration }{
		{0, time.Minute, 3 * time.Second}, {500 * time.Millisecond, time.Minute, 500 * time.Millisecond},
		{-1, time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := oneError()
			p.Rules[0].Ban = &fairshare.BanTerms{After: 1, For: time.Hour}
			s := waitingSite(t, p, httpguard.Options{Wait: test.option}, test.takes)
			s.send(t.Context(), attacker, "GET", "/a")
			time.Sleep(10 * time.Second)
			s.pause(func() {
				if s.codes[attacker][429] != 1 || s.times[attacker] != test.want {
					t.Errorf("answers %v after %v, want a refusal after %v", s.codes, s.times[attacker], test.want)
				}
			})
			s.all.Wait()
			if len(s.reports) != 1 {
				t.Fatalf("%d reports", len(s.reports))
			}
			r := &s.reports[0]
			if f := &r.Finding; r.RetryAfter != 1 || f.Ban != fairshare.NotBanned || f.Tally.Held != 1 ||
				f.Tally.Spent() != 0 || f.Wait != 0 {
				t.Errorf("reported %+v", *r)
			}
			s.visits(attacker, "GET", "/b", 1)
			if s.codes[attacker][200] != 2 {
				t.Errorf("later: %v", s.codes)
			}
		})
	}
}

// When an error reaches the limit, the requests that waited for it are refused at
// once.
func TestWaitingRequestsAreRefusedWhenTheLimitIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, time.Second)
		for range 20 {
			s.send(t.Context(), attacker, "GET", "/wrong")
		}
		s.all.Wait()
		if s.reached[attacker] != 2 || s.codes[attacker][429] != 19 || s.times[attacker] > 2*time.Second {
			t.Errorf("%d reached the site, answers %v after %v", s.reached[attacker], s.codes, s.times[attacker])
		}
		for i := range s.reports {
			if s.reports[i].Finding.Wait <= 0 {
				t.Errorf("reported %+v", s.reports[i].Finding)
			}
		}
	})
}

func TestClientsThatLeaveDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, 2*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			s.send(ctx, attacker, "GET", "/left")
		}
		synctest.Wait()
		s.send(t.Context(), attacker, "GET", "/stays")
		synctest.Wait()
		cancel()
		synctest.Wait()
		s.all.Wait()
		if got, want := fmt.Sprint(s.order, len(s.reports)), "[/slow /stays] 0"; got != want {
			t.Errorf("reached %s, want %s", got, want)
		}
	})
}

// Each line has room for 128 requests.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, time.Second)
		for range 200 {
			s.send(t.Context(), attacker, "GET", "/a")
		}
		s.pause(func() {
			if s.codes[attacker][429] != 200-128 {
				t.Errorf("answers %v while 128 wait", s.codes)
			}
		})
		s.all.Wait()
		if s.codes[attacker][200] != 129 {
			t.Errorf("answers %v", s.codes)
		}
		// All keys together have 4096 places; the last key still gets some.
		const keys = 500
		addr := func(k int) string { return fmt.Sprintf("10.0.%d.%d:1", k/250, k%250) }
		s.reports = nil
		for k := range keys {
			s.send(t.Context(), addr(k), "GET", "/slow")
			synctest.Wait()
			for range 128 {
				s.send(t.Context(), addr(k), "GET", "/a")
			}
		}
		s.pause(func() {
			if waiting := keys*128 - len(s.reports); waiting != 4096 {
				t.Errorf("%d wait", waiting)
			}
			none := 0
			for k := range keys {
				if s.codes[addr(k)][429] == 128 {
					none++
				}
			}
			if none > keys/20 {
				t.Errorf("no request of %d of %d keys waits", none, keys)
			}
		})
		s.all.Wait()
	})
}

func TestDryRunDoesNotWait(t *testing.T) {
	for _, whole := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := oneError()
			if p.DryRun = whole; !whole {
				p.Rules[0].DryRun = true
			}
			s := waitingSite(t, p, httpguard.Options{}, time.Second)
			s.send(t.Context(), attacker, "GET", "/a")
			s.pause(func() {
				if s.codes[attacker][200] != 1 || s.times[attacker] != 0 || len(s.reports) != 1 {
					t.Errorf("whole %v: answers %v after %v, %d reports", whole, s.codes, s.times[attacker],
						len(s.reports))
				}
			})
			s.all.Wait()
		})
	}
}

// A request that waited is charged from the moment it passed.
func TestWaitingIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		s := waitingSite(t, oneError(), httpguard.Options{Passed: func(
			p *httpguard.Completion) {
			took = append(took, p.Took)
		}}, time.Second)
		s.send(t.Context(), attacker, "GET", "/slow")
		s.all.Wait()
		if s.times[attacker] != 2*time.Second || fmt.Sprint(took) != "[1s 1s]" {
			t.Errorf("after %v, took %v", s.times[attacker], took)
		}
	})
}

// A request that waits while the policy is replaced is judged by the new policy.
func TestWaitingOverAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, 2*time.Second)
		s.send(t.Context(), attacker, "GET", "/old")
		synctest.Wait()
		s.handler.Replace(s.guard(oneError()), httpguard.Options{})
		s.send(t.Context(), attacker, "GET", "/new") // the old guard does not wake it
		s.all.Wait()
		if took := s.times[attacker]; took > 2250*time.Millisecond {
			t.Errorf("the request took %v, want at most 250 ms more than the earlier one, which takes 2 s", took)
		}
		if s.codes[attacker][200] != 3 {
			t.Errorf("answers %v", s.codes)
		}
	})
}

// Another handler with the same counters, such as that of another server, has judged the earlier request. When that
// settles, the later one passes soon.
func TestWaitingForAnotherHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := waitingSite(t, oneError(), httpguard.Options{}, time.Second)
		other := httpguard.New(s.guard(oneError()), httpguard.Options{}, welcome)
		began := time.Now()
		r := httptest.NewRequest("GET", "/other", nil)
		r.RemoteAddr = attacker
		w := httptest.NewRecorder()
		other.ServeHTTP(w, r)
		if took := time.Since(began); w.Code != http.StatusOK || took < time.Second || took > 1250*time.Millisecond {
			t.Errorf("status %d after %v, want at most 250 ms more than the earlier request, which takes 1 s", w.Code, took)
		}
		s.all.Wait()
	})
}

// A request under two limits waits for both. A request under one of them does not
// wait for the other.
func TestWaitingForTwoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name, path string) fairshare.Rule {
			r := fairshare.Rule{Name: name, Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 1,
				Window: time.Minute}}
			r.Match.Path = []string{path}
			return r
		}
		p := &fairshare.Policy{Rules: []fairshare.Rule{of("a", "/*a*"), of("b", "/*b*")}}
		s := newBurstSite(t, p, httpguard.Options{}, map[string]page{"/a1": {takes: time.Second},
			"/b1": {takes: 2 * time.Second}})
		for _, path := range []string{"/a1", "/b1", "/ab", "/a2", "/b2"} {
			s.send(t.Context(), attacker, "GET", path)
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond)
		s.pause(func() {
			if got, want := fmt.Sprint(s.order), "[/a1 /b1 /a2]"; got != want {
				t.Errorf("after 1.5 s %s reached the site, want %s", got, want)
			}
		})
		s.all.Wait()
		if got, want := fmt.Sprint(s.order), "[/a1 /b1 /a2 /ab /b2]"; got != want {
			if want = "[/a1 /b1 /a2 /b2 /ab]"; got != want {
				t.Errorf("%s reached the site, want %s", got, want)
			}
		}
	})
}
