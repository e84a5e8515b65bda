package registry

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"fairshare"
)

// A Query selects clients. The zero Query selects the 50 with the most requests.
type Query struct {
	// Sort is "requests" (also ""), "refused", "blocked", "dry-run", "cpu", "time", "bytes", "errors" or
	// "last-seen", the most or latest first, or "client", in ascending order. Clients
	// with equally many refused requests are sorted by those in dry run, clients with
	// equal cpu, time, bytes or errors by requests.
	Sort string

	Bot    string // only clients recognised as that bot; "" for all
	Label  string // only clients that have the label themselves; "" for all
	Sticky bool   // only clients with an override, a label or a note
	Limit  int    // 0 means 50
}

// ErrArgument is wrapped by errors that are the caller's mistake.
var ErrArgument = errors.New("not possible")

// Compare returns how [Query.Sort] orders two records, as slices.SortFunc needs it: 0 if
// they are equal, and for "client" always. An unknown order is an [ErrArgument].
func Compare(sort string) (func(a, b *ClientRecord) int, error) {
	var most, then func(*ClientRecord) int64
	requests := func(r *ClientRecord) int64 { return r.Spent.Requests }
	switch sort {
	case "", "requests":
		most = requests
	case "refused":
		most = func(r *ClientRecord) int64 { return r.Spent.Refused }
		then = func(r *ClientRecord) int64 { return r.Spent.DryRun }
	case "cpu":
		most, then = func(r *ClientRecord) int64 { return int64(r.Spent.CPU) }, requests
	case "blocked":
		most = func(r *ClientRecord) int64 { return r.Spent.Blocked }
	case "dry-run":
		most = func(r *ClientRecord) int64 { return r.Spent.DryRun }
	case "time":
		most, then = func(r *ClientRecord) int64 { return int64(r.Spent.Time) }, requests
	case "bytes":
		most, then = func(r *ClientRecord) int64 { return r.Spent.Bytes }, requests
	case "errors":
		most, then = func(r *ClientRecord) int64 { return r.Spent.Errors }, requests
	case "client":
		return func(_, _ *ClientRecord) int { return 0 }, nil
	case "last-seen":
		return func(a, b *ClientRecord) int { return b.LastSeen.Compare(a.LastSeen) }, nil
	default:
		return nil, fmt.Errorf("sorting by %q is %w: client, requests, refused, blocked, dry-run, cpu, time, "+
			"bytes, errors and last-seen are", sort, ErrArgument)
	}
	return func(a, b *ClientRecord) int {
		c := cmp.Compare(most(b), most(a))
		if c == 0 && then != nil {
			c = cmp.Compare(then(b), then(a))
		}
		return c
	}, nil
}

// Found holds all records about a client.
type Found struct {
	Record  ClientRecord          // of just this client; FirstSeen is zero if it never sent a request
	Within  []OverrideRecord      // of wider prefixes that contain it, the longest first
	Labels  []Label               // of wider prefixes that contain it, the longest first
	Bans    []fairshare.BanRecord // its own, and of clients that contain it or are within it; at most 100
	Stories []Story               // its own and of clients within it, the latest first; at most 100
	Inside  int                   // other clients within it, counted up to 1,000
}

// A ClientSum is what one client has spent, and the fleet that it belonged to.
type ClientSum struct {
	Client fairshare.ClientID
	Spent  Spent
	Fleet  string // "" for none
	Bot    string // that its latest user agent names; "" for none
	State  fairshare.BotState
	Last   time.Time // of its latest request
}

// Forgotten counts the records that Forget deleted.
type Forgotten struct {
	Clients, Bans, Stories, Labels int
	Override                       bool // there was an override
}

// Stats counts the rows of a registry.
type Stats struct {
	Clients, Bans, Stories, Labels, Overrides int64
	Bytes                                     int64 // of its files or tables
}
