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
	// looked at. If the resource is held ([Resource.Held]), it is tested as if
	// all that is held for the key were spent now, and when its group passes,
	// the request holds something until it is given back with Charge.Held.
	//
	// A request holds 1 of Errors. Of other resources it holds the greatest of
	// the recent mean cost of its key's requests, a quarter of what the limit
	// allows at once or the recent mean cost of its page's requests if that is
	// less, and a floor. The means account for at most [Limit.MostExpected], and a
	// request counts in them for at most what the limit allows at once. The floor is that
	// allowance divided by [Limit.AtOnce]. It depends on no cost, so that cheap
	// requests cannot lower it. Therefore the requests of a key together charge
	// at most the allowance and the costs of AtOnce requests.
	//
	// now may be earlier than in former calls. A time before the state of a limit
	// counts as the time of that state. If the state is further ahead than its
	// window and a minute, some clock was wrong: what is spent then counts as
	// spent now. For GCRA that is at most twice what the limit allows at once.
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
	Cost  int64  // 1 for Requests and Concurrent; 1 to the limit's N

	// DryRun keeps the take from deciding about others: the limit is in dry run.
	DryRun bool

	Page Page // for resources that are held, but Errors
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

	// Held is what is given back of what a take held, beside any Cost.
	Held int64
	// Ends says that the request is over and cost Total in all, which the means
	// learn from. Total is at least 0 and looked at with Ends only.
	Ends  bool
	Total int64
	Page  Page // as in the take; looked at with Ends only
}

// A Tally is a limiter's answer for one take. All figures are as of just
// before the take.
type Tally struct {
	Over bool  // the cost does not fit
	Used int64 // what counts against the limit now, rounded up; with what is held
	// to the first nanosecond at which the same request, alone, would pass; 0 if not Over, for
	// Concurrent, and if only what is held is in the way
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
