package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/amount"
	"fairshare/internal/census"
	"fairshare/internal/cli"
	"fairshare/internal/operator"
	"fairshare/internal/prose"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
	"fairshare/registry"
)

// Now returns the present state.
func (c *Console) Now() *Now {
	rt, f, wall := c.Policy.Current(), c.Policy.Figures(), c.wall()
	n := &Now{At: wall.UTC(), Version: c.Version, Policy: rt.File.Name, Rules: len(rt.File.Policy.Rules),
		Mode: "enforcing", Attack: c.Policy.Attack(), Holder: c.Policy.Holder(),
		Since:  c.Policy.Wall(c.Traffic.Began()).UTC(),
		Totals: c.counts().Totals(), Bans: f.Bans, CounterMemory: f.Limiter.Memory, Counters: int64(f.Limiter.Live),
		CountersLost: uint64(f.Limiter.Lost), Registry: "none"}
	if rt.File.Policy.DryRun {
		n.Mode = "dry_run"
	}
	if c.Address != nil {
		n.Address = c.Address()
	}
	if c.Upstream != nil {
		n.Upstream = c.Upstream()
	}
	for _, p := range c.counts().Seconds(wall.Add(-time.Minute)) {
		n.Minute = n.Minute.Plus(p.Totals)
	}
	if s := f.Share; s != nil {
		n.Shared, n.Capacity, n.InProgress, n.Waiting, n.Longest = true, s.Capacity, s.Inside, s.Waiting,
			s.LongestWait.Seconds()
	}
	if g := f.Registry; g != nil {
		if n.Registry = "ok"; g.Failing {
			n.Registry = "failing"
		}
	}
	return n
}

// Series returns what was counted since a time: seconds for the last five minutes, otherwise minutes of at
// most a day.
func (c *Console) Series(length time.Duration) *Series {
	s := &Series{Step: 60, Points: []traffic.Point{}}
	since := c.wall().Add(-length)
	if length <= 5*time.Minute {
		s.Step, s.Points = 1, append(s.Points, c.counts().Seconds(since)...)
	} else {
		s.Points = append(s.Points, c.counts().Minutes(since)...)
	}
	for i := range s.Points {
		s.Points[i].At = s.Points[i].At.UTC()
	}
	return s
}

// clientID reads ADDR, PREFIX or BOT. An address means the client that has it.
func (c *Console) clientID(text string) (id fairshare.ClientID, addr netip.Addr, err error) {
	id, err = fairshare.ParseClientID(text)
	if err == nil && id.Bot != "" && operator.LooksLikeAddress(text) {
		err = fmt.Errorf("%q is neither an address nor a prefix", text)
	}
	if err != nil {
		return id, addr, cli.WrongUsage(cli.Hint(err,
			"give an address (203.0.113.9), a prefix (203.0.113.0/24) or a bot (googlebot)"))
	}
	if id.Bot == "" && !strings.Contains(text, "/") {
		addr = clientaddr.Canonical(id.Prefix.Addr())
		if !addr.IsValid() {
			return id, addr, cli.WrongUsage(fmt.Errorf("%s is not the address of a client", text))
		}
		id = fairshare.PrefixID(c.Policy.Current().File.Policy.Client(addr))
	} else if id.Prefix.IsValid() {
		addr = id.Prefix.Addr()
	}
	return id, addr, nil
}

// Client returns everything about a client: an address, a prefix or the name of a bot. It is an error if
// text is none of these, but not if nothing is known.
func (c *Console) Client(ctx context.Context, text string) (*Client, error) {
	id, addr, err := c.clientID(text)
	if err != nil {
		return nil, err
	}
	v := &Client{Client: id.String(), Labels: []string{}, Bans: []Ban{}, Recent: []TopRow{}, Limits: []Usage{},
		Journal: []Refusal{}, Stories: []Story{}}
	rt := c.Policy.Current()
	if addr.IsValid() && rt.Owners != nil {
		owner := rt.Owners.Owner(addr)
		v.ASN, v.Owner, v.OwnerType = owner.ASN, owner.Name, owner.Type
	}
	if err := c.records(ctx, id, v); err != nil {
		return nil, err
	}
	now := c.Policy.Now()
	if id.Prefix.IsValid() {
		for _, window := range []string{"1m", "15m", "1h"} {
			w := c.counts().Top(traffic.Clients, Windows[window], now)
			row := c.counts().ClientSums(w, id.Prefix, netip.Addr{})
			r := topRow(&row)
			r.Key = window
			v.Recent = append(v.Recent, r)
		}
		if id.Prefix.Contains(addr) && (id.Prefix.IsSingleIP() ||
			id == fairshare.PrefixID(rt.File.Policy.Client(addr))) {
			req := c.request(addr, "GET", "", "/", v.UserAgent, v.Fleet)
			v.Standing = rt.Guard.HasStanding(req)
			if v.Limits, err = c.usage(ctx, req); err != nil {
				return nil, err
			}
		}
	}
	v.Journal = c.refusals(100, func(r *traffic.Refusal) bool { return within(r, id) })
	if len(v.Journal) > 0 && v.UserAgent == "" {
		v.UserAgent = v.Journal[0].UserAgent
	}
	return v, nil
}

