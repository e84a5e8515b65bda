package replay

import (
	"cmp"
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
)

// A Report is the result of a run. Its JSON form is stable: new fields are added at the
// end, and none is renamed.
type Report struct {
	Files   []string   `json:"files"`
	Format  string     `json:"format"` // of all logs, joined by commas if they differ
	Lines   int64      `json:"lines"`  // judged and skipped
	Skipped int64      `json:"skipped"`
	From    *time.Time `json:"from"` // earliest judged time, UTC; nil if no line was judged
	To      *time.Time `json:"to"`
	Clients int64      `json:"clients"` // different addresses
	// there were too many clients to count exactly: Clients, Top, RefusedClients, BlockedClients,
	// MostRefused and People are estimates
	Approximate bool     `json:"approximate,omitempty"`
	Verdicts    Verdicts `json:"verdicts"`
	// all rules in the policy's order, then operators' bans if they had an effect
	Rules      []RuleReport `json:"rules"`
	Unmeasured []Unmeasured `json:"unmeasured"`
	Top        []TopClient  `json:"top"` // clients with the most requests

	RefusedClients int64           `json:"refused_clients"` // different addresses refused at least once
	BlockedClients int64           `json:"blocked_clients"`
	Agents         int64           `json:"user_agent_count"` // different ones; a missing one counts as one
	MostRefused    []RefusedClient `json:"most_refused"`     // clients refused or blocked most
	Networks       []TopNetwork    `json:"networks"`         // IPv4 /24 and IPv6 /48 with the most requests
	UserAgents     []TopUserAgent  `json:"user_agents"`      // with the most requests
	People         People          `json:"people"`
	OverTime       []Slice         `json:"over_time"`
	Reasons        []SkipReason    `json:"skip_reasons"`
	Restarts       Restarts        `json:"restarts"`
	Backwards      Backwards       `json:"backwards"`
	Warnings       []Warning       `json:"warnings"`

	Bots       []BotReport `json:"bots"` // with the most requests, at most 1000
	BotSummary BotSummary  `json:"bot_summary"`
	Fleets     []Fleet     `json:"fleets"`

	Robots *RobotsReport `json:"robots,omitempty"` // nil without Options.Robots
	Group  *Group        `json:"group,omitempty"`  // nil unless the caller has estimated it

	OperatorAllowed OperatorAllowed `json:"operator_allowed"`

	BrowserFleets []BrowserFleet `json:"browser_fleets"` // with the most requests first, at most 1000
	Assetless     Assetless      `json:"browsers_without_assets"`
	Owners        []TopOwner     `json:"owners"` // with the most requests; none without Options.Owner

	Total        Usage        `json:"total"`                // of all judged lines
	Saved        Usage        `json:"saved"`                // of those that were refused or blocked
	HasBytes     bool         `json:"has_bytes"`            // the log has the bytes of answers
	HasTime      bool         `json:"has_time"`             // the log has the time of requests
	Empty        int64        `json:"no_request"`           // lines of connections on which no request came
	TopByBytes   []TopClient  `json:"top_by_bytes"`         // clients with the most bytes; none without bytes
	TopByTime    []TopClient  `json:"top_by_time"`          // clients with the most time; none without time
	AI           []AIOperator `json:"ai"`                   // AI bots by operator and purpose, the largest share first
	Least        []LeastLimit `json:"least,omitempty"`      // with Options.Measure
	Difference   *Difference  `json:"difference,omitempty"` // with Options.Before
	Advice       *Advice      `json:"advice,omitempty"`     // what to do; nil if it was not computed
	Paths        []PathUsage  `json:"paths"`                // with the largest shares; at most 100
	PathPatterns []PathUsage  `json:"path_patterns"`        // the same as patterns; a request counts once
	Loads        *Loads       `json:"-"`                    // from which rules are made
}

// Verdicts counts the judged lines by enforced action.
type Verdicts struct {
	Allow  int64 `json:"allow"`
	Refuse int64 `json:"refuse"`
	Block  int64 `json:"block"`
}

