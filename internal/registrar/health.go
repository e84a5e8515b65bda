package registrar

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"fairshare/sqlregistry"
)

// Pauses after which is tried again.
const (
	firstPause  = time.Second
	longPause   = 30 * time.Second
	damagePause = 10 * time.Minute
	callTime    = 10 * time.Second       // that one call of the store may take
	callGrace   = 100 * time.Millisecond // for it to come back when its time is over
)

// A health knows whether calls of the store work. One goroutine calls its
// methods.
type health struct {
	errors  atomic.Int64
	failing atomic.Bool
	damaged bool
	pause   time.Duration // the last
}

// failed counts an error. It returns what to wait before the next try, and
// whether it is news.
func (h *health) failed(err error) (pause time.Duration, news bool) {
	h.errors.Add(1)
	damaged := errors.Is(err, sqlregistry.ErrDamaged)
	news = !h.failing.Load() || damaged && !h.damaged
	h.failing.Store(true)
	switch h.damaged = damaged; {
	case damaged:
		h.pause = damagePause
	case h.pause == 0 || h.pause > longPause:
		h.pause = firstPause
	default:
		h.pause = min(2*h.pause, longPause)
	}
	return h.pause, news
}

// worked notes that a call did, and returns whether that is news.
func (h *health) worked() (news bool) {
	h.damaged, h.pause = false, 0
	return h.failing.Swap(false)
}

// withHint returns the text of an error with what to do about it.
func withHint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		return fmt.Sprintf("%v (%s)", err, hinted.Hint())
	}
	return err.Error()
}

var (
	errHangs  = errors.New("it does not answer")
	errBehind = errors.New("it does not answer, and was left behind")
)

// call makes one call of the store. One that does not come back in its time is
// waited for all the same, as nobody knows what it still does; hangs is told
// then. When end is closed it is called off, and left behind if it does not
// come back then.
func call[T any](end <-chan struct{}, hangs func(), f func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	back := make(chan outcome, 1)
	go func() {
		result, err := f(ctx)
		back <- outcome{result, err}
	}()
	grace := time.NewTimer(callTime + callGrace)
	defer grace.Stop()
	for {
		select {
		case o := <-back:
			return o.result, o.err
		case <-grace.C:
			hangs()
		case <-end:
			cancel()
			grace.Reset(callGrace)
			select {
			case o := <-back:
				return o.result, o.err
			case <-grace.C:
				var none T
				return none, errBehind
			}
		}
	}
}
