package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/redislimit/redistest"
)

// check --connect finds the password of the store where serve would, tries what a member does, and says what is
// wrong without a secret.
func TestCheckConnect(t *testing.T) {
	start := func(policy string) string {
		memory := []string{"--maxmemory", "50mb", "--maxmemory-policy", policy}
		return redistest.Start(t, append(memory, "--requirepass", "pw-right")...).URL()
	}
	usual := start("volatile-ttl")
	const password = "password_file: store.password"
	for _, test := range []struct {
		name, url, store      string
		file, credential, env string
		fails                 bool
		want                  []string
	}{
		{name: "a file next to the policy", store: password, file: "pw-right\nrest\n",
			want: []string{"answers; a round trip takes", "the scripts run; no server counts there now",
				"a user with the least rights: ACL SETUSER fairshare on >PASSWORD ~fs1:shop:*"}},
		{name: "systemd's folder first", store: password, file: "pw-wrong\n", credential: "pw-right\n",
			want: []string{"the scripts run"}},
		{name: "the environment", env: "pw-right", want: []string{"the scripts run"}},
		{name: "a file before the environment", store: password, file: "pw-wrong\n", env: "pw-right", fails: true,
			want: []string{"WRONGPASS", "do user and password_file fit?"}},
		{name: "an empty file", store: password, file: "\n", fails: true, want: []string{"the first line is empty"}},
		{name: "no file", store: password, fails: true, want: []string{"store.password", "no such file"}},
		{name: "no password", fails: true, want: []string{"NOAUTH"}},
		{name: "nobody listens", url: "redis://127.0.0.1:1", fails: true,
			want: []string{"refused", "is the server running"}},
		{name: "it may drop any key", url: start("allkeys-lru"), env: "pw-right",
			want: []string{"warning: store: maxmemory-policy allkeys-lru may drop any counter"}},
		{name: "it is full one day", url: start("noeviction"), env: "pw-right",
			want: []string{"warning: store: maxmemory-policy noeviction"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, credentials := t.TempDir(), t.TempDir()
			write := func(path, text string) {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			url := cmp.Or(test.url, usual)
			policy := filepath.Join(dir, "site.yaml")
			write(policy, "store:\n  url: "+url+"\n  name: shop\n  "+test.store+
				"\nrules:\n  - {name: ten, limit: {requests: 10, per: 1m}}\n")
			if test.file != "" {
				write(filepath.Join(dir, "store.password"), test.file)
			}
			if test.credential != "" {
				write(filepath.Join(credentials, "store.password"), test.credential)
			}
			t.Setenv("CREDENTIALS_DIRECTORY", credentials)
			t.Setenv(setup.StorePasswordEnv, test.env)
			var out bytes.Buffer
			code := run([]string{"check", policy, "--connect"},
				&cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out})
			if (code != cli.ExitOK) != test.fails {
				t.Errorf("exit status %d", code)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q", want)
				}
			}
			for _, secret := range []string{"pw-right", "pw-wrong"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("the output has the password")
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}
