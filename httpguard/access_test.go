package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/share"
)

// Each request is reported to Answered once, with what it waited, however it was answered.
func TestAnsweredIsCalledOnceForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		waited := 0
		opts := httpguard.Options{
			Waited: func(*http.Request, time.Duration) { waited++ },
			Answered: func(a *httpguard.Access) {
				mu.Lock()
				defer mu.Unlock()
				rule := "-"
				if a.Rule != nil {
					rule = a.Rule.Name
				}
				got = append(got, fmt.Sprintf("%s %s %s dry=%t gone=%t %d waited=%v took=%v id=%t",
					a.HTTP.URL.Path, a.Action, rule, a.DryRun, a.Gone, a.Status, a.Waited.Round(time.Second), a.Took,
					a.ID != ""))
			},
		}
		path := func(path string) fairshare.Match {
			return fairshare.Match{Path: []string{path}}
		}
		s := newBusySite(t, share.Options{Capacity: 1, Queue: 2, Wait: 5 * time.Second}, opts, work(3*time.Second),
			fairshare.Rule{Name: "admin", Match: path("/admin"), Action: fairshare.Block},
			fairshare.Rule{Name: "tried", Match: path("/tried"), Action: fairshare.Block, DryRun: true})
		s.request(t.Context(), "192.0.2.1", "/works")   // 0 to 3 s
		s.request(t.Context(), "192.0.2.2", "/waits")   // 3 to 6 s
		s.request(t.Context(), "192.0.2.3", "/expires") // until 5 s
		s.request(t.Context(), "192.0.2.4", "/admin")
		s.all.Wait()
		s.request(t.Context(), "192.0.2.1", "/tried")
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		s.request(leaving, "192.0.2.5", "/leaves")
		s.all.Wait()
		slices.Sort(got)
		want := []string{
			"/admin block admin dry=false gone=false 403 waited=0s took=0s id=true",
			"/expires refuse share of a busy upstream dry=false gone=false 503 waited=5s took=0s id=true",
			"/leaves allow - dry=false gone=true 0 waited=1s took=0s id=false",
			"/tried block tried dry=true gone=false 200 waited=0s took=3s id=true",
			"/waits allow - dry=false gone=false 200 waited=3s took=3s id=false",
			"/works allow - dry=false gone=false 200 waited=0s took=3s id=false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
		if waited != 1 {
			t.Errorf("%d requests waited", waited)
		}
	})
}
