package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"fairshare/bots"
	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

type botCmd struct {
	Policy    string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file whose bots and DNS server are used."`
	Addr      string `placeholder:"ADDR" help:"The client's address: is it what it claims to be? The DNS may be asked."`
	State     string `placeholder:"DIR" help:"Folder of serve, with copies of published ranges; read if the policy has bots: {refresh}."`
	UserAgent string `arg:"" name:"user-agent" help:"The user agent; - reads one a line from standard input and writes its name, its category and itself, with tabs between."`

	addr netip.Addr
}

func (c *botCmd) Help() string {
	return "Tells what a client is taken for, and why. Names and categories are those that match: {bot: …} knows."
}

// Validate is asked by kong.
func (c *botCmd) Validate() error {
	if _, err := netip.ParseAddr(c.UserAgent); err == nil {
		return fmt.Errorf("%s is an address, and a user agent is needed: fairshare bot 'USER AGENT' --addr %[1]s",
			c.UserAgent)
	}
	if c.Addr == "" {
		return nil
	}
	if c.UserAgent == "-" {
		return errors.New("--addr belongs to one user agent, not to many from standard input")
	}
	addr, err := netip.ParseAddr(c.Addr)
	if err != nil {
		return fmt.Errorf("--addr: %q is no address", c.Addr)
	}
	c.addr = addr.Unmap().WithZone("")
	return nil
}

// explainWithin is how long the DNS is waited for.
const explainWithin = 5 * time.Second

func (c *botCmd) Run(env *cli.Environment) error {
	file := policyfile.BuiltIn()
	if c.Policy != "" {
		var err error
		if file, err = setup.ReadPolicy(c.Policy); err != nil {
			return setup.PrintFaults(env.Stderr, err)
		}
	}
	if c.UserAgent == "-" {
		table, err := setup.BotTable(file.Beside(file.Bots.Table))
		if err != nil {
			return err
		}
		told := make(chan error, 1)
		go func() { told <- tellBots(env.Stdout, env.Stdin, table) }()
		select {
		case err := <-told:
			return err
		case <-env.Context.Done(): // whoever writes may never end
			return cli.ErrReported
		}
	}
	identifier, err := setup.NewBotIdentifier(file, setup.BotOptions{UseDNS: c.addr.IsValid()})
	if err != nil {
		return setup.PrintFaults(env.Stderr, err)
	}
	defer identifier.Close(nil)
	if state, err := setup.StateFolder(c.State); err == nil {
		if err := identifier.LoadRanges(state, nil); err != nil {
			fmt.Fprintf(env.Stderr, "fairshare: %v\n", err)
		}
	}
	ctx, cancel := context.WithTimeout(env.Context, explainWithin)
	defer cancel()
	e := identifier.Verifier.Explain(ctx, c.addr, c.UserAgent)
	out := env.Stdout
	if e.Bot.Name == "" {
		fmt.Fprintln(out, "no bot")
	} else {
		fmt.Fprintf(out, "%s (%s): %s\n", e.Bot.Name, strings.Join(e.Bot.Categories, ", "), e.Bot.State)
	}
	for _, step := range e.Steps {
		fmt.Fprintf(out, "  %s\n", step)
	}
	if bot := identifier.Table.Bot(e.Bot.Name); bot != nil {
		if about := strings.Join(nonEmpty(bot.Operator, bot.URL), ", "); about != "" {
			fmt.Fprintf(out, "  of %s\n", about)
		}
	}
	return nil
}

func nonEmpty(texts ...string) (list []string) {
	for _, s := range texts {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// maxAgentLine is more than any user agent that a server takes. What a line
// has beyond is passed over.
const maxAgentLine = 64 << 10

// tellBots writes what each line of r, a user agent, is taken for.
func tellBots(w io.Writer, r io.Reader, table *bots.Table) error {
	in := bufio.NewReaderSize(r, maxAgentLine)
	out := bufio.NewWriter(w)
	for {
		line, err := in.ReadSlice('\n')
		userAgent := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err == nil || len(line) > 0 {
			name, category := "", ""
			if bot, _ := table.Recognise(userAgent); bot != nil {
				name, category = bot.Name, bot.Main()
			}
			fmt.Fprintf(out, "%s\t%s\t%s\n", name, category, userAgent) // out keeps its first error
		}
		if err != nil || in.Buffered() == 0 { // whoever writes the lines one by one waits for this
			if failed := out.Flush(); err != nil || failed != nil {
				return failed
			}
		}
	}
}
