package operator

import (
	"net/netip"
	"time"

	"fairshare"
	"fairshare/registry"
)

// Times in JSON are RFC 3339 in UTC; null means never, or not known.

type clientJSON struct {
	Client     string        `json:"client"`
	Through    string        `json:"through,omitempty"` // the peer that named a provisional client; "" for others
	FirstSeen  *time.Time    `json:"first_seen"`
	LastSeen   *time.Time    `json:"last_seen"`
	Requests   int64         `json:"requests"`
	Refused    int64         `json:"refused"`
	Blocked    int64         `json:"blocked"`
	DryRun     int64         `json:"refused_in_dry_run"` // or blocked: let through
	CPUSeconds float64       `json:"cpu_seconds"`
	Seconds    float64       `json:"time_seconds"`
	Bytes      int64         `json:"bytes"`
	Errors     int64         `json:"errors"`
	UserAgent  string        `json:"user_agent"`
	Bot        string        `json:"bot"`
	BotState   string        `json:"bot_state"`
	Labels     []string      `json:"labels"`
	Note       string        `json:"note"`
	Override   *overrideJSON `json:"word"`
	Sticky     bool          `json:"sticky"`
	Fleet      string        `json:"fleet,omitempty"`
	ASN        uint32        `json:"asn,omitempty"` // of the owner; only of one client
	Owner      string        `json:"owner,omitempty"`
}

func jsonClient(r *registry.ClientRecord) *clientJSON {
	return &clientJSON{
		Client: addressOf(r.Client), Through: through(r.Client), FirstSeen: jsonTime(r.FirstSeen),
		LastSeen: jsonTime(r.LastSeen),
		Requests: r.Spent.Requests, Refused: r.Spent.Refused, Blocked: r.Spent.Blocked, DryRun: r.Spent.DryRun,
		CPUSeconds: r.Spent.CPU.Seconds(), Seconds: r.Spent.Time.Seconds(), Bytes: r.Spent.Bytes,
		Errors:    r.Spent.Errors,
		UserAgent: r.UserAgent, Bot: r.Bot, BotState: r.BotState.String(),
		Labels: append([]string{}, r.Labels...), Note: r.Note, Override: jsonOverride(r.Override), Sticky: r.Sticky,
		Fleet: r.Fleet,
	}
}

// addressOf returns a client without the peer that named it.
func addressOf(id fairshare.ClientID) string {
	id.Via = netip.Addr{}
	return id.String()
}

// through returns the peer that named a provisional client, as the journal
// writes it; "" for other clients.
func through(id fairshare.ClientID) string {
	switch id.Via {
	case netip.Addr{}:
		return ""
	case fairshare.ThroughSocket:
		return "unix"
	}
	return id.Via.String()
}

type overrideJSON struct {
	Client string     `json:"client"`
	Action string     `json:"action"` // allow, refuse (a ban for a time), block (a permanent ban)
	Since  *time.Time `json:"since"`
	Until  *time.Time `json:"until"`
	Reason string     `json:"reason"`
}

func jsonOverride(s *registry.OverrideRecord) *overrideJSON {
	if s == nil {
		return nil
	}
	return &overrideJSON{s.Client.String(), s.Action.String(), jsonTime(s.Since), jsonTime(s.Until), s.Reason}
}

// A banJSON is a rule's ban, or an operator's.
type banJSON struct {
	Client  string     `json:"client"`
	Through string     `json:"through,omitempty"`
	By      string     `json:"by"`   // rule or operator
	Rule    string     `json:"rule"` // "" for an operator's
	Action  string     `json:"action"`
	Since   *time.Time `json:"since"`
	Until   *time.Time `json:"until"`
	Number  int        `json:"number"`
	Reason  string     `json:"reason"`
	DryRun  bool       `json:"dry_run"`
	Holds   bool       `json:"holds"`
	ASN     uint32     `json:"asn,omitempty"` // of the owner of the client's addresses
	Owner   string     `json:"owner,omitempty"`
}

func (o *operation) jsonBan(b *fairshare.BanRecord) *banJSON {
	return &banJSON{
		Client: addressOf(b.Client), Through: through(b.Client), By: "rule", Rule: b.Rule,
		Action: fairshare.Refuse.String(),
		Since:  jsonTime(b.Began), Until: jsonTime(b.Until), Number: b.Number, DryRun: b.DryRun,
		Holds: o.inForce(b.Until),
	}
}

func (o *operation) jsonBanOf(s *registry.OverrideRecord) *banJSON {
	return &banJSON{
		Client: s.Client.String(), By: "operator", Action: s.Action.String(),
		Since: jsonTime(s.Since), Until: jsonTime(s.Until), Number: 1, Reason: s.Reason, Holds: o.inForce(s.Until),
	}
}

