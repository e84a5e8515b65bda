package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // --timezone works on machines without a zone database

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/accesslog"
	"fairshare/internal/amount"
	"fairshare/internal/cli"
	"fairshare/internal/operator"
	"fairshare/internal/registrar"
	"fairshare/internal/replay"
	"fairshare/internal/setup"
	"fairshare/memlimit"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

type replayCmd struct {
	Policy   string   `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy."`
	Format   string   `placeholder:"F" help:"Log format: a name as in combined (a wrong one lists them all), or an nginx log_format or Apache LogFormat string; without it, told by looking."`
	Timezone string   `placeholder:"TZ" help:"Zone of times logged without one, as in Europe/Berlin or +02:00 (default UTC)."`
	JSON     bool     `name:"json" help:"Print the report as one JSON object."`
	Verdicts string   `placeholder:"FILE" help:"Write what became of each line to a tab-separated file."`
	Top      int      `default:"10" placeholder:"N" help:"How many clients, networks and user agents to list (default 10)."`
	Resolve  bool     `help:"Ask the DNS about bots that only it can verify, and for what the policy asks of it: names and DNS lists as they are now."`
	State    string   `placeholder:"DIR" help:"Folder of serve: labels and what operators banned or allowed are played from its registry (bans by rules are not: a replay makes its own), copies of lists are used."`
	Logs     []string `arg:"" name:"log" help:"Access logs, plain or packed with gzip or zstd; - is standard input."`

	zone *time.Location
}

func (c *replayCmd) Help() string {
	return "Limits by time charge the upstream's own time where a log holds it (nginx $upstream_response_time, HAProxy Tr, target_processing_time of AWS, " +
		"Traefik OriginDuration), else the time of the whole request; limits by cpu what a logged Server-Timing tells (nginx $upstream_http_server_timing, " +
		"Caddy's resp_headers). What a log cannot tell is named in the report."
}

// Validate finds wrong usage; kong calls it.
func (c *replayCmd) Validate() error {
	if c.Top < 1 || c.Top > 1000 {
		return fmt.Errorf("--top: %d is not between 1 and 1000", c.Top)
	}
	if c.Verdicts == "-" {
		return errors.New("--verdicts: a file is needed, standard output carries the report")
	}
	stdin := 0
	for _, path := range c.Logs {
		if path == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return errors.New("standard input (-) can be read only once")
	}
	if c.Timezone != "" {
		zone, err := parseZone(c.Timezone)
		if err != nil {
			return err
		}
		c.zone = zone
	}
	return nil
}

// parseZone reads a zone's name in the IANA database, or an offset.
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
	if os.Getenv("GOGC") == "" {
		// Next to nothing is allocated for a line; the counters, which hold no
		// pointers, must not make the collector wait for as much garbage.
		defer debug.SetGCPercent(debug.SetGCPercent(25))
	}
	file, err := setup.LoadPolicy(c.Policy, env.Stderr)
	if err != nil {
		return err
	}
	say := func(line string) { fmt.Fprintf(env.Stderr, "fairshare: %s\n", line) }
	state, _ := setup.StateFolder(c.State) // without one, URLs are asked
	if _, err := setup.OpenLists(env.Context, file, setup.ListOptions{State: state, Log: say}); err != nil {
		return setup.PrintFaults(env.Stderr, err)
	}
	identifier, err := setup.NewBotIdentifier(file, setup.BotOptions{UseDNS: c.Resolve, Log: say})
	if err != nil {
		return setup.PrintFaults(env.Stderr, err)
	}
	defer identifier.Close(nil)
	if err := identifier.LoadRanges(state, say); err != nil {
		say(err.Error())
	}
	resolver, err := setup.NewResolver(file)
	if err != nil {
		return err
	}
	known, err := knownNetworks()
	if err != nil {
		return err
	}
	verdicts := &lazyFile{path: c.Verdicts}
	defer verdicts.Close()
	file.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true})
	opts := replay.Options{
		Policy:  &file.Policy,
		Limiter: limiterOf(file),
		Memory:  file.Memory,
		Client: func(peer netip.Addr, forwarded string) (netip.Addr, bool, netip.Addr) {
			res := clientaddr.Result{}
			if forwarded == "" {
				res = resolver.ResolveAddr(peer)
			} else {
				res = resolver.ResolveAddr(peer, forwarded)
			}
			return res.Addr, res.Proxy, res.Via
		},
		Logs:  c.Logs,
		Log:   accesslog.Options{Format: c.Format, Zone: c.zone, Metric: file.UpstreamCPU.Metric},
		Top:   c.Top,
		Known: known,
		Bot:   identifier.Verifier.Look,
		Share: file.Share != nil,

		Allowance: amount.Allowance,
	}
	warnings, err := c.playWords(env, &opts, say)
	if err != nil {
		return err
	}
	var asked, open atomic.Int64 // questions to the DNS; those without an answer
	if c.Resolve {
		opts.Lookups = identifier.DNS()
		opts.Resolve = func(ctx context.Context, addr netip.Addr, list string) {
			asked.Add(1)
			var answered bool
			if list == "" {
				_, answered = identifier.DNS().Wait(ctx, addr)
			} else {
				_, answered = identifier.DNS().WaitListed(ctx, list, addr)
			}
			if !answered {
				open.Add(1)
			}
		}
	}
	if c.Verdicts != "" {
		opts.Verdicts = verdicts
	}
	run, err := openReplay(env.Context, opts)
	if err != nil {
		return logError(err)
	}
	defer run.Close()
	if c.Verdicts != "" {
		if err := verdicts.create(c.Logs); err != nil {
			return err
		}
	}
	stop := showProgress(env.Stderr, run)
	report, err := run.Run(env.Context)
	stop()
	if err != nil {
		if env.Context.Err() != nil {
			p := run.Progress()
			return fmt.Errorf("stopped after %d lines%s: no report", p.Lines, ofBytes(p))
		}
		return logError(err)
	}
	if err := verdicts.Close(); err != nil {
		return err
	}
	if n, all := open.Load(), asked.Load(); n > 0 && n*10 >= all { // some names are always out of order
		w := replay.Warning{Text: fmt.Sprintf(
			"The DNS left %d of %d questions open: host names and lists that it did not tell were judged as absent.",
			n, all)}
		if n*2 > all {
			w.Hint = "dns: {server: ADDRESS} in the policy names another server"
		}
		report.Warnings = append(report.Warnings, w)
	}
	report.Warnings = append(report.Warnings, warnings...)
	if c.JSON {
		return report.WriteJSON(env.Stdout)
	}
	width, colour := cli.Terminal(env.Stdout)
	return report.WriteText(env.Stdout, replay.Style{Width: width, Colour: colour, Policy: c.Policy,
		NoUpstream: file.Upstream == ""})
}