// within reports whether a refusal is of a client, or of one within it.
func within(r *traffic.Refusal, id fairshare.ClientID) bool {
	if id.Bot != "" {
		return r.Bot == id.Bot
	}
	return r.Addr.IsValid() && id.Prefix.Contains(r.Addr)
}

// records fills in what the registry has about a client.
func (c *Console) records(ctx context.Context, id fairshare.ClientID, v *Client) error {
	store := c.registry()
	if store == nil {
		return nil
	}
	found, err := store.Client(ctx, id)
	if err != nil || found == nil {
		return err
	}
	r, now := &found.Record, c.wall()
	v.Known = !r.FirstSeen.IsZero()
	v.FirstSeen, v.LastSeen, v.UserAgent, v.Fleet = timeOf(r.FirstSeen), timeOf(r.LastSeen), r.UserAgent, r.Fleet
	v.Bot, v.BotState, v.Note = r.Bot, r.BotState.String(), r.Note
	v.Labels = append(v.Labels, r.Labels...)
	for _, label := range found.Labels {
		v.Labels = append(v.Labels, label.Name)
	}
	v.All = spentSums(&r.Spent)
	v.Decision = decision(r.Override, now)
	for i := range found.Within {
		if v.Decision == nil {
			v.Decision = decision(&found.Within[i], now)
		}
	}
	for i := range found.Bans {
		v.Bans = append(v.Bans, banOf(&found.Bans[i], now))
	}
	for i := range found.Stories {
		v.Stories = append(v.Stories, storyOf(&found.Stories[i]))
	}
	return nil
}

func spentSums(s *registry.Spent) Sums {
	return Sums{Requests: s.Requests, Refused: s.Refused + s.Blocked, DryRun: s.DryRun, Bytes: s.Bytes,
		Seconds: s.Time.Seconds()}
}

// decision returns an override that is in force, or nil.
func decision(o *registry.OverrideRecord, now time.Time) *Decision {
	if o == nil || !o.Until.IsZero() && !o.Until.After(now) {
		return nil
	}
	return &Decision{Client: o.Client.String(), Action: o.Action.String(), Since: o.Since.UTC(),
		Until:  timeOf(o.Until),
		Reason: o.Reason}
}

func banOf(b *fairshare.BanRecord, now time.Time) Ban {
	return Ban{Client: addressOf(b.Client), Through: through(b.Client), Rule: b.Rule, Began: b.Began.UTC(),
		Until: b.Until.UTC(), Number: b.Number, DryRun: b.DryRun, InForce: b.Until.After(now)}
}

func storyOf(s *registry.Story) Story {
	counted := ""
	if s.Allowed > 0 || s.Window > 0 {
		counted = countText(s.Resource, s.Used, s.Allowed, s.Window)
	}
	return Story{ID: s.ID, Client: s.Client.String(), Rule: s.Rule, Action: s.Action.String(), DryRun: s.DryRun,
		Status: s.Status, First: s.First.UTC(), Last: s.Last.UTC(), Count: s.Count, Until: timeOf(s.Until),
		Counted: counted, Method: s.Method, Host: s.Host, Path: s.Path, UserAgent: s.UserAgent}
}

// addressOf returns a client without the peer that named it.
func addressOf(id fairshare.ClientID) string {
	id.Via = netip.Addr{}
	return id.String()
}

