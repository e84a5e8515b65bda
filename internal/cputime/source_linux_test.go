package cputime

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// named is a finder with processes set by a test.
type named struct {
	pids []int
	err  error
}

func (n *named) find(bool) ([]int, error) { return n.pids, n.err }

// shell starts a shell that runs this test binary as a helper, which uses CPU time and ends, and
// that reports when it did.
func shell(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Env = append(os.Environ(), "CPUTIME_UPSTREAM=once", "ME="+os.Args[0])
	c.Stderr = os.Stderr
	return c
}

// TestExitedChildrenAreCountedOnce: children that end between two samples, or after some samples,
// add up to the CPU time that their shell reports.
func TestExitedChildrenAreCountedOnce(t *testing.T) {
	c := shell(t,
		`read go; for i in 1 2 3; do "$ME" 60ms; "$ME" 5ms; done; "$ME" 80ms & "$ME" 40ms; wait; echo done; read end`)
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	tr := newTree(procRoot, &named{pids: []int{c.Process.Pid}})
	defer tr.close()
	var u usage
	if err := tr.read(&u); !errors.Is(err, errBaseline) {
		t.Fatal(err)
	}
	before, _ := processStat(t, c.Process.Pid)
	fmt.Fprintln(in, "go")
	done := make(chan struct{})
	go func() { out.Read(make([]byte, 16)); close(done) }()
	var used int64
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(7 * time.Millisecond):
		}
		if err := tr.read(&u); err != nil {
			t.Fatal(err)
		}
		used += u.used
	}
	own, waited := processStat(t, c.Process.Pid)
	want := own + waited - before
	if off := used - want; off < -40e6 || off > 40e6 { // ticks of 10 ms, user and system, of two sums
		t.Errorf("%v counted, the shell and its children used %v", time.Duration(used), time.Duration(want))
	}
	if used < int64(300*time.Millisecond) {
		t.Errorf("%v counted, the children burnt 315ms", time.Duration(used))
	}
	fmt.Fprintln(in, "end")
	c.Wait()
}

// processStat returns the CPU time of a process and of its children that ended.
func processStat(t *testing.T, pid int) (own, waited int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	st, ok := parseStat(text)
	if !ok {
		t.Fatalf("%q", text)
	}
	return st.own, st.waited
}

// TestRestart: when a pid file names a new process, the measurement starts again, without the CPU
// time that the new process used before.
func TestRestart(t *testing.T) {
	start := func() *exec.Cmd {
		c := shell(t, `"$ME" 30ms; echo ready; read end`)
		in, _ := c.StdinPipe()
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); c.Process.Kill(); c.Wait() })
		out.Read(make([]byte, 16))
		return c
	}
	file := filepath.Join(t.TempDir(), "pid")
	write := func(pid int) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr := newTree(procRoot, &pidFile{path: file})
	defer tr.close()
	var u usage
	if err := tr.read(&u); err == nil || !strings.Contains(err.Error(), "hint: ") {
		t.Errorf("without a pid file: %v", err)
	}
	first := start()
	write(first.Process.Pid)
	if err := tr.read(&u); !errors.Is(err, errBaseline) {
		t.Fatal(err)
	}
	if err := tr.read(&u); err != nil || u.used > int64(20*time.Millisecond) {
		t.Fatalf("%v, %v used by a process that sleeps", err, time.Duration(u.used))
	}
	second := start()
	write(second.Process.Pid)
	if err := tr.read(&u); !errors.Is(err, errBaseline) || u.used != 0 {
		t.Fatalf("%v, %d ns", err, u.used)
	}
	if err := tr.read(&u); err != nil || u.used > int64(20*time.Millisecond) {
		t.Fatalf("%v, %v used by a process that sleeps", err, time.Duration(u.used))
	}
	second.Process.Kill()
	second.Wait()
	if err := tr.read(&u); err == nil {
		t.Error("no error from a process that has ended")
	}
	if err := tr.read(&u); err == nil || errors.Is(err, errBaseline) {
		t.Errorf("a process that has ended: %v", err)
	}
	third := start()
	write(third.Process.Pid)
	if err := tr.read(&u); !errors.Is(err, errBaseline) {
		t.Errorf("after the restart: %v", err)
	}
}

