package fairshare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Step says whether one rule of a policy holds for a request, and why.
type Step struct {
	Rule    int      // index in Policy.Rules
	Reached bool     // false: a rule above ended the walk, or Elsewhere
	Holds   bool     // the match holds; false when the rule is not reached
	Reasons []Reason // one for each field of the match; nil without a match, or when not reached

	Elsewhere bool // the rule holds for requests of other sites only
}

// A Reason says whether one field of a match holds, and why.
type Reason struct {
	Holds bool
	Text  string // such as `path "/a.css" fits "*.css"`
}

// Explain walks a request through the rules and returns, for each rule, whether its
// match holds and why. It ignores bans and limits, and assumes that the client has
// seen no page before. The error is that of [Policy.Check].
func (p *Policy) Explain(req *Request) ([]Step, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	d := &decision{req: req, guard: new(Guard)} // this guard knows no clients
	steps := make([]Step, len(p.Rules))
	ended := false
	site := ""
	sites, _ := NewSites(p.Sites) // checked above
	if i := sites.Find(req.Host); i >= 0 && p.Sites[i].OwnRules {
		site = p.Sites[i].Name
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		steps[i] = Step{Rule: i, Reached: !ended}
		if steps[i].Elsewhere = r.Site != site; steps[i].Elsewhere {
			steps[i].Reached = false
			continue
		}
		if ended {
			continue
		}
		as := standing{favorable: r.favorable(), foldPaths: p.FoldPaths}
		m, _ := newMatcher(&r.Match, as) // checked above
		if err := d.guard.numberSeen(&r.Match, m); err != nil {
			return nil, err
		}
		steps[i].Reasons = r.Match.reasons(d, as)
		steps[i].Holds = m.holds(d)
		if r.Limit != nil && r.Limit.CrawlDelay {
			reason := crawlDelayReason(req)
			steps[i].Reasons = append(steps[i].Reasons, reason)
			steps[i].Holds = steps[i].Holds && reason.Holds
		}
		ended = steps[i].Holds && (r.Action == Allow || r.Action == Block && !r.DryRun)
		if steps[i].Holds && r.Last && !r.DryRun {
			ends, _ := newMatcher(&r.Match, as.not())
			if err := d.guard.numberSeen(&r.Match, ends); err != nil {
				return nil, err
			}
			if ended = ends.holds(d); !ended {
				steps[i].Reasons = append(steps[i].Reasons,
					Reason{Holds: true, Text: "the rules below are asked too: not certain enough for last"})
			}
		}
	}
	return steps, nil
}

