package top

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
)

var windows = []string{"1m", "15m", "1h"}

// A question is what the list shows.
type question struct{ by, sort, window int } // indexes of console.Dimensions, console.Sorts and windows

// An answer is what the server says to a question.
type answer struct {
	number int // of the question
	at     time.Time
	now    console.Now
	rules  console.Rules
	list   console.TopList
	err    error
}

// acted is the result of an action.
type acted struct {
	result *console.Result
	err    error
}

// nextQuestion is the time of the next question; its value is the number of the last one.
type nextQuestion int

// A mode says what the keys mean.
type mode int

const (
	listing mode = iota
	filtering
	reasoning  // the reason of a ban is typed
	confirming // a key bans
	helping
)

// A model is the state of the screen.
type model struct {
	ctx           context.Context
	server        Server
	clock         func() time.Time
	width, height int

	question question
	number   int    // of the latest question: other answers are late
	last     answer // the latest without an error
	err      error  // of the latest answer
	selected string // the key of the row, "" means the first

	mode    mode
	filter  string
	target  string // the client that is to be banned, whatever is selected meanwhile
	reason  string
	message string
}

func newModel(ctx context.Context, server Server, clock func() time.Time) model {
	return model{ctx: ctx, server: server, clock: clock, width: 80, height: 24}
}

func (m model) Init() tea.Cmd { return m.wait() }

// wait returns the command that asks again later.
func (m model) wait() tea.Cmd {
	return tea.Tick(interval, func(time.Time) tea.Msg { return nextQuestion(m.number) })
}

// query asks the server.
func (m model) query() (a answer) {
	a = answer{number: m.number, at: m.clock()}
	q := url.Values{"by": {console.Dimensions[m.question.by]}, "sort": {console.Sorts[m.question.sort]},
		"window": {windows[m.question.window]}}
	if a.err = m.server.Get(m.ctx, "now", nil, &a.now); a.err == nil {
		a.err = m.server.Get(m.ctx, "rules", nil, &a.rules)
	}
	if a.err == nil {
		a.err = m.server.Get(m.ctx, "top", q, &a.list)
	}
	return a
}

// askNow asks at once. The answer to the question before is no longer used.
func (m model) askNow() (tea.Model, tea.Cmd) {
	m.number++
	return m, func() tea.Msg { return m.query() }
}

func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case nextQuestion:
		if int(msg) == m.number {
			return m.askNow()
		}
	case answer:
		if msg.number != m.number {
			return m, nil
		}
		if m.err = msg.err; m.err == nil {
			m.last = msg
		}
		return m, m.wait()
	case acted:
		if msg.err != nil {
			m.message = errorText(msg.err)
		} else {
			m.message = strings.Join(msg.result.Lines, "; ")
		}
		return m.askNow()
	case tea.PasteMsg:
		m.typed(msg.Content)
	case tea.KeyPressMsg:
		return m.pressed(msg)
	}
	return m, nil
}

// typed adds a text to what is being typed.
func (m *model) typed(text string) {
	const longest = 200 // characters
	into := &m.reason
	switch m.mode {
	case filtering:
		into = &m.filter
	case reasoning:
	default:
		return
	}
	*into = prose.Cut(*into+prose.Printable(text), longest)
}

func (m model) pressed(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}
	switch m.mode {
	case helping:
		m.mode = listing
	case filtering, reasoning:
		m.edit(name, key.Text)
	case confirming:
		return m.confirmed(name)
	default:
		return m.command(name)
	}
	return m, nil
}

// edit changes the text that is being typed.
func (m *model) edit(name, text string) {
	into := &m.reason
	if m.mode == filtering {
		into = &m.filter
	}
	switch {
	case name == "esc":
		*into, m.mode = "", listing
	case name == "enter" && m.mode == filtering:
		m.mode = listing
	case name == "enter":
		if *into = strings.TrimSpace(*into); *into != "" {
			m.mode = confirming
		}
	case name == "backspace":
		if runes := []rune(*into); len(runes) > 0 {
			*into = string(runes[:len(runes)-1])
		}
	default:
		m.typed(text)
	}
}

// confirmed bans for the time that a key means, or does nothing.
func (m model) confirmed(name string) (tea.Model, tea.Cmd) {
	m.mode = listing
	length := map[string]time.Duration{"h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[name]
	if length == 0 {
		m.message = "not banned"
		return m, nil
	}
	m.message = "banning " + m.target + " …"
	action := console.Action{Do: "ban", Client: m.target, For: length.Seconds(), Reason: m.reason}
	return m, func() tea.Msg {
		result, err := m.server.Act(m.ctx, action)
		return acted{result, err}
	}
}

// command does what a key of the list means.
func (m model) command(name string) (tea.Model, tea.Cmd) {
	q := &m.question
	m.message = ""
	switch name {
	case "q":
		return m, tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-10)
	case "pgdown":
		m.move(10)
	case "home":
		m.selected = ""
	case "left", "right", "tab", "shift+tab":
		step := 1
		if name == "left" || name == "shift+tab" {
			step = len(console.Dimensions) - 1
		}
		q.by, m.selected = (q.by+step)%len(console.Dimensions), ""
		return m.askNow()
	case "s":
		q.sort = (q.sort + 1) % len(console.Sorts)
		return m.askNow()
	case "w":
		q.window = (q.window + 1) % len(windows)
		return m.askNow()
	case "r":
		return m.askNow()
	case "/":
		m.mode = filtering
	case "esc":
		m.filter = ""
	case "?", "h":
		m.mode = helping
	case "b":
		rows := m.rows()
		if by := m.last.list.By; by != "client" && by != "network" && by != "bot" {
			m.message = "only clients, networks and bots can be banned: choose them with ←→"
		} else if len(rows) > 0 {
			m.target, m.reason, m.mode = rows[m.position(rows)].Key, "", reasoning
		}
	}
	return m, nil
}

// rows returns the rows that the filter lets pass.
func (m *model) rows() (rows []console.TopRow) {
	filter := strings.ToLower(m.filter)
	for _, row := range m.last.list.Rows {
		if strings.Contains(strings.ToLower(prose.Printable(row.Key+" "+row.Name)), filter) {
			rows = append(rows, row)
		}
	}
	return rows
}

// position returns the index of the selected row, 0 if it is not listed.
func (m *model) position(rows []console.TopRow) int {
	return max(slices.IndexFunc(rows, func(r console.TopRow) bool { return rowID(&r) == m.selected }), 0)
}

// rowID identifies a row: a bot has one for each state.
func rowID(r *console.TopRow) string { return r.Key + "\x00" + r.Name }

func (m *model) move(by int) {
	if rows := m.rows(); len(rows) > 0 {
		m.selected = rowID(&rows[min(max(m.position(rows)+by, 0), len(rows)-1)])
	}
}

// errorText returns an error with its hint.
func errorText(err error) string {
	text := cli.OneLine(err)
	var hint *cli.HintError
	if errors.As(err, &hint) {
		text += fmt.Sprintf(" (%s)", hint.Hint)
	}
	return text
}
