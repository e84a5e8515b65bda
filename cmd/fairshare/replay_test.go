package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// newRegistry returns a folder with a registry that fill has changed. The
// registry stays open, as that of a running serve.
func newRegistry(t *testing.T, fill func(ctx context.Context, r *sqlregistry.Registry) error) (dir string) {
	t.Helper()
	dir = t.TempDir()
	r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, setup.RegistryFile), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() }) // it stays in use, as by serve
	if err := fill(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return dir
}

func idOf(t *testing.T, text string) fairshare.ClientID {
	t.Helper()
	id, err := fairshare.ParseClientID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A replay applies operators' decisions at the log's own time, even from a
// registry in use. Bans by rules are not read: the replay makes its own.
func TestReplayAppliesOperatorsDecisions(t *testing.T) {
	at := func(clock string) time.Time {
		at, err := time.Parse(time.DateTime, "2015-05-17 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	state := newRegistry(t, func(ctx context.Context, r *sqlregistry.Registry) error {
		for _, s := range []registry.OverrideRecord{
			// it has ended
			{Client: idOf(t, "203.0.113.1"), Action: fairshare.Refuse, Since: at("09:00:00"), Until: at("10:00:00")},
			// it ends in between
			{Client: idOf(t, "203.0.113.2"), Action: fairshare.Refuse, Since: at("09:00:00"),
				Until: at("10:04:59").Add(time.Millisecond)},
			// it was made later
			{Client: idOf(t, "203.0.113.3"), Action: fairshare.Refuse, Since: at("12:00:00"), Until: at("12:30:00")},
			{Client: idOf(t, "203.0.113.0/29"), Action: fairshare.Block, Since: at("09:00:00")},
			{Client: idOf(t, "203.0.113.4"), Action: fairshare.Allow, Since: at("09:00:00"), Until: at("10:05:00")},
			{Client: idOf(t, "curl"), Action: fairshare.Refuse, Since: at("09:00:00"), Until: at("11:00:00")},
		} {
			if err := r.SetOverride(ctx, s); err != nil {
				return err
			}
		}
		return r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{{
			Client: idOf(t, "198.51.100.1"), Rule: "one", Kind: fairshare.ByAddr, Number: 1, Began: at("09:00:00"),
			Until: at("23:00:00"), Since: at("23:00:00"),
		}}})
	})
	line := func(client, clock, agent string) string {
		return client + ` - - [17/May/2015:` + clock + ` +0000] "GET / HTTP/1.1" 200 1 "-" "` + agent + `"` + "\n"
	}
	log := writeFile(t, "access.log", line("203.0.113.1", "10:04:00", "a")+line("203.0.113.2", "10:04:00", "a")+
		line("203.0.113.3", "10:04:00", "a")+line("203.0.113.4", "10:04:00", "a")+
		line("203.0.113.99", "10:04:00", "curl/8")+line("198.51.100.1", "10:04:00", "a")+
		line("203.0.113.2", "10:05:00", "a")+line("203.0.113.4", "10:05:00", "a"))
	policy := writeFile(t, "site.yaml",
		"rules: [{name: one, match: {path: /}, limit: {requests: 1, per: 1h}, ban: {after: 1, for: 1h}}]")
	verdicts := filepath.Join(t.TempDir(), "verdicts")
	var stdout, stderr bytes.Buffer
	if code := run([]string{"replay", "-c", policy, "--state", state, "--verdicts", verdicts, log},
		&cli.Environment{Context: t.Context(), Stdout: &stdout, Stderr: &stderr}); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	text, err := os.ReadFile(verdicts)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		f := strings.Split(l, "\t")
		got = append(got, strings.TrimSpace(strings.Join(f[2:6], " ")))
	}
	const by = " ban by an operator"
	want := []string{
		"203.0.113.1 block" + by, // by the wider prefix
		"203.0.113.2 refuse" + by + " 60",
		"203.0.113.3 refuse" + by + " 1800",
		"203.0.113.4 allow",
		"203.0.113.99 refuse" + by + " 3360",
		"198.51.100.1 allow",
		"203.0.113.2 block" + by,
		"203.0.113.4 block" + by,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("verdicts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A registry that cannot be read ends the replay with a hint: without it the
// verdicts would differ from those of serve.
func TestReplayFailsIfTheRegistryCannotBeRead(t *testing.T) {
	log := writeFile(t, "access.log", `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`+"\n")
	for _, c := range []struct {
		name  string
		spoil func(file *os.File) error
		want  string
	}{
		{"newer", func(file *os.File) error {
			// user_version: https://www.sqlite.org/fileformat.html §1.3
			_, err := file.WriteAt(binary.BigEndian.AppendUint32(nil, 9999), 60)
			return err
		}, "newer version"},
		{"cut short", func(file *os.File) error { return file.Truncate(5000) }, "damaged"},
		{"of another program", func(file *os.File) error {
			_, err := file.WriteAt(binary.BigEndian.AppendUint32(nil, 7), 68) // application_id
			return err
		}, "not a registry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, setup.RegistryFile)
			r, err := sqlregistry.Open(t.Context(), path, sqlregistry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(file); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code := run([]string{"replay", "--state", dir, log},
				&cli.Environment{Context: t.Context(), Stdout: &stdout, Stderr: &stderr})
			if code != cli.ExitFailed || stdout.Len() > 0 || !strings.Contains(stderr.String(), c.want) ||
				!strings.Contains(stderr.String(), path) ||
				!strings.Contains(stderr.String(), "\nhint: ") ||
				!strings.Contains(stderr.String(), "a replay without --state") {
				t.Errorf("exit code %d: %s%s", code, stdout.String(), stderr.String())
			}
		})
	}
}