func TestListenerIsFound(t *testing.T) {
	addr, pid := startUpstream(t, "threads")
	_, port, _ := net.SplitHostPort(addr)
	for _, at := range []string{addr, "localhost:" + port} {
		l, err := newListener(procRoot, at)
		if err != nil {
			t.Fatal(err)
		}
		if pids, err := l.find(false); err != nil || len(pids) != 1 || pids[0] != pid {
			t.Errorf("%s: %v, %v, want process %d", at, pids, err, pid)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	l, err := newListener(procRoot, path)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := l.find(false); err != nil || len(pids) != 1 || pids[0] != os.Getpid() {
		t.Errorf("%s: %v, %v, want this process, %d", path, pids, err, os.Getpid())
	}
}

func TestErrorsOfSources(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.Addr().String()
	closed.Close()
	for _, c := range []struct {
		name    string
		opts    Options
		sampler bool // reading may work later
		want    string
	}{
		{"no source", Options{}, false, "from a process or a cgroup"},
		{"nothing named", Options{From: Process}, false, "a pid file or the upstream's listening address is needed"},
		{"no cgroup named", Options{From: Cgroup}, false, "the cgroup is missing"},
		{"no port", Options{From: Process, Listening: "127.0.0.1"}, false, "missing port"},
		{"nobody listens", Options{From: Process, Listening: addr}, true, "hint: "},
		{"no pid file", Options{From: Process, PIDFile: "/nonexistent/pid"}, true, "hint: is the upstream running"},
		{"no cgroup", Options{From: Cgroup, Cgroup: "/no/such/group"}, true, "hint: systemd-cgls"},
		{"no service", Options{From: Cgroup, Cgroup: "no-such-thing"}, true, "hint: is the service running?"},
	} {
		s, err := Open(c.opts)
		if (s != nil) != c.sampler || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: sampler %v, error %v, want %q", c.name, s != nil, err, c.want)
		}
		if s == nil {
			continue
		}
		if again := s.source.read(&s.usage); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: then %v, want %v", c.name, again, err)
		}
	}
}

// A slow search on a busy machine is repeated soon, because meanwhile all requests are charged
// their own time.
func TestMissingProcessIsSearchedSoon(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		found bool
		want  time.Duration
	}{
		{time.Millisecond, true, socketsEvery},
		{time.Second, true, 5 * time.Minute},
		{time.Millisecond, false, socketsEvery},
		{time.Second, false, lostEvery},
	} {
		if got := pause(c.took, c.found); got != c.want {
			t.Errorf("after %v, found %v: %v, want %v", c.took, c.found, got, c.want)
		}
	}
}

