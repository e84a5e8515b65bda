package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type labelCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client."`
	Label  string `arg:"" name:"LABEL" help:"Any word, such as good-partner."`
}

func (c *labelCmd) Help() string {
	return "Rules match it: match: {label: good-partner}. The label of a prefix holds for all addresses within it. " +
		"The label of a bot holds where its addresses prove that it is the bot."
}

// Validate checks the label for kong.
func (c *labelCmd) Validate() (err error) {
	c.Label, err = operator.ParseLabel(c.Label)
	return err
}

func (c *labelCmd) Run(env *cli.Environment) error {
	return operator.Label(env, c.State, c.Client, c.Label)
}

type unlabelCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client."`
	Label  string `arg:"" optional:"" name:"LABEL" help:"The label; without it all labels of the client."`
}

// Validate checks the label for kong.
func (c *unlabelCmd) Validate() (err error) {
	if c.Label != "" {
		c.Label, err = operator.ParseLabel(c.Label)
	}
	return err
}

func (c *unlabelCmd) Run(env *cli.Environment) error {
	return operator.Unlabel(env, c.State, c.Client, c.Label)
}
