//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A serviceManager acts as systemd does: it holds the socket, gets the
// notifications of serve, and starts it.
type serviceManager struct {
	socket  *os.File // passed to serve; nil: none
	notify  *net.UnixConn
	env     []string
	program string
	state   string
}

func newServiceManager(t *testing.T, socket net.Listener) *serviceManager {
	t.Helper()
	dir := shortDir(t)
	u := &serviceManager{program: programLink(t, dir), state: t.TempDir()}
	address := filepath.Join(dir, "notify")
	var err error
	if u.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.notify.Close() })
	u.env = append(os.Environ(), "NOTIFY_SOCKET="+address, "GORACE=atexit_sleep_ms=0")
	if socket != nil {
		if u.socket, err = socket.(interface{ File() (*os.File, error) }).File(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.socket.Close() })
		u.env = append(u.env, "LISTEN_FDS=1", "LISTEN_FDNAMES=fairshare")
	}
	return u
}

// start runs serve until it is ready, and returns the notifications until then.
func (u *serviceManager) start(t *testing.T, args ...string) (*serving, []string) {
	t.Helper()
	// The shell knows its own process id, which LISTEN_PID must have.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, u.program, "serve",
		"--state", u.state}, args...)...)
	cmd.Env = u.env
	if u.socket != nil {
		cmd.ExtraFiles = []*os.File{u.socket}
	}
	p := launch(t, cmd)
	return p, u.await(t, p, "READY=1")
}

// await returns the notifications of serve up to the first one that starts with
// last.
func (u *serviceManager) await(t *testing.T, p *serving, last string) (all []string) {
	t.Helper()
	b := make([]byte, 8192)
	for u.notify.SetReadDeadline(time.Now().Add(2 * time.Minute)); ; {
		n, err := u.notify.Read(b)
		if err != nil {
			p.Process.Kill()
			log, _ := io.ReadAll(p.lines)
			t.Fatalf("serve did not send %s, but %q; its log:\n%s", last, all, log)
		}
		all = append(all, string(b[:n]))
		if strings.HasPrefix(all[len(all)-1], last) {
			return all
		}
	}
}

// stop ends serve and returns the rest of its log.
func (p *serving) stop(t *testing.T) string {
	t.Helper()
	p.Process.Signal(syscall.SIGTERM)
	log, err := io.ReadAll(p.lines)
	if err != nil {
		t.Error(err)
	}
	if code := p.exitCode(t); code != cli.ExitOK || strings.Contains(string(log), "cut off") {
		t.Errorf("exit code %d; log:\n%s", code, log)
	}
	return string(log)
}

