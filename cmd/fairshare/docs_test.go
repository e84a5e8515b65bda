package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"fairshare/clientaddr"
	"fairshare/internal/cli"
	"fairshare/internal/lookup/lookuptest"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// docs/bots.md shows what the program prints, and a policy without errors and
// warnings.
func TestBotsPageShowsTheProgramsOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/bots.md")
	if err != nil {
		t.Fatal(err)
	}
	policy := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if policy == nil {
		t.Fatal("the page shows no policy")
	}
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("site.yaml", policy[1])
	if err != nil || len(file.Warnings) > 0 {
		t.Fatalf("%v, warnings %v", err, file.Warnings)
	}

	const agent, addr = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "192.0.2.1"
	if !strings.Contains(string(page),
		fmt.Sprintf("    $ fairshare bot '%s' --addr %s\n    googlebot (search): forged\n", agent, addr)) {
		t.Fatal("the page does not say how to ask")
	}
	dns := lookuptest.Start(t) // on it nobody has a name
	site := writeFile(t, "site.yaml", fmt.Sprintf("dns: {server: %q}\nrules: []\n", dns.Addr()))
	var out bytes.Buffer
	if exit := run([]string{"bot", "-c", site, agent, "--addr", addr},
		&cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out}); exit != cli.ExitOK {
		t.Fatalf("exit %d:\n%s", exit, &out)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "  of ") && !strings.Contains(string(page), "\n    "+line) {
			t.Errorf("docs/bots.md does not show %q", line)
		}
	}
}

// docs/serve.md lists each name of --behind and what it sets.
func TestServePageListsThePresetsOfBehind(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	own := ""
	for _, name := range clientaddr.BehindNames() {
		preset, err := clientaddr.Behind(name)
		if err != nil {
			t.Fatal(err)
		}
		trusted := strings.Join(preset.Config.TrustedProxies, ", ")
		switch {
		case own == "":
			own = trusted
		case trusted == own:
			trusted = "the same"
		}
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, " | ")
			if strings.HasPrefix(line, "| `"+name+"`") && len(cells) == 4 && cells[1] == trusted &&
				cells[2] == fmt.Sprintf("`%s`", preset.Config.Header) {
				trusted = ""
			}
		}
		if trusted != "" {
			t.Errorf("docs/serve.md has no row for %s, %s, %s", name, trusted, preset.Config.Header)
		}
	}
}