// A RuleReport has the effect of one rule. With DryRun it had none: it would have had it.
type RuleReport struct {
	Name        string `json:"name"`
	Matched     int64  `json:"matched"` // requests that reached the rule and matched it
	Refused     int64  `json:"refused"` // including refusals by its bans
	Blocked     int64  `json:"blocked"`
	Banned      int64  `json:"banned"`  // bans started
	Clients     int64  `json:"clients"` // different clients refused or blocked
	DryRun      bool   `json:"dry_run"`
	Approximate bool   `json:"approximate,omitempty"` // Clients is an estimate
	// of Banned: all new clients of an IPv6 /48, after 128 of its clients were banned
	Networks  int64  `json:"banned_networks"`
	Resource  string `json:"resource,omitempty"`  // of its limit, by its name in policies
	Allowance string `json:"allowance,omitempty"` // what the limit allows, as text
	Saved     Usage  `json:"saved"`               // of the requests refused or blocked
	People    int64  `json:"people"`              // of Clients: those that look like people, see People
	// of Clients: those with a browser's user agent that are not known bots; People are among them
	MaybePeople int64 `json:"maybe_people"`
}

// A TopClient has the figures of one client.
type TopClient struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	Blocked  int64  `json:"blocked"`
	// of most of its requests, "" if unknown; at most 256 bytes
	UserAgent   string `json:"user_agent"`
	Approximate bool   `json:"approximate,omitempty"` // Requests may be too high
	Bot         string `json:"bot,omitempty"`         // of that user agent
	BotState    string `json:"bot_state,omitempty"`   // as BotReport.State

	Bytes    int64    `json:"bytes"`   // of the answers
	Seconds  float64  `json:"seconds"` // see Usage
	Statuses Statuses `json:"statuses"`
}

// A RefusedClient is a client that was refused or blocked.
type RefusedClient struct {
	TopClient
	Rule   string `json:"rule"`   // that refused or blocked it most often
	Person bool   `json:"person"` // looks like a person, see People
}

// A TopNetwork has the figures of one network.
type TopNetwork struct {
	Network     string `json:"network"`
	Clients     int64  `json:"clients"`
	Requests    int64  `json:"requests"`
	Refused     int64  `json:"refused"`
	Blocked     int64  `json:"blocked"`
	Approximate bool   `json:"approximate,omitempty"` // Clients is too low
}

// A TopUserAgent has the figures of one user agent.
type TopUserAgent struct {
	UserAgent   string `json:"user_agent"`
	Requests    int64  `json:"requests"`
	Refused     int64  `json:"refused"` // or blocked
	Approximate bool   `json:"approximate,omitempty"`
	Bot         string `json:"bot,omitempty"` // of that user agent

	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// People has the figures of clients that look like people: they have a browser's user
// agent, fetched page assets, sent referers, and are not known bots. They do not behave as only
// programs such as scanners do, see behavior.isProgram.
type People struct {
	Known    bool         `json:"known"` // the log has the facts that are necessary
	Clients  int64        `json:"clients"`
	Requests int64        `json:"requests"`
	Refused  int64        `json:"refused"` // or blocked
	Hurt     int64        `json:"hurt"`    // of Clients: those that were refused or blocked
	Rules    []PeopleRule `json:"rules"`   // that refused or blocked them, the most refusals first
	Named    []HurtClient `json:"named"`   // of Hurt: those with the most refusals
}

// A PeopleRule has the effect of one rule on clients that look like people.
type PeopleRule struct {
	Rule    string `json:"rule"`
	Clients int64  `json:"clients"`
	Refused int64  `json:"refused"` // or blocked
}

// A Slice has the requests of one interval.
type Slice struct {
	From     time.Time `json:"from"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"` // or blocked
}

// A SkipReason is a reason for which lines were not judged.
type SkipReason struct {
	Reason  string   `json:"reason"`
	Lines   int64    `json:"lines"`
	Samples []Sample `json:"samples"`
}

// Restarts counts the lines that started a new guard, since they are much earlier than
// the latest line.
type Restarts struct {
	Count int64     `json:"count"`
	At    []Restart `json:"at"` // the first ten
}

// A Restart is the start of one new guard.
type Restart struct {
	File   string    `json:"file"`
	Line   int64     `json:"line"`
	Time   time.Time `json:"time"`
	Latest time.Time `json:"latest"` // judged until then
}

func (r *Restarts) add(file string, line int64, at, latest time.Time) {
	r.Count++
	if len(r.At) < 10 {
		r.At = append(r.At, Restart{File: file, Line: line, Time: at.UTC(), Latest: latest})
	}
}

// Backwards counts the lines that are earlier than the line before.
type Backwards struct {
	Lines    int64   `json:"lines"`
	Seconds  float64 `json:"seconds"` // the largest difference
	Position         // of that difference
}

// A Warning is a property of the log that makes the report less reliable.
type Warning struct {
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// WriteJSON writes the report as one JSON object. Texts of clients cannot control a terminal.
func (r *Report) WriteJSON(w io.Writer) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err
	}
	_, err := w.Write(prose.PrintableJSON(b.String()))
	return err
}

