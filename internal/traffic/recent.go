package traffic

import (
	"net/netip"
	"time"

	"fairshare"
	"fairshare/internal/reports"
	"fairshare/internal/toplist"
)

// RecentKept is how many of the latest refusals are kept, where equal ones that followed each other within
// [reports.Delay] are one. They have 2.3 MB, from the first one on.
const RecentKept = 2000

const (
	recentText  = 200 // bytes of a text of a request
	rotateEvery = toplist.Period - time.Second/2
)

// A Refusal is one of the latest refusals, or several with the same path. It has no query, header or cookie.
type Refusal struct {
	N         int64              // refusals
	At        time.Time          // of the latest, by the system's clock
	ID        string             // the reference that the client was shown
	Addr      netip.Addr         // invalid: unknown
	Client    fairshare.ClientID // zero: unknown
	Rule      string
	Action    fairshare.Action
	Ban       fairshare.BanState
	DryRun    bool // the request passed
	Room      bool // the client got the waiting room
	Status    int
	Wait      time.Duration
	Resource  string // of the limit; "" for a block or a ban in force
	Used      int64  // in the resource's unit
	Allowed   int64
	Window    time.Duration
	Method    string
	Host      string
	Path      string
	UserAgent string
	Bot       string
	BotState  fairshare.BotState
	Fleet     string
	Owner     fairshare.Owner
}

// fill fills a slot with refusals of a group.
func (s *slot) fill(g *reports.Refusals, p *reports.Refused, rule string) {
	e := &s.Refusal
	*e = Refusal{N: p.N, At: p.Time.Add(g.ClockAhead), ID: g.ID, Addr: g.Addr, Rule: rule, Action: g.Action, Ban: g.Ban,
		DryRun: g.DryRun, Room: g.Room, Status: g.Status, Wait: p.Wait, Bot: g.Bot.Name, BotState: g.Bot.State,
		Fleet: g.Fleet, Owner: g.Owner}
	if g.Client.IsValid() {
		e.Client = fairshare.PrefixID(g.Client)
		e.Client.Via = g.Via
	}
	if lim := g.Limit; lim != nil {
		e.Resource, e.Used, e.Allowed, e.Window = lim.Resource.String(), p.Tally.Spent(), lim.Allowed(), lim.Window
	}
	s.method.set(g.Method)
	s.host.set(g.Host)
	s.path.set(p.Path)
	s.agent.set(g.UserAgent)
}

// A slot holds copies of the texts of a refusal.
type slot struct {
	Refusal
	method, host, path, agent text
}

type text struct {
	n     uint8
	bytes [recentText]byte
}

func (t *text) set(s string)   { t.n = uint8(copy(t.bytes[:], s)) }
func (t *text) String() string { return string(t.bytes[:t.n]) }

// A recent has the latest refusals, in a ring.
type recent struct {
	slots []slot
	next  int
}

// add returns the slot for the next refusal.
func (r *recent) add() *slot {
	if r.slots == nil {
		r.slots = make([]slot, 0, RecentKept)
	}
	if len(r.slots) < RecentKept {
		r.slots = r.slots[:len(r.slots)+1]
		return &r.slots[len(r.slots)-1]
	}
	s := &r.slots[r.next]
	r.next = (r.next + 1) % RecentKept
	return s
}

// refusal returns what a slot holds.
func (s *slot) refusal() Refusal {
	e := s.Refusal
	e.Method, e.Host, e.Path, e.UserAgent = s.method.String(), s.host.String(), s.path.String(), s.agent.String()
	return e
}
