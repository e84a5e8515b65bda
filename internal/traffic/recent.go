package traffic

import (
	"net/netip"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/toplist"
)

// RecentKept is how many of the latest refusals are kept. They have 2.3 MB, from the first one on.
const RecentKept = 2000

const (
	recentText  = 200 // bytes of a text of a request
	rotateEvery = toplist.Period - time.Second/2
)

// A Refusal is one of the latest refusals. It has no query, header or cookie.
type Refusal struct {
	At        time.Time          // by the system's clock
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

// fill fills a refusal with what is kept of a report, but the texts of the request.
func (e *Refusal) fill(r *httpguard.Report, client netip.Prefix, rule string, wall time.Time) {
	req, f := r.Request, &r.Finding
	*e = Refusal{At: wall, ID: r.ID, Addr: req.Addr, Rule: rule, Action: f.Action, Ban: f.Ban, DryRun: r.DryRun,
		Room: r.WaitingRoom, Status: r.Status, Wait: f.Wait, Bot: req.Bot.Name, BotState: req.Bot.State,
		Fleet: req.Fleet, Owner: req.Owner}
	if client.IsValid() {
		e.Client = fairshare.PrefixID(client)
		e.Client.Via = req.Via
	}
	if lim := f.Limit; lim != nil {
		e.Resource, e.Used, e.Allowed, e.Window = lim.Resource.String(), f.Tally.Spent(), lim.Allowed(), lim.Window
	}
}

// A slot holds a refusal and copies of the texts of its request, which would otherwise keep the memory
// of the whole request.
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

// before returns the refusal that is i before the latest one.
func (r *recent) before(i int) Refusal {
	s := &r.slots[(r.next+len(r.slots)-1-i)%len(r.slots)]
	e := s.Refusal
	e.Method, e.Host, e.Path, e.UserAgent = s.method.String(), s.host.String(), s.path.String(), s.agent.String()
	return e
}
