//go:build !unix

package outbound

// Supported is false: without a look at the socket, bytes that an upstream sent on an idle connection would be read as
// the next answer.
const Supported = false

// isQuiet cannot look at the socket.
func isQuiet(uintptr) bool { return true }