// reasons returns a reason for each field of m, the cheap ones first.
func (m *Match) reasons(d *decision, as standing) []Reason {
	var reasons []Reason
	req := d.req
	explain := func(only Match, what string, verb verb, texts []string) {
		compiled, _ := newMatcher(&only, as)
		holds := compiled.holds(d)
		reasons = append(reasons, Reason{Holds: holds,
			Text: what + " " + verb.among(holds, texts, func(text string) bool {
				one, _ := newMatcher(only.with(text), as)
				return one.holds(d)
			})})
	}
	if m.Method != nil {
		explain(Match{Method: m.Method}, "method "+quoted(req.Method), is, m.Method)
	}
	if m.Bot != nil {
		explain(Match{Bot: m.Bot}, describeBot(&req.Bot, as.favorable), is, m.Bot)
	}
	if m.State != nil {
		explain(Match{State: m.State}, describeBot(&req.Bot, as.favorable), is, m.State)
	}
	if m.Operator != nil {
		what := describeBot(&req.Bot, as.favorable)
		if req.Bot.Operator != "" {
			what = "operator " + quoted(req.Bot.Operator) + " of " + what
		}
		explain(Match{Operator: m.Operator}, what, is, m.Operator)
	}
	if m.Addr != nil {
		holds := (&condition{addrs: m.Addr, standing: as}).holdsAddr(req)
		set := "the set"
		if s, ok := m.Addr.(fmt.Stringer); ok {
			set = s.String()
		}
		text := "address " + req.Addr.String() + " is not in " + set
		switch {
		case req.Via.IsValid():
			text = provisionalReason(req, holds, as.favorable, set)
		case !req.Addr.IsValid():
			text = "the address is unknown"
		case holds:
			text = "address " + req.Addr.String() + " is in " + set
		}
		reasons = append(reasons, Reason{holds, text})
	}
	if m.ASN != nil {
		explain(Match{ASN: m.ASN}, describeOwner(req, as.favorable), fits, m.ASN)
	}
	if m.Browser != nil {
		explain(Match{Browser: m.Browser}, describeBrowser(req, as.favorable), is, m.Browser)
	}
	if m.Robots != nil {
		explain(Match{Robots: m.Robots}, describeRobots(req, as.favorable), is, m.Robots)
	}
	if m.Attempt != nil {
		explain(Match{Attempt: m.Attempt}, describeAttempt(req), is, m.Attempt)
	}
	if m.Label != nil {
		what := "no label: that"
		var labels []string
		req.hasLabel(false, func(label string) bool {
			labels = append(labels, quoted(label))
			return false
		})
		if len(labels) > 0 {
			what = "label " + strings.Join(labels, ", ") + ": that"
		}
		explain(Match{Label: m.Label}, what, is, m.Label)
	}
	if m.Host != nil {
		explain(Match{Host: m.Host}, "host "+quoted(plainHost(req.Host)), fits, m.Host)
	}
	if m.Path != nil {
		explain(Match{Path: m.Path}, describePath(d), fits, m.Path)
	}
	if m.Seen != nil {
		place := slices.IndexFunc(d.guard.seen, func(l seenList) bool { return slices.Equal(l.texts, m.Seen) })
		holds, text := place >= 0 && d.hasSeen(uint8(place)), "the client has not seen "
		if holds {
			text = "the client has seen "
		}
		reasons = append(reasons, Reason{holds, text + quoted(strings.Join(m.Seen, ", "))})
	}
	if m.Cookie != nil {
		var names []string
		cookies(req.Header, func(name, _ string) bool {
			names = append(names, quoted(name))
			return true
		})
		what := "no cookie: that"
		if len(names) > 0 {
			what = "cookie " + strings.Join(names, ", ") + ": that"
		}
		explain(Match{Cookie: m.Cookie}, what, is, m.Cookie)
	}
	if m.Referer != nil {
		explain(Match{Referer: m.Referer}, "Referer", is, m.Referer)
	}
	if m.UserAgent != nil {
		explain(Match{UserAgent: m.UserAgent}, "user agent "+quoted(req.UserAgent), contain, m.UserAgent)
	}
	for _, name := range sortedKeys(m.Header) {
		explain(Match{Header: map[string][]string{name: m.Header[name]}}, "header "+canonicalHeader(name), contain,
			m.Header[name])
	}
	parameters := func(what string, of map[string][]string, one func(map[string][]string) Match) {
		for _, name := range sortedKeys(of) {
			any := one(map[string][]string{name: {"*"}})
			given, _ := newMatcher(&any, standing{foldPaths: as.foldPaths})
			if !given.holds(d) {
				reasons = append(reasons, Reason{Text: what + " " + quoted(name) + " is missing"})
				continue
			}
			explain(one(map[string][]string{name: of[name]}), what+" "+quoted(name), contain, of[name])
		}
	}
	parameters("query parameter", m.Query, func(q map[string][]string) Match { return Match{Query: q} })
	switch {
	case m.Form != nil && req.Form.Unknown && as.favorable:
		reasons = append(reasons, Reason{false, "the fields of the body are unknown, which fits no permission"})
	case m.Form != nil && req.Form.Unknown:
		reasons = append(reasons, Reason{true, "the fields of the body are unknown, which fits every restriction"})
	default:
		parameters("form field", m.Form, func(f map[string][]string) Match { return Match{Form: f} })
	}
	for i := range m.Not {
		not, _ := newMatcher(&m.Not[i], as.not())
		if d.guard.numberSeen(&m.Not[i], not) != nil {
			continue // not reached: the same lists were numbered with the whole match
		}
		excluded := not.holds(d)
		var because []string
		for _, inner := range m.Not[i].reasons(d, as.not()) {
			if inner.Holds == excluded {
				because = append(because, inner.Text)
			}
		}
		r := Reason{Holds: !excluded, Text: "not does not hold: "}
		if excluded {
			r.Text = "not holds: "
		}
		r.Text += strings.Join(because, ", ")
		reasons = append(reasons, r)
	}
	if m.Hostname != nil {
		what := "no hostname is known: that"
		if req.Lookups != nil && req.Addr.IsValid() {
			if names := req.Lookups.Hostnames(req.Addr); len(names) > 0 {
				what = "hostname " + strings.Join(names, ", ")
			}
		}
		explain(Match{Hostname: m.Hostname}, what, fits, m.Hostname)
	}
	if m.Listed != nil {
		reasons = append(reasons, m.listedReason(d, as))
	}
	return reasons
}

// describePath describes a path, and how else servers may read it.
func describePath(d *decision) string {
	s := "path " + quoted(d.req.Path)
	if !d.req.OddPath {
		return s
	}
	paths, complete := d.readings()
	var others []string
	for _, path := range paths {
		if path != d.req.Path {
			others = append(others, quoted(path))
		}
	}
	if more := len(others) - maxTexts; more > 0 || !complete {
		others = append(others[:min(len(others), maxTexts)], "and more")
	}
	return s + ", which servers may read as " + strings.Join(others, ", ") + ","
}

