// Package systemd speaks with the service manager that started the process:
// [Notifier] tells it how serve is, [Listener] takes the socket that it holds.
// Without a service manager both do nothing.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	patience  = time.Second // for a service manager that does not read
	maxStatus = 1 << 10     // bytes
	leastBeat = time.Millisecond
)

// A Notifier tells the service manager how the process is (sd_notify(3)). It
// is safe for concurrent use. No call takes longer than a second.
type Notifier struct {
	log      func(string)
	watchdog time.Duration // 0: nobody waits for beats

	mu      sync.Mutex
	at      *net.UnixAddr // nil: nobody is told
	failing bool
}

// NewNotifier reads who is to be told from the environment, and takes that out
// of it: no child speaks in our name. That nobody could be told goes to log,
// once until it works again.
func NewNotifier(log func(string)) *Notifier {
	n := &Notifier{log: log}
	if name := os.Getenv("NOTIFY_SOCKET"); name != "" {
		n.at = &net.UnixAddr{Name: name, Net: "unixgram"} // Go takes a leading @ for the abstract namespace, as systemd does
	}
	os.Unsetenv("NOTIFY_SOCKET")
	watchdog, err := daemon.SdWatchdogEnabled(true) // 0 if another process is watched
	if err == nil && n.at != nil {
		n.watchdog = watchdog
	}
	return n
}

// Ready says that requests are accepted, and in one line how. It also ends
// what Reloading began.
func (n *Notifier) Ready(status string) { n.send("READY=1", "STATUS="+oneLine(status)) }

// Reloading says that the policy is read anew; Ready has to follow, whatever
// came of it.
func (n *Notifier) Reloading() {
	n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
}

// Stopping says that the end has begun, and how long it may take: the service
// manager waits so long, and longer if its own bound is higher.
func (n *Notifier) Stopping(within time.Duration) {
	n.send("STOPPING=1", "STATUS=stopping: requests in progress may end", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// Beat says that the process is alive.
func (n *Notifier) Beat() { n.send("WATCHDOG=1") }

// Beats returns a channel that says when to call Beat: twice in the time after
// which the service manager takes the process for dead. It is nil if nobody
// waits for beats. stop ends it.
func (n *Notifier) Beats() (beats <-chan time.Time, stop func()) {
	if n.watchdog <= 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(max(n.watchdog/2, leastBeat))
	return ticker.C, ticker.Stop
}

func (n *Notifier) send(assignments ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil {
		return
	}
	err := n.write(strings.Join(assignments, "\n"))
	if err != nil && !n.failing {
		n.log(fmt.Sprintf("warning: systemd cannot be told %s: %v", assignments[0], err))
	}
	n.failing = err != nil
}

func (n *Notifier) write(message string) error {
	conn, err := net.DialUnix(n.at.Net, nil, n.at)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

// oneLine keeps a status from being read as more than that.
func oneLine(status string) string {
	status = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, status)
	return strings.ToValidUTF8(status[:min(len(status), maxStatus)], "")
}
