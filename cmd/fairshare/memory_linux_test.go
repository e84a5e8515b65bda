package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"fairshare/internal/smalldisk"
)

// A full disk slows no request and stops no server, at the start as little as
// later; what was remembered is read, and what is new is written when there is
// room again.
func TestServeOnAFullDisk(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	disk, site := smalldisk.New(t, size), echo(t)
	state, filler := filepath.Join(disk, "state"), filepath.Join(disk, "filler")
	fill := func() {
		t.Helper()
		if err := os.WriteFile(filler, bytes.Repeat([]byte("full "), size), 0o600); err == nil {
			t.Fatal("the disk is not full")
		}
	}
	start := func() *running {
		return startServe(t, remembered, "--state", state, "--upstream", site.URL)
	}
	banned := func(s *running, client string) bool {
		resp := askFrom(t, "http://"+s.addr+"/guess", client)
		return resp.StatusCode == http.StatusTooManyRequests && seconds(t, resp) > 1800
	}
	guess := func(s *running, client string) {
		t.Helper()
		for range 3 {
			banned(s, client)
		}
		if !banned(s, client) {
			t.Errorf("%s is not banned", client)
		}
	}
	s := start()
	guess(s, "203.0.113.1")
	asOperator(t, state, "ban", "203.0.113.2")
	fill()
	for i := range 50 {
		guess(s, fmt.Sprintf("198.51.100.%d", i))
	}
	s.stderr.wait(`(registry is not written: .*no space left)`)
	s.stop()

	s = start()
	s.stderr.wait(`(no space left)`)
	if !banned(s, "203.0.113.1") {
		t.Error("on a full disk, a ban of before is not known")
	}
	if got := askFrom(t, "http://"+s.addr+"/", "203.0.113.2").StatusCode; got != 403 {
		t.Errorf("on a full disk, whom an operator banned before gets %d", got)
	}
	guess(s, "203.0.113.3")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.stderr.wait(`(registry is written again)`)
	s.stop()

	s = start()
	for _, client := range []string{"203.0.113.1", "203.0.113.3"} {
		if !banned(s, client) {
			t.Errorf("%s is forgotten", client)
		}
	}
}
