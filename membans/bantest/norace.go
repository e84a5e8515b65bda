//go:build !race

package bantest

// raceDetector says that the race detector is off.
const raceDetector = false
