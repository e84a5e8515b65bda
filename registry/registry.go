// Package registry holds the records of a registry as plain values: what the
// clients of a site have used, how rules refused them, and what its operators
// decided about them. A [Registry] keeps these records: package sqlregistry in an
// SQLite file, package pgregistry in PostgreSQL. A server needs a [Store] only.
// Package registrytest has the tests that every Registry passes.
//
// The package has no state. Its values are copied like any struct, and their
// slices and pointers belong to the receiver.
package registry

import (
	"context"
	"errors"
	"time"

	"fairshare"
)

// A Store keeps records. It is safe for concurrent use.
//
// A Store that also has the method
//
//	Story(ctx context.Context, id string) ([]Story, error)
//
// continues stories that began before the process started: the server reads the
// recorded story before it writes a longer one. Without that method, a story of
// an earlier process is replaced.
type Store interface {
	// Write writes a whole batch or nothing. After an error the caller writes the
	// same batch again; if the first call did write it, the requests of its
	// clients are counted twice. A story replaces the recorded one with the same
	// ID, client and rule. A ban replaces an earlier one by the same rule, but not one
	// that is in force and longer: several servers may start a ban at the same time.
	Write(context.Context, Batch) error

	// Changes returns what operators have changed since a version. It is called
	// about once a second, so it must be fast if there are no changes.
	Changes(ctx context.Context, since Version) (Changes, error)

	// Overrides returns all overrides and labels of operators, also overrides
	// that have ended.
	Overrides(context.Context) ([]OverrideRecord, []Label, error)

	// Prune removes at most so many rows that are too old or too many at time
	// now. It reports whether there may be more to remove.
	Prune(ctx context.Context, now time.Time, rows int) (more bool, err error)
}

// The kinds of problems with a registry. Test for them with errors.Is.
var (
	ErrDamaged  = errors.New("damaged") // no repetition of a call can mend it
	ErrNewer    = errors.New("written by a newer version of fairshare")
	ErrMissing  = errors.New("not there")
	ErrBusy     = errors.New("locked by another process")
	ErrFull     = errors.New("no space left on the disk")
	ErrReadOnly = errors.New("cannot be written")
	ErrGone     = errors.New("moved, removed or replaced while it was in use")
	ErrAway     = errors.New("cannot be reached") // a database server
)

// ChangesStay is how long a [LiftedClient] is recorded: counters of the longest window
// last for two windows.
const ChangesStay = 2 * fairshare.MaxWindow

// A Batch is written in one transaction.
type Batch struct {
	Clients []ClientDelta
	Stories []Story
	Bans    []fairshare.BanRecord

	// At is the system's time of the call. A recorded ban that began after At comes
	// from a clock that was ahead, and a ban of this batch replaces it. A lift of
	// bans later than At does not count. Zero disables both.
	At time.Time
}

// A Version identifies a state of overrides, labels, lifted bans and forgotten
// clients. The zero Version comes before all changes. Only a Store gives the
// numbers a meaning: it compares them with those that it has now.
type Version struct {
	Overrides int64 // changes of overrides and labels so far
	Lifted    int64 // the number of the latest LiftedClient
	Bans      int64 // writes of bans so far; 0 in a store that does not report bans
}

// Changes are the changes by operators since a version.
type Changes struct {
	Version   Version        // pass it to the next call
	Overrides bool           // overrides or labels have changed: read them again
	Lifted    []LiftedClient // in order of time; empty if since is the zero Version

	// Bans are those that servers have written, also this one, in the order of their
	// writes; empty if since is the zero Version. There may be more: the next call returns
	// them. A store in a file, which has one server, reports none.
	Bans []fairshare.BanRecord
}

// A LiftedClient is a client whose bans were lifted, or whose records were all
// deleted.
type LiftedClient struct {
	Client fairshare.ClientID
	At     time.Time // it affects bans that began then or before
	Forget bool      // all records were deleted, not only bans

	// Stored is At as it is stored. Servers that share a registry read the same one, although
	// At is a time of the caller's clock. It is never zero.
	Stored time.Time
}
