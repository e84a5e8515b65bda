package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// A ruleNode holds the nodes of a rule, for the positions of warnings.
type ruleNode struct {
	node    *node // the whole rule; for a built-in rule, {use: default}
	match   *node // nil if the rule has no match
	limit   *node // nil if the rule has no limit
	builtIn bool  // the rule is part of the built-in policy
}

// A ruleDraft is a rule that is being read.
type ruleDraft struct {
	fairshare.Rule
	use  bool
	trap bool
	at   ruleNode
}

func ruleKeys() []key[ruleDraft] {
	return []key[ruleDraft]{
		{"name", func(r *reader, n *node, d *ruleDraft) { d.Name = r.ruleName(n) }},
		{"match", func(r *reader, n *node, d *ruleDraft) {
			d.at.match = n
			d.Match = r.match(n, "match")
		}},
		{"allow", func(r *reader, n *node, d *ruleDraft) {
			r.onlyTrue(n, "allow")
			d.Action = fairshare.Allow
		}},
		{"block", func(r *reader, n *node, d *ruleDraft) {
			r.onlyTrue(n, "block")
			d.Action = fairshare.Block
		}},
		{"trap", func(r *reader, n *node, d *ruleDraft) {
			r.onlyTrue(n, "trap")
			d.Action, d.trap = fairshare.Block, true
		}},
		{"limit", func(r *reader, n *node, d *ruleDraft) {
			d.at.limit = n
			d.Limit = r.limit(n)
		}},
		{"last", func(r *reader, n *node, d *ruleDraft) { d.Last = r.boolean(n, "last") }},
		{"refund", func(r *reader, n *node, d *ruleDraft) { d.Refund = r.statuses(n, "refund", true) }},
		{"ban", func(r *reader, n *node, d *ruleDraft) {}}, // rule reads it: some keys depend on the action
		{"answer", func(r *reader, n *node, d *ruleDraft) { d.Answer = r.answer(n) }},
		{"dry_run", func(r *reader, n *node, d *ruleDraft) { d.DryRun = r.boolean(n, "dry_run") }},
		{"use", func(r *reader, n *node, d *ruleDraft) { d.use = true }},
	}
}

func (r *reader) ruleName(n *node) string {
	s, ok := r.text(n, "name")
	switch {
	case !ok:
		return ""
	case s == "":
		r.fault(n, "", "name: a rule needs a name")
	case strings.ContainsFunc(s, control):
		r.fault(n, "", "name: control characters are not allowed")
	case s == fairshare.OperatorBan.Name:
		r.fault(n, "", "name: %s is reserved for bans by operators", quote(s))
	case s == fairshare.BusyUpstream.Name:
		r.fault(n, "", "name: %s is reserved for refusals of a busy upstream", quote(s))
	case s == fairshare.AttackMode.Name:
		r.fault(n, "", "name: %s is reserved for newcomers that wait first during an attack", quote(s))
	}
	return s
}

func readRules(r *reader, n *node, f *File) {
	switch n.kind {
	case listNode:
	case nullNode:
		r.missing(n, "write rules: [] for a policy that allows everything", "rules: a list is needed")
		return
	default:
		hint := "each rule begins with \"- name:\""
		if n.text == "default" {
			hint = "rules: [{use: default}]"
		}
		r.fault(n, hint, "rules: a list is needed, not %s", n.describe())
		return
	}
	usedNames := map[string]*node{}
	var end *ruleDraft // a rule that ends the walk of every request
	for _, item := range n.items {
		faults := len(r.faults)
		d := r.rule(item)
		if d == nil {
			continue
		}
		if end != nil {
			r.fault(item, "", "no request reaches this rule: %s in line %d has no match and ends every walk",
				quote(end.Name), r.lineOf(end.at.node))
			end = nil // reported once
		}
		if d.use {
			r.useDefault(item, usedNames)
			continue
		}
		if d.Name != "" {
			if first := usedNames[d.Name]; first != nil {
				r.fault(nameNode(item), "", "the name %s is used twice, first in line %d", quote(d.Name),
					r.lineOf(first))
			} else {
				usedNames[d.Name] = item
			}
		}
		if d.Action != fairshare.Undecided && d.Limit == nil && !d.DryRun && len(r.faults) == faults &&
			(d.at.match == nil || d.at.match.kind == mapNode && len(d.at.match.entries) == 0) {
			end = d
		}
		r.add(d.Rule, d.at)
	}
}

func (r *reader) add(rule fairshare.Rule, at ruleNode) {
	r.file.Policy.Rules = append(r.file.Policy.Rules, rule)
	r.rules = append(r.rules, at)
}

// nameNode returns the value of a rule's name.
func nameNode(n *node) *node {
	for _, e := range n.entries {
		if e.key.text == "name" {
			return e.value
		}
	}
	return n
}

