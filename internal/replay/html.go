package replay

import (
	"bufio"
	"cmp"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	_ "embed"

	"fairshare/internal/prose"
)

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// A page is a report as one HTML page: no script, and no request to any host.
type page struct {
	Title, Name string
	Lead        []string
	Warnings    []Warning
	Figures     []pageFigure
	Saved       string
	Chart       *pageChart
	Advice      []pageRule
	AdviceText  []string
	Parts       []pagePart
}

type pageFigure struct{ Number, Share, Text, Class string }

// A pageRule is an advised rule.
type pageRule struct {
	Reasons []string
	YAML    string
}

// A pagePart is a heading with tables and paragraphs.
type pagePart struct {
	ID, Title string
	Before    []string
	Tables    []pageTable
	After     []string
}

type pageTable struct {
	Caption string
	Head    []pageCell
	Rows    [][]pageCell
}

// A pageCell is a cell; Bar is the length of a bar below it, in percent.
type pageCell struct {
	Text   string
	Number bool
	Bar    float64
}

type pageChart struct {
	Title, From, To string
	Bars            []pageBar
	Table           pageTable
}

type pageBar struct{ X, Width, Y, Height, RefusedY, Refused float64 }

// WriteHTML writes the report as one HTML page. The page needs no other file. It holds no query
// strings, and no samples of lines that were skipped.
func (r *Report) WriteHTML(w io.Writer, style Style) error {
	style.Width, style.Colour = 1<<20, false
	t := &htmlText{r: r, style: style}
	all := r.Lines - r.Skipped
	p := &page{Title: "Access log report", Name: prose.Printable(shortNames(r.Files))}
	if lines := t.lines(0, (*printer).logs); len(lines) > 0 {
		p.Lead = lines[1:]
	}
	p.Warnings = r.Warnings
	if all > 0 {
		for _, v := range []struct {
			n, clients  int64
			class, text string
		}{{r.Verdicts.Allow, 0, "allow", "requests allowed"},
			{r.Verdicts.Refuse, r.RefusedClients, "refuse", "refused (429, come back later)"},
			{r.Verdicts.Block, r.BlockedClients, "block", "blocked (403, not welcome)"}} {
			text := v.text
			if v.clients > 0 {
				text += ", " + prose.Plural(v.clients, "client")
			}
			p.Figures = append(p.Figures, pageFigure{prose.Number(v.n), prose.Percent(v.n, all), text, v.class})
		}
		if saved := t.lines(2, (*printer).verdicts); len(saved) > 3 {
			p.Saved = saved[3]
		}
		t.advice(p)
		p.Chart = r.chart()
		p.Parts = t.parts()
	}
	if r.Skipped > 0 {
		table := pageTable{Caption: "Lines that could not be judged", Head: head("lines#", "reason")}
		for _, s := range r.Reasons {
			table.Rows = append(table.Rows, []pageCell{number(s.Lines), {Text: prose.Printable(s.Reason)}})
		}
		p.Parts = append(p.Parts, pagePart{ID: "skipped", Title: "Skipped lines", Tables: []pageTable{table}})
	}
	if r.From != nil {
		p.Parts = append(p.Parts, pagePart{ID: "next", Title: "What next", Before: t.lines(2, (*printer).next)})
	}
	return reportPage.Execute(w, p)
}

func shortNames(files []string) string {
	if len(files) > 3 {
		return fmt.Sprintf("%s … %s (%d logs)", files[0], files[len(files)-1], len(files))
	}
	return strings.Join(files, ", ")
}

// An htmlText takes paragraphs from the report as text, so that both say the same.
type htmlText struct {
	r     *Report
	style Style
}

