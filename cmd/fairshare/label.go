package main

import (
	"errors"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type labelCmd struct {
	registryFlag
	Arguments []string `arg:"" name:"ADDR|PREFIX|BOT LABEL" help:"The client, and any word, such as good-partner. Several clients are possible before the word; - reads one a line from standard input."`
}

func (c *labelCmd) Help() string {
	return "Rules match it: match: {label: good-partner}. The label of a prefix holds for all addresses within it. " +
		"The label of a bot holds where its addresses prove that it is the bot."
}

// Validate checks the label for kong.
func (c *labelCmd) Validate() (err error) {
	last := len(c.Arguments) - 1
	if last < 1 {
		return errors.New(`expected "<ADDR|PREFIX|BOT> <LABEL>"`)
	}
	c.Arguments[last], err = operator.ParseLabel(c.Arguments[last])
	return err
}

func (c *labelCmd) Run(env *cli.Environment) error {
	last := len(c.Arguments) - 1
	return c.forEach(env, c.Arguments[:last], func(client string) error {
		return operator.Label(env, c.State, client, c.Arguments[last])
	})
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
