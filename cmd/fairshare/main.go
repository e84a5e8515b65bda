// Fairshare keeps any one visitor of a web server from taking more than its
// share.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fairshare/clientaddr"
	"fairshare/internal/cli"
)

// commands are the subcommands, each in a file of its own.
type commands struct {
	Serve   serveCmd   `cmd:"" help:"Protect a site as a reverse proxy."`
	Auth    authCmd    `cmd:"" help:"Judge requests for nginx, Caddy or Traefik, which pass them on."`
	Watch   watchCmd   `cmd:"" help:"Follow the access logs of another server, and ban by them."`
	Check   checkCmd   `cmd:"" help:"Check policy files; walk one request through."`
	Bot     botCmd     `cmd:"" help:"Print which bot a user agent belongs to, and whether the address proves it."`
	Policy  policyCmd  `cmd:"" help:"Print the built-in policy."`
	Replay  replayCmd  `cmd:"" help:"Run a policy over access logs and report what it would have done."`
	Suggest suggestCmd `cmd:"" help:"Write a policy with the rules that would have helped most with these access logs."`
	Status  statusCmd  `cmd:"" help:"Show what a running server does, on one screen."`
	Members membersCmd `cmd:"" help:"Show the servers that count together with a running server."`
	Top     topCmd     `cmd:"" help:"Show what a running server does, live in a terminal."`
	Explain explainCmd `cmd:"" help:"Walk a request through the rules of a running server, with what is counted now."`
	Reload  reloadCmd  `cmd:"" help:"Show what has changed in the policy file of a running server, ask, and load it."`
	Version versionCmd `cmd:"" help:"Print the version."`
	Help    helpCmd    `cmd:"" help:"Print what a command does."`
	Man     manCmd     `cmd:"" help:"Print the man page of a command."`

	Completion completionCmd `cmd:"" help:"Print the script that completes command lines in a shell."`

	Operators operatorCommands `embed:"" group:"Records of clients, and decisions of operators:"`

	ShowVersion kong.VersionFlag `name:"version" short:"v" help:"Print the version."`
	CapitalV    kong.VersionFlag `name:"print-version" short:"V" hidden:""`
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command; without one all are listed."`
}

func (c *helpCmd) Run(parsed *kong.Context) error {
	command, err := kong.Trace(parsed.Kong, c.Command)
	if err == nil {
		err = command.Error
	}
	if err != nil {
		return cli.WrongUsage(cli.Hint(err, "fairshare help lists the commands"))
	}
	return command.PrintUsage(false)
}

func main() { os.Exit(run(os.Args[1:], process())) }

// repeatedStop is how long a repetition of the same stop signal is ignored.
// timeout(1) and some supervisors signal a program and then its process group.
// The second signal would otherwise cut off the requests in progress.
const repeatedStop = 500 * time.Millisecond

// process returns the environment of this process. The first SIGINT or SIGTERM
// ends its context, the second closes StopNow, and a third kills the process.
func process() *cli.Environment {
	ctx, cancel := context.WithCancel(context.Background())
	stopNow := make(chan struct{})
	stops := make(chan os.Signal, 2)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM)
	go func() {
		first, at := <-stops, time.Now()
		cancel()
		for next := range stops {
			if next != first || time.Since(at) >= repeatedStop {
				break
			}
		}
		signal.Stop(stops)
		close(stopNow)
	}()
	return &cli.Environment{Context: ctx, StopNow: stopNow, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

// run executes the command line args and returns the exit code.
func run(args []string, env *cli.Environment) int {
	var cmds commands
	exit := -1
	parser, err := kong.New(&cmds,
		kong.Name("fairshare"),
		kong.Description("Keeps any one visitor from taking more than its share of a web server."),
		kong.Writers(env.Stdout, env.Stderr),
		kong.Vars{"version": cli.VersionText(), "behind": strings.Join(clientaddr.BehindNames(), ", ")},
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // a tag of the structs above is wrong
	}
	if len(args) == 0 {
		return printUsage(parser, env)
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 { // --help or --version, which has been printed
		return exit
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "fairshare: %s\nhint: %s\n", usageError(err), usageHint(parser, args, err))
		return cli.ExitUsage
	}
	if err = parsed.Run(env); err == nil {
		err = env.OutputErr
	}
	cli.PrintError(env.Stderr, err)
	return cli.ExitCode(err)
}

// printUsage writes the help to stderr, for a command line without a command.
func printUsage(parser *kong.Kong, env *cli.Environment) int {
	parser.Stdout = env.Stderr
	command, err := kong.Trace(parser, nil)
	if err == nil {
		err = command.PrintUsage(false)
	}
	cli.PrintError(env.Stderr, err)
	return cli.ExitUsage
}

// usageError returns the text of the error of a command line.
func usageError(err error) string {
	text := cli.OneLine(err)
	if flag, _, missing := strings.Cut(text, ": expected "); missing &&
		strings.HasSuffix(text, `but got "EOL" (<EOL>)`) {
		return flag + ": a value is needed"
	}
	return strings.Replace(text, "expected value value", "expected a value", 1)
}

// usageHint returns a hint for the error of a command line.
func usageHint(parser *kong.Kong, args []string, err error) string {
	odd := strings.HasPrefix(err.Error(), "unexpected argument")
	for _, command := range parser.Model.Children {
		switch help := "fairshare " + command.Name + " --help"; {
		case len(args) == 0 || args[0] != command.Name:
		case odd && command.Name == "serve":
			return "a policy file is given with -c: fairshare serve -c site.yaml"
		case odd && len(command.Positional) > 0:
			return "clients stand next to each other, and several words in quotes; " + help
		default:
			return help
		}
	}
	return "fairshare --help"
}
