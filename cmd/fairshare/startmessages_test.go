package main

import (
	"fmt"
	"strings"
	"testing"
)

// Messages at the start name the size of each list and the shared sessions.
func TestStartMessagesNameListsAndSessions(t *testing.T) {
	s := startServe(t,
		fmt.Sprintf(
			"upstream: %s\nlists: {drop: {file: %q}, none: {file: %q}}\nsessions: {cookies: [JSESSIONID, PHPSESSID], bots: share}\nrules: [{use: default}]\n",
			echoSite(t).URL, writeFile(t, "drop.txt", "192.0.2.1\n198.51.100.0/24\n"), writeFile(t, "none.txt", "")))
	s.stop()
	for _, want := range []string{"fairshare: lists: drop 2 prefixes, none no prefix\n",
		"fairshare: sessions: bots share those of JSESSIONID, PHPSESSID\n"} {
		if output := s.stderr.String(); !strings.Contains(output, want) {
			t.Errorf("not written: %s\n%s", want, output)
		}
	}
}
