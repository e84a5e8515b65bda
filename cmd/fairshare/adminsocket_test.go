//go:build unix

package main

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// Without any configuration, the commands that ask a running server find it. Only its user can.
func TestAdminSocketByDefault(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shortDir(t), "state")
	s := startServe(t, adminPolicy, "--upstream", echoSite(t).URL, "--state", state)
	path := s.stderr.wait(`admin: unix:(\S+): for fairshare status, top and explain`)
	if path != filepath.Join(state, "admin.sock") {
		t.Errorf("the socket is %s", path)
	}
	for name, mode := range map[string]fs.FileMode{"admin.sock": 0o600 | fs.ModeSocket, "": 0o700 | fs.ModeDir} {
		if info, err := os.Stat(filepath.Join(state, name)); err != nil || info.Mode() != mode {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
	getFrom(t, "http://"+s.addr, "203.0.113.9")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "203.0.113.9"},
		{[]string{"top"}, "203.0.113.9"},
		{[]string{"explain", "203.0.113.9"}, "verdict:"},
		{[]string{"reload", "--yes"}, "is in force"},
	} {
		exit, out, errs := runCommand(t, append(c.args, "--state", state)...)
		if exit != cli.ExitOK || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, no %q:\n%s%s", c.args, exit, c.want, out, errs)
		}
	}
	if s.stop(); exists(path) {
		t.Error("the socket is left")
	}
	exit, _, errs := runCommand(t, "status", "--state", state)
	if exit != cli.ExitFailed || !strings.Contains(errs, "no server answers at "+path) ||
		!strings.Contains(errs, "hint: ") {
		t.Errorf("without a server: exit code %d: %s", exit, errs)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestAdminSocketCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shortDir(t), "state")
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--state", state, "--admin", "off")
	s.stderr.wait(`(journal: refusals)`)
	if strings.Contains(s.stderr.String(), "admin:") || exists(filepath.Join(state, "admin.sock")) {
		t.Errorf("there is a socket:\n%s", s.stderr.String())
	}
	s.stop()
	exit, _, errs := runCommand(t, "serve", "--upstream", "http://127.0.0.1:9", "--state", state, "--admin", "off",
		"--admin-token-file", "token")
	if exit != cli.ExitUsage || !strings.Contains(errs, "there is no --admin") {
		t.Errorf("a token without a listener: exit code %d: %s", exit, errs)
	}
}

// A socket that is left from a killed server is replaced. Whatever else is there stays.
func TestAdminSocketAfterKill(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shortDir(t), "state")
	path := filepath.Join(state, "admin.sock")
	for range 2 {
		p := startProcess(t, "upstream: http://127.0.0.1:9\nrules: []\n", "--state", state)
		if exit, _, errs := runCommand(t, "status", "--state", state); exit != cli.ExitOK {
			t.Errorf("exit code %d: %s", exit, errs)
		}
		p.Process.Kill()
		p.Wait()
		if !exists(path) {
			t.Fatal("a killed server has removed its socket")
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--state", state)
	s.stderr.wait(`(warning: no admin socket, so .*: .*admin.sock exists and is not a socket)`)
	s.stop()
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
}

// Of two servers with one folder, the first one has the socket until it ends. Then the other takes it.
func TestAdminSocketOfTwoServers(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shortDir(t), "state")
	path := filepath.Join(state, "admin.sock")
	first := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--state", state)
	first.stderr.wait(`(admin: unix:)`)
	second := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--state", state)
	second.stderr.wait(`(warning: no admin socket, so .*: another server has )`)
	address := func() string {
		t.Helper()
		exit, out, errs := runCommand(t, "status", "--state", state)
		if exit != cli.ExitOK {
			t.Fatalf("exit code %d: %s", exit, errs)
		}
		return out
	}
	if out := address(); !strings.Contains(out, first.addr) {
		t.Errorf("not the first server (%s) answers:\n%s", first.addr, out)
	}
	first.stop()
	second.stderr.wait(`(admin: unix:)`)
	if out := address(); !strings.Contains(out, second.addr) {
		t.Errorf("not the second server (%s) answers:\n%s", second.addr, out)
	}
	if second.stop(); exists(path) {
		t.Error("the socket is left")
	}
}

// An operator may forward the socket to a port (ssh -L). A page of another site can neither read there nor
// act, whatever name it gives to the port.
func TestOtherSitesCannotUseTheAdminSocket(t *testing.T) {
	t.Parallel()
	state := filepath.Join(shortDir(t), "state")
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--state", state)
	path := s.stderr.wait(`admin: unix:(\S+):`)
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial}}
	for _, c := range []struct {
		method, path, host string
		header             [2]string
		want               int
	}{
		{"GET", "/api/v1/now", "localhost:9091", [2]string{}, 200},
		{"GET", "/api/v1/now", "evil.example", [2]string{}, 403},
		{"GET", "/", "evil.example:9091", [2]string{}, 403},
		{"GET", "/metrics", "127.0.0.1.evil.example", [2]string{}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{}, 200},
		{"POST", "/api/v1/actions", "evil.example", [2]string{"Origin", "http://evil.example"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Origin", "http://evil.example"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Origin", "null"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Origin", "http://localhost:9092"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Sec-Fetch-Site", "same-site"}, 403},
		{"POST", "/api/v1/actions", "localhost:9091", [2]string{"Content-Type", "text/plain"}, 415},
		{"POST", "/act", "localhost:9091", [2]string{}, 403}, // no form acts without a session
	} {
		req, err := http.NewRequest(c.method, "http://localhost"+c.path, strings.NewReader(
			`{"do": "label", "client": "192.0.2.1", "label": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		req.Header.Set("Content-Type", "application/json")
		if c.header[0] != "" {
			req.Header.Set(c.header[0], c.header[1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s at %s with %v: %d, want %d: %s", c.method, c.path, c.host, c.header, resp.StatusCode,
				c.want, body)
		}
	}
}
