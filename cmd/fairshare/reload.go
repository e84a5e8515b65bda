package main

import (
	"errors"

	"fairshare/internal/cli"
	"fairshare/internal/remote"
)

type reloadCmd struct {
	adminFlags
	Yes    bool `short:"y" help:"Do not ask."`
	DryRun bool `help:"Only show what would change, with faults and warnings."`
}

func (c *reloadCmd) Help() string {
	return "Asks a running server: shows which rules and settings change, which " +
		"of them need a restart, what becomes of counters and bans, and all warnings. Then it asks, and reloads. A " +
		"policy with a fault changes nothing. At another address than the server's own socket, it needs a token or " +
		"a client certificate. SIGHUP reloads at once."
}

// Validate checks the flags for kong.
func (c *reloadCmd) Validate() error {
	if c.Yes && c.DryRun {
		return errors.New("--yes and --dry-run: use only one of them")
	}
	return nil
}

func (c *reloadCmd) Run(env *cli.Environment) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return s.Reload(env, remote.ReloadOptions{Yes: c.Yes, DryRun: c.DryRun})
}
