//go:build linux

// Command store compares limiters that count in Redis and prints the tables of
// BENCHMARKS.md. It starts redis-server (or FAIRSHARE_STORE_SERVER) on loopback, and builds and starts
// two rate limit services.
//
//	cd bench && go run ./store [-rounds 5] [-for 2s]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare"
	"fairshare/redislimit"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	length := flag.Duration("for", 2*time.Second, "length of each measurement")
	path := flag.String("log", "", "an access log: print only which part of its decisions asks the store")
	only := flag.String("only", "", "measure only limiters whose names contain this, without the services")
	members := flag.Int("members", 3, "members that share the log")
	flag.Parse()
	server, err := startServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.stop()
	if *path != "" {
		err = share(server, *path, *members)
	} else {
		err = run(server, *rounds, *length, *only)
	}
	if err != nil {
		server.stop()
		log.Fatal(err)
	}
}

const (
	clients = 100_000
	atOnce  = 64
	allowed = 1000
	window  = time.Minute
)

// A subject decides for a client under so many limits.
type subject struct {
	name   string
	decide func(ctx context.Context, client string, limits int) (bool, error)
	cpu    func() float64 // seconds of a service between the client and the store; nil: there is none
}

func run(server *server, rounds int, length time.Duration, only string) error {
	if err := memory(server); err != nil { // while the store is empty
		return err
	}
	var group []*fair // the first is alone in its group, the others count together
	for i := range 4 {
		opts := redislimit.Options{Name: "asks", Slack: -1, Wait: 10 * time.Second}
		if i > 0 {
			opts.Name = "group"
		}
		asking, closeAsking, err := member(server, opts)
		if err != nil {
			return err
		}
		defer closeAsking()
		group = append(group, asking)
	}
	client := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: atOnce})
	defer client.Close()
	rate := redis_rate.NewLimiter(client)
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerMin(allowed), MaxBurst: allowed - 1}
	throttles, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return err
	}
	subjects := []subject{
		{"redislimit", group[0].decide, nil},
		{"redislimit, 3 members", func(ctx context.Context, client string, limits int) (bool, error) {
			return group[1+rand.IntN(3)].decide(ctx, client, limits)
		}, nil},
		{"redis_rate v10", func(ctx context.Context, client string, limits int) (bool, error) {
			for i := range limits {
				got, err := rate.Allow(ctx, client+suffixes[i], redis_rate.PerMinute(allowed))
				if err != nil || got.Allowed == 0 {
					return false, err
				}
			}
			return true, nil
		}, nil},
		{"throttled v2", func(ctx context.Context, client string, limits int) (bool, error) {
			for i := range limits {
				limited, _, err := throttles.RateLimitCtx(ctx, client+suffixes[i], 1)
				if err != nil || limited {
					return false, err
				}
			}
			return true, nil
		}, nil},
	}
	if only != "" {
		subjects = slices.DeleteFunc(subjects, func(s subject) bool { return !strings.Contains(s.name, only) })
	} else {
		services, stop, err := startServices(server)
		if err != nil {
			return err
		}
		defer stop()
		subjects = append(subjects, services...)
	}
	for _, limits := range []int{1, 3} {
		fmt.Printf("\n%d at once, %d clients, limits of a client: %d, every decision asks the store:\n\n", atOnce,
			clients, limits)
		fmt.Println("| | decisions/s | p50 | p99 | CPU of the server | CPU of the client |")
		fmt.Println("|---|--:|--:|--:|--:|--:|")
		results := make([][]result, len(subjects))
		for range rounds {
			for i := range subjects {
				r, err := measureAll(server, &subjects[i], limits, length, group)
				for _, asking := range group {
					if err == nil { // nothing of it is left for the next
						err = asking.limiter.Flush(context.Background())
					}
				}
				if err != nil {
					return fmt.Errorf("%s: %w", subjects[i].name, err)
				}
				results[i] = append(results[i], r)
			}
		}
		for i := range subjects {
			r := median(results[i])
			fmt.Printf("| %s | %.0f | %v | %v | %.1f µs | %.1f µs |\n", subjects[i].name, r.rate,
				r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), r.server*1e6, r.client*1e6)
		}
	}
	return credit(server, rounds)
}

var suffixes = [...]string{":a", ":b", ":c"}

// A result is what one measurement found; server and client are CPU seconds of a decision.
type result struct {
	rate           float64
	p50, p99       time.Duration
	server, client float64
}

func median(r []result) result {
	slices.SortFunc(r, func(a, b result) int { return int(a.rate - b.rate) })
	return r[len(r)/2]
}

// measureAll measures again if members had no answer in time, and so did not ask.
func measureAll(server *server, s *subject, limits int, length time.Duration, group []*fair) (r result, err error) {
	for range 10 {
		before := decidedAway(group)
		if r, err = measure(server, s, limits, length); err != nil || decidedAway(group) == before {
			return r, err
		}
		time.Sleep(2 * time.Second) // the members probe
	}
	return r, errors.New("the machine is too busy: the store counts as away")
}

func decidedAway(group []*fair) (n int64) {
	for _, f := range group {
		n += f.limiter.Status().DecidedAway
	}
	return n
}

