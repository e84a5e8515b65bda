package inbound

import (
	"net"

	"golang.org/x/sys/unix"
)

// turnAway keeps new connections from coming, while those that wait to be
// accepted stay. On TCP sockets a filter drops what would begin a handshake
// (SYN without ACK): a client tries again a second later, when nobody listens
// or a successor does; handshakes under way still end well. Unix sockets
// refuse.
func turnAway(l net.Listener) {
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

// someoneWaits reports whether a connection waits to be accepted, of a TCP
// socket: one that refuses always says so.
func someoneWaits(l net.Listener) (waits bool) {
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

// canTurnAway says whether turnAway does anything.
const canTurnAway = true
