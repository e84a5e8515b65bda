//go:build !race

package census

const raceDetector = false
