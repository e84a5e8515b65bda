//go:build !linux

package cputime

import "errors"

func openSource(Options) (source, error) {
	return nil, errors.New("CPU time is read on Linux only")
}
