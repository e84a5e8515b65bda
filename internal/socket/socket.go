// Package socket reads and writes the sockets of connections whose waiting their caller does, such as in the
// callbacks of a [syscall.RawConn].
package socket

// mostBytes bounds what one call reads or writes. The scheduler cannot stop a thread during a call, and 16 MiB would
// take milliseconds.
const mostBytes = 64 << 10

// Supported reports whether Read and Write work on this system. Otherwise they return [errors.ErrUnsupported].
const Supported = supported

// Read reads from a socket that never blocks, at most 64 KiB, and does not wait: then its error is ErrAgain. It
// returns 0 without an error at the end of what the peer sends, or if b is empty. Other errors are those of package
// syscall.
//
// On Linux the scheduler does not learn of the call, which is much shorter than the time after which it would start
// another thread.
func Read(fd uintptr, b []byte) (int, error) { return read(fd, b[:min(len(b), mostBytes)]) }

// Write writes what the kernel takes at once to a socket that never blocks, at most 64 KiB. It works as Read does. A
// caller with more bytes calls it again, until ErrAgain.
func Write(fd uintptr, b []byte) (int, error) { return write(fd, b[:min(len(b), mostBytes)]) }
