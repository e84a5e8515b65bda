// Package logreplay replays access logs with a policy file and prints the
// report: it gives internal/replay the lists, bots, DNS, counters and operators'
// decisions that the policy needs. Start with [Run].
package logreplay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"fairshare"
	"fairshare/asn"
	"fairshare/clientaddr"
	"fairshare/internal/accesslog"
	"fairshare/internal/amount"
	"fairshare/internal/cli"
	"fairshare/internal/replay"
	"fairshare/internal/setup"
	"fairshare/memlimit"
	"fairshare/policyfile"

	"github.com/gaissmai/bart"
)

// Options say what to replay and how to print the report. Logs and Top are
// needed.
type Options struct {
	Policy   string         // a policy file; "" for the built-in policy
	Logs     []string       // access logs; "-" is standard input
	Format   string         // of the logs; "" to find it out
	Zone     *time.Location // of times without a zone; nil means UTC
	JSON     bool           // print the report as one JSON object
	Verdicts string         // a file for the verdict on each line; "" for none
	HTML     string         // a file for the report as one HTML page; "" for none
	Top      int            // how many clients, networks and user agents to list
	Resolve  bool           // ask the DNS
	Robots   string         // a file or URL with the site's robots.txt; "" for none

	Members int // how many servers would count together, for an estimate of their questions; 0 for none

	Unmeasured bool // the text names each fact that rules test and the logs lack

	// State is the state folder of serve. "" means that copies of lists come from
	// the default folder, and that there are no labels and decisions.
	State string
}

// A session replays logs with one policy file, once or more often.
type session struct {
	Options
	env        *cli.Environment
	file       *policyfile.File
	identifier *setup.BotIdentifier
	owners     *asn.Live
	known      []replay.Network
	dns        questions
	// purpose returns the operator and the purpose of an AI bot.
	purpose func(name string) (operator, purpose string)
}

// open opens a policy file and what it names. Close the identifier in the end.
func open(env *cli.Environment, opts Options) (*session, error) {
	s := &session{Options: opts, env: env}
	var err error
	if s.file, err = setup.LoadPolicy(opts.Policy, env.Stderr); err != nil {
		return nil, err
	}
	if s.known, err = knownNetworks(); err != nil {
		return nil, err
	}
	if err := s.openFiles(); err != nil {
		return nil, err
	}
	s.purpose = s.identifier.AI
	return s, nil
}

