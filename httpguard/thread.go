package httpguard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A threadCPU measures the CPU time of a handler's goroutine, and of the functions
// that MeasureCPU runs for it. Between begin and end the goroutine is locked to its
// thread, whose CPU time the kernel measures. This works on Linux; elsewhere begin
// returns false and nothing is measured.
//
// With a locked thread each switch of the goroutine is more expensive, as the
// kernel has to switch too. A channel answered by another goroutine takes about 5 to 20 µs
// instead of 0.3 µs (BenchmarkThreadSwitch). begin and end take about 0.5 µs.
type threadCPU struct {
	outer *threadCPU // of the middleware around this one, or nil

	mu      sync.Mutex
	running []threadWork // now, each on a locked thread
	first   [1]threadWork
	done    time.Duration
	ended   bool
}

// A threadWork is a locked thread, and its CPU time when the work began.
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

// end returns the CPU time since begin, including that of MeasureCPU until now. It
// is called once, on the goroutine that called begin, also when the handler
// panics. Work that still runs elsewhere counts with its CPU time so far.
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

// sum needs t.mu. Every thread in t.running takes it before it is unlocked from its
// goroutine, so all these threads still exist and do this request's work.
func (t *threadCPU) sum() time.Duration {
	sum := t.done
	for _, w := range t.running {
		if now, ok := threadClock(w.tid); ok {
			sum += now - w.since
		}
	}
	return sum
}

// enter begins to count the calling, locked thread. It returns false if the thread
// is counted already, the request has ended, or there is no clock.
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

// leave ends the counting that enter began. After the request has ended it adds
// nothing.
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

// MeasureCPU runs work. It adds the CPU time of work to the request of ctx, if the
// guard measures the CPU time of handlers' threads (Options.ThreadCPU). It is for
// work that a handler hands to other goroutines:
//
//	go httpguard.MeasureCPU(r.Context(), func() { resize(img) })
//
// work is locked to its thread; goroutines that it starts are not measured. On the
// handler's own goroutine, and within another MeasureCPU of the same request,
// nothing is counted twice. After the request has ended, and where no CPU time is
// measured, MeasureCPU only runs work.
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
