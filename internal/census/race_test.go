//go:build race

package census

// Under the race detector a flood is smaller, as each step takes long.
const raceDetector = true
