package check

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

// dnsTimeout bounds the DNS lookups for one client.
const dnsTimeout = 5 * time.Second

// A Bot is one question: which bot is a client, and does its address prove it?
type Bot struct {
	Policy    string     // a policy file, whose bots and DNS server are used; "" for the built-in bots
	UserAgent string     // of the client
	Addr      netip.Addr // of the client; invalid: only the user agent is looked at
	State     string     // the state folder, with copies of published ranges; "" for the default
}

// Print writes the bot, the steps that led to it, and its operator to
// env.Stdout. If an address is given, the DNS may be asked.
func (b *Bot) Print(env *cli.Environment) error {
	file, err := readBotPolicy(b.Policy, env.Stderr)
	if err != nil {
		return err
	}
	identifier, err := setup.NewBotIdentifier(file, setup.BotOptions{UseDNS: b.Addr.IsValid()})
	if err != nil {
		return setup.PrintFaults(env.Stderr, err)
	}
	defer identifier.Close(nil)
	if state, err := setup.StateFolder(b.State); err == nil {
		if err := identifier.LoadRanges(state, nil); err != nil {
			fmt.Fprintf(env.Stderr, "fairshare: %v\n", err)
		}
	}
	ctx, cancel := context.WithTimeout(env.Context, dnsTimeout)
	defer cancel()
	found := identifier.Verifier.Explain(ctx, b.Addr, b.UserAgent)
	out := env.Stdout
	if found.Bot.Name == "" {
		fmt.Fprintln(out, "no bot")
	} else {
		fmt.Fprintf(out, "%s (%s): %s\n", found.Bot.Name, strings.Join(found.Bot.Categories, ", "), found.Bot.State)
	}
	for _, step := range found.Steps {
		fmt.Fprintf(out, "  %s\n", step)
	}
	if bot := identifier.Table.Bot(found.Bot.Name); bot != nil {
		if about := strings.Join(nonEmpty(bot.Operator, bot.URL), ", "); about != "" {
			fmt.Fprintf(out, "  of %s\n", about)
		}
	}
	return nil
}

// PrintBots writes a line for each user agent of env.Stdin: the name of the
// bot, its category and the user agent, with tabs between. The bots are those
// of a policy file; "" means the built-in ones.
func PrintBots(env *cli.Environment, policy string) error {
	file, err := readBotPolicy(policy, env.Stderr)
	if err != nil {
		return err
	}
	table, err := setup.BotTable(file.ResolvePath(file.Bots.Table))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- recognizeLines(env.Stdout, env.Stdin, table) }()
	select {
	case err := <-done:
		return err
	case <-env.Context.Done(): // the input may never end
		return cli.ErrReported
	}
}

// readBotPolicy reads a policy file without its lists, which say nothing about
// bots.
func readBotPolicy(path string, stderr io.Writer) (*policyfile.File, error) {
	file, err := setup.ReadPolicy(path)
	return file, setup.PrintFaults(stderr, err)
}

func nonEmpty(texts ...string) (list []string) {
	for _, s := range texts {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// maxAgentLine is more than any user agent that a server accepts, in bytes. The
// rest of a longer line is ignored.
const maxAgentLine = 64 << 10

// recognizeLines recognizes the user agent in each line of r. It writes the
// results to w as soon as all input so far has been read.
func recognizeLines(w io.Writer, r io.Reader, table *bots.Table) error {
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
		if err != nil || in.Buffered() == 0 { // a program that writes line by line waits for each answer
			if failed := out.Flush(); err != nil || failed != nil {
				return failed
			}
		}
	}
}
