package cputime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A script is a source with values set by a test.
type script struct {
	mu   sync.Mutex
	used time.Duration // since the last read
	err  error
}

func (s *script) read(u *usage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*u = usage{used: int64(s.used), processes: 1}
	s.used = 0
	return s.err
}

func (s *script) close() {}

func (s *script) set(used time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.err = used, err
}

// A recorder records the reported CPU times, and when they were reported.
type recorder struct {
	mu    sync.Mutex
	spent []time.Duration
	at    []time.Time
}

func (t *recorder) report(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent, t.at = append(t.spent, d), append(t.at, time.Now())
}

func (t *recorder) times() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.spent)
}

func (t *recorder) once(tb testing.TB) time.Duration {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.spent) != 1 {
		tb.Fatalf("reported %d times, want once", len(t.spent))
	}
	return t.spent[0]
}

// scripted runs a Sampler in synctest.
func scripted(t *testing.T, opts Options, test func(s *Sampler, src *script, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		src := &script{}
		s := newSampler(opts, src)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		synctest.Wait()
		time.Sleep(time.Second)
		stop := sync.OnceFunc(func() { cancel(); <-done })
		test(s, src, stop)
		stop()
	})
}

func TestOneRequestIsChargedAllCPUTime(t *testing.T) {
	scripted(t, Options{}, func(s *Sampler, src *script, stop func()) {
		var got recorder
		src.set(time.Hour, nil) // before the first request: charged to no request
		r := s.Begin("/a")
		synctest.Wait()
		src.set(7*time.Millisecond, nil)
		time.Sleep(20 * time.Millisecond)
		r.End(got.report)
		ended := time.Now()
		if got.times() != 0 {
			t.Fatal("reported before a sample covered it")
		}
		time.Sleep(time.Second)
		if d := got.once(t); d != 7*time.Millisecond {
			t.Errorf("charged %v, want 7ms", d)
		}
		if late := got.at[0].Sub(ended); late > 50*time.Millisecond {
			t.Errorf("reported %v after the end, want at most a period", late)
		}
		if st := s.Stats(); st.Charged != 7*time.Millisecond || st.Used != time.Hour+7*time.Millisecond ||
			st.Background != time.Hour {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestNeverMoreThanOwnTime(t *testing.T) {
	scripted(t, Options{}, func(s *Sampler, src *script, stop func()) {
		var got recorder
		r := s.Begin("/a")
		synctest.Wait()
		src.set(time.Second, nil)
		time.Sleep(20 * time.Millisecond)
		r.End(got.report)
		time.Sleep(time.Second)
		if d := got.once(t); d != 20*time.Millisecond {
			t.Errorf("charged %v, want its own time, 20ms", d)
		}
	})
}

func TestSpentGrowsWhileARequestRuns(t *testing.T) {
	scripted(t, Options{Every: 10 * time.Millisecond}, func(s *Sampler, src *script, stop func()) {
		var got recorder
		r := s.Begin("/a")
		for i := range 5 {
			synctest.Wait()
			if d := r.Spent(); d != time.Duration(i)*4*time.Millisecond {
				t.Errorf("%v after %d samples", d, i)
			}
			src.set(4*time.Millisecond, nil)
			time.Sleep(10 * time.Millisecond)
		}
		r.End(got.report)
		time.Sleep(time.Second)
		if d := got.once(t); d != 20*time.Millisecond {
			t.Errorf("charged %v, want 20ms", d)
		}
	})
}

func TestOwnTimeIsChargedWhenReadingFails(t *testing.T) {
	var said []string
	scripted(t, Options{Log: func(m string) { said = append(said, m) }}, func(s *Sampler, src *script, stop func()) {
		var got recorder
		r := s.Begin("/a")
		synctest.Wait()
		src.set(0, errors.New("no such process"))
		time.Sleep(210 * time.Millisecond)
		src.set(0, errBaseline) // reading works again
		time.Sleep(50 * time.Millisecond)
		src.set(30*time.Millisecond, nil)
		time.Sleep(50 * time.Millisecond)
		r.End(got.report)
		time.Sleep(time.Second)
		if d := got.once(t); d != 280*time.Millisecond {
			t.Errorf("charged %v, want 250ms of its own and 30ms", d)
		}
		if st := s.Stats(); st.Unsampled != 250*time.Millisecond || st.Failed != 4 {
			t.Errorf("stats %+v", st)
		}
		if len(said) != 2 {
			t.Errorf("logged %q, want a failure and its end", said)
		}
	})
}

func TestEndOfRunSettlesAll(t *testing.T) {
	scripted(t, Options{}, func(s *Sampler, src *script, stop func()) {
		var ended, open recorder
		a, b := s.Begin("/a"), s.Begin("/b")
		synctest.Wait()
		src.set(10*time.Millisecond, nil)
		time.Sleep(20 * time.Millisecond)
		a.End(ended.report)
		stop()
		if d := ended.once(t); d != 5*time.Millisecond {
			t.Errorf("ended: charged %v, want half of 10ms", d)
		}
		time.Sleep(30 * time.Millisecond)
		if d := b.Spent(); d != 35*time.Millisecond {
			t.Errorf("open: %v so far, want 5ms and 30ms of its own", d)
		}
		b.End(open.report)
		if d := open.once(t); d != 35*time.Millisecond {
			t.Errorf("open: charged %v, want 5ms and 30ms of its own", d)
		}
	})
}

func TestWithoutRunTheOwnTimeIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(Options{}, &script{})
		var got recorder
		r := s.Begin("/a")
		time.Sleep(time.Minute)
		if d := r.Spent(); d != time.Minute {
			t.Errorf("%v so far", d)
		}
		r.End(got.report)
		if d := got.once(t); d != time.Minute {
			t.Errorf("charged %v", d)
		}
	})
}

func TestRunTwice(t *testing.T) {
	scripted(t, Options{}, func(s *Sampler, src *script, stop func()) {
		if err := s.Run(context.Background()); err == nil {
			t.Error("a second Run at the same time")
		}
		stop()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("a Run after the first: %v", err)
		}
	})
}