// rule reads one rule. It returns nil if n is not a rule.
func (r *reader) rule(n *node) *ruleDraft {
	if n.kind == scalarNode && n.text == "default" {
		r.fault(n, "{use: default}", "a rule is a map")
		return nil
	}
	d := &ruleDraft{at: ruleNode{node: n}}
	if n.kind == mapNode && find(n, "use") != nil {
		d.use = true // useDefault reads it
		return d
	}
	got := readMap(r, n, "a rule", "", ruleKeys(), d)
	if got == nil {
		return nil
	}
	if !got.has("name") {
		r.missing(n, "", "a rule needs a name")
	}
	if d.trap {
		d.Ban = trapBan()
	}
	if got.has("ban") {
		d.Ban = r.ban(got.values["ban"], d)
	}
	r.checkActions(got, d)
	if d.trap && d.Match.Path == nil && (d.at.match == nil || find(d.at.match, "path") == nil) {
		r.fault(got.at("trap"), "match: {path: /PATH}", "trap: a match with a path is needed")
	}
	if got.has("limit") {
		r.checkLimitRule(got, d)
	}
	return d
}

// checkActions reports a rule without an action or with several, and keys that do
// not belong to its action.
func (r *reader) checkActions(got *reading, d *ruleDraft) {
	var actions []string
	for _, e := range got.node.entries {
		switch e.key.text {
		case "allow", "block", "limit", "trap":
			if got.keys[e.key.text] == e.key {
				actions = append(actions, e.key.text)
			}
		}
	}
	if len(actions) == 0 {
		if !r.unknownAction(got.node) {
			r.missing(got.node, "", "one of allow, block, limit and trap is needed")
		}
		return
	}
	for _, more := range actions[1:] {
		hint := "make it two rules"
		if d.trap && d.Action == fairshare.Block && d.Limit == nil {
			hint = "remove block: a trap blocks, too"
		}
		r.fault(got.at(more), hint, "%s and %s: a rule does one thing", more, actions[0])
	}
	if !got.has("limit") {
		for _, k := range []string{"last", "refund"} {
			if got.has(k) {
				r.fault(got.at(k), "", "%s belongs to a limit, and this rule has no limit", k)
			}
		}
		if got.has("ban") && d.Action != fairshare.Block {
			r.fault(got.at("ban"), "", "ban belongs to a limit or a block, and this rule has neither")
		}
	}
	if actions[0] == "allow" && len(actions) == 1 {
		if d.DryRun {
			r.fault(got.at("dry_run"), "remove the rule, or set dry_run: true for the whole policy",
				"an allow cannot have dry_run")
		}
		if got.has("answer") {
			r.fault(got.at("answer"), "", "answer belongs to a block or a limit, not to an allow")
		}
	}
}

// unknownAction reports whether one of the unknown keys was probably meant as the
// action. Then the missing action is not reported, too.
func (r *reader) unknownAction(n *node) bool {
	for _, e := range n.entries {
		meant := synonyms[strings.ToLower(e.key.text)]
		if meant == "allow" || meant == "block" || prose.DidYouMean(e.key.text,
			[]string{"allow", "block", "limit", "trap"}) != "" {
			return true
		}
	}
	return false
}

// checkLimitRule reports a refund or a ban that does not belong to the rule's
// limit.
func (r *reader) checkLimitRule(got *reading, d *ruleDraft) {
	if d.Limit == nil {
		return
	}
	if got.has("last") && d.Last && d.Limit.When == fairshare.Busy {
		r.fault(got.at("last"), "remove last, or when: busy",
			"last and when: busy: the rules below would hold only while the upstream is not busy")
	}
	if got.has("refund") && d.Limit.Resource != 0 && d.Limit.Resource != fairshare.Requests {
		r.fault(got.at("refund"), "", "only limits of requests have refunds, not %s", d.Limit.Resource)
	}
	by := d.Limit.By
	if got.has("ban") && (len(by) > 1 || len(by) == 1 && by[0].Kind != fairshare.ByAddr &&
		by[0].Kind != fairshare.ByNetwork && by[0].Kind != fairshare.ByBot && by[0].Kind != 0) {
		at := got.at("ban")
		if byOwner(by) || byFleet(by) {
			r.fault(at, "remove ban, and add a second rule by: addr or by: network with a ban",
				"a ban needs a limit by addr, network or bot: people share an owner or a fleet with the clients that a ban is for")
			return
		}
		r.fault(at, "use by: addr, or add a second rule with by: addr",
			"a ban needs a limit by addr, network or bot: with other keys, a client could get others banned")
	}
}

// byFleet reports whether a key has a part fleet.
func byFleet(by []fairshare.KeyPart) bool {
	return slices.ContainsFunc(by, func(part fairshare.KeyPart) bool { return part.Kind == fairshare.ByFleet })
}

