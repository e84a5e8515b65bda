// Package check shows what a policy does without a server: its rules as
// sentences, one request step by step, and the bot that a user agent belongs
// to. The commands check and bot print it. Start with [Open].
package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"fairshare/asn"
	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/policyfile"
	"fairshare/robots"
)

// A Policy is a policy file with the lists and bots that it names.
type Policy struct {
	File  *policyfile.File
	lists *setup.Lists
	bots  *setup.BotIdentifier

	owners *asn.Live
	robots *robots.File // nil until ReadRobots
}

// ReadRobots reads the site's robots.txt from a file or a URL for Walk, and describes
// it.
func (p *Policy) ReadRobots(ctx context.Context, w io.Writer, source string) (err error) {
	if p.robots, err = setup.ReadRobots(ctx, source, p.bots.Table); err != nil {
		return err
	}
	summary, _, _ := strings.Cut(p.robots.Summary(), ";")
	fmt.Fprintf(w, "robots.txt %s: %s.\n", source, summary)
	for _, g := range p.robots.Groups() {
		fmt.Fprintf(w, "  %s\n", groupText(g))
	}
	for _, n := range p.robots.Statements {
		fmt.Fprintf(w, "  line %d (about the use of pages): %s\n", n.Line, prose.Printable(n.Text))
	}
	for _, n := range p.robots.Faults {
		fmt.Fprintf(w, "  warning: line %d: %s\n", n.Line, prose.Printable(n.Text))
	}
	if p.File.NoRobots {
		fmt.Fprintln(w, "  The policy says robots: off: serve does not read it.")
		p.robots = nil
	}
	return nil
}

func groupText(g *robots.Group) string {
	text := "for " + prose.Printable(g.Token)
	if g.Token == "*" {
		text = "for all other crawlers (*)"
	}
	text += fmt.Sprintf(", line %d: %s", g.Line, prose.Plural(int64(g.Rules()), "rule"))
	if g.Delay > 0 {
		text += ", one request in " + policyfile.FormatDuration(g.Delay)
	}
	return text + "."
}

// Open reads a policy file and the files that it names. Nothing is fetched:
// lists from URLs are empty. Open writes all errors to stderr, and then returns
// [cli.ErrReported].
func Open(ctx context.Context, path string, stderr io.Writer) (*Policy, error) {
	file, err := setup.ReadPolicy(path)
	if err != nil {
		cli.PrintError(stderr, setup.PrintFaults(stderr, err))
		return nil, cli.ErrReported
	}
	lists, listErr := setup.OpenLists(ctx, file, setup.ListOptions{FetchLater: true})
	identifier, botErr := setup.NewBotIdentifier(file, setup.BotOptions{})
	owners, ownerErr := setup.OpenOwners(file, nil, nil)
	for _, err := range []error{listErr, botErr, ownerErr} {
		cli.PrintError(stderr, setup.PrintFaults(stderr, err))
	}
	if cmp.Or(listErr, botErr, ownerErr) != nil {
		return nil, cli.ErrReported
	}
	return &Policy{File: file, lists: lists, bots: identifier, owners: owners}, nil
}

// Describe writes what the policy does, one sentence for each rule and setting,
// and then warnings.
func (p *Policy) Describe(w io.Writer) {
	file := p.File
	fmt.Fprintf(w, "%s: ok\n", file.Name)
	rules := file.Policy.Rules
	for i := range rules {
		if rules[i].Site == "" {
			fmt.Fprintln(w, file.Sentence(&rules[i]))
		}
	}
	for i := range file.Sites {
		site := &file.Sites[i]
		fmt.Fprintln(w, site.Description())
		for j := range rules {
			if rules[j].Site == site.Name {
				fmt.Fprintln(w, "  "+file.Sentence(&rules[j]))
			}
		}
	}
	if file.Policy.SitesApart {
		fmt.Fprintln(w, "count_sites: apart: the rules without a site count the requests of each site apart.")
	}
	if len(file.Sites) > 0 && file.Hosts != nil {
		fmt.Fprintln(w, "sites: a request for any other host is answered 421.")
	}
	if len(rules) == 0 {
		fmt.Fprintln(w, "There are no rules: every request is let through.")
	}
	if file.Policy.DryRun {
		fmt.Fprintln(w, "The whole policy is in dry run: it decides and reports, and lets every request through.")
	}
	for i, s := range p.lists.Status() { // in the order of file.Sources
		switch source := file.Sources[i]; {
		case source.URL != "":
			fmt.Fprintf(w, "list %s: serve asks %s for it every %s.\n", s.Name, s.From,
				policyfile.FormatDuration(source.Every))
		case s.Prefixes == 0:
			fmt.Fprintf(w, "list %s: %s contains no address: no client is on it.\n", s.Name, source.File)
		default:
			fmt.Fprintf(w, "list %s: %s in %s.\n", s.Name, setup.PrefixCount(s.Prefixes), source.File)
		}
	}
	if p.owners != nil {
		fmt.Fprintf(w, "asn: %s of addresses in %s.\n", p.owners.Table(), strings.Join(file.ASN.Files, ", "))
	}
	for _, line := range file.Settings() {
		fmt.Fprintln(w, line)
	}
	if s := file.ServedShare(); s != nil && s.Default {
		fmt.Fprintf(w, "share: auto (the default of serve): while the upstream is busy, a request waits for its turn, "+
			"%s at most; share: none turns that off.\n", policyfile.FormatDuration(s.Wait))
	}
	if cookies := livepolicy.SharedCookies(file); cookies != "" {
		fmt.Fprintf(w, "sessions: requests of a bot without cookies share the session of %s.\n", cookies)
	}
	if g := file.Registry; g != (policyfile.Registry{}) {
		fmt.Fprintf(w, "registry: keeps at most %d clients and %d records of refusals, for %s.\n",
			cmp.Or(g.Clients, policyfile.DefaultRegistryClients),
			cmp.Or(g.Stories, policyfile.DefaultRegistryStories),
			policyfile.FormatDuration(cmp.Or(g.Age, policyfile.DefaultRegistryAge)))
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
	for _, warning := range setup.UnknownOwners(file, p.owners) {
		fmt.Fprintln(w, warning)
	}
}
