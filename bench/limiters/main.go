// Command limiters compares limiters of requests and prints the tables of BENCHMARKS.md.
//
//	cd bench && go run ./limiters [-only NAME] [-rounds 5] [-speed CROWD] [-memory=false]
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "measure subjects whose `name` contains this")
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	speed := flag.String("speed", ",",
		"measure the time of a decision with crowds whose `name` contains this (1,000; 1 M; 10 M); - for none")
	memory := flag.Bool("memory", true, "measure memory, collection and stalls at 10 M clients")
	flag.Parse()
	var chosen []subject
	for _, s := range subjects() {
		if strings.Contains(s.name, *only) {
			chosen = append(chosen, s)
		}
	}
	if err := run(chosen, *rounds, *speed, *memory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(chosen []subject, rounds int, speed string, memory bool) error {
	if speed != "-" {
		if err := decisions(chosen, rounds, speed); err != nil {
			return err
		}
	}
	if memory {
		return full(chosen)
	}
	return nil
}

// decisions prints the ns of one decision, including the clock.
func decisions(chosen []subject, rounds int, which string) error {
	const small, large = 1 << 20, 1 << 22
	crowds := []struct {
		name   string
		make   func(name string) *crowd
		memory int64
		count  int
	}{
		{"1,000", func(name string) *crowd { return newCrowd(name, 1000, 0, small) }, 64 << 20, 2 << 20},
		{"1 M, Zipf 1.1", func(name string) *crowd { return newCrowd(name, 1e6, 1.1, large) }, 64 << 20, 4 << 20},
		{"10 M, uniform", func(name string) *crowd { return newCrowd(name, 1e7, 0, 3*large) }, 320e6, 1 << 20},
	}
	q := quota{n: 10, burst: 20, window: time.Second}
	head := fmt.Sprintf("One decision, clock included, ns (%v):\n\n| |", q)
	times := make([][]float64, len(chosen))
	for _, c := range crowds {
		if !strings.Contains(c.name, which) {
			continue
		}
		crowd := c.make(c.name)
		head += fmt.Sprintf(" %s |", crowd.name)
		q.memory = c.memory
		one, err := decide(chosen, crowd, q, rounds, c.count)
		if err != nil {
			return err
		}
		for i, t := range one {
			times[i] = append(times[i], t)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	fmt.Printf("%s\n|---|%s\n", head, strings.Repeat("---|", len(times[0])))
	for i, s := range chosen {
		fmt.Printf("| %s |", s.name)
		for _, t := range times[i] {
			fmt.Printf(" %.0f |", t)
		}
		fmt.Println()
	}
	fmt.Println()
	return nil
}

// decide returns the median ns of each subject. Only one is open at a time, and it has
// seen all clients of the crowd before.
func decide(chosen []subject, c *crowd, q quota, rounds, count int) ([]float64, error) {
	times := make([][]float64, len(chosen))
	for i, s := range chosen {
		take, stop, err := s.open(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		sent := len(c.keys) / keyLen
		passed := c.take(take, 0, sent)
		runtime.GC()
		for round := range rounds {
			began := cpuTime(syscall.RUSAGE_SELF)
			passed += c.take(take, round*count, count)
			times[i] = append(times[i], float64(cpuTime(syscall.RUSAGE_SELF)-began)/float64(count))
			sent += count
		}
		stop()
		if passed < c.n/2 || c.n <= 1000 && passed > sent/2 {
			return nil, fmt.Errorf("%s: %d of %d passed", s.name, passed, sent)
		}
	}
	medians := make([]float64, len(chosen))
	for i := range times {
		medians[i] = median(times[i])
	}
	return medians, nil
}

// cpuTime returns the CPU time of this process or thread. On an idle machine it equals
// elapsed time; otherwise it excludes other programs.
func cpuTime(who int) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(who, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

const thisThread = 1 // RUSAGE_THREAD of Linux

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// full prints the cost of 10 M clients that are all seen within one window.
func full(chosen []subject) error {
	const n = 10_000_000
	runtime.LockOSThread() // so that a stall is one of this thread
	defer runtime.UnlockOSThread()
	fmt.Print("10 M clients, each once within an hour's window (1,000 per 1h):\n\n")
	fmt.Println("| | bytes per client | live counters lost | full collection | largest stall |")
	fmt.Println("|---|---|---|---|---|")
	idle := subject{"no limiter: pauses of the machine itself", func(quota) (func([]byte) bool, func(), error) {
		return func([]byte) bool { return true }, nothing, nil
	}}
	for _, s := range slices.Insert(slices.Clone(chosen), min(1, len(chosen)),
		oursBytes("fairshare, 500 MB", 500e6), oursBytes("fairshare, 5 TB", 5e12), idle) {
		last = nil
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		take, stop, err := s.open(quota{n: 1000, burst: 1000, window: time.Hour, memory: 32 * n})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		// Keys are allocated, as in a server.
		var stall time.Duration
		const batch = 1 << 16
		for from := 0; from < n; from += batch {
			keys := make([]byte, keyLen*batch)
			for i := range batch {
				key(keys[i*keyLen:], uint64(from+i))
			}
			for i := 0; i < batch && from+i < n; i++ {
				began := cpuTime(thisThread)
				if !take(keys[i*keyLen : (i+1)*keyLen : (i+1)*keyLen]) {
					return fmt.Errorf("%s: client %d was refused", s.name, from+i)
				}
				stall = max(stall, cpuTime(thisThread)-began)
			}
		}
		lost := "none"
		if last != nil {
			lost = fmt.Sprintf("%.2f %%", 100*float64(last.Stats(time.Now()).Lost)/n)
		}
		var collections []float64
		for range 3 {
			began := time.Now()
			runtime.GC()
			collections = append(collections, float64(time.Since(began)))
		}
		runtime.ReadMemStats(&after)
		fmt.Printf("| %s | %.0f | %s | %.1f ms | %.2f ms |\n", s.name,
			max(0, float64(int64(after.HeapAlloc-before.HeapAlloc)))/n, lost, median(collections)/1e6,
			float64(stall)/1e6)
		runtime.KeepAlive(take)
		stop()
	}
	return nil
}
