package operator

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/lockfile"
	"fairshare/internal/setup"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// A refusal is found even if the server writes it after the command has started.
func TestWhyWaitsForANewReference(t *testing.T) {
	dir := t.TempDir()
	r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, setup.RegistryFile), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	written := make(chan error)
	go func() {
		now := time.Now()
		client := fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32"))
		written <- r.Write(t.Context(), registry.Batch{Stories: []registry.Story{{
			ID: "7k3m9x2abc", Client: client, Rule: "pages", Action: fairshare.Refuse, Status: 429, First: now,
			Last: now, Count: 1, Until: now.Add(time.Hour),
		}}})
	}()
	out, err := runWhy(t, dir, "7k3m9x2abc")
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err != nil || !strings.HasPrefix(out, "7k3m9x2abc: 203.0.113.9 was refused by the rule \"pages\"\n") {
		t.Errorf("%q, %v", out, err)
	}
}

// The line of robots.txt that a refusal is based on is shown.
func TestWhyShowsTheLineOfRobots(t *testing.T) {
	dir := t.TempDir()
	r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, setup.RegistryFile), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	now := time.Now()
	if err := r.Write(t.Context(), registry.Batch{Stories: []registry.Story{{
		ID: "7k3m9x2abc", Client: fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")), Rule: "robots",
		Action: fairshare.Block, Status: 403, First: now, Last: now, Count: 1, Bot: "gptbot",
		Robots: "line 12, Disallow: /private\x1b",
	}}}); err != nil {
		t.Fatal(err)
	}
	out, err := runWhy(t, dir, "7k3m9x2abc")
	if err != nil || !strings.Contains(out, "\n  robots    line 12, Disallow: /private\\x1b\n") {
		t.Errorf("%q, %v", out, err)
	}
}

// While a server runs, why ADDR waits shortly for a newer refusal. It does not
// wait if the latest refusal is seconds old or no server runs.
func TestWhyOfAnAddressWaitsForANewRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, setup.RegistryFile), sqlregistry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		write := func(id, rule string) {
			now := time.Now()
			if err := r.Write(t.Context(), registry.Batch{Stories: []registry.Story{{
				ID: id, Client: fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")), Rule: rule,
				Action: fairshare.Refuse,
				Status: 429, First: now, Last: now, Count: 1, Until: now.Add(time.Hour),
			}}}); err != nil {
				t.Error(err)
			}
		}
		why := func(want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			out, err := runWhy(t, dir, "203.0.113.9")
			if err != nil {
				out += err.Error()
			}
			if took := time.Since(began); !strings.HasPrefix(out, want) || took > within {
				t.Errorf("after %v: %q; want %s within %v", took, out, want, within)
			}
		}
		why("no refusal of 203.0.113.9 is recorded in ", 0)
		lock, err := lockfile.Take(filepath.Join(dir, setup.ServeLock))
		if err != nil {
			t.Fatal(err)
		}
		if !lockfile.Held(filepath.Join(dir, setup.ServeLock)) {
			t.Skip("there are no locks")
		}
		time.AfterFunc(250*time.Millisecond, func() { write("7k3m9x2abc", "pages") })
		why("7k3m9x2abc: ", 300*time.Millisecond)
		why("7k3m9x2abc: ", 0) // the story is new
		time.Sleep(time.Minute)
		time.AfterFunc(250*time.Millisecond, func() { write("7k3m9x2abd", "guesses") })
		why("7k3m9x2abd: ", 300*time.Millisecond)
		time.Sleep(time.Minute)
		why("7k3m9x2abd: ", newStoryWait)
		lock.Release()
		why("7k3m9x2abd: ", 0)
	})
}

func TestReference(t *testing.T) {
	for text, want := range map[string]string{
		"7k3m9x2abc":   "7k3m9x2abc",
		"7K3M9X2ABC":   "7k3m9x2abc",
		"oOiIlL2abc":   "0011112abc",
		"7k3m9-x2abc":  "7k3m9x2abc",
		"7k3m9x2ab":    "",
		"7k3m9x2abcd":  "",
		"7k3m9x2abu":   "", // u is not in Crockford's alphabet
		"203.0.113.9":  "",
		"semrushbot":   "",
		"\x1b[31m2abc": "",
	} {
		if got := reference(text); got != want {
			t.Errorf("reference(%q) = %q, want %q", text, got, want)
		}
	}
}

// runWhy runs the command in the state folder dir.
func runWhy(t *testing.T, dir, what string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = Why(&cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out}, dir, what, false)
	return out.String(), err
}
