package replay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairshare"
)

// writeLog writes n combined lines of 50,000 clients, of which few ask much
// and most little (Zipf 1.1), 200 requests a second.
func writeLog(w io.Writer, n int) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(rnd, 1.1, 10, 49_999)
	agents := make([]string, 300)
	for i := range agents {
		agents[i] = fmt.Sprintf("Mozilla/5.0 (Windows NT %d.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.0 Safari/537.36", 6+i%5, 80+i%50, i)
		if i%10 == 3 {
			agents[i] = fmt.Sprintf("Mozilla/5.0 (compatible; Somebot/%d.0; +http://bot.example/about)", i)
		}
	}
	paths := make([]string, 2000)
	for i := range paths {
		paths[i] = fmt.Sprintf(one(rnd, "/article/%d/of-some-length", "/static/js/chunk-%d.js", "/img/%d/photo.jpg", "/search?q=word%d&page=2", "/shop/item/%d"), i)
	}
	b := bufio.NewWriterSize(w, 1<<20)
	at := time.Unix(1_700_000_000, 0).UTC()
	for i := range n {
		client := clients.Uint64()
		fmt.Fprintf(b, "%d.%d.%d.%d - - [%s] \"%s %s HTTP/1.1\" %d %d \"%s\" \"%s\"\n",
			11+client%200, client/200%250, client*7%251, client*13%241,
			at.Add(time.Duration(i)*time.Second/200).Format("02/Jan/2006:15:04:05 -0700"),
			one(rnd, "GET", "GET", "GET", "POST"), paths[rnd.IntN(len(paths))], one(rnd, 200, 200, 200, 200, 304, 301, 404), 200+rnd.IntN(40_000),
			one(rnd, "-", "https://www.example.org/shop/", "https://search.example/"), agents[client%uint64(len(agents))])
	}
	return b.Flush()
}

// fivePolicy is the policy of the benchmark: lists of addresses, user agents
// and paths, and two limits.
func fivePolicy() *fairshare.Policy {
	return &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "our own", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}}, Action: fairshare.Allow},
		{Name: "bad bots", Match: fairshare.Match{UserAgent: []string{"80legs", "MJ12bot", "re:python-(requests|urllib)/"}}, Action: fairshare.Block},
		{Name: "ceiling", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1200, Window: time.Minute}},
		{Name: "assets", Match: fairshare.Match{Path: []string{"/static/*", "*.css", "*.js", "*.png"}, Method: []string{"GET", "HEAD"}}, Action: fairshare.Allow},
		{Name: "rapid requests", Match: fairshare.Match{Cookie: []string{"none"}}, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 3 * time.Second},
			Ban: &fairshare.BanTerms{After: 20, For: 10 * time.Minute, Growth: 2}},
	}}
}

// Two million combined lines under five rules, every verdict written.
// FAIRSHARE_LOG names a log to use instead.
func BenchmarkReplay(b *testing.B) {
	path := os.Getenv("FAIRSHARE_LOG")
	if path == "" {
		path = filepath.Join(b.TempDir(), "access.log")
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := writeLog(f, 2_000_000); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	const counters = 64 << 20
	lines := int64(0)
	var refused int64
	for b.Loop() {
		verdicts, err := os.Create(filepath.Join(b.TempDir(), "verdicts.tsv"))
		if err != nil {
			b.Fatal(err)
		}
		r, err := New(Options{Policy: fivePolicy(), Limiter: memory(counters), Client: clientFunc(b), Logs: []string{path}, Verdicts: verdicts})
		if err != nil {
			b.Fatal(err)
		}
		report, err := r.Run(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if report.Lines == 0 || report.Verdicts.Allow+report.Verdicts.Refuse+report.Verdicts.Block != report.Lines-report.Skipped {
			b.Fatalf("%d lines, %d skipped, verdicts %+v", report.Lines, report.Skipped, report.Verdicts)
		}
		lines += report.Lines
		refused = report.Verdicts.Refuse * 100 / report.Lines
		verdicts.Close()
	}
	b.ReportMetric(float64(lines)/b.Elapsed().Seconds()/1e6, "Mlines/s")
	b.ReportMetric(float64(refused), "%refused")
	if peak := peakMemory(); peak > 0 {
		b.ReportMetric(float64(peak-counters)/1e6, "MB-beside-counters")
	}
}

// The judge alone, over lines that are parsed already.
func BenchmarkJudge(b *testing.B) {
	path := filepath.Join(b.TempDir(), "access.log")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	const lines = 200_000
	if err := writeLog(f, lines); err != nil {
		b.Fatal(err)
	}
	f.Close()
	r, err := New(Options{Policy: fivePolicy(), Limiter: memory(64 << 20), Client: clientFunc(b), Logs: []string{path}})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	j, err := newJudge(r)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	go j.feeds[0].run(ctx, j.opts, &j.seeds)
	var all []*batch
	for prepared := range j.feeds[0].batches {
		all = append(all, prepared)
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for n < b.N {
		b.StopTimer()
		if err := j.fresh(); err != nil {
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

// peakMemory returns the largest resident size of this process so far in
// bytes, where the system tells it.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	var kB int64
	fmt.Sscan(string(rest), &kB)
	return kB << 10
}