func newReport(rp *Replay, j *judge, rec *recorder) *Report {
	r := &Report{
		Files:       rp.opts.Logs,
		Format:      formats(rp.logs),
		Lines:       rec.judged + rec.skipped,
		Skipped:     rec.skipped,
		Clients:     rec.clients.distinct(),
		Approximate: rec.clients.full(),
		Agents:      rec.agents.distinct(),
		Verdicts:    Verdicts{rec.allowed, rec.refused, rec.block},
		Unmeasured:  rec.unmeasured(),
		Restarts:    j.restarts,
		Backwards:   Backwards{rec.backwards, time.Duration(rec.furthest).Seconds(), rec.furthestAt},
		OverTime:    rec.chart.slices(mostSlices),
		Total:       rec.total.report(),
		HasBytes:    rec.has&accesslog.HasBytes != 0,
		HasTime:     rec.has&(accesslog.HasDuration|accesslog.HasUpstream) != 0,
		Empty:       rec.empty,
	}
	if r.Restarts.At == nil {
		r.Restarts.At = []Restart{}
	}
	if rec.started {
		from, to := time.Unix(0, rec.first).UTC(), time.Unix(0, rec.last).UTC()
		r.From, r.To = &from, &to
	}
	saved := rec.rules[rec.operator].saved // by operators' bans
	r.Rules = make([]RuleReport, len(rp.opts.Policy.Rules))
	for i := range r.Rules {
		rule, count := &rp.opts.Policy.Rules[i], &rec.rules[i]
		r.Rules[i] = RuleReport{
			Name: rule.Name, Matched: j.matched[i], DryRun: rule.DryRun,
			Refused: count.refused, Blocked: count.blocked, Banned: count.banned + j.networks[i],
			Networks: j.networks[i], Saved: count.saved.report(),
		}
		if !rule.DryRun {
			saved.add(count.saved)
		}
		r.Rules[i].Clients, r.Rules[i].Approximate = count.distinct()
		if lim := rule.Limit; lim != nil {
			r.Rules[i].Resource = lim.Resource.String()
			if rp.opts.Allowance != nil {
				r.Rules[i].Allowance = rp.opts.Allowance(lim)
			}
		}
	}
	r.Saved = saved.report()
	rec.addOperators(r)
	rec.addClients(r)
	order := rec.byAddress()
	rec.addNetworks(r, order)
	rec.addFleets(r, order)
	rec.addAssetless(r, order)
	rec.addOwners(r, order)
	r.BrowserFleets = j.fleets.report()
	r.Robots = j.robots.report()
	rec.addBots(r)
	rec.addAgents(r)
	rec.addPeople(r)
	rec.addHurt(r)
	rec.addDifference(r)
	rec.addPersons()
	rec.addTakers(r)
	j.addLeast(r)
	rec.addAI(r)
	rec.addPaths(r)
	r.Reasons = make([]SkipReason, 0, len(rec.reasons))
	for text, reason := range rec.reasons {
		r.Reasons = append(r.Reasons, SkipReason{Reason: text, Lines: reason.lines, Samples: reason.samples})
	}
	slices.SortFunc(r.Reasons, func(a, b SkipReason) int {
		return cmp.Or(cmp.Compare(b.Lines, a.Lines), strings.Compare(a.Reason, b.Reason))
	})
	r.Warnings = rec.warnings(r)
	return r
}

func formats(logs []*logFile) string {
	var names []string
	for _, l := range logs {
		if l.format != "" && !slices.Contains(names, l.format) {
			names = append(names, l.format)
		}
	}
	return strings.Join(names, ", ")
}

