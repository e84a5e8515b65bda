//go:build unix

package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"fairshare/policyfile"
)

// An authFront is a server of deploy/forward-auth.
type authFront struct {
	name  string
	start func(t *testing.T, auth, site, log string) (listen string)
}

var authFronts = []authFront{
	{"nginx", func(t *testing.T, auth, site, log string) string {
		listen, _ := startAuthNginx(t, auth, site, log, nil)
		return listen
	}},
	{"caddy", func(t *testing.T, auth, site, log string) string {
		listen := freeAddr(t)
		_, port, _ := strings.Cut(listen, ":")
		config := deployed(t, map[string]string{"127.0.0.1:9180": auth, "127.0.0.1:3000": site,
			"/var/log/caddy/fairshare.log": log,
			"\nshop.example {": "\n{\nadmin off\nauto_https off\nhttp_port " + port +
				"\ndefault_bind 127.0.0.1\n}\nhttp://shop.example {"}, "forward-auth/Caddyfile")
		startServer(t, syscall.SIGTERM, []string{need(t, "caddy", "caddy"), "run", "--adapter", "caddyfile", "--config",
			writeFile(t, "Caddyfile", config)}, listen)
		return listen
	}},
	{"ingress-nginx", func(t *testing.T, auth, site, _ string) string {
		listen := freeAddr(t)
		notes, _ := kubernetes(t, auth)
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
			site), listen)
		return listen
	}},
	{"haproxy", func(t *testing.T, auth, site, _ string) string {
		listen := freeAddr(t)
		script := authScript(t, auth)
		config := deployed(t, map[string]string{"127.0.0.1:3000": site, "/etc/haproxy/fairshare.lua": script,
			":443 ssl crt /etc/haproxy/shop.example.pem alpn h2,http/1.1": listen}, "forward-auth/haproxy.cfg")
		startServer(t, syscall.SIGTERM, []string{need(t, "haproxy", "haproxy"), "-db", "-f",
			writeFile(t, "haproxy.cfg", config)}, listen)
		return listen
	}},
	{"apache", func(t *testing.T, auth, site, _ string) string {
		needFile(t, "/usr/share/lua/5.3/socket.lua", "lua-socket")
		listen := freeAddr(t)
		script := authScript(t, auth)
		config := deployed(t, map[string]string{"127.0.0.1:3000": site, "*:443": listen, "SSLEngine on": "",
			"SSLCertificateFile /etc/letsencrypt/live/shop.example/fullchain.pem":  "",
			"SSLCertificateKeyFile /etc/letsencrypt/live/shop.example/privkey.pem": "",
			"/etc/apache2/fairshare.lua":                                           script}, "forward-auth/apache.conf")
		startServer(t, syscall.SIGTERM, apacheWith(t, listen, config, "lua"), listen)
		return listen
	}},
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
	var compose struct {
		Services map[string]struct{ Labels map[string]string }
	}
	if err := yaml.Unmarshal([]byte(deployed(t, nil, "forward-auth/compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	address := compose.Services["fairshare"].Labels["traefik.http.middlewares.fairshare.forwardauth.address"]
	if address != "http://fairshare:9180/traefik" ||
		compose.Services["site"].Labels["traefik.http.routers.site.middlewares"] != "fairshare" {
		t.Errorf("%+v", compose)
	}
}

// authScript writes the Lua script of deploy/forward-auth for that address of fairshare auth.
func authScript(t *testing.T, auth string) (path string) {
	host, port, _ := strings.Cut(auth, ":")
	return writeFile(t, "fairshare.lua", deployed(t, map[string]string{
		`"127.0.0.1", 9180`: fmt.Sprintf("%q, %s", host, port)}, "forward-auth/fairshare.lua"))
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
			listen := j.front.start(t, j.start(t).addr, at, filepath.Join(t.TempDir(), "x.log"))
			for i, ask := range sequence {
				if got := ask.send(t, clients[ask.client], listen); got != want[i] {
					t.Errorf("%d: %+.100v\n got %s\nwant %s", i, ask, got, want[i])
				}
			}
			passes := authAsk{"127.0.0.6", "GET", "/forbidden", "curl", "*/*", ""}
			if got := passes.send(t, clientAt(t, "127.0.0.6"), listen); !strings.Contains(got, "GET /forbidden") {
				t.Errorf("a 403 of the site: %s", got)
			}
		})
	}
}

// While fairshare is stopped or gone, the shipped configurations let requests pass.
func TestForwardAuthFailsOpen(t *testing.T) {
	t.Parallel()
	site := authSite(t)
	for _, front := range authFronts {
		t.Run(front.name, func(t *testing.T) {
			auth := startAuth(t, "rules: [{name: none, match: {path: /x}, limit: {requests: 0, per: 1h}}]\n")
			listen := front.start(t, auth.addr, strings.TrimPrefix(site.URL, "http://"),
				filepath.Join(t.TempDir(), "x.log"))
			// load sends requests over four connections, and returns the statuses.
			load := func(each int, during func()) (passed, refused, other int64) {
				var counts [3]atomic.Int64
				var all sync.WaitGroup
				for range 4 {
					client := clientAt(t, "127.0.0.2")
					all.Go(func() {
						for range each {
							req, _ := http.NewRequest("GET", "http://"+listen+"/x", nil)
							req.Host = "shop.example"
							resp, err := client.Do(req)
							if err != nil {
								counts[2].Add(1)
								continue
							}
							io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
							switch resp.StatusCode {
							case 200:
								counts[0].Add(1)
							case 429:
								counts[1].Add(1)
							default:
								counts[2].Add(1)
							}
						}
					})
				}
				during()
				all.Wait()
				return counts[0].Load(), counts[1].Load(), counts[2].Load()
			}
			if passed, refused, other := load(50, func() {}); passed != 0 || other != 0 {
				t.Errorf("running: %d passed, %d refused, %d neither", passed, refused, other)
			}
			auth.Process.Signal(syscall.SIGSTOP)
			var status syscall.WaitStatus // the signal takes effect later
			_, err := syscall.Wait4(auth.Process.Pid, &status, syscall.WUNTRACED, nil)
			if err != nil || !status.Stopped() {
				t.Fatalf("not stopped: %v, %v", status, err)
			}
			if passed, refused, other := load(2, func() {}); refused != 0 || other != 0 {
				t.Errorf("stopped: %d passed, %d refused, %d neither", passed, refused, other)
			}
			auth.Process.Signal(syscall.SIGCONT)
			if passed, refused, other := load(100, func() { auth.Process.Kill() }); other != 0 {
				t.Errorf("killed under load: %d passed, %d refused, %d neither", passed, refused, other)
			}
			if passed, refused, other := load(10, func() {}); refused != 0 || other != 0 {
				t.Errorf("gone: %d passed, %d refused, %d neither", passed, refused, other)
			}
		})
	}
}
