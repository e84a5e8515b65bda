package main

import (
	"errors"
	"fmt"
	"net/netip"

	"fairshare/internal/check"
	"fairshare/internal/cli"
)

type botCmd struct {
	Policy    string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file whose bots and DNS server are used."`
	Addr      string `placeholder:"ADDR" help:"The client's address: is it what it claims to be? The DNS may be asked."`
	State     string `placeholder:"DIR" help:"Folder of serve, with copies of published ranges; read if the policy has bots: {refresh}."`
	UserAgent string `arg:"" name:"user-agent" help:"The user agent; - reads one a line from standard input and writes its name, its category and itself, with tabs between."`

	addr netip.Addr
}

func (c *botCmd) Help() string {
	return "Prints which bot a client is, and why. Names and categories are those of match: {bot: …}."
}

// Validate checks the arguments for kong.
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
		return fmt.Errorf("--addr: %q is not an address", c.Addr)
	}
	c.addr = addr.Unmap().WithZone("")
	return nil
}

func (c *botCmd) Run(env *cli.Environment) error {
	if c.UserAgent == "-" {
		return check.PrintBots(env, c.Policy)
	}
	return (&check.Bot{Policy: c.Policy, UserAgent: c.UserAgent, Addr: c.addr, State: c.State}).Print(env)
}