// playWords has what operators have said played, if a folder was named and has
// a registry. It warns of labels that nobody has.
func (c *replayCmd) playWords(env *cli.Environment, opts *replay.Options, say func(string)) ([]replay.Warning, error) {
	if c.State == "" {
		return nil, nil
	}
	dir, err := setup.StateFolder(c.State)
	if err != nil {
		return nil, err
	}
	registry, err := sqlregistry.Open(env.Context, filepath.Join(dir, registryName),
		sqlregistry.Options{ReadOnly: true, MustExist: true, Log: say})
	if errors.Is(err, sqlregistry.ErrNotThere) {
		say(fmt.Sprintf("no registry in %s: no label and nothing that operators said is played", c.State))
		return nil, nil
	}
	if err != nil {
		return nil, c.registryError(err, dir)
	}
	defer registry.Close()
	said, labels, err := registry.Overrides(env.Context)
	if err != nil {
		return nil, c.registryError(err, dir)
	}
	opts.Override = registrar.NewOverrides(said, labels).Override
	return unknownLabels(opts.Policy, labels), nil
}

// registryError says what to do about a registry that cannot be read.
func (c *replayCmd) registryError(err error, dir string) error {
	err = operator.RegistryError(dir, err)
	var told *cli.HintError
	if errors.As(err, &told) {
		told.Hint += "; a replay without --state does without it"
	}
	return err
}

// unknownLabels warns of labels that rules look at and no client has.
func unknownLabels(policy *fairshare.Policy, labels []fairshare.Label) (warnings []replay.Warning) {
	known := map[string]bool{}
	for _, l := range labels {
		known[l.Name] = true
	}
	var look func(rule string, m *fairshare.Match)
	look = func(rule string, m *fairshare.Match) {
		for _, text := range m.Label {
			if name := strings.ToLower(text); !known[name] && !strings.HasPrefix(text, "re:") {
				known[name] = true // told
				warnings = append(warnings, replay.Warning{
					Text: fmt.Sprintf("No client has the label %s, which rule %q looks at.", name, rule),
					Hint: "fairshare label ADDR " + name + " gives it to one",
				})
			}
		}
		for i := range m.Not {
			look(rule, &m.Not[i])
		}
	}
	for i := range policy.Rules {
		r := &policy.Rules[i]
		look(r.Name, &r.Match)
		if r.Ban != nil && r.Ban.Unless != nil {
			look(r.Name, r.Ban.Unless)
		}
	}
	return warnings
}

