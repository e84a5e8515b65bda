package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// serve logs each request once, however it was answered, and replay reads the log.
func TestServeWritesAnAccessLog(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-release
		case "/cost":
			w.Header().Set("Cost", "7")
			w.Header().Set("Server-Timing", "cpu;dur=12.5")
		}
		io.WriteString(w, "hello")
	}))
	t.Cleanup(site.Close)
	for _, format := range []string{"combined", "json"} {
		dir := t.TempDir()
		log := filepath.Join(dir, "access.log")
		s := startServe(t, fmt.Sprintf(`
upstream: {url: %s, cpu: {from: server-timing}, cost: {header: Cost}}
access_log: {file: %s, format: %s}
share: none
rules:
  - {name: admin, match: {path: /admin}, block: true}
  - {name: tried, match: {path: /tried}, limit: {requests: 1, per: 1h}, dry_run: true}
  - {name: "pages \"2\"", match: {path: [/page, /tried]}, limit: {requests: 1, per: 1h}}
  - {name: slow, match: {path: /slow}, limit: {concurrent: 1, by: addr}}
`, site.URL, log, format))
		get := func(path string) {
			t.Helper()
			req, err := http.NewRequest("GET", "http://"+s.addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("User-Agent", "Mozilla/5.0 \"quoted\"")
			req.Header.Set("Referer", "https://example.org/?token=secret")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		get("/page?token=secret")
		get("/page?token=secret")
		get("/admin")
		get("/tried") // would be over no limit yet, but the second rule refuses it
		get("/cost")
		// A client that leaves before the answer.
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /slow HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		time.Sleep(100 * time.Millisecond) // until the upstream has it
		conn.Close()
		if format == "combined" {
			close(release)
		}
		if exit := s.stop(); exit != 0 {
			t.Fatalf("exit %d", exit)
		}
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if strings.Contains(text, "secret") {
			t.Errorf("it contains a query:\n%s", text)
		}
		id := "[0-9a-z]{10}"
		want := []string{
			`"GET /page HTTP/1\.1" 200 5 "https://example\.org/" "Mozilla/5\.0 \\x22quoted\\x22" host="127[^"]*" rt=0\.\d+ urt=0\.\d+ verdict=allow rule="-" wait=0\.000000 (cpu_time=0\.\d+ )?id=-`,
			`"GET /page HTTP/1\.1" 429 \d{3,} .* urt=- verdict=refuse rule="pages \\x222\\x22" wait=0\.000000 id=` + id,
			`"GET /admin HTTP/1\.1" 403 \d{3,} .* urt=- verdict=block rule="admin" wait=0\.000000 id=` + id,
			`"GET /tried HTTP/1\.1" 429 .* verdict=refuse rule="pages`,
			`"GET /cost HTTP/1\.1" 200 5 .* verdict=allow rule="-" wait=0\.000000 cpu_time=0\.012500 cost=7 id=-`,
			`"GET /slow HTTP/1\.1" (499|200) \d+ "-" "-" host="shop\.example" .* verdict=allow`,
		}
		if format == "json" {
			want = []string{
				`"target":"/page","protocol":"HTTP/1\.1","status":200,"bytes":5,"referer":"https://example\.org/","user_agent":"Mozilla/5\.0 \\"quoted\\"".*"verdict":"allow","dry_run":false,"rule":""`,
				`"target":"/page".*"status":429.*"verdict":"refuse","dry_run":false,"rule":"pages \\"2\\"","wait":0\.000000,"id":"` + id,
				`"target":"/admin".*"status":403.*"verdict":"block"`,
				`"target":"/tried".*"verdict":"refuse"`,
				`"target":"/cost".*"verdict":"allow".*"cpu_time":0\.012500,"cost":7,"id":""`,
				`"target":"/slow".*"status":(499|200)`,
			}
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) != len(want) {
			t.Errorf("%s: %d lines, want %d:\n%s", format, len(lines), len(want), text)
			continue
		}
		for i, line := range lines {
			if !regexp.MustCompile(want[i]).MatchString(line) {
				t.Errorf("%s: line\n%s\nwant\n%s", format, line, want[i])
			}
		}
		policy := writeFile(t, "replay.yaml", `rules: [{name: once, match: {host: shop.example}, block: true}]`)
		exit, out, stderr := runCommand(t, "replay", "-c", policy, log)
		if exit != 0 || !regexp.MustCompile(`(?m)^  127\.0\.0\.1 +1 +6 +once `).MatchString(out) {
			t.Errorf("%s: replay: exit %d\n%s%s", format, exit, out, stderr)
		}
	}
}

// One request without a header from a trusted proxy causes no error.
func TestOneRequestWithoutAHeaderIsNoError(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	t.Cleanup(site.Close)
	s := startServe(t, "clients: {trusted_proxies: [loopback]}\nupstream: "+site.URL+"\nrules: [{use: default}]\n")
	for i := range 10 {
		req, _ := http.NewRequest("GET", "http://"+s.addr+"/", nil)
		if i > 0 {
			req.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	s.stop() // reports all that was found
	if text := s.stderr.text.String(); strings.Contains(text, "error: ") ||
		strings.Contains(text, "sent no X-Forwarded-For") {
		t.Errorf("it reported\n%s", text)
	}
}
