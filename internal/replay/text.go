package replay

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fairshare"
)

// A Style says how a report for people looks.
type Style struct {
	Width  int    // columns; 0 means 80, at least 60, at most 100
	Colour bool   // the writer is a terminal that knows ANSI colours
	Policy string // the policy file, "" for the built-in policy

	// NoUpstream says that the policy names no upstream: serve has to be told.
	NoUpstream bool
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer, style Style) error {
	if style.Width == 0 {
		style.Width = 80
	}
	style.Width = min(max(style.Width, 60), 100)
	p := &printer{w: bufio.NewWriter(w), Style: style}
	p.holds(r)
	if r.Lines > r.Skipped {
		p.warnings(r)
		p.verdicts(r)
		p.overTime(r)
		p.rules(r)
		p.clients(r)
		p.bots(r)
		p.fleets(r)
		p.refused(r)
		p.people(r)
		p.unmeasured(r)
	} else {
		p.warnings(r)
	}
	p.skipped(r)
	p.next(r)
	return p.w.Flush()
}

// A printer writes one report. Errors are those of w, told by Flush.
type printer struct {
	w *bufio.Writer
	Style
}

func (p *printer) line(format string, args ...any) {
	p.w.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	p.w.WriteByte('\n')
}

// heading begins a part of the report.
func (p *printer) heading(text string) {
	p.w.WriteByte('\n')
	p.line("%s", p.paint(bold, text))
}

// Colours, as ANSI SGR codes.
const (
	bold   = "1"
	red    = "31"
	yellow = "33"
)

