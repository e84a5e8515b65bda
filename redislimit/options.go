package redislimit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"fairshare/memlimit"
)

// Options of a Limiter. The zero value of each but Store is usable.
type Options struct {
	// Store is where the members count together. It may be shared, and is not
	// closed by the Limiter.
	Store *Store

	// Name is that of the group: programs with the same name and store count
	// together. It has 1 to 64 letters, digits, hyphens, underscores and dots. Empty
	// means "default".
	Name string

	// Slack is the part of each limit that the members may admit beyond it in
	// exchange for not asking the store each time. 0 means 1/16, and a value below 0
	// means none: all is asked. It is at most 1/2.
	Slack float64

	// Wait is the longest time that a request waits for the store. 0 means 25 ms.
	Wait time.Duration

	// Away says what a member admits while the store cannot be reached.
	Away Away

	// Memory is the size in bytes of the tables of this member: a fifth for the
	// counters, see [memlimit.Options], and the rest for what is known of the store. 0
	// means memlimit.DefaultMemory. A client and limit takes about 190 bytes.
	Memory int64

	// Member names this program for people. Empty means the name of the host.
	Member string

	// Policy names the policy of this member, such as a digest of its file. Members
	// with different policies for more than five minutes are reported.
	Policy string

	// Now is the clock whose times are passed to Take and Settle. It is compared with
	// that of the store, and may be wrong. nil means time.Now.
	Now func() time.Time

	// Report is called with what operators should know, one event at a time. It
	// must not block. nil means that events are written to slog's default logger.
	Report func(Event)

	// Look tries the store without becoming a member: the others do not see this
	// program, and their credit and shares stay. It is for diagnosis.
	Look bool

	fixedWait bool // in tests: each question waits for the whole Wait
	alwaysAsk bool // in tests: no view is recent enough
}

// Away says what a member admits while the store is away.
type Away uint8

const (
	// AwayShare admits a share of each limit: with M members alive in the last five
	// minutes 1/M of it, at least 1.
	AwayShare Away = iota
	// AwayWhole admits the whole of each limit. It is for members behind a balancer
	// that hashes by client, so that one member sees all requests of a client.
	AwayWhole
	// AwayOpen admits all requests that only limits in the store refuse.
	AwayOpen
)

// String returns the name in a policy file.
func (a Away) String() string {
	switch a {
	case AwayShare:
		return "share"
	case AwayWhole:
		return "whole"
	case AwayOpen:
		return "open"
	}
	return fmt.Sprintf("away %d", uint8(a))
}

// Defaults of Options.
const (
	DefaultSlack = 1.0 / 16
	DefaultWait  = 25 * time.Millisecond
)

func (o *Options) check() error {
	if o.Store == nil {
		return errors.New("the store is missing")
	}
	if o.Name == "" {
		o.Name = "default"
	}
	if len(o.Name) > 64 {
		return errors.New("the name of the group is longer than 64 bytes")
	}
	for _, r := range o.Name {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			continue
		}
		return fmt.Errorf("the name of the group %q contains %q: use letters, digits, dots, - and _", o.Name, r)
	}
	switch {
	case o.Slack == 0:
		o.Slack = DefaultSlack
	case o.Slack < 0:
		o.Slack = 0
	case o.Slack > 0.5:
		return fmt.Errorf("a slack of %g is above 1/2", o.Slack)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if o.Wait < time.Millisecond || o.Wait > 10*time.Second {
		return fmt.Errorf("a wait of %v is not between 1ms and 10s", o.Wait)
	}
	if o.Memory < 0 {
		return fmt.Errorf("memory of %d bytes", o.Memory)
	}
	if o.Memory == 0 {
		o.Memory = memlimit.DefaultMemory
	}
	if o.Away > AwayOpen {
		return fmt.Errorf("unknown %s", o.Away)
	}
	if o.Member == "" {
		o.Member, _ = os.Hostname()
	}
	if o.Report == nil {
		o.Report = func(e Event) { slog.Warn(e.String()) }
	}
	return nil
}