// through returns the peer that named a provisional client; "" for other clients.
func through(id fairshare.ClientID) string {
	if !id.Via.IsValid() {
		return ""
	}
	return fairshare.PeerName(id.Via)
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// countText returns "17 of 30 requests in 1m".
func countText(resource string, used, allowed int64, window time.Duration) string {
	text := prose.Number(used) + " of " + amount.Of(resource, allowed)
	switch resource {
	case "cpu", "time", "bytes":
		text = amount.Of(resource, used) + " of " + amount.Of(resource, allowed)
	}
	if window > 0 {
		text += " in " + policyfile.FormatDuration(window)
	}
	return text
}

// request returns a request of a client, as far as it is known.
func (c *Console) request(addr netip.Addr, method, host, path, agent, fleet string) *fairshare.Request {
	rt := c.Policy.Current()
	req := &fairshare.Request{Time: c.Policy.Now(), Addr: addr, Method: method, Host: host, UserAgent: agent,
		Fleet: fleet,
		Proxy: rt.Clients.Trusts(addr), Lookups: rt.Bots.Lookups()}
	req.SetTarget(path)
	req.SetBot(rt.Bots.Verifier.Look(addr, agent))
	if rt.Owners != nil {
		req.Owner = rt.Owners.Owner(addr)
	}
	if override := c.Policy.Override(); override != nil {
		req.Override = override(addr, req.Bot, req.Time)
	}
	return req
}

// usage returns what a request's client has used of each limit.
func (c *Console) usage(ctx context.Context, req *fairshare.Request) ([]Usage, error) {
	all := []Usage{}
	rt := c.Policy.Current()
	err := rt.Guard.Usage(ctx, req, c.Policy.Now(), func(rule *fairshare.Rule, lim *fairshare.Limit,
		t fairshare.Tally) {
		u := Usage{Rule: rule.Name, By: amount.Key(lim.By), Resource: lim.Resource.String(), Used: t.Used,
			Allowed: lim.Allowed(), Window: lim.Window.Seconds(), Over: t.Over, Wait: t.Wait.Seconds(),
			Reset: t.Reset.Seconds(), DryRun: rule.DryRun || rt.File.Policy.DryRun}
		u.Text = countText(u.Resource, u.Used, u.Allowed, lim.Window)
		all = append(all, u)
	})
	return all, err
}

// Rules returns the rules of the policy, what they did, and how near clients are to their limits.
func (c *Console) Rules(ctx context.Context) (*Rules, error) {
	rt := c.Policy.Current()
	file, counts := rt.File, c.counts().Rules()
	v := &Rules{File: file.Name, DryRun: file.Policy.DryRun, Since: c.Policy.Wall(c.Traffic.Began()).UTC(),
		Rules:  []Rule{},
		Others: []Rule{}, Warnings: []string{}}
	for i := range file.Warnings {
		v.Warnings = append(v.Warnings, strings.TrimSpace(file.Warnings[i].Long()))
	}
	nearest, err := c.nearest(ctx)
	if err != nil {
		return nil, err
	}
	people := map[string][]Refusal{}
	for _, r := range c.refusals(2000, func(r *traffic.Refusal) bool { return isBrowser(r) }) {
		if len(people[r.Rule]) < 10 {
			people[r.Rule] = append(people[r.Rule], r)
		}
	}
	for i := range file.Policy.Rules {
		rule := &file.Policy.Rules[i]
		r := ruleOf(rule.Name, counts)
		r.Text, r.DryRun, r.Nearest = file.Sentence(rule), rule.DryRun || file.Policy.DryRun, nearest[rule.Name]
		r.Action = actionOf(rule)
		r.People = append(r.People, people[rule.Name]...)
		v.Rules = append(v.Rules, r)
		delete(counts, rule.Name)
	}
	for name := range counts {
		r := ruleOf(name, counts)
		r.People = append(r.People, people[name]...)
		v.Others = append(v.Others, r)
	}
	slices.SortFunc(v.Others, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })
	return v, nil
}

func actionOf(rule *fairshare.Rule) string {
	if rule.Limit != nil {
		return "limit"
	}
	return rule.Action.String()
}

func ruleOf(name string, counts map[string]traffic.RuleTotals) Rule {
	n := counts[name]
	return Rule{Name: name, Refused: n.Refused, Blocked: n.Blocked, WouldBe: n.DryRun, Bans: n.Bans,
		Last:   timeOf(n.Last),
		People: []Refusal{}}
}

// nearClients is how many of the clients with the most requests nearest looks at.
const nearClients = 20

// nearest returns for each limit the client that has used most of it.
func (c *Console) nearest(ctx context.Context) (map[string]*Nearest, error) {
	list, err := c.Top("client", "requests", "1m")
	if err != nil {
		return nil, err
	}
	all := map[string]*Nearest{}
	for _, row := range list.Rows[:min(len(list.Rows), nearClients)] {
		id, addr, err := c.clientID(row.Key)
		if err != nil || !addr.IsValid() {
			continue // a provisional client
		}
		used, err := c.usage(ctx, c.request(addr, "GET", "", "/", "", ""))
		if err != nil {
			return nil, err
		}
		for _, u := range used {
			if old := all[u.Rule]; u.Used > 0 && (old == nil || part(&u) > part(&old.Usage)) {
				all[u.Rule] = &Nearest{Client: id.String(), Usage: u}
			}
		}
	}
	return all, nil
}

func part(u *Usage) float64 { return float64(u.Used) / float64(max(u.Allowed, 1)) }

