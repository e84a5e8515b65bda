package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"fairshare/internal/prefixes"
	"fairshare/internal/proxy"
	"fairshare/policyfile"
)

type checkCmd struct {
	Files     []string `arg:"" name:"file" help:"Policy files."`
	Try       string   `placeholder:"'GET /x'" help:"Walk one request through: a method and a path."`
	Addr      string   `placeholder:"ADDR" help:"The client's address; 203.0.113.1 unless given."`
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
		if c.Addr != "" || c.UserAgent != "" || c.Cookie != "" || c.Host != "" || len(c.Header) > 0 || len(c.Label) > 0 {
			return errors.New("--addr, --user-agent, --cookie, --host, --header and --label belong to --try")
		}
		return nil
	}
	_, err := c.request()
	return err
}

func (c *checkCmd) Run(env *environment) error {
	failed := false
	for i, path := range c.Files {
		file, err := readPolicy(path, env.stderr)
		if err != nil {
			failed = true
			continue
		}
		lists, who, err := c.files(env, file)
		if err != nil {
			failed = true
			continue
		}
		if i > 0 {
			fmt.Fprintln(env.stdout)
		}
		describe(env.stdout, file, lists)
		if c.Try == "" {
			continue
		}
		fmt.Fprintln(env.stdout)
		if err := c.try(env, file, who); err != nil {
			return err
		}
	}
	if failed {
		return errSilent
	}
	return nil
}

// files reads what a policy names beside itself, and tells what is wrong with
// it. It asks nobody: lists from URLs are empty.
func (c *checkCmd) files(env *environment, file *policyfile.File) (*prefixes.Keeper, *who, error) {
	lists, err := openLists(env.ctx, file, listing{later: true})
	who, whoErr := newWho(file, false, nil, nil)
	for _, err := range []error{err, whoErr} {
		if err = tellFaults(env.stderr, err); err != nil && err != errSilent {
			tellError(env.stderr, err)
		}
	}
	return lists, who, cmp.Or(err, whoErr)
}

// tellFaults writes err if it is about places in a policy file.
func tellFaults(w io.Writer, err error) error {
	faults := policyfile.Faults(err)
	for _, fault := range faults {
		fmt.Fprint(w, fault.Text())
	}
	if len(faults) > 0 {
		return errSilent
	}
	return err
}

// describe says what a policy does, and what is probably wrong with it.
func describe(w io.Writer, file *policyfile.File, lists *prefixes.Keeper) {
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
	for i, s := range status(lists) { // as in the file
		switch source := file.Sources[i]; {
		case source.URL != "":
			fmt.Fprintf(w, "list %s: serve asks %s for it every %s.\n", s.Name, s.From, policyfile.FormatDuration(source.Every))
		case s.Prefixes == 0:
			fmt.Fprintf(w, "list %s: %s holds no address: nobody is on it.\n", s.Name, source.File)
		default:
			fmt.Fprintf(w, "list %s: %s in %s.\n", s.Name, prefixCount(s.Prefixes), source.File)
		}
	}
	for _, line := range file.Settings() {
		fmt.Fprintln(w, line)
	}
	if cookies := sharedCookies(file); cookies != "" {
		fmt.Fprintf(w, "sessions: requests of a bot without cookies share the session of %s.\n", cookies)
	}
	if g := file.Registry; g != (policyfile.Registry{}) {
		fmt.Fprintf(w, "registry: remembers %d clients and %d stories of refusals at most, for %s.\n", cmp.Or(g.Clients, policyfile.DefaultRegistryClients),
			cmp.Or(g.Stories, policyfile.DefaultRegistryStories), policyfile.FormatDuration(cmp.Or(g.Age, policyfile.DefaultRegistryAge)))
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
}

// loadPolicy reads a policy file, "" for the built-in policy. Faults, each
// with its line and a hint, and warnings are written to w; the error for
// faults is errSilent.
func loadPolicy(path string, w io.Writer) (*policyfile.File, error) {
	if path == "" {
		return policyfile.BuiltIn(), nil
	}
	file, err := readPolicy(path, w)
	if err != nil {
		return nil, err
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
	return file, nil
}

// readPolicy is loadPolicy without warnings.
func readPolicy(path string, w io.Writer) (*policyfile.File, error) {
	file, err := policyfile.Options{Bots: botNames, CostHeader: proxy.CheckCostHeader}.Load(path)
	if err == nil {
		return file, nil
	}
	faults := policyfile.Faults(err)
	for _, fault := range faults {
		fmt.Fprint(w, fault.Text())
	}
	if len(faults) == 0 {
		if errors.Is(err, fs.ErrNotExist) {
			err = &hintError{err, "fairshare policy > site.yaml writes the built-in policy, for you to change"}
		}
		tellError(w, err)
	}
	return nil, errSilent
}
