//go:build linux

package main

import (
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairshare/bench/internal/stand"
)

// The sites that are not written in Go.
//
//go:embed site
var sites embed.FS

// A source is a way in which fairshare gets CPU time, with a site for it.
type source struct {
	name, site string
	start      func(b *bench, dir string) (*setup, error)
}

// A setup is a running site.
type setup struct {
	addr  string // of the site
	cpu   string // the setting cpu of the policy's upstream
	front *stand.Process
	all   []*stand.Process // to stop, in reverse order
	after func()           // called at the end
}

func (s *setup) stop() {
	for i := len(s.all) - 1; i >= 0; i-- {
		s.all[i].Stop()
	}
	if s.after != nil {
		s.after()
	}
}

var sources = []source{
	{"server-timing", "Go", func(b *bench, dir string) (*setup, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		p, err := stand.Fairshare(dir, "site", []string{self, "-role", "site"})
		if err != nil {
			return nil, err
		}
		return &setup{addr: p.Addr, cpu: "{from: server-timing}", all: []*stand.Process{p}}, nil
	}},
	{"server-timing", "Python, 4 processes", python("{from: server-timing}", "")},
	{"process", "Python, 4 processes", python("{from: process}", "")},
	{"process", "php -S, 4 processes", phpServer},
	{"process", "php-fpm, 4 processes", phpFPM("{from: process, pid_file: PID}", "")},
	{"cgroup", "Python, 4 processes", python("{from: cgroup, cgroup: GROUP}", "bench-python")},
	{"cgroup", "php-fpm, 4 processes", phpFPM("{from: cgroup, cgroup: GROUP}", "bench-fpm")},
	{"cgroup of version 1", "Python, 4 processes", python("{from: cgroup, cgroup: GROUP}", "cpuacct/bench-python")},
	{"middleware", "Go", func(b *bench, dir string) (*setup, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		limit := "0"
		if b.enforce {
			limit = strconv.FormatInt(sevenPercent().Microseconds(), 10)
		}
		p, err := stand.Fairshare(dir, "site", []string{self, "-role", "middleware", "-sums",
			filepath.Join(dir, "sums"), "-limit", limit})
		if err != nil {
			return nil, err
		}
		return &setup{front: p, all: []*stand.Process{p}}, nil
	}},
}

// errNotHere reports that this machine lacks something that a source needs.
var errNotHere = errors.New("not on this machine")

// port returns a free address for a site.
func port() (addr, number string, err error) {
	addr, err = stand.Free()
	if err != nil {
		return "", "", err
	}
	_, number, err = net.SplitHostPort(addr)
	return addr, number, err
}

// file writes one of the sites into dir and returns its path.
func file(dir, name string) (string, error) {
	text, err := sites.ReadFile("site/" + name)
	if err != nil {
		return "", err
	}
	return stand.Write(dir, name, string(text))
}

// grouped creates a control group and runs a command in it: of version 2 where it is
// mounted, or of version 1 for names below "cpuacct/".
func grouped(name string, args []string) (group string, in []string, remove func(), err error) {
	const mounted = "/sys/fs/cgroup"
	roots, mark := []string{mounted, mounted + "/unified"}, "cgroup.controllers"
	if old, ok := strings.CutPrefix(name, "cpuacct/"); ok {
		roots, mark, name = []string{mounted + "/cpuacct"}, "cpuacct.usage", old
	}
	name = fmt.Sprint(name, "-", os.Getpid())
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, mark)); err != nil {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return "", nil, nil, fmt.Errorf("%w: %w", errNotHere, err)
		}
		in = append([]string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(path, "cgroup.procs")},
			args...)
		return "/" + name, in, func() { os.Remove(path) }, nil
	}
	return "", nil, nil, fmt.Errorf("%w: no such control groups", errNotHere)
}

// run starts a site's program, in a control group if one is named.
func run(dir, cpu, group string, args []string) (*setup, error) {
	s := &setup{cpu: cpu}
	if group != "" {
		path, in, remove, err := grouped(group, args)
		if err != nil {
			return nil, err
		}
		s.cpu, args, s.after = strings.ReplaceAll(cpu, "GROUP", path), in, remove
	}
	p, err := stand.Start(dir, "site", args)
	if err != nil {
		if s.after != nil {
			s.after()
		}
		return nil, err
	}
	s.all = append(s.all, p)
	return s, nil
}

