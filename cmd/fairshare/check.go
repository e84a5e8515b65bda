package main

import (
	"errors"
	"fmt"
	"time"

	"fairshare/internal/check"
	"fairshare/internal/cli"
)

type checkCmd struct {
	Files     []string `arg:"" optional:"" name:"file" help:"Policy files."`
	Policy    string   `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"A policy file, as with serve; the same as the argument."`
	Try       string   `placeholder:"'GET /x'" help:"Walk one request through: a method and a path."`
	Addr      string   `placeholder:"ADDR" help:"The client's address; 203.0.113.1 unless given."`
	Through   string   `placeholder:"ADDR" help:"The peer that named --addr in a header and that no policy names: the client is provisional."`
	UserAgent string   `placeholder:"TEXT" help:"Its user agent."`
	Cookie    string   `placeholder:"'a=1; b=2'" help:"Its cookies, or the name of one."`
	Host      string   `placeholder:"NAME" help:"The host it asks for."`
	Header    []string `sep:"none" placeholder:"'NAME: VALUE'" help:"Another header, any number of times."`
	Form      []string `sep:"none" placeholder:"NAME=VALUE" help:"A field of the form that it sends, any number of times; unknown for a body whose fields cannot be read."`
	Attempt   []string `placeholder:"WORD" help:"What it tries: login, comment or credentials, and excess or known; by its path unless given."`
	Browser   string   `placeholder:"WORD" help:"What shows that it is a browser: likely, claimed or contradicted; by its headers unless given."`
	Label     []string `sep:"none" placeholder:"NAME" help:"A label that the registry has for it, any number of times."`
	Robots    string   `placeholder:"FILE|URL" help:"The site's robots.txt; says what was read from it, and --try judges by it."`
	Connect   bool     `help:"Connect to the store of the policy: measure its round trip, run its scripts, print the rights that are enough."`
	Busy      bool     `help:"The upstream is busy: limits with when: busy hold."`
	All       bool     `help:"Show also the rules that do not match."`
	Times     int      `default:"1" placeholder:"N" help:"Play the request so many times, and say where the verdict changes."`
	Every     interval `placeholder:"TIME" help:"The time between one request and the next with --times, such as 1s; no real time passes."`
}

func (c *checkCmd) Help() string {
	return "Prints each rule as a sentence, then warnings, and runs the tests of the policy. Exits with 1 after it has " +
		"printed all errors and failed tests."
}

// request returns the request that --try and the flags next to it describe.
func (c *checkCmd) request() *check.Request {
	return &check.Request{Target: c.Try, Addr: c.Addr, Through: c.Through, UserAgent: c.UserAgent, Cookie: c.Cookie,
		Host: c.Host, Header: c.Header, Form: c.Form, Labels: c.Label, Attempts: c.Attempt, Browser: c.Browser}
}

// Validate checks the flags for kong.
func (c *checkCmd) Validate() error {
	if c.Policy != "" {
		c.Files = append([]string{c.Policy}, c.Files...)
		c.Policy = ""
	}
	if len(c.Files) == 0 {
		return errors.New(`expected "<file> ..."`)
	}
	if c.Try == "" {
		if c.Addr != "" || c.Through != "" || c.UserAgent != "" || c.Cookie != "" || c.Host != "" ||
			len(c.Header) > 0 || len(c.Form) > 0 || len(c.Attempt) > 0 || len(c.Label) > 0 || c.Browser != "" ||
			c.Busy || c.All || c.Times != 1 || c.Every != 0 {
			return errors.New("--addr, --through, --user-agent, --cookie, --host, --header, --form, --attempt, --browser, " +
				"--label, --busy, --all, --times and --every belong to --try")
		}
		return nil
	}
	if err := check.CheckTimes(c.Times, time.Duration(c.Every)); err != nil {
		return err
	}
	_, err := c.request().Parse()
	return err
}

func (c *checkCmd) Run(env *cli.Environment) (err error) {
	for i, path := range c.Files {
		policy, wrong := check.Open(env.Context, path, env.Stderr)
		if wrong != nil {
			err = wrong
			continue
		}
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		policy.Describe(env.Stdout)
		if c.Robots != "" {
			if err := policy.ReadRobots(env.Context, env.Stdout, c.Robots); err != nil {
				return err
			}
		}
		failed, testErr := policy.RunTests(env.Context, env.Stdout, env.Stderr)
		switch {
		case testErr != nil:
			return testErr
		case failed:
			err = cli.ErrReported
		}
		if c.Connect {
			if err := policy.Connect(env.Context, env.Stdout); err != nil {
				return err
			}
		}
		if c.Try == "" {
			continue
		}
		fmt.Fprintln(env.Stdout)
		req, err := c.request().Parse()
		if err != nil {
			return err
		}
		options := check.WalkOptions{Target: c.request().RawTarget(), Busy: c.Busy, All: c.All, Times: c.Times,
			Every: time.Duration(c.Every)}
		if err := policy.Walk(env.Context, env.Stdout, req, options); err != nil {
			return err
		}
	}
	return err
}
