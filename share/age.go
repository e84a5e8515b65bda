package share

import "time"

// ages are the classes of clients, oldest first: how long ago the first request of a client must be
// for the class. Each class that waits is guaranteed half of the slots and of the queue that the
// older classes leave. So a flood of clients that never come back shares the last class with first
// visits, and nothing else.
var ages = [...]time.Duration{
	24 * time.Hour, time.Hour, 10 * time.Minute, time.Minute, 10 * time.Second, time.Second, 0,
}

const (
	// privileged is the class of verified bots, labelled clients and clients that an operator allows.
	privileged uint8 = 0

	// settled is the newest class whose clients count as known in the search for the capacity.
	settled uint8 = 2

	// seenBefore is the newest class whose clients were seen before, in this search: for 10 seconds.
	seenBefore uint8 = 4

	// newest is the class of clients that were first seen within the last second.
	newest = uint8(len(ages) - 1)
)

// classOf returns the class of a client whose first request is so long ago.
func classOf(age time.Duration) uint8 {
	for i, least := range ages {
		if age >= least {
			return uint8(i)
		}
	}
	return newest
}
