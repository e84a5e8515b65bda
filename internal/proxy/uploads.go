package proxy

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// uploadWait is how long a request with an incomplete body waits to enter uploads.
const uploadWait = 10 * time.Second

// uploads are the requests that use, or wait for, slots of a busy upstream while
// their bodies still come. They have at most half of the slots, so that slow clients
// do not occupy all. The others wait, first come first served.
type uploads struct {
	mu      sync.Mutex
	inside  int
	waiting list.List // of chan struct{}
}

// uploadsOf returns how many of an upstream's slots uploads may use.
func uploadsOf(slots int) int { return max(slots/2, 1) }

// enter waits until there are fewer uploads than half of the slots, whose number may
// change. It returns false after uploadWait, or if ctx has ended.
func (u *uploads) enter(ctx context.Context, slots func() int) bool {
	admitted := make(chan struct{})
	u.mu.Lock()
	entry := u.waiting.PushBack(admitted)
	u.admit(slots())
	u.mu.Unlock()
	late := time.NewTimer(uploadWait)
	defer late.Stop()
	select {
	case <-admitted:
		return true
	case <-ctx.Done():
	case <-late.C:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.admit(slots())
	select {
	case <-admitted: // just now
		return true
	default:
	}
	u.waiting.Remove(entry)
	return false
}

// leave ends one upload.
func (u *uploads) leave(slots int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside--
	u.admit(slots)
}

// admit admits as many as the present slots allow. mu is held.
func (u *uploads) admit(slots int) {
	for u.inside < uploadsOf(slots) && u.waiting.Len() > 0 {
		u.inside++
		close(u.waiting.Remove(u.waiting.Front()).(chan struct{}))
	}
}
