// Command replay measures how fast `fairshare replay` judges a log in combined format
// under five rules and writes every verdict. It compares that with awk, which only counts
// clients, and with GoAccess if it is installed. It prints the table of BENCHMARKS.md.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const policy = `clients: {memory: 64MiB}
rules:
  - name: our own
    match: {addr: [192.0.2.0/24, 2001:db8::/32]}
    allow: true
  - name: bad bots
    match: {user_agent: [80legs, MJ12bot, "re:python-(requests|urllib)/"]}
    block: true
  - name: ceiling
    limit: {requests: 1200, per: 1m}
  - name: assets
    match: {path: ["/static/*", "*.css", "*.js", "*.png"], method: [GET, HEAD]}
    allow: true
  - name: rapid requests
    match: {cookie: none}
    limit: {requests: 3, per: 3s}
    ban: {after: 20, for: 10m, growth: 2}
`

const counters = 64 << 20 // bytes, as in the policy

func main() {
	log.SetFlags(0)
	lines := flag.Int("lines", 2_000_000, "lines of the generated log")
	path := flag.String("log", "", "a log to use instead")
	rounds := flag.Int("rounds", 5, "runs of each")
	flag.Parse()
	dir, err := os.MkdirTemp("", "fairshare-bench")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if *path == "" {
		*path = filepath.Join(dir, "access.log")
		must(writeLog(*path, *lines))
	} else {
		*lines = countLines(*path)
	}
	must(os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600))
	build := exec.Command("go", "build", "-C", "..", "-o", filepath.Join(dir, "fairshare"), "./cmd/fairshare")
	build.Stderr = os.Stderr
	must(build.Run())

	programs := []*program{
		{name: "fairshare replay, every verdict written", uncounted: counters,
			args: []string{filepath.Join(dir, "fairshare"), "replay", "-c", filepath.Join(dir, "policy.yaml"),
				"--verdicts", filepath.Join(dir, "verdicts.tsv"), *path}},
		{name: "awk, counting clients", args: []string{"awk", `{ n[$1]++ } END { for (c in n) k++; print k }`, *path}},
		{name: "GoAccess, full report", once: true, args: []string{"goaccess", "--log-format=COMBINED",
			"--no-progress", "-o", filepath.Join(dir, "report.json"), *path}},
	}
	for range *rounds { // in turn, so that other load on the machine affects all
		for _, p := range programs {
			p.run()
		}
	}
	fmt.Printf("| %d lines | lines per second | CPU time per line | memory |\n|---|---|---|---|\n", *lines)
	for _, p := range programs {
		if len(p.wall) == 0 {
			continue
		}
		memory := fmt.Sprintf("%d MB", median(p.peak)/1e6)
		if p.uncounted > 0 {
			memory = fmt.Sprintf("%d MB in addition to the counters", (median(p.peak)-p.uncounted)/1e6)
		}
		fmt.Printf("| %s | %.2f M | %d ns | %s |\n", p.name, float64(*lines)/median(p.wall).Seconds()/1e6,
			median(p.cpu).Nanoseconds()/int64(*lines), memory)
	}
}

// A program is a program to measure.
type program struct {
	name      string
	args      []string
	once      bool  // it is slow: run it once
	uncounted int64 // bytes of memory that are not counted
	wall, cpu []time.Duration
	peak      []int64 // bytes
}

func (p *program) run() {
	if _, err := exec.LookPath(p.args[0]); err != nil || p.once && len(p.wall) > 0 {
		return
	}
	cmd := exec.Command(p.args[0], p.args[1:]...)
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		log.Fatalf("%s: %v\n%s", p.name, err, out)
	}
	p.wall = append(p.wall, time.Since(begin))
	p.cpu = append(p.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	p.peak = append(p.peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// writeLog writes n lines in combined format, 200 requests a second, of 50,000 clients. A
// few clients send most of the requests (Zipf 1.1).
func writeLog(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(rnd, 1.1, 10, 49_999)
	agents := make([]string, 300)
	for i := range agents {
		agents[i] = fmt.Sprintf(
			"Mozilla/5.0 (Windows NT %d.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.0 Safari/537.36", 6+i%5, 80+i%50, i)
		if i%10 == 3 {
			agents[i] = fmt.Sprintf("Mozilla/5.0 (compatible; Somebot/%d.0; +http://bot.example/about)", i)
		}
	}
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	paths := make([]string, 2000)
	for i := range paths {
		paths[i] = one("/article/", "/static/js/chunk-", "/img/", "/search?page=2&q=", "/shop/item/") +
			fmt.Sprint(i) + one("", ".js", "/of-some-length", ".jpg")
	}
	b := bufio.NewWriterSize(f, 1<<20)
	at := time.Unix(1_700_000_000, 0).UTC()
	for i := range n {
		client := clients.Uint64()
		fmt.Fprintf(b, "%d.%d.%d.%d - - [%s] \"%s %s HTTP/1.1\" %s %d \"%s\" \"%s\"\n",
			11+client%200, client/200%250, client*7%251, client*13%241,
			at.Add(time.Duration(i)*time.Second/200).Format("02/Jan/2006:15:04:05 -0700"),
			one("GET", "GET", "GET", "POST"), paths[rnd.IntN(len(paths))],
			one("200", "200", "200", "200", "304", "301", "404"), 200+rnd.IntN(40_000),
			one("-", "https://www.example.org/shop/", "https://search.example/"), agents[client%uint64(len(agents))])
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func countLines(path string) int {
	f, err := os.Open(path)
	must(err)
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
	}
	return n
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
