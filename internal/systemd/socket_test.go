//go:build unix

package systemd

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestMain is also the service under test: with FAIRSHARE_TEST_SERVICE it prints the result of
// Listener, and the rest of the environment.
func TestMain(m *testing.M) {
	if mode := os.Getenv("FAIRSHARE_TEST_SERVICE"); mode != "" {
		if mode == "me" {
			os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
		}
		os.Exit(service())
	}
	os.Exit(m.Run())
}

func service() int {
	l, err := Listener()
	for _, name := range []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		if _, there := os.LookupEnv(name); there && err == nil {
			println("children inherit", name)
			return 1
		}
	}
	var socket *SocketError
	switch {
	case errors.As(err, &socket):
		os.Stdout.WriteString("error: " + err.Error() + "\nhint: " + socket.Hint)
	case l == nil:
		os.Stdout.WriteString("none")
	default:
		os.Stdout.WriteString(l.Addr().Network() + " " + l.Addr().String())
		if conn, err := l.Accept(); err == nil {
			conn.Write([]byte("hello"))
			conn.Close()
		}
		if again, err := Listener(); again != nil || err != nil {
			println("a second one was taken")
			return 1
		}
		l.Close()
	}
	return 0
}

// handOver runs the service with files at descriptors 3 and up.
func handOver(t *testing.T, mode string, env []string, files ...*os.File) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "FAIRSHARE_TEST_SERVICE="+mode, "GORACE=atexit_sleep_ms=0"), env...)
	cmd.ExtraFiles = files
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %v", env, err)
	}
	return string(out)
}

func fileOf(t *testing.T, of any) *os.File {
	t.Helper()
	f, err := of.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestListenerReturnsThePassedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, at := range []struct{ network, addr string }{{"tcp", "127.0.0.1:0"}, {"tcp", "[::]:0"}, {"unix", path}} {
		l, err := net.Listen(at.network, at.addr)
		if err != nil {
			t.Logf("%s: %v", at.addr, err) // this machine has no IPv6
			continue
		}
		defer l.Close()
		conn, err := net.Dial(at.network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got := handOver(t, "me", []string{"LISTEN_FDS=1"}, fileOf(t, l))
		if want := at.network + " " + l.Addr().String(); got != want {
			t.Errorf("handed over %s, got %s", want, got)
		}
		b := make([]byte, 5)
		if n, err := conn.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("a client got %q, %v", b[:n], err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket's file is gone: %v", err)
	}
}

func TestListenerFaults(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	connected, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(fds[1])
	datagrams := os.NewFile(uintptr(fds[0]), "datagrams")
	defer datagrams.Close()
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	listening := fileOf(t, tcp)

	for _, test := range []struct {
		mode  string
		env   string
		files []*os.File
		want  string
	}{
		{"me", "LISTEN_FDS=0", nil, "none"},
		{"me", "LISTEN_FDS=-1", nil, "none"},
		{"me", "LISTEN_FDS=one", nil, "none"},
		{"me", "LISTEN_FDS=", nil, "none"},
		{"else", "LISTEN_FDS=1 LISTEN_PID=1", []*os.File{listening}, "none"}, // meant for another
		{"else", "LISTEN_FDS=1", []*os.File{listening}, "none"},
		{"me", "LISTEN_FDS=2 LISTEN_FDNAMES=fairshare:metrics", []*os.File{listening, plain}, "tcp 127.0.0.1:"},
		{"me", "LISTEN_FDS=2", []*os.File{listening, listening},
			"error: the socket of systemd: there are 2 sockets, 0 of them named fairshare\nhint: serve takes one: a single ListenStream="},
		{"me", "LISTEN_FDS=2 LISTEN_FDNAMES=fairshare:fairshare", []*os.File{listening, listening},
			"2 of them named fairshare"},
		{"me", "LISTEN_FDS=1000000000", nil, "LISTEN_FDS is 1000000000\nhint: "},
		{"me", "LISTEN_FDS=1", []*os.File{plain},
			"is not a socket: socket operation on non-socket\nhint: ListenStream="},
		{"me", "LISTEN_FDS=1", nil, "hint: ListenStream="}, // there is no descriptor
		{"me", "LISTEN_FDS=1", []*os.File{fileOf(t, udp)}, "it is a datagram socket\nhint: "},
		{"me", "LISTEN_FDS=1", []*os.File{datagrams}, "it is a datagram socket\nhint: "},
		{"me", "LISTEN_FDS=1", []*os.File{fileOf(t, connected)},
			"it is a connection, not a listening socket\nhint: Accept=no"},
	} {
		if strings.HasPrefix(test.want, "tcp ") { // it accepts a connection
			conn, err := net.Dial("tcp", tcp.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		if got := handOver(t, test.mode, strings.Fields(test.env), test.files...); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.env, got, test.want)
		}
	}
}
