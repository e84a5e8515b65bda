package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"
	_ "time/tzdata" // --timezone works on machines without a zone database

	"fairshare/internal/cli"
	"fairshare/internal/logreplay"
	"fairshare/internal/offheap"
)

// logFlags are the flags of the commands that replay logs.
type logFlags struct {
	Policy   string   `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy."`
	Format   string   `placeholder:"F" help:"Log format: a name as in combined (a wrong one lists them all), or an nginx log_format or Apache LogFormat string; without it, recognized from the lines."`
	Timezone string   `placeholder:"TZ" help:"Zone of times logged without one, as in Europe/Berlin or +02:00 (default UTC)."`
	Resolve  bool     `help:"Ask the DNS, as it answers now, for the host names and DNS lists that verify bots or that the policy uses."`
	Robots   string   `placeholder:"FILE|URL" help:"The site's robots.txt: for rules that look at it, and for a report of the bots that do not keep it."`
	State    string   `placeholder:"DIR" help:"Folder of serve: labels and operators' decisions are taken from its registry (bans by rules are not: a replay makes its own), and copies of lists are used."`
	Logs     []string `arg:"" name:"log" help:"Access logs, plain or packed with gzip or zstd; - is standard input."`

	zone *time.Location
}

// Validate checks the flags for kong.
func (c *logFlags) Validate() (err error) {
	if i := slices.Index(c.Logs, "-"); i >= 0 && slices.Contains(c.Logs[i+1:], "-") {
		return errors.New("standard input (-) can be read only once")
	}
	if c.Timezone != "" {
		c.zone, err = parseZone(c.Timezone)
	}
	return err
}

// options returns the options of a replay.
func (c *logFlags) options() logreplay.Options {
	return logreplay.Options{Policy: c.Policy, Logs: c.Logs, Format: c.Format, Zone: c.zone, Resolve: c.Resolve,
		State: c.State, Robots: c.Robots, Top: mostRows}
}

// mostRows is how many clients a report lists by default.
const mostRows = 10

type replayCmd struct {
	logFlags   `embed:""`
	JSON       bool   `name:"json" help:"Print the report as one JSON object."`
	Verdicts   string `placeholder:"FILE" help:"Write the verdict on each line to a tab-separated file."`
	HTML       string `name:"html" placeholder:"FILE" help:"Write the report as one HTML page, too, to read in a browser or to mail."`
	Top        int    `default:"10" placeholder:"N" help:"How many clients, networks, user agents and paths to list (default 10)."`
	Unmeasured bool   `help:"Say for each rule which facts the log does not contain."`
	Members    int    `placeholder:"N" help:"Estimate how many decisions would ask the store if so many servers counted together (2 to 100)."`
	Compare    bool   `help:"Compare two policies: the first two arguments are the old and the new policy file, the others are logs; default is the built-in policy."`
}

func (c *replayCmd) Help() string {
	return "Limits by time charge the upstream's own time if the log has it (nginx $upstream_response_time, HAProxy Tr, target_processing_time of AWS, " +
		"Traefik OriginDuration), otherwise the time of the whole request. Limits by cpu charge the CPU time of a logged Server-Timing header (nginx $upstream_http_server_timing, " +
		"Caddy's resp_headers). The report names what the log does not contain."
}

// Validate checks the flags for kong.
func (c *replayCmd) Validate() (err error) {
	if c.Top < 1 || c.Top > 1000 {
		return fmt.Errorf("--top: %d is not between 1 and 1000", c.Top)
	}
	if c.Verdicts == "-" {
		return errors.New("--verdicts: a file is needed, standard output carries the report")
	}
	switch {
	case c.Members != 0 && (c.Members < 2 || c.Members > logreplay.MaxMembers):
		return fmt.Errorf("--members: %d is not between 2 and %d", c.Members, logreplay.MaxMembers)
	case c.Members != 0 && c.Compare:
		return errors.New("--members needs a replay of one policy")
	case c.HTML == "-":
		return errors.New("--html: a file is needed, standard output carries the report")
	case c.HTML != "" && c.HTML == c.Verdicts:
		return errors.New("--html: this file is that of --verdicts")
	}
	if c.Compare {
		switch {
		case c.Policy != "":
			return errors.New("--compare: the policy files are the first two arguments, not -c")
		case c.Verdicts != "" || c.HTML != "":
			return errors.New("--compare: --verdicts and --html need a replay of one policy")
		case len(c.Logs) < 3:
			return errors.New("--compare: two policy files and at least one log are needed, as in --compare old.yaml new.yaml access.log")
		}
	}
	return c.logFlags.Validate()
}

// parseZone reads the name of a zone in the IANA database, or an offset.
func parseZone(s string) (*time.Location, error) {
	for _, layout := range []string{"-07:00", "-0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			_, offset := t.Zone()
			return time.FixedZone(s, offset), nil
		}
	}
	zone, err := time.LoadLocation(s)
	if err != nil {
		return nil,
			fmt.Errorf("--timezone: no zone is called %q: give a name as in Europe/Berlin, or an offset as in +02:00",
				s)
	}
	return zone, nil
}

func (c *replayCmd) Run(env *cli.Environment) error {
	defer tuneCollector()()
	opts := c.options()
	opts.JSON, opts.Verdicts, opts.Top, opts.Unmeasured = c.JSON, c.Verdicts, c.Top, c.Unmeasured
	opts.HTML, opts.Members = c.HTML, c.Members
	if c.Compare {
		opts.Policy, opts.Logs = c.Logs[1], c.Logs[2:]
		return logreplay.Compare(env, c.Logs[0], opts)
	}
	return logreplay.Run(env, opts)
}

// tuneCollector sets the garbage collector for replays, and returns a function that undoes it.
func tuneCollector() (undo func()) {
	if os.Getenv("GOGC") != "" || offheap.Available {
		return func() {}
	}
	// The counters are on the heap, they are large, and almost nothing else is
	// allocated: with the default of 100, garbage of their size could accumulate.
	before := debug.SetGCPercent(25)
	return func() { debug.SetGCPercent(before) }
}
