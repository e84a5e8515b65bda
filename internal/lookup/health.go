package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A health distinguishes a DNS server that does not answer from a zone that does not. When a
// look-up had no answer and no other look-up had one recently, it asks a question that every server
// can answer. It logs once that the server does not answer, and once that it answers again.
type health struct {
	query  queryFunc
	server string
	log    func(string)
	began  time.Time
	ctx    context.Context
	ended  *sync.WaitGroup

	heard  atomic.Int64 // time of the server's last answer, in ns since began
	silent atomic.Bool
	mu     sync.Mutex
	asking bool
}

// recently is how long an answer proves that the server is available.
const recently = 10 * time.Second

// finalCheck is how long a suspected server may still answer after Close. So a program that ends
// early also logs why it got no answers.
const finalCheck = 100 * time.Millisecond

// watched sends a query, and records whether the server answered at all.
func (h *health) watched(ctx context.Context, name string, kind dnsmessage.Type) (records, error) {
	found, err := h.query(ctx, name, kind)
	switch {
	case replied(err):
		h.heard.Store(int64(time.Since(h.began)))
		if h.silent.Load() {
			h.setSilent(false, nil)
		}
	case ctx.Err() != context.Canceled:
		h.suspect()
	}
	return found, err
}

// replied reports whether the error is an answer of the server.
func replied(err error) bool {
	var code rcodeError
	return err == nil || errors.As(err, &code) || err == errReferral || err == errMalformed || err == errAliases ||
		err == errTruncated
}

// suspect asks for the root zone, if it is not yet known whether the server answers.
func (h *health) suspect() {
	heard := h.heard.Load()
	if h.silent.Load() || heard > 0 && time.Since(h.began)-time.Duration(heard) < recently {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking || h.ctx.Err() != nil {
		return
	}
	h.asking = true
	h.ended.Add(1)
	go func() {
		defer h.ended.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), patience)
		defer cancel()
		stop := context.AfterFunc(h.ctx, func() { time.AfterFunc(finalCheck, cancel) })
		defer stop()
		_, err := h.query(ctx, ".", dnsmessage.TypeNS)
		if replied(err) {
			h.heard.Store(int64(time.Since(h.began)))
		} else if ctx.Err() != context.Canceled {
			h.setSilent(true, err)
		}
		h.mu.Lock()
		h.asking = false
		h.mu.Unlock()
	}()
}

func (h *health) setSilent(silent bool, err error) {
	if !h.silent.CompareAndSwap(!silent, silent) {
		return
	}
	if silent {
		h.log(fmt.Sprintf(
			"%s does not answer (%s): bots cannot be verified by host name, and DNS lists cannot be asked", h.server,
			reason(err)))
		return
	}
	h.log(h.server + " answers again")
}

// reason returns the text of an error for a log.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("nothing in %v", patience)
	}
	var code syscall.Errno // without ports, which differ each time
	if errors.As(err, &code) {
		return code.Error()
	}
	return err.Error()
}