func (p *printer) paint(code, text string) string {
	if !p.Colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// text writes a paragraph, its lines behind the first indented further.
func (p *printer) text(indent, further int, text string) {
	for i, l := range wrap(text, p.Width-indent-further) {
		if i == 1 {
			indent += further
		}
		p.line("%*s%s", indent, "", l)
	}
}

func (p *printer) holds(r *Report) {
	name := strings.Join(r.Files, ", ")
	if len(r.Files) > 3 {
		name = fmt.Sprintf("%s … %s (%d logs)", r.Files[0], r.Files[len(r.Files)-1], len(r.Files))
	}
	p.line("%s", p.paint(bold, cutFront(printable(name), p.Width)))
	holds := plural(r.Lines, "line")
	if r.Format != "" {
		holds += " in format " + r.Format
	}
	if r.Skipped > 0 {
		holds += fmt.Sprintf(", %s of them skipped", count(r.Skipped))
	}
	p.text(2, 2, holds)
	if r.From != nil {
		span := "at once"
		if d := r.To.Sub(*r.From); d > 0 {
			span = roughly(d)
		}
		about := ""
		if r.Approximate {
			about = "about "
		}
		p.line("  %s to %s UTC (%s)", r.From.Format(stamp), r.To.Format(stamp), span)
		p.line("  %s%s, %s", about, plural(r.Clients, "client"), plural(r.Agents, "user agent"))
	} else {
		p.line("  nothing in it could be judged")
	}
}

func (p *printer) warnings(r *Report) {
	for _, w := range r.Warnings {
		p.w.WriteByte('\n')
		lines := wrap(w.Text, p.Width-2)
		for i, l := range lines {
			mark := "  "
			if i == 0 {
				mark = p.paint(yellow, "!") + " "
			}
			p.line("%s%s", mark, l)
		}
		if w.Hint != "" {
			p.text(2, 6, "hint: "+w.Hint)
		}
	}
}

func (p *printer) verdicts(r *Report) {
	all := r.Lines - r.Skipped
	p.heading("What the policy would have done")
	p.line("  %12s  %7s  allowed", count(r.Verdicts.Allow), shareOf(r.Verdicts.Allow, all))
	for _, v := range []struct {
		n, clients int64
		what, that string
	}{
		{r.Verdicts.Refuse, r.RefusedClients, "refused", " (429, come back later)"},
		{r.Verdicts.Block, r.BlockedClients, "blocked", " (403, not welcome)"},
	} {
		of := v.that
		if p.Width < 72 {
			of = ""
		}
		if v.n > 0 {
			of += ", " + plural(v.clients, "client")
		}
		p.line("  %12s  %7s  %s%s", count(v.n), shareOf(v.n, all), v.what, of)
	}
}

// Bars of one column, from nothing to full.
var bars = []rune(" ▁▂▃▄▅▆▇█")

func (p *printer) overTime(r *Report) {
	if len(r.OverTime) < 2 {
		return
	}
	most := int64(0)
	for _, s := range r.OverTime {
		most = max(most, s.Requests)
	}
	step := r.OverTime[1].From.Sub(r.OverTime[0].From)
	p.heading(fmt.Sprintf("Over time (a column is %s, the highest %s)", roughly(step), plural(most, "request")))
	each := max((p.Width-14)/len(r.OverTime), 1)
	each = min(each, 4)
	var all, refused strings.Builder
	for _, s := range r.OverTime {
		all.WriteString(strings.Repeat(bar(s.Requests, most), each))
		refused.WriteString(strings.Repeat(bar(s.Refused, most), each))
	}
	p.line("  requests  %s", all.String())
	p.line("  refused   %s", p.paint(red, refused.String()))
	layout := "2006-01-02"
	if step < 24*time.Hour {
		layout = "2006-01-02 15:04"
	}
	if step < time.Minute {
		layout = stamp
	}
	left, right := r.OverTime[0].From.Format(layout), r.OverTime[len(r.OverTime)-1].From.Format(layout)
	if gap := each*len(r.OverTime) - len(left) - len(right); gap > 0 {
		p.line("            %s%*s%s", left, gap, "", right)
	} else {
		p.line("            %s to %s", left, right)
	}
}

// bar draws a number as a bar; what is not nothing can be seen.
func bar(n, most int64) string {
	if n == 0 || most == 0 {
		return " "
	}
	return string(bars[1+int(float64(n)/float64(most)*float64(len(bars)-2))])
}

// fewRules are told one by one; of more than that only those that did something.
const fewRules = 16

func (p *printer) rules(r *Report) {
	p.heading("What each rule did")
	wide := p.Width - 2 - 5*11
	p.line("  %-*s%11s%11s%11s%11s%11s", wide, "", "matched", "refused", "blocked", "bans", "clients")
	dry, quiet, networks := false, 0, int64(0)
	for _, rule := range r.Rules {
		if len(r.Rules) > fewRules && rule.Refused+rule.Blocked+rule.Banned == 0 {
			quiet++
			continue
		}
		networks += rule.Networks
		name := printable(rule.Name)
		if rule.DryRun {
			name += " *"
			dry = true
		}
		if utf8.RuneCountInString(name) >= wide {
			p.line("  %s", cut(name, p.Width-2))
			name = ""
		}
		clients := count(rule.Clients)
		if rule.Approximate {
			clients = "~" + clients
		}
		p.line("  %-*s%11s%11s%11s%11s%11s", wide, name,
			count(rule.Matched), dash(rule.Refused), dash(rule.Blocked), dash(rule.Banned), dashed(rule.Clients, clients))
		if rule.Allowance != "" && rule.Resource != fairshare.Requests.String() && rule.Resource != fairshare.Concurrent.String() {
			p.text(4, 2, printable(rule.Allowance))
		}
	}
	switch {
	case quiet == 1:
		p.text(2, 2, "1 more rule refused and blocked nobody: --json tells which")
	case quiet > 1:
		p.text(2, 2, fmt.Sprintf("%d more rules refused and blocked nobody: --json tells which", quiet))
	}
	if networks > 0 {
		p.text(2, 2, fmt.Sprintf("%s of an IPv6 /48: eight clients of it were banned by that rule at a time", plural(networks, "ban")))
	}
	p.spared(r)
	if dry {
		p.text(2, 2, "* dry_run: what it would have done; not part of the sums above")
	}
	p.text(2, 2, "matched: requests that came to the rule and that it is about (a banned one comes to none); clients: refused or blocked by it")
}

func dash(n int64) string { return dashed(n, count(n)) }

func dashed(n int64, text string) string {
	if n == 0 {
		return "–"
	}
	return text
}

func (p *printer) clients(r *Report) {
	all := r.Lines - r.Skipped
	p.heading("Who takes how much")
	wide := 0
	for _, t := range r.Top {
		wide = max(wide, len(t.Client))
	}
	for _, n := range r.Networks {
		wide = max(wide, len(n.Network))
	}
	wide = min(wide, 39)
	rest := p.Width - 2 - wide - 2*10 - 2
	p.line("  %-*s%10s%10s  %s", wide, "client", "requests", "share", "user agent")
	for _, t := range r.Top {
		p.line("  %-*s%10s%10s  %s", wide, t.Client, count(t.Requests), shareOf(t.Requests, all), p.who(&t, rest))
	}
	p.w.WriteByte('\n')
	p.line("  %-*s%10s%10s  %s", wide, "network", "requests", "share", "clients")
	for _, n := range r.Networks {
		p.line("  %-*s%10s%10s  %s", wide, n.Network, count(n.Requests), shareOf(n.Requests, all), count(n.Clients))
	}
	if len(r.UserAgents) == 0 || len(r.UserAgents) == 1 && r.UserAgents[0].UserAgent == "" {
		return
	}
	p.w.WriteByte('\n')
	rest = p.Width - 2 - 3*10 - 2
	p.line("%12s%10s%10s  %s", "requests", "share", "refused", "user agent")
	for _, a := range r.UserAgents {
		p.line("%12s%10s%10s  %s", count(a.Requests), shareOf(a.Requests, all), dash(a.Refused), p.agent(a.UserAgent, rest))
	}
}

func (p *printer) agent(text string, width int) string {
	if text == "" {
		return "(no user agent)"
	}
	return cut(gist(printable(text), width), width)
}

// who writes what a client is taken for, and as much of its user agent as
// there is room for.
func (p *printer) who(t *TopClient, width int) string {
	const least = 12 // characters of a user agent that say something
	bot := printable(t.bot())
	room := width - utf8.RuneCountInString(bot) - 2
	switch {
	case bot == "", t.UserAgent == "":
		return p.agent(t.UserAgent, width)
	case room < least:
		return cut(bot, width)
	}
	return bot + ", " + p.agent(t.UserAgent, room)
}

func (p *printer) refused(r *Report) {
	if len(r.MostRefused) == 0 {
		return
	}
	p.heading("Refused or blocked most")
	wide, rule := 0, 4
	for _, t := range r.MostRefused {
		wide = max(wide, len(t.Client))
		rule = max(rule, utf8.RuneCountInString(printable(t.Rule)))
	}
	wide = min(wide, 39)
	rule = min(rule, 20, max(p.Width-wide-38, 6)) // 12 are left for the user agent
	rest := p.Width - 2 - wide - 20 - 2 - rule - 2
	p.line("  %-*s%10s%10s  %-*s  %s", wide, "client", "refused", "of", rule, "rule", "user agent")
	for _, t := range r.MostRefused {
		agent := p.who(&t.TopClient, rest)
		if t.Person {
			agent = "+ " + p.who(&t.TopClient, rest-2)
		}
		p.line("  %-*s%10s%10s  %-*s  %s", wide, t.Client, count(t.Refused+t.Blocked), count(t.Requests), rule, cut(printable(t.Rule), rule), agent)
	}
}

func (p *printer) people(r *Report) {
	if r.Verdicts.Refuse+r.Verdicts.Block == 0 {
		return
	}
	p.heading("People who may have been hurt")
	if !r.People.Known {
		p.text(2, 0, "This cannot be told: it takes a log that holds paths, status, referers and user agents.")
		return
	}
	const how = "that look like people: a browser's user agent, page assets fetched, referers sent"
	if r.People.Refused == 0 {
		p.text(2, 0, fmt.Sprintf("None: no refused or blocked request came from one of the %s clients %s.", count(r.People.Clients), how))
		return
	}
	p.text(2, 0, fmt.Sprintf("%s of %s refused or blocked requests (%s) came from %s of the %s clients %s (+ above).",
		count(r.People.Refused), count(r.Verdicts.Refuse+r.Verdicts.Block), shareOf(r.People.Refused, r.Verdicts.Refuse+r.Verdicts.Block),
		count(r.People.Hurt), count(r.People.Clients), how))
	for _, rule := range r.People.Rules {
		p.text(2, 2, fmt.Sprintf("by %q: %s from %s", printable(rule.Rule), plural(rule.Refused, "request"), plural(rule.Clients, "client")))
	}
}

func (p *printer) unmeasured(r *Report) {
	if len(r.Unmeasured) == 0 {
		return
	}
	p.heading("Not measured")
	var told []Unmeasured
	for _, u := range r.Unmeasured {
		same := func(t Unmeasured) bool { return t.What == u.What && t.Why == u.Why }
		if i := slices.IndexFunc(told, same); i >= 0 {
			told[i].Rule += ", " + u.Rule
		} else {
			told = append(told, u)
		}
	}
	for _, u := range told {
		p.text(2, 2, fmt.Sprintf("%s (%s): %s", printable(u.Rule), printable(u.What), printable(u.Why)))
	}
	p.text(2, 0, "What a log does not hold was judged as absent: with live traffic these rules may do less or more.")
}

func (p *printer) skipped(r *Report) {
	if r.Skipped == 0 {
		return
	}
	p.heading("Skipped lines")
	for _, s := range r.Reasons {
		p.line("%12s  %s", count(s.Lines), printable(s.Reason))
		for _, sample := range s.Samples {
			where := fmt.Sprintf("line %d: ", sample.Line)
			if len(r.Files) > 1 {
				where = fmt.Sprintf("%s:%d: ", cutFront(printable(sample.File), 24), sample.Line)
			}
			p.line("%14s%s", "", cut(where+printable(sample.Text), p.Width-14))
		}
	}
}

func (p *printer) next(r *Report) {
	if r.From == nil {
		return
	}
	p.heading("What next")
	flag := ""
	if p.Policy != "" {
		flag = " -c " + printable(p.Policy)
	}
	if p.NoUpstream {
		flag += " --upstream http://127.0.0.1:3000"
	}
	if p.Policy == "" {
		p.text(2, 2, "This was the built-in policy. To change it: fairshare policy > site.yaml, then fairshare replay -c site.yaml with the same logs.")
	} else {
		p.text(2, 2, "Try another limit: edit "+printable(p.Policy)+" and replay again; --verdicts FILE tells what became of each line.")
	}
	p.text(2, 2, "Watch it with live traffic, refusing nobody: fairshare serve"+flag+" --dry-run")
	p.text(2, 2, "Enforce it: fairshare serve"+flag)
}
