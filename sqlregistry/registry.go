// Package sqlregistry keeps what is remembered of clients in one SQLite file:
// who they are, what they had, the bans that rules brought about, the stories
// of their refusals, and what operators have said. Start with [Open], which
// returns a [Registry].
//
// What the file promises:
//
//   - Any number of processes may use it at once: a server, commands, another
//     server. All methods are safe for concurrent use by goroutines, too.
//   - What an operator says ([Registry.Say], Unsay, Lift, Label, Unlabel, Note,
//     Forget) is on the disk, synced, when the method returns.
//   - What [Registry.Write] wrote outlives the process, however it ends. A
//     power failure may cost what was written since the system last wrote its
//     dirty pages, as a rule the last half minute; never more than that, and
//     never the file.
//   - Reading never waits for writing, nor writing for reading.
//   - It is bounded ([Options]); [Registry.Prune] keeps it so.
//   - A fault is an [*Error] that names the file and says what to do.
//
// Time is an argument everywhere.
package sqlregistry

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"time"

	"fairshare"
)

// Options says how to open a registry. The zero Options is for writing.
type Options struct {
	ReadOnly  bool // never creates, never migrates, never writes
	MustExist bool // never creates

	// Bounds that Prune keeps; 0 stands for the default.
	Clients int           // 1,000,000
	Stories int           // 100,000; a network holds at most a tenth
	Bans    int           // 1,048,576, former ones too
	Age     time.Duration // 90 days; what was not seen for longer goes

	Log func(string) // nil: nothing is said
}

// A Registry is an open registry. It is safe for concurrent use.
type Registry struct{}

// Open opens the registry in a file and, unless told otherwise, makes it if
// there is none. A registry of an older version is copied beside itself
// ("registry.db.v1") and brought up to date.
func Open(ctx context.Context, path string, o Options) (*Registry, error) {
	return nil, errors.New("not yet")
}

// Close waits for calls in progress and closes the file.
func (r *Registry) Close() error { return nil }

// The kinds of an [Error].
var (
	ErrDamaged  = errors.New("damaged")
	ErrNewer    = errors.New("written by a newer version")
	ErrNotThere = errors.New("not there")
	ErrBusy     = errors.New("locked by another process")
	ErrFull     = errors.New("no space left")
	ErrReadOnly = errors.New("may not be written")
)

// An Error is a fault of a registry's file. errors.Is tells its kind.
type Error struct {
	Path string
	Kind error  // ErrDamaged, …; nil for any other
	What string // "" when Kind says it all
	hint string
}

func (e *Error) Error() string { return "registry " + e.Path }

// Hint says what to do; "" when there is nothing to say.
func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() error { return e.Kind }

// Say sets an operator's word about a client, in place of an earlier one.
func (r *Registry) Say(ctx context.Context, said fairshare.Said) error { return nil }

// Unsay takes the word about a client back and returns what it was, nil when
// there was none.
func (r *Registry) Unsay(ctx context.Context, id fairshare.ClientID) (was *fairshare.Said, err error) {
	return nil, nil
}

// Label sets a label.
func (r *Registry) Label(ctx context.Context, label fairshare.Label) error { return nil }

// Unlabel removes a label of a client, "" all of them, and returns those that
// it had.
func (r *Registry) Unlabel(ctx context.Context, id fairshare.ClientID, name string) (removed []string, err error) {
	return nil, nil
}

// Note sets the note on a client; "" removes it.
func (r *Registry) Note(ctx context.Context, id fairshare.ClientID, text string) error { return nil }

// Lift ends and forgets the bans by rules of every client within a prefix, or
// of a bot, and returns what was forgotten. Bans that began at that time or
// before are not written any more.
func (r *Registry) Lift(ctx context.Context, id fairshare.ClientID, at time.Time) (lifted []fairshare.Banned, err error) {
	return nil, nil
}

// Forgotten says how much Forget forgot.
type Forgotten struct {
	Clients, Bans, Stories, Labels int
	Said                           bool // there was a word
}

// Forget forgets everything of every client within a prefix, or of a bot.
func (r *Registry) Forget(ctx context.Context, id fairshare.ClientID, at time.Time) (Forgotten, error) {
	return Forgotten{}, nil
}

// Words returns all words and labels of operators. A word may have ended.
func (r *Registry) Words(ctx context.Context) (words []fairshare.Said, labels []fairshare.Label, err error) {
	return nil, nil, nil
}

