package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/serve"
)

type authCmd struct {
	Policy     string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy is used."`
	Listen     string `placeholder:"ADDR" help:"Address for the questions of the server, such as 127.0.0.1:9180 or unix:/run/fairshare/auth.sock; otherwise the policy file's, or 127.0.0.1:9180."`
	SettleFrom string `placeholder:"LOG" help:"Access log of the server, with the references of its requests: errors, bytes and time are counted from it."`
	State      string `placeholder:"DIR" help:"Folder for the registry, counters and copies of lists; otherwise systemd's, or one in the home directory."`
	Registry   string `placeholder:"URL" help:"postgres://… shares clients, bans and decisions with other servers. With none, they are not stored, and operators' commands have no effect."`
	listenerFlags
	DryRun bool `help:"Let every request pass, and report which would have been refused."`
}

func (c *authCmd) Help() string {
	return "nginx (auth_request), Caddy or Traefik asks before each request whether it may pass. " +
		"Only servers on this machine may ask, unless trusted_proxies in the policy names others. " +
		"docs/forward-auth.md has the configuration of each server. Signals and the journal are those of serve."
}

func (c *authCmd) Run(env *cli.Environment) error {
	return runServer(env, c.Registry, serve.Options{
		Flags: serve.Flags{Policy: c.Policy, Listen: c.Listen, DryRun: c.DryRun, Auth: true, SettleFrom: c.SettleFrom},
		State: c.State, Admin: c.options(),
	})
}
