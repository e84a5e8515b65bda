//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"fairshare/internal/cli"
)

// What clients send and operators write cannot change a terminal, or the order of the letters on it: in no command
// that shows it, and not in the log.
func TestHostileTextsStayVisible(t *testing.T) {
	t.Parallel()
	const policy = `clients: {trusted_proxies: loopback}
rules:
  - {name: "evil \u202erule", match: {path: "/refuse*"}, limit: {requests: 1, per: 1h, by: addr}, ban: {after: 1, for: 1h}}
`
	state := filepath.Join(shortDir(t), "state")
	s := startServe(t, policy, "--upstream", echoSite(t).URL, "--state", state)
	s.stderr.wait(`(admin: unix:)`)
	const bidi = "\u202eevil\u2066\u200f\u061c\u2028\U000e0041\u0301\ufeff"
	for range 3 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /refuse%%1b%%5b2J%%9b%%0d%%0a%%e2%%80%%ae/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+
			"X-Forwarded-For: 203.0.113.9\r\nUser-Agent: agent \x9b2J\t%s\r\n\r\n", "%E2%80%AE", bidi)
		if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "HTTP/1.1 ") {
			t.Fatalf("%q, %v", answer, err)
		}
		conn.Close()
	}
	reference := s.stderr.wait(`"id":"([^"]+)"`)
	shown := func(hostile bool, args ...string) {
		t.Helper()
		exit, out, errs := runCommand(t, args...)
		if exit != cli.ExitOK {
			t.Errorf("%q: exit code %d: %s%s", args, exit, out, errs)
		}
		for _, text := range []string{out, errs} {
			if at := strings.IndexFunc(text, isInvisible); at >= 0 {
				t.Errorf("%q prints %q", args, text[at:min(at+40, len(text))])
			}
		}
		if hostile && !strings.Contains(out, `\u202e`) {
			t.Errorf("%q does not show the texts:\n%s", args, out)
		}
	}
	eventually(t, true, func() bool { // the server writes its registry
		exit, out, _ := runCommand(t, "clients", "--state", state)
		return exit == cli.ExitOK && strings.Contains(out, "203.0.113.9")
	})
	shown(false, "note", "203.0.113.9", "note "+bidi, "--state", state)
	shown(false, "ban", "203.0.113.10", "--reason", "reason "+bidi, "--state", state)
	if exit, _, errs := runCommand(t, "label", "203.0.113.9", bidi, "--state", state); exit != cli.ExitUsage ||
		strings.ContainsAny(errs, bidi[:3]) {
		t.Errorf("a label: exit code %d: %q", exit, errs)
	}
	for _, args := range [][]string{{"status"}, {"top"}, {"explain", "203.0.113.9", "--path", "/refuse"},
		{"why", reference}, {"why", "203.0.113.9"}, {"clients"}, {"client", "203.0.113.9"}, {"bans"},
		{"reload", "--dry-run"}, {"reload", "--yes"}} {
		shown(args[0] != "reload" && args[0] != "explain" && len(args) < 3, append(args, "--state", state)...)
	}
	if log := s.stderr.String(); strings.ContainsAny(log, "\x1b\r\u202e\u2066\u200f\u2028\u009b") {
		t.Errorf("the log has raw texts:\n%q", log)
	}
}

// isInvisible reports whether a character is none that a terminal shows: it may be an order, turn the direction, or
// be part of the character before it. Line feeds are allowed.
func isInvisible(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Mn))
}
