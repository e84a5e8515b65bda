package livepolicy

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/policyfile"
	"fairshare/visitor"
)

func TestSecretsRotateAndOldOnesVerifyForAWhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), SecretsFile)
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	rotate := func(after time.Duration) [][]byte {
		t.Helper()
		secrets, err := rotateSecrets(path, start.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return secrets
	}
	const day = 24 * time.Hour
	first := rotate(0)
	if again := rotate(29 * day); len(first) != 1 || len(again) != 1 || !bytes.Equal(first[0], again[0]) {
		t.Fatalf("%q at the start, %q a month later", first, again)
	}
	second := rotate(31 * day)
	if len(second) != 2 || !bytes.Equal(second[1], first[0]) || bytes.Equal(second[0], first[0]) {
		t.Errorf("after a month: %q, want a new secret before %q", second, first)
	}
	if secrets := rotate(119 * day); len(secrets) != 3 || !bytes.Equal(secrets[2], first[0]) {
		t.Errorf("after four months: %q, want three, with the first", secrets)
	}
	if secrets := rotate(121 * day); len(secrets) != 2 {
		t.Errorf("after more than four months: %q, want two", secrets)
	}
	// With the clock set back by years, a new secret signs and the others verify.
	if secrets := rotate(-1000 * day); len(secrets) != 4 {
		t.Errorf("with the clock set back: %q, want four", secrets)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if secrets, err := rotateSecrets(path, start); err == nil {
		t.Errorf("a damaged file: %q", secrets)
	}
}

func TestSecretsOfAPolicyFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("both.key", "# of both machines\nfirst-secret-of-the-site\n\n2026-11-23T09:00:00Z second-secret-of-the-site\n")
	write("short.key", "first-secret-of-the-site\nshort\n")
	write("empty.key", "# none\n")
	for _, c := range []struct{ visitors, want string }{
		{"{secret_file: both.key}", ""},
		{"{secret_file: both.key, member: {cookie: m, secret_file: both.key}}", ""},
		{"{secret_file: short.key}", "secret_file: line 2: a secret needs at least 16 characters"},
		{"{secret_file: empty.key}", "secret_file: the file has no secret"},
		{"{secret_file: none.key}", "no such file"},
		{"{member: {cookie: fs1, secret_file: both.key}}", "the cookie fs1 is fairshare's own"},
	} {
		file, err := policyfile.Parse(filepath.Join(dir, "site.yaml"), []byte("visitors: "+c.visitors+"\nrules: []\n"))
		if err != nil {
			t.Fatal(err)
		}
		rt := &Runtime{File: file}
		err = rt.readVisitorSecrets()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.visitors, err, c.want)
		}
		if err == nil && (string(rt.secrets[0]) != "first-secret-of-the-site" || len(rt.secrets) != 2) {
			t.Errorf("%s: secrets %q", c.visitors, rt.secrets)
		}
	}
}

// A reload keeps the cookies of visitors valid, also if there is no state folder.
func TestCookiesStayOverAReload(t *testing.T) {
	for _, folder := range []string{"", t.TempDir()} {
		const text = "visitors: always\nrules: [{use: default}]\n"
		p, err := New(t.Context(), parseFile(t, text), Options{Clock: httpguard.NewClock(), Folder: folder,
			Log: func(line string) { t.Log(line) }})
		must(t, err)
		must(t, p.OpenState(t.Context()))
		p.Start(t.Context())
		req := &fairshare.Request{Addr: netip.MustParseAddr("203.0.113.1"), Time: p.Now(), Method: "GET", Path: "/"}
		value, signed, ok := p.Current().Visitors.Sign(fairshare.Visitor{}, req, p.Now(), time.Now(), visitor.Change{})
		if !ok {
			t.Fatal("no cookie")
		}
		next, err := p.Prepare(t.Context(), parseFile(t, text))
		must(t, err)
		p.Use(t.Context(), next, func() {})
		if found := p.Current().Visitors.Read(value, p.Now(), time.Now()); found.ID != signed.ID {
			t.Errorf("folder %q: after a reload the cookie is not valid", folder)
		}
		p.Stop()
		p.Close()
	}
}
