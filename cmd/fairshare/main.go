// Fairshare keeps any one visitor of a web server from taking more than its
// share.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fairshare/clientaddr"
)

// commands are the subcommands, each in a file of its own.
type commands struct {
	Serve   serveCmd   `cmd:"" help:"Stand in front of a site as a reverse proxy."`
	Check   checkCmd   `cmd:"" help:"Check policy files; walk one request through."`
	Bot     botCmd     `cmd:"" help:"Tell what bot a user agent is taken for, and whether that is true."`
	Policy  policyCmd  `cmd:"" help:"Print the built-in policy."`
	Replay  replayCmd  `cmd:"" help:"Run a policy over access logs and report what it would have done."`
	Version versionCmd `cmd:"" help:"Print the version."`
	Help    helpCmd    `cmd:"" help:"Print what a command does."`

	Operators operatorCommands `embed:"" group:"What is remembered, and what operators say:"`

	ShowVersion kong.VersionFlag `name:"version" short:"V" help:"Print the version."`
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command; none means the whole."`
}

func (c *helpCmd) Run(parsed *kong.Context) error {
	command, err := kong.Trace(parsed.Kong, c.Command)
	if err == nil {
		err = command.Error
	}
	if err != nil {
		return &hintError{err, "fairshare help lists the commands"}
	}
	return command.PrintUsage(false)
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // faults found, or failed
	exitUsage  = 2
)

// An environment is what a subcommand may touch of the process. Results go to
// stdout, everything else to stderr.
type environment struct {
	ctx    context.Context // ends with SIGINT and SIGTERM
	again  <-chan struct{} // closed by the second of them: stop at once
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	lost   error // the first of writing to stdout that a command did not return
}

// A hintError adds what to do about an error.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

// errSilent fails without a word: what there is to say has been said.
var errSilent = errors.New("")

func main() { os.Exit(run(os.Args[1:], process())) }

// oneStop is how long the same signal to stop counts once: timeout(1), and
// others who start a program, signal it and then its group.
const oneStop = 500 * time.Millisecond

// process returns the environment that is this process. A third SIGINT or
// SIGTERM kills it.
func process() *environment {
	ctx, cancel := context.WithCancel(context.Background())
	again := make(chan struct{})
	stops := make(chan os.Signal, 2)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM)
	go func() {
		first, at := <-stops, time.Now()
		cancel()
		for next := range stops {
			if next != first || time.Since(at) >= oneStop {
				break
			}
		}
		signal.Stop(stops)
		close(again)
	}()
	return &environment{ctx: ctx, again: again, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
}

// run is main without the process: it returns the exit code.
func run(args []string, env *environment) int {
	var cmds commands
	exit := -1
	parser, err := kong.New(&cmds,
		kong.Name("fairshare"),
		kong.Description("Keeps any one visitor from taking more than its share of a web server."),
		kong.Writers(env.stdout, env.stderr),
		kong.Vars{"version": versionText(), "behind": strings.Join(clientaddr.BehindNames(), ", ")},
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // the structs above are wrong
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help or --version was asked for and has been printed
		return exit
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "fairshare: %s\nhint: %s\n", usageError(err), usageHint(parser, args, err))
		return exitUsage
	}
	if err = parsed.Run(env); err == nil {
		err = env.lost
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSilent):
		return exitFailed
	}
	tellError(env.stderr, err)
	return exitFailed
}

// usageError tells what is wrong with a command line.
func usageError(err error) string {
	text := oneLine(err)
	if flag, _, missing := strings.Cut(text, ": expected "); missing && strings.HasSuffix(text, `but got "EOL" (<EOL>)`) {
		return flag + ": a value is needed"
	}
	return strings.Replace(text, "expected value value", "expected a value", 1)
}

// usageHint tells what may help with a command line.
func usageHint(parser *kong.Kong, args []string, err error) string {
	odd := strings.HasPrefix(err.Error(), "unexpected argument")
	for _, command := range parser.Model.Children {
		switch help := "fairshare " + command.Name + " --help"; {
		case len(args) == 0 || args[0] != command.Name:
		case odd && command.Name == "serve":
			return "a policy file is given with -c: fairshare serve -c site.yaml"
		case odd && len(command.Positional) > 0:
			return "one at a time, and several words in quotes; " + help
		default:
			return help
		}
	}
	return "fairshare --help"
}

// tellError writes an error, and what to do about it.
func tellError(w io.Writer, err error) {
	fmt.Fprintf(w, "fairshare: %s\n", oneLine(err))
	var hinted *hintError
	if errors.As(err, &hinted) {
		fmt.Fprintf(w, "hint: %s\n", hinted.hint)
	}
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
