package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// A sandwich is the servers of deploy/nginx on other ports: nginx for the
// public, fairshare, and the same nginx again with php-fpm.
type sandwich struct {
	*running            // fairshare
	public, inner, root string
	log                 string // of the public server
	nginx               *os.Process
}

// startSandwich starts the servers of deploy/nginx with changes to its files.
func startSandwich(t *testing.T, workers int, changes map[string]string) *sandwich {
	t.Helper()
	socket := startPHP(t, workers)
	s := &sandwich{public: freeAddr(t), inner: freeAddr(t), root: phpSite(t),
		log: filepath.Join(t.TempDir(), "access.log")}
	fairshare, plain := freeAddr(t), freeAddr(t)
	cert, key, _ := newCertificate(t)
	all := map[string]string{
		"listen 80;":                                       "listen " + plain + ";",
		"listen [::]:80;":                                  "",
		"listen 443 ssl http2;":                            "listen " + s.public + " ssl http2;",
		"listen [::]:443 ssl http2;":                       "",
		"127.0.0.1:8080":                                   fairshare,
		"127.0.0.1:8081":                                   s.inner,
		"/var/www/shop.example":                            s.root,
		"/var/log/nginx/shop.example":                      strings.TrimSuffix(s.log, ".log"),
		"/run/php/php-fpm.sock":                            socket,
		"/etc/letsencrypt/live/shop.example/fullchain.pem": cert,
		"/etc/letsencrypt/live/shop.example/privkey.pem":   key,
	}
	policy := map[string]string{"127.0.0.1:8080": fairshare, "127.0.0.1:8081": s.inner}
	text := deployed(t, nil, "nginx/fairshare.yaml")
	for old, new := range changes {
		if strings.Contains(text, old) {
			policy[old] = new
		} else {
			all[old] = new
		}
	}
	conf := deployed(t, all, "nginx/fairshare.conf", "nginx/public.conf", "nginx/inner.conf")
	s.nginx = startNginxWith(t, conf, s.public, s.inner, plain)
	s.running = startServe(t, deployed(t, policy, "nginx/fairshare.yaml"), "--listen", fairshare)
	return s
}

// A visitor sends requests with curl and keeps cookies.
type visitor struct {
	t    *testing.T
	curl string
	args []string
	base string
}

// visitor returns a visitor with an address of this machine.
func (s *sandwich) visitor(t *testing.T, from string) *visitor {
	jar := filepath.Join(t.TempDir(), "jar")
	return &visitor{t, need(t, "curl", "curl"), []string{
		"-sS", "-k", "--max-time", "60", "--interface", from, "--connect-to", "shop.example:443:" + s.public,
		"-A", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"-b", jar, "-c", jar,
	}, "https://shop.example"}
}

// do runs curl for a path and returns its output.
func (v *visitor) do(path string, args ...string) string {
	v.t.Helper()
	all := append(append([]string{}, v.args...), args...)
	out, err := exec.Command(v.curl, append(all, v.base+path)...).Output()
	if err != nil {
		v.t.Fatalf("curl %s: %v\n%s", path, err, out)
	}
	return string(out)
}

// get checks that the answer, headers included, has a status and a text.
func (v *visitor) get(status int, want, path string, args ...string) {
	v.t.Helper()
	if got := v.do(path, append(args, "-i")...); statusOf(got) != status || !strings.Contains(got, want) {
		v.t.Errorf("%s: no %d with %q:\n%.600s", path, status, want, got)
	}
}

// statusOf returns the status of the last answer in the output of curl -i.
func statusOf(answer string) int {
	status := 0
	for block := range strings.SplitSeq(answer, "\r\n\r\n") {
		if !strings.HasPrefix(block, "HTTP/") {
			break
		}
		_, rest, _ := strings.Cut(block, " ")
		fmt.Sscan(rest, &status)
	}
	return status
}

// statuses requests a path n times in one run of curl, and counts the statuses.
func (v *visitor) statuses(n int, path string, args ...string) map[int]int {
	v.t.Helper()
	out := v.do(fmt.Sprintf("%s?n=[1-%d]", path, n), append(args, "-o", "/dev/null", "-w", "%{http_code}\n")...)
	counts := map[int]int{}
	for line := range strings.Lines(out) {
		status := 0
		fmt.Sscan(line, &status)
		counts[status]++
	}
	return counts
}

