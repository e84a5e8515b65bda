package httpguard

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"fairshare"
)

const textType = "text/plain; charset=utf-8"

// appendBody appends the usual body: what happened, the rule, how long to wait,
// the contact and the reference.
func (f *refusal) appendBody(b []byte, kind bodyKind, limits *fairshare.Verdict) []byte {
	switch kind {
	case htmlBody:
		return f.appendPage(b)
	case jsonBody:
		return f.appendProblem(b, limits)
	}
	return f.appendLine(b)
}

func (f *refusal) title() string {
	if f.action == fairshare.Block {
		return "Request blocked"
	}
	switch f.name {
	case fairshare.OperatorBan.Name:
		return "Access blocked"
	case fairshare.BusyUpstream.Name, fairshare.AttackMode.Name:
		return "This site is busy"
	}
	if f.costs && !f.queued {
		return "Too many expensive requests"
	}
	return "Too many requests"
}

func (f *refusal) lead() string {
	switch {
	case f.name == fairshare.OperatorBan.Name && f.action == fairshare.Block:
		return "The operators of this site have blocked your access."
	case f.name == fairshare.OperatorBan.Name:
		return "The operators of this site have blocked your access for now."
	case f.robots != nil && f.action == fairshare.Block:
		return fmt.Sprintf("Line %d of this site's robots.txt does not allow your program to fetch this.", f.robots.Line)
	case f.robots != nil && !f.ban:
		return fmt.Sprintf("This site's robots.txt, line %d, asks your program to wait %s between two requests.",
			f.robots.DelayLine, appendWait(nil, seconds(f.robots.Delay)))
	case f.action == fairshare.Block:
		return "This site does not accept requests of this kind."
	case f.name == fairshare.BusyUpstream.Name, f.name == fairshare.AttackMode.Name:
		return "This site is getting more requests than it can answer right now."
	case f.ceiling:
		return "Too many requests reach this site the way yours does."
	case f.ban && f.blocks:
		return "This site has blocked you for a while, after requests that it does not accept."
	case f.ban:
		return "This site has blocked you for a while, after too many refused requests."
	}
	if f.queued {
		return "Too many of your earlier requests are still in progress."
	}
	if f.costs {
		return "Your requests have used more of this site than one visitor may use."
	}
	return "You have sent too many requests."
}

func (f *refusal) appendLine(b []byte) []byte {
	b = strconv.AppendInt(b, int64(f.status), 10)
	b = append(b, ' ')
	b = append(b, f.title()...)
	b = append(b, ": "...)
	b = append(b, f.lead()...)
	if f.action != fairshare.Block {
		b = append(b, " Please wait "...)
		b = appendWait(b, f.wait)
		b = append(b, '.')
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
	kind, title := "", f.title()
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
	b = append(b, f.lead()...)
	if f.action != fairshare.Block {
		b = append(b, " Please wait "...)
		b = appendWait(b, f.wait)
		b = append(b, '.')
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

const pageHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<title>`

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

// appendPage appends an HTML page that needs no script and loads nothing.
func (f *refusal) appendPage(b []byte) []byte {
	b = append(b, pageHead...)
	b = append(b, f.title()...)
	b = append(b, pageStyle...)
	b = append(b, f.title()...)
	b = append(b, "</h1>\n<p>"...)
	b = append(b, f.lead()...)
	b = append(b, "</p>\n"...)
	if f.action != fairshare.Block {
		b = append(b, "<p>Please wait <strong>"...)
		b = appendWait(b, f.wait)
		b = append(b, "</strong>, then try again.</p>\n"...)
	}
	b = append(b, "<dl>\n<dt>Rule</dt><dd>"...)
	b = append(b, f.ruleAnswer.html...)
	b = append(b, "</dd>\n"...)
	if f.contact != "" {
		b = append(b, "<dt>Contact</dt><dd>"...)
		b = append(b, f.answers.html...)
		b = append(b, "</dd>\n"...)
	}
	b = append(b, "<dt>Reference</dt><dd><code>"...)
	b = append(b, f.id...)
	return append(b, "</code></dd>\n</dl>\n</main>\n</body>\n</html>\n"...)
}

// appendWait appends a wait in seconds, minutes, hours or days, rounded up.
func appendWait(b []byte, sec int64) []byte {
	n, unit := sec, "second"
	switch {
	case sec > 48*3600:
		n, unit = (sec+86399)/86400, "day"
	case sec > 120*60:
		n, unit = (sec+3599)/3600, "hour"
	case sec > 120:
		n, unit = (sec+59)/60, "minute"
	}
	b = strconv.AppendInt(b, n, 10)
	b = append(append(b, ' '), unit...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
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
