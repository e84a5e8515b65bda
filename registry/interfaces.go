package registry

import (
	"context"
	"iter"
	"time"

	"fairshare"
)

// A Registry keeps all records of a site: those that servers write, and what
// operators decide. It is safe for concurrent use, also by several processes on the
// same records.
//
// An error has a method Hint() string if there is something to do about it. Only an
// error that the context caused may be without one of the kinds [ErrDamaged] to
// [ErrAway], [ErrArgument] or [key.ErrNoClient]; other problems have no kind.
type Registry interface {
	Reader
	Decisions
	Store

	SetSettings(context.Context, Settings) error
	SetHolder(context.Context, Holder) error
	// SetFleets records the fleets that a server has found, in place of earlier ones.
	SetFleets(context.Context, []FleetRecord) error

	// Close waits for calls in progress. Other calls fail from then on.
	Close() error
}

// A Reader reads the records of a Registry. Reads never wait for writes.
type Reader interface {
	// Client returns the records about a client, nil if there are none.
	Client(context.Context, fairshare.ClientID) (*Found, error)
	// Clients returns the clients that a query selects.
	Clients(context.Context, Query) ([]ClientRecord, error)
	// Provisional returns the recorded provisional clients within a prefix, at most
	// limit: first those of just this prefix, then in the order of their addresses.
	Provisional(ctx context.Context, id fairshare.ClientID, limit int) ([]fairshare.ClientID, error)
	// Heaviest returns the clients within a prefix with the most requests, the most
	// first. The prefix itself is not among them.
	Heaviest(ctx context.Context, id fairshare.ClientID, limit int) ([]ClientRecord, error)
	// FirstSeen calls seen for each client that has sent a request, with the time of the
	// first one, in the order in which they came. It stops when seen returns false. It
	// holds no lock: it may miss a client that is written in the meantime.
	FirstSeen(ctx context.Context, seen func(client fairshare.ClientID, first time.Time) bool) error
	// Sums calls seen for each client that has sent a request, as FirstSeen does.
	Sums(ctx context.Context, seen func(*ClientSum) bool) error
	// TotalTime returns the upstream's time that all recorded clients used together.
	TotalTime(context.Context) (time.Duration, error)

	// Bans yields the bans in force at now, or all recorded bans, in the order of
	// clients. It holds no lock while it yields: it may miss a ban that is written in
	// the meantime. It ends after an error.
	Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.BanRecord, error]
	// Lifted returns the clients that were lifted or forgotten at a time or later, in
	// order of time.
	Lifted(ctx context.Context, since time.Time) ([]LiftedClient, error)

	// Story returns the stories of a reference, the latest first: usually one or none,
	// at most 100.
	Story(ctx context.Context, id string) ([]Story, error)
	// Stories returns the latest stories of the clients within a prefix, or of a bot, the
	// latest first. A limit of 0 means 50.
	Stories(ctx context.Context, id fairshare.ClientID, limit int) ([]Story, error)

	// Overrides returns all overrides and labels of operators, in the order of clients.
	// They include overrides that have ended.
	Overrides(context.Context) ([]OverrideRecord, []Label, error)
	AttackMode(context.Context) (AttackMode, error) // the last one of SetAttackMode, also one that has ended
	Settings(context.Context) (Settings, error)     // the last ones of SetSettings
	Holder(context.Context) (Holder, error)         // the last one of SetHolder
	Fleets(context.Context) ([]FleetRecord, error)  // those of the last SetFleets
	ReferenceKey(context.Context) ([]byte, error)   // 32 random bytes, created with the registry
	Stats(context.Context) (Stats, error)           // numbers of rows
}

// Decisions are the changes by operators. They are on the disk when the method
// returns.
type Decisions interface {
	// SetOverride sets an operator's override for a client, and replaces an earlier one.
	SetOverride(context.Context, OverrideRecord) error
	// RemoveOverride deletes the override of a client and returns it, nil if there was
	// none.
	RemoveOverride(context.Context, fairshare.ClientID) (*OverrideRecord, error)
	// Label sets a label of a client. It does nothing if the client has it.
	Label(context.Context, Label) error
	// Unlabel removes a label of a client, or all if name is "". It returns the removed
	// labels.
	Unlabel(ctx context.Context, id fairshare.ClientID, name string) ([]string, error)
	// Note sets the note on a client; "" removes it.
	Note(ctx context.Context, id fairshare.ClientID, text string) error
	// SetAttackMode writes what an operator has decided. Changes reports it as a change
	// of overrides.
	SetAttackMode(context.Context, AttackMode) error
	// Lift deletes the bans by rules of every client within a prefix, or of a bot, and
	// returns them. It affects only bans that began at that time or before; from then
	// on, Write ignores these.
	Lift(ctx context.Context, id fairshare.ClientID, at time.Time) ([]fairshare.BanRecord, error)
	// Reset is Lift, and has servers forget what limits have counted for these clients.
	// Their records stay, but for the requests of the last seconds.
	Reset(ctx context.Context, id fairshare.ClientID, at time.Time) ([]fairshare.BanRecord, error)
	// Forget deletes all records of every client within a prefix, or of a bot. From then
	// on, Write ignores bans that began at that time or before.
	Forget(ctx context.Context, id fairshare.ClientID, at time.Time) (Forgotten, error)
}

// Bounds bound a Registry. 0 means the default. Write exceeds those of clients and
// stories by at most a sixteenth.
type Bounds struct {
	Clients int           // 1,000,000; bans and overrides can add more
	Stories int           // 100,000; a network (IPv4 /16, IPv6 /32) has at most a tenth
	Bans    int           // 1,048,576, including those that have ended
	Age     time.Duration // 90 days; older records are removed
}

// WithDefaults returns b with each 0 replaced by its default.
func (b Bounds) WithDefaults() Bounds {
	if b.Clients <= 0 {
		b.Clients = 1_000_000
	}
	if b.Stories <= 0 {
		b.Stories = 100_000
	}
	if b.Bans <= 0 {
		b.Bans = 1 << 20
	}
	if b.Age <= 0 {
		b.Age = 90 * 24 * time.Hour
	}
	return b
}