// A person uses the whole site and is never refused, while another client
// guesses passwords, is refused, and then banned.
func TestSandwichServesAPersonWhileAGuesserIsBanned(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 4, nil)
	person, guesser := s.visitor(t, "127.0.0.2"), s.visitor(t, "127.0.0.3")
	guess := []string{"-d", "log=admin&pwd=12345"}

	visit := func() {
		home := person.do("/")
		if strings.Count(home, "/wp-content/themes/plain/") != 60 {
			t.Fatalf("home page: %s", home)
		}
		for kind, n := range map[string]string{"css": "0-57:3", "js": "1-58:3", "png": "2-59:3"} {
			out := person.do("/wp-content/themes/plain/a["+n+"]."+kind+"?ver=6.4", "-Z", "-o", "/dev/null", "-w",
				"%{http_code}\n")
			if out != strings.Repeat("200\n", 20) {
				t.Errorf("assets: %s", out)
			}
		}
		person.get(301, "ocation: https://shop.example/2026/11/hello/\r\n", "/2026/11/hello")
		person.get(200, "<h1>Hello</h1>", "/2026/11/hello/")
		person.get(200, "<rss", "/feed/")
		person.get(404, "Not found", "/nowhere/")
	}
	visit()
	person.get(302, "ocation: https://shop.example/wp-login.php?redirect_to=%2Fwp-admin%2F\r\n", "/wp-admin/")
	person.get(200, "Wrong name or password", "/wp-login.php", "-d", "log=anna&pwd=correct+hoarse")

	guesser.do("/wp-login.php") // as tools do that fetch the form's cookie
	if got := guesser.statuses(10, "/wp-login.php", guess...); !maps.Equal(got, map[int]int{200: 10}) {
		t.Errorf("the first guesses: %v", got)
	}
	if got := guesser.statuses(25, "/wp-login.php", guess...); !maps.Equal(got, map[int]int{429: 25}) {
		t.Errorf("more guesses: %v", got)
	}
	s.stderr.wait(`"client":"127.0.0.3"[^\n]*"path":"/wp-login.php"[^\n]*"rule":"guessing for days"`)
	s.stderr.wait(`"client":"127.0.0.3"[^\n]*"ban":"(started)"`)
	guesser.get(429, "webmaster@shop.example", "/wp-login.php", guess...)

	person.get(302, "ocation: https://shop.example/wp-admin/\r\n", "/wp-login.php", "--data-urlencode", "log=anna",
		"--data-urlencode", "pwd=correct horse")
	person.get(200, "Welcome, anna", "/wp-admin/")
	for range 30 {
		person.get(200, `"action":"heartbeat"`, "/wp-admin/admin-ajax.php", "-d", "action=heartbeat")
	}
	person.get(302, "ocation: https://shop.example/2026/11/hello/#comment-1\r\n", "/wp-comments-post.php", "-d",
		"comment=nice")

	picture := make([]byte, 5<<20)
	for i := range picture {
		picture[i] = byte(i * 31)
	}
	sum := sha256.Sum256(picture)
	file := writeFile(t, "picture.jpg", string(picture))
	person.get(200, `"size":5242880,"sha256":"`+hex.EncodeToString(sum[:])+`"`, "/wp-admin/async-upload.php", "-F",
		"async-upload=@"+file)
	visit()
	// The address is banned, not a person who has logged in before and comes to it.
	person.get(200, "Wrong name or password", "/wp-login.php", append(guess, "--interface", "127.0.0.3")...)
	guesser.get(429, "webmaster@shop.example", "/wp-login.php", guess...)
	s.stop()
	if output := s.stderr.String(); strings.Contains(output, `"client":"127.0.0.2"`) {
		t.Errorf("the person was refused:\n%s", output)
	}
}

// A phpRequest is a request as asked.php received it.
type phpRequest struct {
	Server  map[string]any    `json:"server"`
	Headers map[string]string `json:"headers"`
	Body    int               `json:"body"`
}

// phpRequest sends a request to asked.php and returns what PHP received.
func (v *visitor) phpRequest(args ...string) phpRequest {
	v.t.Helper()
	var a phpRequest
	if text := v.do("/asked.php", args...); json.Unmarshal([]byte(text), &a) != nil {
		v.t.Fatalf("asked.php: %s", text)
	}
	return a
}

