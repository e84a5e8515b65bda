// Package top shows what a running server does, live in a terminal. Start with [Run].
package top

import (
	"context"
	"net/url"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"fairshare/internal/cli"
	"fairshare/internal/console"
)

// A Server is a running server, such as a remote.Server. It is safe for concurrent use.
type Server interface {
	Get(ctx context.Context, path string, q url.Values, into any) error
	Act(ctx context.Context, action console.Action) (*console.Result, error)
}

// interval is the time between an answer of the server and the next question.
const interval = 2 * time.Second

// Run shows the server until the user ends it or the context of env ends. If standard input or output is not a
// terminal, it prints what it would show once. It is an error if the server does not answer at first; later it
// asks again.
func Run(env *cli.Environment, server Server) error {
	m := newModel(env.Context, server, env.Clock())
	first := m.query()
	if first.err != nil {
		return first.err
	}
	next, _ := m.Update(first)
	m = next.(model)
	width, _ := cli.Terminal(env.Stdout)
	in, fromFile := env.Stdin.(*os.File)
	inWidth := 0
	if fromFile {
		inWidth, _ = cli.Terminal(in)
	}
	if width == 0 || inWidth == 0 || os.Getenv("TERM") == "dumb" {
		for _, line := range m.report() {
			env.Printf("%s", line)
		}
		return nil
	}
	program := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(env.Stdout), tea.WithoutSignalHandler())
	defer context.AfterFunc(env.Context, program.Quit)()
	_, err := program.Run()
	return err
}
