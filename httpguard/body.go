package httpguard

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"fairshare"
	"fairshare/texts"
)

const textType = "text/plain; charset=utf-8"

func (f *refusal) title(t *texts.Texts) string {
	switch {
	case f.failed:
		return t.Failed
	case f.action == fairshare.Block:
		return t.Block
	}
	switch f.name {
	case fairshare.OperatorBan.Name:
		return t.OperatorBan
	case fairshare.BusyUpstream.Name, fairshare.AttackMode.Name:
		return t.Busy
	}
	if f.costs && !f.queued {
		return t.Cost
	}
	return t.Requests
}

func (f *refusal) reason(t *texts.Texts) string {
	switch {
	case f.failed:
		return t.FailedReason
	case f.name == fairshare.OperatorBan.Name && f.action == fairshare.Block:
		return t.OperatorReason
	case f.name == fairshare.OperatorBan.Name:
		return t.OperatorForNow
	case f.robots != nil && f.action == fairshare.Block:
		return fmt.Sprintf("Line %d of this site's robots.txt does not allow your program to fetch this.", f.robots.Line)
	case f.robots != nil && !f.ban:
		return fmt.Sprintf("This site's robots.txt, line %d, asks your program to wait %s between two requests.",
			f.robots.DelayLine, t.AppendDuration(nil, seconds(f.robots.Delay)))
	case f.action == fairshare.Block:
		return t.BlockReason
	case f.name == fairshare.BusyUpstream.Name, f.name == fairshare.AttackMode.Name:
		return t.BusyReason
	case f.ceiling:
		return t.CeilingReason
	case f.ban && f.blocks:
		return t.TrapReason
	case f.ban:
		return t.BanReason
	case f.queued:
		return t.InProgressReason
	case f.costs:
		return t.CostReason
	}
	return t.RequestsReason
}

// appendWait appends the sentence that names the wait. The marks go around the wait.
func (f *refusal) appendWait(b []byte, t *texts.Texts, open, end string) []byte {
	before, after, _ := strings.Cut(t.PleaseWait, "{wait}")
	b = append(append(b, before...), open...)
	b = t.AppendDuration(b, f.wait)
	return append(append(b, end...), after...)
}

// A lined is a refusal whose usual text is known.
type lined struct {
	gist
	gen uint64
}

// line returns the usual text. It remembers the last one of a visit: the next refusal is often the same.
func (f *refusal) line(vis *visit) []byte {
	of := lined{f.gist, f.number}
	if vis.lined != of || f.robots != nil {
		vis.line = f.appendLine(vis.line[:0])
		if vis.lined = of; f.robots != nil {
			vis.lined = lined{}
		}
	}
	return vis.line
}

// appendLine appends what happened, how long to wait, the rule, the contact and the reference.
func (f *refusal) appendLine(b []byte) []byte {
	b = strconv.AppendInt(b, int64(f.status), 10)
	b = append(b, ' ')
	english := &f.english
	b = append(b, f.title(english)...)
	b = append(b, ": "...)
	b = append(b, f.reason(english)...)
	if f.action != fairshare.Block {
		b = append(b, ' ')
		b = f.appendWait(b, english, "", "")
	}
	if f.failed {
		return append(b, '\n')
	}
	b = append(b, " Rule: "...)
	b = append(b, f.name...)
	if f.contact != "" {
		b = append(b, ". Contact: "...)
		b = append(b, f.contact...)
	}
	b = append(b, ". Reference: "...)
	b = append(b, f.id...)
	return append(b, ".\n"...)
}

