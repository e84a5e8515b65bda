//go:build unix

// Package pgtest starts PostgreSQL servers for tests, in temporary folders. Start with
// [Start].
package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// User is the superuser of a Server. It needs no password; the user "secret" does.
const User = "fairshare"

// A Server is a PostgreSQL server. Its methods end the test after an error.
type Server struct {
	Port int

	bin, data string
	cmd       *exec.Cmd
	owner     *syscall.Credential // nil: that of this process
	settings  []string
}

// Find returns the folder of initdb and postgres, the newest version; "" if there is
// none.
func Find() string {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // Debian: not in PATH
	if len(all) > 0 {
		slices.Sort(all)
		return filepath.Dir(all[len(all)-1])
	}
	path, err := exec.LookPath("postgres")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}

// Start starts a server on a free port of 127.0.0.1 that ends with the test. Each
// setting is like "max_connections=20". Without PostgreSQL the test is skipped, or it
// fails if FAIRSHARE_REQUIRE_SERVICES=1.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{bin: Find(), settings: settings}
	if s.bin == "" {
		missing(t, "needs PostgreSQL: apt-get install postgresql")
	}
	s.makeFolder(t)
	s.do(t, "initdb", "--pgdata="+s.data, "--username="+User, "--auth=trust", "--no-sync", "--encoding=UTF8",
		"--locale=C")
	hba := "local all all trust\nhost all secret 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n" +
		"host replication all 127.0.0.1/32 trust\n"
	s.write(t, "pg_hba.conf", hba)
	s.Port = freePort(t)
	s.Run(t)
	return s
}

// makeFolder makes the folder of the data. A server does not run as root: another user
// owns it then.
func (s *Server) makeFolder(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairshare-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.data = filepath.Join(dir, "data")
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("root needs a user postgres or nobody to run PostgreSQL")
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir = filepath.Dir(s.data)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	return c
}

func (s *Server) do(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *Server) write(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(s.data, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.owner != nil {
		if err := os.Chown(path, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Run starts the server, also again after Kill, and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	args := []string{"-D", s.data, "-k", "", "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=127.0.0.1",
		"-c", "fsync=off", "-c", "shared_buffers=64MB", "-c", "wal_level=replica"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	var log bytes.Buffer
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
	t.Cleanup(func() {
		if s.cmd == cmd {
			s.Kill()
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), s.URL("postgres"))
		if err == nil {
			_ = conn.Close(context.Background())
			return
		}
		if time.Now().After(end) {
			s.Kill()
			t.Fatalf("PostgreSQL does not start: %v\n%s", err, log.String())
		}
	}
}

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s", User, s.Port, database)
}

// Signal sends a signal to all processes of the server.
func (s *Server) Signal(signal syscall.Signal) {
	pids := []int{s.cmd.Process.Pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pids[0]))
	for _, text := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(text); err == nil {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal)
	}
}

// Stop stops the server at once, without a checkpoint: "pg_ctl stop -m immediate".
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.do(t, "pg_ctl", "stop", "-D", s.data, "-m", "immediate")
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Kill kills all processes of the server at once, as a failure of the machine does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.cmd = nil
	_ = os.Remove(filepath.Join(s.data, "postmaster.pid"))
}

// Exec runs statements in the database postgres.
func (s *Server) Exec(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, statement := range statements {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Standby starts a read-only standby of a server that ends with the test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby := &Server{bin: s.bin, settings: s.settings, Port: freePort(t)}
	standby.makeFolder(t)
	standby.do(t, "pg_basebackup", "--pgdata="+standby.data, "--write-recovery-conf", "--checkpoint=fast",
		"--dbname="+s.URL("postgres"))
	standby.Run(t)
	return standby
}

// Pooler starts pgbouncer in transaction mode in front of a server, and returns the URL of
// the database postgres through it. Without pgbouncer the test is skipped as by Start.
func (s *Server) Pooler(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian: not in PATH of all users
	}
	if err != nil {
		missing(t, "needs pgbouncer: apt-get install pgbouncer")
	}
	port := freePort(t)
	s.write(t, "users", fmt.Sprintf("%q \"\"\n", User))
	s.write(t, "pgbouncer.ini", fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\n"+
		"listen_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\nauth_type=trust\nauth_file=%s\npool_mode=transaction\n"+
		"default_pool_size=3\n", s.Port, port, filepath.Join(s.data, "users")))
	var log bytes.Buffer
	cmd := exec.Command(path, filepath.Join(s.data, "pgbouncer.ini"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(s.data), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres", User, port)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), url)
		if err == nil {
			_ = conn.Close(context.Background())
			return url
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("pgbouncer does not start: %v\n%s", err, log.String())
		}
	}
}

// missing skips the test, or ends it if FAIRSHARE_REQUIRE_SERVICES=1.
func missing(t testing.TB, text string) {
	t.Helper()
	if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// StartOn starts a server whose data is on a small disk of that many bytes, in memory.
// The test is skipped if this process may not mount one.
func StartOn(t testing.TB, bytes int) *Server {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", bytes), "tmpfs", dir).
		CombinedOutput(); err != nil {
		t.Skipf("a small disk cannot be mounted: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for parent := filepath.Dir(dir); parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", dir)
	return Start(t, "max_wal_size=32MB", "min_wal_size=32MB", "wal_recycle=off")
}
