package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
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
				if u.enter(ctx, 6) {
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
