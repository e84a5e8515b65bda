package main

import (
	"fmt"
	"strings"
	"time"

	"fairshare/internal/prose"
	"fairshare/policyfile"
)

// operatorCommands read and change the registry, whether a server runs or not.
type operatorCommands struct {
	Ban     banCmd     `cmd:"" help:"Ban an address, a prefix or a bot, for a time or permanently."`
	Unban   unbanCmd   `cmd:"" help:"End a ban by an operator or by a rule."`
	Allow   allowCmd   `cmd:"" help:"Exempt an address, a prefix or a bot from all rules."`
	Unallow unallowCmd `cmd:"" help:"Remove what allow has set."`
	Label   labelCmd   `cmd:"" help:"Label a client, for match: {label: …} in rules."`
	Unlabel unlabelCmd `cmd:"" help:"Remove a label."`
	Note    noteCmd    `cmd:"" help:"Write a note about a client."`
	Attack  attackCmd  `cmd:"" help:"Turn the attack mode on or off, or show it: newcomers wait first."`
	Bans    bansCmd    `cmd:"" help:"List the bans and what operators allow."`
	Clients clientsCmd `cmd:"" help:"List clients, their requests and what these cost."`
	Client  clientCmd  `cmd:"" help:"Show everything that is recorded about one client."`
	Why     whyCmd     `cmd:"" help:"Show why a client was refused, and how to let it in."`
	Reset   resetCmd   `cmd:"" help:"Have limits count from zero for clients, and end their bans by rules."`
	Forget  forgetCmd  `cmd:"" help:"Delete everything that is recorded about a client."`
}

// registryFlag is the flag that all commands for operators have.
type registryFlag struct {
	State string `placeholder:"DIR" help:"Folder in which serve keeps the registry."`
}

// A period is a duration on the command line, written as in a policy file. Zero
// means that there is no end.
type period time.Duration

// UnmarshalText reads a period for kong.
func (p *period) UnmarshalText(text []byte) error {
	if n := string(text); n != "" && strings.Trim(n, "0") == "" {
		return fmt.Errorf("%s is less than 1s; without --for the default of the command holds (see --help)", n)
	}
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	if d < time.Second {
		return fmt.Errorf("%s is not between 1s and 100 years", prose.ExactDuration(d))
	}
	*p = period(d)
	return nil
}

// An interval is a duration on the command line that may be shorter than a second, or zero.
type interval time.Duration

// UnmarshalText reads an interval for kong.
func (i *interval) UnmarshalText(text []byte) error {
	d, err := parseDuration(text)
	*i = interval(d)
	return err
}

// parseDuration reads a duration as a policy file writes it. The error has a hint.
func parseDuration(text []byte) (time.Duration, error) {
	d, err := policyfile.ParseDuration(string(text))
	if hinted, ok := err.(interface{ Hint() string }); ok && hinted.Hint() != "" {
		err = fmt.Errorf("%w: %s", err, hinted.Hint())
	}
	return d, err
}
