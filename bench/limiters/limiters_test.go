package main

import (
	"testing"
	"time"
)

// BenchmarkDecision is the program's first table, for benchstat.
func BenchmarkDecision(b *testing.B) {
	q := quota{n: 10, burst: 20, window: time.Second, memory: 64 << 20}
	for _, c := range []*crowd{newCrowd("1k", 1000, 0, 1<<20), newCrowd("1M", 1e6, 1.1, 1<<22)} {
		for _, s := range subjects() {
			b.Run(c.name+"/"+s.name, func(b *testing.B) {
				ask, stop, err := s.open(q)
				if err != nil {
					b.Fatal(err)
				}
				defer stop()
				asked := len(c.keys) / keyLen
				passed := c.ask(ask, 0, asked)
				b.ReportAllocs()
				for b.Loop() {
					passed += c.ask(ask, asked, 1)
					asked++
				}
				if passed < c.n/2 || c.n <= 1000 && passed > asked/2 {
					b.Fatalf("%d of %d passed", passed, asked)
				}
			})
		}
	}
}

// Every subject refuses who asks too often, and nobody else.
func TestSubjects(t *testing.T) {
	for _, s := range append(subjects(), oursBytes("bytes", 100_000)) {
		ask, stop, err := s.open(quota{n: 10, burst: 10, window: time.Hour, memory: 1 << 20})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		passed := 0
		for range 100 {
			if ask([]byte("0123456789abcdef")) {
				passed++
			}
		}
		if passed < 9 || passed > 11 { // some count the request that is over
			t.Errorf("%s: %d of 10 passed", s.name, passed)
		}
		if !ask([]byte("fedcba9876543210")) {
			t.Errorf("%s: another client was refused", s.name)
		}
		stop()
	}
}
