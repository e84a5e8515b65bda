package policyfile

import "testing"

// inOneGoroutine skips a long test with -short, as CI runs it under the race detector, which finds nothing in one
// goroutine. CI runs it without the detector.
func inOneGoroutine(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
}
