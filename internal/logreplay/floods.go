package logreplay

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
)

const (
	// A user agent is a flood if floodPart of its requests come in a tenth of the log's hours, and
	// floodRate times as many in an hour as all others send. People use an app all day.
	floodPart, floodRate = 0.8, 3
	leastHours           = 5 // of a log in which a flood differs from ordinary use
	// leastText is the least length of a user agent that gets a rule.
	leastText = 4
	// leastBroken is from how many requests on against robots.txt a crawler gets a rule.
	leastBroken = 20
)

// An allowance is what a budget gives in an hour: requests, bytes or nanoseconds.
type allowance struct {
	resource string
	n        int64
}

// isExempt reports whether no rule for named bots may refuse a bot: a search engine, or a program
// that acts for people or for the operators of a site.
func (s *session) isExempt(name string) bool {
	b := s.identifier.Table.Bot(name)
	if b == nil || slices.Contains(notOneProgram, name) {
		return true
	}
	_, purpose := s.purpose(name)
	return purpose == replay.ByUser || slices.Contains(tools, b.Main()) ||
		slices.Contains([]string{"search", "fetcher", "feed", "monitor", "preview"}, b.Main())
}

// floods returns the user agents that flood the site, the largest first. Browsers are not among
// them, nor are bots with a rule of their own, nor apps that people use all day.
func (s *session) floods(r *replay.Report) (found []*replay.Taker) {
	if r.Loads == nil || r.From == nil {
		return nil
	}
	for i := range r.Loads.Agents {
		t := &r.Loads.Agents[i]
		if t.Requests < leastEvidence || mostOf(t.Passed, r.Total) < largeShare || !isPlain(t.Name) {
			continue
		}
		b := s.identifier.Table.Bot(t.Bot)
		isTool := b != nil && slices.Contains(tools, b.Main())
		if b != nil && !isTool && !slices.Contains(notOneProgram, t.Bot) {
			continue
		}
		if t.Name == "" && t.Bot == "" {
			continue // the log has no user agents
		}
		few := isTool && t.Clients <= fewClients && t.Requests >= leastEvidence*t.Clients
		alone := t.Clients == 1 && mostOf(t.Passed, r.Total) >= largeToolShare
		if few || alone || 5*t.Errors > 4*t.Requests || isBurst(t, r) {
			found = append(found, t)
		}
	}
	return found
}

// isBurst reports whether most requests of a user agent came at once.
func isBurst(t *replay.Taker, r *replay.Report) bool {
	hours := r.To.Sub(*r.From).Hours()
	if hours < leastHours {
		return false
	}
	n := int(math.Ceil(hours / 10))
	busiest, all := t.Busiest(n)
	others := float64(r.Total.Requests-t.Requests) / hours
	return float64(busiest) >= floodPart*float64(all) && float64(busiest)/float64(n) >= floodRate*others
}

// isPlain reports whether a rule can name a user agent: text in ASCII, or none at all.
func isPlain(text string) bool {
	if text == "" {
		return true
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) >= leastText
}

// floodRules returns a budget for all clients together that send one of the user agents.
func (s *session) floodRules(r *replay.Report) (found []candidate) {
	for _, t := range s.floods(r) {
		if b := s.identifier.Table.Bot(t.Bot); t.Clients < 2 && b != nil && !slices.Contains(notOneProgram, t.Bot) {
			continue // toolRules names its address
		}
		limit, reason := budget(t.Passed, t.Passed, r)
		said := "the user agent " + strconv.Quote(prose.Cut(t.Name, 60))
		match := strconv.Quote("re:(?i)^" + regexp.QuoteMeta(t.Name) + "$") // the whole text, and not a part of others
		if t.Name == "" {
			said, match = "no user agent", `""`
		}
		name := s.newName("flood by one user agent")
		c := candidate{taker: fmt.Sprintf("%s with %s", prose.Plural(t.Clients, "client"), said), uses: t.Passed,
			takers: []*replay.Taker{t}, together: true, allowance: limit, clients: t.Clients}
		c.rule = replay.AdvisedRule{Name: name, Reasons: []string{
			fmt.Sprintf("%s took %s of the site. No browser sends this text.", c.taker, sharesOf(t.Passed, r)), reason,
			"All clients that send it count together. If it is an app of yours, leave this rule out."}}
		c.rule.YAML = fmt.Sprintf("- name: %s\n  match: {user_agent: %s}\n  limit: {%s, per: 1h, by: everyone}\n", name,
			match, limit.text())
		found = append(found, c)
	}
	return found
}

