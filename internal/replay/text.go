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

	// Unmeasured names each fact that a rule tests and the logs lack. Without it one line says
	// how many rules are affected.
	Unmeasured bool
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
		p.advice(r)
		p.people(r)
		p.clients(r)
		p.ai(r)
		p.bots(r)
		p.robots(r)
		p.paths(r)
		p.fleets(r)
		p.browserFleets(r)
		p.owners(r)
		p.rules(r)
		p.refused(r)
		p.overTime(r)
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
	if r.Saved.Requests > 0 && (r.Saved.Bytes > 0 || r.Saved.Seconds > 0) {
		f := Finding{BytesShare: part(r.Saved.Bytes, r.Total.Bytes)}
		text := "This saves " + prose.Size(r.Saved.Bytes) + " of answers (" + prose.Share(f.BytesShare) + ")"
		if r.Total.Seconds > 0 {
			text += ", and " + duration(r.Saved.Seconds) + " of the site's time (" +
				prose.Share(r.Saved.Seconds/r.Total.Seconds) + ")"
		}
		p.text(2, 2, text+".")
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

// A figures formats the columns of requests, bytes and time that a log has.
type figures struct {
	all         Usage
	bytes, time bool
	narrow      bool // only the shares
}

// figures returns the columns that fit into room.
func (p *printer) figures(r *Report, room int) figures {
	f := figures{all: r.Total, bytes: r.HasBytes && r.Total.Bytes > 0, time: r.HasTime && r.Total.Seconds > 0}
	f.narrow = f.width() > room
	return f
}

// width is the number of columns that head and row fill.
func (f *figures) width() int { return len(f.head()) }

func (f *figures) head() string {
	column := func(name string) string {
		if f.narrow {
			return fmt.Sprintf("%10s", name)
		}
		return fmt.Sprintf("%10s%8s", name, "")
	}
	text := column("requests")
	if f.bytes {
		text += column("bytes")
	}
	if f.time {
		text += column("time")
	}
	return text
}

func (f *figures) row(u Usage) string {
	column := func(amount string, share float64) string {
		if f.narrow {
			return fmt.Sprintf("%10s", prose.Share(share))
		}
		return fmt.Sprintf("%10s%8s", amount, prose.Share(share))
	}
	text := column(prose.Number(u.Requests), part(u.Requests, f.all.Requests))
	if f.bytes {
		text += column(prose.Size(u.Bytes), part(u.Bytes, f.all.Bytes))
	}
	if f.time {
		text += column(shortTime(u.Seconds), u.Seconds/f.all.Seconds)
	}
	return text
}

// shortTime writes a sum of time in few columns: "850 ms", "12.5 s", "14 min", "3.2 h".
func shortTime(seconds float64) string {
	switch {
	case seconds == 0:
		return "0 s"
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	case seconds < 100:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

// largest returns the clients with the largest shares of the requests, bytes or time.
func (r *Report) largest() []TopClient {
	var found []TopClient
	for _, t := range slices.Concat(r.Top, r.TopByBytes, r.TopByTime) {
		if !slices.ContainsFunc(found, func(f TopClient) bool { return f.Client == t.Client }) {
			found = append(found, t)
		}
	}
	slices.SortStableFunc(found, func(a, b TopClient) int { return a.usage().compare(b.usage(), r.Total) })
	return found[:min(len(found), len(r.Top))]
}

func (t *TopClient) usage() Usage { return Usage{t.Requests, t.Bytes, t.Seconds} }

func (p *printer) clients(r *Report) {
	all := r.Lines - r.Skipped
	p.heading("Largest clients")
	wide := 0
	top := r.largest()
	for _, t := range top {
		wide = max(wide, len(t.Client))
	}
	for _, n := range r.Networks {
		wide = max(wide, len(n.Network))
	}
	wide = min(wide, 39)
	f := p.figures(r, p.Width-2-min(wide, 18))
	if f.width() > p.Width-2-wide {
		f.narrow = true
	}
	rest := p.Width - 2 - wide - f.width() - 2
	below := rest < 24 // the user agent gets a line of its own
	if below {
		rest = p.Width - 6
		p.line("  %-*s%s", wide, "client", f.head())
	} else {
		p.line("  %-*s%s  %s", wide, "client", f.head(), "user agent")
	}
	for _, t := range top {
		text := p.clientText(&t, rest)
		errors := t.Statuses.text(rest - utf8.RuneCountInString(text) - 2)
		if below {
			p.line("  %-*s%s", wide, t.Client, f.row(t.usage()))
			p.line("      %s", text+errors)
			continue
		}
		p.line("  %-*s%s  %s", wide, t.Client, f.row(t.usage()), text+errors)
	}
	if r.Empty > 0 {
		p.text(2, 2,
			fmt.Sprintf("Connections on which no request came: %s. Browsers open some in advance; the server's "+
				"400 and 408 for them are not errors of clients.", prose.Plural(r.Empty, "line")))
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

// text describes errors that are many for a client, if they fit: "; 856 errors 4xx".
func (s *Statuses) text(room int) string {
	all := s.OK + s.Redirects + s.Client + s.Server
	text := ""
	if 5*s.Client > all {
		text += "; " + prose.Number(s.Client) + " × 4xx"
	}
	if 5*s.Server > all {
		text += "; " + prose.Number(s.Server) + " × 5xx"
	}
	if utf8.RuneCountInString(text) > room+2 {
		return ""
	}
	return text
}

// ai writes the operators of AI bots.
func (p *printer) ai(r *Report) {
	if len(r.AI) == 0 {
		return
	}
	f := p.figures(r, p.Width-11)
	var sum Usage
	for i := range r.AI {
		sum.Requests, sum.Bytes, sum.Seconds = sum.Requests+r.AI[i].Requests, sum.Bytes+r.AI[i].Bytes,
			sum.Seconds+r.AI[i].Seconds
	}
	title := fmt.Sprintf("AI: %s of the requests", prose.Percent(sum.Requests, f.all.Requests))
	if f.bytes {
		title += fmt.Sprintf(", %s of the bytes", prose.Percent(sum.Bytes, f.all.Bytes))
	}
	if f.time {
		title += fmt.Sprintf(", %s of the time", prose.Share(sum.Seconds/f.all.Seconds))
	}
	p.heading(title)
	wide := p.Width - 2 - f.width() - 9
	below := wide < 30
	if below {
		wide = p.Width - 2
		p.line("  %s", "operator (purpose: bots)")
		p.line("  %s%9s", f.head(), "refused")
	} else {
		p.line("  %-*s%s%9s", wide, "operator (purpose: bots)", f.head(), "refused")
	}
	rows := min(len(r.AI), max(len(r.Top), shownAI))
	for i := range r.AI[:rows] {
		o := &r.AI[i]
		name := prose.Cut(prose.Printable(fmt.Sprintf("%s (%s: %s)", o.Operator, o.Purpose, strings.Join(o.Bots,
			", "))), wide)
		if below {
			p.line("  %s", name)
			p.line("  %s%9s", f.row(o.Usage), dash(o.Refused))
			continue
		}
		p.line("  %-*s%s%9s", wide, name, f.row(o.Usage), dash(o.Refused))
	}
	if more := len(r.AI) - rows; more > 0 {
		p.line("  and %d more: --json shows them", more)
	}
	p.text(2, 2, "training: collects pages for models; search: for an index of answers; user: because a person asks")
}

// shownAI is how many operators the text shows at least.
const shownAI = 10

// paths writes the paths and patterns of paths with the largest shares.
func (p *printer) paths(r *Report) {
	if len(r.PathPatterns) == 0 {
		return
	}
	f := p.figures(r, p.Width-43)
	p.heading("Largest paths (* is any text)")
	p.line("  %s%10s%9s  %s", f.head(), "refused", "errors", "path")
	rest := p.Width - 2 - f.width() - 19 - 2
	for i := range r.PathPatterns[:min(len(r.PathPatterns), max(len(r.Top), 1))] {
		row := &r.PathPatterns[i]
		path := prose.Printable(row.Path)
		if room := p.Width - 6; rest < 24 && utf8.RuneCountInString(path) > rest {
			p.line("  %s%10s%9s", f.row(row.Usage), dash(row.Refused), dash(row.Errors))
			p.line("      %s", prose.Cut(path, room))
			continue
		}
		p.line("  %s%10s%9s  %s", f.row(row.Usage), dash(row.Refused), dash(row.Errors), prose.Cut(path, rest))
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
	if slices.ContainsFunc(r.MostRefused, func(t RefusedClient) bool { return t.Person }) {
		p.line("  + looks like a person")
	}
}

func (p *printer) people(r *Report) {
	if r.Verdicts.Refuse+r.Verdicts.Block == 0 {
		return
	}
	p.heading("People who may have been hurt")
	if !r.People.Known {
		p.text(2, 0, "Unknown: this needs a log with paths, status, referers and user agents.")
		return
	}
	const how = "that look like people: a browser's user agent, page assets fetched, referers sent, and no " +
		"sign of a program"
	if r.People.Refused == 0 {
		p.text(2, 0, fmt.Sprintf("None: no refused or blocked request came from one of the %s clients %s.",
			prose.Number(r.People.Clients), how))
		return
	}
	p.text(2, 0, fmt.Sprintf("%s of %s refused or blocked requests (%s) came from %s of the %s clients %s.",
		prose.Number(r.People.Refused), prose.Number(r.Verdicts.Refuse+r.Verdicts.Block),
		prose.Percent(r.People.Refused, r.Verdicts.Refuse+r.Verdicts.Block),
		prose.Number(r.People.Hurt), prose.Number(r.People.Clients), how))
	for _, rule := range r.People.Rules {
		p.text(2, 2, fmt.Sprintf("by %q: %s from %s", prose.Printable(rule.Rule), prose.Plural(rule.Refused,
			"request"),
			prose.Plural(rule.Clients, "client")))
	}
	for i := range r.People.Named {
		h := &r.People.Named[i]
		who := fmt.Sprintf("%s, %s of %s: ", h.Client, prose.Number(h.Refused+h.Blocked), prose.Plural(h.Requests,
			"request"))
		p.line("  %s%s", who, p.agent(h.UserAgent, max(p.Width-2-utf8.RuneCountInString(who), 12)))
		for _, by := range h.Rules {
			what := ""
			if by.Path != "" {
				what = ", first " + strings.TrimSpace(by.Method+" "+prose.Cut(prose.Printable(by.Path), 60))
			}
			p.text(6, 2, fmt.Sprintf("%s by %q%s", prose.Number(by.Requests), prose.Printable(by.Rule), what))
		}
	}
	if more := r.People.Hurt - int64(len(r.People.Named)); more > 0 {
		p.text(2, 2, fmt.Sprintf("and %s more: --top shows more of them", prose.Number(more)))
	}
}

func (p *printer) unmeasured(r *Report) {
	if len(r.Unmeasured) == 0 {
		return
	}
	if !p.Unmeasured {
		rules := map[string]bool{}
		var facts []string
		for _, u := range r.Unmeasured {
			rules[u.Rule] = true
			if !slices.Contains(facts, u.Fact) {
				facts = append(facts, u.Fact)
			}
		}
		p.w.WriteByte('\n')
		p.text(0, 2,
			fmt.Sprintf("%s: a part of %s (%s). With live traffic these may do less or more; --unmeasured shows why.",
				p.paint(bold, "Not measured"), prose.Plural(len(rules), "rule"), prose.Printable(strings.Join(facts,
					", "))))
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
