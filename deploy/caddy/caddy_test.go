package caddy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairshare/internal/serve"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
)

// isCaddy makes the test's own program Caddy with this module.
const isCaddy = "FAIRSHARE_TEST_IS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(isCaddy) != "" {
		os.Unsetenv(isCaddy)
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// A caddyProcess is a running Caddy.
type caddyProcess struct {
	cmd           *exec.Cmd
	listen, admin string
	config        string
	log           *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// find waits for a match of a pattern and returns its first group.
func (b *lockedBuffer) find(t *testing.T, pattern string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(b.String()); found != nil {
			return found[1]
		}
	}
	t.Fatalf("no %q in the log:\n%s", pattern, b.String())
	return ""
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// command returns a command of Caddy.
func command(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), isCaddy+"=1", "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home)
	return cmd
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// site is the part of a Caddyfile for one site.
func (p *caddyProcess) write(t *testing.T, site string) {
	write(t, p.config, fmt.Sprintf("{\nadmin %s\nauto_https off\ndefault_bind 127.0.0.1\n}\nhttp://:%s {\n%s\n}\n",
		p.admin, p.listen[strings.LastIndexByte(p.listen, ':')+1:], site))
}

// start runs Caddy with a site until the test ends.
func start(t *testing.T, site string) *caddyProcess {
	t.Helper()
	p := &caddyProcess{listen: freeAddr(t), admin: freeAddr(t), config: filepath.Join(t.TempDir(), "Caddyfile"),
		log: new(lockedBuffer)}
	p.write(t, site)
	p.cmd = command(t, "run", "--adapter", "caddyfile", "--config", p.config)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			p.cmd.Process.Kill()
			<-ended
			t.Error("Caddy did not stop")
		}
		if t.Failed() {
			t.Log(p.log)
		}
	})
	p.log.find(t, "(serving initial configuration)")
	return p
}