// best returns the indexes of the n best of all, the best first.
func best(all, n int, better func(a, b int) int) []int {
	var top []int
	for i := range all {
		if len(top) == n && better(i, top[n-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, i, better)
		top = slices.Insert(top, at, i)
		top = top[:min(len(top), n)]
	}
	return top
}

func (c *client) address() netip.Addr { return netip.AddrFrom16(c.addr).Unmap() }

// compare orders clients: IPv4 first, then by number.
func (c *client) compare(d *client) int { return c.address().Compare(d.address()) }

func (rec *recorder) top(cl *ranked[client]) TopClient {
	t := TopClient{Client: cl.facts.address().String(), Requests: int64(cl.count), Approximate: cl.over > 0,
		Bytes: cl.facts.bytes, Seconds: time.Duration(cl.facts.time).Seconds(), Statuses: cl.facts.statuses.report()}
	t.Refused, t.Blocked = rec.refusalsOf(cl)
	if ag := rec.agents.find(cl.facts.agent); ag != nil {
		t.UserAgent = strings.ToValidUTF8(ag.facts.text, "\uFFFD")
	}
	if b := rec.bots.bot(cl.facts.bot); b.Name != "" {
		t.Bot, t.BotState = b.Name, b.State.String()
	}
	return t
}

func (rec *recorder) addClients(r *Report) {
	r.Top, r.MostRefused = []TopClient{}, []RefusedClient{}
	top := best(rec.clients.n, rec.opts.Top, func(a, b int) int {
		x, y := rec.clients.at(a), rec.clients.at(b)
		if x.count != y.count {
			return cmp.Compare(y.count, x.count)
		}
		return x.facts.compare(&y.facts)
	})
	for _, i := range top {
		r.Top = append(r.Top, rec.top(rec.clients.at(i)))
	}
	r.TopByBytes = rec.topBy(func(c *client) int64 { return c.bytes })
	r.TopByTime = rec.topBy(func(c *client) int64 { return c.time })
	for i := range rec.clients.n {
		refused, blocked := rec.refusalsOf(rec.clients.at(i))
		if refused > 0 {
			r.RefusedClients++
		}
		if blocked > 0 {
			r.BlockedClients++
		}
	}
	top = best(rec.clients.n, rec.opts.Top, func(a, b int) int {
		x, y := rec.clients.at(a), rec.clients.at(b)
		xr, xb := rec.refusalsOf(x)
		yr, yb := rec.refusalsOf(y)
		if xr+xb != yr+yb {
			return cmp.Compare(yr+yb, xr+xb)
		}
		return x.facts.compare(&y.facts)
	})
	for _, i := range top {
		cl := rec.clients.at(i)
		if t := rec.top(cl); t.Refused+t.Blocked > 0 {
			r.MostRefused = append(r.MostRefused, RefusedClient{TopClient: t, Rule: rec.topRule(cl),
				Person: rec.person(cl)})
		}
	}
}

// topBy returns the clients with the most of something that a log may lack.
func (rec *recorder) topBy(figure func(*client) int64) []TopClient {
	found := []TopClient{}
	for _, i := range best(rec.clients.n, rec.opts.Top, func(a, b int) int {
		x, y := rec.clients.at(a), rec.clients.at(b)
		return cmp.Or(cmp.Compare(figure(&y.facts), figure(&x.facts)), x.facts.compare(&y.facts))
	}) {
		if cl := rec.clients.at(i); figure(&cl.facts) > 0 {
			found = append(found, rec.top(cl))
		}
	}
	return found
}

// topRule returns the enforced rule that refused or blocked a client most often.
func (rec *recorder) topRule(cl *ranked[client]) string {
	name, most := "", uint32(0)
	for i := cl.facts.effects; i != 0; i = rec.effects[i].next {
		s := &rec.effects[i]
		if rec.actionOf(s.row) != fairshare.Allow && s.count >= most {
			name, most = rec.opts.nameOf(s.row), s.count
		}
	}
	return name
}

// byAddress returns the indexes of clients sorted by address, so that no table of
// networks is necessary.
func (rec *recorder) byAddress() []uint32 {
	order := make([]uint32, rec.clients.n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return rec.clients.at(int(a)).facts.compare(&rec.clients.at(int(b)).facts)
	})
	return order
}

// addNetworks adds the sums of each network's clients.
func (rec *recorder) addNetworks(r *Report, order []uint32) {
	r.Networks = []TopNetwork{}
	better := func(a, b TopNetwork) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Network, b.Network))
	}
	add := func(n TopNetwork) {
		if n.Requests == 0 {
			return
		}
		at, _ := slices.BinarySearchFunc(r.Networks, n, better)
		if at < rec.opts.Top {
			r.Networks = slices.Insert(r.Networks, at, n)
			r.Networks = r.Networks[:min(len(r.Networks), rec.opts.Top)]
		}
	}
	var prefix netip.Prefix
	var sum TopNetwork
	end := func() {
		if !prefix.IsValid() {
			return
		}
		if n, found := rec.networks[prefix]; found {
			sum.Requests += n.requests
			sum.Refused += n.refused
			sum.Blocked += n.blocked
			sum.Approximate = true
			delete(rec.networks, prefix)
		}
		sum.Network = prefix.String()
		add(sum)
	}
	for _, i := range order {
		cl := rec.clients.at(int(i))
		if p := networkOf(cl.facts.addr); p != prefix {
			end()
			prefix, sum = p, TopNetwork{}
		}
		refused, blocked := rec.refusalsOf(cl)
		sum.Clients++
		sum.Requests += int64(cl.count - cl.over)
		sum.Refused += refused
		sum.Blocked += blocked
	}
	end()
	for p, n := range rec.networks {
		add(TopNetwork{Network: p.String(), Requests: n.requests, Refused: n.refused, Blocked: n.blocked,
			Approximate: true})
	}
}

