package inbound

import "golang.org/x/sys/unix"

// canSeeHangup reports whether isHungUp works.
const canSeeHangup = true

// isHungUp reports whether the peer of a socket has closed it, even if some of what it sent before was not read.
func isHungUp(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return err == nil && p[0].Revents != 0
		}
	}
}
