package fairshare_test

import (
	"fmt"
	"testing"

	"fairshare"
)

// A page with 19 parts of a browser, under a limit of requests or of pages.
func BenchmarkPages(b *testing.B) {
	for _, unit := range []fairshare.Unit{fairshare.EachRequest, fairshare.Pages} {
		b.Run(unit.String(), func(b *testing.B) {
			rule := fairshare.Rule{Name: "limit", Limit: pagesLimit(1 << 27)}
			rule.Limit.Count = unit
			g := memGuard(b, fairshare.Policy{Rules: []fairshare.Rule{rule}})
			var reqs []fairshare.Request
			for i := range 20 {
				req := with(asking(alice, fmt.Sprintf("/static/%d.css", i)), "Sec-Fetch-Dest", "style")
				if i == 0 {
					req = opening(alice, "/")
				}
				req.Time = start
				reqs = append(reqs, req)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				v, err := g.Decide(b.Context(), &reqs[i])
				if err != nil || v.Action != fairshare.Allow {
					b.Fatal(v.Action, err)
				}
				if err := g.Settle(b.Context(), &v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(reqs) {
					i = 0
				}
			}
		})
	}
}
