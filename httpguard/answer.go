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
	dear     bool // what requests cost is limited, not how many they are
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
	a.rules[fairshare.OperatorBan] = newRuleAnswer(fairshare.OperatorBan)
	a.rules[fairshare.BusyUpstream] = newRuleAnswer(fairshare.BusyUpstream)
	return a
}

func newRuleAnswer(r *fairshare.Rule) *ruleAnswer {
	a := &ruleAnswer{
		name: r.Name,
		html: string(appendHTML(nil, r.Name)),
		json: string(appendJSON(nil, r.Name)),
		item: newPolicyItem(r.Name, r.Limit),
	}
	if r.Limit != nil {
		switch r.Limit.Resource {
		case fairshare.CPU, fairshare.Time, fairshare.Cost, fairshare.Bytes:
			a.dear = true
		}
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
		id:     h.reference(&vis.req, v.Rule), client: vis.req.Addr,
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
	letGo(w, r)
	NotUpstream(w) // for a middleware around this one
	f.compose(vis, r, limits, retryAfter, page).send(w)
	if err := h.guard.Settle(r.Context(), v, fairshare.Outcome{Time: vis.req.Time}); err != nil && h.Failed != nil {
		h.Failed(err)
	}
}

// A reply is an answer as any server can speak it.
type reply struct {
	status int
	fields []field
	body   []byte
}

// A field is a header of a reply.
type field struct {
	name   string // canonical
	values []string
}

// compose makes the reply of a refusal; page is the /robots.txt to hand out
// instead, if any. The reply is good until vis is used again. Refusing must be
// cheap: the values of fields that never change are made once, all others are
// cut from one text.
func (f *refusal) compose(vis *visit, r *http.Request, limits *fairshare.Verdict, retryAfter int64, page *robotsCopy) reply {
	b := vis.buf[:0]
	fields := append(vis.fields[:0], field{"Cache-Control", noStore})
	var contentType []string
	switch {
	case page != nil:
		b, contentType = append(b, page.body...), []string{page.contentType}
	case len(f.body) > 0:
		b, contentType = f.appendTemplate(b, f.body, f.kind), contentTypes[f.kind]
		if f.kind == jsonBody { // the operator's own, and maybe no problem of RFC 9457
			contentType = plainJSON
		}
	case f.fixed.Redirect != "": // the Location says it all
	default:
		kind := preferred(r.Header["Accept"])
		b, contentType = f.appendBody(b, kind, limits), contentTypes[kind]
	}
	if f.status == http.StatusNoContent || f.status == http.StatusNotModified { // these have none
		b = b[:0]
	}
	body := len(b)
	if body > 0 {
		fields = append(fields, field{"Content-Type", contentType})
	}

	if retryAfter > 0 {
		b = strconv.AppendInt(b, retryAfter, 10)
	}
	retry := len(b)
	var policies []string
	if limits != nil && page == nil {
		if b, policies = f.appendRateLimits(b, limits); policies != nil {
			fields = append(fields, field{"Ratelimit-Policy", policies})
		}
	}
	left := len(b)
	b = f.appendLocation(b, f.location)
	location := len(b)
	if r.Method == http.MethodHead || body > 2<<10 { // net/http counts shorter ones by itself
		b = strconv.AppendInt(b, int64(body), 10)
	}
	vis.buf = b

	text, from := string(b[body:]), 0
	values := make([]string, 0, 4)
	for _, part := range [...]struct {
		name string
		end  int
	}{{"Retry-After", retry}, {"Ratelimit", left}, {"Location", location}, {"Content-Length", len(b)}} {
		if end := part.end - body; end > from {
			n := len(values)
			values = append(values, text[from:end])
			fields = append(fields, field{part.name, values[n : n+1 : n+1]})
			from = end
		}
	}
	if r.Method == http.MethodHead {
		body = 0
	}
	return reply{status: f.status, fields: fields, body: b[:body]}
}

// send has net/http speak the reply.
func (a reply) send(w http.ResponseWriter) {
	header := w.Header()
	for i := range a.fields {
		header[a.fields[i].name] = a.fields[i].values
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		w.Write(a.body)
	}
}

// Values of headers, shared by all answers.
var (
	noStore      = []string{"no-store"}
	plainJSON    = []string{"application/json"}
	contentTypes = [...][]string{textBody: {textType}, htmlBody: {"text/html; charset=utf-8"}, jsonBody: {"application/problem+json"}}
)

// appendRateLimits appends the value of RateLimit, and returns that of
// RateLimit-Policy; nil when there is nothing to say.
func (a *answers) appendRateLimits(b []byte, v *fairshare.Verdict) (_ []byte, policies []string) {
	v.Limits(func(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
		item := &a.rule(r).item
		switch {
		case item.name == "":
			return
		case policies == nil: // most often there is no other
			policies = item.policy
		default:
			policies = []string{policies[0] + ", " + item.policy[0]}
			b = append(b, ", "...)
		}
		b = item.appendRateLimit(b, l, t)
	})
	return b, policies
}

// unreadTime is how long a refused client may still take to send its body.
const unreadTime = 5 * time.Second

// letGo bounds the time for which net/http reads the body of a request that is
// answered without it.
func letGo(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // an error: no connection below
	}
}

// unavailable answers a request that nobody could judge.
func unavailable(w http.ResponseWriter, r *http.Request) {
	letGo(w, r)
	NotUpstream(w)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", "5")
	header.Set("Content-Type", textType)
	w.WriteHeader(http.StatusServiceUnavailable)
	w.Write([]byte("503 Service unavailable: this site cannot count requests at the moment. Try again in a few seconds.\n"))
}
