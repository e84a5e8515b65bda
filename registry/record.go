package registry

import (
	"net/netip"
	"time"

	"fairshare"
)

// A ClientRecord holds all that is recorded of one client.
type ClientRecord struct {
	Client    fairshare.ClientID
	FirstSeen time.Time // its first request; zero if it never sent one
	LastSeen  time.Time
	Spent     Spent
	UserAgent string // the latest, cut
	Bot       string // name of the bot that it was last recognized as; "" for no bot
	BotState  fairshare.BotState
	Fleet     string // that its latest request belonged to; "" for none

	Labels   []string
	Note     string          // an operator's; "" for none
	Override *OverrideRecord // nil for none
	Sticky   bool            // it has an override, a label or a note: the record stays as long as it has one
}

// A ClientDelta is an update of a client's record. Spent is added to the recorded
// values, FirstSeen and LastSeen widen the recorded times, and UserAgent, Bot,
// BotState and Fleet replace the recorded ones. The fields that operators set are ignored.
type ClientDelta = ClientRecord

// Spent is the sum of what a client has used. Recorded sums never decrease.
type Spent struct {
	Requests int64         // all, including those that were refused or blocked
	Refused  int64         // requests
	Blocked  int64         // requests
	DryRun   int64         // requests that passed only because of a dry run
	CPU      time.Duration // of the upstream
	Time     time.Duration // that the upstream took
	Bytes    int64         // of response bodies
	Errors   int64         // answers of the upstream with a status from 400 to 499
}

// Add adds other to s.
func (s *Spent) Add(other Spent) {
	s.Requests += other.Requests
	s.Refused += other.Refused
	s.Blocked += other.Blocked
	s.DryRun += other.DryRun
	s.CPU += other.CPU
	s.Time += other.Time
	s.Bytes += other.Bytes
	s.Errors += other.Errors
}

// An OverrideRecord is an operator's decision about a client, as it is recorded.
// A client has at most one. [fairshare.Override] is what such decisions mean for
// one request.
type OverrideRecord struct {
	Client fairshare.ClientID

	// Action is Allow for a client that no rule bans, blocks or limits, Refuse for
	// one that is banned until Until, and Block for one that is banned forever.
	Action fairshare.Action

	Since  time.Time // when the operator decided
	Until  time.Time // when it ends; zero: never
	Reason string    // "" if the operator gave none
}

// A Label is an operator's mark on a client.
type Label struct {
	Client fairshare.ClientID
	Name   string // in lower case
}

// A Story sums up how one rule refused one client. An operator finds it by the
// reference that the client was shown.
type Story struct {
	ID       string // the reference
	Client   fairshare.ClientID
	Addr     netip.Addr // the latest
	Bot      string     // "" if the client is not a known bot
	BotState fairshare.BotState

	Rule   string             // its name
	Action fairshare.Action   // Refuse or Block
	Ban    fairshare.BanState // of the latest refusal
	DryRun bool               // the requests passed because of a dry run
	Status int                // of the answer
	First  time.Time          // the first refusal
	Last   time.Time          // the latest one
	Count  int64              // refusals
	Until  time.Time          // when the client may come back; zero for a block

	// What the limit counted at its latest refusal, before a ban was in force.
	// Zero for a block.
	By       string // the limit's key as a policy file spells it: "addr"
	Resource string // as a policy file spells it: "requests"
	Used     int64  // in the resource's unit
	Allowed  int64  // likewise
	Window   time.Duration

	// The latest request. Texts are cut, and the query is left out.
	Method, Host, Path, UserAgent string

	// Robots says which line of robots.txt the refusal is based on, or the latest one before
	// a ban in force: "line 12, Disallow: /private". "" means none, or an older version recorded it.
	Robots string

	// The request that started the latest ban, cut likewise. BanBegan is zero
	// if there was no ban, or if an older version recorded it.
	BanBegan           time.Time
	BanMethod, BanPath string
}

// An AttackMode is an operator's decision that the site is under attack: for a
// while newcomers wait first, and limits for a busy upstream hold. The zero
// AttackMode is off.
type AttackMode struct {
	Since, Until time.Time // Until is zero if the mode was turned off at Since
	By           string    // the operator's name on the system; may be empty
	Reason       string    // for operators; may be empty
}

// IsOn reports whether the mode is on at a time.
func (m *AttackMode) IsOn(now time.Time) bool { return now.Before(m.Until) }

// A FleetRecord is a fleet as a server has published it; see package fleets.
type FleetRecord struct {
	Name      string
	Since     time.Time // when it was found, by the system's clock
	Last      time.Time // its latest request
	Ended     bool
	Shared    string // what its clients have in common
	Evidence  string // why they are a fleet
	Addresses int64  // an estimate
	Networks  int64  // an estimate
	Requests  int64  // for pages
	Refused   int64  // or blocked
}

// Settings are the facts about a server that commands on its registry need. The zero
// Settings mean that they are unknown.
type Settings struct {
	Policy         string // its file; "" for the built-in one
	Contact        string
	TrustedProxies []netip.Prefix
	IPv4Prefix     int      // bits of a client's prefix; 0: unknown
	IPv6Prefix     int      // likewise
	Bots           []string // names of bots in its table
	DryRun         bool     // it refuses no request
	Owners         []string // files with the owners of addresses, absolute
	Hosting        string   // file with the numbers of owners of the type hosting; "" for none
}

// A Holder says which client, network, owner or fleet holds most of a busy upstream.
// The zero Holder says that none does.
type Holder struct {
	Text string    // such as "network 203.0.113.0/24 holds 81 % of the upstream"
	At   time.Time // of the report; the server repeats it while it is so
}