type storyJSON struct {
	ID            string        `json:"id"`
	Client        string        `json:"client"`
	Through       string        `json:"through,omitempty"`
	Addr          string        `json:"addr"`
	Bot           string        `json:"bot"`
	BotState      string        `json:"bot_state"`
	Rule          string        `json:"rule"`
	Action        string        `json:"action"`
	Ban           string        `json:"ban"` // "", started or in force
	DryRun        bool          `json:"dry_run"`
	Status        int           `json:"status"`
	First         *time.Time    `json:"first"`
	Last          *time.Time    `json:"last"`
	Count         int64         `json:"count"`
	Until         *time.Time    `json:"until"`
	By            string        `json:"counted_by"`
	Resource      string        `json:"resource"`
	Used          float64       `json:"used"` // in the resource's unit: of cpu and time seconds
	Allowed       float64       `json:"allowed"`
	WindowSeconds float64       `json:"window_seconds"`
	Method        string        `json:"method"`
	Host          string        `json:"host"`
	Path          string        `json:"path"`
	UserAgent     string        `json:"user_agent"`
	Robots        string        `json:"robots"`    // the line of robots.txt that it is based on
	BanBegan      *time.Time    `json:"ban_began"` // when the latest ban started
	BanMethod     string        `json:"ban_method"`
	BanPath       string        `json:"ban_path"` // of the request that started it
	Holds         bool          `json:"holds"`    // it would be refused now, as far as the registry knows
	Override      *overrideJSON `json:"word"`     // the override of its client that is in force
	LetIn         string        `json:"let_in"`
}

func jsonStory(t *storyStatus) *storyJSON {
	s := t.Story
	addr := ""
	if s.Addr.IsValid() {
		addr = s.Addr.String()
	}
	ban := ""
	switch s.Ban {
	case fairshare.BanStarted:
		ban = "started"
	case fairshare.BanInForce:
		ban = "in force"
	}
	return &storyJSON{
		ID: s.ID, Client: addressOf(s.Client), Through: through(s.Client), Addr: addr, Bot: s.Bot,
		BotState: s.BotState.String(),
		Rule:     s.Rule, Action: s.Action.String(), Ban: ban, DryRun: s.DryRun, Status: s.Status,
		First: jsonTime(s.First), Last: jsonTime(s.Last), Count: s.Count, Until: jsonTime(s.Until),
		By: s.By, Resource: s.Resource, Used: jsonAmount(s.Resource, s.Used),
		Allowed: jsonAmount(s.Resource, s.Allowed), WindowSeconds: s.Window.Seconds(),
		Method: s.Method, Host: s.Host, Path: s.Path, UserAgent: s.UserAgent, Robots: s.Robots,
		BanBegan: jsonTime(s.BanBegan), BanMethod: s.BanMethod, BanPath: s.BanPath,
		Holds: t.refused, Override: jsonOverride(t.override), LetIn: t.letIn,
	}
}

// jsonAmount returns an amount of a resource as the journal writes it.
func jsonAmount(resource string, n int64) float64 {
	if resource == "cpu" || resource == "time" {
		return float64(n) / 1e6
	}
	return float64(n)
}

func jsonTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// A foundJSON is everything that is recorded about one client.
type foundJSON struct {
	*clientJSON
	WiderOverrides []*overrideJSON `json:"wider_words"`  // of prefixes around it, the longest first
	WiderLabels    []labelJSON     `json:"wider_labels"` // likewise
	Inside         int             `json:"clients_within"`
	Bans           []*banJSON      `json:"bans"`
	Stories        []*storyJSON    `json:"stories"`
	Around         []*foundJSON    `json:"around,omitempty"` // recorded prefixes that it is in

	Provisional []*foundJSON `json:"provisional,omitempty"` // clients with its address that only a peer names
}

type labelJSON struct {
	Client string `json:"client"`
	Label  string `json:"label"`
}

func (o *operation) jsonFound(f *registry.Found) (*foundJSON, error) {
	j := &foundJSON{clientJSON: jsonClient(&f.Record), Inside: f.Inside, WiderOverrides: []*overrideJSON{},
		WiderLabels: []labelJSON{}, Bans: []*banJSON{}, Stories: []*storyJSON{}}
	owners, _ := o.owners()
	owner := ownerOf(owners, f.Record.Client)
	j.ASN, j.Owner = owner.ASN, owner.Name
	for i := range f.Within {
		j.WiderOverrides = append(j.WiderOverrides, jsonOverride(&f.Within[i]))
	}
	for _, l := range f.Labels {
		j.WiderLabels = append(j.WiderLabels, labelJSON{l.Client.String(), l.Name})
	}
	for i := range f.Bans {
		j.Bans = append(j.Bans, o.jsonBan(&f.Bans[i]))
	}
	for i := range f.Stories {
		t, err := o.statusOf(&f.Stories[i])
		if err != nil {
			return nil, err
		}
		j.Stories = append(j.Stories, jsonStory(t))
	}
	return j, nil
}