// A Query selects clients.
type Query struct {
	Sort  string // "requests" (also ""), "refused", "cpu" or "last-seen"; the most first
	Bot   string // only those taken for that bot; "" for all
	Label string // only those that have it themselves; "" for all
	Limit int    // 0 means 50
}

// Clients returns the clients that a query selects.
func (r *Registry) Clients(ctx context.Context, q Query) ([]fairshare.ClientRecord, error) {
	return nil, nil
}

// Found is what is known of a client.
type Found struct {
	Record  fairshare.ClientRecord // of just this client; its FirstSeen is zero when it was never seen
	Within  []fairshare.Said       // words on wider prefixes that hold it, the longest first
	Labels  []fairshare.Label      // of wider prefixes that hold it
	Bans    []fairshare.Banned     // its own, those of networks that hold it, and those within; at most 100
	Stories []fairshare.Story      // its own and those within, the latest first; at most 100
	Inside  int                    // clients seen within it beside itself, counted up to 1,000
}

// Client returns what is known of a client, nil when nothing is.
func (r *Registry) Client(ctx context.Context, id fairshare.ClientID) (*Found, error) {
	return nil, nil
}

// Bans yields the bans that are in force at a time, or all that are remembered,
// in the order of clients. It holds no lock while it yields: a ban that begins
// meanwhile may be missed.
func (r *Registry) Bans(ctx context.Context, now time.Time, all bool) iter.Seq2[fairshare.Banned, error] {
	return nil
}

// Story returns the stories that a reference leads to: as a rule one or none.
func (r *Registry) Story(ctx context.Context, id string) ([]fairshare.Story, error) { return nil, nil }

// Stories returns the latest stories of the clients within a prefix, or of a
// bot, the latest first. A limit of 0 means 50.
func (r *Registry) Stories(ctx context.Context, id fairshare.ClientID, limit int) ([]fairshare.Story, error) {
	return nil, nil
}

// A Batch is written whole or not at all.
type Batch struct {
	Clients []Dirty
	Stories []fairshare.Story
	Bans    []fairshare.Banned
}

// A Dirty is what is new of a client: its Spent is added to what is known,
// FirstSeen and LastSeen widen it, and UserAgent, Bot and BotState take the
// place of what was known. What operators set is not looked at.
type Dirty = fairshare.ClientRecord

// Write writes a batch.
func (r *Registry) Write(ctx context.Context, b Batch) error { return nil }

// A Version is a state of operators' words, and of what they lifted and
// forgot. The zero Version is before all.
type Version struct{ words, lifted int64 }

// Changes is what operators did since a version.
type Changes struct {
	Version Version        // ask with it the next time
	Words   bool           // words or labels: read them again
	Lifted  []LiftedClient // in the order in which it was done; none since the zero Version
}

// A LiftedClient is a client whose bans were lifted, or all of whom was
// forgotten. It is remembered for a day.
type LiftedClient struct {
	Client fairshare.ClientID
	At     time.Time // bans that began then or before are meant
	Forget bool
}

// Changes tells what operators did since a version. When that is nothing it
// costs some µs.
func (r *Registry) Changes(ctx context.Context, since Version) (Changes, error) {
	return Changes{}, nil
}

// Prune removes at most that many rows: what is too old, then what is over
// the bounds. It reports whether there may be more to do.
func (r *Registry) Prune(ctx context.Context, now time.Time, rows int) (more bool, err error) {
	return false, nil
}

// Settings is what a server tells the commands that work on its registry.
type Settings struct {
	Policy         string // its file; "" for the built-in one
	Contact        string
	TrustedProxies []netip.Prefix
	IPv4Prefix     int      // bits that make one client; 0: not known
	IPv6Prefix     int      // likewise
	Bots           []string // names of bots that it knows
}

// Settings returns what SetSettings wrote last, the zero Settings when nothing.
func (r *Registry) Settings(ctx context.Context) (Settings, error) { return Settings{}, nil }

// SetSettings writes a server's settings.
func (r *Registry) SetSettings(ctx context.Context, s Settings) error { return nil }

// ReferenceKey returns the key of references: 32 random bytes, made once with
// the file.
func (r *Registry) ReferenceKey(ctx context.Context) ([]byte, error) { return nil, nil }

// Stats says how much a registry holds.
type Stats struct {
	Clients, Bans, Stories, Labels, Words int64
	Bytes                                 int64 // of the files
}

// Stats returns how much the registry holds.
func (r *Registry) Stats(ctx context.Context) (Stats, error) { return Stats{}, nil }
