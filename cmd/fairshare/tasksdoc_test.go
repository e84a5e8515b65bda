//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each policy of docs/tasks.md is correct and causes no warning, and the commands after it print what the page shows.
func TestTasksPageShowsTheProgramsOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and tests commands only")
	}
	for _, program := range []string{"bash", "curl", "jq"} {
		needProgram(t, program)
	}
	data, err := os.ReadFile("../../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(data), "http://127.0.0.1:3000", namedSite(t, "site"))
	page = regexp.MustCompile(`\b8080\b`).ReplaceAllString(page, freePort(t))
	folder, bin := t.TempDir(), t.TempDir()
	programLink(t, bin)
	sh := newShell(t, folder, "PATH="+bin+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+t.TempDir())
	file := filepath.Join(folder, "site.yaml")
	if policies, commands := sh.play(page, file); policies < 7 || commands < 17 {
		t.Errorf("the page has %d policies and %d commands only", policies, commands)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := sh.run("fairshare check site.yaml"); strings.Contains(out, "warning") ||
			!strings.Contains(out, "site.yaml: ok") {
			t.Errorf("%s\n%s", block[1], out)
		}
	}
}
