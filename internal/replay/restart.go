package replay

import (
	"context"
	"encoding/binary"
	"time"

	"fairshare"
)

// A resetter is a Limiter that can delete all counts.
type resetter interface {
	fairshare.Limiter
	Reset()
}

// Clearing a table of 64 MiB takes as long as judging some ten thousand lines. A log that
// is sorted by client has a restart every few lines. So most restarts do not clear the
// table, but begin a new age with other keys.
const (
	bytesPerState = 512     // old ages may fill a sixteenth of a table: states have up to 32 bytes
	leastMemory   = 1 << 20 // assumed for a table of unknown size
	mostLeft      = 1 << 20 // states of old ages
)

// leftover returns how many states of old ages may stay in a table of memory bytes.
func leftover(memory int64) int64 {
	if memory <= 0 {
		memory = leastMemory
	}
	return min(memory/bytesPerState, mostLeft)
}

// An aged is a Limiter in a later age: it counts under keys that begin with the age. It is
// not safe for concurrent use.
type aged struct {
	limiter fairshare.Limiter
	age     uint32
	takes   []fairshare.Take
	charges []fairshare.Charge
	keys    []byte
}

func (a *aged) Take(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	a.takes, a.keys = append(a.takes[:0], takes...), a.keys[:0]
	var last, own []byte
	for i := range a.takes {
		last, own = a.key(takes[i].Key, last, own)
		a.takes[i].Key = own
	}
	return a.limiter.Take(ctx, now, a.takes, tallies)
}

func (a *aged) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	a.charges, a.keys = append(a.charges[:0], charges...), a.keys[:0]
	var last, own []byte
	for i := range a.charges {
		last, own = a.key(charges[i].Key, last, own)
		a.charges[i].Key = own
	}
	return a.limiter.Settle(ctx, now, a.charges)
}

// key returns key and its form in this age. If key is last, that is own.
func (a *aged) key(key, last, own []byte) (_, _ []byte) {
	if len(key) > 0 && len(key) == len(last) && &key[0] == &last[0] {
		return last, own
	}
	n := len(a.keys)
	a.keys = binary.BigEndian.AppendUint32(a.keys, a.age)
	a.keys = append(a.keys, key...)
	return key, a.keys[n:]
}
