//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fairshare/bench/internal/stand"
)

// A peer is a kind of protection. start starts it with the web server, so that the site is at siteAddr,
// in a folder of its own; stop ends all of it.
type peer struct {
	name  string
	about string // its configuration
	quick bool
	needs []program
	start func(ctx context.Context, p *processes) error
}

// processes are the programs of one run of one peer.
type processes struct {
	dir     string
	site    *site
	options options
	all     []*stand.Process
}

func (p *processes) stop() {
	for i := len(p.all) - 1; i >= 0; i-- {
		p.all[i].Stop()
	}
	p.all = nil
}

func (p *processes) run(name string, args ...string) (*stand.Process, error) {
	proc, err := stand.Start(p.dir, name, args)
	if err == nil {
		p.all = append(p.all, proc)
	}
	return proc, err
}

func (p *processes) file(name string) string { return filepath.Join(p.dir, name) }

func allPeers(o options) []peer {
	peers := []peer{
		{name: "none", about: "nginx as Debian ships it",
			start: func(ctx context.Context, p *processes) error { return p.nginx(server{addr: siteAddr}) }},
		{name: "fairshare", quick: true, about: "serve --upstream, built from this folder, in front of nginx",
			start: func(ctx context.Context, p *processes) error {
				return p.fairshare(filepath.Join(filepath.Dir(os.Getenv(insideKey)), "fairshare"), o.policy)
			}},
	}
	if o.before != "" {
		peers = append(peers, peer{name: "before", quick: true,
			about: "the program of -before, with its built-in policy",
			start: func(ctx context.Context, p *processes) error { return p.fairshare(o.before, "") }})
	}
	return append(peers,
		peer{name: "limit_req", about: "10 requests of PHP a second with a burst of 20, and one login or XML-RPC request a second with a burst of 5",
			start: func(ctx context.Context, p *processes) error { return p.nginx(limitReq) }},
		peer{name: "fail2ban", about: "the jails for nginx, and one for wp-login.php and xmlrpc.php: 5 in 10 minutes, banned for 10 minutes",
			needs: []program{{"fail2ban-server", "fail2ban"}, {"nft", "nftables"}},
			start: func(ctx context.Context, p *processes) error { return p.fail2ban(ctx) }},
		peer{name: "crowdsec", about: "the collections nginx, base-http-scenarios, http-cve and wordpress, with the firewall bouncer",
			needs: []program{{"crowdsec", "crowdsec"}, {"crowdsec-firewall-bouncer", "crowdsec-firewall-bouncer"}},
			start: func(ctx context.Context, p *processes) error { return p.crowdsec(ctx) }},
		peer{name: "modsecurity", about: "the Core Rule Set at paranoia level 1, with the exclusions for WordPress",
			needs: []program{{"/usr/lib/nginx/modules/ngx_http_modsecurity_module.so", "libnginx-mod-http-modsecurity"},
				{"/usr/share/modsecurity-crs/owasp-crs.load", "modsecurity-crs"}},
			start: func(ctx context.Context, p *processes) error { return p.modsecurity() }},
	)
}

// A server is what differs between the configurations of nginx.
type server struct {
	addr   string
	main   string // at the top
	http   string // in the http block
	server string // in the server block
	php    string // in each location for PHP
	login  string // in the locations of wp-login.php and xmlrpc.php; empty: the same as php
}

const nginxConfig = `%[1]s
user root;
daemon off;
worker_processes auto;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log notice;
events { worker_connections 768; }
http {
	include /etc/nginx/mime.types;
	sendfile on;
	access_log %[2]s/access.log combined;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	%[3]s
	server {
		listen %[4]s backlog=4096;
		server_name site.example;
		root %[5]s/wordpress;
		index index.php;
		absolute_redirect off;
		client_max_body_size 64m;
		%[6]s
		location / { try_files $uri $uri/ /index.php?$args; }
		location ~ ^/(wp-login|xmlrpc)\.php$ {
			%[8]s
			%[9]s
		}
		location ~ \.php$ {
			%[7]s
			%[9]s
		}
	}
}
`

const fastcgi = `try_files $uri =404;
			include /etc/nginx/fastcgi_params;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_param HTTP_PROXY "";
			fastcgi_buffer_size 32k;
			fastcgi_buffers 8 32k;
			fastcgi_busy_buffers_size 64k;
			fastcgi_pass unix:%s/php.sock;`

