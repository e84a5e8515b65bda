package fairshare

import (
	"fmt"
	"strconv"
	"strings"
)

// A Step tells what one rule of a policy made of a request.
type Step struct {
	Rule    int      // place in the policy
	Reached bool     // false: a rule above ended the walk
	Holds   bool     // the match held; false when the rule was not reached
	Reasons []Reason // one for each field of the match, all of them; none without a match
}

// A Reason tells whether one field of a match held and why.
type Reason struct {
	Holds bool
	Text  string // as `path "/a.css" fits "*.css"`
}

// Explain walks a request through the rules and tells for each why it held or
// not. Bans and limits are not asked. The error tells what is wrong with the
// policy.
func (p *Policy) Explain(req *Request) ([]Step, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	d := &decision{req: req}
	steps := make([]Step, len(p.Rules))
	ended := false
	for i := range p.Rules {
		r := &p.Rules[i]
		steps[i] = Step{Rule: i, Reached: !ended}
		if ended {
			continue
		}
		m, _ := newMatcher(&r.Match, r.kind()) // checked above
		steps[i].Reasons = r.Match.reasons(d, r.kind())
		steps[i].Holds = m.holds(d)
		if r.Action == Allow && req.OddPath && m.looksAt(pathField) {
			steps[i].Holds = false
			steps[i].Reasons = append(steps[i].Reasons, Reason{Text: fmt.Sprintf("path %s is odd: servers may read it differently, and an allow by path never holds for such a one", quoted(req.Path))})
		}
		ended = steps[i].Holds && (r.Action == Allow || r.Action == Block && !r.DryRun || r.Last)
	}
	return steps, nil
}

// reasons tells for each field of m whether it holds, the cheap ones first.
func (m *Match) reasons(d *decision, kind bool) []Reason {
	var reasons []Reason
	req := d.req
	tell := func(only Match, what string, verb verb, texts []string) {
		compiled, _ := newMatcher(&only, kind)
		holds := compiled.holds(d)
		reasons = append(reasons, Reason{Holds: holds, Text: what + " " + verb.among(holds, texts, func(text string) bool {
			one, _ := newMatcher(only.with(text), kind)
			return one.holds(d)
		})})
	}
	if m.Method != nil {
		tell(Match{Method: m.Method}, "method "+quoted(req.Method), is, m.Method)
	}
	if m.Bot != nil {
		tell(Match{Bot: m.Bot}, botWords(&req.Bot, kind), is, m.Bot)
	}
	if m.Addr != nil {
		holds := req.Addr.IsValid() && m.Addr.Contains(req.Addr)
		set := "the set"
		if s, ok := m.Addr.(fmt.Stringer); ok {
			set = s.String()
		}
		text := "address " + req.Addr.String() + " is not in " + set
		switch {
		case !req.Addr.IsValid():
			text = "the address is unknown"
		case holds:
			text = "address " + req.Addr.String() + " is in " + set
		}
		reasons = append(reasons, Reason{holds, text})
	}
	if m.Label != nil {
		what := "no label: that"
		if len(req.Word.Labels) > 0 {
			var labels []string
			for _, label := range req.Word.Labels {
				labels = append(labels, quoted(label))
			}
			what = "label " + strings.Join(labels, ", ") + ": that"
		}
		tell(Match{Label: m.Label}, what, is, m.Label)
	}
	if m.Host != nil {
		tell(Match{Host: m.Host}, "host "+quoted(plainHost(req.Host)), fits, m.Host)
	}
	if m.Path != nil {
		tell(Match{Path: m.Path}, "path "+quoted(req.Path), fits, m.Path)
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
		tell(Match{Cookie: m.Cookie}, what, is, m.Cookie)
	}
	if m.UserAgent != nil {
		tell(Match{UserAgent: m.UserAgent}, "user agent "+quoted(req.UserAgent), contain, m.UserAgent)
	}
	for _, name := range sortedKeys(m.Header) {
		tell(Match{Header: map[string][]string{name: m.Header[name]}}, "header "+canonicalHeader(name), contain, m.Header[name])
	}
	for _, name := range sortedKeys(m.Query) {
		tell(Match{Query: map[string][]string{name: m.Query[name]}}, "query parameter "+quoted(name), contain, m.Query[name])
	}
	for i := range m.Not {
		not, _ := newMatcher(&m.Not[i], !kind)
		spared := not.holds(d)
		var because []string
		for _, inner := range m.Not[i].reasons(d, !kind) {
			if inner.Holds == spared {
				because = append(because, inner.Text)
			}
		}
		r := Reason{Holds: !spared, Text: "not does not hold: "}
		if spared {
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
		tell(Match{Hostname: m.Hostname}, what, fits, m.Hostname)
	}
	if m.Listed != nil {
		reasons = append(reasons, m.listedReason(d))
	}
	return reasons
}

// botWords tells what a client is taken for, and why that may not be enough.
func botWords(b *Bot, kind bool) string {
	if b.State == NoBot {
		return "no bot: that"
	}
	s := "bot " + b.Name
	if len(b.Categories) > 0 {
		s += " (" + strings.Join(b.Categories, ", ") + ")"
	}
	s += ", " + b.State.String()
	if kind && b.Steered {
		return s + ", whom anybody can send, so that it is treated as any other client: that"
	}
	if kind && b.State != Verified {
		return s + ", where only a verified one counts: that"
	}
	return s + ": that"
}

// listedReason tells which DNS list an address is on.
func (m *Match) listedReason(d *decision) Reason {
	one := condition{field: listedField}
	var names []string
	for i := range m.Listed {
		one.listed = m.Listed[i : i+1]
		if one.holds(d) {
			return Reason{true, "address " + d.req.Addr.String() + " is listed by " + quoted(m.Listed[i].List)}
		}
		names = append(names, quoted(m.Listed[i].List))
	}
	return Reason{false, "address " + d.req.Addr.String() + " is not known to be listed as asked for by " + strings.Join(names, ", ")}
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
	case m.Label != nil:
		m.Label = one
	case m.Hostname != nil:
		m.Hostname = one
	case m.Path != nil:
		m.Path = one
	case m.Cookie != nil:
		m.Cookie = one
	case m.UserAgent != nil:
		m.UserAgent = one
	}
	for name := range m.Header {
		m.Header = map[string][]string{name: one}
	}
	for name := range m.Query {
		m.Query = map[string][]string{name: one}
	}
	return &m
}

// maxTexts is how many texts of a field are told.
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

// quoted shows a text short, and harmless to a terminal.
func quoted(s string) string {
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:117], "") + "..."
	}
	return strconv.Quote(s)
}
