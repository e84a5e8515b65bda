package httpguard

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"fairshare"
	"fairshare/internal/httpfield"
	"fairshare/texts"
)

// answers holds the prepared answers of a policy's rules.
type answers struct {
	number  uint64 // of the generation
	rules   map[*fairshare.Rule]*ruleAnswer
	contact string
	html    string // the contact as HTML
	json    string // the contact as a JSON string

	texts       *texts.Set
	pages       []page // by the index of the language
	english     texts.Texts
	englishJSON texts.Texts // escaped for a JSON string
}

// A ruleAnswer is what one rule answers with.
type ruleAnswer struct {
	name     string
	html     string // the name, escaped
	json     string // the name as a JSON string
	item     policyItem
	costs    bool // the limit is on the cost of requests, not on their number
	blocks   bool // the rule is a block: one request may have started its ban
	fixed    fairshare.Answer
	body     template // of fixed.Body; empty for the usual body
	kind     bodyKind // of fixed.Body
	location template // of fixed.Redirect
	headers  []*field // of fixed.Header
}

// noRule is the answer to a finding that names no rule.
var noRule = newRuleAnswer(&fairshare.Rule{})

func newAnswers(p *fairshare.Policy, opts *Options) *answers {
	contact := opts.Contact
	a := &answers{
		rules:   make(map[*fairshare.Rule]*ruleAnswer, len(p.Rules)),
		contact: oneLine(contact),
		html:    contactHTML(oneLine(contact)),
		json:    string(appendJSON(nil, contact)),
		texts:   opts.Texts,
	}
	if a.texts == nil {
		a.texts = texts.BuiltIn()
	}
	languages := a.texts.Languages()
	for i := range languages {
		a.pages = append(a.pages, newPage(&languages[i]))
	}
	a.english = languages[0].Texts
	a.englishJSON = a.english.Escaped(func(s string) string {
		quoted := appendJSON(nil, s)
		return string(quoted[1 : len(quoted)-1])
	})
	for i := range p.Rules {
		a.rules[&p.Rules[i]] = newRuleAnswer(&p.Rules[i])
	}
	for _, rule := range []*fairshare.Rule{fairshare.OperatorBan, fairshare.BusyUpstream, fairshare.AttackMode} {
		a.rules[rule] = newRuleAnswer(withAnswer(rule, opts.Answers[rule]))
	}
	return a
}

// withAnswer returns a copy of a rule with another answer, if there is one.
func withAnswer(rule *fairshare.Rule, answer *fairshare.Answer) *fairshare.Rule {
	if answer == nil {
		return rule
	}
	own, other := *rule, *answer
	if other.Status == 0 && other.Redirect == "" && rule.Answer != nil {
		other.Status = rule.Answer.Status
	}
	own.Answer = &other
	return &own
}

