package proxy

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// uploadWait is how long a request whose body is not whole waits until it may
// wait for its turn.
const uploadWait = 10 * time.Second

// uploads are the requests that take part in a busy upstream while their bodies
// still come: half of the slots at most, so that clients who send slowly do not
// hold all of it. The others wait, first come first served.
type uploads struct {
	mu      sync.Mutex
	inside  int
	waiting list.List // of chan struct{}
}

// uploadsOf returns how many of an upstream's slots uploads may take.
func uploadsOf(slots int) int { return max(slots/2, 1) }

// enter waits until there is room among slots, and returns false when there was
// none in time or ctx has ended.
func (u *uploads) enter(ctx context.Context, slots int) bool {
	u.mu.Lock()
	if u.inside < uploadsOf(slots) && u.waiting.Len() == 0 {
		u.inside++
		u.mu.Unlock()
		return true
	}
	let := make(chan struct{})
	place := u.waiting.PushBack(let)
	u.mu.Unlock()
	late := time.NewTimer(uploadWait)
	defer late.Stop()
	select {
	case <-let:
		return true
	case <-ctx.Done():
	case <-late.C:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-let: // just now
		return true
	default:
	}
	u.waiting.Remove(place)
	return false
}

// leave makes room, which slots there are now.
func (u *uploads) leave(slots int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside--
	for u.inside < uploadsOf(slots) && u.waiting.Len() > 0 {
		u.inside++
		close(u.waiting.Remove(u.waiting.Front()).(chan struct{}))
	}
}
