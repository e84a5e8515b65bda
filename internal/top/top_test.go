package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"fairshare/internal/cli"
	"fairshare/internal/console"
)

const hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\nevil"

// A site is a server with some rows. It is safe for concurrent use.
type site struct {
	mu      sync.Mutex
	err     error
	actions []console.Action
}

func (s *site) Get(_ context.Context, path string, q url.Values, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	var value any
	switch path {
	case "now":
		value = console.Now{Address: "http://127.0.0.1:8080", Upstream: "http://127.0.0.1:3000", Shared: true,
			Capacity: 4, InProgress: 3, Holder: hostile, Attack: hostile}
	case "rules":
		value = console.Rules{Rules: []console.Rule{{Name: hostile, Refused: 7}, {Name: "idle"}}}
	case "top":
		list := console.TopList{By: q.Get("by"), Sort: q.Get("sort"), Rows: []console.TopRow{}}
		for i := range 50 {
			list.Rows = append(list.Rows, console.TopRow{Key: fmt.Sprintf("192.0.2.%d", i), Name: hostile, Share: 0.02,
				Sums: console.Sums{Requests: int64(1000 - i)}})
		}
		value = list
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (s *site) Act(_ context.Context, a console.Action) (*console.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions = append(s.actions, a)
	if a.Reason == "forbidden" {
		return nil, cli.Hint(errors.New("actions need a token"), "start serve with one")
	}
	return &console.Result{Lines: []string{"banned" + hostile}}, nil
}

var clock = func() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// open returns a model with its first answer.
func open(t *testing.T, s *site) model {
	t.Helper()
	m := newModel(t.Context(), s, clock)
	next, _ := m.Update(m.query())
	return next.(model)
}

// press presses keys, and runs the commands of the model at once. "word:x" types x.
func press(t *testing.T, m model, keys ...string) model {
	t.Helper()
	for _, key := range keys {
		var msgs []tea.Msg
		if text, ok := strings.CutPrefix(key, "word:"); ok {
			for _, r := range text {
				msgs = append(msgs, tea.KeyPressMsg{Code: r, Text: string(r)})
			}
		} else if code, ok := map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft,
			"right": tea.KeyRight, "enter": tea.KeyEnter, "esc": tea.KeyEscape,
			"backspace": tea.KeyBackspace}[key]; ok {
			msgs = append(msgs, tea.KeyPressMsg{Code: code})
		} else {
			msgs = append(msgs, tea.KeyPressMsg{Code: rune(key[0]), Text: key})
		}
		for _, msg := range msgs {
			next, cmd := m.Update(msg)
			for m = next.(model); cmd != nil; m = next.(model) {
				result := cmd()
				if next, cmd = m.Update(result); fmt.Sprintf("%T", result) == "top.answer" {
					cmd = nil // it would wait
				}
			}
		}
	}
	return m
}

func text(m model) string { return ansi.Strip(m.View().Content) }

func TestKeysOfTheList(t *testing.T) {
	for _, c := range []struct {
		keys       []string
		want, miss string
	}{
		{nil, ">    1,000", "idle"},
		{nil, "client, by requests, last 1m", ""},
		{[]string{"right"}, "network, by requests", ""},
		{[]string{"left"}, "path, by requests", ""},
		{[]string{"s", "w"}, "client, by refused, last 15m", ""},
		{[]string{"w", "w", "w"}, "last 1m", ""},
		{[]string{"down", "down", "up"}, ">      999", ""},
		{[]string{"up"}, ">    1,000", ""},
		{[]string{"/", "word:2.49", "enter"}, "192.0.2.49", "192.0.2.48"},
		{[]string{"/", "word:2.49", "esc"}, "192.0.2.0", "with"},
		{[]string{"/", "word:q", "backspace", "word:none"}, "filter: none_", "192.0.2"},
		{[]string{"?"}, "Any key returns.", "192.0.2"},
		{[]string{"?", "q"}, "192.0.2.0", "Any key"},
		{[]string{"down", "b"}, "ban 192.0.2.1, reason: _", ""},
		{[]string{"left", "b"}, "only clients, networks and bots", ""},
		{[]string{"b", "enter"}, "reason: _", ""},
		{[]string{"b", "word:x", "enter"}, "for an hour (h)", ""},
		{[]string{"b", "word:x", "enter", "y"}, "not banned", ""},
		{[]string{"b", "word:x", "enter", "h"}, `banned\x1b]0;owned`, ""},
		{[]string{"b", "word:forbidden", "enter", "h"}, "actions need a token (start serve with one)", ""},
	} {
		got := text(press(t, open(t, new(site)), c.keys...))
		if !strings.Contains(got, c.want) || c.miss != "" && strings.Contains(got, c.miss) {
			t.Errorf("%v: want %q, not %q:\n%s", c.keys, c.want, c.miss, got)
		}
	}
}

// A ban is about the client that was selected when it began, after a confirmation, and of a pasted text only the
// reason is used.
func TestBanIsConfirmed(t *testing.T) {
	s := new(site)
	m := press(t, open(t, s), "down", "down", "b")
	next, _ := m.Update(tea.PasteMsg{Content: "too\nmany\rh"})
	m = press(t, next.(model), "enter")
	if len(s.actions) != 0 {
		t.Fatal("banned without a confirmation")
	}
	m.selected = ""
	press(t, m, "d")
	want := console.Action{Do: "ban", Client: "192.0.2.2", For: 86400, Reason: `too\nmany\rh`}
	if len(s.actions) != 1 || s.actions[0] != want {
		t.Errorf("%+v", s.actions)
	}
}

func TestServerGoesAwayAndComesBack(t *testing.T) {
	s := new(site)
	m := open(t, s)
	s.err = errors.New("connection refused" + hostile)
	m = press(t, m, "r")
	if got := text(m); !strings.Contains(got, "no answer since 12:00:00 UTC, asking again: connection refused") ||
		!strings.Contains(got, "192.0.2.0") {
		t.Errorf("away:\n%s", got)
	}
	s.err = nil
	if got := text(press(t, m, "r")); strings.Contains(got, "no answer") {
		t.Errorf("back:\n%s", got)
	}
	// An answer to an earlier question changes nothing, and leads to no second series of questions.
	late := answer{number: m.number - 1, err: errors.New("late")}
	if next, cmd := m.Update(late); cmd != nil || strings.Contains(text(next.(model)), "late") {
		t.Error("a late answer is used")
	}
	if _, cmd := m.Update(nextQuestion(m.number - 1)); cmd != nil {
		t.Error("two series of questions")
	}
}

// No text of a client, a policy or the server has an effect on the terminal, and every size has a screen.
func TestScreenFitsAndIsHarmless(t *testing.T) {
	for _, keys := range [][]string{nil, {"b", "word:x"}, {"b", "word:x", "enter", "h"}, {"?"}, {"/", "word:e"}} {
		m := press(t, open(t, new(site)), keys...)
		for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 12}, {20, 5}, {3, 2}, {1, 1}} {
			next, _ := m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			content := next.(model).View().Content
			lines := strings.Split(content, "\n")
			if len(lines) > size[1] {
				t.Errorf("%v %v: %d lines", keys, size, len(lines))
			}
			for _, l := range lines {
				if ansi.StringWidth(l) > size[0] {
					t.Errorf("%v %v: %d columns: %q", keys, size, ansi.StringWidth(l), l)
				}
			}
			for _, st := range []style{bold, reverse, warning, "\x1b[0m"} {
				content = strings.ReplaceAll(content, string(st), "")
			}
			if i := strings.IndexFunc(content, func(r rune) bool {
				return r != '\n' && (r < 0x20 || r >= 0x7F && r < 0xA0 || r == 0x202e)
			}); i >= 0 {
				t.Errorf("%v %v: %q", keys, size, content[i:])
			}
		}
	}
}

