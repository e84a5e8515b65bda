//go:build unix

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The attack mode begins and ends in a running server, survives a restart, and is in
// the messages. Meanwhile limits with when: busy hold.
func TestAttackModeInARunningServer(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	const policy = behindLoopback + `
rules:
  - {name: ceiling, limit: {requests: 1000, per: 1h}}
  - {name: searches, match: {path: /search}, limit: {requests: 1, per: 1h, when: busy}}
`
	start := func() *serving { return startProcess(t, policy, "--state", state, "--upstream", site.URL) }
	p := start()
	search := func(client string) int { return getFrom(t, "http://"+p.addr+"/search", client).StatusCode }
	for range 3 {
		if got := search("192.0.2.1"); got != http.StatusOK {
			t.Fatalf("while there is room: %d", got)
		}
	}

	runOperator(t, state, "label", "192.0.2.1", "reader") // others wait first
	runOperator(t, state, "attack", "--reason", "many searches", "on")
	line := p.read(t, `(fairshare: attack mode: .*)`)
	if !strings.Contains(line, "attack mode: on since ") ||
		!strings.Contains(line, "many searches; newcomers wait first") {
		t.Errorf("the log says %q", line)
	}
	labeled := func() bool { return getFrom(t, "http://"+p.addr+"/", "192.0.2.1").StatusCode == 200 }
	for deadline := time.Now().Add(30 * time.Second); !labeled(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a client with a label waits first")
		}
	}
	if first, second := search("192.0.2.1"), search("192.0.2.1"); first != 200 || second != 429 {
		t.Errorf("in the attack mode: %d and %d, want 200 and 429", first, second)
	}
	if got := search("192.0.2.2"); got != http.StatusServiceUnavailable {
		t.Errorf("a newcomer in the attack mode: %d, want 503", got)
	}

	p.terminate(t)
	p = start()
	p.read(t, `(fairshare: attack mode: on since .*many searches)`)
	if got := search("192.0.2.1"); got != 429 {
		t.Errorf("after a restart: %d, want 429", got)
	}
	runOperator(t, state, "attack", "off")
	p.read(t, `(fairshare: attack mode: off, by .*)`)
	if got := search("192.0.2.1"); got != 200 {
		t.Errorf("after attack off: %d, want 200", got)
	}

	// It ends by itself, without another command.
	runOperator(t, state, "attack", "--for", "1s", "on")
	p.read(t, `(fairshare: attack mode: on since .*)`)
	for deadline := time.Now().Add(30 * time.Second); search("192.0.2.1") != 200; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the attack mode does not end")
		}
	}
	p.terminate(t)
}
