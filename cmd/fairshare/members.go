package main

import "fairshare/internal/cli"

type membersCmd struct {
	adminFlags
}

func (c *membersCmd) Help() string {
	return "Asks a running server whose policy has a store: the programs that count together with it, how the store " +
		"answers, how many decisions asked it, and what the server admits while the store is away."
}

func (c *membersCmd) Run(env *cli.Environment) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return s.Members(env)
}
