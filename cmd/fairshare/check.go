package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"fairshare/internal/cli"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

type checkCmd struct {
	Files     []string `arg:"" name:"file" help:"Policy files."`
	Try       string   `placeholder:"'GET /x'" help:"Walk one request through: a method and a path."`
	Addr      string   `placeholder:"ADDR" help:"The client's address; 203.0.113.1 unless given."`
	Through   string   `placeholder:"ADDR" help:"The peer that named --addr in a header and that no policy names: the client is provisional."`
	UserAgent string   `placeholder:"TEXT" help:"Its user agent."`
	Cookie    string   `placeholder:"'a=1; b=2'" help:"Its cookies, or the name of one."`
	Host      string   `placeholder:"NAME" help:"The host it asks for."`
	Header    []string `sep:"none" placeholder:"'NAME: VALUE'" help:"Another header, any number of times."`
	Label     []string `sep:"none" placeholder:"NAME" help:"A label that the registry has for it, any number of times."`
}

func (c *checkCmd) Help() string {
	return "Prints each rule as a sentence, then warnings. Exits with 1 after telling every fault."
}

// Validate is asked by kong.
func (c *checkCmd) Validate() error {
	if c.Try == "" {
		if c.Addr != "" || c.Through != "" || c.UserAgent != "" || c.Cookie != "" || c.Host != "" ||
			len(c.Header) > 0 || len(c.Label) > 0 {
			return errors.New("--addr, --through, --user-agent, --cookie, --host, --header and --label belong to --try")
		}
		return nil
	}
	_, err := c.request()
	return err
}

func (c *checkCmd) Run(env *cli.Environment) error {
	failed := false
	for i, path := range c.Files {
		file, err := setup.ReadPolicy(path)
		if err != nil {
			cli.PrintError(env.Stderr, setup.PrintFaults(env.Stderr, err))
			failed = true
			continue
		}
		lists, identifier, err := c.files(env, file)
		if err != nil {
			failed = true
			continue
		}
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		describe(env.Stdout, file, lists)
		if c.Try == "" {
			continue
		}
		fmt.Fprintln(env.Stdout)
		if err := c.try(env, file, identifier); err != nil {
			return err
		}
	}
	if failed {
		return cli.ErrReported
	}
	return nil
}

// files reads what a policy names beside itself, and tells what is wrong with
// it. It asks nobody: lists from URLs are empty.
func (c *checkCmd) files(env *cli.Environment, file *policyfile.File) (*setup.Lists, *setup.BotIdentifier, error) {
	lists, err := setup.OpenLists(env.Context, file, setup.ListOptions{FetchLater: true})
	identifier, identifierErr := setup.NewBotIdentifier(file, setup.BotOptions{})
	for _, err := range []error{err, identifierErr} {
		cli.PrintError(env.Stderr, setup.PrintFaults(env.Stderr, err))
	}
	return lists, identifier, cmp.Or(err, identifierErr)
}

// describe says what a policy does, and what is probably wrong with it.
func describe(w io.Writer, file *policyfile.File, lists *setup.Lists) {
	fmt.Fprintf(w, "%s: ok\n", file.Name)
	rules := file.Policy.Rules
	for i := range rules {
		fmt.Fprintln(w, file.Sentence(&rules[i]))
	}
	if len(rules) == 0 {
		fmt.Fprintln(w, "There are no rules: everything is let through.")
	}
	if file.Policy.DryRun {
		fmt.Fprintln(w, "The whole policy is dry: it decides and reports, and everything is let through.")
	}
	for i, s := range lists.Status() { // as in the file
		switch source := file.Sources[i]; {
		case source.URL != "":
			fmt.Fprintf(w, "list %s: serve asks %s for it every %s.\n", s.Name, s.From,
				policyfile.FormatDuration(source.Every))
		case s.Prefixes == 0:
			fmt.Fprintf(w, "list %s: %s holds no address: nobody is on it.\n", s.Name, source.File)
		default:
			fmt.Fprintf(w, "list %s: %s in %s.\n", s.Name, setup.PrefixCount(s.Prefixes), source.File)
		}
	}
	for _, line := range file.Settings() {
		fmt.Fprintln(w, line)
	}
	if cookies := livepolicy.SharedCookies(file); cookies != "" {
		fmt.Fprintf(w, "sessions: requests of a bot without cookies share the session of %s.\n", cookies)
	}
	if g := file.Registry; g != (policyfile.Registry{}) {
		fmt.Fprintf(w, "registry: remembers %d clients and %d stories of refusals at most, for %s.\n",
			cmp.Or(g.Clients, policyfile.DefaultRegistryClients),
			cmp.Or(g.Stories, policyfile.DefaultRegistryStories),
			policyfile.FormatDuration(cmp.Or(g.Age, policyfile.DefaultRegistryAge)))
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
}
