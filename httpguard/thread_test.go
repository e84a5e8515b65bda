package httpguard

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// burn spends CPU time of the calling locked thread, and returns the time spent.
func burn(d time.Duration) time.Duration {
	from, _ := ownThreadClock()
	for {
		if now, _ := ownThreadClock(); now-from >= d {
			return now - from
		}
	}
}

// measured begins to measure, or skips the test where the system cannot measure.
func measured(t testing.TB) (*threadCPU, context.Context) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("CPU time of a thread is measured on Linux only")
	}
	var cpu threadCPU
	ctx := cpu.context(context.Background())
	if !cpu.begin() {
		t.Fatal("there is no clock of the thread")
	}
	return &cpu, ctx
}

// between fails if got is less than spent, or greater by more than the measuring takes.
func between(t *testing.T, what string, got, spent time.Duration) {
	t.Helper()
	if got < spent || got > spent+spent/4+5*time.Millisecond {
		t.Errorf("%s: %v measured, %v spent", what, got, spent)
	}
}

func TestThreadCPUIsTheHandlersOwn(t *testing.T) {
	cpu, _ := measured(t)
	var stop atomic.Bool
	var others sync.WaitGroup
	others.Go(func() { // somebody else's work
		for !stop.Load() {
		}
	})
	spent := burn(20 * time.Millisecond)
	between(t, "so far", cpu.soFar(), spent)
	got := cpu.end()
	stop.Store(true)
	others.Wait()
	between(t, "at the end", got, spent)
	if cpu.soFar() != got {
		t.Errorf("%v after the end, was %v", cpu.soFar(), got)
	}
}

func TestWaitingCostsNoThreadCPU(t *testing.T) {
	cpu, _ := measured(t)
	wake := make(chan struct{})
	time.AfterFunc(30*time.Millisecond, func() { close(wake) })
	<-wake
	if got := cpu.end(); got > 5*time.Millisecond {
		t.Errorf("%v for a goroutine that waited", got)
	}
}

func TestThreadCPUFromAnotherGoroutine(t *testing.T) {
	cpu, _ := measured(t)
	spent := burn(10 * time.Millisecond)
	got := make(chan time.Duration)
	go func() { got <- cpu.soFar() }()
	between(t, "so far", <-got, spent)
	cpu.end()
}

func TestMeasureCPUAddsOtherGoroutines(t *testing.T) {
	cpu, ctx := measured(t)
	var spent [3]time.Duration
	var workers sync.WaitGroup
	for i := range spent {
		workers.Go(func() {
			MeasureCPU(ctx, func() { spent[i] = burn(10 * time.Millisecond) })
		})
	}
	workers.Wait()
	own := burn(10 * time.Millisecond)
	between(t, "three workers", cpu.end(), own+spent[0]+spent[1]+spent[2])
}

func TestMeasureCPUNeverCountsTwice(t *testing.T) {
	cpu, ctx := measured(t)
	var spent time.Duration
	MeasureCPU(ctx, func() { // the handler's own goroutine
		spent += burn(10 * time.Millisecond)
		MeasureCPU(ctx, func() { spent += burn(10 * time.Millisecond) })
	})
	var workers sync.WaitGroup
	workers.Go(func() {
		MeasureCPU(ctx, func() {
			MeasureCPU(ctx, func() { spent += burn(10 * time.Millisecond) })
			spent += burn(10 * time.Millisecond)
		})
	})
	workers.Wait()
	between(t, "nested", cpu.end(), spent)
}

func TestMeasureCPUReachesMiddlewaresAround(t *testing.T) {
	outer, ctx := measured(t)
	var inner threadCPU
	ctx = inner.context(ctx)
	if !inner.begin() {
		t.Fatal("a nested begin failed")
	}
	var spent time.Duration
	var workers sync.WaitGroup
	workers.Go(func() { MeasureCPU(ctx, func() { spent = burn(10 * time.Millisecond) }) })
	workers.Wait()
	between(t, "inner", inner.end(), spent)
	after := burn(10 * time.Millisecond)
	between(t, "outer", outer.end(), spent+after)
}

func TestMeasureCPUAfterTheRequest(t *testing.T) {
	cpu, ctx := measured(t)
	began, ended, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		MeasureCPU(ctx, func() {
			burn(10 * time.Millisecond)
			close(began)
			<-ended
			burn(10 * time.Millisecond)
		})
	}()
	<-began
	got := cpu.end()
	close(ended)
	<-done
	between(t, "work that outlives the request", got, 10*time.Millisecond)
	ran := false
	MeasureCPU(ctx, func() { ran = true; burn(10 * time.Millisecond) })
	if !ran || cpu.soFar() != got {
		t.Errorf("ran: %v, %v after the request, was %v", ran, cpu.soFar(), got)
	}
}

func TestMeasureCPUWithoutARequest(t *testing.T) {
	ran := false
	MeasureCPU(context.Background(), func() { ran = true })
	if !ran {
		t.Error("the work was not run")
	}
}

func TestMeasureCPUOfWorkThatPanics(t *testing.T) {
	cpu, ctx := measured(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		MeasureCPU(ctx, func() { burn(10 * time.Millisecond); panic("work") })
	}()
	<-done
	func() {
		defer func() { recover() }()
		MeasureCPU(ctx, func() { panic("on the handler's goroutine") })
	}()
	if len(cpu.running) != 1 {
		t.Errorf("%d threads are measured, want the handler's alone", len(cpu.running))
	}
	between(t, "panics", cpu.end(), 10*time.Millisecond)
}

// Threads end, like that of a goroutine that exits locked, while other goroutines
// read their time. The time until now never decreases and never contains the time
// of another thread.
func TestThreadCPUOfThreadsThatEnd(t *testing.T) {
	cpu, ctx := measured(t)
	var workers sync.WaitGroup
	for range 50 {
		workers.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			MeasureCPU(ctx, func() { burn(time.Duration(rand.IntN(200)) * time.Microsecond) })
		})
	}
	all := make(chan struct{})
	go func() { workers.Wait(); close(all) }()
	for last, asking := time.Duration(0), true; asking; {
		select {
		case <-all:
			asking = false
		default:
		}
		now := cpu.soFar()
		if now < last {
			t.Fatalf("%v so far, was %v", now, last)
		}
		last = now
	}
	cpu.end()
}

func BenchmarkThreadCPU(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("CPU time of a thread is measured on Linux only")
	}
	b.ReportAllocs()
	for b.Loop() {
		var cpu threadCPU
		if !cpu.begin() {
			b.Fatal("there is no clock of the thread")
		}
		cpu.end()
	}
}

// BenchmarkThreadSwitch measures how much slower a locked thread makes two
// goroutines that answer each other.
func BenchmarkThreadSwitch(b *testing.B) {
	for _, locked := range []bool{false, true} {
		name := "free"
		if locked {
			name = "locked"
		}
		b.Run(name, func(b *testing.B) {
			ask, answer := make(chan int), make(chan int)
			go func() {
				for n := range ask {
					answer <- n + 1
				}
			}()
			if locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			n := 0
			for b.Loop() {
				ask <- n
				n = <-answer
			}
			close(ask)
			if n == 0 {
				b.Fatal("nobody answered")
			}
		})
	}
}