// Run replays the logs and prints the report to env.Stdout.
func Run(env *cli.Environment, opts Options) error {
	s, err := open(env, opts)
	if err != nil {
		return err
	}
	defer s.identifier.Close(nil)
	options, warnings, err := s.options()
	if err != nil {
		return err
	}
	verdicts := &outputFile{flag: "--verdicts", path: opts.Verdicts}
	defer verdicts.Close()
	html := &outputFile{flag: "--html", path: opts.HTML}
	defer html.Close()
	if opts.Verdicts != "" {
		options.Verdicts = verdicts
	}
	var group *groupEstimate
	if opts.Members > 0 {
		group = newGroupEstimate(s.file.Store, opts.Members)
		options.Limiter = group.limiter(s.file)
	}
	report, err := s.replay(options, func() error {
		if opts.Verdicts != "" {
			if err := verdicts.create(opts.Logs); err != nil {
				return err
			}
		}
		if opts.HTML == "" {
			return nil
		}
		return html.create(opts.Logs)
	})
	if err != nil {
		return err
	}
	if err := verdicts.Close(); err != nil {
		return err
	}
	report.Warnings = append(report.Warnings, s.dns.warnings()...)
	report.Warnings = append(report.Warnings, warnings...)
	report.Advice, err = s.advise(report, report.Lines <= quickLines && s.canRepeat() == nil)
	switch {
	case err != nil && env.Context.Err() != nil:
		return err
	case err != nil: // the report is right without advice
		report.Warnings = append(report.Warnings, replay.Warning{Text: "no rules are suggested: " +
			cli.OneLine(err)})
	}
	if opts.HTML != "" {
		err := report.WriteHTML(html, s.style(0, false))
		if err = errors.Join(err, html.Close()); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if group != nil {
		report.Group = group.report()
	}
	if err := s.print(report); err != nil || group == nil || s.JSON {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "\nCounting together: %s.\n", group)
	return err
}

// style returns the style of a report as text.
func (s *session) style(width int, color bool) replay.Style {
	return replay.Style{Width: width, Colour: color, Policy: s.Policy, NoUpstream: s.file.Upstream == "",
		Unmeasured: s.Unmeasured}
}

// print writes a report to the standard output.
func (s *session) print(report *replay.Report) error {
	if s.JSON {
		return report.WriteJSON(s.env.Stdout)
	}
	width, color := cli.Terminal(s.env.Stdout)
	return report.WriteText(s.env.Stdout, s.style(width, color))
}

// replay replays the logs once. It calls opened, if that is not nil, when all logs are open.
func (s *session) replay(options replay.Options, opened func() error) (*replay.Report, error) {
	run, err := openLogs(s.env.Context, options)
	if err != nil {
		return nil, logError(err)
	}
	defer run.Close()
	if opened != nil {
		if err := opened(); err != nil {
			return nil, err
		}
	}
	stop := showProgress(s.env.Stderr, run)
	report, err := run.Run(s.env.Context)
	stop()
	if err != nil {
		if s.env.Context.Err() != nil {
			p := run.Progress()
			return nil, fmt.Errorf("stopped after %d lines%s: no report", p.Lines, progressText(p))
		}
		return nil, logError(err)
	}
	return report, nil
}

// canRepeat returns why the logs cannot be replayed more than once; nil if they can.
func (s *session) canRepeat() error {
	for _, path := range s.Logs {
		if info, err := os.Stat(path); path == "-" || err == nil && !info.Mode().IsRegular() {
			return cli.Hint(fmt.Errorf("%s: this log can be read only once", path),
				"write it to a file: the log is replayed several times")
		}
	}
	return nil
}

// log writes one line about the run.
func (s *session) log(line string) { fmt.Fprintf(s.env.Stderr, "fairshare: %s\n", line) }

// openFiles opens the lists and bots that the policy names.
func (s *session) openFiles() error {
	state, _ := setup.StateFolder(s.State) // without a folder, lists are fetched from their URLs
	_, err := setup.OpenLists(s.env.Context, s.file, setup.ListOptions{State: state, Log: s.log})
	if err != nil {
		return setup.PrintFaults(s.env.Stderr, err)
	}
	if s.owners, err = setup.OpenOwners(s.file, nil, nil); err != nil {
		return setup.PrintFaults(s.env.Stderr, err)
	}
	for _, warning := range setup.UnknownOwners(s.file, s.owners) {
		s.log(warning)
	}
	s.identifier, err = setup.NewBotIdentifier(s.file, setup.BotOptions{UseDNS: s.Resolve, Log: s.log})
	if err != nil {
		return setup.PrintFaults(s.env.Stderr, err)
	}
	if err := s.identifier.LoadRanges(state, s.log); err != nil {
		s.log(err.Error())
	}
	return nil
}

// options returns the options of a replay, with operators' decisions and without a file of
// verdicts.
func (s *session) options() (replay.Options, []replay.Warning, error) {
	options, err := s.replayOptions()
	if err != nil {
		return options, nil, err
	}
	warnings, err := s.useRegistry(&options)
	return options, warnings, err
}

// replayOptions returns the options of a replay, without operators' decisions.
func (s *session) replayOptions() (replay.Options, error) {
	file := s.file
	resolver, err := setup.NewResolver(file)
	if err != nil {
		return replay.Options{}, err
	}
	file.Provide(policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true, Fleets: true,
		Busy: true, Browsers: true, Robots: true, Attempts: true, Forms: true})
	options := replay.Options{
		Policy:    &file.Policy,
		Limiter:   newLimiter(file),
		Memory:    file.Memory,
		Client:    clientOf(resolver),
		Logs:      s.Logs,
		Log:       accesslog.Options{Format: s.Format, Zone: s.Zone, Metric: file.UpstreamCPU.Metric},
		Top:       s.Top,
		Known:     s.known,
		AI:        s.purpose,
		Bot:       s.identifier.Verifier.Look,
		Share:     file.Share != nil,
		Allowance: amount.Allowance,
	}
	for _, agent := range file.Bots.Agents {
		options.Signed = append(options.Signed, agent.Bot)
	}
	options.Attempts = file.UsesAttempts()
	options.Browsers = file.UsesBrowsers() || options.Attempts
	if s.Robots != "" {
		if options.Robots, err = setup.ReadRobots(s.env.Context, s.Robots, s.identifier.Table); err != nil {
			return replay.Options{}, err
		}
	}
	if s.owners != nil {
		options.Owner = s.owners.Owner
	}
	if s.Resolve {
		s.dns.resolver = s.identifier.DNS()
		options.Lookups, options.Resolve = s.dns.resolver, s.dns.resolve
	}
	return options, nil
}

