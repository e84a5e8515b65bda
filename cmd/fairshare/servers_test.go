package main

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// need returns the path of a program that a test needs, and skips the test if
// it is not installed. With FAIRSHARE_REQUIRE_SERVICES=1, as in CI, the test
// fails instead. For programs with their version in their name, program is a
// pattern.
func need(t *testing.T, program, debian string) string {
	t.Helper()
	for _, name := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if found, _ := filepath.Glob("/usr/sbin/" + program); len(found) > 0 {
		return found[len(found)-1]
	}
	missing(t, program, debian)
	return ""
}

// needFile skips the test, as need does, if there is no such file of a Debian package.
func needFile(t *testing.T, path, debian string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		missing(t, path, debian)
	}
}

func missing(t *testing.T, what, debian string) {
	t.Helper()
	why := fmt.Sprintf("%s is not installed: apt-get install %s", what, debian)
	if required() {
		t.Fatal(why)
	}
	t.Skip(why)
}

// required reports whether all programs must be installed and tests that take
// many seconds run.
func required() bool { return os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" }

// givenAddrs holds what freeAddr has returned.
var givenAddrs sync.Map

// freeAddr returns a free address of this machine. Its port is below those that
// the kernel gives to other programs, so it stays free until a server listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10240+rand.IntN(32768-10240))
		if _, given := givenAddrs.LoadOrStore(addr, true); given { // another test is about to listen there
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// shortDir returns a folder with a name that is short enough for a Unix socket
// in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startServer runs another program's server until the test ends, and waits
// until it accepts connections at all addresses. A path is the address of a
// Unix socket.
func startServer(t *testing.T, stop os.Signal, args []string, listens ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(stop)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
	})
	for _, listen := range listens {
		network := "tcp"
		if strings.HasPrefix(listen, "/") {
			network = "unix"
		}
		for try := 0; ; try++ { // another program: a connection is the only sign that it is ready
			conn, err := net.Dial(network, listen)
			if err == nil {
				conn.Close()
				break
			}
			select {
			case err := <-ended:
				ended <- err
				t.Fatalf("%s ended: %v", args[0], err)
			case <-time.After(20 * time.Millisecond):
			}
			if try == 3000 { // a minute
				t.Fatalf("%s does not listen at %s: %v", args[0], listen, err)
			}
		}
	}
	return cmd.Process
}

// startNginx runs nginx with one server block.
func startNginx(t *testing.T, listen, server string) {
	t.Helper()
	startNginxWith(t, fmt.Sprintf("access_log off;\nserver {\nlisten %s;\n%s\n}\n", listen, server), listen)
}

// startNginxWith runs nginx with the contents of an http block.
func startNginxWith(t *testing.T, http string, listens ...string) *os.Process {
	t.Helper()
	nginx := need(t, "nginx", "nginx-light")
	dir := t.TempDir()
	user := ""
	if os.Geteuid() == 0 { // otherwise its workers cannot write to the folder
		user = "user root;"
	}
	config := writeFile(t, "nginx.conf", fmt.Sprintf(`%[3]s
daemon off;
worker_processes 1;
worker_shutdown_timeout 1s;
pid %[1]s/pid;
error_log stderr;
events { worker_connections 1024; }
http {
	include /etc/nginx/mime.types;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	%[2]s
}
`, dir, http, user))
	// nginx looks for fastcgi_params next to the configuration.
	if params, err := os.ReadFile("/etc/nginx/fastcgi_params"); err == nil {
		if err := os.WriteFile(filepath.Join(filepath.Dir(config), "fastcgi_params"), params, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return startServer(t, syscall.SIGTERM, []string{nginx, "-c", config, "-p", dir, "-e", "stderr"}, listens...)
}

// startPHP runs php-fpm with so many workers, and returns its socket.
func startPHP(t *testing.T, workers int) string {
	t.Helper()
	fpm := need(t, "php-fpm*", "php-fpm")
	dir := shortDir(t)
	socket := filepath.Join(dir, "php.sock")
	user := ""
	args := []string{fpm, "--nodaemonize", "--fpm-config", filepath.Join(dir, "fpm.conf")}
	if os.Geteuid() == 0 {
		user = "user = root\ngroup = root"
		args = append(args, "--allow-to-run-as-root")
	}
	text := fmt.Sprintf(`[global]
error_log = /dev/stderr
log_level = warning
[site]
%[3]s
listen = %[1]s
pm = static
pm.max_children = %[2]d
clear_env = no
php_admin_value[upload_max_filesize] = 64M
php_admin_value[post_max_size] = 64M
php_admin_value[session.save_path] = %[4]s
php_admin_value[upload_tmp_dir] = %[4]s
php_admin_value[sys_temp_dir] = %[4]s
`, socket, workers, user, dir)
	if err := os.WriteFile(filepath.Join(dir, "fpm.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startServer(t, syscall.SIGTERM, args, socket)
	return socket
}

// phpSite copies the PHP site of the tests and the files of its home page.
func phpSite(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/phpsite")); err != nil {
		t.Fatal(err)
	}
	theme := filepath.Join(root, "wp-content/themes/plain")
	if err := os.MkdirAll(theme, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		kind := []string{"css", "js", "png"}[i%3]
		if err := os.WriteFile(filepath.Join(theme, fmt.Sprintf("a%d.%s", i, kind)), []byte("/* asset */\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// deployed returns files of deploy/ as one text with replacements. Each
// replaced text must be in it.
func deployed(t *testing.T, changes map[string]string, names ...string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		b, err := fs.ReadFile(os.DirFS("../../deploy"), name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	all := text.String()
	olds := slices.SortedFunc(maps.Keys(changes), func(a, b string) int { return len(b) - len(a) })
	for _, old := range olds { // the longest first, because it may contain others
		if !strings.Contains(all, old) {
			t.Fatalf("nothing in %s holds %q", names, old)
		}
		all = strings.ReplaceAll(all, old, changes[old])
	}
	return all
}
