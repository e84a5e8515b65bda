package httpguard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A threadCPU measures the CPU time that a handler's goroutine spends, and what
// MeasureCPU adds of others: between begin and end the goroutine has a thread
// for itself, whose clock the kernel keeps. It is Linux's; elsewhere begin
// returns false and nothing is measured.
//
// A locked thread makes each switch of the goroutine dearer, as the kernel has
// to switch too: a channel answered by another goroutine takes about 5 to 20 µs
// instead of 0.3 µs (BenchmarkThreadSwitch). begin and end take about 0.5 µs.
type threadCPU struct {
	outer *threadCPU // of the middleware around this one, or nil

	mu      sync.Mutex
	running []threadWork // now, each on a locked thread
	first   [1]threadWork
	done    time.Duration
	ended   bool
}

// A threadWork is a locked thread and what its clock showed when the work
// began.
type threadWork struct {
	tid   int
	since time.Duration
}

type threadCPUKey struct{}

// context returns a context that lets MeasureCPU find the request. It is called
// before begin.
func (t *threadCPU) context(ctx context.Context) context.Context {
	t.outer, _ = ctx.Value(threadCPUKey{}).(*threadCPU)
	return context.WithValue(ctx, threadCPUKey{}, t)
}

// begin locks the calling goroutine to its thread and starts to measure it. It
// returns false where that cannot be done; end is not called then.
func (t *threadCPU) begin() bool {
	runtime.LockOSThread()
	if t.enter(threadID()) {
		return true
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	runtime.UnlockOSThread()
	return false
}

// end returns the CPU time since begin, with what others added until now. It is
// called once, on the goroutine that called begin, also when the handler
// panics. Work that still runs elsewhere counts with what it spent so far.
func (t *threadCPU) end() time.Duration {
	t.mu.Lock()
	t.done = t.sum()
	t.running, t.ended = nil, true
	spent := t.done
	t.mu.Unlock()
	runtime.UnlockOSThread()
	return spent
}

// soFar returns the CPU time since begin; after end, what end returned. It may
// be called from any goroutine.
func (t *threadCPU) soFar() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum()
}

// sum adds up under t.mu, which every thread in t.running takes before it is
// unlocked: no clock of a thread that is gone, or of another's, is read.
func (t *threadCPU) sum() time.Duration {
	sum := t.done
	for _, w := range t.running {
		if now, ok := threadClock(w.tid); ok {
			sum += now - w.since
		}
	}
	return sum
}

// enter begins to count the calling, locked thread; false if it is counted
// already, the request has ended, or there is no clock.
func (t *threadCPU) enter(tid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	for _, w := range t.running {
		if w.tid == tid {
			return false
		}
	}
	now, ok := ownThreadClock()
	if ok {
		if t.running == nil {
			t.running = t.first[:0]
		}
		t.running = append(t.running, threadWork{tid: tid, since: now})
	}
	return ok
}

// leave ends what enter began. Nothing is added once the request has ended.
func (t *threadCPU) leave(tid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.running {
		if w.tid != tid {
			continue
		}
		if now, ok := ownThreadClock(); ok {
			t.done += now - w.since
		}
		t.running = append(t.running[:i], t.running[i+1:]...)
		return
	}
}

// MeasureCPU runs work, and adds the CPU time that it spends to the request of
// ctx, if its guard measures the CPU time of handlers' threads
// (Options.ThreadCPU). It is for work that a handler hands to other goroutines:
//
//	go httpguard.MeasureCPU(r.Context(), func() { resize(img) })
//
// work has the thread for itself meanwhile; goroutines that it starts are not
// measured with it. On the handler's own goroutine, and within another
// MeasureCPU of the same request, nothing is counted twice. Once the request
// has ended, and where no CPU time is measured, work is just run.
func MeasureCPU(ctx context.Context, work func()) {
	t, _ := ctx.Value(threadCPUKey{}).(*threadCPU)
	if t == nil {
		work()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := threadID()
	for ; t != nil; t = t.outer {
		if t.enter(tid) {
			defer t.leave(tid)
		}
	}
	work()
}
