package httpguard_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
	"fairshare/share"
)

// A busySite is a handler behind a guard and a share. All its requests come
// and go in a synctest bubble.
type busySite struct {
	handler http.Handler
	queue   *share.Queue
	limiter *memlimit.Limiter
	all     sync.WaitGroup

	mu      sync.Mutex
	worked  []string // whom the upstream worked for, in order
	reports []string
	answers map[string]*httptest.ResponseRecorder
}

func newBusySite(t *testing.T, opts share.Options, guarded httpguard.Options, handler http.HandlerFunc,
	rules ...fairshare.Rule) *busySite {
	t.Helper()
	p := &fairshare.Policy{Rules: rules}
	limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(p, limiter, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts.Key = guard.AppendKey
	s := &busySite{queue: share.New(opts), limiter: limiter, answers: map[string]*httptest.ResponseRecorder{}}
	guarded.Share = s.queue
	guarded.Refused = func(r *httpguard.Report) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reports = append(s.reports, fmt.Sprintf("%s %s %s %d %d", r.Request.Path, r.Finding.Action,
			r.Finding.Rule.Name, r.Status, r.RetryAfter))
	}
	s.handler = httpguard.Middleware(guard, guarded)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guarded.HandlerAwaits && !httpguard.AwaitTurn(w, r) {
			return
		}
		s.mu.Lock()
		s.worked = append(s.worked, r.URL.Path)
		s.mu.Unlock()
		handler(w, r)
	}))
	return s
}

// ask sends a request of a client, and waits until all goroutines are idle.
func (s *busySite) request(ctx context.Context, client, path string) {
	r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
	r.RemoteAddr = client + ":1234"
	w := httptest.NewRecorder()
	s.mu.Lock()
	s.answers[path] = w
	s.mu.Unlock()
	s.all.Go(func() { s.handler.ServeHTTP(w, r) })
	synctest.Wait()
}

func (s *busySite) order() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.worked, " ")
}

func work(time_ time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { time.Sleep(time_) }
}

// Every second turn goes by arrival.
func TestClientsWithLessOfABusyUpstreamGoFirst(t *testing.T) {
	for _, awaits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{HandlerAwaits: awaits}, work(time.Second))
			ctx := t.Context()
			for i := range 4 {
				s.request(ctx, "192.0.2.1", fmt.Sprint("/greedy", i))
			}
			s.request(ctx, "198.51.100.1", "/other0")
			s.request(ctx, "203.0.113.1", "/third0")
			s.all.Wait()
			if got, want := s.order(), "/greedy0 /greedy1 /other0 /greedy2 /third0 /greedy3"; got != want {
				t.Errorf("awaits %v: the upstream worked for %s, want %s", awaits, got, want)
			}
			if stats := s.queue.Stats(); stats.Inside != 0 || stats.Waiting != 0 {
				t.Errorf("left behind: %+v", stats)
			}
		})
	}
}

func TestNoRequestWaitsWhileThereIsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 3}, httpguard.Options{}, work(time.Second))
		began := time.Now()
		for i := range 3 {
			s.request(t.Context(), "192.0.2.1", fmt.Sprint("/", i))
		}
		s.all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestRequestsWithoutATurnGet503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := fairshare.Rule{Name: "three", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3,
			Window: time.Hour}}
		slots := fairshare.Rule{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 3}}
		s := newBusySite(t, share.Options{Capacity: 1, Queue: 1, Wait: 5 * time.Second},
			httpguard.Options{Contact: "shop@example.org"}, work(20*time.Second), limit, slots)
		s.request(t.Context(), "192.0.2.1", "/works")
		s.request(t.Context(), "192.0.2.1", "/waits")
		s.request(t.Context(), "192.0.2.1", "/full")
		w := s.answers["/full"]
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" ||
			!strings.Contains(w.Body.String(), "This site is getting more requests than it can answer right now.") ||
			!strings.Contains(w.Body.String(), "shop@example.org") {
			t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if w := s.answers["/waits"]; w.Code != 503 {
			t.Errorf("after its wait: %d", w.Code)
		}
		// Neither was charged: two more pass.
		s.request(t.Context(), "192.0.2.1", "/again1")
		s.request(t.Context(), "192.0.2.1", "/again2")
		time.Sleep(time.Minute)
		s.request(t.Context(), "192.0.2.1", "/again3")
		s.all.Wait()
		if got := s.order(); got != "/works /again3" { // again1 waited for too long, again2 found the queue full
			t.Errorf("the upstream worked for %s", got)
		}
		s.request(t.Context(), "192.0.2.1", "/third")
		s.request(t.Context(), "192.0.2.1", "/fourth")
		s.all.Wait()
		if s.answers["/third"].Code != 200 || s.answers["/fourth"].Code != 429 {
			t.Errorf("then answered %d, %d", s.answers["/third"].Code, s.answers["/fourth"].Code)
		}
		for i, report := range s.reports {
			s.reports[i] = report[:strings.LastIndexByte(report, ' ')]
		}
		busy := " refuse share of a busy upstream 503"
		if want := []string{"/full" + busy, "/waits" + busy, "/again2" + busy, "/again1" + busy,
			"/fourth refuse three 429"}; !slices.Equal(s.reports, want) {
			t.Errorf("reported %q, want %q", s.reports, want)
		}
		if n := s.limiter.Stats(time.Now()).InProgress; n != 0 {
			t.Errorf("%d slots are taken at the end", n)
		}
	})
}

func TestClientsThatLeaveTheQueueCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := fairshare.Rule{Name: "two", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2,
			Window: time.Hour}}
		s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{}, work(time.Second), limit)
		s.request(t.Context(), "192.0.2.1", "/works")
		ctx, leave := context.WithCancel(t.Context())
		s.request(ctx, "192.0.2.1", "/leaves")
		leave()
		synctest.Wait()
		if stats := s.queue.Stats(); stats.Waiting != 0 {
			t.Errorf("%d wait", stats.Waiting)
		}
		s.request(t.Context(), "192.0.2.1", "/stays")
		s.all.Wait()
		if got := s.order(); got != "/works /stays" || len(s.reports) > 0 {
			t.Errorf("the upstream worked for %s; reported %q", got, s.reports)
		}
	})
}

func TestStreamsEndTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{},
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/events" {
					time.Sleep(time.Second)
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
					time.Sleep(time.Hour)
				}
			})
		began := time.Now()
		s.request(t.Context(), "192.0.2.1", "/events")
		s.request(t.Context(), "192.0.2.1", "/next")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.order(); got != "/events /next" || time.Since(began) != time.Second {
			t.Errorf("after %v the upstream worked for %s", time.Since(began), got)
		}
		s.all.Wait()
		if stats := s.queue.Stats(); stats.Inside != 0 {
			t.Errorf("left behind: %+v", stats)
		}
	})
}

