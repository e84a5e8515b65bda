package fairshare

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A ClientID names a client in the registry: addresses, or a verified bot.
// Just one of the two is set; the zero ClientID is nobody.
type ClientID struct {
	Prefix netip.Prefix // masked; its addresses are unmapped and have no zone
	Bot    string       // its name, in lower case
}

// PrefixID returns the ID of the addresses of a prefix.
func PrefixID(p netip.Prefix) ClientID {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return ClientID{Prefix: p.Masked()}
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
		a = a.Unmap().WithZone("")
		return ClientID{Prefix: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	name := strings.ToLower(s)
	switch {
	case s == "":
		return ClientID{}, errors.New("no client is named")
	case strings.Trim(s, "0123456789./") == "" || strings.Contains(s, ":") || strings.Contains(s, "/"):
		return ClientID{}, fmt.Errorf("%q is no address and no prefix", s)
	case len(name) > maxBotName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' && r != ' ' || r > '~' }):
		return ClientID{}, fmt.Errorf("%q is no address, no prefix and no name of a bot", s)
	}
	return ClientID{Bot: name}, nil
}

// IsZero reports whether id is nobody's.
func (id ClientID) IsZero() bool { return id == ClientID{} }

// String returns the ID as [ParseClientID] reads it: "203.0.113.9",
// "2001:db8::/64", "googlebot"; "" for nobody.
func (id ClientID) String() string {
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

// Said is an operator's word about a client, as it is remembered. A client has
// at most one.
type Said struct {
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

// A Word is what operators have said of who sends a request, as it holds when
// it comes. The zero Word is nothing.
type Word struct {
	Action Action        // as Said.Action; Undecided: nothing
	Wait   time.Duration // of a Refuse: how long it still holds, above 0
	Labels []string      // of the client; shared, not to be changed
}

// OperatorBan is the rule that verdicts name for clients whom an operator has
// banned. It must not be changed.
var OperatorBan = &Rule{Name: "ban by an operator", Action: Block}

// finding returns what a word other than nothing has a guard answer.
func (w *Word) finding() Finding {
	switch w.Action {
	case Allow:
		return Finding{Action: Allow}
	case Refuse:
		return Finding{Action: Refuse, Rule: OperatorBan, Wait: max(w.Wait, 1), Ban: BanInForce}
	}
	return Finding{Action: Block, Rule: OperatorBan, Ban: BanInForce}
}

// A Banned is a ban that a rule's refusals brought about, or the memory of one.
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

	Labels []string
	Note   string // an operator's; "" for none
	Said   *Said  // nil: no word
	Sticky bool   // an operator has set something: it stays, whatever is found out later
}

// Spent is what a client has had. All of it only grows.
type Spent struct {
	Requests int64 // all, those refused and blocked too
	Refused  int64
	Blocked  int64
	Trial    int64         // refusals and blocks in dry run, let through
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
	s.Trial += other.Trial
	s.CPU += other.CPU
	s.Time += other.Time
	s.Bytes += other.Bytes
	s.Errors += other.Errors
}
