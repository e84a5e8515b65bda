package livepolicy

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/journal"
	"fairshare/internal/reports"
)

// A line that stands for several refusals has the facts of the first one only, and the time and path of the latest.
func TestLineOfSeveralRefusals(t *testing.T) {
	p := &Policy{watches: true}
	p.current.Store(&Runtime{Guard: &fairshare.Guard{}})
	var entries []journal.Entry
	c := reports.New(reports.Options{Now: time.Now, Wall: func(t time.Time) time.Time { return t.Add(time.Minute) },
		Client: func(netip.Addr) netip.Prefix { return netip.Prefix{} },
		Person: func(*httpguard.Report) bool { return false },
		Failed: func(err error) { t.Error(err) }}, entryList{p, &entries})
	now := time.Now()
	rule := &fairshare.Rule{Name: "a", Limit: &fairshare.Limit{N: 10, Window: time.Minute}}
	refuse := func(i int, path string) {
		n := int64(i)
		c.Refused(&httpguard.Report{Status: 429, RetryAfter: 100 - n, Finding: fairshare.Finding{Rule: rule,
			Limit: rule.Limit, Tally: fairshare.Tally{Over: true, Used: 10 + n, Held: n}, Wait: time.Duration(n)},
			Request: &fairshare.Request{Addr: netip.MustParseAddr("203.0.113.9"), Method: "GET", Path: path,
				Query: string(rune('0' + i)), Time: now.Add(-time.Duration(i) * time.Millisecond),
				Header: http.Header{"Cookie": []string{"a=b", "c=d"}[:min(i, 2)]}}})
	}
	// Calls may be collected apart, as those of several processors are. The race detector has that happen often.
	for range 1000 {
		entries = nil
		for i, path := range []string{"/same", "/same", "/same", "/other"} {
			refuse(i, path)
		}
		if c.Flush(); len(entries) == 1 {
			break
		}
	}
	if len(entries) != 1 {
		t.Fatalf("%d entries", len(entries))
	}
	e := entries[0]
	if !e.Time.Equal(now.Add(time.Minute)) || e.Path != "/same" || e.Query != "0" || e.Cookies != 0 ||
		e.RetryAfter != 100 || e.Used != 10 || e.InProgress != 0 {
		t.Errorf("the first refusal is mixed with others: %+v", e)
	}
	if e.N != 4 || !e.Latest.Equal(now.Add(time.Minute)) || e.LatestPath != "/other" || !e.Watch {
		t.Errorf("%+v", e)
	}
}

type entryList struct {
	*Policy
	to *[]journal.Entry
}

func (l entryList) Passed(*reports.Passages) {}

func (l entryList) Refused(g *reports.Refusals) { *l.to = append(*l.to, l.journalEntry(g)) }
