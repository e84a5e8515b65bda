package fairshare

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"fairshare/internal/network"
)

// A ClientID names a client in the registry: addresses, or a verified bot.
// Just one of the two is set; the zero ClientID is nobody.
type ClientID struct {
	Prefix netip.Prefix // masked; its addresses are unmapped and have no zone
	Bot    string       // its name, in lower case
	Via    netip.Addr   // valid: the addresses are provisional, as Request.Via
}

// PrefixID returns the ID of the addresses of a prefix.
func PrefixID(p netip.Prefix) ClientID {
	return ClientID{Prefix: network.Canonical(p)}
}

// maxBotName bounds the name of a bot, in bytes.
const maxBotName = 64

// ParseClientID reads an address, a prefix, or the name of a bot. An address
// alone is a prefix of all its bits.
func ParseClientID(s string) (ClientID, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return PrefixID(p), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return ClientID{Prefix: network.Single(a)}, nil
	}
	name := strings.ToLower(s)
	switch {
	case s == "":
		return ClientID{}, errors.New("no client is named")
	case strings.Trim(s, "0123456789./") == "" || strings.Contains(s, ":") || strings.Contains(s, "/"):
		return ClientID{}, fmt.Errorf("%q is neither an address nor a prefix", s)
	case len(name) > maxBotName || strings.ContainsFunc(name,
		func(r rune) bool { return r <= ' ' && r != ' ' || r > '~' }):
		return ClientID{}, fmt.Errorf("%q is not an address, a prefix or the name of a bot", s)
	}
	return ClientID{Bot: name}, nil
}

// IsZero reports whether id names no client.
func (id ClientID) IsZero() bool { return id == ClientID{} }

// String returns the ID as [ParseClientID] reads it: "203.0.113.9",
// "2001:db8::/64", "googlebot"; "" for nobody. That of a provisional client is
// for people: "203.0.113.9 (provisional, through 172.17.0.1)".
func (id ClientID) String() string {
	if id.Via.IsValid() {
		return ClientID{Prefix: id.Prefix}.String() + " (provisional, through " + PeerName(id.Via) + ")"
	}
	switch p := id.Prefix; {
	case id.Bot != "":
		return id.Bot
	case !p.IsValid():
		return ""
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return id.Prefix.String()
}

// PeerName returns a Request.Via as people read it.
func PeerName(via netip.Addr) string {
	if via == ThroughSocket {
		return "the Unix socket"
	}
	return via.String()
}

// An OverrideRecord is an operator's decision about a client, as it is stored.
// A client has at most one.
type OverrideRecord struct {
	Client ClientID
	Action Action    // Allow: spared bans, blocks and limits; Refuse: banned until Until; Block: banned for ever
	Since  time.Time // when it was said
	Until  time.Time // when it ends; zero: never
	Reason string    // "" when none was given
}

// A Label is an operator's mark on a client, in lower case.
type Label struct {
	Client ClientID
	Name   string
}

// An Override is what operators have decided about the client that sends a
// request, as it holds at the time of the request. The zero Override decides
// nothing.
type Override struct {
	Action Action        // as OverrideRecord.Action; Undecided: no decision
	Wait   time.Duration // of a Refuse: how much longer it holds, above 0
	Labels []string      // of the client; shared, not to be changed
}

// OperatorBan is the rule in verdicts for clients that an operator has banned. It must not be changed.
var OperatorBan = &Rule{Name: "ban by an operator", Action: Block}

// finding returns the guard's answer for an override that has an action.
func (w *Override) finding() Finding {
	switch w.Action {
	case Allow:
		return Finding{Action: Allow}
	case Refuse:
		return Finding{Action: Refuse, Rule: OperatorBan, Wait: max(w.Wait, 1), Ban: BanInForce}
	}
	return Finding{Action: Block, Rule: OperatorBan, Ban: BanInForce}
}

// A Banned is a ban that refusals by a rule caused, or a former one.
type Banned struct {
	Client ClientID
	Rule   string  // its name
	Kind   KeyKind // of what is banned: ByAddr, ByNetwork or ByBot
	Number int     // bans so far, less the steps forgiven
	Began  time.Time
	Until  time.Time
	Since  time.Time // from when forgiveness counts
	DryRun bool      // nobody was banned: the rule is in dry run
}

// A Story is what is remembered of a client's refusals by one rule: what the
// reference that the client was shown leads to.
type Story struct {
	ID       string // the reference
	Client   ClientID
	Addr     netip.Addr // the latest
	Bot      string     // "" when it was taken for none
	BotState BotState

	Rule   string
	Action Action // Refuse or Block
	Ban    BanState
	DryRun bool // it was let through
	Status int  // of the answer
	First  time.Time
	Last   time.Time
	Count  int64     // refusals
	Until  time.Time // when the last wait ends; zero for a block

	// What was counted when it was last refused by the limit, before a ban was
	// in force; zero for a block.
	By       string // the limit's key, as a policy spells it: "addr"
	Resource string // as a policy spells it: "requests"
	Used     int64
	Allowed  int64
	Window   time.Duration

	// The latest request; texts are cut and no query is among them.
	Method, Host, Path, UserAgent string

	// The request that started the latest ban, cut likewise. BanBegan is zero
	// if there was no ban, or if an older version recorded it.
	BanBegan           time.Time
	BanMethod, BanPath string
}

// A ClientRecord is what the registry holds of one client.
type ClientRecord struct {
	Client    ClientID
	FirstSeen time.Time
	LastSeen  time.Time
	Spent     Spent
	UserAgent string // the latest, cut
	Bot       string // what it was last taken for; "" for no bot
	BotState  BotState

	Labels   []string
	Note     string          // an operator's; "" for none
	Override *OverrideRecord // nil: no word
	Sticky   bool            // an operator has set something: it stays, whatever is found out later
}

// Spent is the sum of what a client has used. No field ever decreases.
type Spent struct {
	Requests int64 // all, those refused and blocked too
	Refused  int64
	Blocked  int64
	DryRun   int64         // refusals and blocks in dry run, let through
	CPU      time.Duration // of the upstream
	Time     time.Duration // that the upstream took
	Bytes    int64         // of response bodies
	Errors   int64         // answers of the upstream with a status from 400 to 499
}

// Add adds what other holds.
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
