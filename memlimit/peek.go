package memlimit

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"fairshare"
)

// Peek implements [fairshare.Peeker].
func (l *Limiter) Peek(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if len(takes) != len(tallies) {
		return fmt.Errorf("%d takes and %d tallies", len(takes), len(tallies))
	}
	defer runtime.KeepAlive(l.table)
	at := now.UnixNano()
	var keys keyHashes
	for i := range takes {
		lim := l.limit(takes[i].Limit, takes[i].Every)
		key := keys.of(l, takes[i].Key)
		hash := key.first ^ lim.salt
		inProgress := uint64(0) // slots that are taken, or what is held
		if lim.tracked {
			sh := &l.slots.shards[shardOf(key.first)]
			sh.mu.Lock()
			inProgress = uint64(sh.taken.get(key.name(l), lim.id))
			sh.mu.Unlock()
		}
		cost := uint64(max(0, takes[i].Cost))
		if lim.kind == concurrent {
			tallies[i] = fairshare.Tally{Over: inProgress+cost > lim.allowed, Used: int64(inProgress)}
			continue
		}
		v := l.table.view(lim, hash, at)
		if lim.held {
			over := !lim.passes(&v, 0) || inProgress > 0 && !lim.passesWith(v, inProgress)
			tallies[i] = lim.tallyHeld(v, inProgress, over, at)
			continue
		}
		tallies[i] = lim.tally(&v, cost, !lim.passes(&v, cost), at)
	}
	return nil
}

// view returns the state of a limit for a key at time now.
func (t *table) view(l *limit, hash uint64, now int64) view {
	if !t.used.has(t.home(hash)) {
		return l.blank(now)
	}
	p := t.reach(l, hash, now)
	defer p.release()
	if p.slot >= 0 {
		return l.load(p.in, p.slot, now)
	}
	return l.blank(now)
}
