package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairshare"
)

// Many products become one pattern; a path with a large share keeps its name.
func TestPathsBecomePatterns(t *testing.T) {
	var tree pathTree
	add := func(path string, requests, bytes int64) {
		tree.add(path, pathTotal{usage: usage{requests, bytes, 0}})
	}
	for i := range 500 {
		add(fmt.Sprintf("/product/%d", i), 1, 10)
		add(fmt.Sprintf("/product/%d/reviews", i), 1, 1)
		add(fmt.Sprintf("/img/%d/%d.jpg", i%100, i), 2, 2000)
	}
	add("/", 300, 10)
	add("/feed.xml", 200, 20)
	add("/download/big.iso", 1, 900_000)
	got := map[string]int64{}
	for _, row := range tree.report() {
		got[row.Path] = row.Requests
	}
	want := map[string]int64{"/product/*": 500, "/product/*/reviews": 500, "/img/*/*.jpg": 1000, "/": 300,
		"/feed.xml":         200,
		"/download/big.iso": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Any paths, in bounded memory: no request is lost, and the result is always the same.
func TestPathTreeIsBoundedAndDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	build := func() []PathUsage {
		random := rand.New(rand.NewPCG(7, 7))
		var tree pathTree
		for range 200_000 {
			var path strings.Builder
			for range 1 + random.IntN(12) {
				fmt.Fprintf(&path, "/%d", random.IntN(1<<random.IntN(16)))
			}
			tree.add(path.String(), pathTotal{usage{1, 5, 0}, 0, 0})
			if tree.nodes > mostNodes {
				t.Fatalf("%d nodes", tree.nodes)
			}
		}
		return tree.report()
	}
	rows := build()
	var sum int64
	for _, r := range rows {
		sum += r.Requests
	}
	if sum != 200_000 {
		t.Errorf("the patterns have %d requests, want 200,000", sum)
	}
	if len(rows) > 5000 {
		t.Errorf("%d patterns", len(rows))
	}
	if diff := cmp.Diff(rows, build()); diff != "" {
		t.Error(diff)
	}
}

func FuzzPathTree(f *testing.F) {
	f.Add("/a/b.css", "*", "/*/")
	f.Add("", "//", "http://x/")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var tree pathTree
		for i, path := range []string{a, b, c, a} {
			tree.add(path, pathTotal{usage{int64(i + 1), 0, 0}, 0, 0})
		}
		tree.prune(&tree.root)
		var sum int64
		for _, r := range tree.report() {
			sum += r.Requests
		}
		if sum != 10 {
			t.Errorf("%d requests, want 10", sum)
		}
	})
}

// A log with more paths than are counted exactly: the patterns still have all requests.
func TestFloodOfPaths(t *testing.T) {
	var lines []string
	for i := range 3000 {
		lines = append(lines, entryAt("192.0.2.1", "10:00:00", fmt.Sprintf(`"GET /p/%d HTTP/1.1" 404 7 "-" "curl/8"`,
			i)))
		lines = append(lines, entryAt("192.0.2.2", "10:00:00", `"GET /often?x=1 HTTP/1.1" 200 7 "-" "curl/8"`))
	}
	r, err := New(Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)}})
	if err != nil {
		t.Fatal(err)
	}
	r.bounds.paths = 100
	report, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []PathUsage{
		{Path: "/often", Usage: Usage{Requests: 3000, Bytes: 21000}},
		{Path: "/p/*", Usage: Usage{Requests: 3000, Bytes: 21000}, Errors: 3000},
	}
	if diff := cmp.Diff(want, report.PathPatterns); diff != "" {
		t.Error(diff)
	}
	if top := report.Paths[0]; top.Path != "/often" || top.Requests != 3000 || top.Approximate {
		t.Errorf("the first path is %+v", top)
	}
	if last := report.Paths[len(report.Paths)-1]; !last.Approximate {
		t.Errorf("%+v is not marked as approximate", last)
	}
}
