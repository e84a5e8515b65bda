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
	privileged uint8 = 0                    // class of verified bots, labelled clients and clients that an operator allows
	settled    uint8 = 2                    // clients of this class and of older ones count in the search for the capacity
	newest     uint8 = uint8(len(ages) - 1) // clients that were never seen before, or within the last second
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
