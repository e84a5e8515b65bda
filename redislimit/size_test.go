package redislimit

import (
	"testing"
	"unsafe"
)

// entryBytes bounds the memory of the book: an entry, and its slots of an index that is
// at least half full.
func TestEntriesTakeTheMemoryThatTheBookCounts(t *testing.T) {
	if size := unsafe.Sizeof(entry{}) + 16; size > entryBytes {
		t.Errorf("an entry takes %d bytes, and %d are counted", size, entryBytes)
	}
}