// TestAllIsChargedOnce runs many requests, also across the end of Run. Each is reported once, and
// all together are charged at most the CPU time used and their own time.
func TestAllIsChargedOnce(t *testing.T) {
	scripted(t, Options{}, func(s *Sampler, src *script, stop func()) {
		var all recorder
		var clients sync.WaitGroup
		for i := range 50 {
			clients.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 0))
				for range 40 {
					r := s.Begin([]string{"/a", "/b", "/c"}[rng.IntN(3)])
					src.mu.Lock()
					src.used += time.Millisecond
					src.mu.Unlock()
					time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
					r.End(all.report)
				}
			})
		}
		time.Sleep(2 * time.Second)
		stop()
		clients.Wait()
		if len(all.spent) != 50*40 {
			t.Errorf("reported %d times, want %d", len(all.spent), 50*40)
		}
		st := s.Stats()
		if st.Charged+st.Background != st.Used || st.Charged > st.Used {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestBeginAndEndAllocateNothing(t *testing.T) {
	src := &script{}
	s := newSampler(Options{}, src)
	s.running = true
	ignore := func(time.Duration) {}
	round := func() {
		for range 16 {
			s.Begin("/some/path").End(ignore)
		}
		s.sample()
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations in 16 requests and a sample", n)
	}
}

func BenchmarkBeginEnd(b *testing.B) {
	s := newSampler(Options{}, &script{})
	s.running = true
	ignore := func(time.Duration) {}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.Begin("/some/path").End(ignore)
		if n++; n%1000 == 0 {
			b.StopTimer()
			s.sample()
			b.StartTimer()
		}
	}
}

func BenchmarkShare(b *testing.B) {
	for _, inside := range []int{4, 64, 1024} {
		b.Run(fmt.Sprintf("inside=%d", inside), func(b *testing.B) {
			l := newLedger(2)
			now := int64(1)
			l.unsampled(now, nil)
			for i := range inside {
				l.open = append(l.open, &request{hash: uint64(i % 20), began: int64(i) * 50_000_000 / int64(inside)})
			}
			u := usage{used: 90_000_000}
			b.ReportAllocs()
			for b.Loop() {
				now += 50_000_000
				if got := l.sample(now, &u, nil); len(got) != 0 {
					b.Fatal("settled")
				}
			}
		})
	}
}

// A proxy is a script that has a name.
type proxy struct {
	script
	is string
}

func (p *proxy) program() string { return p.is }

// A proxy that is measured in place of the site is logged, at first and when another replaces it.
// An error that Open has already returned is not logged again.
func TestProxiesAndErrorsAreLogged(t *testing.T) {
	var log []string
	src := &proxy{is: "nginx"}
	s := newSampler(Options{Log: func(line string) { log = append(log, line) }}, src)
	expectLog := func(err error, want string) {
		t.Helper()
		log = nil
		src.set(0, err)
		s.sample()
		if got := strings.Join(log, "|"); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("after %v: logged %q, want %q", err, got, want)
		}
	}
	expectLog(nil, "warning: the CPU time that is read is that of nginx")
	expectLog(nil, "")
	src.is = "php-fpm8.2"
	expectLog(errBaseline, "")
	src.is = "docker-proxy"
	expectLog(errBaseline, "that of docker-proxy")
	expectLog(errors.New("gone\nhint: look"), "charged the time they take: gone; hint: look")
	expectLog(errors.New("gone"), "")
	expectLog(nil, "read again")
	s.failing = true // as after Open, which has returned the error
	expectLog(errors.New("gone"), "")
}
