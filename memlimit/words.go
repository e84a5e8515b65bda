//go:build !amd64 || race

package memlimit

import "sync/atomic"

// storeWord writes a word of a set that is locked, or unlocks the set. Others may read it at any time.
func storeWord(to *uint64, word uint64) { atomic.StoreUint64(to, word) }
