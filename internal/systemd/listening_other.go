//go:build !unix

package systemd

import (
	"errors"
	"os"
)

func isListening(*os.File) (bool, error) { return false, errors.ErrUnsupported }
