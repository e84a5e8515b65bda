//go:build !race

package capacity

const raced = false // the race detector is ten times slower