// PHP gets the client's address, the scheme and the host, whatever headers the
// visitor forges.
func TestSandwichGivesPHPTheClient(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, nil)
	v := s.visitor(t, "127.0.0.2")
	for _, forged := range [][]string{
		nil,
		{"-H", "X-Forwarded-For: 203.0.113.9"},
		{"-H", "X-Forwarded-For: 203.0.113.9", "-H", "x-forwarded-for: 127.0.0.1", "-H", "X-Real-IP: 203.0.113.9",
			"-H", "Forwarded: for=203.0.113.9"},
		{"-H", "X_Forwarded_For: 203.0.113.9", "-H", "X-Forwarded_For: 203.0.113.9", "-H", "HTTPS: off", "-H",
			"Proxy: http://203.0.113.9/"},
		{"-H", "X-Forwarded-Proto: http", "-H", "X-Forwarded-Host: evil.example"},
		{"-H", "Connection: close, X-Forwarded-For, X-Forwarded-Proto, Cookie", "--http1.1"},
	} {
		a := v.phpRequest(forged...)
		for name, want := range map[string]any{
			"REMOTE_ADDR": "127.0.0.2", "HTTPS": "on", "REQUEST_SCHEME": "https", "SERVER_PORT": "443",
			"HTTP_HOST":            "shop.example",
			"HTTP_X_FORWARDED_FOR": "127.0.0.2, 127.0.0.1", "HTTP_X_FORWARDED_PROTO": "https",
			"HTTP_X_FORWARDED_HOST": "shop.example",
		} {
			if a.Server[name] != want {
				t.Errorf("with %q: %s is %v, want %s", forged, name, a.Server[name], want)
			}
		}
		if seen, _ := json.Marshal(a); strings.Contains(string(seen), "203.0.113.9") {
			t.Errorf("with %q PHP got %s", forged, seen)
		}
	}
	v.get(421, "", "/", "-H", "Host: other.example")
	// Another name each time, and still one visitor.
	guess := []string{"-d", "log=admin&pwd=1"}
	for i := range 10 {
		v.get(200, "Wrong", "/wp-login.php", append(guess, "-H", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i))...)
	}
	v.get(429, "", "/wp-login.php", append(guess, "-H", "X-Forwarded-For: 203.0.113.99")...)
}

// Without fairshare no page is served, but static files are.
func TestSandwichFailsClosed(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, nil)
	v := s.visitor(t, "127.0.0.2")
	v.get(200, "<h1>Home</h1>", "/")
	s.stop()
	v.get(502, "", "/")
	v.get(502, "", "/wp-login.php", "-d", "log=a")
	v.get(200, "asset", "/wp-content/themes/plain/a0.css")
}

// If the operator has chosen it, the site answers without fairshare, and still
// knows the addresses of visitors.
func TestSandwichFailsOpenIfConfigured(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, map[string]string{"# server 127.0.0.1:8081 backup;": "server 127.0.0.1:8081 backup;"})
	v := s.visitor(t, "127.0.0.2")
	v.get(200, "<h1>Home</h1>", "/")
	if s.stop() != cli.ExitOK {
		t.Error("exit code")
	}
	v.get(200, "<h1>Home</h1>", "/")
	v.get(200, "Wrong", "/wp-login.php", "-d", "log=a")
	if a := v.phpRequest("-H", "X-Forwarded-For: 203.0.113.9"); a.Server["REMOTE_ADDR"] != "127.0.0.2" ||
		a.Server["HTTPS"] != "on" || a.Server["HTTP_HOST"] != "shop.example" {
		t.Errorf("PHP got %v", a.Server)
	}
	restarted := startServe(t, deployed(t, map[string]string{"127.0.0.1:8081": s.inner}, "nginx/fairshare.yaml"),
		"--listen", s.addr)
	for range 21 {
		v.do("/wp-login.php", "-d", "log=a")
	}
	v.get(429, "", "/wp-login.php", "-d", "log=a")
	restarted.stop()
}

// Large requests and answers arrive complete: headers near nginx's bounds, and
// bodies of many buffers.
func TestSandwichPassesLargeHeadersAndBodies(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, nil)
	v := s.visitor(t, "127.0.0.2")
	cookie := strings.Repeat("c", 12<<10)
	if a := v.phpRequest("-H", "X-Long: "+cookie); a.Headers["X-Long"] != cookie {
		t.Errorf("a header of 12 KiB: %d bytes arrived", len(a.Headers["X-Long"]))
	}
	if a := v.phpRequest("--data-binary", "@"+writeFile(t, "body", strings.Repeat("b", 3<<20))); a.Body != 3<<20 {
		t.Errorf("a body of 3 MiB: %d bytes arrived", a.Body)
	}
	if got := v.do("/large.php?kb=5000"); len(got) != 5000<<10 {
		t.Errorf("an answer of 5000 KiB: %d bytes arrived", len(got))
	}
	v.get(200, "x-large: "+strings.Repeat("h", 20<<10), "/large.php?head=20480")
}
