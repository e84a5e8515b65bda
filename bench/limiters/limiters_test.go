package main

import (
	"testing"
	"time"
)

// BenchmarkDecision measures the program's first table, for benchstat.
func BenchmarkDecision(b *testing.B) {
	q := quota{n: 10, burst: 20, window: time.Second, memory: 64 << 20}
	for _, c := range []*crowd{newCrowd("1k", 1000, 0, 1<<20), newCrowd("1M", 1e6, 1.1, 1<<22)} {
		for _, s := range subjects() {
			b.Run(c.name+"/"+s.name, func(b *testing.B) {
				take, stop, err := s.open(q)
				if err != nil {
					b.Fatal(err)
				}
				defer stop()
				sent := len(c.keys) / keyLen
				passed := c.take(take, 0, sent)
				b.ReportAllocs()
				for b.Loop() {
					passed += c.take(take, sent, 1)
					sent++
				}
				if passed < c.n/2 || c.n <= 1000 && passed > sent/2 {
					b.Fatalf("%d of %d passed", passed, sent)
				}
			})
		}
	}
}

// Every subject refuses a client over its limit, and no other client.
func TestSubjects(t *testing.T) {
	for _, s := range append(subjects(), oursBytes("bytes", 100_000)) {
		take, stop, err := s.open(quota{n: 10, burst: 10, window: time.Hour, memory: 1 << 20})
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		passed := 0
		for range 100 {
			if take([]byte("0123456789abcdef")) {
				passed++
			}
		}
		if passed < 9 || passed > 11 { // some count the request that exceeds the limit
			t.Errorf("%s: %d of 10 passed", s.name, passed)
		}
		if !take([]byte("fedcba9876543210")) {
			t.Errorf("%s: another client was refused", s.name)
		}
		stop()
	}
}