// await waits until the site listens.
func (s *setup) await(network, addr string) (*setup, error) {
	if err := s.all[len(s.all)-1].Await(network, addr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func python(cpu, group string) func(*bench, string) (*setup, error) {
	return func(b *bench, dir string) (*setup, error) {
		python, err := stand.Find("python3")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotHere, err)
		}
		script, err := file(dir, "site.py")
		if err != nil {
			return nil, err
		}
		addr, number, err := port()
		if err != nil {
			return nil, err
		}
		s, err := run(dir, cpu, group, []string{python, script, number, "4"})
		if err != nil {
			return nil, err
		}
		s.addr = addr
		return s.await("tcp", addr)
	}
}

func phpServer(b *bench, dir string) (*setup, error) {
	php, err := stand.Find("php")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHere, err)
	}
	script, err := file(dir, "site.php")
	if err != nil {
		return nil, err
	}
	addr, _, err := port()
	if err != nil {
		return nil, err
	}
	s, err := run(dir, "{from: process}", "", []string{"/usr/bin/env", "PHP_CLI_SERVER_WORKERS=4", php, "-q", "-S",
		addr, script})
	if err != nil {
		return nil, err
	}
	s.addr = addr
	return s.await("tcp", addr)
}

// phpFPM starts php-fpm behind nginx, which is the upstream.
func phpFPM(cpu, group string) func(*bench, string) (*setup, error) {
	return func(b *bench, dir string) (*setup, error) {
		fpm, err := stand.Find("php-fpm*")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotHere, err)
		}
		script, err := file(dir, "site.php")
		if err != nil {
			return nil, err
		}
		socket, pid, user := filepath.Join(dir, "php.sock"), filepath.Join(dir, "fpm.pid"), ""
		args := []string{fpm, "--nodaemonize"}
		if os.Geteuid() == 0 {
			user = "user = root\ngroup = root"
			args = append(args, "--allow-to-run-as-root")
		}
		config, err := stand.Write(dir, "fpm.conf", fmt.Sprintf(`[global]
error_log = /dev/stderr
log_level = warning
pid = %s
[site]
%s
listen = %s
listen.backlog = 1024
pm = static
pm.max_children = 4
`, pid, user, socket))
		if err != nil {
			return nil, err
		}
		s, err := run(dir, strings.ReplaceAll(cpu, "PID", pid), group, append(args, "--fpm-config", config))
		if err != nil {
			return nil, err
		}
		if s, err = s.await("unix", socket); err != nil {
			return nil, err
		}
		nginx, err := stand.Nginx(dir, "nginx", fmt.Sprintf(`server {
		listen ADDR backlog=4096;
		location / {
			fastcgi_pass unix:%s;
			fastcgi_param SCRIPT_FILENAME %s;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param QUERY_STRING $query_string;
			fastcgi_param REQUEST_URI $request_uri;
			fastcgi_param SERVER_PROTOCOL $server_protocol;
		}
	}`, socket, script))
		if err != nil {
			s.stop()
			return nil, err
		}
		s.addr = nginx.Addr
		s.all = append(s.all, nginx)
		return s, nil
	}
}

// policy returns the policy of serve for a setup.
func (s *setup) policy(enforce bool) string {
	limit := "cpu: 100000s" // never reached
	if enforce {
		limit = "cpu: 7%"
	}
	return fmt.Sprintf(`upstream: {url: "http://%s", cpu: %s}
journal: {file: journal}
rules:
  - name: seven percent
    limit: {%s, per: 15s, by: addr}
    answer: {status: 503}
`, s.addr, s.cpu, limit)
}

// serve starts fairshare in front of the setup.
func (s *setup) serve(b *bench, dir string) error {
	if s.front != nil { // the site has its own guard
		return nil
	}
	file, err := stand.Write(dir, "site.yaml", s.policy(b.enforce))
	if err != nil {
		return err
	}
	s.front, err = stand.Fairshare(dir, "fairshare",
		[]string{b.fairshare, "serve", "-c", file, "--listen", "127.0.0.1:0", "--state", filepath.Join(dir, "state")})
	if err != nil {
		return err
	}
	s.all = append(s.all, s.front)
	return nil
}
