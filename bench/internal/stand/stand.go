//go:build linux

// Package stand starts and stops the programs of a measurement on loopback. Start with
// Fairshare or Nginx.
package stand

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Build builds fairshare from the module above into dir and returns the
// program's path.
func Build(ctx context.Context, dir string) (string, error) {
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "fairshare").Output()
	if err != nil {
		return "", fmt.Errorf("looking for fairshare: %w", err)
	}
	program := filepath.Join(dir, "fairshare")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/fairshare")
	build.Dir = strings.TrimSpace(string(module))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building fairshare: %w\n%s", err, out)
	}
	return program, nil
}

// Write writes a file that only its owner can read, below dir, and returns its
// path.
func Write(dir, name, text string) (string, error) {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// A Process is a running program. Its stderr is written to the file Log. It is killed
// together with the program that started it.
type Process struct {
	Addr string // where it listens
	Log  string

	cmd   *exec.Cmd
	ended chan error
}

// Start starts a program; its Addr is not known yet. It gets files as descriptors 3 and
// above.
func Start(dir, name string, args []string, files ...*os.File) (*Process, error) {
	p, stderr, err := start(dir, name, args, files)
	if err != nil {
		return nil, err
	}
	sink, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		p.Stop()
		return nil, err
	}
	go copyTo(sink, stderr)
	return p, nil
}

func copyTo(sink *os.File, r io.Reader) {
	io.Copy(sink, r)
	sink.Close()
}

func start(dir, name string, args []string, files []*os.File) (*Process, io.Reader, error) {
	p := &Process{Log: filepath.Join(dir, name+".log"), cmd: exec.Command(args[0], args[1:]...),
		ended: make(chan error, 1)}
	p.cmd.ExtraFiles = files
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, r, nil
}

// Fairshare starts fairshare serve, or any program that prints "http://ADDR protects" as
// it does, and waits for that line.
func Fairshare(dir, name string, args []string, files ...*os.File) (*Process, error) {
	p, stderr, err := start(dir, name, args, files)
	if err != nil {
		return nil, err
	}
	sink, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		p.Stop()
		return nil, err
	}
	lines := bufio.NewReader(stderr)
	var output strings.Builder
	for p.Addr == "" {
		line, err := lines.ReadString('\n')
		output.WriteString(line)
		sink.WriteString(line)
		if err != nil {
			sink.Close()
			p.Stop()
			return nil, fmt.Errorf("%s did not start:\n%s", name, output.String())
		}
		if before, _, found := strings.Cut(line, " protects"); found {
			p.Addr = before[strings.LastIndex(before, "/")+1:]
		}
	}
	go copyTo(sink, lines)
	return p, nil
}

// Nginx starts nginx with an http block, in which ADDR is replaced by its address.
func Nginx(dir, name, block string) (*Process, error) {
	nginx, err := Find("nginx")
	if err != nil {
		return nil, err
	}
	addr, err := Free()
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Geteuid() == 0 { // otherwise its workers cannot write to the folder
		user = "user root;"
	}
	home := filepath.Join(dir, name)
	config, err := Write(dir, name+"/nginx.conf", fmt.Sprintf(`%[1]s
daemon off;
worker_processes auto;
worker_rlimit_nofile 20000;
pid %[2]s/pid;
error_log stderr error;
events { worker_connections 19000; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	keepalive_requests 1000000;
	%[3]s
}
`, user, home, strings.ReplaceAll(block, "ADDR", addr)))
	if err != nil {
		return nil, err
	}
	p, err := Start(dir, name, []string{nginx, "-c", config, "-p", home, "-e", "stderr"})
	if err != nil {
		return nil, err
	}
	p.Addr = addr
	return p, p.Await("tcp", addr)
}

// Await waits until the process accepts connections at an address. After ten seconds it
// stops the process.
func (p *Process) Await(network, addr string) error {
	for range 500 {
		conn, err := net.Dial(network, addr)
		if err == nil {
			conn.Close()
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			output, _ := os.ReadFile(p.Log)
			return fmt.Errorf("%s ended: %v\n%s", p.cmd.Path, err, output)
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.Stop()
	return fmt.Errorf("%s does not listen at %s", p.cmd.Path, addr)
}

// Pid returns the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop sends SIGTERM, waits up to ten seconds, and then kills the process and its
// children. A second call does nothing.
func (p *Process) Stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		p.ended <- err
	case <-time.After(10 * time.Second):
		p.cmd.Process.Kill()
		p.ended <- <-p.ended
	}
	syscall.Kill(-p.Pid(), syscall.SIGKILL) // its group: the workers of php -S continue to run otherwise
}

// Find returns the path of a program of the system, by a pattern of names.
func Find(pattern string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not installed", pattern)
}

// Free returns an unused address of this machine, with a port below those that the
// kernel assigns.
func Free() (string, error) {
	for port := 20_000 + os.Getpid()%4096; port < 32_000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("no port is free")
}
