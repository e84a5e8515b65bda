//go:build !linux

package cputime

import "errors"

func openSource(Options) (source, error) {
	return nil, errors.New("CPU time can be read only on Linux")
}
