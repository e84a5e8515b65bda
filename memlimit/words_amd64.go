//go:build !race

package memlimit

// storeWord writes a word of a set that is locked, or unlocks the set. Others may read it at any time. On amd64 a
// plain store of an aligned word is whole and never passes an earlier one, which is all that they rely on. An atomic
// store is an exchange there, which waits for all stores before it.
func storeWord(to *uint64, word uint64) { *to = word }
