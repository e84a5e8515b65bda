//go:build race

package census

// Under the race detector a flood is smaller, since each step is slow.
const raceDetector = true
