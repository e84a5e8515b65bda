package redislimit

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// steps of 1 ms in which the program runs, or a stall.
func TestPulseStandsStillInAStall(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		name   string
		stalls []int64 // ms, each after 200 ms without
		least  int64   // ms that the clock advances in all
		most   int64
	}{
		{"no stall", []int64{0}, 200, 200},
		{"ticks 15 ms late", []int64{15, 15, 15}, 645, 645},
		{"a stall of a second", []int64{1000}, 200, 240},
		{"a stall of an hour", []int64{3_600_000}, 200, 240},
		{"three stalls", []int64{500, 500, 500}, 600, 720},
	} {
		var p pulse
		mono, before := int64(0), int64(0)
		for _, stall := range tt.stalls {
			for step := int64(1); step <= 200; step++ {
				if mono += ms; step%20 == 0 {
					p.tick(mono)
				}
				if now := p.at(mono); now-before > ms || now < before {
					t.Fatalf("%s: within 1 ms it went from %d to %d", tt.name, before, now)
				} else {
					before = now
				}
			}
			mono += stall * ms
			if now := p.at(mono); now-before > mostPulse {
				t.Errorf("%s: after a stall it went from %d to %d before the next tick", tt.name, before, now)
			}
			p.tick(mono)
			before = p.at(mono)
		}
		if got := p.at(mono) / ms; got < tt.least || got > tt.most {
			t.Errorf("%s: it advanced by %d ms", tt.name, got)
		}
	}
}

// All questions that wait while the program is stalled are missed at its end. The same misses of a program that ran
// open the breaker.
func TestStallOfTheProgramOpensNoBreaker(t *testing.T) {
	for _, runs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := &core{start: time.Now()}
			c.ctx, c.stop = context.WithCancel(t.Context())
			var b breaker
			missed := func(times int) (opened bool) {
				for range times {
					opened = b.missed(c.ownTime()) || opened
				}
				return opened
			}
			begin := func() {
				c.wg.Add(1)
				go c.pulses()
			}
			begin()
			time.Sleep(time.Second)
			began := c.ownTime()
			opened := missed(2)
			if !runs { // nothing ticks while the program is stalled
				c.stop()
				c.wg.Wait()
			}
			time.Sleep(3 * time.Second)
			opened = missed(64) || opened
			if opened != runs {
				t.Errorf("the program runs: %v; the breaker opened: %v", runs, opened)
			}
			for _, err := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
				if got := c.stalled(began, err); got == runs {
					t.Errorf("the program runs: %v; it counts as stalled: %v", runs, got)
				}
			}
			if c.stalled(began, errors.New("refused")) {
				t.Error("a refused connection counts as a stall")
			}
			c.stop()
			c.wg.Wait()
		})
	}
}