// robotsRules returns rules for crawlers that do not keep robots.txt: what it disallows is blocked,
// and its delay is a limit.
func (s *session) robotsRules(r *replay.Report) (found []candidate) {
	if r.Robots == nil {
		return nil
	}
	clients := map[string]int64{}
	for _, b := range r.Bots {
		clients[b.Name] += b.Clients
	}
	var forbidden, fast candidate
	var tooSoon, line int64
	var names, quick []string
	for _, b := range r.Robots.Bots {
		if s.isExempt(b.Name) {
			continue
		}
		if b.DisallowedPassed >= leastBroken {
			if !slices.Contains(names, b.Name) {
				names = append(names, b.Name)
				forbidden.clients += clients[b.Name]
			}
			forbidden.uses.Requests += b.DisallowedPassed
			forbidden.uses.Bytes += b.DisallowedPassedBytes
		}
		if b.IsTooFast() && b.TooSoonPassed >= leastBroken {
			if !slices.Contains(quick, b.Name) {
				quick = append(quick, b.Name)
				fast.clients += clients[b.Name]
			}
			tooSoon += b.TooSoonPassed
			line = int64(b.DelayLine)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		forbidden.taker, forbidden.sure = prose.List(names, "and"), true
		name := s.newName("robots.txt disallows")
		forbidden.estimate = &forbidden.uses
		forbidden.rule = replay.AdvisedRule{Name: name, Reasons: []string{
			fmt.Sprintf("%s fetched what robots.txt disallows: %s passed.", forbidden.taker,
				prose.Plural(forbidden.uses.Requests, "request"))}}
		forbidden.rule.YAML = fmt.Sprintf(
			"- name: %s\n  match: {method: [GET, HEAD], bot: [%s], robots: disallowed}\n  block: true\n", name,
			strings.Join(names, ", "))
		found = append(found, forbidden)
	}
	if len(quick) > 0 {
		slices.Sort(quick)
		name := s.newName("robots.txt crawl delay")
		fast.taker, fast.sure, fast.uses.Requests = prose.List(quick, "and"), true, tooSoon
		fast.estimate = &fast.uses
		fast.rule = replay.AdvisedRule{Name: name, Reasons: []string{
			fmt.Sprintf("%s came faster than line %d of robots.txt asks: %s passed too soon.",
				fast.taker, line, prose.Plural(tooSoon, "request"))}}
		fast.rule.YAML = fmt.Sprintf("- name: %s\n  match: {method: [GET, HEAD], bot: [%s], not: [%s, {path: /robots.txt}]}\n"+
			"  limit: {robots: crawl-delay, burst: 5}\n", name, strings.Join(quick, ", "), assetPaths)
		found = append(found, fast)
	}
	return found
}

// A crowd has the figures of all clients of a network or owner.
type crowd struct {
	pages, assets int64
	with, without int // browsers with and without assets
}

// crowds sums up profiles by network, and by owner where one is known.
type crowds struct {
	all      crowd
	networks map[netip.Prefix]*crowd
	owners   map[uint32]*crowd
	owner    func(netip.Addr) uint32
}

const mostCrowds = 1 << 16

func (s *session) crowds(profiles map[netip.Addr]*replay.Profile) *crowds {
	c := &crowds{networks: map[netip.Prefix]*crowd{}, owners: map[uint32]*crowd{}}
	c.owner = func(addr netip.Addr) uint32 {
		if s.owners == nil {
			return 0
		}
		return s.owners.Owner(addr).ASN
	}
	for addr, p := range profiles {
		if !p.Browser || p.Bot != "" {
			continue
		}
		c.all.add(p)
		if n := network.Of(addr); c.networks[n] != nil || len(c.networks) < mostCrowds {
			if c.networks[n] == nil {
				c.networks[n] = &crowd{}
			}
			c.networks[n].add(p)
		}
		if o := c.owner(addr); o != 0 && (c.owners[o] != nil || len(c.owners) < mostCrowds) {
			if c.owners[o] == nil {
				c.owners[o] = &crowd{}
			}
			c.owners[o].add(p)
		}
	}
	return c
}

func (c *crowd) add(p *replay.Profile) {
	c.pages += p.Pages
	c.assets += p.Assets
	switch {
	case p.Pages < 2:
	case p.Assets > 0:
		c.with++
	default:
		c.without++
	}
}

// isProgram reports whether the clients of a network or owner together behave as people do not. They
// got many pages and hardly any asset, while one in five of all other browsers got some.
func (c *crowds) isProgram(g *crowd) bool {
	if g == nil || g.pages < surePages || assetsPart*g.assets > g.pages {
		return false
	}
	with, without := c.all.with-g.with, c.all.without-g.without
	return with >= 10 && 5*with >= with+without
}

// has reports whether a client without assets belongs to such a network or owner.
func (c *crowds) has(addr netip.Addr) bool {
	return c.isProgram(c.networks[network.Of(addr)]) || c.isProgram(c.owners[c.owner(addr)])
}

// ownerForms returns limits for owners whose clients behave as people do not.
func (s *session) ownerForms(base *replay.Report, c *crowds) (all []form) {
	for _, o := range base.Owners {
		passed := o.Requests - o.Refused
		if o.ASN == 0 || passed < leastEvidence || share(float64(passed), float64(base.Total.Requests)) < largeShare ||
			!c.isProgram(c.owners[o.ASN]) {
			continue
		}
		name := fmt.Sprintf("AS%d", o.ASN)
		all = append(all, form{"pages of " + name + " in an hour", "asn: [" + name + "]", "requests", "1h", "asn",
			leastRequests, "requests"})
	}
	return all
}

// estimateAll returns the rules for a log that is read only once. What they refuse is estimated from
// the use in each hour.
func (s *session) estimateAll(r *replay.Report, found []candidate) (rules []replay.AdvisedRule) {
	if r.Loads == nil || r.Loads.Full {
		return nil
	}
	var programs []replay.TopClient
	for _, t := range slices.Concat(r.Top, r.TopByBytes, r.TopByTime) {
		l := r.Loads.Clients[t.Client]
		if l != nil && l.Program && l.Bot == "" && !t.Approximate && !s.isProxy(t.Client) &&
			mostOf(passedOf(&t), r.Total) >= leastOf/2 &&
			!slices.ContainsFunc(programs, func(p replay.TopClient) bool { return p.Client == t.Client }) {
			programs = append(programs, t)
		}
	}
	if len(programs) > 0 {
		found = append(found, s.programRule(r, programs))
	}
	for i := range found {
		c := &found[i]
		saved := c.excess()
		if mostOf(saved, r.Total) < leastSaved && !(c.sure && saved.Requests >= leastBroken) {
			continue
		}
		rule := c.rule
		rule.Refused, rule.Clients, rule.Estimated = saved, c.clients, true
		rules = append(rules, rule)
	}
	slices.SortStableFunc(rules, func(a, b replay.AdvisedRule) int {
		x, y := mostOf(a.Refused, r.Total), mostOf(b.Refused, r.Total)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return rules[:min(len(rules), mostAdvised)]
}

// excess estimates what a candidate refuses.
func (c *candidate) excess() (sum replay.Usage) {
	switch {
	case c.estimate != nil:
		return *c.estimate
	case c.together:
		return replay.Excess(c.takers, c.allowance.resource, c.allowance.n)
	}
	for _, t := range c.takers {
		sum = sumOf(sum, replay.Excess([]*replay.Taker{t}, c.allowance.resource, c.allowance.n))
	}
	return sum
}

// text writes an allowance as the begin of a limit.
func (a allowance) text() string {
	switch a.resource {
	case "bytes":
		return "bytes: " + sizeText(float64(a.n))
	case "time":
		return "time: " + strconv.FormatInt(a.n/1e9, 10) + "s"
	}
	return "requests: " + strconv.FormatInt(a.n, 10)
}
