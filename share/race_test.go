//go:build race

package share

// The simulations have one goroutine: the race detector finds nothing in them,
// and has fewer to look at.
const raceDetector = true
