package fairshare

import (
	"context"
	"time"
)

// A Limiter counts what each key has spent of the limits of one policy. It is
// made for a list of limits ([Policy.Limits]); takes and charges name a limit
// by its place in that list. It is safe for concurrent use.
//
// Errors are about the counters (out of reach, corrupt), never about the
// client: a spent limit is a [Tally] with Over set and a nil error.
type Limiter interface {
	// Take tests every limit of one request at time now and, only if none is
	// over, charges them all. tallies[i] answers takes[i]; both have the same
	// length.
	//
	// Takes with DryRun form a group of their own: the others are taken first;
	// only if these pass are the dry ones taken, among themselves. A dry take that was not asked has a zero Tally.
	//
	// A Quiet limit notes the time of every request, refused or not. A limit
	// whose resource is settled is tested and not charged; its Cost is not
	// looked at.
	//
	// The tallies of a group that passes are zero. When one of a group is
	// over, the tallies of the whole group are filled in.
	Take(ctx context.Context, now time.Time, takes []Take, tallies []Tally) error

	// Settle charges at time now what is known only after the answer, makes
	// refunds and gives slots back. Unlike Take it never refuses.
	Settle(ctx context.Context, now time.Time, charges []Charge) error
}

// A Take asks one limit for a cost. Key is not kept after the call.
type Take struct {
	Limit int    // place in the limits that the Limiter was made for
	Key   []byte // who spends; takes of one request with equal keys may share the slice
	Cost  int64  // 1 for Requests and Concurrent; 1 to the limit's N

	// DryRun keeps the take from deciding about others: the limit is in dry
	// run, or only reports for this request.
	DryRun bool
}

// A Charge settles one limit. Key is not kept after the call.
type Charge struct {
	Limit int
	Key   []byte
	// Cost above zero is charged; a charge saturates and never wraps. Below
	// zero it is a refund of what was taken at time At: off the window that
	// was charged (older than the last: nothing), or tat − c·T, never below
	// fresh. A Concurrent limit takes only −1: one slot given back.
	Cost int64
	At   time.Time // of the take that is refunded; not looked at for charges
}

// A Tally is a limiter's answer for one take. All figures are as of just
// before the take.
type Tally struct {
	Over  bool          // the cost does not fit
	Used  int64         // what counts against the limit now, rounded up
	Wait  time.Duration // to the first nanosecond at which the same request, alone, would pass; 0 if not Over and for Concurrent
	Reset time.Duration // until nothing is counted any more if nobody asks again, rounded up; 0 for Concurrent
}
