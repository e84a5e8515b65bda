package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"fairshare/internal/inbound"
	"fairshare/internal/systemd"
)

// unixPrefix begins an address that is a Unix socket's path.
const unixPrefix = "unix:"

// socketMode lets the owner and the group of a Unix socket connect.
const socketMode = 0o660

// listen takes the socket that systemd handed over, or else an address, and says
// what to do when that fails.
func listen(addr string) (net.Listener, error) {
	handed, err := systemd.Listener()
	if err != nil {
		var socket *systemd.SocketError
		if errors.As(err, &socket) {
			err = &hintError{err, socket.Hint}
		}
		return nil, err
	}
	if handed != nil {
		return inbound.Shared(handed), nil
	}
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return listenUnix(path)
	}
	l, err := inbound.Listen(addr)
	hint := "an address is a host and a port: 127.0.0.1:8080, or :80 for every address of this machine; or a Unix socket: unix:/run/fairshare.sock"
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err, hint = fmt.Errorf("%s is in use", addr), "another program listens there (ss -ltnp shows which); stop it, or take another port with --listen"
	case errors.Is(err, os.ErrPermission):
		err, hint = fmt.Errorf("%s may not be listened on", addr), "ports below 1024 need a privilege: AmbientCapabilities=CAP_NET_BIND_SERVICE in systemd, or a port above"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err, hint = fmt.Errorf("%s is no address of this machine", addr), "ip address shows which there are"
	default:
		err = fmt.Errorf("listen: %w", err)
	}
	return nil, &hintError{err, hint}
}

// listenUnix makes a socket at path. One that nobody listens on any more is
// replaced. The socket goes when the listener is closed.
func listenUnix(path string) (net.Listener, error) {
	if path == "" || path[0] == '@' {
		return nil, &hintError{fmt.Errorf("%s%s names no file", unixPrefix, path), "--listen unix:/run/fairshare.sock"}
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
			return nil, &hintError{fmt.Errorf("%s is there already and is no socket", path), "take another path"}
		}
		conn, dialed := net.DialTimeout("unix", path, time.Second)
		if dialed == nil {
			conn.Close()
		}
		if !errors.Is(dialed, syscall.ECONNREFUSED) {
			return nil, &hintError{fmt.Errorf("%s is in use", path), "another program listens there (ss -lxp shows which); stop it, or take another path"}
		}
		if err := os.Remove(path); err != nil {
			return nil, &hintError{fmt.Errorf("a socket that nobody listens on is in the way: %w", err), "remove it, or take another path"}
		}
		l, err = net.Listen("unix", path)
	}
	if err == nil {
		if err = os.Chmod(path, socketMode); err == nil {
			return l, nil
		}
		l.Close()
	}
	return nil, &hintError{fmt.Errorf("listen: %w", err), "the directory of the socket has to be there and to be ours to write to; a path is at most 107 bytes"}
}

func itselfError(upstream *url.URL) error {
	return &hintError{fmt.Errorf("upstream %s is where fairshare itself listens", upstream), "the site has to listen elsewhere, as on 127.0.0.1:3000: --upstream http://127.0.0.1:3000; --listen says where fairshare does"}
}

// isItself reports whether an upstream is plainly what a listener listens on:
// requests would go round until nothing is left.
func isItself(listener net.Addr, upstream *url.URL) bool {
	own, ok := listener.(*net.TCPAddr)
	if !ok {
		return false
	}
	port := upstream.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[upstream.Scheme]
	}
	if port != fmt.Sprint(own.Port) {
		return false
	}
	var hosts []netip.Addr
	switch host := strings.ToLower(upstream.Hostname()); host {
	case "localhost":
		hosts = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	default:
		addr, err := netip.ParseAddr(host)
		if err != nil { // a name: whose it is changes
			return false
		}
		hosts = []netip.Addr{addr.Unmap()}
	}
	at := own.AddrPort().Addr().Unmap()
	for _, host := range hosts {
		if host == at || at.IsUnspecified() && ofThisMachine(host) || host.IsUnspecified() && at.IsLoopback() {
			return true
		}
	}
	return false
}

func ofThisMachine(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
			return true
		}
	}
	return false
}
