package httpguard

import (
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"fairshare"
)

// answers are the words of a policy's rules, prepared.
type answers struct {
	rules   map[*fairshare.Rule]*ruleAnswer
	contact string
	html    string // the contact as HTML
	json    string // the contact as a JSON string
}

// A ruleAnswer is what one rule answers with.
type ruleAnswer struct {
	name     string
	html     string // the name, escaped
	json     string // the name as a JSON string
	item     policyItem
	fixed    fairshare.Answer
	body     template // of fixed.Body; empty for the usual body
	kind     bodyKind // of fixed.Body
	location template // of fixed.Redirect
}

// noRule stands in when a finding names none.
var noRule = newRuleAnswer(&fairshare.Rule{})

func newAnswers(p *fairshare.Policy, contact string) *answers {
	a := &answers{
		rules:   make(map[*fairshare.Rule]*ruleAnswer, len(p.Rules)),
		contact: oneLine(contact),
		html:    contactHTML(oneLine(contact)),
		json:    string(appendJSON(nil, contact)),
	}
	for i := range p.Rules {
		a.rules[&p.Rules[i]] = newRuleAnswer(&p.Rules[i])
	}
	return a
}

func newRuleAnswer(r *fairshare.Rule) *ruleAnswer {
	a := &ruleAnswer{
		name: r.Name,
		html: string(appendHTML(nil, r.Name)),
		json: string(appendJSON(nil, r.Name)),
		item: newPolicyItem(r.Name, r.Limit),
	}
	if r.Answer != nil {
		a.fixed = *r.Answer
		a.body, a.location = parseTemplate(a.fixed.Body), parseTemplate(a.fixed.Redirect)
		a.kind = a.body.kind()
	}
	return a
}

func (a *answers) rule(r *fairshare.Rule) *ruleAnswer {
	if ra := a.rules[r]; ra != nil {
		return ra
	}
	return noRule
}

// status returns the status of the answer to a finding.
func (a *ruleAnswer) status(f *fairshare.Finding) int {
	switch {
	case a.fixed.Status >= 200 && a.fixed.Status <= 599:
		return a.fixed.Status
	case a.fixed.Redirect != "":
		return http.StatusSeeOther
	case f.Action == fairshare.Block:
		return http.StatusForbidden
	}
	return http.StatusTooManyRequests
}

// retryAfter returns the seconds of the Retry-After header; 0 means that there
// is none.
func (a *ruleAnswer) retryAfter(f *fairshare.Finding) int64 {
	switch {
	case a.fixed.RetryAfter < 0:
		return 0
	case a.fixed.RetryAfter > 0:
		return seconds(a.fixed.RetryAfter)
	case f.Action == fairshare.Refuse:
		return seconds(f.Wait)
	}
	return 0
}

// A refusal is all that an answer tells.
type refusal struct {
	*ruleAnswer
	*answers
	action fairshare.Action
	ban    bool
	status int
	wait   int64 // seconds until asking again makes sense; 0 when it never does
	until  time.Time
	id     string
	client netip.Addr
}

