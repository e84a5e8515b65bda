//go:build !unix

package socket

import "errors"

const Supported = false

var ErrAgain = errors.ErrUnsupported

func Read(uintptr, []byte) (int, error)  { return 0, errors.ErrUnsupported }
func Write(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
