package replay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
)

const (
	mostBotRows = 1000 // that a report tells
	mostOfRow   = 10   // names in one row
	shownBots   = 20   // rows for people, or more when as many clients are told
)

// A BotReport is what the clients recognized as one bot, in one state, did.
type BotReport struct {
	Name     string `json:"name"`
	Category string `json:"category"` // the main one
	State    string `json:"state"`    // known: it cannot be checked; pending: it was not; verified; forged
	Clients  int64  `json:"clients"`
	BotShare
	Approximate bool `json:"approximate,omitempty"` // Clients is an estimate

	meant int64 // refused or blocked by an operator's ban
}

// A BotShare is what some bots took.
type BotShare struct {
	Requests      int64   `json:"requests"`
	Bytes         int64   `json:"bytes"`
	RequestsShare float64 `json:"requests_share"` // of all requests, from 0 to 1
	BytesShare    float64 `json:"bytes_share"`    // of all bytes
	Refused       int64   `json:"refused"`
	Blocked       int64   `json:"blocked"`
}

// A BotSummary tells of all bots together.
type BotSummary struct {
	Known    bool `json:"known"`    // the log holds user agents, and bots were looked for
	Resolved bool `json:"resolved"` // the DNS was asked
	BotShare
	Rows       int           `json:"rows"`       // of Report.Bots, those that were left off too
	Pending    int64         `json:"pending"`    // requests whose claim could be checked, and was not decided
	Categories []BotCategory `json:"categories"` // without forged bots, those with most requests first
	Forged     BotCategory   `json:"forged"`
}

// A BotCategory is what the bots of one category took.
type BotCategory struct {
	Category string `json:"category"` // the main one; "" for all
	BotShare
	Bots []string `json:"bots"` // with the most requests, at most ten
}

// A Fleet is a user agent that many addresses send and no browser does.
type Fleet struct {
	UserAgent string `json:"user_agent"`
	Bot       string `json:"bot"`      // what it is taken for; "" when nobody known
	Clients   int64  `json:"clients"`  // that send it more than any other
	Networks  int64  `json:"networks"` // IPv4 /24 and IPv6 /48 of these
	Requests  int64  `json:"requests"` // with it
	Refused   int64  `json:"refused"`  // or blocked

	Approximate bool `json:"approximate,omitempty"` // Clients and Networks may be too low, Requests too high
}

// A fleet has at least so many clients, in so many networks.
const (
	fleetClients  = 50
	fleetNetworks = 10
)

func (rec *recorder) share(c *botCount) BotShare {
	s := BotShare{Requests: c.requests, Bytes: c.bytes, Refused: c.refused, Blocked: c.blocked}
	s.RequestsShare = float64(c.requests) / float64(max(rec.judged, 1))
	s.BytesShare = float64(c.bytes) / float64(max(rec.bytes, 1))
	return s
}

func (c *botCount) add(d *botCount) {
	c.requests += d.requests
	c.bytes = addBytes(c.bytes, d.bytes)
	c.refused += d.refused
	c.blocked += d.blocked
}

func (rec *recorder) tellBots(r *Report) {
	order := make([]botID, len(rec.botCounts))
	for i := range order {
		order[i] = botID(i + 1)
	}
	slices.SortFunc(order, func(a, b botID) int {
		x, y := rec.bots.bot(a), rec.bots.bot(b)
		return cmp.Or(cmp.Compare(rec.botCounts[b-1].requests, rec.botCounts[a-1].requests),
			strings.Compare(x.Name, y.Name), cmp.Compare(x.State, y.State))
	})
	type sum struct {
		botCount
		names []string
	}
	add := func(s *sum, c *botCount, name string) {
		s.add(c)
		if len(s.names) < mostOfRow && !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
	row := func(category string, s *sum) BotCategory {
		if s.names == nil {
			s.names = []string{}
		}
		return BotCategory{Category: category, BotShare: rec.share(&s.botCount), Bots: s.names}
	}
	var all, forged sum
	categories := map[string]*sum{}
	r.Bots = []BotReport{}
	for _, id := range order {
		b, c := rec.bots.bot(id), &rec.botCounts[id-1]
		if c.requests == 0 {
			continue
		}
		category := ""
		if len(b.Categories) > 0 {
			category = b.Categories[0]
		}
		r.BotSummary.Rows++
		if len(r.Bots) < mostBotRows {
			row := BotReport{Name: b.Name, Category: category, State: b.State.String(), Clients: c.clients,
				BotShare: rec.share(c), meant: c.meant}
			if c.seen.regs != nil {
				row.Clients, row.Approximate = c.seen.estimate(), true
			}
			r.Bots = append(r.Bots, row)
		}
		all.add(c)
		if b.State == fairshare.Forged {
			add(&forged, c, b.Name)
			continue
		}
		if categories[category] == nil {
			categories[category] = &sum{}
		}
		add(categories[category], c, b.Name)
	}
	s := &r.BotSummary
	s.BotShare, s.Forged = rec.share(&all.botCount), row("", &forged)
	s.Categories = []BotCategory{}
	for name, sum := range categories {
		s.Categories = append(s.Categories, row(name, sum))
	}
	slices.SortFunc(s.Categories, func(a, b BotCategory) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Category, b.Category))
	})
	s.Pending, s.Resolved = rec.pending, rec.opts.Resolve != nil
	for _, l := range rec.logs {
		s.Known = s.Known || rec.opts.Bot != nil && l.has&accesslog.HasUserAgent != 0
	}
}

