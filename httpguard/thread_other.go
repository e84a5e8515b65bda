//go:build !linux

package httpguard

import "time"

func threadID() int { return 0 }

func ownThreadClock() (time.Duration, bool) { return 0, false }

func threadClock(int) (time.Duration, bool) { return 0, false }