// TestCgroupFiles reads cgroups of both versions, finds that of a service, and continues when one
// is created again.
func TestCgroupFiles(t *testing.T) {
	for _, c := range []struct{ name, folder, file, one, two, again string }{
		{"/system.slice/php.service", "system.slice/php.service", "cpu.stat", "usage_usec 1000\nuser_usec 5\n",
			"user_usec 7\nusage_usec 3500\nnew_key 1\n", "usage_usec 40\n"},
		{"php", "system.slice/php.service", "cpu.stat", "usage_usec 1000\n", "usage_usec 3500\n", "usage_usec 40\n"},
		{"app@1", "unified/system.slice/system-app.slice/app@1.service", "cpu.stat", "usage_usec 1000\n",
			"usage_usec 3500\n", "usage_usec 40\n"},
		{"php8.2-fpm", "cpu,cpuacct/system.slice/php8.2-fpm.service", "cpuacct.usage", "1000000\n", "3500000\n",
			"40000\n"},
	} {
		root := t.TempDir()
		folder := filepath.Join(root, c.folder)
		write := func(text string) {
			if err := os.WriteFile(filepath.Join(folder, c.file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cg := &cgroup{root: root, name: c.name}
		var u usage
		if err := cg.read(&u); err == nil {
			t.Fatalf("%s: found before it was made", c.name)
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		write(c.one)
		if err := cg.read(&u); !errors.Is(err, errBaseline) {
			t.Fatalf("%s: %v", c.name, err)
		}
		write(c.two)
		if err := cg.read(&u); err != nil || u.used != 2_500_000 {
			t.Errorf("%s: %d ns, %v, want 2500000", c.name, u.used, err)
		}
		write(c.again)
		if err := cg.read(&u); !errors.Is(err, errBaseline) || u.used != 0 {
			t.Errorf("%s created again: %d ns, %v", c.name, u.used, err)
		}
		write("nonsense")
		if err := cg.read(&u); err == nil || errors.Is(err, errBaseline) {
			t.Errorf("%s: nonsense was read: %v", c.name, err)
		}
		cg.close()
	}
}

// TestCgroupPathsStayBelow: no name leads outside the mount point of the cgroups.
func TestCgroupPathsStayBelow(t *testing.T) {
	cg := &cgroup{root: cgroupRoot}
	for name, want := range map[string]string{
		"/a/../../../etc":              "/etc",
		"../../etc":                    "/etc",
		cgroupRoot + "/a.slice/b":      "/a.slice/b",
		"user.slice/user-1000.slice/x": "/user.slice/user-1000.slice/x",
	} {
		cg.name = name
		if got, ok := cg.below(cgroupRoot); !ok || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, ok, want)
		}
	}
	for _, name := range []string{"/", "/..", cgroupRoot + "/"} {
		cg.name = name
		if got, ok := cg.below(cgroupRoot); ok {
			t.Errorf("%s: %s, want nothing: the processes of the whole machine are not an upstream", name, got)
		}
	}
}

// TestRealCgroup uses CPU time in its own cgroup, if the test may create one.
func TestRealCgroup(t *testing.T) {
	name := "/fairshare-test-" + strconv.Itoa(os.Getpid())
	var folder string
	for _, mount := range []string{"", "/unified", "/cpuacct", "/cpu,cpuacct"} {
		if _, err := os.Stat(cgroupRoot + mount + "/cgroup.procs"); err != nil {
			continue
		}
		if os.Mkdir(cgroupRoot+mount+name, 0o755) == nil {
			folder = cgroupRoot + mount + name
			break
		}
	}
	if folder == "" {
		t.Skip("a cgroup may not be made here: run as root, with /sys/fs/cgroup writable")
	}
	defer os.Remove(folder)
	s, err := Open(Options{From: Cgroup, Cgroup: name})
	if err != nil {
		t.Fatal(err)
	}
	cg := s.source.(*cgroup)
	c := shell(t, `echo 0 > `+folder+`/cgroup.procs && "$ME" 50ms && echo ready && read end`)
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	n, _ := out.Read(make([]byte, 16))
	var u usage
	err = cg.read(&u)
	in.Close()
	c.Wait()
	if n == 0 {
		t.Skip("a process may not be moved to a cgroup here")
	}
	if err != nil || u.processes != 1 {
		t.Fatalf("%v, %d processes, want the shell", err, u.processes)
	}
	if spent := int64(c.ProcessState.UserTime() + c.ProcessState.SystemTime()); u.used < int64(50*time.Millisecond) ||
		u.used > spent+int64(20*time.Millisecond) {
		t.Errorf("%v read, %v spent, 50ms burnt", time.Duration(u.used), time.Duration(spent))
	}
}

func TestParseListening(t *testing.T) {
	for line, want := range map[string]string{
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0000000000000000 100 0 0 10 0\n":                                              "127.0.0.1:8080 12345",
		"   1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0000000000000000 100 0 0 10 0\n": "[::]:80 77",
		"   2: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 78 1 0000000000000000 100 0 0 10 0\n": "127.0.0.1:80 78",
		"   3: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 5 1 0000000000000000 20 4 30 10 -1\n":                                                 "",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n":                                                                              "",
	} {
		at, inode, ok := parseListening([]byte(line))
		got := ""
		if ok {
			got = fmt.Sprint(at, " ", inode)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzParsePID(f *testing.F) {
	for _, text := range []string{"1234\n", " 42 ", "0", "-1", "99999999", "12 34", "", "7\nrest"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pid, err := parsePID(text)
		if err != nil {
			return
		}
		again, err := parsePID([]byte(strconv.Itoa(pid)))
		if pid < 1 || pid > maxPID || err != nil || again != pid {
			t.Errorf("%q: %d, again %d, %v", text, pid, again, err)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/stat")
	f.Add(own)
	f.Add([]byte(
		"7 (a) b) c) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 3 0 999 1000 10 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		st, ok := parseStat(line)
		if ok && (st.own < 0 || st.waited < 0 || st.began < 0) {
			t.Errorf("%q: %+v", line, st)
		}
	})
}

func TestParseStatOfOddNames(t *testing.T) {
	st, ok := parseStat([]byte("7 (a) b) c) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 3 0 999 1000 10 184\n"))
	if want := (procStat{parent: 1, own: 33 * tick, waited: 77 * tick, threads: 3, began: 999}); !ok || st != want {
		t.Errorf("%+v, %v, want %+v", st, ok, want)
	}
}

func FuzzParseCPUStat(f *testing.F) {
	f.Add([]byte("usage_usec 123\nuser_usec 1\nsystem_usec 2\n"), false)
	f.Add([]byte("456\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, v1 bool) {
		parse, format := parseCPUStat, func(ns int64) string { return fmt.Sprintf("usage_usec %d\n", ns/1000) }
		if v1 {
			parse, format = parseCPUAcct, func(ns int64) string { return strconv.FormatInt(ns, 10) }
		}
		ns, ok := parse(text)
		if !ok {
			return
		}
		if again, ok := parse([]byte(format(ns))); ns < 0 || !ok || again != ns {
			t.Errorf("%q: %d, again %d", text, ns, again)
		}
	})
}

func FuzzParseListening(f *testing.F) {
	f.Add([]byte(
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0 100 0 0 10 0\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if at, _, ok := parseListening(line); ok && (!at.Addr().IsValid() || at.Addr() != at.Addr().Unmap() ||
			at == (netip.AddrPort{})) {
			t.Errorf("%q: %v", line, at)
		}
	})
}

// BenchmarkReadTree reads a process with 32 children.
func BenchmarkReadTree(b *testing.B) {
	c := exec.Command("/bin/sh", "-c",
		`for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32; do sleep 60 & done; echo ready; read end; kill $(jobs -p)`)
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { in.Close(); c.Wait() }()
	out.Read(make([]byte, 16))
	tr := newTree(procRoot, &named{pids: []int{c.Process.Pid}})
	defer tr.close()
	var u usage
	tr.read(&u)
	b.ReportAllocs()
	for b.Loop() {
		if err := tr.read(&u); err != nil || u.processes != 33 {
			b.Fatal(err, u.processes)
		}
	}
}