func (s server) config(dir, site string) string {
	login := s.login
	if login == "" {
		login = s.php
	}
	return fmt.Sprintf(nginxConfig, s.main, dir, s.http, s.addr, site, s.server, s.php, login,
		fmt.Sprintf(fastcgi, site))
}

func (p *processes) nginx(s server) error {
	config, err := stand.Write(p.dir, "nginx.conf", s.config(p.dir, p.site.dir))
	if err != nil {
		return err
	}
	nginx, err := stand.Find("nginx")
	if err != nil {
		return err
	}
	proc, err := p.run("nginx", nginx, "-c", config, "-p", p.dir, "-e", "stderr")
	if err != nil {
		return err
	}
	return proc.Await("tcp", s.addr)
}

// fairshare starts serve with default settings in front of the web server.
func (p *processes) fairshare(program, policy string) error {
	inner := "127.0.0.1:8081"
	if err := p.nginx(server{addr: inner,
		// As deploy/nginx/inner.conf.
		server: "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on; keepalive_timeout 0;",
	}); err != nil {
		return err
	}
	args := []string{program, "serve", "--listen=" + siteAddr, "--upstream=http://" + inner,
		"--state=" + p.file("state")}
	if policy != "" {
		args = append(args, "--policy="+policy)
	}
	proc, err := stand.Fairshare(p.dir, "fairshare", args)
	if err == nil {
		p.all = append(p.all, proc)
	}
	return err
}

// limitReq follows the example of ngx_http_limit_req_module for the login, and "Rate Limiting with
// NGINX" of the makers of nginx for the site. Files of the disk have no limit.
var limitReq = server{
	addr: siteAddr,
	http: `limit_req_zone $binary_remote_addr zone=site:10m rate=10r/s;
	limit_req_zone $binary_remote_addr zone=login:10m rate=1r/s;`,
	php:   "limit_req zone=site burst=20 nodelay;",
	login: "limit_req zone=login burst=5;",
}

