package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type clientCmd struct {
	registryFlag
	JSON   bool   `name:"json" help:"Print one JSON object."`
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client. ADDR@PEER is a client that only the peer names, such as 203.0.113.9@10.0.0.5."`
}

func (c *clientCmd) Help() string {
	return "Shows its requests and their cost, operators' decisions and labels, bans, and the records of refusals."
}

func (c *clientCmd) Run(env *cli.Environment) error {
	return operator.Client(env, c.State, c.Client, c.JSON)
}
