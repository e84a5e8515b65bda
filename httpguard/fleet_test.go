package httpguard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/fleets"
	"fairshare/membans"
	"fairshare/memlimit"
)

// A swarm of browsers that fetch no assets is one client of a limit by fleet. Its
// members are refused. People with the same user agent and headers get their first
// page, and after the first style sheet all others.
func TestFleetIsOneClientOfALimit(t *testing.T) {
	const agent = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "fleets", Limit: &fairshare.Limit{
		Name: "fleets", Resource: fairshare.Requests, N: 60, Window: time.Minute,
		By: []fairshare.KeyPart{{Kind: fairshare.ByFleet}},
		Newcomers: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: 10 * time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}},
	}}}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(policy, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	refusedFleet := ""
	finder := fleets.New(fleets.Options{})
	h := New(guard, Options{Fleets: finder, Now: func() time.Time { return now }, Refused: func(r *Report) {
		refusedFleet = r.Request.Fleet
	}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a.css" {
			w.Header().Set("Content-Type", "text/css")
		} else {
			w.Header().Set("Content-Type", "text/html")
		}
		w.Write([]byte("x"))
	}))
	get := func(addr, path string) int {
		r := httptest.NewRequestWithContext(context.Background(), "GET", path, nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(addr), 4000).String()
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 180 { // half an hour of readers
		now = now.Add(10 * time.Second)
		reader := fmt.Sprintf("81.%d.2.3", i)
		if page, style := get(reader, "/"), get(reader, "/a.css"); page != 200 || style != 200 {
			t.Fatalf("reader %d: %d, %d", i, page, style)
		}
	}
	passed, refused := 0, 0
	for i := range 3000 { // ten minutes of a swarm: a page each, and another one a minute later
		now = now.Add(200 * time.Millisecond)
		addr := func(i int) string { return fmt.Sprintf("20.%d.%d.9", i/200, i%200) }
		for _, code := range []int{get(addr(i), "/page"), get(addr(max(i-300, 0)), "/page")} {
			if code == 200 {
				passed++
			} else {
				refused++
			}
		}
		if i > 1000 && i%50 == 0 { // somebody with the same browser comes for the first time
			person := fmt.Sprintf("90.%d.2.3", i/50)
			for k, path := range []string{"/", "/a.css", "/1", "/2", "/3", "/4"} {
				if code := get(person, path); code != 200 {
					t.Errorf("request %d of a person: %d", k, code)
				}
			}
		}
	}
	if found := finder.Fleets(now); len(found) != 1 || refusedFleet != found[0].Name {
		t.Fatalf("fleets: %+v, the last refused request had %q", found, refusedFleet)
	}
	// The swarm gets what the limit allows, and what newcomers have: a page for each address.
	if refused == 0 || passed > 6000-refused {
		t.Errorf("%d requests of the swarm passed, %d were refused", passed, refused)
	}
	t.Logf("%d requests of the swarm passed, %d were refused", passed, refused)
}