func TestWithoutATerminalItPrintsOnce(t *testing.T) {
	var out bytes.Buffer
	env := &cli.Environment{Context: t.Context(), Stdin: strings.NewReader(""), Stdout: &out}
	if err := Run(env, new(site)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\r") || !strings.Contains(got, "192.0.2.19") ||
		strings.Contains(got, ">") {
		t.Errorf("%s", got)
	}
	away := errors.New("away")
	if err := Run(&cli.Environment{Context: t.Context(), Stdout: &out}, &site{err: away}); !errors.Is(err, away) {
		t.Error(err)
	}
}

// In a terminal it draws, follows keys and a resize, and leaves the terminal as it was.
func TestInATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "1")
	for _, end := range []string{"q", "\x03", ""} { // "": the context ends, as with SIGTERM
		control, terminal, err := pty.Open()
		if err != nil {
			t.Skip("no pseudo terminal:", err)
		}
		if err := pty.Setsize(control, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
			t.Fatal(err)
		}
		seen := &screen{}
		go io.Copy(seen, control)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(&cli.Environment{Context: ctx, Stdin: terminal, Stdout: terminal, Stderr: terminal}, new(site))
		}()
		seen.wait(t, "192.0.2.3")
		io.WriteString(control, "?")
		seen.wait(t, "Any key returns.")
		io.WriteString(control, "x")
		if end == "" {
			cancel()
		} else {
			io.WriteString(control, end)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%q: %v", end, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q: it does not end", end)
		}
		seen.wait(t, "\x1b[?1049l")
		cancel()
		if got := seen.String(); strings.Contains(got, "owned\x07") || strings.Contains(got, "\x1b[1;31m") {
			t.Errorf("%q: %q", end, got)
		}
		terminal.Close()
		control.Close()
	}
}

// A screen is what a terminal was sent.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screen) wait(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for ; !strings.Contains(s.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q is missing in %q", want, s.String())
		}
	}
}
