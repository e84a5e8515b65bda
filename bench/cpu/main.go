//go:build linux

// Cpu measures how exactly fairshare charges CPU time to clients, for each source of CPU
// time. It compares the charged time with the time that the site measures by getrusage
// for each request. One heavy client and several light ones send requests at the same
// time.
//
//	go run ./cpu            # in bench/; builds fairshare from the module above
//
// Each answer contains the CPU time from getrusage; each client, which has its own
// address of 127.0.0.0/8, adds it up. The charged time comes from
// "fairshare clients --json" at the end, or for the middleware from its hook Passed.
//
// In the table "exact" each client has its own path. The table "harder" adds a client
// that never requests the same page twice, and one whose pages mostly wait. In "same
// path" only the query distinguishes expensive pages from cheap ones. The last table
// enforces a policy: a client that uses more than 7 % of the CPU in 15 seconds gets 503.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairshare/bench/internal/stand"
)

var (
	length    = flag.Duration("length", 10*time.Second, "time of a run with one source")
	enforced  = flag.Duration("enforced", 20*time.Second, "the same with the policy enforced")
	heavy     = flag.Int("heavy", 2, "requests that the heavy client keeps open")
	burn      = flag.Int("burn", 200, "CPU time of a heavy request, ms")
	light     = flag.Int("light", 10, "CPU time of a light request, ms")
	every     = flag.Duration("every", 200*time.Millisecond, "mean time between two requests of a light client")
	only      = flag.String("only", "", "sources whose name, with that of their site, contains this")
	tableName = flag.String("table", "", "tables whose name contains this: exact, harder, same path, seven percent")
	program   = flag.String("fairshare", "", "the program; without it, it is built")
	keepFiles = flag.Bool("keep", false, "keep the folder with policies and logs, and print its path")
	role      = flag.String("role", "", "the role of a child process: site, middleware")
	sums      = flag.String("sums", "", "for the child: the file for the charged times of clients")
	limit     = flag.Int64("limit", 0, "for the child: CPU time in 15 s, in µs")
)

