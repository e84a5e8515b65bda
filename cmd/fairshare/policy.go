package main

import (
	"fairshare/internal/cli"
	"fairshare/policyfile"
)

type policyCmd struct {
	Schema bool `help:"Print the JSON Schema of policy files instead, for editors."`
}

func (c *policyCmd) Help() string {
	return "It is what serve and replay use without a file, and what {use: default} stands for."
}

func (c *policyCmd) Run(env *cli.Environment) error {
	out := policyfile.BuiltInSource()
	if c.Schema {
		out = policyfile.Schema()
	}
	_, err := env.Stdout.Write(out)
	return err
}
