//go:build !linux

package inbound

// canSeeHangup reports whether isHungUp works.
const canSeeHangup = false

// isHungUp always returns false.
func isHungUp(uintptr) bool { return false }