func main() {
	flag.Parse()
	var err error
	switch *role {
	case "site":
		err = serveSite(site(true))
	case "middleware":
		err = serveGuarded(*limit, *sums)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = measure(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// sevenPercent of all cores over 15 s.
func sevenPercent() time.Duration {
	return time.Duration(runtime.NumCPU()) * 15 * time.Second * 7 / 100
}

// A bench holds the values that all runs need.
type bench struct {
	dir, fairshare string
	enforce        bool
	runs           int
}

func measure(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fairshare-cpu")
	if err != nil {
		return err
	}
	if *keepFiles {
		fmt.Fprintln(os.Stderr, "policies and logs:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	b := &bench{dir: dir, fairshare: *program}
	if b.fairshare == "" {
		if b.fairshare, err = stand.Build(ctx, dir); err != nil {
			return err
		}
	}
	hog := func(path string) *client {
		return &client{name: "heavy", addr: netip.MustParseAddr("127.3.0.1"), path: target(path, *burn, 0),
			open: *heavy}
	}
	quick := func(n int, name, path string, burn, wait int) *client {
		return &client{name: name, addr: netip.AddrFrom4([4]byte{127, 3, byte(n), 1}), path: target(path, burn, wait)}
	}
	plain := []*client{hog("report"), quick(1, "light", "page", *light, 0), quick(2, "light", "page", *light, 0),
		quick(3, "light", "other", *light, 0)}
	harder := append(slices.Clone(plain), quick(4, "light, ever new pages", "item/N", *light, 0),
		quick(5, "waits 100 ms", "feed", *light/2, 100))
	same := []*client{hog("page"), quick(1, "light", "page", *light, 0), quick(2, "light", "page", *light, 0),
		quick(3, "waits 100 ms", "page", *light/2, 100)}
	for _, table := range []struct {
		name    string
		clients []*client
	}{{"exact", plain}, {"harder", harder}, {"same path", same}} {
		if !strings.Contains(table.name, *tableName) {
			continue
		}
		if err := b.exact(ctx, table.name, table.clients, *length); err != nil {
			return err
		}
	}
	if !strings.Contains("seven percent", *tableName) {
		return nil
	}
	b.enforce = true
	return b.limited(ctx, harder)
}

// target returns a target that takes that many ms of CPU time and of waiting.
func target(path string, burn, wait int) string {
	return fmt.Sprintf("/%s?burn=%d&wait=%d", path, burn, wait)
}

// exact prints the charged and the used CPU time of each client.
func (b *bench) exact(ctx context.Context, title string, clients []*client, length time.Duration) error {
	fmt.Printf(
		"| %s: source | site | client | answers | getrusage, s | fairshare, s | off |\n|---|---|---|---|---|---|---|\n", title)
	return b.each(func(src *source) error {
		charged, took, err := b.run(ctx, src, clients, length)
		if err != nil {
			return err
		}
		allUsed, allCharged := 0.0, 0.0
		for _, c := range clients {
			used := float64(c.used) / 1e6
			fmt.Printf("| %s | %s | %s | %d | %.3f | %.3f | %+.1f %% |\n", src.name, src.site, c.name, c.answered,
				used, charged[c.addr], 100*(charged[c.addr]/used-1))
			c.fault()
			allUsed += used
			allCharged += charged[c.addr]
		}
		fmt.Printf("| %s | %s | all; the kernel says %.3f | | %.3f | %.3f | %+.1f %% |\n", src.name, src.site, took,
			allUsed, allCharged, 100*(allCharged/allUsed-1))
		return nil
	})
}

// limited prints the effect of the policy.
func (b *bench) limited(ctx context.Context, clients []*client) error {
	clients[0].open *= 2
	fmt.Printf(
		"| seven percent: source | site | client | requests | answered | refused | CPU of all cores, getrusage |\n|---|---|---|---|---|---|---|\n")
	return b.each(func(src *source) error {
		if _, _, err := b.run(ctx, src, clients, *enforced); err != nil {
			return err
		}
		for _, c := range clients {
			fmt.Printf("| %s | %s | %s | %d | %d | %d | %.1f %% |\n", src.name, src.site, c.name,
				c.answered+c.refused+c.failed, c.answered, c.refused,
				float64(c.used)/1e4/enforced.Seconds()/float64(runtime.NumCPU()))
			c.fault()
		}
		return nil
	})
}

// each calls a function for each chosen source that this machine has.
func (b *bench) each(do func(*source) error) error {
	for i := range sources {
		src := &sources[i]
		if !strings.Contains(src.name+" "+src.site, *only) {
			continue
		}
		if err := do(src); errors.Is(err, errNotHere) {
			fmt.Printf("| %s | %s | %v |\n", src.name, src.site, err)
		} else if err != nil {
			return fmt.Errorf("%s, %s: %w", src.name, src.site, err)
		}
	}
	fmt.Println()
	return nil
}

// run sends the clients' requests to the site of a source. It returns the charged time of
// each client, and the total time of the site's processes, in s.
func (b *bench) run(ctx context.Context, src *source, clients []*client,
	length time.Duration) (charged map[netip.Addr]float64, took float64, err error) {
	b.runs++
	dir := filepath.Join(b.dir, strconv.Itoa(b.runs))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, 0, err
	}
	s, err := src.start(b, dir)
	if err != nil {
		return nil, 0, err
	}
	defer s.stop()
	if err := s.serve(b, dir); err != nil {
		return nil, 0, err
	}
	before := treeCPU(s.all[0].Pid())
	during, stop := context.WithTimeout(ctx, length)
	defer stop()
	var all sync.WaitGroup
	for i, c := range clients {
		c.counts = counts{}
		all.Go(func() { c.run(during, s.front.Addr, uint64(i)) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	took = treeCPU(s.all[0].Pid()) - before
	s.front.Stop() // afterwards all is written
	charged, err = b.charged(dir)
	return charged, took, err
}

// charged reads the charged time of each client.
func (b *bench) charged(dir string) (map[netip.Addr]float64, error) {
	charged := map[netip.Addr]float64{}
	data, err := os.ReadFile(filepath.Join(dir, "sums"))
	if err == nil {
		return charged, json.Unmarshal(data, &charged)
	}
	list := exec.Command(b.fairshare, "clients", "--json", "--sort", "cpu", "--top", "0", "--state",
		filepath.Join(dir, "state"))
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("fairshare clients: %w", err)
	}
	lines := json.NewDecoder(bytes.NewReader(out))
	for {
		var c struct {
			Client netip.Addr
			CPU    float64 `json:"cpu_seconds"`
		}
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			return charged, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of fairshare clients: %w", err)
		}
		charged[c.Client] = c.CPU
	}
}

// A client requests one page: it keeps open requests open all the time or, if open is 0,
// sends requests at random times (Poisson).
type client struct {
	name string
	addr netip.Addr
	path string
	open int

	counts
}

// counts counts a client's requests by their result.
type counts struct {
	mu                        sync.Mutex
	answered, refused, failed int
	number                    int   // of the last request
	used                      int64 // µs, as the site measured
	faults                    map[string]int
}

// run sends requests until ctx is done, and waits for all answers.
func (c *client) run(ctx context.Context, to string, seed uint64) {
	var all sync.WaitGroup
	for range c.open {
		all.Go(func() {
			caller := &stand.Caller{From: c.addr, To: to}
			defer caller.Close()
			for ctx.Err() == nil {
				if !c.send(caller) {
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for c.open == 0 && pause(ctx, time.Duration(random.ExpFloat64()*float64(*every))) {
		all.Go(func() {
			caller := &stand.Caller{From: c.addr, To: to}
			defer caller.Close()
			c.send(caller)
		})
	}
	all.Wait()
}

// send sends one request and reports whether it got a page.
func (c *client) send(caller *stand.Caller) bool {
	c.mu.Lock()
	c.number++
	path := strings.Replace(c.path, "/N?", fmt.Sprintf("/%d?", c.number), 1)
	c.mu.Unlock()
	answer, err := caller.Get(context.Background(), path, time.Minute)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && answer.Status == http.StatusOK:
		used, err := strconv.ParseInt(answer.Header.Get("Used"), 10, 64)
		if err != nil {
			c.note("an answer without Used")
			return false
		}
		c.answered++
		c.used += used
		return true
	case err == nil && (answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusServiceUnavailable):
		c.refused++
	case err == nil:
		c.note(fmt.Sprint("status ", answer.Status))
	default:
		c.note(err.Error())
	}
	return false
}

func (c *client) note(fault string) {
	c.failed++
	if c.faults == nil {
		c.faults = map[string]int{}
	}
	c.faults[fault]++
}

// fault returns an error if requests failed.
func (c *client) fault() {
	if c.failed > 0 {
		fmt.Fprintln(os.Stderr, " ", c.name, c.addr, c.faults)
	}
}

// pause waits and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
