package redislimit

import (
	"fmt"
	"sync"
	"time"

	"fairshare/internal/prose"
)

// An Event is something that operators should know.
type Event struct {
	At   time.Time
	Kind EventKind
	Text string // a sentence without a full stop
}

// String returns the text.
func (e Event) String() string { return e.Text }

// An EventKind is the kind of an Event.
type EventKind uint8

// Kinds of events.
const (
	StoreAway   EventKind = iota + 1 // a master does not answer
	StoreBack                        // all masters answer again
	StoreLost                        // the store lost counts, which members restore
	Unreadable                       // states in the store made no sense
	ClockWrong                       // the clock of this machine differs from the store's
	OtherPolicy                      // members have had different policies for five minutes
	MemberJoined
	MemberLeft
)

// String returns the kind as a journal names it.
func (k EventKind) String() string {
	names := [...]string{"", "store away", "store back", "store lost counts", "unreadable", "clock", "other policy",
		"member joined", "member left"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// events reports each event, one at a time.
type events struct {
	report func(Event)
	mu     sync.Mutex

	lastUnreadable time.Time
}

func (e *events) send(kind EventKind, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report(Event{time.Now(), kind, fmt.Sprintf(format, args...)})
}

// unreadable reports states that made no sense, at most once a minute.
func (e *events) unreadable(n int) {
	e.mu.Lock()
	again := time.Since(e.lastUnreadable) > time.Minute
	if again {
		e.lastUnreadable = time.Now()
	}
	e.mu.Unlock()
	if again {
		e.send(Unreadable, "%s in the store made no sense and were dropped: does another program write there?",
			prose.Plural(n, "state"))
	}
}