// A busy upstream may answer 503 fast. That does not mean that it can work on more
// requests at once.
func TestFastFailuresDoNotRaiseTheCapacity(t *testing.T) {
	for _, test := range []struct {
		how  string
		fail http.HandlerFunc
	}{
		{"by its status", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(
				http.StatusServiceUnavailable)
		}},
		{"as the proxy says", func(w http.ResponseWriter, r *http.Request) { httpguard.NoUpstreamAnswer(w) }},
		{"before it is done", func(w http.ResponseWriter, r *http.Request) {
			httpguard.UpstreamFailed(w)
			httpguard.UpstreamDone(w)
		}},
		{"by breaking off", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var inside, most atomic.Int64
			s := newBusySite(t, share.Options{Min: 1, Max: 64}, httpguard.Options{},
				func(w http.ResponseWriter, r *http.Request) {
					defer inside.Add(-1)
					if inside.Add(1) > 4 {
						time.Sleep(2 * time.Millisecond)
						test.fail(w, r)
						return
					}
					time.Sleep(20 * time.Millisecond)
				})
			began := time.Now()
			for i := range 64 {
				s.all.Go(func() {
					for time.Since(began) < time.Minute {
						func() {
							defer func() { recover() }()
							r := httptest.NewRequest("GET", "/", nil)
							r.RemoteAddr = fmt.Sprintf("192.0.%d.1:1", i)
							s.handler.ServeHTTP(httptest.NewRecorder(), r)
						}()
						if time.Since(began) > 10*time.Second { // not the slots at the start
							most.Store(max(most.Load(), int64(s.queue.Stats().Capacity)))
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			s.all.Wait()
			if most := most.Load(); most > 8 { // it may try a few more
				t.Errorf("it fails %s: up to %d at once", test.how, most)
			}
		})
	}
}

// A hijackable answer can be hijacked, as for a websocket.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, _ := net.Pipe()
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

func TestHijackedConnectionsEndTheirTurn(t *testing.T) {
	for _, w := range []http.ResponseWriter{hijackable{httptest.NewRecorder()},
		wrapped{hijackable{httptest.NewRecorder()}}} {
		synctest.Test(t, func(t *testing.T) { testHijackedTurn(t, w) })
	}
}

func testHijackedTurn(t *testing.T, w http.ResponseWriter) {
	cpu := fairshare.Rule{Name: "cpu", Limit: &fairshare.Limit{Resource: fairshare.CPU, N: 1500_000,
		Window: 24 * time.Hour}}
	s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{},
		func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			if r.URL.Path == "/socket" {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
				}
				c.Close()
				time.Sleep(time.Hour)
			}
		}, cpu)
	began := time.Now()
	s.all.Go(func() {
		r := httptest.NewRequest("GET", "/socket", nil)
		s.handler.ServeHTTP(w, r)
	})
	synctest.Wait()
	s.request(t.Context(), "203.0.113.1", "/next")
	time.Sleep(time.Second)
	synctest.Wait()
	if got := s.order(); got != "/socket /next" || time.Since(began) != time.Second {
		t.Errorf("after %v the upstream worked for %s", time.Since(began), got)
	}
	s.all.Wait()
	// The CPU time of the websocket ended with its header: 1 s of 1.5 s was used.
	for _, want := range []int{200, 429} {
		s.request(t.Context(), "192.0.2.1", "/after")
		s.all.Wait()
		if code := s.answers["/after"].Code; code != want {
			t.Errorf("answered %d, want %d", code, want)
		}
	}
}

// A second AwaitTurn returns the same result at once.
func TestTurnIsAwaitedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := share.New(share.Options{Capacity: 1, Queue: -1})
		reports := 0
		_, handler := metered(t, httpguard.Options{Share: queue, HandlerAwaits: true,
			Refused: func(*httpguard.Report) { reports++ }}, func(w http.ResponseWriter, r *http.Request) {
			turn := httpguard.AwaitTurn(w, r)
			time.Sleep(time.Second)
			if httpguard.AwaitTurn(w, r) != turn {
				t.Errorf("turn %v, then not so", turn)
			}
		}, fairshare.Time)
		var all sync.WaitGroup
		all.Go(func() { visitOnce(handler, "/") })
		synctest.Wait()
		all.Go(func() {
			time.Sleep(100 * time.Millisecond)
			if w := visitOnce(handler, "/"); w.Code != 503 {
				t.Errorf("answered %d", w.Code)
			}
		})
		all.Wait()
		if stats := queue.Stats(); reports != 1 || stats.Inside != 0 || stats.Classes[0].Turns != 1 {
			t.Errorf("%d refusals, %+v", reports, stats)
		}
	})
}

// The wait in the answer grows with the number of refused requests.
func TestRefusalHasRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, Queue: 10}, httpguard.Options{}, work(10*time.Second))
		for i := range 200 {
			s.request(t.Context(), "192.0.2.1", fmt.Sprint("/", i))
		}
		after, err := strconv.Atoi(s.answers["/199"].Header().Get("Retry-After"))
		if s.answers["/199"].Code != 503 || err != nil || after < 10 {
			t.Errorf("%d, Retry-After %d, %v", s.answers["/199"].Code, after, err)
		}
		s.all.Wait()
	})
}

