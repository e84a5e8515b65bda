//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// chromium returns a command that opens a page in a real browser without a
// window.
func chromium(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program := need(t, "chromium", "chromium")
	home := shortDir(t)
	cmd := exec.Command(program, append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-extensions",
		"--ignore-certificate-errors", "--user-data-dir=" + filepath.Join(home, "profile"),
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its helpers end with it
	return cmd
}

// browserPage loads a hundred parts, an event stream and a websocket, and
// sends what came of it to /result.
const browserPage = `<!doctype html><meta charset="utf-8"><title>shop</title>
<script>
let parts = 0;
function part(e) { e.onload = () => parts++; document.head.append(e); }
for (let i = 0; i < 100; i++) {
	let e;
	if (i % 3 == 0) { e = new Image(); e.onload = () => parts++; e.src = '/a' + i + '.svg'; continue; }
	if (i % 3 == 1) { e = document.createElement('link'); e.rel = 'stylesheet'; e.href = '/a' + i + '.css'; }
	if (i % 3 == 2) { e = document.createElement('script'); e.src = '/a' + i + '.js'; }
	part(e);
}
const loaded = new Promise(done => addEventListener('load', () => {
	const again = setInterval(() => { if (parts == 100) { clearInterval(again); done(); } }, 20);
}));
const events = new Promise(done => {
	const got = [];
	const source = new EventSource('/events');
	source.onmessage = e => {
		got.push(e.data);
		if (got.length < 3) { fetch('/next', {method: 'POST'}); return; }
		source.close();
		done(got.join(' '));
	};
});
const socket = new Promise(done => {
	const s = new WebSocket('wss://' + location.host + '/socket');
	s.onopen = () => s.send('fair share');
	s.onmessage = e => { done(e.data); s.close(); };
	s.onerror = () => done('error');
});
const late = new Promise(done => setTimeout(done, 30000, 'late'));
Promise.race([late, Promise.all([loaded, events, socket])]).then(async all => {
	const protocols = [...new Set(performance.getEntriesByType('resource').map(e => e.nextHopProtocol))];
	await fetch('/result', {method: 'POST', body: JSON.stringify({parts, all, protocols})});
});
</script>`

// A page with a hundred parts, an event stream and a websocket works in a real
// browser, over HTTP/2 and TLS, under the built-in policy.
func TestBrowserLoadsAPageWithManyParts(t *testing.T) {
	t.Parallel()
	results := make(chan string, 1)
	next := make(chan bool, 3)
	next <- true
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Ext(r.URL.Path) {
		case ".svg":
			w.Header().Set("Content-Type", "image/svg+xml")
			io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>`)
		case ".css":
			w.Header().Set("Content-Type", "text/css")
		case ".js":
			w.Header().Set("Content-Type", "text/javascript")
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, browserPage)
		}
	})
	mux.HandleFunc("POST /next", func(w http.ResponseWriter, r *http.Request) { next <- true })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 { // each only when the one before has arrived
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done() // the browser closes it
	})
	mux.HandleFunc("/socket", echoSocket)
	mux.HandleFunc("POST /result", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		results <- string(b)
	})
	site := httptest.NewServer(mux)
	defer site.Close()
	cert, key, _ := newCertificate(t)
	s := startServe(t, fmt.Sprintf("tls: {cert: %s, key: %s}\nrules: [{use: default}]\n", cert, key), "--upstream",
		site.URL)
	cmd := chromium(t, "--remote-debugging-port=0", "https://"+s.addr+"/")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	var got struct {
		Parts     int
		All       any
		Protocols []string
	}
	select {
	case text := <-results:
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
	case <-time.After(90 * time.Second): // a real browser
		t.Fatalf("the page did not come to its end:\n%s", s.stderr)
	}
	if all := fmt.Sprint(got.All); got.Parts != 100 || all != "[<nil> 0 1 2 fair share]" ||
		fmt.Sprint(got.Protocols) != "[h2]" {
		t.Errorf("in the browser: %+v\n%s", got, s.stderr)
	}
}

// A refused client sees in the browser what happened and what to do.
// FAIRSHARE_SCREENSHOT names the file for a picture of the page.
func TestBrowserShowsTheRefusalPage(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	s := startServe(t, `
contact: shop@example.org
rules:
  - name: rapid requests
    limit: {requests: 1, per: 1h, algorithm: quiet}
`, "--upstream", site.URL)
	if resp, err := http.Get("http://" + s.addr); err != nil || resp.StatusCode != 404 {
		t.Fatal(resp, err)
	}
	picture := os.Getenv("FAIRSHARE_SCREENSHOT")
	if picture == "" {
		picture = filepath.Join(t.TempDir(), "refused.png")
	}
	cmd := chromium(t, "--dump-dom", "--screenshot="+picture, "--window-size=800,600", "http://"+s.addr+"/page")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rapid requests", "shop@example.org", "viewport", "60 minutes"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the page lacks %q:\n%s", want, out)
		}
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 2000 {
		t.Errorf("no picture: %v", err)
	}
}

// likelyPage loads parts, then a path that only likely browsers get, and sends its status to
// /result.
const likelyPage = `<!doctype html><meta charset="utf-8"><title>shop</title>
<link rel="stylesheet" href="/a.css"><script src="/b.js"></script><img src="/c.svg"><img src="/image?id=1">
<script>
addEventListener('load', async () => {
	const drafts = await fetch('/drafts');
	await fetch('/result', {method: 'POST', body: String(drafts.status)});
});
</script>`

// A real browser is likely to be one after its first page with assets, and the whole page counts once.
func TestBrowserIsLikelyABrowser(t *testing.T) {
	t.Parallel()
	results := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, likelyPage)
		case "/a.css":
			w.Header().Set("Content-Type", "text/css")
		case "/b.js":
			w.Header().Set("Content-Type", "text/javascript")
		case "/c.svg", "/image":
			w.Header().Set("Content-Type", "image/svg+xml")
			io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>`)
		}
	})
	mux.HandleFunc("POST /result", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		results <- string(b)
	})
	site := httptest.NewServer(mux)
	defer site.Close()
	cert, key, _ := newCertificate(t)
	s := startServe(t, fmt.Sprintf(`
tls: {cert: %s, key: %s}
rules:
  - {name: contradictions, match: {browser: contradicted}, block: true}
  - {name: drafts, match: {path: /drafts, not: {browser: likely}}, block: true}
  - {name: pages, limit: {requests: 2, per: 1h, count: pages}} # the page and the POST
`, cert, key), "--upstream", site.URL)
	agent := "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
	cmd := chromium(t, "--remote-debugging-port=0", "--user-agent="+agent, "https://"+s.addr+"/")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	select {
	case got := <-results:
		if got != "200" {
			t.Errorf("the browser got %s for the path that likely browsers get\n%s", got, s.stderr)
		}
	case <-time.After(90 * time.Second): // a real browser
		t.Fatalf("the page did not come to its end:\n%s", s.stderr)
	}
}
