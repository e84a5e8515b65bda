package sessions_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/sessions"
)

// The first of many concurrent requests opens the session for all. No request waits longer than
// Wait, or repeatedly if no session is opened.
func TestOthersWaitForTheOpener(t *testing.T) {
	const atOnce = 50
	for name, test := range map[string]struct {
		wait time.Duration
		page func(n int64) (takes time.Duration, opens bool) // n from 1
		want int64                                           // sessions
		ends time.Duration                                   // time until all are answered
	}{
		"the first opens it": {time.Second, func(int64) (time.Duration, bool) {
			return 200 * time.Millisecond,
				true
		}, 1, 400 * time.Millisecond},
		"no wait": {0, func(int64) (time.Duration, bool) { return 200 * time.Millisecond, true },
			atOnce, 200 * time.Millisecond},
		"the first takes too long": {time.Second, func(int64) (time.Duration, bool) { return 5 * time.Second, true },
			atOnce, 6 * time.Second},
		"none is opened": {time.Second, func(int64) (time.Duration, bool) {
			return 200 * time.Millisecond,
				false
		}, 0, 400 * time.Millisecond},
		"the first one panics": {time.Second, func(n int64) (time.Duration, bool) {
			if n == 1 {
				time.Sleep(100 * time.Millisecond)
				panic(http.ErrAbortHandler)
			}
			return 200 * time.Millisecond, false
		}, 0, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked, opened atomic.Int64
				h := sessions.New(sessions.Config{Cookies: []string{"sid"}, Identify: clientOf, Wait: test.wait},
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						takes, opens := test.page(asked.Add(1))
						time.Sleep(takes)
						if opens && r.Header.Get("Cookie") == "" {
							w.Header().Set("Set-Cookie", fmt.Sprintf("sid=%d; Path=/", opened.Add(1)))
						}
					}))
				ask := func(bot fairshare.Bot) {
					defer func() { recover() }()
					h.ServeHTTP(known{httptest.NewRecorder(), addr("192.0.2.1"), bot},
						httptest.NewRequest("GET", "http://a/", nil))
				}
				begin := time.Now()
				var all sync.WaitGroup
				for range atOnce {
					all.Go(func() { ask(bots["verified"]) })
				}
				all.Wait()
				if took := time.Since(begin); took != test.ends || opened.Load() != test.want {
					t.Errorf("%d sessions in %v, want %d in %v", opened.Load(), took, test.want, test.ends)
				}
			})
		})
	}
}

// If no page opens a session, requests wait for a few others and then no longer. Clients that are
// not bots never wait.
func TestRequestsWaitForFewOpeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := sessions.New(sessions.Config{Cookies: []string{"sid"}, Identify: clientOf, Wait: time.Second},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(100 * time.Millisecond)
			}))
		pair := func(bot fairshare.Bot) time.Duration {
			begin := time.Now()
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					h.ServeHTTP(known{httptest.NewRecorder(), addr("192.0.2.1"), bot},
						httptest.NewRequest("GET", "http://a/robots.txt", nil))
				})
			}
			all.Wait()
			return time.Since(begin)
		}
		var waited int
		for range 20 {
			if took := pair(bots["verified"]); took > 100*time.Millisecond {
				waited++
			}
		}
		if waited < 1 || waited > 8 {
			t.Errorf("%d of 20 pairs waited", waited)
		}
		if took := pair(fairshare.Bot{}); took != 100*time.Millisecond {
			t.Errorf("people waited: %v", took)
		}
	})
}
