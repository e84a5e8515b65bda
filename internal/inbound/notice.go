package inbound

import (
	"fmt"
	"log"
	"net/netip"
	"sync"
	"time"
)

const (
	noticeEvery  = time.Minute
	noticeDelay  = time.Second // so that events at the same time make one line
	maxOffenders = 256         // clients that are counted separately between two notices
)

// notices logs how many connections were closed and why, at most once a minute.
type notices struct {
	mu       sync.Mutex
	log      *log.Logger
	timer    *time.Timer // nil: nothing to log
	loggedAt time.Time
	perAddr  map[netip.Prefix]int // by client; the invalid prefix: clients beyond maxOffenders
	inAll    int
	slow     int
	streams  int            // reset because of a bound
	abusive  map[string]int // by reason
	failed   int            // accepts
	failure  error
	bounds   [2]int // per address and in all, when they were reached last
}

func (n *notices) setLog(l *log.Logger) {
	n.mu.Lock()
	n.log = l
	n.mu.Unlock()
}

// note calls change, which counts an event, and schedules the next lines.
func (n *notices) note(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.log == nil {
		return
	}
	change()
	if n.timer == nil {
		delay := noticeDelay
		if !n.loggedAt.IsZero() {
			delay = max(delay, noticeEvery-time.Since(n.loggedAt))
		}
		n.timer = time.AfterFunc(delay, n.logAll)
	}
}

func (n *notices) closedPerAddr(client netip.Prefix, bound int) {
	n.note(func() {
		n.bounds[0] = bound
		if n.perAddr == nil {
			n.perAddr = make(map[netip.Prefix]int)
		}
		if _, known := n.perAddr[client]; !known && len(n.perAddr) >= maxOffenders {
			client = netip.Prefix{}
		}
		n.perAddr[client]++
	})
}

func (n *notices) closedInAll(bound int) {
	n.note(func() { n.inAll++; n.bounds[1] = bound })
}

func (n *notices) closedSlow() {
	n.note(func() { n.slow++ })
}

func (n *notices) resetStream() {
	n.note(func() { n.streams++ })
}

// closedFor counts a connection that was closed because of its client. why is one of
// abuses.
func (n *notices) closedFor(why string) {
	n.note(func() {
		if n.abusive == nil {
			n.abusive = make(map[string]int)
		}
		n.abusive[why]++
	})
}

func (n *notices) acceptFailed(err error) {
	n.note(func() { n.failed++; n.failure = err })
}

// logAll logs all counts and resets them.
func (n *notices) logAll() {
	n.mu.Lock()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if len(n.perAddr) > 0 {
		most, all := netip.Prefix{}, 0
		for client, times := range n.perAddr {
			all += times
			if client.IsValid() && (!most.IsValid() || times > n.perAddr[most] ||
				times == n.perAddr[most] && client.Compare(most) < 0) {
				most = client
			}
		}
		others := ""
		if rest := all - n.perAddr[most]; rest > 0 {
			others = fmt.Sprintf(", and %d of other addresses", rest)
		}
		add("%s of %s%s %s closed: more than %d at once", connections(n.perAddr[most]), printClient(most), others,
			were(all), n.bounds[0])
	}
	if n.inAll > 0 {
		add("%s %s closed: more than %d at once in all", connections(n.inAll), were(n.inAll), n.bounds[1])
	}
	if n.slow > 0 {
		add("%s %s closed: the client took less than 1 kB/s for %v", connections(n.slow), were(n.slow), runTime)
	}
	if n.streams > 0 {
		add("%d HTTP/2 requests were reset: too many at once of one address, or in all", n.streams)
	}
	for _, why := range abuses {
		if times := n.abusive[why]; times > 0 {
			add("%s %s closed: %s", connections(times), were(times), why)
		}
	}
	if n.failed > 0 {
		add("accepting failed %d times, and is tried again: %v", n.failed, n.failure)
	}
	n.timer, n.loggedAt = nil, time.Now()
	n.perAddr, n.inAll, n.slow, n.streams, n.abusive, n.failed, n.failure = nil, 0, 0, 0, nil, 0, nil
	l := n.log
	n.mu.Unlock()
	for _, line := range lines {
		l.Print(line)
	}
}

// flush logs the counts at once, and stops the timer.
func (n *notices) flush() {
	n.mu.Lock()
	waiting := n.timer != nil && n.timer.Stop()
	n.mu.Unlock()
	if waiting {
		n.logAll()
	}
}

func printClient(client netip.Prefix) string {
	if client.IsSingleIP() {
		return client.Addr().String()
	}
	return client.String()
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
