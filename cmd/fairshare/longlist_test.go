package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// longList returns a list of n addresses, one a line.
func longList(n int, indent string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%s10.%d.%d.%d\n", indent, i>>16, i>>8&255, i&255)
	}
	return b.Bytes()
}

// For a list of three million lines, each command that reads a policy fails and
// prints how long a list may be.
func TestTooLongListIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and tests commands only")
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const rules = "rules: [{name: a, match: {addr: many}, block: true}]\n"
	list := longList(3_000_000, "")
	write("many.txt", list)
	access := write("access.log", []byte(`192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`+
		"\n"))
	for _, c := range []struct {
		name, policy, want string
	}{
		{"a file", write("file.yaml", []byte("lists: {many: {file: many.txt}}\n"+rules)),
			"file.yaml:1:22: list many: file " + filepath.Join(dir, "many.txt") +
				": it has more than 2,000,000 prefixes, the most that a list may have\n"},
		{"in the policy", write("inline.yaml", append(longList(3_000_000, "  - "), rules...)),
			"inline.yaml: larger than 4MiB\nhint: put long lists into files: lists: {NAME: {file: list.txt}}; each may have 2,000,000 prefixes\n"},
	} {
		for _, args := range [][]string{
			{"check", c.policy},
			{"replay", "-c", c.policy, access},
			{"serve", "-c", c.policy, "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--state",
				t.TempDir()},
		} {
			exit, out, errs := runCommand(t, args...)
			if exit != cli.ExitFailed || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("%s, %s: exit %d, stdout %q, stderr %q", c.name, args[0], exit, out, errs)
			}
		}
	}

	// A too long answer of a URL is not an error: the list is empty, and serve reports why.
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(list) }))
	defer site.Close()
	p := startServe(t, "lists: {many: {url: "+site.URL+"}}\n"+rules, "--upstream", site.URL)
	p.stderr.wait(
		`list many: http://127\.0\.0\.1:\d+: it has more than 2,000,000 prefixes, the most that a list may have`)
}
