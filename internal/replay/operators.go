package replay

import (
	"fmt"

	"fairshare"
	"fairshare/internal/prose"
)

// Places for what operators said, behind those of the policy's rules.
const (
	banned        = iota // refused by a ban for a time; as a rule's number, any ban
	bannedForEver        // blocked
	allowed              // passed, no rule asked
	operatorPlaces
)

// operator is the number that stands for operators among the rules.
func (o *Options) operator() int32 { return int32(len(o.Policy.Rules)) }

// place returns where it is noted what a finding did to a client.
func (rec *recorder) place(f *finding) int32 {
	if f.rule == rec.operator {
		switch f.action {
		case fairshare.Block:
			return f.rule + bannedForEver
		case fairshare.Allow:
			return f.rule + allowed
		}
	}
	return f.rule
}

// ruleOf returns the number of the rule whose place that is. All bans of
// operators are one.
func (rec *recorder) ruleOf(place int32) int32 {
	if place == rec.operator+bannedForEver {
		return rec.operator
	}
	return place
}

// turns returns what the rule of a place does to clients: Refuse or Block, or
// Allow when they get in.
func (rec *recorder) turns(place int32) fairshare.Action {
	switch place - rec.operator {
	case banned:
		return fairshare.Refuse
	case bannedForEver:
		return fairshare.Block
	case allowed:
		return fairshare.Allow
	}
	switch rule := &rec.opts.Policy.Rules[place]; {
	case rule.DryRun:
		return fairshare.Allow
	case rule.Action == fairshare.Block:
		return fairshare.Block
	}
	return fairshare.Refuse
}

// nameOf returns the name of the rule of a place at which clients are turned
// away.
func (o *Options) nameOf(place int32) string {
	if place >= o.operator() {
		return fairshare.OperatorBan.Name
	}
	return o.Policy.Rules[place].Name
}

// Spared tells of requests that passed by an operator's word: no rule was
// asked.
type Spared struct {
	Requests    int64 `json:"requests"`
	Clients     int64 `json:"clients"`
	Approximate bool  `json:"approximate,omitempty"` // Clients is an estimate
}

// tellOperators adds what operators' words did.
func (rec *recorder) tellOperators(r *Report) {
	if c := &rec.rules[rec.operator+banned]; c.refused+c.blocked > 0 {
		row := RuleReport{Name: fairshare.OperatorBan.Name, Matched: c.refused + c.blocked, Refused: c.refused,
			Blocked: c.blocked}
		row.Clients, row.Approximate = c.distinct()
		r.Rules = append(r.Rules, row)
	}
	c := &rec.rules[rec.operator+allowed]
	r.Spared.Requests = c.passed
	r.Spared.Clients, r.Spared.Approximate = c.distinct()
}

// spared writes how many requests passed by an operator's word.
func (p *printer) spared(r *Report) {
	if r.Spared.Requests == 0 {
		return
	}
	about := ""
	if r.Spared.Approximate {
		about = "about "
	}
	p.text(2, 2, fmt.Sprintf("%s of %s%s passed: allowed by an operator (fairshare allow)",
		prose.Plural(r.Spared.Requests, "request"), about, prose.Plural(r.Spared.Clients, "client")))
}
