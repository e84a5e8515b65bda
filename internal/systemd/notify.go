// Package systemd communicates with the service manager that started the process. [Notifier]
// reports the state of serve, and [Listener] returns the socket that systemd passed. Without a
// service manager both do nothing.
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
	patience  = time.Second // most time for a service manager that does not read
	maxStatus = 1 << 10     // bytes
	leastBeat = time.Millisecond
)

// A Notifier reports the state of the process to the service manager (sd_notify(3)). It is safe for
// concurrent use. No call takes longer than a second.
type Notifier struct {
	log      func(string)
	watchdog time.Duration // 0: the watchdog is off

	mu      sync.Mutex
	at      *net.UnixAddr // nil: no service manager
	failing bool
}

// NewNotifier reads the address of the service manager from the environment, and removes it there,
// so that no child process uses it. A failed report is logged once, until one succeeds.
func NewNotifier(log func(string)) *Notifier {
	n := &Notifier{log: log}
	if name := os.Getenv("NOTIFY_SOCKET"); name != "" {
		// in Go and in systemd a leading @ means the abstract namespace
		n.at = &net.UnixAddr{Name: name, Net: "unixgram"}
	}
	os.Unsetenv("NOTIFY_SOCKET")
	watchdog, err := daemon.SdWatchdogEnabled(true) // 0 if another process is watched
	if err == nil && n.at != nil {
		n.watchdog = watchdog
	}
	return n
}

// Ready reports that requests are accepted, with a status of one line. It also ends a reload.
func (n *Notifier) Ready(status string) { n.send("READY=1", "STATUS="+oneLine(status)) }

// Reloading reports that the policy is being reloaded. Ready must follow, even if the reload fails.
func (n *Notifier) Reloading() {
	n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
}

// Stopping reports that the process is stopping, and how long this may take. The service manager
// waits at least that long.
func (n *Notifier) Stopping(within time.Duration) {
	n.send("STOPPING=1", "STATUS=stopping: requests in progress may end",
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", within.Microseconds()))
}

// Beat reports that the process is alive.
func (n *Notifier) Beat() { n.send("WATCHDOG=1") }

// Beats returns a channel with the times at which to call Beat: twice in each watchdog period. It
// is nil if the watchdog is off. stop ends it.
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
		n.log(fmt.Sprintf("warning: cannot report %s to systemd: %v", assignments[0], err))
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

// oneLine returns a status as one line, so that it cannot contain other assignments.
func oneLine(status string) string {
	status = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, status)
	return strings.ToValidUTF8(status[:min(len(status), maxStatus)], "")
}
