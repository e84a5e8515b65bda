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
	// whose resource is settled is tested and not charged; Take ignores its Cost.
	// If the resource is held ([Resource.Held]), the limit is tested as if all
	// that is held for the key were spent now. When its group passes, the request
	// holds an amount until Charge.Held gives it back.
	//
	// A request holds 1 of Errors. Of other resources it holds the greatest of
	// three amounts:
	//   - the recent mean cost of its key's requests;
	//   - the recent mean cost of its page's requests, but at most a quarter of
	//     what the limit allows at once;
	//   - a floor, which is what the limit allows at once divided by
	//     [Limit.AtOnce].
	//
	// The means account for at most [Limit.MostExpected]. In a mean, a request
	// counts for at most what the limit allows at once. The floor depends on no
	// cost, so cheap requests cannot lower it. Therefore the requests of a key
	// together charge at most the allowance and the costs of AtOnce requests.
	//
	// now may be earlier than in former calls. A time before the state of a limit
	// counts as the time of that state. If the state is further ahead than its
	// window and a minute, some clock was wrong. Then its counts stay and continue as
	// of now; those of GCRA become at most twice what the limit allows at once.
	//
	// The tallies of a group that passes are zero but for Held and Expected.
	// When one of a group is over, the tallies of the whole group are filled in
	// and nothing is held.
	Take(ctx context.Context, now time.Time, takes []Take, tallies []Tally) error

	// Settle charges at time now what is known only after the answer, makes
	// refunds and gives slots back. Unlike Take it never refuses.
	Settle(ctx context.Context, now time.Time, charges []Charge) error
}

// A Take asks one limit for a cost. Key is not kept after the call.
type Take struct {
	Limit int    // place in the limits that the Limiter was made for
	Key   []byte // who spends; takes of one request with equal keys may share the slice
	Cost  int64  // 1 for Requests and Concurrent; else 1 to the limit's N

	// Every replaces the rate of a GCRA limit: one unit in each Every, and as many
	// units at once as the limit allows. 0 means the limit's own rate. See [Limit.Paced].
	Every time.Duration

	// DryRun keeps the take from deciding about others: the limit is in dry run.
	DryRun bool

	Page Page // for resources that are held, but Errors
}

// A Charge settles one limit. Key is not kept after the call.
type Charge struct {
	Limit int
	Key   []byte
	// Cost above zero is charged; a charge saturates and never wraps. A Cost
	// below zero is a refund of what was taken at time At. It is subtracted from
	// the window that was charged, if that is the present or the last one, or
	// from the TAT of GCRA (tat − c·T). The result is never below that of a fresh
	// state. A Concurrent limit takes only −1, which gives one slot back.
	Cost int64
	At   time.Time // of the take that is refunded; ignored for charges

	Every time.Duration // as in the take that is refunded

	// Held is the part of the amount held by a take that is given back. Cost is
	// independent of it.
	Held int64
	// Ends says that the request is over. Total is its whole cost, at least 0, and
	// enters the means. It is ignored without Ends.
	Ends  bool
	Total int64
	Page  Page // as in the take; ignored without Ends
}

// A Tally is a limiter's answer for one take. All figures are as of just
// before the take.
type Tally struct {
	Over bool  // the cost does not fit
	Used int64 // what counts against the limit now, rounded up; with what is held
	// Wait is the time to the first nanosecond at which the same request, alone, would pass. It is
	// 0 if not Over, for Concurrent, and if only requests in progress keep the request out. It is
	// the window if the limit's N is 0.
	Wait  time.Duration
	Reset time.Duration // until nothing is counted any more if nobody asks again, rounded up; 0 for Concurrent

	// Held is what a take that passed holds until it is given back. Of a take
	// that did not pass it is the part of Used that requests in progress of the
	// key hold. 0 for resources that are not held.
	Held int64
	// Expected is the part of Held that the means account for; the rest is the floor's.
	Expected int64
}

// Spent returns the part of Used that requests which have ended have spent.
func (t *Tally) Spent() int64 { return max(0, t.Used-t.Held) }
