package cputime

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the test binary as an upstream if CPUTIME_UPSTREAM is set.
func TestMain(m *testing.M) {
	if kind := os.Getenv("CPUTIME_UPSTREAM"); kind != "" {
		serveUpstream(kind)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rusage returns the CPU time of this process, or of its children that ended.
func rusage(target int) time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(target, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// burn spends CPU time of this process.
func burn(d time.Duration) {
	var x uint64 = 1
	for from := rusage(syscall.RUSAGE_SELF); rusage(syscall.RUSAGE_SELF)-from < d; {
		for range 20_000 {
			x = x*6364136223846793005 + 1
		}
	}
	if x == 0 {
		os.Exit(9)
	}
}

// serveUpstream answers lines "spin SLEEP" (µs) with the CPU time of each, µs. Its kinds:
//
//   - workers: processes that share a socket, each with one request at a time
//   - single: one process with one request at a time
//   - threads: one process with all requests at once
//   - forks: a child for each request
//   - once: uses CPU time and ends
func serveUpstream(kind string) {
	if kind == "once" {
		d, _ := time.ParseDuration(os.Args[1])
		burn(d)
		return
	}
	top := os.Getenv("CPUTIME_TOP") != ""
	os.Unsetenv("CPUTIME_TOP")
	file := os.NewFile(3, "listener")
	l, err := net.FileListener(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if kind == "workers" {
		var workers []*exec.Cmd
		for range 8 {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "CPUTIME_UPSTREAM=single", "GOMAXPROCS=1")
			c.ExtraFiles = []*os.File{file}
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if c.Start() != nil {
				os.Exit(3)
			}
			workers = append(workers, c)
		}
		io.Copy(io.Discard, os.Stdin)
		for _, c := range workers {
			c.Process.Kill()
			c.Wait()
		}
		return
	}
	if top {
		go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		answer := func() {
			defer conn.Close()
			var spin, sleep int
			line, _ := bufio.NewReader(conn).ReadString('\n')
			fmt.Sscan(line, &spin, &sleep)
			time.Sleep(time.Duration(sleep) * time.Microsecond)
			switch kind {
			case "threads":
				runtime.LockOSThread()
				from := threadTime()
				for threadTime()-from < time.Duration(spin)*time.Microsecond {
				}
				fmt.Fprintln(conn, (threadTime() - from).Microseconds())
				runtime.UnlockOSThread()
			case "forks":
				c := exec.Command(os.Args[0], (time.Duration(spin) * time.Microsecond).String())
				c.Env = append(os.Environ(), "CPUTIME_UPSTREAM=once", "GOMAXPROCS=1")
				c.Run()
				spent := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
				fmt.Fprintln(conn, spent.Microseconds())
			default:
				from := rusage(syscall.RUSAGE_SELF)
				burn(time.Duration(spin) * time.Microsecond)
				fmt.Fprintln(conn, (rusage(syscall.RUSAGE_SELF) - from).Microseconds())
			}
		}
		if kind == "single" {
			answer()
		} else {
			go answer()
		}
	}
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(1, &ru) // RUSAGE_THREAD
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// startUpstream starts an upstream, and returns its address and process.
func startUpstream(t *testing.T, kind string) (addr string, pid int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "CPUTIME_UPSTREAM="+kind, "CPUTIME_TOP=1")
	c.ExtraFiles = []*os.File{file}
	c.Stderr = os.Stderr
	alive, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	file.Close()
	t.Cleanup(func() { alive.Close(); c.Wait() })
	return l.Addr().String(), c.Process.Pid
}

// sendRequest sends one request to an upstream, and returns the CPU time that the upstream reports.
func sendRequest(m *Sampler, addr, path string, spin, sleep time.Duration,
	report func(time.Duration)) (time.Duration, error) {
	r := m.Begin(path)
	defer func() { r.End(report) }()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintln(conn, spin.Microseconds(), sleep.Microseconds())
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return 0, err
	}
	us, err := strconv.Atoi(strings.TrimSpace(line))
	return time.Duration(us) * time.Microsecond, err
}

// sampling runs a Sampler until the test ends, or stop is called.
func sampling(t *testing.T, s *Sampler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	for s.Stats().Samples == 0 {
		runtime.Gosched()
	}
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// A realClient requests one path in a loop.
type realClient struct {
	path        string
	spin, sleep time.Duration
	pause       time.Duration // between requests, on average
	open        int

	mu                sync.Mutex
	spent, reported   time.Duration
	requests, reports int
}

func (c *realClient) run(ctx context.Context, t *testing.T, s *Sampler, addr string) {
	var wg sync.WaitGroup
	for range max(c.open, 1) {
		wg.Go(func() {
			for ctx.Err() == nil {
				spin := time.Duration(float64(c.spin) * (0.8 + 0.4*rand.Float64()))
				spent, err := sendRequest(s, addr, c.path, spin, c.sleep, func(d time.Duration) {
					c.mu.Lock()
					c.reported += d
					c.reports++
					c.mu.Unlock()
				})
				if err != nil {
					t.Errorf("%s: %v", c.path, err)
					return
				}
				c.mu.Lock()
				c.spent += spent
				c.requests++
				c.mu.Unlock()
				time.Sleep(time.Duration(float64(c.pause) * rand.ExpFloat64()))
			}
		})
	}
	wg.Wait()
}

// TestRealProcesses samples real processes with one heavy and four light clients, and compares the
// result with the upstream's getrusage. It logs how exact the sums are. On every machine nothing
// may be lost or counted twice, and each request is reported once.
//
//	CPUTIME_SECONDS=20 go test -run TestRealProcesses -v ./internal/cputime
func TestRealProcesses(t *testing.T) {
	seconds, heavyClients := 1.0, []int{1}
	if n, _ := strconv.Atoi(os.Getenv("CPUTIME_SECONDS")); n > 0 {
		seconds, heavyClients = float64(n), []int{1, 4}
	}
	for _, kind := range []string{"workers", "single", "threads", "forks"} {
		for _, heavyClients := range heavyClients {
			t.Run(fmt.Sprintf("%s, %d heavy clients", kind, heavyClients), func(t *testing.T) {
				addr, _ := startUpstream(t, kind)
				s, err := Open(Options{From: Process, Listening: addr, Cores: float64(runtime.NumCPU())})
				if err != nil {
					t.Fatal(err)
				}
				stop := sampling(t, s)
				clients := []*realClient{{path: "/heavy", spin: 200 * time.Millisecond, open: heavyClients}}
				for range 4 {
					clients = append(clients, &realClient{path: "/light", spin: 5 * time.Millisecond,
						pause: 300 * time.Millisecond})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds*float64(time.Second)))
				defer cancel()
				var wg sync.WaitGroup
				for _, c := range clients {
					wg.Go(func() { c.run(ctx, t, s, addr) })
				}
				wg.Wait()
				stop()
				var spent, reported time.Duration
				for _, c := range clients {
					if c.reports != c.requests {
						t.Errorf("%s: %d reports of %d requests", c.path, c.reports, c.requests)
					}
					spent += c.spent
					reported += c.reported
					t.Logf("%-7s %4d requests, %10v spent, %10v charged  %+.1f %%", c.path, c.requests, c.spent,
						c.reported, 100*(float64(c.reported)/float64(c.spent)-1))
				}
				st := s.Stats()
				t.Logf("%+v", st)
				if st.Charged+st.Unsampled != reported {
					t.Errorf("%v reported, stats say %v", reported, st.Charged+st.Unsampled)
				}
				// The upstream uses a little more CPU time than it measures.
				if low, high := spent-spent/10, spent+spent/2+200*time.Millisecond; st.Used+st.Unsampled < low ||
					st.Used > high {
					t.Errorf("%v read, %v spent", st.Used, spent)
				}
			})
		}
	}
}
