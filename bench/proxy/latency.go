//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	latencyConns = 64
	latencyTime  = 4 * time.Second
)

// compareLatency measures how long requests take at a fixed rate: a part of the rate at which the first rival is
// busy all the time. A request is due at its time, whether the ones before have been answered or not, and its
// latency is counted from then on.
func compareLatency(dir, site string, rivals []rival) error {
	children, stop, err := startAll(dir, site, rivals)
	defer stop()
	if err != nil {
		return err
	}
	const most = 60_000
	began := time.Now()
	if err := load(children[0].addr, rivals[0], most); err != nil {
		return err
	}
	top := most / time.Since(began).Seconds()
	parts := []float64{0.2, 0.4, 0.8}
	fmt.Printf("| p50, p99 in ms at a rate per second |")
	for _, part := range parts {
		fmt.Printf(" %.0f: %.0f %% |", part*top, part*100)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("---|", len(parts)))
	for i, r := range rivals {
		fmt.Printf("| %s |", r.name)
		for _, part := range parts {
			took, err := paced(children[i].addr, r, part*top)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			slices.Sort(took)
			fmt.Printf(" %.2f, %.2f |", millis(took[len(took)/2]), millis(took[len(took)*99/100]))
		}
		fmt.Println()
	}
	fmt.Println()
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// paced sends requests at a rate per second for latencyTime, and returns their latencies. After four times that
// time it gives up, and requests that were not sent have waited until then.
func paced(addr string, r rival, rate float64) ([]time.Duration, error) {
	n := int64(rate * latencyTime.Seconds())
	took := make([]time.Duration, n)
	var next atomic.Int64
	failed := make(chan error, latencyConns)
	began := time.Now()
	for range latencyConns {
		go func() { failed <- pacedClient(addr, r, rate, began, took, &next) }()
	}
	var errs []error
	for range latencyConns {
		errs = append(errs, <-failed)
	}
	for i := range took {
		if took[i] == 0 {
			took[i] = time.Since(began) - time.Duration(float64(i)/rate*1e9)
		}
	}
	sent += n
	return took, errors.Join(errs...)
}

func pacedClient(addr string, r rival, rate float64, began time.Time, took []time.Duration, next *atomic.Int64) error {
	c, err := dial(addr, r)
	if err != nil {
		return err
	}
	defer c.Close()
	for time.Since(began) < 4*latencyTime {
		i := next.Add(1) - 1
		if i >= int64(len(took)) {
			return nil
		}
		due := began.Add(time.Duration(float64(i) / rate * 1e9))
		time.Sleep(time.Until(due))
		if err := c.request(sent + i); err != nil {
			return err
		}
		took[i] = time.Since(due)
	}
	return nil
}
