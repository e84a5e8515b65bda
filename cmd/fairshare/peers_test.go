package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// need returns the path of a program that a test works with, and skips the
// test where there is none. CI sets FAIRSHARE_REQUIRE_SERVICES=1: there it
// fails.
func need(t *testing.T, program, debian string) string {
	t.Helper()
	for _, name := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	why := fmt.Sprintf("%s is not installed: apt-get install %s", program, debian)
	if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// freeAddr returns an address of this machine that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startNginx runs nginx with the server block until the test ends.
func startNginx(t *testing.T, listen, server string) {
	t.Helper()
	nginx := need(t, "nginx", "nginx-light")
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	user := ""
	if os.Geteuid() == 0 { // else its workers cannot write to the folder
		user = "user root;"
	}
	text := fmt.Sprintf(`%[4]s
daemon off;
worker_processes 1;
pid %[1]s/pid;
error_log stderr;
events { worker_connections 64; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		%[3]s
	}
}
`, dir, listen, server, user)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-c", config, "-p", dir, "-e", "stderr")
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	for range 100 { // a real server: there is nothing to wait for but that it answers
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nginx does not listen")
}

// A real nginx in front and a real curl as client: clients are told apart by
// the address that nginx appends, whatever they claim, and what refused ones
// get arrives whole.
func TestBehindNginx(t *testing.T) {
	curl := need(t, "curl", "curl")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "host %s, for %s, proto %s\n", r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"))
	}))
	defer site.Close()
	s := startServe(t, `
contact: shop@example.org
clients: {trusted_proxies: 127.0.0.1}
rules:
  - name: three
    limit: {requests: 3, per: 1h, algorithm: quiet}
`, "--upstream", site.URL)
	front := freeAddr(t)
	startNginx(t, front, `location / {
			proxy_pass http://`+s.addr+`;
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto https;
		}`)
	ask := func(from string, args ...string) string {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"-sS", "-i", "--max-time", "20", "--interface", from}, append(args, "http://"+front+"/")...)...).Output()
		if err != nil {
			t.Fatalf("curl: %v", err)
		}
		return string(out)
	}
	first := ask("127.0.0.2", "-H", "Host: shop.example", "-H", "X-Forwarded-For: 203.0.113.9")
	if !strings.HasPrefix(first, "HTTP/1.1 200") || !strings.Contains(first, "host shop.example, for 203.0.113.9, 127.0.0.2, 127.0.0.1, proto https") {
		t.Errorf("the site was asked otherwise:\n%s", first)
	}
	for i := range 2 { // another claim each time, and still the same client
		ask("127.0.0.2", "-H", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i))
	}
	refused := ask("127.0.0.2", "-H", "X-Forwarded-For: 198.51.100.7", "-H", "Accept: application/json")
	for _, want := range []string{"HTTP/1.1 429", "Retry-After: 3600", "Cache-Control: no-store", `"violated-policies":["three"]`, "shop@example.org"} {
		if !strings.Contains(refused, want) {
			t.Errorf("the fourth request lacks %q:\n%s", want, refused)
		}
	}
	if other := ask("127.0.0.3"); !strings.HasPrefix(other, "HTTP/1.1 200") {
		t.Errorf("another client:\n%s", other)
	}
	s.stderr.wait(`"client":"127.0.0.2"[^\n]*"rule":"three"`)
}

// Through nginx and fairshare a body and its answer arrive as they were sent.
func TestBodiesThroughNginx(t *testing.T) {
	curl := need(t, "curl", "curl")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	}))
	defer site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	front := freeAddr(t)
	startNginx(t, front, "client_max_body_size 0; location / { proxy_pass http://"+s.addr+"; }")
	sent := strings.Repeat("fair share\n", 1<<18)
	cmd := exec.Command(curl, "-sS", "--max-time", "30", "--data-binary", "@-", "http://"+front+"/")
	cmd.Stdin = strings.NewReader(sent)
	got, err := cmd.Output()
	if err != nil || string(got) != sent {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(sent), err)
	}
}