// lines returns the lines that a part of the text has, without the first skip.
func (t *htmlText) lines(skip int, part func(*printer, *Report)) []string {
	var out strings.Builder
	p := &printer{w: bufio.NewWriter(&out), Style: t.style}
	part(p, t.r)
	p.w.Flush() // a strings.Builder has no errors
	var lines []string
	for i, l := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if l = strings.TrimSpace(l); i >= skip && l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

func (t *htmlText) advice(p *page) {
	a := t.r.Advice
	if a == nil {
		return
	}
	for i := range a.Rules {
		rule := &a.Rules[i]
		p.Advice = append(p.Advice, pageRule{append(slices.Clone(rule.Reasons), rule.Effect()), rule.YAML})
	}
	if len(a.Rules) > 0 {
		p.AdviceText = append([]string{"This writes a policy with these rules, to replay and use: " + a.Suggest},
			a.Notes...)
		return
	}
	p.AdviceText = t.lines(2, (*printer).advice)
}

// chart returns the requests over time.
func (r *Report) chart() *pageChart {
	if len(r.OverTime) < 2 {
		return nil
	}
	most := int64(1)
	for _, s := range r.OverTime {
		most = max(most, s.Requests)
	}
	step := r.OverTime[1].From.Sub(r.OverTime[0].From)
	layout := "2006-01-02 15:04"
	if step < time.Minute {
		layout = stamp
	}
	c := &pageChart{From: r.OverTime[0].From.Format(layout), To: r.OverTime[len(r.OverTime)-1].From.Format(layout),
		Title: fmt.Sprintf("Requests over time: a column is %s, the highest %s", prose.Duration(step),
			prose.Plural(most, "request")),
		Table: pageTable{Caption: "Requests over time", Head: head("from (UTC)", "requests#", "refused#")}}
	const width, height = 800.0, 160.0
	each := width / float64(len(r.OverTime))
	for i, s := range r.OverTime {
		all, refused := height*float64(s.Requests)/float64(most), height*float64(s.Refused)/float64(most)
		c.Bars = append(c.Bars, pageBar{float64(i) * each, each * 0.85, height - all, all, height - refused, refused})
		c.Table.Rows = append(c.Table.Rows, []pageCell{{Text: s.From.Format(layout)}, number(s.Requests),
			{Text: dash(s.Refused), Number: true}})
	}
	return c
}

// head returns the cells of a head; a # at the end marks a column of numbers.
func head(names ...string) (cells []pageCell) {
	for _, name := range names {
		text, number := strings.CutSuffix(name, "#")
		cells = append(cells, pageCell{Text: text, Number: number})
	}
	return cells
}

func number(n int64) pageCell { return pageCell{Text: prose.Number(n), Number: true} }

func dashCell(n int64) pageCell { return pageCell{Text: dash(n), Number: true} }

// textCell returns a cell with text that clients may have chosen.
func textCell(text string) pageCell { return pageCell{Text: prose.Printable(text)} }

// usageHead returns the columns of a usage that the log has.
func (r *Report) usageHead() []pageCell {
	names := []string{"requests#"}
	if r.HasBytes && r.Total.Bytes > 0 {
		names = append(names, "bytes#")
	}
	if r.HasTime && r.Total.Seconds > 0 {
		names = append(names, "time#")
	}
	return head(names...)
}

func (r *Report) usage(u Usage) []pageCell {
	cell := func(amount string, share float64) pageCell {
		return pageCell{fmt.Sprintf("%s (%s)", amount, prose.Share(share)), true, 100 * min(share, 1)}
	}
	cells := []pageCell{cell(prose.Number(u.Requests), part(u.Requests, r.Total.Requests))}
	if r.HasBytes && r.Total.Bytes > 0 {
		cells = append(cells, cell(prose.Size(u.Bytes), part(u.Bytes, r.Total.Bytes)))
	}
	if r.HasTime && r.Total.Seconds > 0 {
		cells = append(cells, cell(shortTime(u.Seconds), u.Seconds/r.Total.Seconds))
	}
	return cells
}

// row joins cells.
func row(first pageCell, cells []pageCell, more ...pageCell) []pageCell {
	return slices.Concat([]pageCell{first}, cells, more)
}

// parts returns everything below the advice.
func (t *htmlText) parts() (parts []pagePart) {
	r := t.r
	add := func(part pagePart) {
		part.Tables = slices.DeleteFunc(part.Tables, func(t pageTable) bool { return len(t.Rows) == 0 })
		if len(part.Tables)+len(part.Before)+len(part.After) > 0 {
			parts = append(parts, part)
		}
	}
	share := func(n int64) pageCell {
		return pageCell{fmt.Sprintf("%s (%s)", prose.Number(n), prose.Percent(n, r.Total.Requests)), true,
			100 * part(n, r.Total.Requests)}
	}
	add(pagePart{ID: "people", Title: "People who may have been hurt", Before: t.lines(2, (*printer).people)})

	clients := pageTable{Caption: "Clients with the largest shares", Head: slices.Concat(head("client"), r.usageHead(),
		head("4xx#", "5xx#", "refused#", "user agent"))}
	for _, c := range r.largest() {
		clients.Rows = append(clients.Rows, row(pageCell{Text: c.Client}, r.usage(c.usage()),
			dashCell(c.Statuses.Client), dashCell(c.Statuses.Server), dashCell(c.Refused+c.Blocked),
			textCell(agentOf(&c))))
	}
	networks := pageTable{Caption: "Networks with the most requests", Head: head("network", "requests#", "clients#",
		"refused#")}
	for _, n := range r.Networks {
		networks.Rows = append(networks.Rows, []pageCell{{Text: n.Network}, share(n.Requests), number(n.Clients),
			dashCell(n.Refused + n.Blocked)})
	}
	agents := pageTable{Caption: "User agents with the most requests",
		Head: head("user agent", "requests#", "refused#")}
	for _, a := range r.UserAgents {
		agents.Rows = append(agents.Rows, []pageCell{textCell(cmp.Or(a.UserAgent, "(no user agent)")),
			share(a.Requests), dashCell(a.Refused)})
	}
	var empty []string
	if r.Empty > 0 {
		empty = []string{fmt.Sprintf("Connections on which no request came: %s. The server's 400 and 408 for them are not "+
			"errors of clients.", prose.Plural(r.Empty, "line"))}
	}
	add(pagePart{ID: "clients", Title: "Largest clients", Tables: []pageTable{clients, networks, agents}, After: empty})

	ai := pageTable{Caption: "Operators of AI bots by purpose", Head: slices.Concat(head("operator", "purpose"),
		r.usageHead(), head("refused#", "bots"))}
	for i := range r.AI {
		o := &r.AI[i]
		purpose := []pageCell{{Text: o.Purpose}}
		ai.Rows = append(ai.Rows, row(textCell(o.Operator), slices.Concat(purpose, r.usage(o.Usage)),
			dashCell(o.Refused), textCell(strings.Join(o.Bots, ", "))))
	}
	add(pagePart{ID: "ai", Title: "AI", Tables: []pageTable{ai}})

	bots := pageTable{Caption: "Bots with the most requests", Head: head("bot", "category", "state", "clients#",
		"requests#", "bytes#", "refused#")}
	for _, b := range r.Bots[:min(len(r.Bots), max(len(r.Top), 10))] {
		bots.Rows = append(bots.Rows, []pageCell{textCell(b.Name), {Text: b.Category}, {Text: b.State},
			number(b.Clients), share(b.Requests), {Text: prose.Size(b.Bytes), Number: true},
			dashCell(b.Refused + b.Blocked)})
	}
	var more []string
	if n := len(r.Bots) - len(bots.Rows); n > 0 {
		more = []string{fmt.Sprintf("and %d more: --json shows them", n)}
	}
	add(pagePart{ID: "bots", Title: "Bots", Tables: []pageTable{bots}, After: more})
	add(pagePart{ID: "robots", Title: "robots.txt", Before: t.lines(2, (*printer).robots)})

	paths := pageTable{Caption: "Paths and patterns of paths; * is any text", Head: slices.Concat(head("path"),
		r.usageHead(), head("refused#", "errors#"))}
	for i := range r.PathPatterns[:min(len(r.PathPatterns), max(len(r.Top), 1))] {
		p := &r.PathPatterns[i]
		paths.Rows = append(paths.Rows, row(textCell(p.Path), r.usage(p.Usage), dashCell(p.Refused),
			dashCell(p.Errors)))
	}
	add(pagePart{ID: "paths", Title: "Largest paths", Tables: []pageTable{paths}})

	same := pageTable{Caption: "Bots with one user agent at many addresses", Head: head("user agent", "clients#",
		"networks#", "requests#", "refused#")}
	for _, f := range r.Fleets[:min(len(r.Fleets), max(len(r.Top), rowsOfFleets))] {
		same.Rows = append(same.Rows, []pageCell{textCell(f.UserAgent), number(f.Clients), number(f.Networks),
			share(f.Requests), dashCell(f.Refused)})
	}
	fleets := pageTable{Caption: "User agents of browsers, many addresses, one behavior", Head: head("fleet",
		"addresses#", "networks#", "requests#", "refused#", "what they share")}
	for i := range r.BrowserFleets[:min(len(r.BrowserFleets), max(len(r.Top), rowsOfFleets))] {
		f := &r.BrowserFleets[i]
		fleets.Rows = append(fleets.Rows, []pageCell{textCell(f.Name), number(f.Addresses), number(f.Networks),
			number(f.Requests), dashCell(f.Refused), textCell(f.Shared + "; " + f.Evidence)})
	}
	add(pagePart{ID: "fleets", Title: "Fleets", Tables: []pageTable{same, fleets}})

	owners := pageTable{Caption: "Owners of addresses", Head: head("owner", "requests#", "refused#", "clients#",
		"networks#")}
	for _, o := range r.Owners {
		name := "(not in the table)"
		if o.ASN != 0 {
			name = strings.TrimSpace(fmt.Sprintf("AS%d %s", o.ASN, o.Name))
		}
		owners.Rows = append(owners.Rows, []pageCell{textCell(name), share(o.Requests), dashCell(o.Refused),
			number(o.Clients), number(o.Networks)})
	}
	add(pagePart{ID: "owners", Title: "Owners", Tables: []pageTable{owners}})

	rules := pageTable{Caption: "Rules with an effect", Head: head("rule", "matched#", "refused#", "blocked#", "bans#",
		"clients#", "people#")}
	quiet := 0
	for _, rule := range r.Rules {
		if len(r.Rules) > fewRules && rule.Refused+rule.Blocked+rule.Banned == 0 {
			quiet++
			continue
		}
		name := rule.Name
		if rule.DryRun {
			name += " (dry run)"
		}
		rules.Rows = append(rules.Rows, []pageCell{textCell(name), number(rule.Matched), dashCell(rule.Refused),
			dashCell(rule.Blocked), dashCell(rule.Banned), dashCell(rule.Clients), dashCell(rule.People)})
	}
	var others []string
	if quiet > 0 {
		others = []string{fmt.Sprintf("%s refused and blocked no request.", prose.Plural(int64(quiet), "more rule"))}
	}
	add(pagePart{ID: "rules", Title: "What each rule did", Tables: []pageTable{rules}, After: others})

	refused := pageTable{Caption: "Clients that were refused or blocked most", Head: head("client", "refused#", "of#",
		"rule", "a person?", "user agent")}
	for i := range r.MostRefused {
		c := &r.MostRefused[i]
		person := "no sign"
		if c.Person {
			person = "looks like one"
		}
		refused.Rows = append(refused.Rows, []pageCell{{Text: c.Client}, number(c.Refused + c.Blocked),
			number(c.Requests), textCell(c.Rule), {Text: person}, textCell(agentOf(&c.TopClient))})
	}
	add(pagePart{ID: "refused", Title: "Most refused clients", Tables: []pageTable{refused}})
	add(pagePart{ID: "unmeasured", Title: "Not measured", Before: t.lines(0, (*printer).unmeasured)})
	return parts
}

// agentOf returns the bot and the user agent of a client.
func agentOf(t *TopClient) string {
	agent := cmp.Or(t.UserAgent, "(no user agent)")
	if bot := t.bot(); bot != "" {
		return bot + ", " + agent
	}
	return agent
}