// appendProblem appends a problem of RFC 9457. The types are those that
// draft-ietf-httpapi-ratelimit-headers registers.
func (f *refusal) appendProblem(b []byte, limits *fairshare.Verdict) []byte {
	const registry = "https://iana.org/assignments/http-problem-types#"
	kind, title := "", f.title(&f.englishJSON)
	switch {
	case f.status == http.StatusTooManyRequests && f.ban:
		kind = "abnormal-usage-detected"
	case f.status == http.StatusTooManyRequests:
		kind = "quota-exceeded"
	case f.status == http.StatusServiceUnavailable:
		kind = "temporary-reduced-capacity"
	default: // about:blank, whose title is the status's own
		title = http.StatusText(f.status)
	}
	b = append(b, `{"type":"`...)
	if kind == "" {
		b = append(b, "about:blank"...)
	} else {
		b = append(append(b, registry...), kind...)
	}
	b = append(b, `","title":"`...)
	b = append(b, title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(f.status), 10)
	b = append(b, `,"detail":"`...)
	b = append(b, f.reason(&f.englishJSON)...)
	if f.action != fairshare.Block {
		b = append(b, ' ')
		b = f.appendWait(b, &f.englishJSON, "", "")
	}
	b = append(b, `","violated-policies":[`...)
	b = append(b, f.ruleAnswer.json...)
	if limits != nil {
		limits.Limits(func(r *fairshare.Rule, _ *fairshare.Limit, t fairshare.Tally) {
			if other := f.rule(r); t.Over && r.Name != f.name {
				b = append(append(b, ','), other.json...)
			}
		})
	}
	b = append(b, ']')
	if f.action != fairshare.Block {
		b = append(b, `,"wait":`...)
		b = strconv.AppendInt(b, f.wait, 10)
	}
	if f.contact != "" {
		b = append(b, `,"contact":`...)
		b = append(b, f.answers.json...)
	}
	b = append(b, `,"reference":"`...)
	b = append(b, f.id...)
	return append(b, "\"}\n"...)
}

// A page is the HTML page of refusals in one language.
type page struct {
	texts    texts.Texts // as HTML
	head     string      // up to the title
	language *field      // Content-Language
}

func newPage(l *texts.Language) page {
	return page{l.Escaped(func(s string) string { return string(appendHTML(nil, s)) }), `<!doctype html>
<html lang="` + l.Tag + `" dir="` + l.Dir + `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<title>`, newField("Content-Language", l.Header...)}
}

// page returns the page in the language that a client prefers. What robots.txt asks for is for
// programs, in English.
func (f *refusal) page(r *http.Request) *page {
	if f.robots != nil {
		return &f.pages[0]
	}
	return &f.pages[f.texts.Choose(r.Header["Accept-Language"])]
}

const pageStyle = `</title>
<style>
body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto 2rem;padding:0 1.2rem}
h1{font-size:1.6rem;line-height:1.2}
dl{display:grid;grid-template-columns:auto 1fr;gap:.3rem 1rem;margin-top:2rem;font-size:.95rem;opacity:.8}
dd{margin:0;overflow-wrap:anywhere}
</style>
</head>
<body>
<main>
<h1>`

const pageEnd = "</main>\n</body>\n</html>\n"

// appendPage appends an HTML page that needs no script and loads nothing.
func (f *refusal) appendPage(b []byte, p *page) []byte {
	t := &p.texts
	title := f.title(t)
	b = append(b, p.head...)
	b = append(b, title...)
	b = append(b, pageStyle...)
	b = append(b, title...)
	b = append(b, "</h1>\n<p>"...)
	b = append(b, f.reason(t)...)
	b = append(b, "</p>\n"...)
	if f.action != fairshare.Block {
		b = append(b, "<p>"...)
		b = f.appendWait(b, t, "<strong>", "</strong>")
		b = append(b, ' ')
		b = append(b, t.Then...)
		b = append(b, "</p>\n"...)
	}
	if f.failed {
		return append(b, pageEnd...)
	}
	if f.contact != "" {
		b = append(b, "<p>"...)
		b = append(b, t.IfMistaken...)
		b = append(b, "</p>\n"...)
	}
	b = appendTerm(b, "<dl>\n<dt>", t.Rule, "</dt><dd>", f.ruleAnswer.html)
	if f.contact != "" {
		b = appendTerm(b, "</dd>\n<dt>", t.Contact, "</dt><dd>", f.answers.html)
	}
	b = appendTerm(b, "</dd>\n<dt>", t.Reference, "</dt><dd><code>", f.id)
	b = append(b, "</code></dd>\n</dl>\n"...)
	return append(b, pageEnd...)
}

func appendTerm(b []byte, before, term, between, text string) []byte {
	b = append(append(b, before...), term...)
	return append(append(b, between...), text...)
}

// contactHTML returns the contact as HTML. A URL or an email address becomes a link.
func contactHTML(contact string) string {
	text := string(appendHTML(nil, contact))
	switch {
	case strings.ContainsAny(contact, " \t"):
		return text
	case strings.HasPrefix(contact, "https://"), strings.HasPrefix(contact, "http://"):
		return `<a href="` + text + `">` + text + `</a>`
	case strings.Count(contact, "@") == 1:
		return `<a href="mailto:` + string(appendHTML(nil, string(appendPercent(nil, contact, "@")))) + `">` + text +
			`</a>`
	}
	return text
}
