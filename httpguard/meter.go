package httpguard

import "time"

// A Meter tells how much CPU time the upstream spends on each request. It is
// safe for concurrent use.
type Meter interface {
	// Begin is called when the upstream begins to work on a request for a
	// path, as Request.Path has it.
	Begin(path string) Metering
}

// A Metering is one request that the upstream works on.
type Metering interface {
	// Spent returns the CPU time so far. It may be asked from any goroutine,
	// before End is called.
	Spent() time.Duration

	// End is called once, when the upstream is done. told is called once with
	// all CPU time: before End returns, or soon after by another goroutine,
	// which it must not hold up. Nothing of the Metering is used after End.
	End(told func(time.Duration))
}
