package policyfile

import (
	"slices"

	"fairshare"
	"fairshare/internal/prose"
)

// A useDraft is {use: default} with its changes of the built-in rules.
type useDraft struct {
	except    []*node
	overrides *node // a map of names of rules to their changes; nil if there is none
	dryRun    bool
}

func useKeys() []key[useDraft] {
	return []key[useDraft]{
		{"use", func(r *reader, n *node, u *useDraft) {
			if n.kind != scalarNode || n.text != "default" {
				r.fault(n, "{use: default}", "use: only default is allowed here, not %s", n.describe())
			}
		}},
		{"except", func(r *reader, n *node, u *useDraft) { u.except = r.list(n, "except") }},
		{"override", func(r *reader, n *node, u *useDraft) {
			const example = "override: {pages: {limit: {requests: 1200, per: 1m}}}"
			switch {
			case n.kind != mapNode:
				r.fault(n, example, "override: a map of rules is needed, not %s", n.describe())
			case len(n.entries) == 0:
				r.fault(n, example, "override: the map is empty")
			default:
				u.overrides = n
			}
		}},
		{"dry_run", func(r *reader, n *node, u *useDraft) { u.dryRun = r.boolean(n, "dry_run") }},
	}
}

// useDefault inserts the built-in rules at the position of {use: default}.
func (r *reader) useDefault(n *node, usedNames map[string]*node) {
	var u useDraft
	if readMap(r, n, "use", "{use: default}", useKeys(), &u) == nil {
		return
	}
	if r.usedDefault {
		r.fault(n, "", "the built-in rules are included twice")
		return
	}
	r.usedDefault = true
	builtIn := BuiltIn().Policy.Rules
	find := func(what string, n *node) (name string) {
		name, ok := r.text(n, what)
		if !ok || slices.ContainsFunc(builtIn, func(rule fairshare.Rule) bool { return rule.Name == name }) {
			return name
		}
		var known []string
		for i := range builtIn {
			known = append(known, builtIn[i].Name)
		}
		hint := prose.DidYouMean(name, known)
		if hint == "" {
			hint = "fairshare policy prints the built-in rules"
		}
		r.fault(n, hint, "%s: there is no built-in rule %s", what, quote(name))
		return ""
	}
	without := map[string]bool{}
	for _, item := range u.except {
		name := find("except", item)
		if name != "" && without[name] {
			r.fault(item, "", "except: %s is listed twice", quote(name))
		}
		without[name] = true
	}
	changes := map[string]*node{}
	if u.overrides != nil {
		for _, e := range u.overrides.entries {
			switch name := find("override", e.key); {
			case name == "":
			case without[name]:
				r.fault(e.key, "", "override: except leaves %s out", quote(name))
			case changes[name] != nil:
				r.fault(e.key, "", "override: %s is listed twice", quote(name))
			default:
				changes[name] = e.value
			}
		}
	}
	for _, rule := range builtIn {
		if without[rule.Name] {
			continue
		}
		if first := usedNames[rule.Name]; first != nil {
			r.fault(n, "to change the built-in rule: override; to leave it out: except",
				"the name %s is used twice: in line %d and in the built-in rules", quote(rule.Name), r.lineOf(first))
		}
		usedNames[rule.Name] = n
		if u.dryRun && (rule.Action != fairshare.Allow || rule.Limit != nil) {
			rule.DryRun = true
		}
		if change := changes[rule.Name]; change != nil {
			rule = r.override(change, rule)
		}
		r.add(rule, ruleNode{node: n, builtIn: true})
	}
}

// override changes a built-in rule. Keys that are given replace those of the rule.
func (r *reader) override(n *node, rule fairshare.Rule) fairshare.Rule {
	d := &ruleDraft{Rule: rule, at: ruleNode{node: n}}
	var keys []key[ruleDraft]
	for _, k := range ruleKeys() {
		switch k.name {
		case "match", "limit", "last", "refund", "ban", "answer", "dry_run":
			keys = append(keys, k)
		}
	}
	got := readMap(r, n, quote(rule.Name), "{dry_run: true}", keys, d)
	if got == nil {
		return rule
	}
	if len(n.entries) == 0 {
		r.fault(n, "", "%s: the map is empty", quote(rule.Name))
	}
	d.trap = rule.Ban != nil && rule.Ban.All && rule.Limit == nil
	isLimit, isAllow := rule.Limit != nil, rule.Limit == nil && rule.Action == fairshare.Allow
	for _, name := range []string{"limit", "last", "refund"} {
		if got.has(name) && !isLimit {
			r.fault(got.at(name), "leave the rule out with except, and write another one",
				"%s: the built-in rule %s has no limit", name, quote(rule.Name))
			return rule
		}
	}
	for _, name := range []string{"ban", "answer", "dry_run"} {
		if got.has(name) && isAllow {
			r.fault(got.at(name), "", "%s: the built-in rule %s allows requests", name, quote(rule.Name))
			return rule
		}
	}
	if got.has("ban") {
		d.Ban = r.ban(got.values["ban"], d)
	}
	if got.has("limit") || got.has("ban") || got.has("refund") || got.has("last") {
		r.checkOverride(got, d)
	}
	return d.Rule
}

// checkOverride reports a combination that no rule may have, at a key that is given.
func (r *reader) checkOverride(got *reading, d *ruleDraft) {
	whole := &reading{node: got.node, values: map[string]*node{}, keys: map[string]*node{}}
	for name, has := range map[string]bool{
		"last": d.Last, "refund": d.Refund != fairshare.StatusSet{}, "ban": d.Ban != nil,
	} {
		if has {
			whole.keys[name] = got.at(name, "limit")
			whole.values[name] = whole.keys[name]
		}
	}
	r.checkLimitRule(whole, d)
}
