package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"fairshare/internal/console"
	"fairshare/internal/prose"
)

// A style is an escape sequence of a line.
type style string

const (
	normal  style = ""
	bold    style = "\x1b[1m"
	reverse style = "\x1b[7m"
	warning style = "\x1b[1;31m"
)

// A line is one line of the screen. Its text may have any bytes.
type line struct {
	style style
	text  string
}

// printed returns a line that is at most so wide, and does nothing to a terminal. All that is shown passes here:
// texts of clients have no other way.
func (l line) printed(width int) string {
	text := ansi.Truncate(prose.Printable(l.text), max(width, 1), "…")
	if l.style == normal || text == "" {
		return text
	}
	return string(l.style) + text + "\x1b[0m"
}

func (m model) View() tea.View {
	lines := m.lines()
	printed := make([]string, len(lines))
	for i, l := range lines {
		printed[i] = l.printed(m.width)
	}
	v := tea.NewView(strings.Join(printed, "\n"))
	v.AltScreen = true
	return v
}

// report returns what is printed where there is no terminal.
func (m model) report() (lines []string) {
	body := append(m.heading(), m.table(m.rows(), -1, 21)...)
	for _, l := range append(body, m.ruleLines(20)...) {
		l.style = normal
		lines = append(lines, strings.TrimRight(l.printed(1000), " "))
	}
	return lines
}

// lines returns the screen: at most as many lines as it has.
func (m model) lines() []line {
	if m.mode == helping {
		return fit(help, m.height)
	}
	top := m.heading()
	if m.height < 12 {
		top = top[:1]
	}
	var rules []line
	if m.height >= 18 {
		rules = m.ruleLines(5)
	}
	rows := m.rows()
	all := append(top, m.table(rows, m.position(rows), m.height-len(top)-len(rules)-2)...)
	all = append(fit(all, m.height-len(rules)-1), rules...)
	return append(fit(all, m.height-1), m.footer())
}

// fit cuts lines, or adds empty ones, so that there are n.
func fit(lines []line, n int) []line {
	n = max(n, 0)
	for len(lines) < n {
		lines = append(lines, line{})
	}
	return lines[:n]
}

// heading describes the server.
func (m model) heading() []line {
	now := &m.last.now
	mode := "enforcing"
	if now.Mode == "dry_run" {
		mode = "dry run: every request passes"
	}
	t := &now.Minute
	lines := []line{{bold, fmt.Sprintf("%s protects %s, %s", now.Address, now.Upstream, mode)},
		{normal, fmt.Sprintf("minute    %s passed (%s failed), %s refused, %s blocked, %s in dry run",
			prose.Number(t.Passed), prose.Number(t.Failed), prose.Number(t.Refused), prose.Number(t.Blocked),
			prose.Number(t.DryRun))}}
	upstream := "upstream  not shared: the policy has no share"
	if now.Shared {
		upstream = fmt.Sprintf("upstream  %d of %d at once, %d waiting, the longest %s", now.InProgress, now.Capacity,
			now.Waiting, prose.ShortDuration(time.Duration(now.Longest*float64(time.Second))))
	}
	lines = append(lines, line{normal, upstream + "; " + prose.Plural(now.Bans, "ban") + " of rules"})
	if now.Holder != "" {
		lines = append(lines, line{normal, "          " + now.Holder})
	}
	if now.Attack != "" {
		lines = append(lines, line{warning, "ATTACK    " + now.Attack})
	}
	return append(lines, line{})
}

// table lists the keys, with n lines at most. The row at the index at is marked.
func (m model) table(rows []console.TopRow, at, n int) []line {
	list := &m.last.list
	wide := m.width >= 60
	columns := " requests refused  "
	if wide {
		columns = " requests of all refused    time      size  "
	}
	title := fmt.Sprintf("%s, by %s, last %s", list.By, list.Sort, windows[m.question.window])
	if m.filter != "" {
		title += ", with " + m.filter
	}
	lines := []line{{bold, " " + columns + title}}
	visible := max(n-1, 0)
	first := max(min(at-visible/2, len(rows)-visible), 0)
	for i := first; i < min(first+visible, len(rows)); i++ {
		r := &rows[i]
		mark, st := " ", normal
		if i == at {
			mark, st = ">", reverse
		}
		count := prose.Number(r.Requests)
		if r.Error.Requests > 0 {
			count += "+"
		}
		text := fmt.Sprintf("%s%9s %7s  ", mark, count, prose.Number(r.Refused))
		if wide {
			text = fmt.Sprintf("%s%9s %6s %7s %7s %9s  ", mark, count, prose.Share(r.Share), prose.Number(r.Refused),
				prose.ShortDuration(time.Duration(r.Seconds*float64(time.Second))), prose.Size(r.Bytes))
		}
		lines = append(lines, line{st, text + strings.TrimSpace(r.Key+" "+r.Name)})
	}
	if len(rows) == 0 {
		lines = append(lines, line{normal, "  nothing in this time"})
	}
	return lines
}

// ruleLines lists the first rules that refused or blocked, or would have, with n lines at most after the title.
func (m model) ruleLines(n int) (lines []line) {
	for _, list := range [][]console.Rule{m.last.rules.Rules, m.last.rules.Others} {
		for i := range list {
			r := &list[i]
			if r.Refused+r.Blocked+r.WouldBe == 0 || len(lines) > n {
				continue
			}
			if len(lines) == 0 {
				lines = append(lines, line{}, line{bold, "  refused blocked dry run    bans  rule, since the start"})
			}
			lines = append(lines, line{normal, fmt.Sprintf("%9s %7s %7s %7s  %s", prose.Number(r.Refused),
				prose.Number(r.Blocked), prose.Number(r.WouldBe), prose.Number(r.Bans), r.Name)})
		}
	}
	return lines
}

// footer is the last line: what is typed, what happened, or the keys.
func (m model) footer() line {
	switch {
	case m.mode == filtering:
		return line{normal, "filter: " + m.filter + "_"}
	case m.mode == reasoning:
		return line{normal, fmt.Sprintf("ban %s, reason: %s_", m.target, m.reason)}
	case m.mode == confirming:
		return line{warning, fmt.Sprintf("ban %s for an hour (h), day (d) or week (w)? other keys: no", m.target)}
	case m.message != "":
		return line{warning, m.message}
	case m.err != nil:
		return line{warning, fmt.Sprintf("no answer since %s, asking again: %s",
			m.last.at.UTC().Format(time.TimeOnly+" MST"), errorText(m.err))}
	}
	return line{normal, "←→ what  s sort  w window  / filter  ↑↓ select  b ban  ? help  q quit"}
}

var help = []line{{bold, "fairshare top"}, {},
	{normal, "← →, Tab   clients, networks, owners, fleets, bots, user agents, paths"},
	{normal, "s          sort by requests, refused, dry run, bytes or time"},
	{normal, "w          the last 1m, 15m or 1h"},
	{normal, "/          show only names with a text; Esc shows all again"},
	{normal, "↑ ↓        select a line; also PgUp, PgDn and Home"},
	{normal, "b          ban the selected client, network or bot: asks for a reason,"},
	{normal, "           then for how long; needs the token or a client certificate"},
	{normal, "r          ask the server now; otherwise every 2 seconds"},
	{normal, "q, Ctrl-C  quit"}, {},
	{normal, "A + marks a number that may be a little greater."}, {},
	{normal, "Any key returns."}}