func banKeys() []key[fairshare.BanTerms] {
	type terms = fairshare.BanTerms
	return []key[terms]{
		{"after", func(r *reader, n *node, t *terms) { t.After = r.integer(n, "after", 1, fairshare.MaxN) }},
		{"within", func(r *reader, n *node, t *terms) {
			t.Within = r.duration(n, "within", fairshare.MinWindow, fairshare.MaxWindow)
		}},
		{"for", func(r *reader, n *node, t *terms) { t.For = r.duration(n, "for", time.Millisecond, maxDuration) }},
		{"growth", func(r *reader, n *node, t *terms) { t.Growth = r.number(n, "growth", 1, 1000) }},
		{"max", func(r *reader, n *node, t *terms) { t.Max = r.duration(n, "max", time.Millisecond, maxDuration) }},
		{"forgive", func(r *reader, n *node, t *terms) {
			t.Forgive = r.duration(n, "forgive", time.Millisecond, maxDuration)
		}},
		{"all", func(r *reader, n *node, t *terms) { t.All = r.boolean(n, "all") }},
		{"unless", func(r *reader, n *node, t *terms) {
			if n.kind == mapNode && len(n.entries) == 1 && n.entries[0].key.text == "match" {
				n = n.entries[0].value // unless: {match: {…}} means the same
			}
			m := r.match(n, "unless")
			t.Unless = &m
		}},
		{"by", func(r *reader, n *node, t *terms) {
			switch s, _ := r.text(n, "by"); s {
			case "addr":
				t.By = fairshare.ByAddr
			case "network":
				t.By = fairshare.ByNetwork
			case "bot":
				t.By = fairshare.ByBot
			default:
				r.fault(n, "", "ban: by: one of addr, network, bot is needed, not %s", n.describe())
			}
		}},
	}
}

// trapBan returns the ban of a trap: one request starts it, it grows from a day to
// a month, and verified bots pass in spite of it.
func trapBan() *fairshare.BanTerms {
	return &fairshare.BanTerms{After: 1, For: 24 * time.Hour, Growth: 2, Max: 30 * 24 * time.Hour, All: true,
		Unless: &fairshare.Match{Bot: []string{"verified"}}}
}

// ban reads the ban of a rule, whose action is known. In a trap it changes some of
// the terms.
func (r *reader) ban(n *node, d *ruleDraft) *fairshare.BanTerms {
	t := &fairshare.BanTerms{}
	if d.trap {
		t = trapBan()
	}
	got := readMap(r, n, "ban", "{after: 20, for: 10m}", banKeys(), t)
	if got == nil {
		return t
	}
	if !got.has("after") && !d.trap {
		r.missing(n, "ban: {after: 20, for: 10m}", "ban: after is needed: the number of refusals that start it")
	}
	if !got.has("for") && !d.trap {
		r.missing(n, "ban: {after: 20, for: 10m}", "ban: for is needed: the length of the ban")
	}
	if d.trap && !got.has("max") {
		t.Max = max(t.Max, t.For)
	}
	if d.trap && t.By == fairshare.ByBot && !got.has("unless") {
		t.Unless = nil
	}
	if got.has("by") && d.Limit != nil {
		r.fault(got.at("by"), "", "ban: by belongs to a block or a trap: a limit bans what it counts by")
		t.By = 0
	}
	if t.Max > 0 && t.Max < t.For {
		r.fault(got.values["max"], "", "max: %s is shorter than the first ban of %s", FormatDuration(t.Max),
			FormatDuration(t.For))
	}
	return t
}

// maxBody is the size of the largest body of an answer, in bytes.
const maxBody = 1 << 20

// An answerDraft is an answer that is being read.
type answerDraft struct {
	fairshare.Answer
	body, file bool // body or body_file is set
}

func answerKeys() []key[answerDraft] {
	return []key[answerDraft]{
		{"status", func(r *reader, n *node, a *answerDraft) { a.Status = int(r.integer(n, "status", 200, 599)) }},
		{"body", func(r *reader, n *node, a *answerDraft) {
			a.body = true
			var ok bool
			if a.Body, ok = r.text(n, "body"); len(a.Body) > maxBody {
				r.fault(n, "", "body: longer than %s", FormatSize(maxBody))
			}
			a.Empty = ok && a.Body == ""
		}},
		{"body_file", func(r *reader, n *node, a *answerDraft) {
			a.file = true
			a.Body = r.bodyFile(n)
			a.Empty = a.Body == ""
		}},
		{"redirect", func(r *reader, n *node, a *answerDraft) { a.Redirect = r.redirect(n) }},
		{"retry_after", func(r *reader, n *node, a *answerDraft) { a.RetryAfter = r.retryAfter(n) }},
		{"header", func(r *reader, n *node, a *answerDraft) { a.Header = r.answerHeaders(n) }},
	}
}

