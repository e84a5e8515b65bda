package main

import (
	"errors"
	"fmt"
	"net/netip"

	"fairshare/internal/check"
	"fairshare/internal/cli"
)

type botCmd struct {
	Policy    string  `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file whose bots and DNS server are used."`
	Addr      string  `placeholder:"ADDR" help:"The client's address: is it what it claims to be? The DNS may be asked."`
	State     string  `placeholder:"DIR" help:"Folder of serve, with copies of published ranges; read if the policy has bots: {refresh}."`
	List      bool    `help:"List the bots with their operators, purposes and proofs instead. The argument may be a name, category, operator or purpose."`
	JSON      bool    `name:"json" help:"With --list: print one JSON object a line."`
	UserAgent *string `arg:"" optional:"" name:"user-agent" help:"The user agent; - reads one a line from standard input and writes its name, its category and itself, with tabs between."`

	addr netip.Addr
}

func (c *botCmd) Help() string {
	return "Prints which bot a client is, and why. Names and categories are those of match: {bot: …}."
}

// Validate checks the arguments for kong.
func (c *botCmd) Validate() error {
	switch {
	case c.List && c.Addr != "":
		return errors.New("--addr belongs to one user agent, not to --list")
	case c.List:
		return nil
	case c.JSON:
		return errors.New("--json belongs to --list")
	case c.UserAgent == nil:
		return errors.New(`expected "<user-agent>", or --list`)
	}
	if _, err := netip.ParseAddr(*c.UserAgent); err == nil {
		return fmt.Errorf("%s is an address, and a user agent is needed: fairshare bot 'USER AGENT' --addr %[1]s",
			*c.UserAgent)
	}
	if c.Addr == "" {
		return nil
	}
	if *c.UserAgent == "-" {
		return errors.New("--addr belongs to one user agent, not to many from standard input")
	}
	addr, err := netip.ParseAddr(c.Addr)
	if err != nil {
		return fmt.Errorf("--addr: %q is not an address", c.Addr)
	}
	c.addr = addr.Unmap().WithZone("")
	return nil
}

func (c *botCmd) Run(env *cli.Environment) error {
	if c.List {
		of := ""
		if c.UserAgent != nil {
			of = *c.UserAgent
		}
		return (&check.BotList{Policy: c.Policy, Of: of, State: c.State, JSON: c.JSON}).Print(env)
	}
	if *c.UserAgent == "-" {
		return check.PrintBots(env, c.Policy)
	}
	return (&check.Bot{Policy: c.Policy, UserAgent: *c.UserAgent, Addr: c.addr, State: c.State}).Print(env)
}
