package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
)

// socketName is the FileDescriptorName of serve's socket, if systemd passes several.
const socketName = "fairshare"

// A SocketError is an error about the sockets from the service manager.
type SocketError struct {
	Err  error
	Hint string // what to do
}

func (e *SocketError) Error() string { return "the socket of systemd: " + e.Err.Error() }

func (e *SocketError) Unwrap() error { return e.Err }

// maxSockets is more than any configuration needs.
const maxSockets = 64

// Listener returns the listening socket that the service manager passed (sd_listen_fds(3)), or nil
// if there is none. It also removes the socket from the environment, so only the first call returns
// it. An error is a *SocketError.
func Listener() (net.Listener, error) {
	if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err == nil && n > maxSockets {
		return nil, &SocketError{fmt.Errorf("LISTEN_FDS is %d", n),
			"serve takes one: a single ListenStream= in the socket unit"}
	}
	files := activation.Files(true)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	file, err := choose(files)
	if file == nil || err != nil {
		return nil, err
	}
	return listenOn(file)
}

// choose returns the only file, or the only one with socketName.
func choose(files []*os.File) (*os.File, error) {
	if len(files) <= 1 {
		for _, only := range files {
			return only, nil
		}
		return nil, nil
	}
	var ours []*os.File
	for _, f := range files {
		if f.Name() == socketName {
			ours = append(ours, f)
		}
	}
	if len(ours) != 1 {
		return nil, &SocketError{
			fmt.Errorf("there are %d sockets, %d of them named %s", len(files), len(ours), socketName),
			"serve takes one: a single ListenStream= in the socket unit (ListenStream=80 takes IPv4 and IPv6 alike), or FileDescriptorName=" + socketName + " for one of several units",
		}
	}
	return ours[0], nil
}

func listenOn(file *os.File) (net.Listener, error) {
	listens, streams, err := isListening(file)
	switch {
	case err != nil:
		return nil, &SocketError{fmt.Errorf("%s is not a socket: %w", file.Name(), err),
			"ListenStream= in the socket unit"}
	case !streams:
		return nil, &SocketError{errors.New("it is a datagram socket"), "ListenStream= in the socket unit"}
	case !listens:
		return nil, &SocketError{errors.New("it is a connection, not a listening socket"),
			"Accept=no in the socket unit, which is the default"}
	}
	l, err := net.FileListener(file)
	if err == nil && l.Addr().Network() != "tcp" && l.Addr().Network() != "unix" {
		l.Close()
		err = fmt.Errorf("it has the type %s", l.Addr().Network())
	}
	if err != nil {
		return nil, &SocketError{err, "ListenStream= in the socket unit, with a port, an address and a port, or a path"}
	}
	return l, nil
}
