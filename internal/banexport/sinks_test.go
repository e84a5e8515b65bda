package banexport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// need skips the test unless a program is installed.
func need(t *testing.T, program, packageName string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path = "/usr/sbin/" + program
		if _, err := os.Stat(path); err != nil {
			skip(t, fmt.Sprintf("%s is not installed: apt-get install %s", program, packageName))
		}
	}
	return path
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// inNamespace runs the test again in a network namespace of its own, as its root.
func inNamespace(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv("FAIRSHARE_TEST_NETNS") == t.Name() {
		return true
	}
	need(t, "nft", "nftables")
	if out, err := exec.Command("unshare", "-rn", "nft", "list", "ruleset").CombinedOutput(); err != nil {
		skip(t, fmt.Sprintf("a network namespace with nft is not possible here: %v: %s", err, out))
	}
	cmd := exec.Command("unshare", "-rn", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "FAIRSHARE_TEST_NETNS="+t.Name(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestNFTablesHoldsTheBans(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	now := time.Now()
	sink := &NFTables{Reject: true, Ports: []uint16{80, 443}, Now: time.Now} // the kernel has the same clock
	held := func() map[netip.Prefix]time.Duration {
		t.Helper()
		got, rules, err := elements([]byte(nft(t, "-j", "list", "table", "inet", "fairshare")))
		if err != nil || rules != 4 {
			t.Fatalf("%d rules, %v", rules, err)
		}
		return got
	}
	apply := func(check bool, bans ...Ban) {
		t.Helper()
		if err := sink.Apply(t.Context(), reduced(bans), check); err != nil {
			t.Fatal(err)
		}
	}
	one, two := ban("192.0.2.1/32", now.Add(10*time.Minute)), ban("2001:db8::/64", time.Time{})
	wide, narrow := ban("198.51.0.0/16", now.Add(time.Minute)), ban("198.51.100.0/24", now.Add(time.Hour))
	apply(true, one, two, wide, narrow, ban("198.51.100.7/32", now.Add(time.Hour)))
	if got := held(); len(got) != 3 || got[one.Prefix] < 9*time.Minute || got[two.Prefix] != 0 ||
		got[wide.Prefix] > time.Minute {
		t.Errorf("held %v", got)
	}
	// Changes are applied: an end, a new ban, a longer ban, the end of a wider one.
	one.Until = now.Add(time.Hour)
	apply(false, one, narrow, ban("203.0.113.5/32", now.Add(time.Minute)))
	if got := held(); len(got) != 3 || got[one.Prefix] < 59*time.Minute || got[narrow.Prefix] < 59*time.Minute {
		t.Errorf("held %v", got)
	}
	// Somebody removes a ban, adds another one, or removes all.
	for _, args := range [][]string{
		{"delete", "element", "inet", "fairshare", "ipv4", "{ 192.0.2.1 }"},
		{"add", "element", "inet", "fairshare", "ipv4", "{ 192.0.2.99 }"},
		{"flush", "ruleset"},
	} {
		nft(t, args...)
		apply(true, one, narrow)
		if got := held(); len(got) != 2 || got[one.Prefix] < 59*time.Minute {
			t.Errorf("after %v: held %v", args, got)
		}
	}
	// The next process finds the table of one that was killed, and makes it its own.
	next := &NFTables{Now: sink.Now}
	if err := next.Apply(t.Context(), []Ban{two}, true); err != nil {
		t.Fatal(err)
	}
	if got := held(); len(got) != 1 || strings.Contains(nft(t, "list", "ruleset"), "reject") {
		t.Errorf("held %v", got)
	}
	// Many bans.
	var many []Ban
	for i := range 20_000 {
		addr := netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)})
		many = append(many, Ban{Prefix: netip.PrefixFrom(addr, 32), Until: now.Add(time.Hour)})
	}
	err, calls := error(errMore), 0
	for ; errors.Is(err, errMore); calls++ {
		err = next.Apply(t.Context(), many, false)
	}
	if err != nil || calls > 30 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if err := next.Apply(t.Context(), many, true); err != nil {
		t.Fatal(err)
	}
	if got := held(); len(got) != len(many) {
		t.Errorf("%d are held", len(got))
	}
	if err := next.Clear(t.Context()); err != nil || nft(t, "list", "ruleset") != "" {
		t.Errorf("after Clear: %v", err)
	}
	// A transaction that was interrupted leaves an earlier one in the kernel.
	if err := next.Apply(t.Context(), []Ban{two}, true); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := next.Apply(ended, []Ban{one}, false); err == nil {
		t.Error("no error of an interrupted transaction")
	}
	if err := next.Clear(t.Context()); err != nil || nft(t, "list", "ruleset") != "" {
		t.Errorf("after an interruption and Clear: %v", err)
	}
}

