//go:build !linux

package memlimit

// useLargePages does nothing: the system chooses the pages.
func useLargePages([]byte) {}