// openReplay is replay.New that ends with ctx. The first lines of a pipe may
// be long in coming and a read of it cannot be stopped: it is left to the end
// of the process.
func openReplay(ctx context.Context, opts replay.Options) (*replay.Replay, error) {
	type opened struct {
		run *replay.Replay
		err error
	}
	done := make(chan opened, 1)
	go func() {
		run, err := replay.New(opts)
		done <- opened{run, err}
	}()
	select {
	case o := <-done:
		return o.run, o.err
	case <-ctx.Done():
		return nil, errors.New("stopped while waiting for the first lines")
	}
}

// limiterOf returns what makes the counters of a policy.
func limiterOf(file *policyfile.File) func([]fairshare.Limit) (fairshare.Limiter, error) {
	return func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		return memlimit.New(limits, memlimit.Options{Memory: file.Memory})
	}
}

// knownNetworks are those whose addresses are no clients.
func knownNetworks() ([]replay.Network, error) {
	var known []replay.Network
	for _, n := range []struct{ word, name string }{
		{"loopback", "this machine itself (loopback)"},
		{"private", "private addresses"},
		{"cloudflare", "Cloudflare"},
		{"fastly", "Fastly"},
		{"cloudfront", "CloudFront"},
	} {
		proxies, err := clientaddr.ParseProxies(n.word)
		if err != nil {
			return nil, err
		}
		known = append(known, replay.Network{Name: n.name, Trust: n.word, Addrs: fairshare.Prefixes(proxies.Prefixes)})
	}
	return known, nil
}

// logError adds what to do about a log that cannot be read.
func logError(err error) error {
	var format *accesslog.FormatError
	var path *fs.PathError
	switch {
	case errors.As(err, &format) && format.Format != "": // that of --format
		return cli.WrongUsage(cli.Hint(err, format.Hint))
	case errors.As(err, &format) && format.Hint != "":
		return cli.Hint(err, format.Hint)
	case errors.As(err, &path) && errors.Is(err, fs.ErrNotExist):
		return cli.Hint(err,
			"servers keep their logs in /var/log/nginx, /var/log/apache2 or /var/log/caddy; - reads standard input")

	case errors.As(err, &path) && isDirectory(path.Path):
		return cli.Hint(err, "name the logs in it, as in "+filepath.Join(path.Path, "access.log*"))
	case errors.As(err, &path) && errors.Is(err, fs.ErrPermission):
		return cli.Hint(err,
			"logs are often readable for root and the group adm only: run it with sudo, or copy the log")
	}
	return err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// A lazyFile is a file that is created only when all else is well.
type lazyFile struct {
	path string
	*os.File
}

// create makes the file. It must not be one of the logs.
func (f *lazyFile) create(logs []string) error {
	if there, err := os.Stat(f.path); err == nil {
		for _, path := range logs {
			if log, err := os.Stat(path); path != "-" && err == nil && os.SameFile(there, log) {
				return cli.WrongUsage(fmt.Errorf("--verdicts: %s is a log to be read: it would be overwritten", f.path))
			}
		}
	}
	file, err := os.Create(f.path)
	if err != nil {
		return cli.Hint(fmt.Errorf("--verdicts: %w", err),
			"name a file in "+filepath.Clean(filepath.Dir(f.path))+" that can be written, or another directory")
	}
	f.File = file
	return nil
}

func (f *lazyFile) Close() error {
	if f.File == nil {
		return nil
	}
	err := f.File.Close()
	f.File = nil
	return err
}

// showProgress writes how far a run is every quarter of a second, if w is a
// terminal. The function it returns ends that and clears the line.
func showProgress(w io.Writer, run *replay.Replay) (stop func()) {
	width, _ := cli.Terminal(w)
	if width == 0 {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for {
			select {
			case <-quit:
				fmt.Fprint(w, "\r\x1b[K")
				return
			case now := <-tick.C:
				p := run.Progress()
				rate := float64(p.Lines) / now.Sub(begin).Seconds()
				text := fmt.Sprintf("%d lines%s, %.2f million lines/s", p.Lines, ofBytes(p), rate/1e6)
				fmt.Fprintf(w, "\r\x1b[K%.*s", width-1, text)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// ofBytes tells how much of the logs was read, and how long the DNS is in
// answering.
func ofBytes(p replay.Progress) string {
	text := fmt.Sprintf(", %.1f MB", float64(p.Read)/1e6)
	if p.Size > 0 {
		text += fmt.Sprintf(" of %.1f MB (%d %%)", float64(p.Size)/1e6, p.Read*100/p.Size)
	}
	if p.Asked > 0 {
		text += fmt.Sprintf(", %d of %d questions to the DNS answered", p.Answered, p.Asked)
	}
	return strings.TrimSpace(text)
}
