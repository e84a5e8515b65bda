package memlimit_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

var exampleStart = time.Unix(1_800_000_000, 0)

// spend takes one request and prints whether it passes.
func spend(limiter *memlimit.Limiter, client string) {
	takes := []fairshare.Take{{Limit: 0, Key: []byte(client), Cost: 1}}
	tallies := make([]fairshare.Tally, 1)
	if err := limiter.Take(context.Background(), exampleStart, takes, tallies); err != nil {
		panic(err)
	}
	fmt.Println(client, "passes:", !tallies[0].Over)
}

func perHour(n int64) []fairshare.Limit {
	return []fairshare.Limit{{Name: "an hour", Resource: fairshare.Requests, N: n, Window: time.Hour}}
}

func ExampleNew() {
	limiter, err := memlimit.New(perHour(1), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	spend(limiter, "one")
	spend(limiter, "one")
	spend(limiter, "two")
	// Output:
	// one passes: true
	// one passes: false
	// two passes: true
}

// A reload changes what a limit allows, and what was counted stays.
func ExampleLimiter_With() {
	limiter, err := memlimit.New(perHour(1), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	spend(limiter, "one")
	next, err := limiter.With(perHour(2))
	if err != nil {
		panic(err)
	}
	spend(next, "one")
	spend(next, "one")
	// Output:
	// one passes: true
	// one passes: true
	// one passes: false
}

// A snapshot carries the counters over a restart.
func ExampleLimiter_Save() {
	before, err := memlimit.New(perHour(1), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	spend(before, "one")
	var snapshot bytes.Buffer
	if err := before.Save(&snapshot, exampleStart); err != nil {
		panic(err)
	}
	after, err := memlimit.New(perHour(1), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	loaded, err := after.Load(&snapshot, exampleStart)
	if err != nil {
		panic(err)
	}
	fmt.Println("states:", loaded.States)
	spend(after, "one")
	// Output:
	// one passes: true
	// states: 1
	// one passes: false
}
