package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
)

// ReloadOptions say what Reload does after it has shown the changes.
type ReloadOptions struct {
	Yes    bool // it does not ask
	DryRun bool // it only shows
}

// Reload prints what a reload of the policy file would change, asks, and reloads.
func (s *Server) Reload(env *cli.Environment, o ReloadOptions) error {
	if !o.Yes && !o.DryRun && !isTerminal(env.Stdin) {
		return cli.WrongUsage(cli.Hint(errors.New("nobody can be asked: the standard input is not a terminal"),
			"--yes reloads without asking, --dry-run only shows what would change"))
	}
	changes := new(console.Reload)
	if err := s.Get(env.Context, "changes", nil, changes); err != nil {
		return err
	}
	if err := printChanges(env, changes); err != nil || o.DryRun {
		return err
	}
	if !o.Yes {
		fmt.Fprint(env.Stdout, "Load the policy? [y/N] ")
		yes, err := answer(env)
		switch {
		case err != nil:
			return err
		case !yes:
			fmt.Fprintln(env.Stderr, "fairshare: nothing has changed")
			return cli.ErrReported
		}
	}
	done := new(console.Reload)
	if err := s.post(env.Context, "reload", console.ReloadOrder{Plan: changes.Plan}, done); err != nil {
		return err
	}
	if !done.Applied {
		return printFaults(env, done)
	}
	env.Printf("%s is in force", prose.Printable(done.Policy))
	return nil
}

func printChanges(env *cli.Environment, c *console.Reload) error {
	if len(c.Faults) > 0 {
		return printFaults(env, c)
	}
	for _, warning := range c.Warnings {
		printText(env.Stderr, warning)
	}
	env.Printf("%s:", prose.Printable(c.Policy))
	for _, line := range c.Lines() {
		env.Printf("  %s", prose.Printable(line))
	}
	return nil
}

// printFaults prints why a policy cannot be put in force.
func printFaults(env *cli.Environment, c *console.Reload) error {
	for _, fault := range c.Faults {
		printText(env.Stderr, fault)
	}
	fmt.Fprintln(env.Stderr, "fairshare: nothing has changed; the old policy stays in force")
	return cli.ErrReported
}

// printText prints a text of several lines that may contain anything.
func printText(w io.Writer, text string) {
	fmt.Fprintln(w, prose.PrintableLines(strings.TrimRight(text, "\n")))
}

// isTerminal reports whether somebody can answer a question. Tests have other readers.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return true
	}
	width, _ := cli.Terminal(f)
	return width > 0
}

// answer reads whether a person says yes.
func answer(env *cli.Environment) (yes bool, err error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(env.Stdin).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		word := strings.ToLower(strings.TrimSpace(text))
		return word == "y" || word == "yes", nil
	case <-env.Context.Done():
		fmt.Fprintln(env.Stdout)
		return false, context.Cause(env.Context)
	}
}
