package main

import (
	"fmt"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
	"fairshare/internal/prose"
)

type attackCmd struct {
	registryFlag
	For    period `placeholder:"TIME" help:"With on: how long, 1s to 7d (default 1h)."`
	Reason string `placeholder:"TEXT" help:"The reason, for operators; clients do not see it."`
	Mode   string `arg:"" optional:"" enum:"on,off,show" default:"show" name:"on|off" help:"Without it, print whether the mode is on."`
}

func (c *attackCmd) Help() string {
	return "While the mode is on, clients that nothing is known about see the waiting room before their first page, " +
		"and limits with when: busy hold. It ends by itself. A running server follows within a second."
}

// Validate checks the arguments for kong.
func (c *attackCmd) Validate() error {
	if c.For != 0 && c.Mode != "on" {
		return fmt.Errorf("--for belongs to attack on")
	}
	if c.Reason != "" && c.Mode == "show" {
		return fmt.Errorf("--reason belongs to attack on and attack off")
	}
	if length := time.Duration(c.For); length > operator.LongestAttack {
		return fmt.Errorf("--for: %s is more than 7d", prose.ExactDuration(length))
	}
	return operator.CheckText("--reason", c.Reason)
}

func (c *attackCmd) Run(env *cli.Environment) error {
	switch c.Mode {
	case "on":
		return operator.AttackOn(env, c.State, time.Duration(c.For), c.Reason)
	case "off":
		return operator.AttackOff(env, c.State, c.Reason)
	}
	return operator.Attack(env, c.State)
}
