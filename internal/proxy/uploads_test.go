package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/share"
)

// Clients that send slowly use at most half of the slots of a busy upstream.
func TestSlowPostsHoldHalfOfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 4
		q := share.New(share.Options{Capacity: slots, Wait: time.Hour})
		s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, "done")
		}, Config{Slots: func() int { return q.Stats().Capacity }}, q)
		const more = 1000 // than is read ahead
		begin := func() *visitor {
			v := s.visitor()
			v.send(fmt.Sprintf("POST / HTTP/1.1\nHost: a\nContent-Length: %d\n\n", bodyAhead+more) +
				strings.Repeat("x", bodyAhead))
			synctest.Wait()
			return v
		}
		end := func(v *visitor) *http.Response {
			go v.send(strings.Repeat("y", more))
			return v.head()
		}
		first, second, third := begin(), begin(), begin()
		if st := q.Stats(); st.Inside != 2 || st.Waiting != 0 {
			t.Errorf("three slow posts: %+v", st)
		}
		other := s.visitor()
		other.send("GET / HTTP/1.1\nHost: a\n\n")
		if code := other.head().StatusCode; code != 200 {
			t.Errorf("a page at the same time: %d", code)
		}
		if code := end(first).StatusCode; code != 200 {
			t.Errorf("a complete post: %d", code)
		}
		if code := end(third).StatusCode; code != 200 { // it has its turn now
			t.Errorf("the third: %d", code)
		}
		fourth, fifth := begin(), begin()
		time.Sleep(uploadWait)
		if resp := fifth.head(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("one too many: %s", resp.Status)
		}
		for _, v := range []*visitor{second, fourth} {
			if code := end(v).StatusCode; code != 200 {
				t.Errorf("at the end: %d", code)
			}
		}
	})
}

// After any sequence of uploads, all slots are free.
func TestUploadsReleaseTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u uploads
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7+1)*time.Second)
				defer cancel()
				if u.enter(ctx, func() int { return 6 }) {
					time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
					u.leave(i%9 + 1) // the number of slots changes
				}
			})
		}
		all.Wait()
		if u.inside != 0 || u.waiting.Len() != 0 {
			t.Errorf("%d inside, %d wait", u.inside, u.waiting.Len())
		}
	})
}

// When the upstream gets more slots, uploads that wait use them, although no other one has ended.
func TestUploadsUseSlotsThatAreAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u uploads
		var now atomic.Int64
		now.Store(2)
		slots := func() int { return int(now.Load()) }
		u.enter(t.Context(), slots) // a slow one
		entered := make(chan time.Duration, 3)
		began := time.Now()
		enter := func() {
			if u.enter(t.Context(), slots) {
				entered <- time.Since(began)
			} else {
				entered <- -1
			}
		}
		go enter()
		synctest.Wait()
		now.Store(6) // three of them for uploads
		time.Sleep(time.Second)
		go enter()
		go enter()
		for range 2 {
			if after := <-entered; after != time.Second {
				t.Errorf("entered after %v, want 1s", after)
			}
		}
		time.Sleep(uploadWait - time.Second)
		now.Store(8)
		if after := <-entered; after != time.Second+uploadWait {
			t.Errorf("the last one entered after %v", after)
		}
	})
}
