//go:build unix

package main

import (
	"fmt"
	"io"
	"maps"
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
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"fairshare/policyfile"
)

// An authFront is a server of deploy/forward-auth.
type authFront struct {
	name   string
	logs   bool // it writes a log for --settle-from
	closed int  // the status of requests without an answer, if it fails closed
	start  func(t *testing.T, to authTest) (front runningFront)
}

// An authTest is what a server of deploy/forward-auth is started with.
type authTest struct {
	auth, site string // addresses
	log        string // for --settle-from
	closed     bool   // without an answer from auth, requests are refused: as the comments in the files say
}

// A runningFront is a server of deploy/forward-auth that runs.
type runningFront struct {
	listen string
	reopen func() // opens the log again, after it was renamed; nil: it cannot
}

// changes adds those that make a server fail closed.
func (to *authTest) changes(all, closed map[string]string) map[string]string {
	if to.closed {
		maps.Copy(all, closed)
	}
	return all
}

var authFronts = []authFront{
	{"nginx", true, 500, func(t *testing.T, to authTest) runningFront {
		listen, nginx := startAuthNginx(t, to.auth, to.site, to.log, to.changes(map[string]string{},
			map[string]string{"		proxy_intercept_errors on;\n		error_page 502 504 = @fairshare_down;\n": ""}))
		return runningFront{listen, func() { nginx.Signal(syscall.SIGUSR1) }}
	}},
	{"caddy", true, 502, func(t *testing.T, to authTest) runningFront {
		listen := freeAddr(t)
		_, port, _ := strings.Cut(listen, ":")
		config := deployed(t, to.changes(map[string]string{"127.0.0.1:9180": to.auth, "127.0.0.1:3000": to.site,
			"/var/log/caddy/fairshare.log": to.log,
			"\nshop.example {": "\n{\nadmin off\nauto_https off\nhttp_port " + port +
				"\ndefault_bind 127.0.0.1\n}\nhttp://shop.example {"}, map[string]string{
			"	handle_errors {\n		@down expression `{http.error.status_code} in [502, 503, 504]`\n" +
				"		reverse_proxy @down 127.0.0.1:3000\n	}\n": ""}), "forward-auth/Caddyfile")
		startServer(t, syscall.SIGTERM, []string{need(t, "caddy", "caddy"), "run", "--adapter", "caddyfile", "--config",
			writeFile(t, "Caddyfile", config)}, listen)
		return runningFront{listen: listen}
	}},
	{"ingress-nginx", false, 500, func(t *testing.T, to authTest) runningFront {
		listen := freeAddr(t)
		notes, _ := kubernetes(t, to.auth)
		if to.closed {
			notes["auth-snippet"] = strings.Replace(notes["auth-snippet"],
				"proxy_intercept_errors on;\nerror_page 502 504 = @fairshare_down;\n", "", 1)
		}
		// What the controller makes of the annotations.
		startNginxWith(t, fmt.Sprintf(`
access_log off;
server {
	listen %s;
	server_name shop.example;
	%s
	location = /_external-auth {
		internal;
		proxy_pass_request_body off;
		proxy_set_header Content-Length "";
		proxy_set_header X-Forwarded-Proto "";
		proxy_set_header Host fairshare.default.svc.cluster.local;
		proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
		proxy_set_header X-Original-Method $request_method;
		proxy_set_header X-Sent-From "nginx-ingress-controller";
		proxy_set_header X-Real-IP $remote_addr;
		proxy_set_header X-Forwarded-For $remote_addr;
		proxy_set_header X-Auth-Request-Redirect $request_uri;
		proxy_buffering off;
		proxy_buffer_size 4k;
		proxy_http_version 1.1;
		proxy_pass %s;
		%s
	}
	location / {
		auth_request /_external-auth;
		%s
		proxy_pass http://%s;
	}
}
`, listen, notes["server-snippet"], notes["auth-url"], notes["auth-snippet"], notes["configuration-snippet"],
			to.site), listen)
		return runningFront{listen: listen}
	}},
	{"haproxy", true, 503, func(t *testing.T, to authTest) runningFront {
		listen := freeAddr(t)
		script := authScript(t, to)
		socket, reopen := startSyslog(t, to.log)
		config := deployed(t, map[string]string{"127.0.0.1:3000": to.site, "/etc/haproxy/fairshare.lua": script,
			"log /dev/log": "log " + socket,
			":443 ssl crt /etc/haproxy/shop.example.pem alpn h2,http/1.1": listen}, "forward-auth/haproxy.cfg")
		startServer(t, syscall.SIGTERM, []string{need(t, "haproxy", "haproxy"), "-db", "-f",
			writeFile(t, "haproxy.cfg", config)}, listen)
		return runningFront{listen, reopen}
	}},
	{"apache", true, 503, func(t *testing.T, to authTest) runningFront {
		needFile(t, "/usr/share/lua/5.3/socket.lua", "lua-socket")
		listen := freeAddr(t)
		script := authScript(t, to)
		config := deployed(t, map[string]string{"127.0.0.1:3000": to.site,
			"/var/log/apache2/fairshare.log": to.log, "*:443": listen, "SSLEngine on": "",
			"SSLCertificateFile /etc/letsencrypt/live/shop.example/fullchain.pem":  "",
			"SSLCertificateKeyFile /etc/letsencrypt/live/shop.example/privkey.pem": "",
			"/etc/apache2/fairshare.lua":                                           script}, "forward-auth/apache.conf")
		apache := startServer(t, syscall.SIGTERM, apacheWith(t, listen, config, "lua"), listen)
		return runningFront{listen, func() { apache.Signal(syscall.SIGUSR1) }}
	}},
	{"traefik", true, 500, func(t *testing.T, to authTest) runningFront {
		program := os.Getenv("FAIRSHARE_TRAEFIK")
		if program == "" {
			t.Skip("FAIRSHARE_TRAEFIK=PROGRAM runs this test with a real Traefik 3")
		}
		listen, services := freeAddr(t), composed(t)
		args := []string{program, "--entrypoints.web.address=" + listen}
		for _, flag := range services["traefik"].Command {
			if strings.HasPrefix(flag, "--accesslog") {
				args = append(args, strings.Replace(flag, "/var/log/traefik/access.log", to.log, 1))
			}
		}
		const label = "traefik.http.middlewares.fairshare.forwardauth."
		labels := services["fairshare"].Labels
		config := fmt.Sprintf("http:\n  middlewares: {fairshare: {forwardAuth: {address: %q, authResponseHeaders: [%s]}}}\n"+
			"  routers: {site: {rule: %q, middlewares: [%s], service: site}}\n"+
			"  services: {site: {loadBalancer: {servers: [{url: %q}]}}}\n",
			strings.Replace(labels[label+"address"], "fairshare:9180", to.auth, 1), labels[label+"authresponseheaders"],
			services["site"].Labels["traefik.http.routers.site.rule"],
			services["site"].Labels["traefik.http.routers.site.middlewares"], "http://"+to.site)
		args = append(args, "--providers.file.filename="+writeFile(t, "dynamic.yaml", config))
		traefik := startServer(t, syscall.SIGTERM, args, listen)
		for { // it listens before it knows its routes
			req, _ := http.NewRequest("GET", "http://"+listen+"/traefik-has-started", nil)
			req.Host = "shop.example"
			resp, err := clientAt(t, "127.0.0.99").Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "404 page not found\n" {
				return runningFront{listen, func() { traefik.Signal(syscall.SIGUSR1) }}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}},
}

// A composeService is a service of a Compose file.
type composeService struct {
	Command []string
	Labels  map[string]string
}

// composed returns the services of deploy/forward-auth/compose.yaml.
func composed(t *testing.T) map[string]composeService {
	var compose struct{ Services map[string]composeService }
	if err := yaml.Unmarshal([]byte(deployed(t, nil, "forward-auth/compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	return compose.Services
}

// startSyslog writes what comes to a socket into a log, as rsyslog does.
func startSyslog(t *testing.T, log string) (socket string, reopen func()) {
	socket = filepath.Join(shortDir(t), "log")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *os.File {
		file, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Error(err)
		}
		return file
	}
	file := open()
	var mu sync.Mutex
	var running sync.WaitGroup
	running.Go(func() {
		message := make([]byte, 64<<10)
		for {
			n, err := conn.Read(message)
			if err != nil {
				return
			}
			text := string(message[:n]) // <134>Nov 23 20:00:00 haproxy-fairshare[17]: {…}
			text = text[strings.IndexByte(text, '>')+1:]
			mu.Lock()
			fmt.Fprintln(file, strings.TrimSpace(text[:15]+" front"+text[15:]))
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		conn.Close()
		running.Wait()
		file.Close()
	})
	return socket, func() {
		mu.Lock()
		defer mu.Unlock()
		file.Close()
		file = open()
	}
}

// kubernetes returns the annotations of the Ingress in deploy/forward-auth/kubernetes.yaml, with that address of
// fairshare auth, and the data of its ConfigMap.
func kubernetes(t *testing.T, auth string) (notes, data map[string]string) {
	text := deployed(t, map[string]string{"fairshare.default.svc.cluster.local:9180": auth},
		"forward-auth/kubernetes.yaml")
	notes = map[string]string{}
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var object struct {
			Data     map[string]string
			Metadata struct{ Annotations map[string]string }
		}
		if err := decoder.Decode(&object); err == io.EOF {
			return notes, data
		} else if err != nil {
			t.Fatal(err)
		}
		for name, note := range object.Metadata.Annotations {
			notes[strings.TrimPrefix(name, "nginx.ingress.kubernetes.io/")] = note
		}
		if object.Data != nil {
			data = object.Data
		}
	}
}

// The policy of the Kubernetes configuration is valid, and the middleware of the Compose file asks fairshare.
func TestForwardAuthInContainers(t *testing.T) {
	_, data := kubernetes(t, "fairshare:9180")
	if _, err := policyfile.Parse("fairshare.yaml", []byte(data["fairshare.yaml"])); err != nil {
		t.Error(err)
	}
	services := composed(t)
	address := services["fairshare"].Labels["traefik.http.middlewares.fairshare.forwardauth.address"]
	if address != "http://fairshare:9180/traefik" ||
		services["site"].Labels["traefik.http.routers.site.middlewares"] != "fairshare" {
		t.Errorf("%+v", services)
	}
	if !slices.Contains(services["traefik"].Command, "--accesslog.filepath="+services["fairshare"].Command[8]) {
		t.Error("fairshare does not read the log that Traefik writes")
	}
}

// authScript writes the Lua script of deploy/forward-auth.
func authScript(t *testing.T, to authTest) (path string) {
	host, port, _ := strings.Cut(to.auth, ":")
	return writeFile(t, "fairshare.lua", deployed(t, to.changes(map[string]string{
		`"127.0.0.1", 9180`: fmt.Sprintf("%q, %s", host, port)}, map[string]string{
		"fail_open = true": "fail_open = false"}), "forward-auth/fairshare.lua"))
}

// startAuthNginx runs nginx with its configuration in deploy/forward-auth, and more changes to it.
func startAuthNginx(t *testing.T, auth, site, log string, more map[string]string) (listen string, nginx *os.Process) {
	listen = freeAddr(t)
	changes := map[string]string{"127.0.0.1:9180": auth, "127.0.0.1:3000": site,
		"/var/log/nginx/access.log": "/dev/null", "/var/log/nginx/fairshare.log": log,
		"listen 443 ssl http2;": "listen " + listen + ";",
		"ssl_certificate /etc/letsencrypt/live/shop.example/fullchain.pem;":   "",
		"ssl_certificate_key /etc/letsencrypt/live/shop.example/privkey.pem;": "",
	}
	maps.Copy(changes, more)
	return listen, startNginxWith(t, deployed(t, changes, "forward-auth/nginx.conf"), listen)
}

const authPolicy = `
contact: shop@example.org
rules:
  - name: free
    match: {path: /free}
    allow: true
  - name: bad
    match: {user_agent: bad}
    block: true
  - name: own answer
    match: {path: /own}
    limit: {requests: 1, per: 1h, algorithm: quiet}
    answer: {status: 503, body: "Wait {wait}.", retry_after: 17s}
  - name: three
    limit: {requests: 3, per: 1h, algorithm: quiet}
`

// startAuth runs fairshare auth as a process.
func startAuth(t *testing.T, policy string, args ...string) *serving {
	t.Helper()
	return startJudge(t, policy, append([]string{"auth", "--listen", "127.0.0.1:0"}, args...)...)
}

// startJudge runs a command that answers questions, as a process. Its addr is the one for questions.
func startJudge(t *testing.T, policy string, args ...string) *serving {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"fairshare", args[0], "-c", writeFile(t, "site.yaml", policy)}, ownState(t, args[1:])...)
	p := launch(t, &exec.Cmd{Path: self, Args: args})
	p.addr = p.read(t, `https?://(\S+) answers`)
	p.read(t, `(journal: refusals)`)
	go io.Copy(io.Discard, p.lines)
	return p
}

func authSite(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(site.Close)
	return site
}

// An authAsk is a request and what its client gets, in one line.
type authAsk struct{ client, method, target, agent, accept, body string }

var reference = regexp.MustCompile(`\b[0-9a-z]{10}\b`)

func (a authAsk) send(t *testing.T, client *http.Client, listen string) string {
	t.Helper()
	req, err := http.NewRequest(a.method, "http://"+listen+a.target, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("User-Agent", a.agent)
	req.Header.Set("Accept", a.accept)
	for name, forged := range map[string]string{"X-Original-Method": "OPTIONS", "X-Original-URI": "/free",
		"X-Original-URL": "https://shop.example/free", "X-Forwarded-Method": "OPTIONS", "X-Forwarded-Uri": "/free",
		"X-Forwarded-Host": "free.example", "X-Forwarded-For": "203.0.113.7", "X-Real-IP": "203.0.113.7",
		"Fairshare-Answer": "200--0123456789abcdef"} {
		req.Header.Set(name, forged)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	if resp.StatusCode != 200 {
		text = reference.ReplaceAllString(text, "REFERENCE")
	}
	fields := ""
	for _, name := range []string{"Retry-After", "Cache-Control", "RateLimit-Policy", "Location", "Content-Type"} {
		if resp.StatusCode != 200 {
			fields += name + "=" + resp.Header.Get(name) + " "
		}
	}
	return fmt.Sprintf("%d %s%q", resp.StatusCode, fields, text)
}

// authSequence has requests of three clients.
func authSequence() (asks []authAsk) {
	for i := range 5 {
		for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
			asks = append(asks, authAsk{client, "GET", fmt.Sprintf("/a%%2Fb?c=%d", i), "curl", "*/*", ""})
		}
	}
	return append(asks,
		authAsk{"127.0.0.2", "GET", "/", "curl", "text/html", ""},
		authAsk{"127.0.0.2", "GET", "/", "curl", "application/json", ""},
		authAsk{"127.0.0.2", "HEAD", "/", "curl", "text/html", ""},
		authAsk{"127.0.0.2", "POST", "/", "curl", "*/*", strings.Repeat("body ", 2000)},
		authAsk{"127.0.0.2", "POST", "/free", "curl", "*/*", "a body"},
		authAsk{"127.0.0.2", "GET", "/free", "bad", "*/*", ""},
		authAsk{"127.0.0.4", "GET", "/x", "bad", "*/*", ""},
		authAsk{"127.0.0.4", "GET", "/own", "curl", "*/*", ""},
		authAsk{"127.0.0.4", "GET", "/own", "curl", "*/*", ""},
		authAsk{"127.0.0.4", "GET", "/robots.txt", "bad", "*/*", ""},
		authAsk{"127.0.0.5", "PUT", "/x//y/../z", "curl", "*/*", "a body"},
	)
}

// Behind each server of deploy/forward-auth, clients get the same answers as from serve.
func TestForwardAuthAnswersAsServe(t *testing.T) {
	t.Parallel()
	site := authSite(t)
	at := strings.TrimPrefix(site.URL, "http://")
	direct := startServe(t, strings.Replace(authPolicy, "rules:", "clients: {trusted_proxies: []}\nrules:", 1),
		"--upstream", site.URL)
	sequence := authSequence()
	clients := map[string]*http.Client{}
	for _, ask := range sequence {
		clients[ask.client] = clientAt(t, ask.client)
	}
	var want []string
	for _, ask := range sequence {
		want = append(want, ask.send(t, clients[ask.client], direct.addr))
	}
	type judge struct {
		name  string
		front authFront
		start func(t *testing.T) *serving
	}
	judges := []judge{{"nginx, serve", authFronts[0], func(t *testing.T) *serving {
		return startJudge(t, authPolicy, "serve", "--listen", "127.0.0.1:0", "--upstream", site.URL, "--auth",
			"127.0.0.1:0")
	}}}
	for _, front := range authFronts {
		judges = append(judges, judge{front.name, front, func(t *testing.T) *serving {
			return startAuth(t, authPolicy)
		}})
	}
	for _, j := range judges {
		t.Run(j.name, func(t *testing.T) {
			listen := j.front.start(t, authTest{auth: j.start(t).addr, site: at,
				log: filepath.Join(t.TempDir(), "x.log")}).listen
			for i, ask := range sequence {
				want := want[i]
				if j.name == "traefik" { // it cleans paths itself
					want = strings.Replace(want, "/x//y/../z", "/x/z", 1)
				}
				if got := ask.send(t, clients[ask.client], listen); got != want {
					t.Errorf("%d: %+.100v\n got %s\nwant %s", i, ask, got, want)
				}
			}
			passes := authAsk{"127.0.0.6", "GET", "/forbidden", "curl", "*/*", ""}
			if got := passes.send(t, clientAt(t, "127.0.0.6"), listen); !strings.Contains(got, "GET /forbidden") {
				t.Errorf("a 403 of the site: %s", got)
			}
		})
	}
}

// statusesFrom sends GET /x over connections of clients at these addresses, each so many times, and returns how
// often each status came; 0 is for requests without an answer.
func statusesFrom(t *testing.T, listen string, each int, during func(), addrs ...string) map[int]int {
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for _, addr := range addrs {
		client := clientAt(t, addr)
		all.Go(func() {
			for range each {
				req, _ := http.NewRequest("GET", "http://"+listen+"/x", nil)
				req.Host = "shop.example"
				status := 0
				if resp, err := client.Do(req); err == nil {
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
	during()
	all.Wait()
	return counts
}

func fourTimes(addr string) []string { return []string{addr, addr, addr, addr} }

// Under load over connections that are kept, exactly the requests pass that a limit allows, as with serve.
func TestForwardAuthUnderLoad(t *testing.T) {
	t.Parallel()
	site := authSite(t)
	for _, front := range authFronts {
		t.Run(front.name, func(t *testing.T) {
			auth := startAuth(t, "rules: [{name: many, limit: {requests: 150, per: 1h, algorithm: quiet}}]\n")
			listen := front.start(t, authTest{auth: auth.addr, site: strings.TrimPrefix(site.URL, "http://"),
				log: filepath.Join(t.TempDir(), "x.log"), closed: true}).listen
			got := statusesFrom(t, listen, 50, func() {}, append(fourTimes("127.0.0.2"), fourTimes("127.0.0.3")...)...)
			slow := got[front.closed] + got[504] // of a machine that is too busy to answer in time
			if got[200]+got[429]+slow != 400 || got[200] > 300 || got[200] < 300-slow || got[429] < 100-slow {
				t.Errorf("got %v, want 300 that pass and 100 refused", got)
			}
		})
	}
}

// While fairshare is stopped or gone, the shipped configurations let requests pass. With the changes that their
// comments name, no request passes.
func TestForwardAuthFailsOpenOrClosed(t *testing.T) {
	t.Parallel()
	site := authSite(t)
	for _, front := range authFronts {
		for _, closed := range []bool{false, true} {
			name, down := front.name+", open", 200
			if !closed && front.name == "traefik" {
				continue // it has no setting for that
			}
			if closed {
				name, down = front.name+", closed", front.closed
			}
			t.Run(name, func(t *testing.T) {
				auth := startAuth(t, "rules: [{name: none, match: {path: /x}, limit: {requests: 0, per: 1h}}]\n")
				listen := front.start(t, authTest{auth: auth.addr, site: strings.TrimPrefix(site.URL, "http://"),
					log: filepath.Join(t.TempDir(), "x.log"), closed: closed}).listen
				load := func(each int, during func()) map[int]int {
					return statusesFrom(t, listen, each, during, fourTimes("127.0.0.2")...)
				}
				expect := func(when string, got map[int]int, statuses ...int) {
					t.Helper()
					for status := range got {
						if !slices.Contains(statuses, status) {
							t.Errorf("%s: got %v, want only %v", when, got, statuses)
						}
					}
				}
				running := load(50, func() {})
				expect("running", running, 429, down) // a busy machine may not answer in time
				if running[429] < 100 {
					t.Errorf("running: got %v, want 429", running)
				}
				auth.Process.Signal(syscall.SIGSTOP)
				var status syscall.WaitStatus // the signal takes effect later
				_, err := syscall.Wait4(auth.Process.Pid, &status, syscall.WUNTRACED, nil)
				if err != nil || !status.Stopped() {
					t.Fatalf("not stopped: %v, %v", status, err)
				}
				stopped := []int{down}
				if down == 502 { // Caddy says what has failed
					stopped = append(stopped, 504)
				}
				expect("stopped", load(2, func() {}), stopped...)
				auth.Process.Signal(syscall.SIGCONT)
				expect("killed under load", load(100, func() { auth.Process.Kill() }), 429, down)
				expect("gone", load(10, func() {}), down)
			})
		}
	}
}
