//go:build !unix

package outbound

import "errors"

// Supported reports whether a Pool is safe on this system.
const Supported = false

var errAgain = errors.ErrUnsupported

func readSocket(uintptr, []byte) (int, error)  { return 0, errors.ErrUnsupported }
func writeSocket(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
