//go:build !unix

package systemd

import (
	"errors"
	"os"
)

func isListening(*os.File) (listens, streams bool, err error) {
	return false, false, errors.ErrUnsupported
}
