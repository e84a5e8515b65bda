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

// A health tells a DNS server that does not answer from a zone that does not:
// when a look-up had no answer and nothing else had one lately, it asks for
// what every server knows. It says once that there is no answer, and once
// that there is one again.
type health struct {
	ask    askFunc
	server string
	log    func(string)
	began  time.Time
	ctx    context.Context
	ended  *sync.WaitGroup

	heard  atomic.Int64 // nanoseconds since began: when the server answered last
	silent atomic.Bool
	mu     sync.Mutex
	asking bool
}

// lately is how long an answer shows that the server is there.
const lately = 10 * time.Second

// lastWord is how long a server that is suspected still has when the Resolver
// is closed: who ends early wants to know, too, why nothing was answered.
const lastWord = 100 * time.Millisecond

// watched asks, and takes note of whether there was an answer of any kind.
func (h *health) watched(ctx context.Context, name string, kind dnsmessage.Type) (records, error) {
	found, err := h.ask(ctx, name, kind)
	switch {
	case replied(err):
		h.heard.Store(int64(time.Since(h.began)))
		if h.silent.Load() {
			h.say(false, nil)
		}
	case ctx.Err() != context.Canceled:
		h.suspect()
	}
	return found, err
}

// replied reports whether it was the server that said no.
func replied(err error) bool {
	var code rcodeError
	return err == nil || errors.As(err, &code) || err == errReferral || err == errMalformed || err == errAliases || err == errTruncated
}

// suspect asks for the root of all names, unless there is no need to.
func (h *health) suspect() {
	heard := h.heard.Load()
	if h.silent.Load() || heard > 0 && time.Since(h.began)-time.Duration(heard) < lately {
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
		stop := context.AfterFunc(h.ctx, func() { time.AfterFunc(lastWord, cancel) })
		defer stop()
		_, err := h.ask(ctx, ".", dnsmessage.TypeNS)
		if replied(err) {
			h.heard.Store(int64(time.Since(h.began)))
		} else if ctx.Err() != context.Canceled {
			h.say(true, err)
		}
		h.mu.Lock()
		h.asking = false
		h.mu.Unlock()
	}()
}

func (h *health) say(silent bool, err error) {
	if !h.silent.CompareAndSwap(!silent, silent) {
		return
	}
	if silent {
		h.log(fmt.Sprintf("%s does not answer (%s): no bot can be verified by its host name, no DNS list asked", h.server, reason(err)))
		return
	}
	h.log(h.server + " answers again")
}

// reason is an error for people.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("nothing in %v", patience)
	}
	var code syscall.Errno // without the ports, which differ each time
	if errors.As(err, &code) {
		return code.Error()
	}
	return err.Error()
}