func (rec *recorder) addAgents(r *Report) {
	r.UserAgents = []TopUserAgent{}
	top := best(rec.agents.n, rec.opts.Top, func(a, b int) int {
		x, y := rec.agents.at(a), rec.agents.at(b)
		return cmp.Or(cmp.Compare(y.count, x.count), strings.Compare(x.facts.text, y.facts.text))
	})
	for _, i := range top {
		ag := rec.agents.at(i)
		r.UserAgents = append(r.UserAgents, TopUserAgent{
			UserAgent: strings.ToValidUTF8(ag.facts.text, "\uFFFD"), Requests: int64(ag.count),
			Refused: int64(ag.facts.refused), Approximate: ag.over > 0, Bot: rec.bots.bot(ag.facts.bot).Name,
			Bytes: ag.facts.bytes, Seconds: time.Duration(ag.facts.time).Seconds(),
		})
	}
}

// person reports whether a client looks like a person.
func (rec *recorder) person(cl *ranked[client]) bool {
	if cl.facts.looks&looksAll != looksAll || cl.facts.bot != 0 {
		return false
	}
	ag := rec.agents.find(cl.facts.agent)
	return ag != nil && ag.facts.browser && !rec.isProgram(cl)
}

// isProgram reports whether a client behaves as only programs do.
func (rec *recorder) isProgram(cl *ranked[client]) bool {
	return cl.facts.behavior.isProgram(int64(cl.count-cl.over), int64(cl.facts.statuses[clientErrors]))
}

// maybePerson reports whether a client may be a person: it has a browser's user agent and is
// not a known bot.
func (rec *recorder) maybePerson(cl *ranked[client]) bool {
	if cl.facts.bot != 0 {
		return false
	}
	ag := rec.agents.find(cl.facts.agent)
	return ag != nil && ag.facts.browser
}

func (rec *recorder) addPeople(r *Report) {
	byRule := make([]PeopleRule, len(rec.rules))
	maybe := make([]int64, len(rec.rules))
	for i := range rec.clients.n {
		cl := rec.clients.at(i)
		if cl.facts.effects != 0 && rec.maybePerson(cl) {
			operator := false
			for k := cl.facts.effects; k != 0; k = rec.effects[k].next {
				if rule := rec.ruleOf(rec.effects[k].row); rule != rec.operator || !operator {
					maybe[rule]++
					operator = operator || rule == rec.operator
				}
			}
		}
		if !rec.person(cl) {
			continue
		}
		r.People.Clients++
		r.People.Requests += int64(cl.count - cl.over)
		refused, blocked := rec.refusalsOf(cl)
		r.People.Refused += refused + blocked
		if refused+blocked > 0 {
			r.People.Hurt++
		}
		operator := false // an operator's ban is counted already
		for k := cl.facts.effects; k != 0; k = rec.effects[k].next {
			s := &rec.effects[k]
			if rec.actionOf(s.row) == fairshare.Allow {
				continue
			}
			rule := rec.ruleOf(s.row)
			if rule != rec.operator || !operator {
				byRule[rule].Clients++
			}
			operator = operator || rule == rec.operator
			byRule[rule].Refused += int64(s.count)
		}
	}
	r.People.Rules = []PeopleRule{}
	for i, p := range byRule {
		if i < len(r.Rules) {
			r.Rules[i].People, r.Rules[i].MaybePeople = p.Clients, maybe[i]
		}
		if p.Refused > 0 {
			p.Rule = rec.opts.nameOf(int32(i))
			r.People.Rules = append(r.People.Rules, p)
		}
	}
	slices.SortStableFunc(r.People.Rules, func(a, b PeopleRule) int { return cmp.Compare(b.Refused, a.Refused) })
	for _, l := range rec.logs {
		const needed = accesslog.HasPath | accesslog.HasStatus | accesslog.HasReferer | accesslog.HasUserAgent
		r.People.Known = r.People.Known || l.has&needed == needed
	}
}

// A Group is an estimate of what several servers would ask a store in which they count together.
type Group struct {
	Members   int64 `json:"members"`
	Decisions int64 `json:"decisions"`
	Questions int64 `json:"questions"` // decisions that would wait for the store
}
