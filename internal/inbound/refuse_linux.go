package inbound

import (
	"net"

	"golang.org/x/sys/unix"
)

// refuseNew makes the kernel refuse new connections. Those that wait to be accepted
// stay. On TCP sockets a filter drops the packets that begin a handshake (SYN without
// ACK). The client tries again a second later, when the socket is closed or a successor
// listens. Handshakes in progress succeed. Unix sockets refuse connections at once.
func refuseNew(l net.Listener) {
	switch l.(type) {
	case *net.TCPListener:
		// Offsets count from the TCP header; 13 holds its flags.
		const syn, synACK = 0x02, 0x12
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: synACK},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: syn},
			{Code: unix.BPF_RET | unix.BPF_K, K: 0},
			{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		control(l, func(fd int) { unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program) })
	case *net.UnixListener:
		control(l, func(fd int) { unix.Shutdown(fd, unix.SHUT_RD) })
	}
}

// hasQueued reports whether a connection waits to be accepted. It is always false for
// other sockets than TCP: a Unix socket that refuses would always report one.
func hasQueued(l net.Listener) (waits bool) {
	if _, ok := l.(*net.TCPListener); !ok {
		return false
	}
	control(l, func(fd int) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		waits = err == nil && n > 0 && poll[0].Revents&unix.POLLHUP == 0
	})
	return waits
}

// canRefuse reports whether refuseNew has an effect.
const canRefuse = true