// clientOf returns the function that finds the client behind a logged peer.
func clientOf(resolver *clientaddr.Resolver) func(netip.Addr, string) (netip.Addr, bool, netip.Addr) {
	return func(peer netip.Addr, forwarded string) (addr netip.Addr, proxy bool, via netip.Addr) {
		var found clientaddr.Result
		if forwarded == "" {
			found = resolver.ResolveAddr(peer)
		} else {
			found = resolver.ResolveAddr(peer, forwarded)
		}
		return found.Addr, found.Proxy, found.Via
	}
}

// newLimiter returns the function that makes the counters of a policy file.
func newLimiter(file *policyfile.File) func([]fairshare.Limit) (fairshare.Limiter, error) {
	return func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		return memlimit.New(limits, memlimit.Options{Memory: file.Memory})
	}
}

// knownNetworks returns networks whose addresses are not clients.
func knownNetworks() ([]replay.Network, error) {
	var known []replay.Network
	for _, n := range []struct{ trust, name string }{
		{"loopback", "this machine itself (loopback)"},
		{"private", "private addresses"},
		{"cloudflare", "Cloudflare"},
		{"fastly", "Fastly"},
		{"cloudfront", "CloudFront"},
	} {
		proxies, err := clientaddr.ParseProxies(n.trust)
		if err != nil {
			return nil, err
		}
		addrs := new(bart.Lite) // all clients are looked up
		for _, p := range proxies.Prefixes {
			addrs.Insert(p)
		}
		known = append(known, replay.Network{Name: n.name, Trust: n.trust, Addrs: addrs})
	}
	return known, nil
}

// openLogs is [replay.New] that ends with ctx. A read of a pipe cannot be
// stopped, and its first lines may come late: that read lasts until the process
// ends.
func openLogs(ctx context.Context, options replay.Options) (*replay.Replay, error) {
	type result struct {
		run *replay.Replay
		err error
	}
	opened := make(chan result, 1)
	go func() {
		run, err := replay.New(options)
		opened <- result{run, err}
	}()
	select {
	case r := <-opened:
		return r.run, r.err
	case <-ctx.Done():
		return nil, errors.New("stopped while waiting for the first lines")
	}
}

// showProgress writes the progress of a run every quarter of a second, if w is
// a terminal. The returned function ends that and clears the line.
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
		start := time.Now()
		for {
			select {
			case <-quit:
				fmt.Fprint(w, "\r\x1b[K")
				return
			case now := <-tick.C:
				p := run.Progress()
				rate := float64(p.Lines) / now.Sub(start).Seconds()
				text := fmt.Sprintf("%d lines%s, %.2f million lines/s", p.Lines, progressText(p), rate/1e6)
				fmt.Fprintf(w, "\r\x1b[K%.*s", width-1, text)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// progressText returns how much of the logs was read, and how many questions
// the DNS has answered.
func progressText(p replay.Progress) string {
	text := fmt.Sprintf(", %.1f MB", float64(p.Read)/1e6)
	if p.Size > 0 {
		text += fmt.Sprintf(" of %.1f MB (%d %%)", float64(p.Size)/1e6, p.Read*100/p.Size)
	}
	if p.Questions > 0 {
		text += fmt.Sprintf(", %d of %d questions to the DNS answered", p.Answers, p.Questions)
	}
	return text
}