// refuse answers a request that is refused or blocked, and reports it.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, vis *visit, v *fairshare.Verdict) {
	rule := h.answers.rule(v.Rule)
	f := refusal{
		ruleAnswer: rule, answers: h.answers,
		action: v.Action, ban: v.Ban != fairshare.NotBanned,
		status: rule.status(&v.Finding),
		wait:   rule.retryAfter(&v.Finding),
		id:     vis.newID(), client: vis.req.Addr,
	}
	retryAfter := f.wait
	if v.Action == fairshare.Refuse && f.wait == 0 {
		f.wait = seconds(v.Wait)
	}
	f.until = vis.req.Time.Add(time.Duration(f.wait) * time.Second)

	var page *robotsCopy
	if vis.req.Path == robotsPath { // whatever the rule's own answer is
		usual := *rule
		usual.fixed, usual.body, usual.location = fairshare.Answer{}, nil, nil
		f.ruleAnswer = &usual
		page, f.status, retryAfter = h.robots.answer(&vis.req, f.wait)
	}
	if h.Refused != nil {
		vis.report = Report{Request: &vis.req, Finding: v.Finding, Status: f.status, RetryAfter: retryAfter, ID: f.id}
		h.Refused(&vis.report)
		if v.Trial.Action != fairshare.Undecided {
			h.reportDry(vis, &v.Trial)
		}
	}
	var limits *fairshare.Verdict
	if v.Action == fairshare.Refuse && v.Ban != fairshare.BanInForce {
		limits = v
	}
	h.write(w, r, vis, limits, &f, retryAfter, page)
	if err := h.guard.Settle(r.Context(), v, fairshare.Outcome{Time: vis.req.Time}); err != nil && h.Failed != nil {
		h.Failed(err)
	}
}

// write sends an answer. All header values are cut from one text and all
// value lists from one array: refusing must be cheap.
func (h *handler) write(w http.ResponseWriter, r *http.Request, vis *visit, limits *fairshare.Verdict, f *refusal, retryAfter int64, page *robotsCopy) {
	b := vis.buf[:0]
	contentType := textType
	switch {
	case page != nil:
		b, contentType = append(b, page.body...), page.contentType
	case len(f.body) > 0:
		b, contentType = f.appendTemplate(b, f.body, f.kind), f.kind.contentType()
	case f.fixed.Redirect != "": // the Location says it all
	default:
		kind := preferred(r.Header["Accept"])
		b, contentType = f.appendBody(b, kind, limits), kind.contentType()
	}
	if f.status == http.StatusNoContent || f.status == http.StatusNotModified { // these have none
		b = b[:0]
	}
	body := len(b)

	b = strconv.AppendInt(b, int64(body), 10)
	length := len(b)
	if retryAfter > 0 {
		b = strconv.AppendInt(b, retryAfter, 10)
	}
	retry := len(b)
	policies, left := retry, retry
	if limits != nil && page == nil {
		limits.Limits(func(rule *fairshare.Rule, _ *fairshare.Limit, _ fairshare.Tally) {
			if item := &h.answers.rule(rule).item; item.name != "" {
				b = appendMember(b, len(b) > retry, item.policy)
			}
		})
		policies = len(b)
		limits.Limits(func(rule *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
			if item := &h.answers.rule(rule).item; item.name != "" {
				b = item.appendRateLimit(appendMember(b, len(b) > policies, ""), l, t)
			}
		})
		left = len(b)
	}
	b = f.appendLocation(b, f.location)
	vis.buf = b
	text := string(b[body:])
	cut := func(from, to int) string { return text[from-body : to-body] }

	values := make([]string, 0, 8)
	header := w.Header()
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	if body > 0 {
		set("Content-Type", contentType)
	}
	if f.status != http.StatusNoContent && f.status != http.StatusNotModified {
		set("Content-Length", cut(body, length))
	}
	if retry > length {
		set("Retry-After", cut(length, retry))
	}
	if policies > retry {
		set("Ratelimit-Policy", cut(retry, policies))
		set("Ratelimit", cut(policies, left))
	}
	if len(b) > left {
		set("Location", cut(left, len(b)))
	}
	w.WriteHeader(f.status)
	if body > 0 && r.Method != http.MethodHead {
		w.Write(b[:body])
	}
}

// appendMember begins another member of a structured-field list.
func appendMember(b []byte, more bool, text string) []byte {
	if more {
		b = append(b, ", "...)
	}
	return append(b, text...)
}

// unavailable answers a request that nobody could judge.
func unavailable(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", "5")
	header.Set("Content-Type", textType)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusServiceUnavailable)
	w.Write([]byte("503 Service unavailable: this site cannot count requests at the moment. Try again in a few seconds.\n"))
}
