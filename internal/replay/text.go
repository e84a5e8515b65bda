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
	"fairshare/internal/prose"
)

// stamp is the layout of times in the text, all in UTC.
const stamp = "2006-01-02 15:04:05"

// A Style is the style of a report as text.
type Style struct {
	Width  int    // columns; 0 means 80, at least 60, at most 100
	Colour bool   // use ANSI colours
	Policy string // the policy file, "" for the built-in policy

	// NoUpstream says that the policy has no upstream: hints for serve then name one.
	NoUpstream bool
}

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer, style Style) error {
	if style.Width == 0 {
		style.Width = 80
	}
	style.Width = min(max(style.Width, 60), 100)
	p := &printer{w: bufio.NewWriter(w), Style: style}
	p.logs(r)
	if r.Lines > r.Skipped {
		p.warnings(r)
		p.verdicts(r)
		p.overTime(r)
		p.rules(r)
		p.clients(r)
		p.bots(r)
		p.fleets(r)
		p.browserFleets(r)
		p.owners(r)
		p.robots(r)
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

// A printer writes one report. Flush of w returns the error of writing.
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

// text writes a paragraph. The lines after the first are indented further.
func (p *printer) text(indent, further int, text string) {
	for i, l := range prose.Wrap(text, p.Width-indent-further) {
		if i == 1 {
			indent += further
		}
		p.line("%*s%s", indent, "", l)
	}
}

func (p *printer) logs(r *Report) {
	name := strings.Join(r.Files, ", ")
	if len(r.Files) > 3 {
		name = fmt.Sprintf("%s … %s (%d logs)", r.Files[0], r.Files[len(r.Files)-1], len(r.Files))
	}
	p.line("%s", p.paint(bold, prose.CutFront(prose.Printable(name), p.Width)))
	holds := prose.Plural(r.Lines, "line")
	if r.Format != "" {
		holds += " in format " + r.Format
	}
	if r.Skipped > 0 {
		holds += fmt.Sprintf(", %s of them skipped", prose.Number(r.Skipped))
	}
	p.text(2, 2, holds)
	if r.From != nil {
		span := "at once"
		if d := r.To.Sub(*r.From); d > 0 {
			span = prose.Duration(d)
		}
		about := ""
		if r.Approximate {
			about = "about "
		}
		p.text(2, 2, fmt.Sprintf("%s to %s UTC (%s)", r.From.Format(stamp), r.To.Format(stamp), span))
		p.line("  %s%s, %s", about, prose.Plural(r.Clients, "client"), prose.Plural(r.Agents, "user agent"))
	} else {
		p.line("  no line could be judged")
	}
}

func (p *printer) warnings(r *Report) {
	for _, w := range r.Warnings {
		p.w.WriteByte('\n')
		lines := prose.Wrap(w.Text, p.Width-2)
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
	p.line("  %12s  %7s  allowed", prose.Number(r.Verdicts.Allow), prose.Percent(r.Verdicts.Allow, all))
	for _, v := range []struct {
		n, clients      int64
		action, meaning string
	}{
		{r.Verdicts.Refuse, r.RefusedClients, "refused", " (429, come back later)"},
		{r.Verdicts.Block, r.BlockedClients, "blocked", " (403, not welcome)"},
	} {
		of := v.meaning
		if p.Width < 72 {
			of = ""
		}
		if v.n > 0 {
			of += ", " + prose.Plural(v.clients, "client")
		}
		p.line("  %12s  %7s  %s%s", prose.Number(v.n), prose.Percent(v.n, all), v.action, of)
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
	p.heading(fmt.Sprintf("Over time (a column is %s, the highest %s)", prose.Duration(step),
		prose.Plural(most, "request")))
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

// bar returns the bar of a number. Only that of 0 is empty.
func bar(n, most int64) string {
	if n == 0 || most == 0 {
		return " "
	}
	return string(bars[1+int(float64(n)/float64(most)*float64(len(bars)-2))])
}

// fewRules is how many rules are all shown. Of more, only those with an effect are.
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
		name := prose.Printable(rule.Name)
		if rule.DryRun {
			name += " *"
			dry = true
		}
		if utf8.RuneCountInString(name) >= wide {
			p.line("  %s", prose.Cut(name, p.Width-2))
			name = ""
		}
		clients := prose.Number(rule.Clients)
		if rule.Approximate {
			clients = "~" + clients
		}
		p.line("  %-*s%11s%11s%11s%11s%11s", wide, name,
			prose.Number(rule.Matched), dash(rule.Refused), dash(rule.Blocked), dash(rule.Banned),
			dashed(rule.Clients, clients))
		if rule.Allowance != "" && rule.Resource != fairshare.Requests.String() &&
			rule.Resource != fairshare.Concurrent.String() {
			p.text(4, 2, prose.Printable(rule.Allowance))
		}
	}
	switch {
	case quiet == 1:
		p.text(2, 2, "1 more rule refused and blocked no request: --json shows it")
	case quiet > 1:
		p.text(2, 2, fmt.Sprintf("%d more rules refused and blocked no request: --json shows them", quiet))
	}
	if networks > 0 {
		p.text(2, 2,
			fmt.Sprintf(
				"%s of all newcomers of an IPv6 /48, because the rule had banned 128 clients of it at the same time",
				prose.Plural(networks, "ban")))
	}
	p.operatorAllowed(r)
	if dry {
		p.text(2, 2, "* dry_run: what the rule would have done; not included above")
	}
	p.text(2, 2,
		"matched: requests that reached the rule and matched it (banned requests reach no rule); clients: refused or blocked by it")
}

func dash(n int64) string { return dashed(n, prose.Number(n)) }

func dashed(n int64, text string) string {
	if n == 0 {
		return "–"
	}
	return text
}

func (p *printer) clients(r *Report) {
	all := r.Lines - r.Skipped
	p.heading("Largest clients")
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
		p.line("  %-*s%10s%10s  %s", wide, t.Client, prose.Number(t.Requests), prose.Percent(t.Requests, all),
			p.clientText(&t, rest))
	}
	p.w.WriteByte('\n')
	p.line("  %-*s%10s%10s  %s", wide, "network", "requests", "share", "clients")
	for _, n := range r.Networks {
		p.line("  %-*s%10s%10s  %s", wide, n.Network, prose.Number(n.Requests), prose.Percent(n.Requests, all),
			prose.Number(n.Clients))
	}
	if len(r.UserAgents) == 0 || len(r.UserAgents) == 1 && r.UserAgents[0].UserAgent == "" {
		return
	}
	p.w.WriteByte('\n')
	rest = p.Width - 2 - 3*10 - 2
	p.line("%12s%10s%10s  %s", "requests", "share", "refused", "user agent")
	for _, a := range r.UserAgents {
		p.line("%12s%10s%10s  %s", prose.Number(a.Requests), prose.Percent(a.Requests, all), dash(a.Refused),
			p.agent(a.UserAgent, rest))
	}
}

func (p *printer) agent(text string, width int) string {
	if text == "" {
		return "(no user agent)"
	}
	return prose.Cut(shortAgent(prose.Printable(text), width), width)
}

// shortAgent returns the distinctive part of a user agent that does not fit: the name of a
// bot, or the browser before its system.
func shortAgent(agent string, width int) string {
	if utf8.RuneCountInString(agent) <= width {
		return agent
	}
	if _, rest, ok := strings.Cut(agent, "compatible; "); ok {
		return strings.TrimSuffix(rest, ")")
	}
	if i := strings.LastIndex(agent, " ("); i >= 0 && strings.HasSuffix(agent, ")") &&
		strings.Contains(agent[:i], "(") {
		return agent[i+2 : len(agent)-1] // "Mozilla/5.0 (Macintosh) … Safari/605.1.15 (Applebot/0.1; …)"
	}
	system, products, ok := strings.Cut(strings.TrimPrefix(agent, "Mozilla/5.0 ("), ")")
	if !ok || !strings.HasPrefix(agent, "Mozilla/5.0 (") {
		return agent
	}
	for _, name := range []string{" Edg", " OPR/", " SamsungBrowser/", " CriOS/", " FxiOS/", " Firefox/", " Chrome/",
		" Version/"} {
		if i := strings.Index(products, name); i >= 0 {
			product, _, _ := strings.Cut(products[i+1:], " ")
			return strings.Replace(product, "Version/", "Safari/", 1) + " (" + system + ")"
		}
	}
	return agent
}

// clientText returns the bot of a client, and as much of its user agent as fits.
func (p *printer) clientText(t *TopClient, width int) string {
	const least = 12 // characters of a user agent that are useful
	bot := prose.Printable(t.bot())
	room := width - utf8.RuneCountInString(bot) - 2
	switch {
	case bot == "", t.UserAgent == "":
		return p.agent(t.UserAgent, width)
	case room < least:
		return prose.Cut(bot, width)
	}
	return bot + ", " + p.agent(t.UserAgent, room)
}

func (p *printer) refused(r *Report) {
	if len(r.MostRefused) == 0 {
		return
	}
	p.heading("Most refused or blocked clients")
	wide, rule := 0, 4
	for _, t := range r.MostRefused {
		wide = max(wide, len(t.Client))
		rule = max(rule, utf8.RuneCountInString(prose.Printable(t.Rule)))
	}
	wide = min(wide, 39)
	rule = min(rule, 20, max(p.Width-wide-38, 6)) // 12 are left for the user agent
	rest := p.Width - 2 - wide - 20 - 2 - rule - 2
	p.line("  %-*s%10s%10s  %-*s  %s", wide, "client", "refused", "of", rule, "rule", "user agent")
	for _, t := range r.MostRefused {
		agent := p.clientText(&t.TopClient, rest)
		if t.Person {
			agent = "+ " + p.clientText(&t.TopClient, rest-2)
		}
		p.line("  %-*s%10s%10s  %-*s  %s", wide, t.Client, prose.Number(t.Refused+t.Blocked),
			prose.Number(t.Requests), rule,
			prose.Cut(prose.Printable(t.Rule), rule), agent)
	}
}

func (p *printer) people(r *Report) {
	if r.Verdicts.Refuse+r.Verdicts.Block == 0 {
		return
	}
	p.heading("People who may have been refused")
	if !r.People.Known {
		p.text(2, 0, "Unknown: this needs a log with paths, status, referers and user agents.")
		return
	}
	const how = "that look like people: a browser's user agent, page assets fetched, referers sent"
	if r.People.Refused == 0 {
		p.text(2, 0, fmt.Sprintf("None: no refused or blocked request came from one of the %s clients %s.",
			prose.Number(r.People.Clients), how))
		return
	}
	p.text(2, 0, fmt.Sprintf("%s of %s refused or blocked requests (%s) came from %s of the %s clients %s (+ above).",
		prose.Number(r.People.Refused), prose.Number(r.Verdicts.Refuse+r.Verdicts.Block),
		prose.Percent(r.People.Refused, r.Verdicts.Refuse+r.Verdicts.Block),
		prose.Number(r.People.Hurt), prose.Number(r.People.Clients), how))
	for _, rule := range r.People.Rules {
		p.text(2, 2, fmt.Sprintf("by %q: %s from %s", prose.Printable(rule.Rule), prose.Plural(rule.Refused, "request"),
			prose.Plural(rule.Clients, "client")))
	}
}

func (p *printer) unmeasured(r *Report) {
	if len(r.Unmeasured) == 0 {
		return
	}
	p.heading("Not measured")
	var rows []Unmeasured
	for _, u := range r.Unmeasured {
		same := func(t Unmeasured) bool { return t.Fact == u.Fact && t.Why == u.Why }
		if i := slices.IndexFunc(rows, same); i >= 0 {
			rows[i].Rule += ", " + u.Rule
		} else {
			rows = append(rows, u)
		}
	}
	for _, u := range rows {
		p.text(2, 2, fmt.Sprintf("%s (%s): %s", prose.Printable(u.Rule), prose.Printable(u.Fact),
			prose.Printable(u.Why)))
	}
	p.text(2, 0, "Facts that are not in the log count as absent: with live traffic these rules may do less or more.")
}

func (p *printer) skipped(r *Report) {
	if r.Skipped == 0 {
		return
	}
	p.heading("Skipped lines")
	for _, s := range r.Reasons {
		p.line("%12s  %s", prose.Number(s.Lines), prose.Printable(s.Reason))
		for _, sample := range s.Samples {
			where := fmt.Sprintf("line %d: ", sample.Line)
			if len(r.Files) > 1 {
				where = fmt.Sprintf("%s:%d: ", prose.CutFront(prose.Printable(sample.File), 24), sample.Line)
			}
			p.line("%14s%s", "", prose.Cut(where+prose.Printable(sample.Text), p.Width-14))
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
		flag = " -c " + prose.Printable(p.Policy)
	}
	if p.NoUpstream {
		flag += " --upstream http://127.0.0.1:3000"
	}
	if p.Policy == "" {
		p.text(2, 2,
			"This was the built-in policy. To change it: fairshare policy > site.yaml, then fairshare replay -c site.yaml with the same logs.")
	} else {
		p.text(2, 2, "Try another limit: edit "+prose.Printable(p.Policy)+
			" and replay again; --verdicts FILE writes the verdict of each line.")
	}
	p.text(2, 2, "Test it with live traffic, without refusals: fairshare serve"+flag+" --dry-run")
	p.text(2, 2, "Enforce it: fairshare serve"+flag)
}
