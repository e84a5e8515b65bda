package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"

	"fairshare/internal/cli"
	"fairshare/internal/lockfile"
)

// longestSocket is the length of the longest path of a Unix socket that all systems allow, in bytes.
const longestSocket = 103

// listenPrivate listens at a Unix socket that only the user of this process, and root, can open. A lock next
// to it makes sure that one server has it, and that a socket which is left from a killed server is replaced by
// one server only. The error is lockfile.ErrHeld if another server has it.
func listenPrivate(path string) (_ net.Listener, err error) {
	const hint = "--admin unix:PATH names another place, and --admin off turns it off"
	folder := filepath.Dir(path)
	making := filepath.Join(folder, "admin.new") // nobody else can reach into it
	made := filepath.Join(making, "s")
	switch {
	case goruntime.GOOS == "windows": // the mode of a file protects nothing
		return nil, cli.Hint(errors.New("private sockets are not possible on Windows"), hint)
	case max(len(path), len(made)) > longestSocket:
		return nil, cli.Hint(fmt.Errorf("%s has more than %d bytes", path, longestSocket), hint)
	}
	lock, err := lockfile.Take(path + ".lock")
	if err != nil {
		if errors.Is(err, lockfile.ErrHeld) {
			err = fmt.Errorf("another server has %s: %w", path, err)
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Release()
		}
	}()
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, cli.Hint(fmt.Errorf("%s exists and is not a socket", path), "remove it; "+hint)
	}
	if err := os.RemoveAll(making); err != nil {
		return nil, err
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(making)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &privateListener{UnixListener: l, path: path, lock: lock}, nil
}

// A privateListener removes its socket when it is closed.
type privateListener struct {
	*net.UnixListener
	path string
	lock *lockfile.Lock
	once sync.Once
}

// Addr returns the address of the socket.
func (l *privateListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close ends the listener.
func (l *privateListener) Close() (err error) {
	l.once.Do(func() {
		os.Remove(l.path) // the lock is still held: it is this server's
		err = l.UnixListener.Close()
		l.lock.Release()
	})
	return err
}
