//go:build unix

package socket_test

import (
	"bytes"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"fairshare/internal/socket"
)

// pair returns the two ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); two.Close() })
	return one.(*net.UnixConn), two.(*net.UnixConn)
}

// do calls f with the descriptor of a connection.
func do(t *testing.T, c *net.UnixConn, f func(fd uintptr)) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(f)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadAndWriteDoNotWait(t *testing.T) {
	a, b := pair(t)
	space := make([]byte, 1<<16)
	do(t, b, func(fd uintptr) {
		if n, err := socket.Read(fd, space); n != 0 || err != socket.ErrAgain {
			t.Errorf("nothing has come: %d, %v", n, err)
		}
	})
	sent := 0
	many := bytes.Repeat([]byte{'x'}, 1<<20)
	do(t, a, func(fd uintptr) {
		for range 1 << 10 {
			n, err := socket.Write(fd, many)
			if sent += n; err == socket.ErrAgain {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if n > 1<<16 {
				t.Fatalf("one call wrote %d bytes", n)
			}
		}
		t.Error("the kernel takes any number of bytes")
	})
	a.Close()
	came := 0
	do(t, b, func(fd uintptr) {
		for {
			n, err := socket.Read(fd, space)
			if err != nil {
				t.Fatal(err)
			}
			if came += n; n == 0 {
				return
			}
		}
	})
	if came != sent || sent == 0 {
		t.Errorf("%d bytes came, %d were sent", came, sent)
	}
	do(t, b, func(fd uintptr) {
		if n, err := socket.Write(fd, space); n != 0 || err != syscall.EPIPE {
			t.Errorf("the other end is closed: %d, %v", n, err)
		}
		if n, err := socket.Write(fd, nil); n != 0 || err == socket.ErrAgain {
			t.Errorf("nothing to write: %d, %v", n, err)
		}
	})
}