// A banned client cannot connect to the ports, and everybody else can.
func TestNFTablesKeepsBannedClientsOut(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, args := range []string{"link set lo up", "addr add 203.0.113.1/24 dev lo", "addr add 203.0.113.9/32 dev lo",
		"addr add 203.0.113.10/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			skip(t, fmt.Sprintf("ip %s: %v: %s", args, err, out))
		}
	}
	reaches := func(from string, port int) bool {
		l, err := net.Listen("tcp", fmt.Sprintf("203.0.113.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		d := net.Dialer{Timeout: 500 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", l.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	for _, reject := range []bool{false, true} {
		sink := &NFTables{Reject: reject, Ports: []uint16{80}, Now: time.Now}
		if !reaches("203.0.113.9", 80) {
			t.Fatal("nobody is banned")
		}
		if err := sink.Apply(t.Context(), []Ban{ban("203.0.113.9/32", time.Now().Add(time.Minute))}, true); err != nil {
			t.Fatal(err)
		}
		if reaches("203.0.113.9", 80) || !reaches("203.0.113.9", 22) || !reaches("203.0.113.10", 80) {
			t.Errorf("reject %v: port 80 %v, other port %v, other client %v", reject, reaches("203.0.113.9", 80),
				reaches("203.0.113.9", 22), reaches("203.0.113.10", 80))
		}
		if err := sink.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissingProgramIsAClearError(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := (&NFTables{Now: time.Now}).Apply(t.Context(), nil, true)
	if err == nil || !strings.Contains(err.Error(), "nft is not installed") {
		t.Errorf("error %v", err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// status returns the status of GET / with the client in X-Client; 0 while nothing answers.
func status(addr, client string) int {
	req, _ := http.NewRequest("GET", "http://"+addr+"/", nil)
	req.Header.Set("X-Client", client)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// eventually waits until a client gets a status.
func eventually(t *testing.T, addr, client string, want int) {
	t.Helper()
	got := 0
	for range 100 {
		if got = status(addr, client); got == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s gets %d, want %d", client, got, want)
}

func start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

func TestNginxRefusesBannedClients(t *testing.T) {
	nginx := need(t, "nginx", "nginx-light")
	for _, geo := range []bool{false, true} {
		t.Run(fmt.Sprint("geo=", geo), func(t *testing.T) {
			t.Parallel()
			dir, addr := t.TempDir(), freePort(t)
			conf, file := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "bans.conf")
			rule, test := "include "+file+";", ""
			if geo {
				rule, test = "geo $banned { default 0; include "+file+"; }", "if ($banned) { return 403; }"
			}
			text := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log %[1]s/error.log; worker_processes 1;
events {}
http {
 access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
 uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
 set_real_ip_from 127.0.0.1; real_ip_header X-Client;
 %[2]s
 server { listen %[3]s; %[4]s location / { default_type text/plain; root %[1]s/www; } }
}`, dir, rule, addr, test)
			if err := os.Mkdir(filepath.Join(dir, "www"), 0o755); err != nil {
				t.Fatal(err)
			}
			os.WriteFile(filepath.Join(dir, "www", "index.html"), []byte("hello"), 0o644)
			os.Chmod(dir, 0o755)
			os.Chmod(filepath.Dir(dir), 0o755)
			if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			sink := &Nginx{Path: file, Geo: geo}
			if err := sink.Apply(t.Context(), nil, true); err != nil { // before nginx is started
				t.Fatal(err)
			}
			start(t, nginx, "-c", conf, "-p", dir)
			eventually(t, addr, "203.0.113.9", 200)
			sink.Reload = []string{nginx, "-c", conf, "-p", dir, "-s", "reload"}
			if err := sink.Apply(t.Context(), []Ban{ban("203.0.113.9/32", time.Now().Add(time.Hour)),
				ban("2001:db8::/64", time.Time{})}, true); err != nil {
				t.Fatal(err)
			}
			eventually(t, addr, "203.0.113.9", 403)
			eventually(t, addr, "2001:db8::5", 403)
			eventually(t, addr, "203.0.113.10", 200)
			if err := sink.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, addr, "203.0.113.9", 200)
		})
	}
}

func TestHAProxyRefusesBannedClients(t *testing.T) {
	haproxy := need(t, "haproxy", "haproxy")
	dir, addr := t.TempDir(), freePort(t)
	conf, file, socket := filepath.Join(dir, "haproxy.cfg"), filepath.Join(dir, "bans.map"), filepath.Join(dir, "s")
	text := fmt.Sprintf(`global
  stats socket %[1]s level admin
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
frontend web
  bind %[2]s
  http-request set-src hdr(x-client)
  http-request set-var(txn.banned) src,map_ip_int(%[3]s,0)
  http-request deny if { date,neg,add(txn.banned) -m int gt 0 }
  http-request return status 200
`, socket, addr, file)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	plain := &HAProxy{Path: file}
	if err := plain.Apply(t.Context(), []Ban{ban("203.0.113.7/32", time.Now().Add(time.Hour))}, true); err != nil {
		t.Fatal(err)
	}
	start(t, haproxy, "-f", conf)
	eventually(t, addr, "203.0.113.7", 403)
	eventually(t, addr, "203.0.113.9", 200)

	sink := &HAProxy{Path: file, Socket: socket}
	ends := time.Now().Add(3 * time.Second)
	bans := reduced([]Ban{ban("203.0.113.8/32", ends), ban("203.0.113.9/32", time.Now().Add(time.Hour)),
		ban("198.51.100.0/24", time.Time{})})
	if err := sink.Apply(t.Context(), bans, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, addr, "203.0.113.9", 403)
	eventually(t, addr, "198.51.100.77", 403)
	eventually(t, addr, "203.0.113.7", 200) // no longer banned
	eventually(t, addr, "203.0.113.8", 403)
	eventually(t, addr, "203.0.113.8", 200) // it ended by itself

	// Many bans, a longer one, and a map that somebody has changed.
	for i := range 3000 {
		bans = append(bans, ban(fmt.Sprintf("20.0.%d.%d/32", i>>8, i&255), time.Now().Add(time.Hour)))
	}
	bans = reduced(bans)
	bans[len(bans)-1].Until = time.Now().Add(2 * time.Hour)
	if err := sink.Apply(t.Context(), bans, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, addr, "20.0.11.100", 403)
	if _, err := sink.request(t.Context(), "clear map "+file+"\n", 1000); err != nil {
		t.Fatal(err)
	}
	eventually(t, addr, "203.0.113.9", 200)
	if err := sink.Apply(t.Context(), bans, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, addr, "203.0.113.9", 403)
	if err := sink.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, addr, "203.0.113.9", 200)
}

// The process before may have written the file, and nginx has not read it: the reload failed, or was not run.
func TestNginxReadsTheFileOfTheProcessBefore(t *testing.T) {
	program, log := script(t, `echo reload >> "$log"; [ -e "$log.ok" ]`)
	path := filepath.Join(t.TempDir(), "bans.conf")
	bans := []Ban{ban("192.0.2.1/32", time.Time{})}
	before := &Nginx{Path: path, Reload: []string{program}}
	if err := before.Apply(t.Context(), bans, true); err == nil {
		t.Error("no error of a reload that fails")
	}
	os.WriteFile(log+".ok", nil, 0o600)
	n := &Nginx{Path: path, Reload: []string{program}}
	for range 3 {
		if err := n.Apply(t.Context(), bans, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, log); got != "reload\nreload\n" {
		t.Errorf("ran %q", got)
	}
}

// script writes a program that appends its arguments to a log.
func script(t *testing.T, body string) (program, log string) {
	t.Helper()
	dir := t.TempDir()
	program, log = filepath.Join(dir, "tool"), filepath.Join(dir, "log")
	text := "#!/bin/sh\nlog=" + log + "\n" + body + "\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, log
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

func TestCommandRunsForEachBanAndItsEnd(t *testing.T) {
	program, log := script(t, `echo "$@" >> "$log"`)
	stored := filepath.Join(t.TempDir(), "exported.json")
	now := time.Now().Truncate(time.Second)
	open := func() *Command {
		return &Command{Ban: []string{program, "ban", "{prefix}", "{seconds}", "{rule}; rm -rf /"},
			Unban: []string{program, "unban", "{addr}"}, Path: stored, Now: func() time.Time { return now }}
	}
	c := open()
	one, two := ban("192.0.2.1/32", now.Add(time.Minute)), ban("198.51.100.0/24", time.Time{})
	if err := c.Apply(t.Context(), []Ban{one}, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), []Ban{one}, true); err != nil {
		t.Fatal(err)
	}
	if got := content(t, log); got != "ban 192.0.2.1/32 60 rapid; rm -rf /\n" {
		t.Errorf("ran %q", got)
	}
	// The process is killed; meanwhile the ban ends, and another one begins.
	c = open()
	if err := c.Apply(t.Context(), []Ban{two}, true); err != nil {
		t.Fatal(err)
	}
	if got := content(t, log); !strings.Contains(got, "unban 192.0.2.1\n") ||
		!strings.Contains(got, "ban 198.51.100.0/24 0 rapid; rm -rf /\n") {
		t.Errorf("ran %q", got)
	}
	if err := c.Clear(t.Context()); err != nil || !strings.Contains(content(t, log), "unban 198.51.100.0\n") {
		t.Errorf("after Clear: %v, ran %q", err, content(t, log))
	}
}

func TestCommandThatFailsOrHangsIsTriedAgain(t *testing.T) {
	program, log := script(t, `echo try >> "$log"; [ -e "$log.ok" ] || { echo broken >&2; exit 3; }`)
	c := &Command{Ban: []string{program}, Unban: []string{program}, Now: time.Now}
	bans := []Ban{ban("192.0.2.1/32", time.Time{})}
	if err := c.Apply(t.Context(), bans, false); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v", err)
	}
	os.WriteFile(log+".ok", nil, 0o600)
	if err := c.Apply(t.Context(), bans, true); err != nil || content(t, log) != "try\ntry\n" {
		t.Errorf("error %v, ran %q", err, content(t, log))
	}
	slow, _ := script(t, "sleep 60")
	c = &Command{Ban: []string{slow}, Unban: []string{slow}, Now: time.Now}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Apply(ctx, bans, false); err == nil || !strings.Contains(err.Error(), "did not end in time") {
		t.Errorf("error %v", err)
	}
}

// A program that has failed may have had its effect: the ban is tried again, and ended.
func TestCommandUnbansWhatItPossiblyBanned(t *testing.T) {
	program, log := script(t, `echo "$@" >> "$log"; [ "$1" = unban ] || { [ "$1" != hang ] || exec sleep 60; exit 3; }`)
	stored := filepath.Join(t.TempDir(), "exported.json")
	open := func(verb string) *Command {
		return &Command{Ban: []string{program, verb, "{addr}"}, Unban: []string{program, "unban", "{addr}"},
			Path: stored, Now: time.Now}
	}
	for _, verb := range []string{"ban", "hang"} {
		os.Remove(log)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := open(verb).Apply(ctx, []Ban{ban("192.0.2.1/32", time.Time{})}, false)
		cancel()
		if err == nil || content(t, log) != verb+" 192.0.2.1\n" {
			t.Fatalf("error %v, ran %q", err, content(t, log))
		}
		c := open(verb) // another process
		err = c.Apply(t.Context(), nil, true)
		if err != nil || !strings.HasSuffix(content(t, log), "\nunban 192.0.2.1\n") {
			t.Errorf("error %v, ran %q", err, content(t, log))
		}
		if got := content(t, stored); got != "[]" {
			t.Errorf("stored %s", got)
		}
	}
	// A program that could not be started had no effect.
	c := open("ban")
	c.Ban[0] = filepath.Join(t.TempDir(), "missing")
	if err := c.Apply(t.Context(), []Ban{ban("192.0.2.1/32", time.Time{})}, true); err == nil || len(c.last) != 0 {
		t.Errorf("error %v, possibly banned %v", err, c.last)
	}
}

// One that cannot be unbanned does not keep the others banned after a stop.
func TestCommandClearEndsTheBansAfterOneThatFails(t *testing.T) {
	program, log := script(t, `echo "$@" >> "$log"; [ "$*" != "unban 192.0.2.0" ]`)
	c := &Command{Ban: []string{program, "ban", "{addr}"}, Unban: []string{program, "unban", "{addr}"}, Now: time.Now}
	var bans []Ban
	for i := range mostInCall + 20 {
		bans = append(bans, ban(fmt.Sprintf("192.0.2.%d/32", i), time.Time{}))
	}
	for err := errMore; err != nil; {
		if err = c.Apply(t.Context(), bans, false); err != nil && !errors.Is(err, errMore) {
			t.Fatal(err)
		}
	}
	if err := c.Clear(t.Context()); err == nil || len(c.last) != 1 {
		t.Errorf("error %v, %d bans stay", err, len(c.last))
	}
	if n := strings.Count(content(t, log), "unban "); n > len(bans)+3 {
		t.Errorf("unban ran %d times", n)
	}
}

// HAProxy may have a prefix twice: it was started again between a change of the file and of its memory.
func TestHAProxyKeepsABanThatItHasTwice(t *testing.T) {
	until := time.Unix(1_900_000_000, 0)
	dir := t.TempDir()
	h := &HAProxy{Path: filepath.Join(dir, "bans.map"), Socket: filepath.Join(dir, "socket")}
	listener, err := net.Listen("unix", h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	held := []string{"192.0.2.1/32 1900000000", "192.0.2.1/32 1900000000", "192.0.2.2/32 1900000000"}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if strings.HasPrefix(line, "show map ") {
				for i, m := range held {
					fmt.Fprintf(conn, "0x%x %s\n", i+1, m)
				}
			}
			if rest, found := strings.CutPrefix(strings.TrimSpace(line), "del map "+h.Path+" "); found {
				held = slices.DeleteFunc(held, func(m string) bool { return strings.HasPrefix(m, rest+" ") })
			}
			io.WriteString(conn, "\n")
			conn.Close()
		}
	}()
	bans := []Ban{ban("192.0.2.1/32", until)}
	if err := h.Apply(t.Context(), bans, true); err != nil {
		t.Fatal(err)
	}
	left, err := h.read(t.Context())
	if err != nil || len(left) != 1 || left[0].Prefix != bans[0].Prefix {
		t.Errorf("error %v, the map has %v", err, left)
	}
}

// The end of a ban without an end says so too, after a kill.
func TestCommandUnbansAPermanentBanAfterAKill(t *testing.T) {
	program, log := script(t, `echo "$@" >> "$log"`)
	stored := filepath.Join(t.TempDir(), "exported.json")
	for _, bans := range [][]Ban{{ban("192.0.2.1/32", time.Time{})}, nil} {
		c := &Command{Ban: []string{program, "ban", "{seconds}", "{until}"},
			Unban: []string{program, "unban", "{seconds}", "{until}"}, Path: stored, Now: time.Now}
		if err := c.Apply(t.Context(), bans, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, log); got != "ban 0 0\nunban 0 0\n" {
		t.Errorf("ran %q", got)
	}
}

func TestCommandSetsDamagedBansAside(t *testing.T) {
	program, log := script(t, `echo "$@" >> "$log"`)
	for _, text := range []string{"", "{not json"} {
		os.Remove(log)
		stored := filepath.Join(t.TempDir(), "exported.json")
		if err := os.WriteFile(stored, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &Command{Ban: []string{program, "{addr}"}, Unban: []string{program}, Path: stored, Now: time.Now}
		bans := []Ban{ban("192.0.2.1/32", time.Time{})}
		if err := c.Apply(t.Context(), bans, true); err == nil || !strings.Contains(err.Error(), stored+".unusable") {
			t.Errorf("error %v", err)
		}
		if err := c.Apply(t.Context(), bans, true); err != nil || content(t, log) != "192.0.2.1\n" {
			t.Errorf("error %v, ran %q", err, content(t, log))
		}
		info, err := os.Stat(stored)
		if err != nil || info.Mode().Perm() != 0o600 || content(t, stored+".unusable") != text {
			t.Errorf("stored %v, %v", info, err)
		}
	}
}

func TestLinesReachAProgramThatStays(t *testing.T) {
	program, log := script(t, `while read -r line; do echo "$line" >> "$log"; [ "$line" != "unban 192.0.2.1/32" ] || exit 4; done; echo end >> "$log"`)
	now := time.Now().Truncate(time.Second)
	l := &Lines{Argv: []string{program}, Now: func() time.Time { return now }}
	one, two := ban("192.0.2.1/32", now.Add(time.Minute)), ban("192.0.2.2/32", now.Add(time.Minute))
	if err := l.Apply(t.Context(), []Ban{one, two}, true); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(t.Context(), []Ban{two}, false); err != nil {
		t.Fatal(err)
	}
	<-l.exit // it has failed
	if err := l.Apply(t.Context(), []Ban{two}, false); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("error %v", err)
	}
	if err := l.Apply(t.Context(), []Ban{two}, true); err != nil { // it is started again
		t.Fatal(err)
	}
	if err := l.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "reset\nban 192.0.2.1/32 60 rapid\nban 192.0.2.2/32 60 rapid\nunban 192.0.2.1/32\n" +
		"reset\nban 192.0.2.2/32 60 rapid\nunban 192.0.2.2/32\nend\n"
	if got := content(t, log); got != want {
		t.Errorf("got lines\n%s", got)
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	n := &Nginx{Path: filepath.Join(t.TempDir(), "missing", "bans.conf")}
	if err := n.Apply(t.Context(), nil, true); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}
