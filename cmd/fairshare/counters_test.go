package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// The counters are written every minute, and at the end; a successor gets them
// as soon as they are handed over. What goes wrong is said once, and tried
// again.
func TestCountersAreWrittenEveryMinute(t *testing.T) {
	dir := t.TempDir()
	limits := []fairshare.Limit{{Name: "one", Resource: fairshare.Requests, N: 1, Window: time.Hour}}
	synctest.Test(t, func(t *testing.T) {
		var said []string
		open := func() (*memory, *memlimit.Limiter) {
			limiter, err := memlimit.New(limits, memlimit.Options{Memory: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			m, err := openMemory(t.Context(), memoryTerms{dir: dir, log: func(line string) { said = append(said, line) }})
			if err != nil {
				t.Fatal(err)
			}
			m.recall(t.Context(), limiter, nil, time.Now())
			return m, limiter
		}
		over := func(l *memlimit.Limiter) bool {
			tallies := make([]fairshare.Tally, 1)
			if err := l.Take(t.Context(), time.Now(), []fairshare.Take{{Key: []byte("client"), Cost: 1}}, tallies); err != nil {
				t.Fatal(err)
			}
			return tallies[0].Over
		}
		path := filepath.Join(dir, countersFile)
		m, limiter := open()
		if over(limiter) {
			t.Error("a first request is over the limit")
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.run(ctx, func() (*memlimit.Limiter, time.Time) { return limiter, time.Now() })
		}()
		time.Sleep(saveEvery - time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before a minute is over: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("after a minute: %v", err)
		}

		// A folder in its place cannot be written over.
		os.Remove(path)
		if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * saveEvery)
		synctest.Wait()
		if len(said) != 1 || !strings.Contains(said[0], "the counters could not be written") {
			t.Errorf("said %q", said)
		}
		os.RemoveAll(path)
		time.Sleep(saveEvery)
		synctest.Wait()
		if len(said) != 2 || said[1] != "the counters are written again" {
			t.Errorf("said %q", said)
		}

		// Handed over, they are the successor's: the end does not touch them.
		m.handOver(limiter, time.Now())
		next, counted := open()
		if !over(counted) {
			t.Error("a restart is an amnesty")
		}
		next.close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		end()
		<-done
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("written after they were handed over: %v", err)
		}
		m.close()
	})
}
