//go:build race

package share

// The simulations have one goroutine, so the race detector cannot find anything in them. With it,
// fewer simulations run.
const raceDetector = true
