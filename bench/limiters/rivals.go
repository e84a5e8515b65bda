package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"time"
	"unsafe"

	"github.com/didip/tollbooth/v7"
	"github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	sethvargo "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

// A subject is a limiter under measurement.
type subject struct {
	name string
	// open returns a function that reads the clock, takes one request of a client and
	// reports whether it passed, and a function that stops the limiter.
	open func(r quota) (ask func(key []byte) bool, stop func(), err error)
}

// A quota is the limit of each client: n per window, burst at once.
type quota struct {
	n, burst int
	window   time.Duration
	memory   int64 // bytes of fairshare's table
}

// text returns key as a string without copying it, so that no subject pays for a copy.
func text(key []byte) string { return unsafe.String(&key[0], len(key)) }

func nothing() {}

// ours is fairshare with the clock of serve or, if exact is set, with the processor's
// clock for each request.
func ours(name string, algorithm fairshare.Algorithm, exact bool) subject {
	return subject{name, func(q quota) (func([]byte) bool, func(), error) {
		limits := []fairshare.Limit{{
			Name: "rate", Resource: fairshare.Requests, N: int64(q.n), Window: q.window, Algorithm: algorithm,
		}}
		if algorithm == fairshare.GCRA {
			limits[0].Burst = int64(q.burst)
		}
		l, err := memlimit.New(limits, memlimit.Options{Memory: q.memory})
		if err != nil {
			return nil, nil, err
		}
		last = l
		ctx, start := context.Background(), time.Now()
		takes, tallies := []fairshare.Take{{Cost: 1}}, make([]fairshare.Tally, 1)
		now := httpguard.NewClock().Now
		if exact {
			now = func() time.Time { return start.Add(time.Since(start)) }
		}
		return func(key []byte) bool {
			takes[0].Key = key
			if err := l.Take(ctx, now(), takes, tallies); err != nil {
				panic(err)
			}
			return !tallies[0].Over
		}, nothing, nil
	}}
}

// oursBytes counts the bytes of answers, and is measured for memory only.
func oursBytes(name string, n int64) subject {
	return subject{name, func(q quota) (func([]byte) bool, func(), error) {
		limits := []fairshare.Limit{{Name: "bytes", Resource: fairshare.Bytes, N: n, Window: q.window}}
		l, err := memlimit.New(limits, memlimit.Options{Memory: q.memory / 2 * 3}) // 48 bytes for 32
		if err != nil {
			return nil, nil, err
		}
		last = l
		ctx, start := context.Background(), time.Now()
		takes, tallies := []fairshare.Take{{Cost: 1}}, make([]fairshare.Tally, 1)
		charges := []fairshare.Charge{{Cost: 10_000}}
		return func(key []byte) bool {
			now := start.Add(time.Since(start))
			takes[0].Key, charges[0].Key = key, key
			if err := l.Take(ctx, now, takes, tallies); err != nil {
				panic(err)
			}
			if err := l.Settle(ctx, now, charges); err != nil {
				panic(err)
			}
			return !tallies[0].Over
		}, nothing, nil
	}}
}

// last is the limiter of fairshare that was opened last, for its figures.
var last *memlimit.Limiter

func subjects() []subject {
	ctx := context.Background()
	return []subject{
		ours("fairshare window", fairshare.Window, false),
		ours("fairshare gcra", fairshare.GCRA, false),
		ours("fairshare gcra, clock read each time", fairshare.GCRA, true),
		{"throttled v2 memstore", func(q quota) (func([]byte) bool, func(), error) {
			store, err := memstore.NewCtx(0)
			if err != nil {
				return nil, nil, err
			}
			l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate: throttled.PerDuration(q.n, q.window), MaxBurst: q.burst - 1,
			})
			if err != nil {
				return nil, nil, err
			}
			return func(key []byte) bool {
				over, _, err := l.RateLimitCtx(ctx, text(key), 1)
				if err != nil {
					panic(err)
				}
				return !over
			}, nothing, nil
		}},
		{"sethvargo/go-limiter", func(q quota) (func([]byte) bool, func(), error) {
			var store sethvargo.Store
			store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.n), Interval: q.window})
			if err != nil {
				return nil, nil, err
			}
			return func(key []byte) bool {
				_, _, _, ok, err := store.Take(ctx, text(key))
				if err != nil {
					panic(err)
				}
				return ok
			}, func() { _ = store.Close(ctx) }, nil
		}},
		{"x/time/rate in a mutexed map", func(q quota) (func([]byte) bool, func(), error) {
			var mu sync.Mutex
			limiters := map[string]*rate.Limiter{}
			every := rate.Every(q.window / time.Duration(q.n))
			return func(key []byte) bool {
				mu.Lock()
				l := limiters[text(key)]
				if l == nil {
					l = rate.NewLimiter(every, q.burst)
					limiters[text(key)] = l
				}
				mu.Unlock()
				return l.Allow()
			}, nothing, nil
		}},
		{"ulule/limiter v3", func(q quota) (func([]byte) bool, func(), error) {
			l := ulule.New(memory.NewStore(), ulule.Rate{Period: q.window, Limit: int64(q.n)})
			return func(key []byte) bool {
				c, err := l.Get(ctx, text(key))
				if err != nil {
					panic(err)
				}
				return !c.Reached
			}, nothing, nil
		}},
		{"didip/tollbooth v7", func(q quota) (func([]byte) bool, func(), error) {
			l := tollbooth.NewLimiter(float64(q.n)/q.window.Seconds(),
				&limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
			l.SetBurst(q.burst)
			return func(key []byte) bool { return !l.LimitReached(text(key)) }, nothing, nil
		}},
		{"go-chi/httprate, whole call", func(q quota) (func([]byte) bool, func(), error) {
			l := httprate.NewRateLimiter(q.n, q.window)
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			return func(key []byte) bool { return !l.OnLimit(w, r, text(key)) }, nothing, nil
		}},
	}
}

func (q quota) String() string { return fmt.Sprintf("%d per %v, burst %d", q.n, q.window, q.burst) }
