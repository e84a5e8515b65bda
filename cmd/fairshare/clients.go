package main

import (
	"fmt"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type clientsCmd struct {
	registryFlag
	Sort   string `enum:"client,requests,refused,blocked,dry-run,cpu,time,bytes,errors,last-seen" default:"requests" placeholder:"COLUMN" help:"The column to sort by, the most or latest first: client, requests, refused (then in dry run), blocked, dry-run, cpu, time, bytes, errors (answers 4xx) or last-seen (default requests)."`
	Bot    string `placeholder:"NAME" help:"Only clients that were recognized as this bot."`
	Label  string `placeholder:"LABEL" help:"Only clients with this label of their own."`
	Sticky bool   `help:"Only clients that operators have banned, allowed, labeled or written a note about."`
	By     string `enum:",network,owner,fleet,bot" default:"" placeholder:"GROUP" help:"Sums by network, owner, fleet or bot, in place of single clients."`
	Top    int    `default:"20" placeholder:"N" help:"How many at most, also with --json; 0 for all (default 20)."`
	JSON   bool   `name:"json" help:"Print one JSON object a line."`
}

// Validate checks the flags for kong.
func (c *clientsCmd) Validate() (err error) {
	if c.Top < 0 {
		return fmt.Errorf("--top: %d is below 0", c.Top)
	}
	c.Bot = strings.ToLower(c.Bot)
	if c.Label != "" {
		c.Label, err = operator.ParseLabel(c.Label)
	}
	return err
}

func (c *clientsCmd) Run(env *cli.Environment) error {
	return operator.Clients(env, c.State, operator.ClientsOptions{
		Sort: c.Sort, Bot: c.Bot, Label: c.Label, Sticky: c.Sticky, Top: c.Top, By: c.By, JSON: c.JSON})
}
