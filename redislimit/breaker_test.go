package redislimit

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		name   string
		missed []int64 // at ms
		good   int     // answers after each miss
		want   bool
	}{
		{"a stall while 64 questions wait", make([]int64, 64), 0, false},
		{"a stall of 60 ms", []int64{0, 0, 0, 20, 20, 20, 40, 40, 60, 60}, 0, false},
		{"a store that hangs", []int64{0, 0, 25, 25, 50, 75, 100}, 0, true},
		{"four misses", []int64{0, 100, 200, 300}, 0, false},
		{"a slow store: one in four", []int64{0, 50, 100, 150, 200}, 3, true},
		{"a stall each second, little traffic", []int64{0, 0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000}, 3, true},
		{"a stall each second, all is well between", []int64{0, 0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000}, 20, false},
	} {
		var b breaker
		got := false
		for _, at := range tt.missed {
			got = b.missed(at*ms) || got
			for range tt.good {
				b.succeeded()
			}
		}
		if got != tt.want || b.open.Load() != tt.want {
			t.Errorf("%s: opened %v", tt.name, got)
		}
	}
}

// However many questions are missed each second, the breaker opens.
func TestBreakerOpensUnderLoad(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{5 * time.Millisecond, time.Millisecond, 50 * time.Microsecond} {
		var b breaker
		at := time.Duration(0)
		for !b.missed(int64(at)) && at < time.Second {
			at += each
		}
		if at < 100*time.Millisecond || at > 110*time.Millisecond {
			t.Errorf("a miss each %v: it opens after %v", each, at)
		}
	}
}

// What was missed long ago and answered since does not count for a stall of today.
func TestBreakerForgets(t *testing.T) {
	t.Parallel()
	var b breaker
	b.missed(0)
	for range recentQuestions {
		b.succeeded()
	}
	for range 10 {
		if b.missed(int64(time.Hour)) {
			t.Fatal("one stall opens it")
		}
	}
}

func TestReasonNamesMissingRights(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"NOPERM User fairshare has no permissions to run the 'get' command",
		"NOPERM ACL failure in script: User fairshare has no permissions to run the 'get' command", // from 7.2
		"The user executing the script can't run this command or subcommand",                       // 7.0
		"@user_script: 5: The user executing the script can't run this command or subcommand",      // 6.2
	} {
		if got := reason(errors.New(text)); !strings.HasPrefix(got, "it refuses the user: ") {
			t.Errorf("%q: %q", text, got)
		}
	}
}
