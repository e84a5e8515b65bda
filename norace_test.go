//go:build !race

package fairshare_test

const raceDetector = false
