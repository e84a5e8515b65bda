package sessions_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/internal/proxy"
	"fairshare/internal/sessions"
)

// shop is a typical PHP site: a session for every client, with the name of the user after a login.
const shop = `<?php
session_start();
$_SESSION["visits"] = ($_SESSION["visits"] ?? 0) + 1;
if ($_SERVER["REQUEST_METHOD"] === "POST") { session_regenerate_id(true); $_SESSION["name"] = $_POST["name"]; }
echo "id=", session_id(), " name=", $_SESSION["name"] ?? "";
`

// PHP creates only a few session files for a crawl.
func TestPHPKeepsFewSessions(t *testing.T) {
	php, err := exec.LookPath("php")
	if err != nil {
		t.Skip("there is no php on this machine")
	}
	folder := t.TempDir()
	script, saved := filepath.Join(folder, "index.php"), filepath.Join(folder, "sessions")
	if err := os.Mkdir(saved, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	cmd := exec.Command(php, "-d", "session.save_path="+saved, "-d", "session.gc_probability=0", "-d",
		"session.use_strict_mode=1", "-S", listen, script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for up := time.Now().Add(10 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", listen, time.Second)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(up) {
			t.Skipf("php does not listen: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}

	p := proxy.New(proxy.Config{Upstream: &url.URL{Scheme: "http", Host: listen}})
	defer p.Close()
	h := sessions.New(sessions.Config{Cookies: named.Cookies, Identify: clientOf}, p)
	send := func(a testRequest) (page, cookie string) {
		t.Helper()
		r := httptest.NewRequest("GET", "http://shop.example"+a.path, nil)
		if a.method == "POST" {
			r = httptest.NewRequest("POST", "http://shop.example"+a.path, strings.NewReader(a.body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		for _, pair := range a.cookies {
			r.Header.Add("Cookie", pair)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(known{w, addr(a.client), bots[a.agent]}, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		cookie, _, _ = strings.Cut(w.Header().Get("Set-Cookie"), ";")
		return w.Body.String(), cookie
	}
	files := func() int {
		entries, err := os.ReadDir(saved)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}

	_, person := send(testRequest{agent: "person", client: here, path: "/"})
	if _, again := send(testRequest{agent: "person", client: here, path: "/login", method: "POST", body: "name=joe",
		cookies: []string{person}}); again != "" {
		person = again
	}
	for i := range 1000 {
		agent := []string{"verified", "known", "forged"}[i%3]
		if page, _ := send(testRequest{agent: agent, client: fmt.Sprintf("192.0.2.%d", i%50),
			path: fmt.Sprint("/page/", i)}); !strings.HasSuffix(page, " name=") {
			t.Fatalf("a bot gets %q", page)
		}
		if i%100 == 0 {
			if page, _ := send(testRequest{agent: "person", client: here, path: "/cart",
				cookies: []string{person}}); page != "id="+strings.TrimPrefix(person, "PHPSESSID=")+" name=joe" {
				t.Fatalf("the person gets %q", page)
			}
		}
	}
	if n := files(); n != 4 {
		t.Errorf("%d sessions, want one of the person and one of each bot", n)
	}

	// PHP restarts without sessions, and a tool logs in.
	if err := os.RemoveAll(saved); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(saved, 0o700); err != nil {
		t.Fatal(err)
	}
	first, own := send(testRequest{agent: "known", client: here, path: "/"})
	second, none := send(testRequest{agent: "known", client: near, path: "/"})
	if id(first) != id(second) || own == "" || none != "" {
		t.Errorf("after the restart: %q with %q, then %q with %q", first, own, second, none)
	}
	page, own := send(testRequest{agent: "known", client: here, path: "/", method: "POST", body: "name=tool",
		cookies: []string{own}})
	if third, _ := send(testRequest{agent: "known", client: near, path: "/"}); !strings.HasSuffix(page, "name=tool") ||
		own == "" || !strings.HasSuffix(third, " name=") || id(third) == id(first) {
		t.Errorf("after a tool logged in as %q: %q", page, third)
	}
}
