package httpguard

import "time"

// A Meter measures the CPU time that the upstream spends on each request. It is
// safe for concurrent use.
type Meter interface {
	// Begin is called when the upstream begins to work on a request. path is that
	// of [fairshare.Request].
	Begin(path string) Metering
}

// A Metering measures one request in progress.
type Metering interface {
	// Spent returns the CPU time until now. It may be called from any goroutine,
	// but not after End.
	Spent() time.Duration

	// End is called once, when the upstream is done. It calls report once with the
	// whole CPU time, before it returns or soon after in another goroutine. report
	// returns quickly. After End the Metering is not used any more.
	End(report func(time.Duration))
}