// measure has so many goroutines decide about random clients.
func measure(server *server, s *subject, limits int, length time.Duration) (result, error) {
	ctx := context.Background()
	var count atomic.Int64
	var failed atomic.Pointer[error]
	times := make([][]time.Duration, atOnce)
	service := func() float64 { return 0 }
	if s.cpu != nil {
		service = s.cpu
	}
	before, own := server.cpu()+service(), ownCPU()
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for g := range atOnce {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for {
				began := time.Now()
				if began.After(end) {
					return
				}
				if _, err := s.decide(ctx, "client "+strconv.Itoa(r.IntN(clients)), limits); err != nil {
					failed.Store(&err)
					return
				}
				times[g] = append(times[g], time.Since(began))
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	n := float64(count.Load())
	all := slices.Concat(times...)
	slices.Sort(all)
	return result{n / length.Seconds(), all[len(all)/2], all[len(all)*99/100], (server.cpu() + service() - before) / n,
		(ownCPU() - own) / n}, nil
}

// A fair is a member of a group.
type fair struct{ limiter *redislimit.Limiter }

func limitsOf(n int64) []fairshare.Limit {
	var limits []fairshare.Limit
	for _, name := range []string{"a", "b", "c"} {
		limits = append(limits, fairshare.Limit{Name: name, Resource: fairshare.Requests, N: n, Window: window,
			Algorithm: fairshare.GCRA})
	}
	return limits
}

func member(server *server, opts redislimit.Options) (*fair, func(), error) {
	store, err := redislimit.Connect(redislimit.Connection{URL: "redis://" + server.addr})
	if err != nil {
		return nil, nil, err
	}
	opts.Store = store
	opts.Report = func(e redislimit.Event) { fmt.Fprintln(os.Stderr, e) }
	limiter, err := redislimit.Open(context.Background(), limitsOf(allowed), opts)
	if err != nil {
		return nil, nil, err
	}
	return &fair{limiter}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = limiter.Close(ctx)
		store.Close()
	}, nil
}

func (f *fair) decide(ctx context.Context, client string, limits int) (bool, error) {
	var takes [3]fairshare.Take
	var tallies [3]fairshare.Tally
	key := []byte(client)
	for i := range limits {
		takes[i] = fairshare.Take{Limit: i, Key: key, Cost: 1}
	}
	err := f.limiter.Take(ctx, time.Now(), takes[:limits], tallies[:limits])
	return !tallies[0].Over, err
}

// credit measures a decision that needs no round trip.
func credit(server *server, rounds int) error {
	store, err := redislimit.Connect(redislimit.Connection{URL: "redis://" + server.addr})
	if err != nil {
		return err
	}
	defer store.Close()
	limits := []fairshare.Limit{{Name: "a", Resource: fairshare.Requests, N: fairshare.MaxN, Window: window}}
	limiter, err := redislimit.Open(context.Background(), limits, redislimit.Options{Store: store, Name: "credit"})
	if err != nil {
		return err
	}
	defer func() { _ = limiter.Close(context.Background()) }()
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = []byte("client " + strconv.Itoa(i))
	}
	takes, tallies := make([]fairshare.Take, 1), make([]fairshare.Tally, 1)
	var best []float64
	for range rounds + 1 {
		const n = 1_000_000
		own := ownCPU()
		now := time.Now()
		for i := range n {
			takes[0] = fairshare.Take{Key: keys[i%len(keys)], Cost: 1}
			if err := limiter.Take(context.Background(), now, takes, tallies); err != nil {
				return err
			}
		}
		best = append(best, (ownCPU()-own)/n*1e9)
	}
	slices.Sort(best)
	st := limiter.Status()
	fmt.Printf("\nOn credit: %.0f ns of CPU a decision, reports included; %d of %d asked.\n", best[len(best)/2],
		st.Questions, st.Questions+st.Credit)
	return nil
}

// memory measures what a client takes in the store.
func memory(server *server) error {
	member, closeMember, err := member(server, redislimit.Options{Name: "memory", Wait: 10 * time.Second})
	if err != nil {
		return err
	}
	defer closeMember()
	ctx, before := context.Background(), server.info("used_memory:")
	for _, limits := range []int{1, 3} {
		for i := range 20_000 {
			if _, err := member.decide(ctx, fmt.Sprintf("memory %d %d", limits, i), limits); err != nil {
				return err
			}
		}
		if err := member.limiter.Flush(ctx); err != nil {
			return err
		}
		after := server.info("used_memory:")
		fmt.Printf("\nEach client with limits: %d. It takes %.0f bytes in the store.\n", limits, (after-before)/20_000)
		before = after
	}
	return nil
}

// A server is a running store.
type server struct {
	addr    string
	command *exec.Cmd
	client  *redis.Client
}

func startServer() (*server, error) {
	program := os.Getenv("FAIRSHARE_STORE_SERVER")
	for _, name := range []string{"valkey-server", "redis-server"} {
		if program == "" {
			program, _ = exec.LookPath(name)
		}
	}
	if program == "" {
		return nil, fmt.Errorf("neither valkey-server nor redis-server is installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, command: exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "")}
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: addr})
	for range 200 {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.stop()
	return nil, err
}

func (s *server) stop() {
	s.client.Close()
	_ = s.command.Process.Kill()
	_, _ = s.command.Process.Wait()
}

// info returns a number of INFO.
func (s *server) info(name string) float64 {
	for line := range strings.Lines(s.client.Info(context.Background(), "everything").Val()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
			n, _ := strconv.ParseFloat(text, 64)
			return n
		}
	}
	return 0
}

// cpu returns the CPU seconds of the server.
func (s *server) cpu() float64 { return s.info("used_cpu_user:") + s.info("used_cpu_sys:") }

// ownCPU returns the CPU seconds of this program.
func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
