//go:build !unix

package socket

import "errors"

const supported = false

// ErrAgain is the error of Read and Write if they would have to wait.
var ErrAgain = errors.ErrUnsupported

func read(uintptr, []byte) (int, error)  { return 0, errors.ErrUnsupported }
func write(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
