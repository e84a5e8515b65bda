package inbound

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// canSeeHangups reports whether hangups work.
const canSeeHangups = true

// hangups asks the kernel to report when clients leave, even if they have sent more that was not read.
// That costs nothing while they stay. The methods may be called from any goroutine.
type hangups struct {
	mu     sync.Mutex
	file   *os.File // of epoll; nil: not needed yet
	fd     int
	conns  map[uint64]*fastConn
	last   uint64 // id of a connection; ids are not used again
	closed bool
}

// add begins to watch a socket and returns an id for remove, 0 if that fails. If its client has left or
// leaves, c.hungUp is called.
func (h *hangups) add(c *fastConn, raw syscall.RawConn) (id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.file == nil && !h.open() {
		return 0
	}
	h.last++
	id = h.last
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(id), Pad: int32(id >> 32)}
	var err error
	if raw.Control(func(fd uintptr) { err = unix.EpollCtl(h.fd, unix.EPOLL_CTL_ADD, int(fd), &event) }) != nil ||
		err != nil {
		return 0
	}
	h.conns[id] = c
	return id
}

// open opens the file. mu is held.
func (h *hangups) open() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	unix.SetNonblock(fd, true) // so that waiting for it occupies no thread
	h.fd, h.file = fd, os.NewFile(uintptr(fd), "epoll")
	h.conns = make(map[uint64]*fastConn)
	raw, err := h.file.SyscallConn()
	if err != nil {
		h.file.Close()
		h.file = nil
		return false
	}
	go h.run(raw)
	return true
}

// remove ends the watch of a socket. The kernel forgets the socket when it is closed.
func (h *hangups) remove(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, id)
}

// run reports events until the file is closed.
func (h *hangups) run(raw syscall.RawConn) {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			var err error
			if n, err = unix.EpollWait(int(fd), events, 0); err == unix.EINTR {
				n = 0
			} else {
				failed = err
			}
			return n > 0 || err != nil
		})
		if err != nil || failed != nil {
			return
		}
		for _, e := range events[:n] {
			h.mu.Lock()
			c := h.conns[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
			h.mu.Unlock()
			if c != nil {
				c.hungUp()
			}
		}
	}
}

// close ends the watch of all sockets.
func (h *hangups) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}
