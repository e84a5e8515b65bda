package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/top"
)

type topCmd struct {
	adminFlags
}

func (c *topCmd) Help() string {
	return "Asks a running server every 2 seconds: the heaviest clients, networks, owners, " +
		"fleets, bots, user agents and paths, what the rules did, and the load of the site. ? lists the keys; b bans " +
		"what is selected; at another address than the server's own socket, this needs a token or a client certificate. Without a terminal it prints once."
}

func (c *topCmd) Run(env *cli.Environment) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return top.Run(env, s)
}