// tellFleets looks for user agents that many clients send, order being the
// places of clients sorted by address. Bots that can be checked are none: a
// limit by bot counts them as one.
func (rec *recorder) tellFleets(r *Report, order []uint32) {
	type fleet struct {
		clients, networks int64
		last              netip.Prefix
	}
	fleets := map[uint64]*fleet{}
	for _, i := range order {
		cl := &rec.clients.at(int(i)).facts
		if s := rec.bots.bot(cl.bot).State; s == fairshare.Verified || s == fairshare.Pending {
			continue
		}
		f := fleets[cl.agent]
		if f == nil {
			ag := rec.agents.find(cl.agent)
			if ag == nil || ag.facts.browser || ag.facts.text == "" || ag.count < fleetClients {
				continue
			}
			f = &fleet{}
			fleets[cl.agent] = f
		}
		f.clients++
		if n := networkOf(cl.addr); n != f.last {
			f.networks++
			f.last = n
		}
	}
	r.Fleets = []Fleet{}
	for agent, f := range fleets {
		if f.clients < fleetClients || f.networks < fleetNetworks {
			continue
		}
		ag := rec.agents.find(agent)
		bot := rec.bots.bot(ag.facts.bot)
		r.Fleets = append(r.Fleets, Fleet{
			UserAgent: strings.ToValidUTF8(ag.facts.text, "\uFFFD"), Bot: bot.Name, Clients: f.clients,
			Networks: f.networks,
			Requests: int64(ag.count), Refused: int64(ag.facts.refused), Approximate: rec.clients.full() || ag.over > 0,
		})
	}
	slices.SortFunc(r.Fleets, func(a, b Fleet) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), strings.Compare(a.UserAgent, b.UserAgent))
	})
	r.Fleets = r.Fleets[:min(len(r.Fleets), rec.opts.Top)]
}

// bots writes who is known, and of what kind.
func (p *printer) bots(r *Report) {
	s := &r.BotSummary
	if s.Requests == 0 {
		return
	}
	bytes := func(b *BotShare) string {
		if b.Bytes == 0 {
			return "–"
		}
		return prose.Share(b.BytesShare)
	}
	p.heading(fmt.Sprintf("Bots: %s of the requests, %s of the bytes", prose.Share(s.RequestsShare),
		bytes(&s.BotShare)))
	// A narrow terminal has room for the names, and not for all figures.
	wide := p.Width - 2 - 9 - 9 - 10 - 9 - 9 - 9
	tail := func(share, bytes, refused string) string { return fmt.Sprintf("%9s%9s%9s", share, bytes, refused) }
	clients := func(n string) string { return fmt.Sprintf("%9s", n) }
	if p.Width < 76 {
		wide += 18
		tail = func(share, _, refused string) string { return fmt.Sprintf("%9s%9s", share, refused) }
		clients = func(string) string { return "" }
	}
	p.line("  %-*s %-8s%s%10s%s", wide, "bot", "state", clients("clients"), "requests",
		tail("share", "bytes", "refused"))
	rows := min(len(r.Bots), max(len(r.Top), shownBots))
	for i := range r.Bots[:rows] {
		b := &r.Bots[i]
		name := prose.Printable(b.Name)
		if b.Category != "" && b.Category != b.Name {
			name += ", " + prose.Printable(b.Category)
		}
		n := prose.Number(b.Clients)
		if b.Approximate {
			n = "~" + n
		}
		p.line("  %-*s %-8s%s%10s%s", wide, prose.Cut(name, wide), b.State, clients(n), prose.Number(b.Requests),
			tail(prose.Share(b.RequestsShare), bytes(&b.BotShare), dash(b.Refused+b.Blocked)))
	}
	if more := s.Rows - rows; more > 0 {
		p.line("  and %d more: --json shows them", more)
	}
	p.w.WriteByte('\n')
	head := fmt.Sprintf("  %-12s%10s%s  ", "category", "requests", tail("share", "bytes", "refused"))
	p.line("%sbots", head)
	rest := p.Width - len(head)
	row := func(name string, c *BotCategory) {
		p.line("  %-12s%10s%s  %s", prose.Cut(prose.Printable(name), 12), prose.Number(c.Requests),
			tail(prose.Share(c.RequestsShare), bytes(&c.BotShare), dash(c.Refused+c.Blocked)),
			prose.Cut(prose.Printable(strings.Join(c.Bots, ", ")), rest))
	}
	for i := range s.Categories {
		row(cmp.Or(s.Categories[i].Category, "(none)"), &s.Categories[i])
	}
	if s.Forged.Requests > 0 {
		row("(forged)", &s.Forged)
	}
	p.text(2, 2,
		"state: verified or forged by the addresses and names of today, which an old log may differ from; pending: not decided; known: cannot be checked")
	if s.Pending > 0 && !s.Resolved {
		p.text(2, 2, prose.Plural(s.Pending, "request")+" of bots could not be verified by published addresses.")
		p.text(2, 6, "hint: --resolve looks them up in the DNS")
	}
}

// fleets writes which user agents many addresses share.
func (p *printer) fleets(r *Report) {
	if len(r.Fleets) == 0 {
		return
	}
	p.heading("Fleets: one user agent, many addresses, no browser")
	p.line("  %9s%10s%10s%10s  %s", "clients", "networks", "requests", "refused", "user agent")
	for _, f := range r.Fleets {
		p.line("  %9s%10s%10s%10s  %s", prose.Number(f.Clients), prose.Number(f.Networks), prose.Number(f.Requests),
			dash(f.Refused),
			p.agent(f.UserAgent, p.Width-2-9-30-2))
	}
	p.text(2, 6,
		"hint: if it is one crawler and no app that many people use, a limit with by: user_agent counts it as one client")
}

// bot names what a client is recognized as: "googlebot (verified)".
func (t *TopClient) bot() string {
	if t.Bot == "" {
		return ""
	}
	return t.Bot + " (" + t.BotState + ")"
}
