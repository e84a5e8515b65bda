package replay

import (
	"fmt"

	"fairshare"
	"fairshare/internal/prose"
)

// Rows for operators' overrides, after those of the policy's rules. After these follow the
// rows for bans by rules that block: row operatorRows + i is for the bans of rule i.
const (
	banned        = iota // refused by a ban with an end; as the number of a rule: any ban
	bannedForever        // blocked
	allowed              // passed without rules
	operatorRows
)

// operator is the number of operators' bans among the rules.
func (o *Options) operator() int32 { return int32(len(o.Policy.Rules)) }

// row returns the row of an effect on a client.
func (rec *recorder) row(f *finding) int32 {
	if f.rule == rec.operator {
		switch f.action {
		case fairshare.Block:
			return f.rule + bannedForever
		case fairshare.Allow:
			return f.rule + allowed
		}
		return f.rule
	}
	if f.action == fairshare.Refuse && rec.opts.Policy.Rules[f.rule].Action == fairshare.Block {
		return rec.operator + operatorRows + f.rule
	}
	return f.rule
}

// ruleOf returns the rule of a row. All bans of operators are one rule.
func (rec *recorder) ruleOf(row int32) int32 {
	switch {
	case row == rec.operator+bannedForever:
		return rec.operator
	case row >= rec.operator+operatorRows:
		return row - rec.operator - operatorRows
	}
	return row
}

// actionOf returns the enforced action of a row: Refuse, Block, or Allow if its requests
// pass.
func (rec *recorder) actionOf(row int32) fairshare.Action {
	switch row - rec.operator {
	case banned:
		return fairshare.Refuse
	case bannedForever:
		return fairshare.Block
	case allowed:
		return fairshare.Allow
	}
	switch rule := &rec.opts.Policy.Rules[rec.ruleOf(row)]; {
	case rule.DryRun:
		return fairshare.Allow
	case rule.Action == fairshare.Block && row < rec.operator:
		return fairshare.Block
	}
	return fairshare.Refuse
}

// nameOf returns the name of the rule of a row that refuses or blocks.
func (o *Options) nameOf(row int32) string {
	if row >= o.operator()+operatorRows {
		row -= o.operator() + operatorRows
	}
	if row >= o.operator() {
		return fairshare.OperatorBan.Name
	}
	return o.Policy.Rules[row].Name
}

// OperatorAllowed counts the requests that passed without rules, because an operator has
// allowed the client.
type OperatorAllowed struct {
	Requests    int64 `json:"requests"`
	Clients     int64 `json:"clients"`
	Approximate bool  `json:"approximate,omitempty"` // Clients is an estimate
}

// addOperators adds the effects of operators' overrides.
func (rec *recorder) addOperators(r *Report) {
	if c := &rec.rules[rec.operator+banned]; c.refused+c.blocked > 0 {
		row := RuleReport{Name: fairshare.OperatorBan.Name, Matched: c.refused + c.blocked, Refused: c.refused,
			Blocked: c.blocked, Saved: c.saved.report()}
		row.Clients, row.Approximate = c.distinct()
		r.Rules = append(r.Rules, row)
	}
	c := &rec.rules[rec.operator+allowed]
	r.OperatorAllowed.Requests = c.passed
	r.OperatorAllowed.Clients, r.OperatorAllowed.Approximate = c.distinct()
}

// operatorAllowed writes how many requests passed because of an operator.
func (p *printer) operatorAllowed(r *Report) {
	if r.OperatorAllowed.Requests == 0 {
		return
	}
	about := ""
	if r.OperatorAllowed.Approximate {
		about = "about "
	}
	p.text(2, 2, fmt.Sprintf("%s of %s%s passed: allowed by an operator (fairshare allow)",
		prose.Plural(r.OperatorAllowed.Requests, "request"), about, prose.Plural(r.OperatorAllowed.Clients,
			"client")))
}
