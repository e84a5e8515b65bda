package redislimit

import (
	"context"
	"time"

	"fairshare/memlimit"
)

// Patient has each question wait for its answer: a busy machine must not decide a
// test.
func Patient(o Options) Options {
	o.Wait, o.fixedWait = 10*time.Second, true
	return o
}

// AlwaysAsk has a member look at the store whenever its view refuses, and pass
// nothing on credit.
func AlwaysAsk(o Options) Options {
	o = Patient(o)
	o.Slack, o.alwaysAsk = -1, true
	return o
}

// Swaps returns how often a member replaced the states of a client, and how often others
// had written them.
func Swaps(l *Limiter) (swapped, stale int) {
	s := l.Status()
	return int(s.Replaced), int(s.Contended)
}

// Viewed reports whether the view has a state of a limit for a key.
func Viewed(l *Limiter, limit int, key []byte, now time.Time) bool {
	name := l.core.secret.Load().name(key)
	local := name.bytes()
	return l.local.State(limit, local[:], 0, now) != memlimit.State{}
}

// Beat sends a heartbeat now.
func Beat(l *Limiter) {
	client, err := l.core.store.Client()
	if err != nil {
		panic(err)
	}
	if err := l.core.beat(context.Background(), client, "beat"); err != nil {
		panic(err)
	}
}

// Kill ends a member without a word.
func Kill(l *Limiter) { l.core.stop() }

// LoseView has the view lose its state of a limit for a key, as when the table is full.
func LoseView(l *Limiter, limit int, key []byte, now time.Time) {
	name := l.core.secret.Load().name(key)
	local := name.bytes()
	l.reloaded = true
	l.local.SetState(limit, local[:], 0, now, memlimit.State{})
}