// fail2ban runs the jails of the package for nginx, and the jail that guides to WordPress show: it counts
// POST requests to wp-login.php that show the form again, and all to xmlrpc.php. Counts and times are the
// defaults of fail2ban.
func (p *processes) fail2ban(ctx context.Context) error {
	if err := p.nginx(limitReq); err != nil { // jail nginx-limit-req reads its refusals
		return err
	}
	config := p.file("fail2ban")
	if err := copyTree("/etc/fail2ban", config); err != nil {
		return err
	}
	enabled, _ := filepath.Glob(filepath.Join(config, "jail.d", "*"))
	for _, path := range enabled { // sshd
		os.Remove(path)
	}
	for name, text := range map[string]string{
		"filter.d/range-wordpress.conf": `[Definition]
failregex = ^<HOST> .* "POST /+wp-login\.php[^"]*" 200
            ^<HOST> .* "POST /+xmlrpc\.php[^"]*"
`,
		"fail2ban.local": "[DEFAULT]\ndbfile = None\n",
		"jail.local": fmt.Sprintf(`[DEFAULT]
banaction = nftables-multiport
banaction_allports = nftables-allports
backend = auto
[nginx-http-auth]
enabled = true
logpath = %[1]s/error.log
[nginx-limit-req]
enabled = true
logpath = %[1]s/error.log
[nginx-botsearch]
enabled = true
logpath = %[1]s/access.log
[nginx-bad-request]
enabled = true
logpath = %[1]s/access.log
[range-wordpress]
enabled = true
port = http,https
filter = range-wordpress
logpath = %[1]s/access.log
`, p.dir),
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	program, err := stand.Find("fail2ban-server")
	if err != nil {
		return err
	}
	socket := p.file("fail2ban.sock")
	if _, err := p.run("fail2ban", program, "-f", "-x", "-c", config, "-s", socket, "-p", p.file("fail2ban.pid"),
		"--logtarget", p.file("fail2ban-server.log"), "start"); err != nil {
		return err
	}
	return await(ctx, 15*time.Second, func() error {
		status := exec.CommandContext(ctx, "fail2ban-client", "-s", socket, "status", "range-wordpress")
		out, err := status.CombinedOutput()
		if err != nil {
			return fmt.Errorf("fail2ban: %w\n%s", err, out)
		}
		return nil
	})
}

// crowdsec runs the agent and the bouncer of the packages with their defaults. Their folders below /etc
// and /var are copies in this namespace. Debian's package holds the hub, so no network is needed.
func (p *processes) crowdsec(ctx context.Context) error {
	if err := p.nginx(server{addr: siteAddr}); err != nil {
		return err
	}
	const etc, state = "/etc/crowdsec", "/var/lib/crowdsec"
	for _, folder := range []string{etc, state} {
		if err := hideFolder(folder, p.file("crowdsec"+strings.ReplaceAll(folder, "/", "-"))); err != nil {
			return err
		}
	}
	databases, _ := filepath.Glob(state + "/data/crowdsec.db*")
	for _, path := range databases {
		os.Remove(path)
	}
	hub := state + "/hub/scenarios/crowdsecurity/"
	for _, name := range []string{"http-bf-wordpress_bf.yaml", "http-bf-wordpress_bf_xmlrpc.yaml",
		"http-wordpress_wpconfig.yaml", "http-wordpress_user-enum.yaml"} {
		if err := os.Symlink(hub+name, etc+"/scenarios/"+name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	key := "range"
	for name, text := range map[string]string{
		etc + "/acquis.yaml": fmt.Sprintf("filenames: [%s/access.log, %[1]s/error.log]\nlabels: {type: nginx}\n", p.dir),
		etc + "/config.yaml.local": fmt.Sprintf("common: {daemonize: false, log_media: file, log_dir: %s/}\ndb_config: {use_wal: true}\n"+
			"api: {server: {online_client: {credentials_path: ''}}}\nprometheus: {enabled: false}\n", p.dir),
		etc + "/online_api_credentials.yaml": "",
		p.file("bouncer.yaml"): fmt.Sprintf(`mode: nftables
pid_dir: %[1]s/
update_frequency: 10s
daemonize: false
log_mode: file
log_dir: %[1]s/
log_level: info
api_url: http://127.0.0.1:8080/
api_key: %[2]s
disable_ipv6: true
deny_action: DROP
deny_log: false
supported_decisions_types: [ban]
nftables:
  ipv4: {enabled: true, set-only: false, table: crowdsec, chain: crowdsec-chain}
  ipv6: {enabled: false}
`, p.dir, key),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"machines", "add", "range", "--password", "range", "--force"},
		{"bouncers", "add", "range", "-k", key},
	} {
		if out, err := exec.CommandContext(ctx, "cscli", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("cscli %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	agent, err := stand.Find("crowdsec")
	if err != nil {
		return err
	}
	if _, err := p.run("crowdsec", agent, "-c", etc+"/config.yaml"); err != nil {
		return err
	}
	if err := await(ctx, 30*time.Second, func() error {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/decisions", nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Api-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("crowdsec: %w", err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("crowdsec answers %s", resp.Status)
		}
		return nil
	}); err != nil {
		return err
	}
	bouncer, err := stand.Find("crowdsec-firewall-bouncer")
	if err != nil {
		return err
	}
	_, err = p.run("bouncer", bouncer, "-c", p.file("bouncer.yaml"))
	return err
}

// modsecurity loads the module of the package with the Core Rule Set, set to refuse, with the exclusions
// for WordPress that its documentation recommends.
func (p *processes) modsecurity() error {
	recommended, err := os.ReadFile("/etc/nginx/modsecurity.conf")
	if err != nil {
		return err
	}
	rules := strings.NewReplacer(
		"SecRuleEngine DetectionOnly", "SecRuleEngine On",
		"SecUnicodeMapFile unicode.mapping", "SecUnicodeMapFile /etc/nginx/unicode.mapping",
		"/var/log/nginx/modsec_audit.log", p.file("modsec_audit.log"),
	).Replace(string(recommended))
	rules += `
SecAction "id:900130,phase:1,nolog,pass,t:none,setvar:tx.crs_exclusions_wordpress=1"
Include /etc/modsecurity/crs/crs-setup.conf
Include /etc/modsecurity/crs/REQUEST-900-EXCLUSION-RULES-BEFORE-CRS.conf
Include /usr/share/modsecurity-crs/rules/*.conf
Include /etc/modsecurity/crs/RESPONSE-999-EXCLUSION-RULES-AFTER-CRS.conf
`
	path, err := stand.Write(p.dir, "modsecurity.conf", rules)
	if err != nil {
		return err
	}
	return p.nginx(server{addr: siteAddr,
		main:   "load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;",
		server: "modsecurity on; modsecurity_rules_file " + path + ";"})
}

// await calls ready until it returns nil, for at most a time.
func await(ctx context.Context, limit time.Duration, ready func() error) error {
	end := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