func (r *reader) answer(n *node) *fairshare.Answer {
	a := &answerDraft{}
	got := readMap(r, n, "answer", "{status: 503}", answerKeys(), a)
	if got == nil {
		return &a.Answer
	}
	if a.body && a.file {
		r.fault(got.at("body_file"), "", "body and body_file: use only one of them")
	}
	switch s := a.Status; {
	case s == 0:
	case got.has("redirect"):
		if s != 301 && s != 302 && s != 303 && s != 307 && s != 308 {
			r.fault(got.values["status"], "", "status: %d is not a redirect: use 301, 302, 303, 307 or 308", s)
		}
	case s >= 300 && s < 400:
		r.fault(got.values["status"], "answer: {redirect: /slow-down}", "status: %d needs a redirect", s)
	case s == 204 || s == 205:
		r.fault(got.values["status"], "", "status: an answer with %d has no body that could give the reason", s)
	}
	return &a.Answer
}

// Bounds of the headers of an answer.
const (
	maxAnswerHeaders = 20
	maxAnswerHeader  = 4 << 10 // bytes of a value
)

// answerHeaders reads more headers of an answer: a map of names to texts.
func (r *reader) answerHeaders(n *node) map[string][]string {
	const example = `header: {Link: "<https://example.org/licence.xml>; rel=license"}`
	if n.kind != mapNode || len(n.entries) == 0 {
		if n.kind == mapNode {
			r.fault(n, example, "header: the map is empty")
		} else {
			r.fault(n, example, "header: a map of names to texts is needed, not %s", n.describe())
		}
		return nil
	}
	headers, spelled := map[string][]string{}, map[string]bool{}
	for i, e := range n.entries {
		name := strings.ToLower(e.key.text)
		switch {
		case i == maxAnswerHeaders:
			r.fault(e.key, "", "header: more than %d", maxAnswerHeaders)
			return headers
		case !isToken(name):
			r.fault(e.key, "", "header: %s is not a header name", quote(e.key.text))
		case spelled[name]:
			r.fault(e.key, "write several values in brackets: [a, b]", "header: %s is in this map twice",
				quote(e.key.text))
		case name == "retry-after":
			r.fault(e.key, "use retry_after", "header: Retry-After has a key of its own")
		case name == "location":
			r.fault(e.key, "use redirect", "header: Location has a key of its own")
		case ownHeader(name):
			r.fault(e.key, "", "header: fairshare or the server sets %s itself", printable(e.key.text))
		default:
			for _, item := range r.list(e.value, e.key.text) {
				if s := r.line(item, e.key.text); len(s) > maxAnswerHeader {
					r.fault(item, "", "header: a value longer than %s", FormatSize(maxAnswerHeader))
				} else if s != "" {
					headers[e.key.text] = append(headers[e.key.text], s)
				}
			}
		}
		spelled[name] = true
	}
	return headers
}

// ownHeader reports whether a policy may not set this header, in lower case. It describes
// the body, the connection or caching.
func ownHeader(name string) bool {
	return slices.Contains([]string{"cache-control", "connection", "content-encoding", "content-length",
		"content-range", "content-type", "date", "keep-alive", "ratelimit", "ratelimit-policy", "set-cookie", "te",
		"trailer",
		"transfer-encoding", "upgrade"}, name) || strings.HasPrefix(name, "proxy-")
}

func (r *reader) redirect(n *node) string {
	s := r.line(n, "redirect")
	if s != "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") {
		r.fault(n, "", "redirect: a path or an http:// or https:// URL is needed, not %s", quote(s))
	}
	return s
}

func (r *reader) retryAfter(n *node) time.Duration {
	if n.kind == scalarNode {
		switch n.text {
		case "auto":
			return 0
		case "none":
			return -1
		}
		if _, ok := parseDuration(n.text); !ok && !plainDigits(n.text) {
			r.fault(n, prose.DidYouMean(n.text, []string{"auto", "none"}),
				"retry_after: auto, none or a duration is needed, not %s", n.describe())
			return 0
		}
	}
	return r.duration(n, "retry_after", time.Second, maxDuration)
}

// bodyFile reads the file with the body of an answer.
func (r *reader) bodyFile(n *node) string {
	name := r.line(n, "body_file")
	if name == "" {
		return ""
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	if body, known := r.bodies[path]; known {
		return body
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: not a file", path)
	case info.Size() > maxBody:
		err = fmt.Errorf("%s: larger than %s", path, FormatSize(maxBody))
	default:
		var data []byte
		if data, err = os.ReadFile(path); err == nil {
			if r.bodies == nil {
				r.bodies = map[string]string{}
			}
			r.bodies[path] = string(data)
			return string(data)
		}
	}
	r.fault(n, "", "body_file: %v", err)
	return ""
}
