package main

import "fairshare/policyfile"

type policyCmd struct{}

func (c *policyCmd) Help() string {
	return "It is what serve and replay use without a file, and what {use: default} stands for."
}

func (c *policyCmd) Run(env *environment) error {
	_, err := env.stdout.Write(policyfile.BuiltInSource())
	return err
}
