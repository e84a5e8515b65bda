package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"fairshare/internal/cli"
	"fairshare/internal/manual"
	"fairshare/internal/prose"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

func (c *completionCmd) Help() string {
	return "bash: source <(fairshare completion bash). zsh: source <(fairshare completion zsh), after compinit. " +
		"fish: fairshare completion fish | source. Packages install the scripts."
}

func (c *completionCmd) Run(parsed *kong.Context, env *cli.Environment) error {
	_, err := env.Stdout.Write(manual.Completion(parsed.Model, c.Shell))
	return err
}

type manCmd struct {
	Command string `arg:"" optional:"" help:"The command; without it the page of the program."`
	Dir     string `placeholder:"DIR" help:"Write the pages of all commands into this folder."`
}

func (c *manCmd) Help() string {
	return "fairshare man ban | man -l - shows a page. Packages install all of them: man fairshare-ban."
}

func (c *manCmd) Run(parsed *kong.Context, env *cli.Environment) error {
	day := cli.CommitDay()
	if day == "" {
		day = env.Clock()().UTC().Format("2006-01-02")
	}
	pages := manual.Pages(parsed.Model, cli.Version(), day)
	if c.Dir != "" {
		for _, page := range pages {
			if err := os.WriteFile(filepath.Join(c.Dir, page.Name), page.Text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	name := "fairshare"
	if c.Command != "" {
		name += "-" + c.Command
	}
	var known []string
	for _, page := range pages {
		if page.Name == name+".1" {
			_, err := env.Stdout.Write(page.Text)
			return err
		}
		if len(page.Name) > len("fairshare-.1") {
			known = append(known, page.Name[len("fairshare-"):len(page.Name)-len(".1")])
		}
	}
	hint := prose.DidYouMean(c.Command, known)
	if hint == "" {
		hint = "fairshare help lists the commands"
	}
	return cli.WrongUsage(cli.Hint(fmt.Errorf("there is no command %q", c.Command), hint))
}