// provisionalReason explains whether an addr field holds for a provisional client.
func provisionalReason(req *Request, holds, favorable bool, set string) string {
	both := "address " + req.Addr.String() + " and the peer that named it, " + PeerName(req.Via) + ","
	switch {
	case holds && favorable:
		return both + " are in " + set
	case holds:
		return both + " are not both outside " + set
	case favorable:
		return both + " are not both in " + set
	}
	return both + " are not in " + set
}

// describeOwner describes the owner of an address, and why it may not count.
func describeOwner(req *Request, favorable bool) string {
	o := &req.Owner
	if o.ASN == 0 {
		return "no owner of the address is known: that"
	}
	s := "owner AS" + strconv.FormatUint(uint64(o.ASN), 10)
	if o.Name != "" {
		s += " " + quoted(o.Name)
	}
	if o.Type != "" {
		s += " (" + o.Type + ")"
	}
	switch {
	case req.Proxy || req.unnamed():
		s += " of a proxy, which does not count,"
	case favorable && req.Via.IsValid():
		s += " of an address that a peer has named, which does not count here,"
	}
	return s
}

// describeBot describes the bot that a client is recognized as, and why that may
// not be enough.
func describeBot(b *Bot, favorable bool) string {
	if b.State == NoBot {
		return "no bot: that"
	}
	s := "bot " + b.Name
	if len(b.Categories) > 0 {
		s += " (" + strings.Join(b.Categories, ", ") + ")"
	}
	s += ", " + b.State.String()
	if favorable && b.UserTriggered {
		return s + ", whom anybody can send, so that it is treated as any other client: that"
	}
	if favorable && b.State != Verified {
		return s + ", where only a verified one counts: that"
	}
	if b.State != Verified {
		return s + ", where its claim counts: that"
	}
	return s + ": that"
}

// listedReason explains whether an address is on one of the DNS lists.
func (m *Match) listedReason(d *decision, as standing) Reason {
	one := condition{field: listedField, standing: as}
	var names []string
	for i := range m.Listed {
		one.listed = m.Listed[i : i+1]
		if one.holds(d) {
			return Reason{true, "address " + d.req.Addr.String() + " is listed by " + quoted(m.Listed[i].List)}
		}
		names = append(names, quoted(m.Listed[i].List))
	}
	return Reason{false, "address " + d.req.Addr.String() + " is not known to be listed as asked for by " +
		strings.Join(names, ", ")}
}

// with returns m, which has one field, with a single text in it.
func (m Match) with(text string) *Match {
	one := []string{text}
	switch {
	case m.Method != nil:
		m.Method = one
	case m.Host != nil:
		m.Host = one
	case m.Bot != nil:
		m.Bot = one
	case m.State != nil:
		m.State = one
	case m.Operator != nil:
		m.Operator = one
	case m.Label != nil:
		m.Label = one
	case m.ASN != nil:
		m.ASN = one
	case m.Browser != nil:
		m.Browser = one
	case m.Robots != nil:
		m.Robots = one
	case m.Attempt != nil:
		m.Attempt = one
	case m.Hostname != nil:
		m.Hostname = one
	case m.Path != nil:
		m.Path = one
	case m.Cookie != nil:
		m.Cookie = one
	case m.UserAgent != nil:
		m.UserAgent = one
	case m.Referer != nil:
		m.Referer = one
	}
	for name := range m.Header {
		m.Header = map[string][]string{name: one}
	}
	for name := range m.Query {
		m.Query = map[string][]string{name: one}
	}
	for name := range m.Form {
		m.Form = map[string][]string{name: one}
	}
	return &m
}

// maxTexts is how many texts of a field a reason shows.
const maxTexts = 5

// A verb is the middle of a reason.
type verb struct{ yes, no string }

var (
	is      = verb{"is", "is not"}
	fits    = verb{"fits", "does not fit"}
	contain = verb{"contains", "does not contain"}
)

// among ends a reason: with the first text that fits, or with some of those
// that do not.
func (v verb) among(holds bool, texts []string, fits func(string) bool) string {
	if holds {
		for _, text := range texts {
			if fits(text) {
				return v.yes + " " + quoted(text)
			}
		}
		return v.yes + " one text for each reading" // of a path, say
	}
	if len(texts) == 1 {
		return v.no + " " + quoted(texts[0])
	}
	var list []string
	for _, text := range texts[:min(len(texts), maxTexts)] {
		list = append(list, quoted(text))
	}
	s := v.yes + " none of " + strings.Join(list, ", ")
	if more := len(texts) - maxTexts; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// quoted returns a text in quotes, cut to 120 bytes and harmless to a terminal.
func quoted(s string) string {
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:117], "") + "..."
	}
	return strconv.Quote(s)
}