// Bots returns the bots of the last hour.
func (c *Console) Bots(ctx context.Context) (*Bots, error) {
	list, err := c.Top("bot", "requests", "1h")
	if err != nil {
		return nil, err
	}
	v := &Bots{From: list.From, To: list.To, Bots: []Bot{}}
	decisions, err := c.decisions(ctx)
	if err != nil {
		return nil, err
	}
	table := c.Policy.Current().Bots.Table
	for _, row := range list.Rows {
		b := Bot{Name: row.Key, State: row.Name, Categories: []string{}, Sums: row.Sums, Error: row.Error}
		if known := table.Bot(row.Key); known != nil {
			b.Operator = known.OperatorName()
			b.Categories = append(b.Categories, known.Categories...)
			b.Home = known.URL
		}
		if i := slices.IndexFunc(decisions, func(d Decision) bool { return d.Client == row.Key }); i >= 0 {
			b.Decision = &decisions[i]
		}
		v.Bots = append(v.Bots, b)
	}
	return v, nil
}

// decisions returns what operators have decided, as far as it is in force.
func (c *Console) decisions(ctx context.Context) ([]Decision, error) {
	all := []Decision{}
	store := c.registry()
	if store == nil {
		return all, nil
	}
	overrides, _, err := store.Overrides(ctx)
	if err != nil {
		return nil, err
	}
	now := c.wall()
	for i := range overrides {
		if d := decision(&overrides[i], now); d != nil {
			all = append(all, *d)
		}
	}
	return all, nil
}

const mostBans = 1000

// Bans returns the bans in force.
func (c *Console) Bans(ctx context.Context) (*Bans, error) {
	v := &Bans{Bans: []Ban{}}
	var err error
	if v.Decisions, err = c.decisions(ctx); err != nil {
		return nil, err
	}
	store, now := c.registry(), c.wall()
	if store == nil {
		return v, nil
	}
	for b, err := range store.Bans(ctx, now, false) {
		if err != nil {
			return nil, err
		}
		if len(v.Bans) == mostBans {
			v.More = true
			break
		}
		v.Bans = append(v.Bans, banOf(&b, now))
	}
	slices.SortStableFunc(v.Bans, func(a, b Ban) int { return b.Began.Compare(a.Began) })
	return v, nil
}

// A JournalQuery selects refusals. Empty fields select all.
type JournalQuery struct {
	ID     string // a reference
	Client string // an address or prefix: with all clients within
	Rule   string
	Limit  int // 0 means 100; at most 1,000
}

// Journal returns the latest refusals, at most 2,000 of which are kept. For a reference it looks into
// the registry too.
func (c *Console) Journal(ctx context.Context, q JournalQuery) (*Journal, error) {
	var id fairshare.ClientID
	if q.Client != "" {
		var err error
		if id, _, err = c.clientID(q.Client); err != nil {
			return nil, err
		}
	}
	reference := strings.ToLower(strings.TrimSpace(q.ID))
	v := &Journal{Stories: []Story{}}
	v.Refusals = c.refusals(min(cmp.Or(max(q.Limit, 0), 100), 1000), func(r *traffic.Refusal) bool {
		return (reference == "" || r.ID == reference) && (q.Client == "" || within(r, id)) && (q.Rule == "" ||
			r.Rule == q.Rule)
	})
	if store := c.registry(); store != nil && reference != "" {
		stories, err := store.Story(ctx, reference)
		if err != nil {
			return nil, err
		}
		for i := range stories {
			v.Stories = append(v.Stories, storyOf(&stories[i]))
		}
	}
	return v, nil
}

func (c *Console) refusals(n int, match func(*traffic.Refusal) bool) []Refusal {
	found := c.counts().Recent(n, match)
	all := make([]Refusal, len(found))
	for i := range found {
		all[i] = refusalOf(&found[i])
	}
	return all
}

func isBrowser(r *traffic.Refusal) bool { return r.Bot == "" && census.Browser(r.UserAgent) }

func refusalOf(r *traffic.Refusal) Refusal {
	v := Refusal{N: r.N, At: r.At.UTC(), ID: r.ID, Client: addressOf(r.Client), Through: through(r.Client),
		Rule: r.Rule, Action: r.Action.String(), DryRun: r.DryRun, Room: r.Room, Status: r.Status,
		Wait: r.Wait.Seconds(), Method: r.Method, Host: r.Host, Path: r.Path,
		UserAgent: r.UserAgent, Bot: r.Bot, BotState: r.BotState.String(), Fleet: r.Fleet,
		ASN: r.Owner.ASN, Owner: r.Owner.Name, Browser: isBrowser(r)}
	if r.Addr.IsValid() {
		v.Address = r.Addr.String()
	}
	switch r.Ban {
	case fairshare.BanStarted:
		v.Ban = "started"
	case fairshare.BanInForce:
		v.Ban = "in_force"
	}
	if r.Resource != "" {
		v.Counted = countText(r.Resource, r.Used, r.Allowed, r.Window)
	}
	return v
}

// ErrNoRegistry is the error of an action on a server without a registry.
var ErrNoRegistry = errors.New("the server runs without a registry: decisions cannot be stored")
