//go:build !race

package capacity

const raceDetector = false // the race detector is ten times slower
