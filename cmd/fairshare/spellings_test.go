package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// guardedPages are the pages of the site in this test, and the patterns of the
// rule that a policy has for each.
var guardedPages = map[string][]string{
	"/login":        {"/login"},
	"/login.php":    {"/login.php"},
	"/admin/page":   {"/admin/page"},
	"/static/a.css": {"/static/a.css"},
	"/view.php":     {"/view.php", "/view", "/view/*"}, // Apache's MultiViews serve view.php for these
}

// spellings returns the guarded pages in many spellings: with each prefix and
// suffix, and with each separator instead of a slash.
func spellings() (targets []string) {
	prefixes := []string{
		"", "/", "//", "/.", "/%2e", "/x/..", "/x//..", "/static/..", "/static/..;", "/static//..", "/static/%2e%2e",
		"/static/..%2f..", "/static/x/../..",
		"/static/a.css/../..", "/static;a=b/..", "/static/.;/..", "/static/%252e%252e", `/static\..`, "/static%5c..",
		"/static/%c0%ae%c0%ae",
		"//x", "//static", "///x", "//x:80", "//u@x", "//x//y", "//x/..", `/\x`, `\\x`, `/\static`, `\/x`, "/%2fx",
		"/%5cx", "//%2e%2e",
		"http://h", "http://h//x", `http://h\`, "http://h?x", "HTTP://h#", "http:", "http:/", "x", "/index.php",
		"/index.php/x/..", "/;a", "/;/",
	}
	separators := []string{
		"//", "///", "/./", "/%2e/", "/x/../", "/x/%2e%2e/", "/x/..;/", "/;a/", "/x;a/../", "/x//../", "/x%2f../",
		"/x/..%2f", "/x/.%2e/", "/x/..%5c",
		`\`, `/\`, `\/`, "%5c", "%2f", "/%2f", "%2F", "%252f", "%255c", "%c0%af", "%e0%80%af", "%u002f", ";/",
		";a=1/", ";a=1;b/", "/.;/", "/x/../x/../", "/static/../",
	}
	suffixes := []string{
		"", "/", "//", "/x", "/x.css", "//x", "/static/a.css", "/.", "/./", "/..;/x", "/x/..", "/x/../y.css", "/%2e",
		";", ";a=1", ";a.css", ";/x.css", "%3b", "%3ba.css",
		"?", "?x", "?/../x", "#", "#x", "#x.css", "#?x", "%23", "%23x.css", "%3f", "%3fx.css", "%00", "%00.css",
		"%00/x.css", "%09", "%0a", "%0d%0a", "%20", "%20/x",
		".", "..", "%2e", "./x.css", "::$DATA", `\`, `\x.css`, "%5c", "%5cx.css", "%5c..", "%2f", "%2fx.css", "%252f",
		"%252e", "%", "%zz", "%2", "%c0%ae", "%u002e", "%ff", ":80",
	}
	spelled := func(page string) []string {
		last := strings.LastIndexByte(page, '/') + 1
		letter := page[last]
		return []string{
			page, fmt.Sprintf("%s%%%02x%s", page[:last], letter, page[last+1:]),
			fmt.Sprintf("%s%%25%02x%s", page[:last], letter, page[last+1:]),
			page[:last] + strings.ToUpper(page[last:]), strings.Replace(page, ".", "%2e", 1),
			page[:last+1] + "%09" + page[last+1:],
		}
	}
	seen := map[string]bool{}
	add := func(target string) {
		if target != "" && !seen[target] {
			seen[target] = true
			targets = append(targets, target)
		}
	}
	for page := range guardedPages {
		for _, suffix := range suffixes {
			for _, prefix := range prefixes {
				add(prefix + page + suffix)
			}
			for _, separator := range separators {
				add(strings.ReplaceAll(page, "/", separator) + suffix)
				add("/" + strings.ReplaceAll(page[1:], "/", separator) + suffix)
			}
			for _, name := range spelled(page) {
				add(name + suffix)
				add("//x" + name + suffix)
			}
		}
	}
	add("/view/x")
	slices.Sort(targets)
	return targets
}

// If a server maps a request to a guarded page, the rule of that page matches;
// and an allow matches no request for another page. Every spelling is sent byte
// for byte to widely used servers.
func TestRulesMatchThePageThatServersSee(t *testing.T) {
	root := openDir(t, shortDir(t))
	for name, text := range map[string]string{
		"login": "/login", "admin/page": "/admin/page", "static/a.css": "/static/a.css", "login.php": "/login.php",
		"view.php":  "/view.php",
		"index.php": "<?php echo $_SERVER['PATH_INFO'] ?? '';",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	targets := spellings()
	if !required() { // a part of them will do
		for i := range targets[:len(targets)/16] {
			targets[i] = targets[i*16]
		}
		targets = targets[:len(targets)/16]
	}
	guards := newSpellingGuards(t)
	for name, start := range map[string]func(t *testing.T, root, addr string){
		"nginx": pagesOfNginx, "nginx locations": locationsOfNginx, "apache": pagesOfApache,
		"php": pagesOfPHP, "php parse_url": routerOfPHP, "node": routerOfNode, "python": routerOfPython,
	} {
		t.Run(name, func(t *testing.T) {
			addr := freeAddr(t)
			start(t, root, addr)
			guards.compare(t, addr, targets)
		})
	}
}

// spellingGuards are guards of policies that have a rule for each page.
type spellingGuards struct {
	pages     []string
	restricts [2]*fairshare.Guard // a dry block for each page; the second is for sites that pass over case
	allowed   []string
	allows    []*fairshare.Guard // one for each of allowed
}

func newSpellingGuards(t *testing.T) *spellingGuards {
	t.Helper()
	guard := func(p fairshare.Policy) *fairshare.Guard {
		limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		g, err := fairshare.NewGuard(&p, limiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	s := &spellingGuards{allowed: []string{"/static/*", "*.css", "/login", "/x/*"}}
	var rules []fairshare.Rule
	for page, patterns := range guardedPages {
		s.pages = append(s.pages, page)
		rules = append(rules, fairshare.Rule{Name: page, Match: fairshare.Match{Path: patterns},
			Action: fairshare.Block, DryRun: true})
	}
	s.restricts = [2]*fairshare.Guard{guard(fairshare.Policy{Rules: rules}),
		guard(fairshare.Policy{Rules: rules, FoldPaths: true})}
	for _, pattern := range s.allowed {
		s.allows = append(s.allows, guard(fairshare.Policy{Rules: []fairshare.Rule{{Name: "allow",
			Match: fairshare.Match{Path: []string{pattern}}, Action: fairshare.Allow}}}))
	}
	return s
}

// matched returns the rules of g that match a target.
func matched(t *testing.T, g *fairshare.Guard, target string) (rules []int) {
	req := fairshare.Request{Time: time.Now(), Method: "GET", Addr: netip.MustParseAddr("192.0.2.1")}
	req.SetTarget(target)
	v, err := g.Decide(t.Context(), &req)
	if err != nil {
		t.Error(err)
	}
	v.Matched(func(rule int) { rules = append(rules, rule) })
	if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: req.Time}); err != nil {
		t.Error(err)
	}
	return rules
}

// foldedMark begins a line of an answer that holds for sites that pass over
// case.
const foldedMark = "any case: "

// compare sends each target to the server at addr, and compares the pages that
// it sees with the rules that match.
func (s *spellingGuards) compare(t *testing.T, addr string, targets []string) {
	var seen, held atomic.Int64
	var all sync.WaitGroup
	next := make(chan string)
	for range 4 {
		all.Go(func() {
			client := rawClient{addr: addr}
			defer client.close()
			for target := range next {
				for line := range strings.Lines(client.send(t, target)) {
					page, folded := strings.CutPrefix(strings.TrimSuffix(line, "\n"), foldedMark)
					i := slices.Index(s.pages, page)
					if i < 0 {
						continue
					}
					seen.Add(1)
					g := s.restricts[0]
					if folded {
						g = s.restricts[1]
					}
					if !slices.Contains(matched(t, g, target), i) {
						t.Errorf("%q is %s to the server, and that rule was not asked", target, page)
					}
					for j, pattern := range s.allowed {
						if folded || len(matched(t, s.allows[j], target)) == 0 {
							continue
						}
						held.Add(1)
						before, after, star := strings.Cut(pattern, "*")
						if fits := strings.HasPrefix(page, before) && strings.HasSuffix(page, after) &&
							(star || page == pattern); !fits {
							t.Errorf("%q is %s to the server, and an allow of %s holds", target, page, pattern)
						}
					}
				}
			}
		})
	}
	for _, target := range targets {
		next <- target
	}
	close(next)
	all.Wait()
	t.Logf("%d targets; a page was seen %d times, an allow held %d times", len(targets), seen.Load(), held.Load())
	if seen.Load() < int64(len(targets)/50) || held.Load() == 0 {
		t.Error("these are too few: the test shows nothing")
	}
}

// A rawClient sends requests byte for byte, on one connection as long as the server keeps it.
type rawClient struct {
	addr   string
	conn   net.Conn // nil before the first request and after the server ended it
	answer *bufio.Reader
}

// send sends one request and returns the body of a 200.
func (c *rawClient) send(t *testing.T, target string) string {
	kept := c.conn != nil
	if !kept {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Error(err)
			return ""
		}
		c.conn, c.answer = conn, bufio.NewReader(conn)
	}
	c.conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)
	if _, err := c.answer.Peek(1); err != nil {
		c.close()
		if kept { // the server ended the connection after the answer before
			return c.send(t, target)
		}
		return ""
	}
	resp, err := http.ReadResponse(c.answer, nil)
	if err != nil {
		c.close()
		return "" // refused as it stands
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Close {
		c.close()
	}
	if resp.StatusCode != 200 {
		return ""
	}
	return string(body)
}

func (c *rawClient) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// pagesOfNginx serves files, and scripts with path info.
func pagesOfNginx(t *testing.T, root, addr string) {
	startNginx(t, addr, fmt.Sprintf(`root %s;
	location ~ \.php(/|$) {
		fastcgi_split_path_info ^(.+?\.php)(/.*)?$;
		include fastcgi_params;
		fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
		fastcgi_param PATH_INFO $fastcgi_path_info;
		fastcgi_pass unix:%s;
	}`, root, startPHP(t, 2)))
}

// locationsOfNginx answers with the location that nginx chose, as in front of
// an upstream.
func locationsOfNginx(t *testing.T, _, addr string) {
	var config strings.Builder
	for page := range guardedPages {
		fmt.Fprintf(&config, "location = %s { return 200 %s; }\n", page, page)
	}
	startNginx(t, addr, config.String()+"location / { return 404; }")
}

// openDir gives servers of another user access to a folder.
func openDir(t *testing.T, dir string) string {
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pagesOfApache(t *testing.T, root, addr string) {
	apache := need(t, "apache2", "apache2")
	dir, socket := shortDir(t), startPHP(t, 2)
	openDir(t, filepath.Dir(socket))
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`ServerRoot %[1]s
ServerName h
PidFile %[1]s/pid
ErrorLog /dev/stderr
LogLevel emerg
Listen %[2]s
User #%[5]d
Group #%[6]d
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
LoadModule negotiation_module /usr/lib/apache2/modules/mod_negotiation.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_fcgi_module /usr/lib/apache2/modules/mod_proxy_fcgi.so
TypesConfig /etc/mime.types
AddType application/x-httpd-php .php
AllowEncodedSlashes On
DocumentRoot %[3]s
<Directory %[3]s>
	Options +MultiViews
	MultiviewsMatch Any
	Require all granted
</Directory>
<FilesMatch "\.php$">
	SetHandler "proxy:unix:%[4]s|fcgi://localhost"
</FilesMatch>
`, dir, addr, root, socket, os.Geteuid(), os.Getegid())
	if os.Geteuid() == 0 { // Apache refuses to answer as root
		config = strings.Replace(strings.Replace(config, "User #0", "User www-data", 1), "Group #0", "Group www-data",
			1)
	}
	path := filepath.Join(dir, "apache.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startServer(t, syscall.SIGTERM, []string{apache, "-f", path, "-DFOREGROUND"}, addr)
}

// pagesOfPHP is PHP's own server with scripts only. For a file it would answer
// all paths below it too, such as "/login" for "/login/x".
func pagesOfPHP(t *testing.T, root, addr string) {
	scripts := t.TempDir()
	for _, name := range []string{"login.php", "view.php", "index.php"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(scripts, name)); err != nil {
			t.Fatal(err)
		}
	}
	root = scripts
	startServer(t, syscall.SIGTERM, []string{need(t, "php", "php-cli"), "-S", addr, "-t", root}, addr)
}

// routerOfPHP is an application that finds its page with parse_url.
func routerOfPHP(t *testing.T, _, addr string) {
	router := writeFile(t, "router.php", `<?php
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
echo $path, "\n", rawurldecode((string) $path), "\n", rtrim(rawurldecode((string) $path), "\0 \n"), "\n";
`)
	startServer(t, syscall.SIGTERM, []string{need(t, "php", "php-cli"), "-S", addr, router}, addr)
}

// routerOfNode is an application that finds its page with the URL class, also
// without case as Express does.
func routerOfNode(t *testing.T, _, addr string) {
	router := writeFile(t, "router.js", fmt.Sprintf(`
require("http").createServer((req, res) => {
	const seen = [req.url.split("?")[0]];
	try { seen.push(new URL(req.url, "http://h").pathname); } catch {}
	for (const path of [...seen]) {
		try { seen.push(decodeURIComponent(path)); } catch {}
	}
	for (const path of [...seen]) {
		seen.push(require("path").posix.normalize(path), %q + path.toLowerCase());
	}
	res.end(seen.join("\n") + "\n");
}).listen(+process.argv[2].split(":")[1], "127.0.0.1");
`, foldedMark))
	startServer(t, syscall.SIGTERM, []string{need(t, "node", "nodejs"), router, addr}, addr)
}

// routerOfPython answers with the file that http.server would open and the path
// that urllib finds.
func routerOfPython(t *testing.T, root, addr string) {
	router := writeFile(t, "router.py", `
import sys, os, posixpath
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit, unquote

class Handler(SimpleHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1  # one connection, and one write for each answer
    def do_GET(self):
        seen = ["/" + os.path.relpath(self.translate_path(self.path), self.directory)]
        try:
            path = urlsplit(self.path).path
            seen += [path, unquote(path), posixpath.normpath(unquote(path))]
        except ValueError:
            pass
        body = "\n".join(seen).encode("utf-8", "surrogateescape") + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

host, port = sys.argv[1].split(":")
ThreadingHTTPServer((host, int(port)), lambda *args: Handler(*args, directory=sys.argv[2])).serve_forever()
`)
	startServer(t, syscall.SIGTERM, []string{need(t, "python3", "python3"), router, addr, root}, addr)
}
