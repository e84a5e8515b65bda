//go:build race

package bantest

// raceDetector says that the race detector is on.
const raceDetector = true