func TestWaitingIsNotChargedAsUpstreamTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var took []time.Duration
		s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{Passed: func(p *httpguard.Completion) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, p.Took)
		}}, work(time.Second))
		for i := range 3 {
			s.request(t.Context(), "192.0.2.1", fmt.Sprint("/", i))
		}
		s.all.Wait()
		if want := []time.Duration{time.Second, time.Second, time.Second}; !slices.Equal(took, want) {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

func TestDryRunQueuesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBusySite(t, share.Options{Capacity: 1, DryRun: true}, httpguard.Options{}, work(time.Second))
		for i := range 3 {
			s.request(t.Context(), "192.0.2.1", fmt.Sprint("/", i))
		}
		if got := s.order(); got != "/0 /1 /2" {
			t.Errorf("the upstream works for %s", got)
		}
		s.all.Wait()
		if stats := s.queue.Stats(); stats.Classes[0].Waited != 2 {
			t.Errorf("%d would have waited", stats.Classes[0].Waited)
		}
	})
}

// The answer to a client of a few expensive pages does not say "too many requests".
func TestAnswerNamesExpensiveRequests(t *testing.T) {
	for resource, want := range map[fairshare.Resource]string{
		fairshare.Time:     "429 Too many expensive requests: Your requests have used more of this site than one visitor may use. ",
		fairshare.Requests: "429 Too many requests: You have sent too many requests. ",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newBusySite(t, share.Options{Capacity: 1}, httpguard.Options{}, work(time.Second),
				fairshare.Rule{Name: "one", Limit: &fairshare.Limit{Resource: resource, N: 1, Window: time.Hour}})
			s.request(t.Context(), "192.0.2.1", "/first")
			s.all.Wait()
			s.request(t.Context(), "192.0.2.1", "/second")
			s.all.Wait()
			if got := s.answers["/second"].Body.String(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s", resource, got)
			}
		})
	}
}

// A request whose wait is reported to a hook that panics gives its turn back.
func TestPanicOfWaitedGivesTheTurnBack(t *testing.T) {
	for _, awaits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := httpguard.Options{HandlerAwaits: awaits,
				Waited: func(*http.Request, time.Duration) { panic("listener") }}
			s := newBusySite(t, share.Options{Capacity: 1}, opts, work(time.Second))
			s.request(t.Context(), "192.0.2.1", "/first")
			s.all.Go(func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				s.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/waits", nil))
			})
			s.all.Wait()
			if stats := s.queue.Stats(); stats.Inside != 0 {
				t.Errorf("awaits %v: %d turns are left behind", awaits, stats.Inside)
			}
		})
	}
}

// Limits that hold only while the upstream is busy look at the present queue of the site, also if requests for other
// hosts have no queue.
func TestBusyIsThatOfTheSitesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := guardFor(t, &fairshare.Policy{Sites: []fairshare.Site{{Name: "slow", Hosts: []string{"slow.example"}}},
			Rules: []fairshare.Rule{limit("busy", fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour,
				When: fairshare.Busy})}}, nil)
		withQueue := func() httpguard.Options {
			queue := share.New(share.Options{Capacity: 1, Wait: time.Minute})
			return httpguard.Options{Shares: map[string]*share.Queue{"slow": queue}}
		}
		h := httpguard.New(guard, withQueue(), work(time.Second))
		for name, client := range map[string]string{"a new handler": "192.0.2.1:1", "another queue": "192.0.2.2:1"} {
			var all sync.WaitGroup
			refused := map[string]int{}
			for range 5 { // the second one waits, and the third one is counted
				for _, host := range []string{"slow.example", "other.example"} {
					r, w := httptest.NewRequest("GET", "http://"+host+"/", nil), httptest.NewRecorder()
					r.RemoteAddr = client
					all.Go(func() { h.ServeHTTP(w, r) })
					synctest.Wait()
					if w.Code == http.StatusTooManyRequests {
						refused[host]++
					}
				}
			}
			all.Wait()
			if refused["slow.example"] != 2 || refused["other.example"] != 0 {
				t.Errorf("%s: refused: %v, want two requests for the busy site", name, refused)
			}
			time.Sleep(time.Minute)
			h.Replace(guard, withQueue())
		}
	})
}
