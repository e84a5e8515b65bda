package serve

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

	"fairshare/internal/cli"
	"fairshare/internal/inbound"
	"fairshare/internal/systemd"
)

// unixPrefix begins an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// socketMode lets the owner and the group of a Unix socket connect.
const socketMode = 0o660

const listenHint = "an address is a host and a port: 127.0.0.1:8080, or :80 for every address of this machine; " +
	"or a Unix socket: unix:/run/fairshare.sock"

// checkListen returns an error for an address that cannot be listened on.
func checkListen(addr string) error {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		if path == "" || path[0] == '@' {
			return fmt.Errorf("%s does not name a file", addr)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil && port == "" {
		err = errors.New("the port is missing")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// listen returns the socket that systemd handed over, or else listens on an
// address. Its errors have hints.
func listen(addr string) (net.Listener, error) {
	handed, err := systemd.Listener()
	if err != nil {
		var socket *systemd.SocketError
		if errors.As(err, &socket) {
			err = cli.Hint(err, socket.Hint)
		}
		return nil, err
	}
	if handed != nil {
		return inbound.Shared(handed), nil
	}
	return listenOn(addr, "--listen")
}

// listenOn listens on an address that flag gave. Its errors have hints.
func listenOn(addr, flag string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		return listenUnix(path, flag)
	}
	l, err := inbound.Listen(addr)
	hint := listenHint
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		err, hint = fmt.Errorf("%s is in use", addr),
			"another program listens there (ss -ltnp shows which); stop it, or take another port with "+flag
	case errors.Is(err, os.ErrPermission):
		err, hint = fmt.Errorf("no permission to listen on %s", addr),
			"ports below 1024 need a privilege: AmbientCapabilities=CAP_NET_BIND_SERVICE in systemd, or a port above"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err, hint = fmt.Errorf("%s is not an address of this machine", addr), "ip address shows which there are"
	default:
		err = fmt.Errorf("listen: %w", err)
	}
	return nil, cli.Hint(err, hint)
}

// listenUnix creates a socket at path, and replaces one that is not in use. The
// socket is removed when the listener is closed.
func listenUnix(path, flag string) (net.Listener, error) {
	if path == "" || path[0] == '@' {
		return nil, cli.Hint(fmt.Errorf("%s%s does not name a file", unixPrefix, path),
			flag+" unix:/run/fairshare.sock")
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
			return nil, cli.Hint(fmt.Errorf("%s exists and is not a socket", path), "take another path")
		}
		conn, dialed := net.DialTimeout("unix", path, time.Second)
		if dialed == nil {
			conn.Close()
		}
		if !errors.Is(dialed, syscall.ECONNREFUSED) {
			return nil, cli.Hint(fmt.Errorf("%s is in use", path),
				"another program listens there (ss -lxp shows which); stop it, or take another path")
		}
		if err := os.Remove(path); err != nil {
			return nil, cli.Hint(fmt.Errorf("could not remove an unused socket: %w", err),
				"remove it, or take another path")
		}
		l, err = net.Listen("unix", path)
	}
	if err == nil {
		if err = os.Chmod(path, socketMode); err == nil {
			return l, nil
		}
		l.Close()
	}
	return nil, cli.Hint(fmt.Errorf("listen: %w", err),
		"the directory of the socket has to exist and be writable; a path has at most 107 bytes")

}

func itselfError(upstream *url.URL) error {
	return cli.Hint(fmt.Errorf("upstream %s is the address of fairshare itself", upstream),
		"the site has to listen on another address, such as 127.0.0.1:3000: --upstream http://127.0.0.1:3000; --listen sets the address of fairshare")

}

// checkItself returns an error if an upstream has the address of the listener.
func checkItself(listener net.Addr, rt *runtime) error {
	for _, upstream := range rt.upstreams() {
		if isItself(listener, upstream) {
			return itselfError(upstream)
		}
	}
	return nil
}

// isItself reports whether an upstream has the address of the listener: requests
// would loop.
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
		if err != nil { // the address of a name may change
			return false
		}
		hosts = []netip.Addr{addr.Unmap()}
	}
	at := own.AddrPort().Addr().Unmap()
	for _, host := range hosts {
		if host == at || at.IsUnspecified() && isLocal(host) || host.IsUnspecified() && at.IsLoopback() {
			return true
		}
	}
	return false
}

func isLocal(addr netip.Addr) bool {
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
