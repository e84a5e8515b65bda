package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/setup"
	"fairshare/internal/smalldisk"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A full disk delays no request and stops no server, at the start or later. The
// registry is read, and new records are written when there is space again.
func TestServeOnAFullDisk(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	disk, site := smalldisk.New(t, size), echoSite(t)
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
		resp := getFrom(t, "http://"+s.addr+"/guess", client)
		return resp.StatusCode == http.StatusTooManyRequests && retrySeconds(t, resp) > 1800
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
	runOperator(t, state, "ban", "203.0.113.2")
	fill()
	for i := range 50 {
		guess(s, fmt.Sprintf("198.51.100.%d", i))
	}
	s.stderr.wait(`(registry cannot be written: .*no space left)`)
	s.stop()

	s = start()
	s.stderr.wait(`(no space left)`)
	if !banned(s, "203.0.113.1") {
		t.Error("on a full disk, a ban of before is not known")
	}
	if got := getFrom(t, "http://"+s.addr+"/", "203.0.113.2").StatusCode; got != 403 {
		t.Errorf("on a full disk, whom an operator banned before gets %d", got)
	}
	guess(s, "203.0.113.3")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.stderr.wait(`(registry can be written again)`)
	s.stop()

	s = start()
	for _, client := range []string{"203.0.113.1", "203.0.113.3"} {
		if !banned(s, client) {
			t.Errorf("%s is forgotten", client)
		}
	}
}

// On a disk that has become read-only after a fault, the registry is read and
// the site is served.
func TestServeOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk, site := smalldisk.New(t, 4<<20), echoSite(t)
	state := filepath.Join(disk, "state")
	s := startServe(t, remembered, "--state", state, "--upstream", site.URL)
	for range 4 {
		getFrom(t, "http://"+s.addr+"/two", "203.0.113.1")
		getFrom(t, "http://"+s.addr+"/guess", "203.0.113.2")
	}
	runOperator(t, state, "ban", "203.0.113.3")
	s.stop()
	if err := syscall.Mount("fairshare", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s = startServe(t, remembered, "--state", state, "--upstream", site.URL)
	for _, c := range []struct {
		path, client string
		want         int
	}{{"/two", "203.0.113.1", 429}, {"/guess", "203.0.113.2", 429}, {"/", "203.0.113.3", 403},
		{"/", "203.0.113.4", 200}} {
		if got := getFrom(t, "http://"+s.addr+c.path, c.client).StatusCode; got != c.want {
			t.Errorf("%s from %s: %d, want %d", c.path, c.client, got, c.want)
		}
	}
	s.stderr.wait(`(warning: state folder: .*read-only file system)`)
}

// A ban that began under a clock that was ahead is not longer than the rule
// says.
func TestBansBegunUnderAFastClockAreNotLonger(t *testing.T) {
	t.Parallel()
	state, site := filepath.Join(t.TempDir(), "state"), echoSite(t)
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := sqlregistry.Open(t.Context(), filepath.Join(state, setup.RegistryFile), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(30 * 24 * time.Hour)
	err = r.Write(t.Context(), registry.Batch{Bans: []fairshare.BanRecord{
		{Client: fairshare.PrefixID(netip.MustParsePrefix("203.0.113.1/32")), Rule: "guess", Kind: fairshare.ByAddr,
			Number: 1, Began: began, Until: began.Add(time.Hour), Since: began.Add(time.Hour)},
		{Client: fairshare.PrefixID(netip.MustParsePrefix("203.0.113.2/32")), Rule: "of another policy",
			Kind: fairshare.ByAddr, Number: 1, Began: began, Until: began.Add(time.Hour), Since: began.Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, remembered, "--state", state, "--upstream", site.URL)
	if got := retrySeconds(t, getFrom(t, "http://"+s.addr+"/guess", "203.0.113.1")); got < 3500 || got > 3600 {
		t.Errorf("Retry-After %d, want what is left of an hour", got)
	}
	s.stderr.wait(`(state: \S+, 1 ban in force)`)
}
