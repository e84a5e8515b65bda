//go:build linux

package systemd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager is the socket of a service manager, and its environment.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return conn
}

// receive returns the next message.
func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 8192)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func silence(t *testing.T) func(string) {
	return func(line string) { t.Errorf("logged %q", line) }
}

func TestNotifierSendsMessages(t *testing.T) {
	for name, at := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "n"),
		"abstract": fmt.Sprintf("@fairshare-test-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			conn := manager(t, at)
			t.Setenv("WATCHDOG_USEC", "30000000")
			t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
			n := NewNotifier(silence(t))
			for _, gone := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
				if value, there := os.LookupEnv(gone); there {
					t.Errorf("children inherit %s=%s", gone, value)
				}
			}
			n.Ready("protects a shop\nREADY=0\x1b[1m")
			if got := receive(t, conn); got != "READY=1\nSTATUS=protects a shop READY=0 [1m" {
				t.Errorf("Ready: %q", got)
			}
			n.Ready(strings.Repeat("é", 3000))
			if got := strings.TrimPrefix(receive(t, conn), "READY=1\nSTATUS="); got != strings.Repeat("é",
				maxStatus/2) {
				t.Errorf("a long status: %d bytes", len(got))
			}
			before := monotonic()
			n.Reloading()
			got := receive(t, conn)
			var at int64
			if _, err := fmt.Sscanf(got, "RELOADING=1\nMONOTONIC_USEC=%d", &at); err != nil {
				t.Errorf("Reloading: %q", got)
			}
			if now := monotonic().Microseconds(); at < before.Microseconds() || at > now || at == 0 {
				t.Errorf("Reloading at %d, the clock shows %v to %d", at, before.Microseconds(), now)
			}
			n.Beat()
			if got := receive(t, conn); got != "WATCHDOG=1" {
				t.Errorf("Beat: %q", got)
			}
			n.Stopping(20 * time.Second)
			if got := receive(t,
				conn); got != "STOPPING=1\nSTATUS=stopping: requests in progress may end\nEXTEND_TIMEOUT_USEC=20000000" {
				t.Errorf("Stopping: %q", got)
			}
		})
	}
}

func TestNotifierBeatsOnlyForItsOwnProcess(t *testing.T) {
	for _, test := range []struct {
		socket, usec, pid string
		want              time.Duration
	}{
		{"/nowhere", "30000000", strconv.Itoa(os.Getpid()), 30 * time.Second},
		{"/nowhere", "30000000", "", 30 * time.Second},
		{"/nowhere", "30000000", "1", 0}, // systemd watches another process
		{"/nowhere", "", "", 0},
		{"/nowhere", "soon", "", 0},
		{"/nowhere", "-1", "", 0},
		{"", "30000000", "", 0}, // no service manager
	} {
		t.Setenv("NOTIFY_SOCKET", test.socket)
		t.Setenv("WATCHDOG_USEC", test.usec)
		t.Setenv("WATCHDOG_PID", test.pid)
		n := NewNotifier(silence(t))
		beats, stop := n.Beats()
		stop()
		if n.watchdog != test.want || (beats == nil) != (test.want == 0) {
			t.Errorf("%+v: %v, beats %v", test, n.watchdog, beats)
		}
	}
	n := &Notifier{watchdog: time.Nanosecond}
	beats, stop := n.Beats()
	defer stop()
	<-beats // and does not panic
}

func TestNotifierWithoutAManagerDoesNothing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := NewNotifier(silence(t))
	n.Ready("here")
	n.Reloading()
	n.Beat()
	n.Stopping(time.Second)
}

// A service manager that is missing or does not read costs one log line and little time.
func TestNotifierLogsOnceThatSystemdIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	t.Setenv("NOTIFY_SOCKET", path)
	var logged []string
	n := NewNotifier(func(line string) { logged = append(logged, line) })
	n.Ready("here")
	n.Beat()
	if len(logged) != 1 || !strings.Contains(logged[0], "cannot report READY=1 to systemd: ") {
		t.Errorf("no service manager: logged %q", logged)
	}
	conn := manager(t, path)
	n.Beat()
	if got := receive(t, conn); got != "WATCHDOG=1" {
		t.Errorf("heard %q", got)
	}
	for len(logged) == 1 { // until its queue is full
		n.Beat()
	}
	if len(logged) != 2 || !strings.Contains(logged[1], "timeout") {
		t.Errorf("a manager that does not read: logged %q", logged)
	}
}
