package replay

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/bots"
)

// fivePolicy is the policy of the benchmarks: lists of addresses, user agents
// and paths, and two limits.
func fivePolicy() *fairshare.Policy {
	return &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "our own", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.0/24"),
			netip.MustParsePrefix("2001:db8::/32")}}, Action: fairshare.Allow},
		{Name: "bad bots", Match: fairshare.Match{UserAgent: []string{"80legs", "MJ12bot",
			"re:python-(requests|urllib)/"}}, Action: fairshare.Block},
		{Name: "ceiling", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1200, Window: time.Minute}},
		{Name: "assets", Match: fairshare.Match{Path: []string{"/static/*", "*.css", "*.js", "*.png"},
			Method: []string{"GET", "HEAD"}}, Action: fairshare.Allow},
		{Name: "rapid requests", Match: fairshare.Match{Cookie: []string{"none"}},
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 3 * time.Second},
			Ban:   &fairshare.BanTerms{After: 20, For: 10 * time.Minute, Growth: 2}},
	}}
}

// BenchmarkJudge measures only the judge, with parsed lines.
func BenchmarkJudge(b *testing.B) {
	r, err := New(Options{Policy: fivePolicy(), Limiter: memory(4 << 20), Client: clientFunc(b),
		Logs: []string{"testdata/semicomplete-2015.log.gz", "testdata/airisdata-2016.log.gz"}})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	j, err := newJudge(r)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	var all []*batch
	for _, f := range j.feeds {
		go f.run(ctx)
		for prepared := range f.batches {
			all = append(all, prepared)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for n < b.N {
		b.StopTimer()
		if err := j.reset(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for _, prepared := range all {
			for i := range prepared.items {
				if err := j.judge(ctx, &prepared.items[i], j.feeds[0]); err != nil {
					b.Fatal(err)
				}
			}
			if n += len(prepared.items); n >= b.N {
				break
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(n)*1e9, "ns/line")
}

// BenchmarkPrepare measures the preparation of lines. No client is a bot, but each user
// agent is searched for bots.
func BenchmarkPrepare(b *testing.B) {
	for _, bm := range []struct {
		name string
		bot  func(netip.Addr, string) fairshare.Bot
	}{{"nobody", nil}, {"bots", bots.NewVerifier(bots.Options{}).Look}} {
		b.Run(bm.name, func(b *testing.B) {
			r, err := New(Options{Policy: fivePolicy(), Limiter: memory(4 << 20), Client: clientFunc(b),
				Logs: []string{"testdata/semicomplete-2015.log.gz"}, Bot: bm.bot})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			j, err := newJudge(r)
			if err != nil {
				b.Fatal(err)
			}
			f := j.feeds[0]
			go f.run(b.Context())
			var all []*batch
			for prepared := range f.batches {
				all = append(all, prepared)
			}
			p, n := preparer{opts: &r.opts, seeds: &r.seeds, targets: new(knownTargets)}, 0
			b.ReportAllocs()
			for b.Loop() {
				p.items(all[n%len(all)])
				n++
			}
			lines, known := 0, 0
			for i := range n {
				lines += len(all[i%len(all)].items)
			}
			for i := range all[0].items {
				if all[0].items[i].req.Bot.Name != "" {
					known++
				}
			}
			if (known > 0) != (bm.bot != nil) {
				b.Errorf("%d of %d lines are of bots", known, len(all[0].items))
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(lines)*1e9, "ns/line")
		})
	}
}
