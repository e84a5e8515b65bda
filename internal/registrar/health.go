package registrar

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"fairshare/registry"
)

const (
	firstPause  = time.Second // before the first retry; doubled for each other
	longPause   = 30 * time.Second
	damagePause = 10 * time.Minute
	callTime    = 10 * time.Second       // timeout of a call of the store
	callGrace   = 100 * time.Millisecond // for the call to return after the timeout
)

// A health records whether calls of the store succeed. Only one goroutine calls its
// methods; any may read errors and failing.
type health struct {
	errors  atomic.Int64
	failing atomic.Bool
	damaged bool
	pause   time.Duration // the last one
}

// failed counts an error. It returns the pause before the next try, and whether the
// state of the store has changed.
func (h *health) failed(err error) (pause time.Duration, news bool) {
	h.errors.Add(1)
	damaged := errors.Is(err, registry.ErrDamaged)
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

// succeeded records that a call has succeeded. It reports whether the previous one
// had failed.
func (h *health) succeeded() (news bool) {
	h.damaged, h.pause = false, 0
	return h.failing.Swap(false)
}

// withHint returns the text of an error, with its hint if there is one.
func withHint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		return fmt.Sprintf("%v (%s)", err, hinted.Hint())
	}
	return err.Error()
}

var (
	errHangs     = errors.New("it does not answer")
	errAbandoned = errors.New("it does not answer, and was abandoned")
)

// call runs one call of the store. After a timeout it calls hangs and continues to
// wait, since the call may still change something. When end is closed it cancels the
// call, and abandons it if it does not return soon.
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
				return none, errAbandoned
			}
		}
	}
}
