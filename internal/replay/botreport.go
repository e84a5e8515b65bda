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
	mostBotRows = 1000 // in a report
	mostOfRow   = 10   // names in one row
	shownBots   = 20   // rows of the text; more if Options.Top is higher
)

// A BotReport has the figures of the clients that were recognized as one bot in one state.
type BotReport struct {
	Name     string `json:"name"`
	Category string `json:"category"` // the main one
	State    string `json:"state"`    // known: cannot be verified; pending: not verified yet; verified; forged
	Clients  int64  `json:"clients"`
	BotShare
	Approximate bool `json:"approximate,omitempty"` // Clients is an estimate

	byOperator int64 // refused or blocked by an operator's ban
}

// A BotShare has the figures of some bots.
type BotShare struct {
	Usage
	RequestsShare float64 `json:"requests_share"` // of all requests, from 0 to 1
	BytesShare    float64 `json:"bytes_share"`    // of all bytes
	TimeShare     float64 `json:"time_share"`     // of all time
	Refused       int64   `json:"refused"`
	Blocked       int64   `json:"blocked"`
}

// A BotSummary has the figures of all bots.
type BotSummary struct {
	Known    bool `json:"known"`    // the log has user agents, and Options.Bot is set
	Resolved bool `json:"resolved"` // with Options.Resolve
	BotShare
	Rows       int           `json:"rows"`       // bots in all states; Report.Bots may have fewer
	Pending    int64         `json:"pending"`    // requests whose claim could be verified, and was not decided
	Categories []BotCategory `json:"categories"` // without forged bots, the most requests first
	Forged     BotCategory   `json:"forged"`
}

// A BotCategory has the figures of the bots of one category.
type BotCategory struct {
	Category string `json:"category"` // the main one; "" for all
	BotShare
	Bots []string `json:"bots"` // with the most requests, at most ten
}

// A Fleet is a user agent of many addresses that is not a browser's.
type Fleet struct {
	UserAgent string `json:"user_agent"`
	Bot       string `json:"bot"`      // the bot of the user agent; "" if there is none
	Clients   int64  `json:"clients"`  // that send this user agent most
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
	s := BotShare{Usage: c.usage.report(), Refused: c.refused, Blocked: c.blocked}
	s.RequestsShare = float64(c.requests) / float64(max(rec.judged, 1))
	s.BytesShare = part(c.bytes, rec.total.bytes)
	s.TimeShare = part(c.time, rec.total.time)
	return s
}

func (c *botCount) add(d *botCount) {
	c.usage.add(d.usage)
	c.refused += d.refused
	c.blocked += d.blocked
}

func (rec *recorder) addBots(r *Report) {
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
				BotShare: rec.share(c), byOperator: c.meant}
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

// addFleets finds user agents that many clients send. order has the indexes of clients
// sorted by address. Bots that can be verified are not fleets: a limit by bot counts their
// addresses as one client.
func (rec *recorder) addFleets(r *Report, order []uint32) {
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
			Requests: int64(ag.count), Refused: int64(ag.facts.refused), Approximate: rec.clients.full() ||
				ag.over > 0,
		})
	}
	slices.SortFunc(r.Fleets, func(a, b Fleet) int {
		return cmp.Or(cmp.Compare(b.Clients, a.Clients), strings.Compare(a.UserAgent, b.UserAgent))
	})
	r.Fleets = r.Fleets[:min(len(r.Fleets), rec.opts.Top)]
}

// bots writes the bots and their categories.
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

// fleets writes the user agents of fleets.
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

// bot returns the bot and its state: "googlebot (verified)".
func (t *TopClient) bot() string {
	if t.Bot == "" {
		return ""
	}
	return t.Bot + " (" + t.BotState + ")"
}
