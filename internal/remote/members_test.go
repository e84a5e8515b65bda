package remote

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
)

func TestMembersSaysHowTheStoreAnswers(t *testing.T) {
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	members := []console.GroupMember{{ID: "a1", Name: "web1/7", Policy: "p", Since: since, Self: true},
		{ID: "b2", Name: "web2/8\x1b[31m", Policy: "p", Since: since}}
	for _, c := range []struct {
		name  string
		group console.Group
		want  []string
	}{
		{"nobody asks", console.Group{Name: "shop", Members: members},
			[]string{"group     shop, 2 members", "nobody had to wait", "this one"}},
		{"answers", console.Group{Name: "shop", Members: members, RoundTrip50: 0.0003, RoundTrip99: 0.0021,
			Questions: 5, Credit: 95}, []string{"round trip 0.3 ms, 99 of 100 within 2.1 ms",
			"5 asked the store (5 %), 95 passed without"}},
		{"updates", console.Group{Name: "shop", Members: members, Replaced: 75, Contended: 25}, []string{
			"updates   75 % replaced counts in the store; 25 % were decided there, since another member was first"}},
		{"away", console.Group{Name: "shop", Members: members, Away: true, AwaySince: &since, Reason: "no route",
			Divided: 2}, []string{"STORE     away since 2026-05-01 12:00:00 UTC: no route; this server admits 1/2 of each limit"}},
		{"queues", console.Group{Name: "shop", Members: members, Queues: []console.GroupQueue{
			{Capacity: 12, Slots: 7, Members: 2, Leads: true}, {Site: "a.example", Capacity: 9, Slots: 1, Members: 2},
			{Site: "b.example\x1b", Capacity: 9, Slots: 4, Members: 1, Away: true}}}, []string{
			"queue     the upstream: 12 slots for 2 members, 7 here; this server finds the capacity",
			"queue     a.example: 9 slots for 2 members, 1 here\n",
			"does not hear the others, and has 4 slots of 9"}},
		{"away and open", console.Group{Name: "shop", Members: members, Away: true, AwaySince: &since,
			Reason: "no route", Divided: 1}, []string{"STORE     away since 2026-05-01 12:00:00 UTC: no route\n"}},
		{"away since the start", console.Group{Name: "shop", Away: true, AwaySince: &since, Reason: "no route",
			Divided: 1}, []string{"group     shop, 0 members", "STORE     away"}},
		{"other policy", console.Group{Name: "shop", Members: []console.GroupMember{{ID: "a", Policy: "p", Self: true},
			{ID: "b", Policy: "q"}}}, []string{"Members with different policies"}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(c.group)
		}))
		var out bytes.Buffer
		s, err := Open(Options{Addr: server.URL})
		if err == nil {
			err = s.Members(&cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out})
		}
		server.Close()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q lacks %q", c.name, out.String(), want)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: a control character of another member is printed", c.name)
		}
	}
}
