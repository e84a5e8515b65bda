package redislimit

import (
	"math/rand/v2"
	"testing"
)

func TestSlotsAreThoseOfTheCluster(t *testing.T) {
	for tag, want := range map[string]int{"": 0, "123456789": 0x31c3, "foo": 12182, "user1000": 3443} {
		if got := slotOf(tag); got != want {
			t.Errorf("%q is in slot %d, want %d", tag, got, want)
		}
	}
	for range 1000 {
		tag := rand.Uint64() & (1<<tagBits - 1)
		if got, want := slotOfTag(tag), slotOf(tagText(tag)); got != want {
			t.Errorf("tag %#x is in slot %d, want %d", tag, got, want)
		}
	}
}
