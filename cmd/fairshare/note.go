package main

import (
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type noteCmd struct {
	registryFlag
	Client string   `arg:"" name:"ADDR|PREFIX|BOT" help:"The client."`
	Text   []string `arg:"" name:"TEXT" help:"The note, for operators; an empty text removes it."`
}

func (c *noteCmd) Help() string {
	return "A client has one note; a new note replaces it. fairshare client shows it."
}

// Validate checks the text for kong.
func (c *noteCmd) Validate() error { return operator.CheckText("the note", c.text()) }

func (c *noteCmd) text() string { return strings.TrimSpace(strings.Join(c.Text, " ")) }

func (c *noteCmd) Run(env *cli.Environment) error {
	return operator.Note(env, c.State, c.Client, c.text())
}