// reload loads the Caddyfile again, and returns the error of Caddy's command.
func (p *caddyProcess) reload(t *testing.T) error {
	t.Helper()
	out, err := command(t, "reload", "--adapter", "caddyfile", "--force", "--address", p.admin, "--config",
		p.config).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// upstream is a site with errors and large pages.
func upstream(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/missing/"):
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/big":
			w.Write(make([]byte, 400_000))
		case r.URL.Path == "/robots.txt":
			io.WriteString(w, "User-agent: *\nDisallow: /private/\n")
		}
		io.WriteString(w, "page")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const policy = `
clients: {trusted_proxies: [127.0.0.1]}
contact: shop@example.org
rules:
  - name: free
    match: {path: /free}
    allow: true
  - name: bad
    match: {user_agent: bad}
    block: true
  - name: errors
    match: {path: "/missing/*"}
    limit: {errors: 2, per: 1h, by: addr, statuses: [404]}
  - name: bytes
    match: {path: /big}
    limit: {bytes: 1MB, per: 1h, by: addr}
  - name: retries
    match: {path: "/gone/*"}
    limit: {requests: 2, per: 1h, algorithm: quiet}
    refund: 404
  - name: three
    limit: {requests: 3, per: 1h, algorithm: quiet}
`

// A sent request, and what its client gets, in one line.
type sent struct{ from, forwarded, method, path, agent string }

var reference = regexp.MustCompile(`\b[0-9a-z]{10}\b`)

func (s sent) do(t *testing.T, listen string) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest(s.method, "http://"+listen+s.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("User-Agent", s.agent)
	if s.forwarded != "" {
		req.Header.Set("X-Forwarded-For", s.forwarded)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	if resp.StatusCode == 429 || resp.StatusCode == 403 {
		text = fmt.Sprintf(" %s %s %s %q", resp.Header.Get("Retry-After"), resp.Header.Get("Cache-Control"),
			resp.Header.Get("Content-Type"), reference.ReplaceAllString(string(body), "REFERENCE"))
	}
	return fmt.Sprint(resp.StatusCode, text)
}

// sequence has requests of several clients; a reload is in its middle.
func sequence() (all []sent) {
	times := func(n int, s sent) {
		for i := range n {
			next := s
			next.path = strings.ReplaceAll(s.path, "%", fmt.Sprint(i))
			all = append(all, next)
		}
	}
	times(5, sent{"127.0.0.2", "", "GET", "/a?b=%", "curl"})
	times(2, sent{"127.0.0.2", "192.0.2.1", "GET", "/", "curl"}) // not a trusted proxy
	times(2, sent{"127.0.0.2", "", "HEAD", "/free", "curl"})
	times(4, sent{"127.0.0.3", "", "GET", "/missing/%", "curl"})
	times(5, sent{"127.0.0.4", "", "GET", "/big", "curl"})
	times(5, sent{"127.0.0.5", "", "GET", "/gone/%", "curl"})
	times(4, sent{"127.0.0.1", "192.0.2.7", "GET", "/", "curl"}) // of a trusted proxy
	times(4, sent{"127.0.0.1", "192.0.2.8, 192.0.2.9", "GET", "/", "curl"})
	times(1, sent{"127.0.0.6", "", "GET", "/x", "bad"})
	return all
}

// startServe runs fairshare serve with a policy file until the test ends.
func startServe(t *testing.T, path string) (addr string) {
	ctx, stop := context.WithCancel(context.Background())
	log, ended := new(lockedBuffer), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, serve.Options{Flags: serve.Flags{Policy: path, Listen: "127.0.0.1:0",
			Upstream: upstream(t)}, State: t.TempDir(), Now: time.Now, Stderr: log})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return log.find(t, `http://(\S+) protects`)
}

// Clients get the same answers from Caddy with the module as from serve, also after Caddy has loaded
// its configuration again in the middle.
func TestAnswersAreThoseOfServe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.yaml")
	write(t, path, policy)
	direct := startServe(t, path)
	site := fmt.Sprintf("fairshare {\npolicy %s\nstate %s/state\n}\nreverse_proxy %s\n", path, dir, upstream(t))
	front := start(t, site)
	for i, s := range sequence() {
		want, got := s.do(t, direct), s.do(t, front.listen)
		if got != want {
			t.Errorf("%d: %+v\n got %s\nwant %s", i, s, got, want)
		}
		if i%5 == 2 {
			front.write(t, strings.Replace(site, "reverse_proxy", "header X-Round "+fmt.Sprint(i)+"\nreverse_proxy", 1))
			if err := front.reload(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	front.log.find(t, `"logger":"(fairshare)","msg":"refused".*"rule":"three"`)
	if strings.Contains(front.log.String(), "b=4") {
		t.Error("the log has the query of a refused request")
	}
}

// What Caddy answers with its error routes counts with the status of the error.
func TestErrorsOfCaddyCount(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.yaml")
	write(t, path, "rules: [{name: e, limit: {errors: 2, per: 1h, by: addr, statuses: [404]}}]\n")
	front := start(t, fmt.Sprintf("fairshare {\npolicy %s\n}\nroot %s\nfile_server\nhandle_errors {\nrespond \"own page\"\n}\n", path,
		t.TempDir()))
	var got []string
	for range 4 {
		got = append(got, sent{"127.0.0.2", "", "GET", "/none", "curl"}.do(t, front.listen)[:3])
	}
	if want := "[404 404 429 429]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// The rules see the robots.txt that Caddy sends to clients.
func TestRobotsAreThoseOfTheSite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yaml")
	write(t, path, "rules: [{name: obey, match: {robots: disallowed}, block: true}]\n")
	front := start(t, fmt.Sprintf("fairshare {\npolicy %s\n}\nreverse_proxy %s\n", path, upstream(t)))
	bot := sent{"127.0.0.2", "", "GET", "/private/x", "GPTBot/1.2"}
	for end := time.Now().Add(time.Minute); bot.do(t, front.listen)[:3] != "403"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a bot gets a path that robots.txt disallows")
		}
	}
	bot.path = "/public"
	if got := bot.do(t, front.listen); got[:3] != "200" {
		t.Errorf("a path that is allowed: %s", got)
	}
}

// caddy validate shows faults of the policy with their positions, and opens no state folder.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "state")
	config := filepath.Join(dir, "Caddyfile")
	for _, c := range []struct{ policy, site, want string }{
		{policy, "fairshare {\npolicy PATH\nstate STATE\n}\n", "Valid configuration"},
		{policy, "fairshare /shop/* {\npolicy PATH\n}\n", "Valid configuration"},
		{policy, "fairshare\n", "Valid configuration"}, // the built-in policy
		{"rules:\n  - {name: a, alow: true}\n", "fairshare {\npolicy PATH\n}\n", "site.yaml:2:15: unknown key"},
		{policy, "fairshare {\npolicy PATH.none\n}\n", "no such file"},
		{policy, "fairshare {\npolicy PATH\npolicy PATH\n}\n", "policy is given twice"},
		{policy, "fairshare {\nlimit 3\n}\n", `fairshare has no \"limit\"`},
		{policy, "fairshare {\npolicy\n}\n", "wrong argument count"},
		{policy, "fairshare * other\n", "wrong argument count"},
		{policy, "fairshare PATH\n", "is a matcher for paths"},
		{policy, "route {\nfairshare {\npolicy PATH\nstate STATE\n}\nfairshare {\nstate STATE\n}\n}\n",
			"the same state folder"},
	} {
		write(t, path, c.policy)
		write(t, config, ":8080 {\n"+strings.NewReplacer("PATH", path, "STATE", state).Replace(c.site)+"}\n")
		out, err := command(t, "validate", "--adapter", "caddyfile", "--config", config).CombinedOutput()
		if (err == nil) != (c.want == "Valid configuration") || !strings.Contains(string(out), c.want) &&
			!strings.Contains(string(out), strings.ReplaceAll(c.want, `\`, "")) {
			t.Errorf("%s: %v, want %q in\n%s", c.site, err, c.want, out)
		}
		if _, err := os.Stat(state); err == nil {
			t.Errorf("%s: caddy validate has created the state folder", c.site)
		}
	}
}

// A reload puts the policy file in force as it is now. With a fault nothing changes. A policy that is
// not used any more is closed, and its counters are stored.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "site.yaml")
	const three = "rules: [{name: three, limit: {requests: 3, per: 1h, algorithm: quiet}}]\n"
	write(t, path, three)
	site := fmt.Sprintf("fairshare {\npolicy %s\nstate %s/state\n}\nrespond ok\n", path, dir)
	front := start(t, site)
	client := sent{"127.0.0.2", "", "GET", "/", "curl"}
	expect := func(when, status string) {
		t.Helper()
		if got := client.do(t, front.listen); got[:3] != status {
			t.Errorf("%s: %s, want %s", when, got, status)
		}
	}
	for range 3 {
		expect("at first", "200")
	}
	expect("the fourth", "429")
	write(t, path, "rules: [{name: three, limt: {}}]\n")
	if err := front.reload(t); err == nil || !strings.Contains(err.Error(), "site.yaml:1:") {
		t.Errorf("reload with a fault: %v", err)
	}
	expect("after a reload that failed", "429")
	write(t, path, strings.Replace(three, "requests: 3", "requests: 4", 1))
	if err := front.reload(t); err != nil {
		t.Fatal(err)
	}
	expect("with four", "200")
	expect("the fifth", "429")
	front.write(t, "respond ok\n")
	if err := front.reload(t); err != nil {
		t.Fatal(err)
	}
	expect("without fairshare", "200")
	front.write(t, site)
	if err := front.reload(t); err != nil {
		t.Fatal(err)
	}
	expect("with it again", "429") // the counters were stored
}

// Under load, with reloads, exactly the requests pass that the limit allows.
func TestReloadUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yaml")
	write(t, path, "rules: [{name: many, limit: {requests: 500, per: 1h, algorithm: quiet}}]\n")
	front := start(t, "fairshare {\npolicy "+path+"\n}\nrespond ok\n")
	var all sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	for range 8 {
		all.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for range 100 {
				resp, err := client.Get("http://" + front.listen + "/")
				status := 0
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					status = resp.StatusCode
				}
				mu.Lock()
				counts[status]++
				mu.Unlock()
			}
		})
	}
	for i := range 3 {
		front.write(t, fmt.Sprintf("fairshare {\npolicy %s\n}\nheader X-Round %d\nrespond ok\n", path, i))
		if err := front.reload(t); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if counts[200] != 500 || counts[429] != 300 {
		t.Errorf("got %v, want 500 that pass and 300 refused", counts)
	}
}
