//go:build race

package capacity

const raceDetector = true
