package redislimit

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A breaker ends the waiting for a master that does not answer.
type breaker struct {
	open   atomic.Bool
	ended  atomic.Bool  // it never opens again: the master is gone
	sends  atomic.Bool  // reports are sent, although it is open
	floors atomic.Int64 // monotonic ns until which what members remember is merged by maximum

	mu     sync.Mutex
	recent uint32 // the last questions, a bit each: missed
	since  int64  // ns of the pulse at the first miss since recent was 0
	good   int    // probes since the breaker opened
	reason string
}

const (
	recentQuestions = 20
	mostMissed      = 5
	// stallTime is how long questions have to be missed for the breaker to open. A shorter stall of the
	// store makes all questions miss that wait at that moment.
	stallTime  = int64(100 * time.Millisecond)
	goodProbes = 3
	probeEach  = 250 * time.Millisecond
	floorsFor  = int64(10 * time.Second)
)

// missed notes a question that had no answer in time. The time is that of the pulse, in ns.
func (b *breaker) missed(at int64) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recent == 0 {
		b.since = at
	}
	b.note(1)
	if bits.OnesCount32(b.recent) < mostMissed || at-b.since < stallTime || b.open.Load() || b.ended.Load() {
		return false
	}
	b.trip("it answers too slowly")
	return true
}

// succeeded notes an answer.
func (b *breaker) succeeded() {
	b.mu.Lock()
	b.note(0)
	b.mu.Unlock()
}

func (b *breaker) note(missed uint32) { b.recent = (b.recent<<1 | missed) & (1<<recentQuestions - 1) }

func (b *breaker) trip(reason string) {
	b.good, b.reason, b.recent = 0, reason, 0
	b.sends.Store(false)
	b.open.Store(true)
}

// break opens the breaker at once.
func (b *breaker) breakNow(reason string) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent() || b.ended.Load() {
		return false
	}
	b.trip(reason)
	return true
}

// probed notes a probe. After the first good one what members remember is reported,
// and after three the breaker closes: so all members have time to report.
func (b *breaker) probed(ok bool) (answers, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open.Load() {
		return false, false
	}
	if !ok {
		b.good = 0
		b.sends.Store(false)
		return false, false
	}
	b.good++
	b.sends.Store(true)
	if b.good < goodProbes {
		return b.good == 1, false
	}
	b.open.Store(false)
	return false, true
}

// end closes the breaker of a master that is gone.
func (b *breaker) end() {
	b.mu.Lock()
	b.ended.Store(true)
	b.open.Store(false)
	b.mu.Unlock()
}

// silent reports whether nothing is sent to the master.
func (b *breaker) silent() bool { return b.open.Load() && !b.sends.Load() }

// why returns why the breaker is open.
func (b *breaker) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// probePause returns the time to the next probe.
func probePause() time.Duration {
	return probeEach - 25*time.Millisecond + rand.N(50*time.Millisecond)
}

// reason returns why a command failed, for people.
func reason(err error) string {
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "OOM"):
		return "it is full: raise maxmemory, or set maxmemory-policy volatile-ttl"
	case strings.HasPrefix(text, "LOADING"):
		return "it loads its data"
	case strings.HasPrefix(text, "READONLY"):
		return "it has become a replica"
	case strings.HasPrefix(text, "NOPERM"), strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "WRONGPASS"),
		strings.Contains(text, "can't run this command"): // in a script, before Redis 7.2
		return "it refuses the user: " + text
	}
	if _, ok := rueidis.IsRedisErr(err); ok {
		return "it answers " + text
	}
	if errors.Is(err, errConnecting) {
		return "it was not reached yet"
	}
	return "no connection: " + text
}
