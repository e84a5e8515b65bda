package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/logreplay"
)

type suggestCmd struct {
	logFlags `embed:""`
}

func (c *suggestCmd) Help() string {
	return "The logs are replayed three times or so, so standard input is not possible. Each suggested rule was replayed: the comments " +
		"say what it would have refused. A rule that would have refused a client that may be a person, or a search engine, is not suggested."
}

func (c *suggestCmd) Run(env *cli.Environment) error {
	defer tuneCollector()()
	return logreplay.Suggest(env, c.options())
}