func newRuleAnswer(r *fairshare.Rule) *ruleAnswer {
	a := &ruleAnswer{
		name: r.Name,
		html: string(appendHTML(nil, r.Name)),
		json: string(appendJSON(nil, r.Name)),
		item: newPolicyItem(r.Name, r.Limit),

		blocks: r.Action == fairshare.Block && r.Name != fairshare.OperatorBan.Name,
	}
	if r.Limit != nil {
		switch r.Limit.Resource {
		case fairshare.CPU, fairshare.Time, fairshare.Cost, fairshare.Bytes:
			a.costs = true
		}
	}
	if r.Answer != nil {
		a.fixed = *r.Answer
		a.body, a.location = parseTemplate(a.fixed.Body), parseTemplate(a.fixed.Redirect)
		a.kind = a.body.kind()
		for _, name := range slices.Sorted(maps.Keys(a.fixed.Header)) {
			values := slices.Clip(slices.Clone(a.fixed.Header[name]))
			a.headers = append(a.headers, newField(http.CanonicalHeaderKey(name), values...))
		}
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

// retryAfter returns the seconds of the Retry-After header, or 0 for none.
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

// A refusal holds everything that an answer shows.
type refusal struct {
	gist
	*answers
	now    time.Time                 // by Options.Now
	wall   func(time.Time) time.Time // Options.Wall, which is asked only if an answer shows when the wait ends
	client netip.Addr
	robots *fairshare.Robots // that the rule looked at; nil otherwise
}

// A gist is what the usual text of a refusal shows, but for robots.txt, with one set of texts. It does not refer to the
// policy, so that one that was replaced can be freed.
type gist struct {
	*ruleAnswer
	action  fairshare.Action
	ban     bool
	failed  bool // nothing could be counted: there is no rule and no reference
	queued  bool // only requests in progress keep the request out
	ceiling bool // the limit was spent by all provisional clients of a peer together
	status  int
	wait    int64 // seconds until a new request may pass; 0 when it never does
	id      string
}

// refuse answers a request that is refused or blocked, and reports it.
func (g *generation) refuse(w http.ResponseWriter, r *http.Request, vis *visit, v *fairshare.Verdict) {
	rule := g.answers.rule(v.Rule)
	f := refusal{
		answers: g.answers,
		gist: gist{
			ruleAnswer: rule,
			action:     v.Action, ban: v.Ban != fairshare.NotBanned, ceiling: v.Ceiling,
			queued: v.Action == fairshare.Refuse && v.Wait == 0 && v.Tally.Held > 0,
			status: rule.status(&v.Finding),
			wait:   rule.retryAfter(&v.Finding),
			id:     g.reference(vis, v.Rule),
		},
		now: vis.req.Time, wall: g.Wall, client: vis.req.Addr,
	}
	if v.Rule != nil && vis.req.Robots.Reason(v.Rule) != "" {
		f.robots = &vis.req.Robots
	}
	retryAfter := f.wait
	if v.Action == fairshare.Refuse && f.wait == 0 {
		f.wait = seconds(v.Wait)
	}

	var page *robotsCopy
	isRobots := vis.req.Path == robotsPath
	if isRobots { // whatever the rule's own answer is
		usual := *rule
		usual.fixed, usual.body, usual.location, usual.headers = fairshare.Answer{}, nil, nil, nil
		f.ruleAnswer = &usual
		page, f.status, retryAfter = g.robots.answer(&vis.req, f.wait)
	}
	if g.Refused != nil {
		vis.fillReport(r, v, &f, retryAfter)
		g.Refused(&vis.report)
		if v.DryRunFinding.Action != fairshare.Undecided {
			g.reportDry(vis, &v.DryRunFinding)
		}
	}
	var limits *fairshare.Verdict
	if v.Action == fairshare.Refuse && v.Ban != fairshare.BanInForce {
		limits = v
	}
	boundBodyRead(w, r)
	NoUpstreamAnswer(w) // for a guard around this one
	if !isRobots && g.wantsVisitor(&vis.req, r, v) {
		g.setVisitor(w.Header(), r, &vis.req, visitorChange{})
	}
	if bot := vis.req.Bot; g.CanSign != nil && !isRobots && bot.State != fairshare.NoBot &&
		bot.State != fairshare.Verified && g.CanSign(bot) {
		w.Header()["Accept-Signature"] = acceptSignature
	}
	answer := f.compose(vis, r, limits, retryAfter, page)
	var own *ownAnswer
	if g.Answer == nil || isRobots {
		answer.send(w, vis)
	} else {
		vis.fillReport(r, v, &f, retryAfter)
		own = answer.sendFields(w)
		g.Answer(own, r, &vis.report)
		own.begin()
	}
	g.reportAnswered(vis, v, func(a *Access) {
		a.Status, a.Bytes, a.ID = answer.status, int64(len(answer.body)), f.id
		if own != nil {
			a.Status, a.Bytes = own.status, own.bytes
		}
		if v.Rule == fairshare.BusyUpstream {
			a.Waited = max(g.Now().Sub(vis.arrived), 0)
		}
	})
	g.settleRefused(r, vis, v)
}

func (vis *visit) fillReport(r *http.Request, v *fairshare.Verdict, f *refusal, retryAfter int64) {
	vis.report = Report{Request: &vis.req, HTTP: r, Finding: v.Finding, Status: f.status, RetryAfter: retryAfter,
		ID: f.id}
}

// A reply is an answer, independent of the server that sends it.
type reply struct {
	status int
	fields []*field
	text   []byte               // the values of lastFields, one after another
	ends   [len(lastFields)]int // of these values; an empty one means no field
	body   []byte

	needsLength  bool // net/http does not count the body by itself
	hasOwnFields bool // of the rule: a later field of the same name replaces one of them
}

// lastFields are the fields whose values differ from answer to answer.
var lastFields = [...]string{"Retry-After", rateLimitField, "Location", contentLength}

const contentLength = "Content-Length"

// A field is a header of a reply, whose values never change.
type field struct {
	name   string // canonical
	values []string
	lines  string // in the head of an answer
}

func newField(name string, values ...string) *field {
	return &field{name, values, string(httpfield.AppendAll(nil, name, values))}
}

// compose makes the reply of a refusal. page is the copy of /robots.txt to send
// instead, or nil. The reply is valid until vis is used again. Refusing must be
// cheap: the values of fields that never change are made once.
func (f *refusal) compose(vis *visit, r *http.Request, limits *fairshare.Verdict, retryAfter int64,
	page *robotsCopy) reply {
	b := vis.buf[:0]
	fields := append(append(vis.fields[:0], f.headers...), noStoreField)
	var contentType *field
	switch {
	case page != nil:
		b, contentType = append(b, page.body...), newField("Content-Type", page.contentType)
	case f.fixed.Empty:
	case len(f.body) > 0:
		b, contentType = f.appendTemplate(b, f.body, f.kind), contentTypes[f.kind]
		if f.kind == jsonBody { // the operator's own; it need not be a problem of RFC 9457
			contentType = plainJSON
		}
	case f.fixed.Redirect != "": // the Location is enough
	default: // text and JSON are for programs, in English
		kind := preferred(r.Header["Accept"])
		switch kind {
		case htmlBody:
			own := f.page(r)
			fields = append(fields, own.language)
			b = f.appendPage(b, own)
		case jsonBody:
			b = f.appendProblem(b, limits)
		default:
			b = append(b, f.line(vis)...)
		}
		contentType = contentTypes[kind]
	}
	bodyless := f.status == http.StatusNoContent || f.status == http.StatusNotModified
	if bodyless {
		b = b[:0]
	}
	body := len(b)
	if body > 0 {
		fields = append(fields, contentType)
	}

	if retryAfter > 0 {
		b = strconv.AppendInt(b, retryAfter, 10)
	}
	retry := len(b)
	if limits != nil && page == nil {
		fromLimits := rateLimits{answers: f.answers, b: b}
		limits.Limits(func(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) { fromLimits.add(r, l, t) })
		if b = fromLimits.b; fromLimits.policy != nil {
			fields = append(fields, fromLimits.policy)
		}
	}
	rateLimit := len(b)
	b = f.appendLocation(b, f.location)
	location := len(b)
	if !bodyless {
		b = strconv.AppendInt(b, int64(body), 10)
	}
	vis.buf = b
	head := r.Method == http.MethodHead
	a := reply{status: f.status, fields: fields, body: b[:body], text: b[body:],
		ends:        [...]int{retry - body, rateLimit - body, location - body, len(b) - body},
		needsLength: head || body > 2<<10 || f.fixed.Empty, hasOwnFields: len(f.headers) > 0}
	if head && vis.auth == nil { // another server sends no body by itself
		a.body = nil
	}
	return a
}

// An answerWriter is a ResponseWriter that takes a whole answer at less cost. fields are the lines of its head, with
// the length of the body; dated says that they have a Date. It returns false, and has done nothing, if it does not take
// this one.
type answerWriter interface {
	WriteAnswer(status int, fields, body []byte, dated bool) bool
}

// send sends the reply.
func (a *reply) send(w http.ResponseWriter, vis *visit) {
	if whole, ok := w.(answerWriter); ok && !a.hasOwnFields {
		vis.lines = a.appendFields(vis.lines[:0])
		if whole.WriteAnswer(a.status, vis.lines, a.body, false) {
			return
		}
	}
	a.setFields(w.Header(), true)
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		w.Write(a.body)
	}
}

// appendFields appends the fields as lines.
func (a *reply) appendFields(b []byte) []byte {
	for i := range a.fields {
		b = append(b, a.fields[i].lines...)
	}
	from := 0
	for i, end := range a.ends {
		if end > from {
			b = httpfield.AppendValid(b, lastFields[i], a.text[from:end]) // see appendLocation
			from = end
		}
	}
	return b
}

// setFields sets the fields in a header. isOwn says that the body is that of the reply; otherwise the fields that
// describe it are omitted.
func (a *reply) setFields(header http.Header, isOwn bool) {
	for i := range a.fields {
		if name := a.fields[i].name; isOwn ||
			name != "Content-Type" && name != contentLength && name != "Content-Language" {
			header[name] = a.fields[i].values
		}
	}
	text, from := string(a.text), 0
	values := make([]string, 0, len(lastFields))
	for i, end := range a.ends {
		if end > from && (lastFields[i] != contentLength || isOwn && a.needsLength) {
			values = append(values, text[from:end])
			n := len(values)
			header[lastFields[i]] = values[n-1 : n : n]
		}
		from = end
	}
}

// sendFields sets the fields of the reply that do not describe its body. It
// returns a writer for the rest.
func (a *reply) sendFields(w http.ResponseWriter) *ownAnswer {
	a.setFields(w.Header(), false)
	return &ownAnswer{ResponseWriter: w, status: a.status}
}

// An ownAnswer sends a status before the body, if the program has sent none.
type ownAnswer struct {
	http.ResponseWriter
	status int
	begun  bool
	bytes  int64
}

func (a *ownAnswer) begin() {
	if !a.begun {
		a.WriteHeader(a.status)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (a *ownAnswer) WriteHeader(status int) {
	if !a.begun && status >= 200 {
		a.begun, a.status = true, status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (a *ownAnswer) Write(p []byte) (int, error) {
	a.begin()
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (a *ownAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Values of headers, shared by all answers.
var (
	noStore      = []string{"no-store"}
	noStoreField = newField("Cache-Control", noStore...)
	// Web Bot Auth: a signature that names its agent and is for this site and a short time.
	acceptSignature = []string{`sig1=("@authority" "signature-agent";key="sig1");created;expires;alg="ed25519";` +
		`tag="web-bot-auth"`}
	plainJSON    = newField("Content-Type", "application/json")
	contentTypes = [...]*field{textBody: newField("Content-Type", textType),
		htmlBody: newField("Content-Type", "text/html; charset=utf-8"),
		jsonBody: newField("Content-Type", "application/problem+json")}
)

// rateLimits collects the values of the fields RateLimit and RateLimit-Policy.
type rateLimits struct {
	answers *answers
	b       []byte // the value of RateLimit is appended
	policy  *field // RateLimit-Policy; nil if no limit can be expressed
}

func (rl *rateLimits) add(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
	item := &rl.answers.rule(r).item
	if l.N != r.Limit.N || l.Window != r.Limit.Window || l.Resource != r.Limit.Resource { // the limit for newcomers
		own := newPolicyItem(r.Name, l)
		item = &own
	}
	switch {
	case item.name == "":
		return
	case rl.policy == nil: // usually the only one
		rl.policy = item.policy
	default:
		rl.policy = newField(policyField, rl.policy.values[0]+", "+item.policy.values[0])
		rl.b = append(rl.b, ", "...)
	}
	rl.b = item.appendRateLimit(rl.b, l, t)
}

// unreadTime is how long a refused client may still take to send its body.
const unreadTime = 5 * time.Second

// boundBodyRead bounds the time for which net/http reads the body of a request that
// is answered without it.
func boundBodyRead(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // an error: no connection below
	}
}

// unavailable answers a request that could not be judged.
func (a *answers) unavailable(w http.ResponseWriter, r *http.Request) {
	boundBodyRead(w, r)
	NoUpstreamAnswer(w)
	const wait = 5
	header := w.Header()
	header["Cache-Control"] = noStore
	header.Set("Retry-After", strconv.Itoa(wait))
	f := refusal{answers: a,
		gist: gist{ruleAnswer: noRule, status: http.StatusServiceUnavailable, wait: wait, failed: true}}
	kind := preferred(r.Header["Accept"])
	var body []byte
	if kind == htmlBody {
		page := f.page(r)
		header["Content-Language"] = page.language.values
		body = f.appendPage(nil, page)
	} else {
		kind = textBody
		body = f.appendLine(nil)
	}
	header["Content-Type"] = contentTypes[kind].values
	w.WriteHeader(f.status)
	w.Write(body)
}
