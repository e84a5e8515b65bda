//go:build race

package fairshare_test

// Under the race detector sync.Pool drops what it is given now and then.
const raceDetector = true