// serve notifies systemd that it is ready, reloading, alive and stopping.
func TestServeNotifiesSystemd(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	policy := "listen: " + freeAddr(t) + "\nupstream: " + site.URL + "\n" + threeInAnHour
	path := writeFile(t, "site.yaml", policy)
	u := newServiceManager(t, nil)
	u.env = append(u.env, "WATCHDOG_USEC=100000")
	p, first := u.start(t, "-c", path)
	if len(first) != 1 || !regexp.MustCompile(`^READY=1\nSTATUS=http://127\.0\.0\.1:\d+ protects `+site.URL+
		` by 1 rule, enforcing$`).MatchString(first[0]) {
		t.Errorf("the first notification is %q", first)
	}
	reload := func(signal syscall.Signal, want string) {
		t.Helper()
		p.Process.Signal(signal)
		got := slices.DeleteFunc(u.await(t, p, "READY=1"), func(m string) bool { return m == "WATCHDOG=1" })
		if len(got) != 2 || !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`).MatchString(got[0]) ||
			!strings.HasPrefix(got[1], "READY=1\nSTATUS=http://") || !strings.HasSuffix(got[1], want) {
			t.Errorf("notifications %q, want %s", got, want)
		}
	}
	writeOver(t, path, "dry_run: true\n"+policy)
	reload(syscall.SIGHUP, ", dry run: every request passes")
	writeOver(t, path, "rules: nonsense")
	reload(syscall.SIGHUP, ", dry run: every request passes") // the old policy stays in force
	p.read(t, `(nothing has changed)`)
	writeOver(t, path, policy)
	reload(syscall.SIGHUP, ", enforcing")

	for range 3 {
		if got := u.await(t, p, "WATCHDOG=1"); len(got) != 1 {
			t.Errorf("notifications between two beats: %q", got)
		}
	}
	p.stop(t)
	last := slices.DeleteFunc(u.await(t, p, "STOPPING=1"), func(m string) bool { return m == "WATCHDOG=1" })
	if len(last) != 1 || !strings.Contains(last[0], "\nEXTEND_TIMEOUT_USEC=") {
		t.Errorf("the last notification is %q", last)
	}
}

// Restarts on the socket of systemd lose nothing under load: each request is
// answered, and reaches the site once.
func TestRestartsUnderLoadLoseNoRequest(t *testing.T) {
	var received atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		io.Copy(w, r.Body)
	}))
	defer site.Close()
	cert, key, _ := newCertificate(t)
	for _, test := range []struct {
		name, network, policy string
		restarts              int
	}{
		{"TCP", "tcp", "", 10},
		{"Unix", "unix", "", 3},
		{"TLS", "tcp", fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key), 3},
		{"PROXY", "tcp", "proxy_protocol: true\nclients: {trusted_proxies: loopback}\n", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if test.network == "unix" {
				addr = filepath.Join(shortDir(t), "s")
			}
			socket, err := net.Listen(test.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			u := newServiceManager(t, socket)
			policy := writeFile(t, "site.yaml", "upstream: "+site.URL+"\n"+test.policy+
				"rules:\n  - name: many\n    limit: {requests: 10000000, per: 1m}\n")
			at := "http://site.example/"
			if strings.HasPrefix(test.policy, "tls") {
				at = "https://site.example/"
			}
			dial := func(context.Context, string, string) (net.Conn, error) {
				conn, err := net.Dial(test.network, socket.Addr().String())
				if err == nil && test.name == "PROXY" {
					_, err = io.WriteString(conn, "PROXY TCP4 192.0.2.7 192.0.2.1 7 80\r\n")
				}
				return conn, err
			}
			received.Store(0)
			var answered atomic.Int64
			var clients sync.WaitGroup
			over := make(chan struct{})
			for i := range 8 {
				// If a kept connection ends without a byte of an answer, the client
				// repeats the request on another one: http.Transport does this as
				// browsers do.
				client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
					DialContext: dial, DisableKeepAlives: i%2 == 0,
					TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				}}
				clients.Go(func() {
					defer client.CloseIdleConnections()
					for n := 0; ; n++ {
						select {
						case <-over:
							return
						default:
						}
						want := fmt.Sprintf("%d of %d", n, i)
						req, _ := http.NewRequest("PUT", at, strings.NewReader(want))
						req.Header["Idempotency-Key"] = nil // http.Transport may repeat it; the header is not sent
						resp, err := client.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if resp.StatusCode != 200 || string(body) != want || err != nil {
							t.Errorf("%s %q %v, want %q", resp.Status, body, err, want)
							return
						}
						answered.Add(1)
					}
				})
			}
			for n := range test.restarts + 1 {
				p, _ := u.start(t, "-c", policy)
				if n == 0 {
					p.read(t, `(listens on the socket that systemd handed over)`)
				}
				for before := answered.Load(); answered.Load() < before+100 && !t.Failed(); {
					time.Sleep(time.Millisecond)
				}
				if n == test.restarts {
					close(over)
					clients.Wait()
				}
				p.stop(t)
				u.await(t, p, "STOPPING=1")
			}
			if received.Load() != answered.Load() {
				t.Errorf("%d requests were answered, the site had %d", answered.Load(), received.Load())
			}
			t.Logf("%d restarts, %d requests, all answered", test.restarts, answered.Load())
		})
	}
}

// A restart does not wait for event streams: their clients connect again, to
// the successor.
func TestRestartDoesNotWaitForEventStreams(t *testing.T) {
	t.Parallel()
	site := eventStreamSite(t)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	u := newServiceManager(t, socket)
	policy := writeFile(t, "site.yaml", "grace: 1h\nupstream: "+site.URL+"\nrules: []\n")
	for range 2 {
		p, _ := u.start(t, "-c", policy)
		openEventStream(t, "http://"+socket.Addr().String())
		p.stop(t)
		u.await(t, p, "STOPPING=1")
	}
}

// systemd-socket-activate starts serve at the first connection.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	activate := need(t, "systemd-socket-activate", "systemd")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "here")
	}))
	defer site.Close()
	u := newServiceManager(t, nil)
	for _, listen := range []string{freeAddr(t), filepath.Join(shortDir(t), "s")} {
		network := "tcp"
		if strings.HasPrefix(listen, "/") {
			network = "unix"
		}
		startServer(t, syscall.SIGTERM, []string{activate, "--listen", listen, "--fdname", "fairshare", u.program,
			"serve", "--state", u.state, "--upstream", site.URL}, listen)
		client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
			string) (net.Conn, error) {
			return net.Dial(network, listen)
		}}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("http://site.example/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "here" || err != nil {
			t.Errorf("at %s: %s %q, %v", listen, resp.Status, body, err)
		}
	}
}

// serve reports sockets from systemd that it cannot use.
func TestUnusableSocketsAreErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	u := newServiceManager(t, nil)
	for _, test := range []struct {
		of       any
		fds      int
		upstream string
		want     string
	}{
		{listener, 2, "http://127.0.0.1:1", "there are 2 sockets, 0 of them named fairshare\nhint: serve takes one"},
		{datagrams, 1, "http://127.0.0.1:1", "it is a datagram socket\nhint: ListenStream="},
		{listener, 1, "http://" + listener.Addr().String(), "is the address of fairshare itself\nhint: "},
	} {
		file, err := test.of.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, u.program, "serve", "--state", u.state,
			"--upstream", test.upstream)
		cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", test.fds))
		cmd.ExtraFiles = []*os.File{file, file}
		output, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(string(output), test.want) {
			t.Errorf("%v: %s, want %s", err, output, test.want)
		}
	}
}

// The units of deploy/ pass systemd's own checks and give a service few
// privileges.
func TestUnitsPassSystemdAnalyze(t *testing.T) {
	analyze := need(t, "systemd-analyze", "systemd")
	const program = "/usr/local/bin/fairshare"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lowPort := map[string]string{
		program:                          self,
		"#AmbientCapabilities=":          "AmbientCapabilities=",
		"#CapabilityBoundingSet=CAP_NET": "CapabilityBoundingSet=CAP_NET",
		"PrivateUsers=yes\nCapabilityBoundingSet=\n": "",
	}
	for _, test := range []struct {
		file     string
		changes  map[string]string
		exposure string // tenths, of 100
	}{
		{"systemd/fairshare.service", map[string]string{program: self}, "11"},
		{"systemd/one-file.service", map[string]string{program: self}, "11"},
		{"systemd/one-file.service", lowPort, "15"},
		{"nginx/fairshare.service", map[string]string{program: self}, "11"},
		{"systemd/fairshare-watch.service", map[string]string{program: self, "/usr/sbin/nft": self}, "16"},
	} {
		dir := t.TempDir()
		unit := filepath.Join(dir, "fairshare.service")
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		verify := func() string {
			cmd := exec.Command(analyze, "verify", "--man=no", unit)
			cmd.Env = append(os.Environ(), "SYSTEMD_LOG_TARGET=console", "SYSTEMD_UNIT_PATH="+dir+":")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Sprintf("%v: %s", err, out)
			}
			return string(out)
		}
		text := deployed(t, test.changes, test.file)
		write("fairshare.socket", deployed(t, nil, "systemd/fairshare.socket"))
		write("fairshare.service", text)
		if output := verify(); output != "" {
			t.Errorf("%s: %s", test.file, output)
		}
		out, err := exec.Command(analyze, "security", "--no-pager", "--offline=true", "--threshold="+test.exposure,
			unit).CombinedOutput()
		if err != nil {
			t.Errorf("%s is exposed more than %s of 100: %v\n%s", test.file, test.exposure, err, out)
		}
		write("fairshare.service", strings.Replace(text, "Type=notify", "Type=notified", 1))
		if output := verify(); !strings.Contains(output, "notified") {
			t.Errorf("of a faulty unit: %q", output)
		}
	}
}

// The command of the one-file example starts serve, and systemctl shows its
// status.
func TestOneFileExampleServes(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	addr := freeAddr(t)
	text := deployed(t, map[string]string{"127.0.0.1:8080": addr, "http://127.0.0.1:3000": site.URL},
		"systemd/one-file.service")
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/fairshare serve (.*)$`).FindStringSubmatch(text)
	if line == nil {
		t.Fatal("the unit has no ExecStart line")
	}
	u := newServiceManager(t, nil)
	p, notifications := u.start(t, strings.Fields(line[1])...)
	if !strings.Contains(notifications[len(notifications)-1], "STATUS=http://"+addr+" protects "+site.URL+" by ") {
		t.Errorf("notifications: %q", notifications)
	}
	p.stop(t)
}

// systemd-sysusers creates the user of the service.
func TestSysusersCreatesTheUser(t *testing.T) {
	sysusers := need(t, "systemd-sysusers", "systemd")
	root := t.TempDir()
	folder := filepath.Join(root, "etc", "sysusers.d")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "fairshare.conf"), []byte(deployed(t, nil, "systemd/sysusers.conf")),
		0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(sysusers, "--root="+root).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(root, "etc", "passwd"))
	if err != nil || !regexp.MustCompile(`(?m)^fairshare:.*:/var/lib/fairshare:/usr/sbin/nologin$`).Match(made) {
		t.Errorf("%v: %s", err, made)
	}
}
