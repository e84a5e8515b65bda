package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/watch"
)

type watchCmd struct {
	Policy   string   `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy is used."`
	Format   string   `placeholder:"F" help:"Log format, as replay takes it; without it, recognized from the lines."`
	Timezone string   `placeholder:"TZ" help:"Zone of times logged without one, as in Europe/Berlin or +02:00 (default UTC)."`
	State    string   `placeholder:"DIR" help:"Folder for the registry, counters and positions in the logs; otherwise systemd's, or one in the home directory."`
	Registry string   `placeholder:"URL" help:"postgres://… shares clients, bans and decisions with other servers. With none, they are not stored, and operators' commands have no effect."`
	DryRun   bool     `help:"Only note bans: they are not in force and not exported."`
	Once     bool     `help:"Judge the lines that there are, and end. A log that is new to the state folder is read from its beginning, not from its end."`
	Logs     []string `arg:"" name:"log" help:"Access logs that grow, not packed; - is standard input."`

	zone *time.Location
}

func (c *watchCmd) Help() string {
	return "Follows logs also when they are rotated, by a new name or by truncation, and files that appear later. It refuses nothing itself: " +
		"the journal on stderr shows what the policy would have refused, and bans: {export: ...} in the policy hands bans to a firewall, " +
		"nginx, HAProxy or a program of yours. After a restart it continues where it stopped. " +
		"SIGHUP loads the policy again. From the journal of systemd: journalctl -f -n 0 -o cat -u nginx | fairshare watch -"
}

// Validate checks the flags for kong.
func (c *watchCmd) Validate() (err error) {
	if i := slices.Index(c.Logs, "-"); i >= 0 && slices.Contains(c.Logs[i+1:], "-") {
		return errors.New("standard input (-) can be read only once")
	}
	if c.Timezone != "" {
		c.zone, err = parseZone(c.Timezone)
	}
	return err
}

func (c *watchCmd) Run(env *cli.Environment) error {
	none, url, err := parseRegistry(c.Registry)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // it stays when the reader of stderr ends
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	return watch.Run(env.Context, watch.Options{
		Policy: c.Policy, Logs: c.Logs, Format: c.Format, Zone: c.zone, DryRun: c.DryRun, Once: c.Once,
		State: c.State, NoRegistry: none, RegistryURL: url,
		Now: env.Clock(), Stdin: env.Stdin, Stderr: env.Stderr, Reload: hangups,
	})
}
