//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"fairshare/waitingroom"
)

// visitorCookie is the name of the cookie that keeps a place.
const visitorCookie = "fs1"

// A busyServe is serve in front of a site that works on one request at a time, and
// on no other than /hold until it is released. A proxy in front of serve records
// what the browser and serve exchange.
type busyServe struct {
	front     *httptest.Server
	exchanges chan roomExchange
	release   func()
}

// A roomExchange is a request of a browser and its answer.
type roomExchange struct {
	method, path string
	status       int
	sent, set    string // the visitor's cookie
	header       http.Header
}

func startBusyServe(t *testing.T, room string) *busyServe {
	t.Helper()
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hold") {
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
			return
		}
		if _, err := r.Cookie(visitorCookie); err == nil {
			t.Error("the site gets the visitor's cookie")
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>in</title><p>welcome in")
	}))
	s := &busyServe{exchanges: make(chan roomExchange, 1000)}
	released := false
	s.release = func() {
		if !released {
			close(hold)
		}
		released = true
	}
	t.Cleanup(site.Close)
	t.Cleanup(s.release)
	p := startServe(t, behindLoopback+"contact: shop@example.org\nshare: {capacity: 1, wait: 5m}\nwaiting_room: "+room+
		"\nrules: []\n", "--upstream", site.URL)
	to, err := url.Parse("http://" + p.addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(resp *http.Response) error {
		e := roomExchange{method: resp.Request.Method, path: resp.Request.URL.RequestURI(), status: resp.StatusCode,
			header: resp.Header.Clone()}
		if c, err := resp.Request.Cookie(visitorCookie); err == nil {
			e.sent = c.Value
		}
		for _, c := range resp.Cookies() {
			if c.Name == visitorCookie {
				e.set = c.Value
			}
		}
		s.exchanges <- e
		return nil
	}
	s.front = httptest.NewServer(proxy)
	t.Cleanup(s.front.Close)
	for i := range 2 { // one works and one waits
		go func() {
			req, _ := http.NewRequest("GET", fmt.Sprint("http://", p.addr, "/hold", i), nil)
			req.Header.Set("X-Forwarded-For", "198.51.100.1")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
	}
	<-held
	return s
}

// next returns the next exchange that is not of a favicon.
func (s *busyServe) next(t *testing.T) roomExchange {
	t.Helper()
	select {
	case e := <-s.exchanges:
		return e
	case <-time.After(60 * time.Second): // a real browser
		t.Fatal("the browser sent no request")
		return roomExchange{}
	}
}

// asPerson makes Chromium send the user agent of a person: without a window it says that it is a bot.
const asPerson = "--user-agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
	"Chrome/156.0.0.0 Safari/537.36"

// openBrowser opens a page in a browser that stays open until the test ends.
func openBrowser(t *testing.T, args ...string) {
	t.Helper()
	cmd := chromium(t, append([]string{"--remote-debugging-port=0", asPerson}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
}

// A browser gets the page, keeps the cookie, comes back by itself and gets in, with
// and without JavaScript. It loads nothing else.
func TestBrowserWaitsInTheWaitingRoomAndGetsIn(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium")
	for _, args := range [][]string{nil, {"--blink-settings=scriptEnabled=false"}} {
		s := startBusyServe(t, "{after: 1s}")
		openBrowser(t, append(args, s.front.URL+"/page?id=1")...)
		first := s.next(t)
		if first.method != "GET" || first.path != "/page?id=1" || first.status != 503 || first.sent != "" ||
			first.set == "" || first.header.Get("Refresh") == "" {
			t.Fatalf("first %+v", first)
		}
		second := s.next(t)
		if second.path != "/page?id=1" || second.status != 503 || second.sent != first.set || second.set == "" {
			t.Fatalf("%v: second %+v", args, second)
		}
		s.release()
		last := second
		for last.status == 503 {
			sent := last.set
			if last = s.next(t); last.path != "/page?id=1" || last.sent != sent {
				t.Fatalf("%v: then %+v", args, last)
			}
		}
		if last.status != 200 {
			t.Errorf("%v: in the end %+v", args, last)
		}
	}
}

// The proof of work is computed in a real browser. Without JavaScript the page
// reloads and keeps its place.
func TestBrowserComputesTheProofOfWork(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium")
	s := startBusyServe(t, "{after: 1s, step: proof_of_work, difficulty: 14}")
	openBrowser(t, s.front.URL+"/page?a=1&b=2")
	first, step, back := s.next(t), s.next(t), s.next(t)
	if first.status != 503 || first.set == "" || step.method != "POST" || step.path != waitingroom.StepPath ||
		step.status != 303 || step.header.Get("Location") != "/page?a=1&b=2" || step.sent != first.set ||
		step.set == "" {
		t.Fatalf("first %+v, then %+v", first, step)
	}
	if back.path != "/page?a=1&b=2" || back.sent != step.set {
		t.Fatalf("after the step %+v", back)
	}
	for last := back; last.status == 503; { // no second step
		s.release()
		if last = s.next(t); last.method != "GET" || last.path != "/page?a=1&b=2" {
			t.Fatalf("then %+v", last)
		}
	}

	s = startBusyServe(t, "{after: 1s, step: proof_of_work, difficulty: 8}")
	openBrowser(t, "--blink-settings=scriptEnabled=false", s.front.URL+"/page")
	first, again := s.next(t), s.next(t)
	if first.status != 503 || again.method != "GET" || again.path != "/page" || again.sent != first.set {
		t.Errorf("without JavaScript: %+v, then %+v", first, again)
	}
}

// A tab is a page in a real browser, driven by the Chrome DevTools Protocol.
type tab struct {
	t    *testing.T
	conn *websocket.Conn
	id   int
}

// openTab opens a page in a browser, without waiting for it.
func openTab(t *testing.T, address string) *tab {
	t.Helper()
	cmd := chromium(t, "--remote-debugging-port=0", "--remote-allow-origins=*", asPerson, address)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), "DevTools listening on ws://")
		if !found {
			continue
		}
		host, _, _ := strings.Cut(rest, "/")
		go io.Copy(io.Discard, stderr)
		resp, err := http.Get("http://" + host + "/json/list")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var pages []struct {
			Type string
			URL  string `json:"webSocketDebuggerUrl"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&pages); err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			if page.Type != "page" {
				continue
			}
			conn, err := websocket.Dial(page.URL, "", "http://127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return &tab{t: t, conn: conn}
		}
	}
	t.Fatal("the browser shows no page")
	return nil
}

// call calls a method of the protocol and waits for its answer.
func (b *tab) call(method string, params map[string]any) {
	b.t.Helper()
	b.id++
	if err := websocket.JSON.Send(b.conn, map[string]any{"id": b.id, "method": method, "params": params}); err != nil {
		b.t.Fatal(err)
	}
	for {
		var answer struct{ ID int }
		if err := websocket.JSON.Receive(b.conn, &answer); err != nil {
			b.t.Fatal(err)
		}
		if answer.ID == b.id {
			return
		}
	}
}

// press presses and releases a key.
func (b *tab) press(key, text string, code int) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			params["text"] = text
		}
		b.call("Input.dispatchKeyEvent", params)
	}
}

// A person without a mouse reaches the button after the link and presses it. Before it is pressed the page
// may reload: then the keys are pressed again.
func TestKeyboardReachesTheButtonOfTheWaitingRoom(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium")
	s := startBusyServe(t, "{after: 0s, step: button}")
	page := openTab(t, s.front.URL+"/page?id=1")
	last := s.next(t)
	for range 20 {
		if last.method != "GET" || last.status != 503 || last.set == "" {
			t.Fatalf("got %+v", last)
		}
		page.call("Runtime.evaluate", map[string]any{"awaitPromise": true, "expression": "new Promise(done => " +
			"document.readyState == 'complete' ? done() : addEventListener('load', done))"})
		page.press("Tab", "", 9)
		page.press("Tab", "", 9)
		page.press("Enter", "\r", 13)
		set := last.set
		if last = s.next(t); last.method != "POST" {
			continue
		}
		if last.path != waitingroom.StepPath || last.status != 303 || last.sent != set || last.set == "" ||
			last.header.Get("Location") != "/page?id=1" {
			t.Errorf("the button sends %+v", last)
		}
		return
	}
	t.Error("the keyboard does not reach the button")
}

// The page is readable on a phone, in light and in dark, in several languages and
// with a step. FAIRSHARE_SCREENSHOTS names a folder for the pictures.
func TestBrowserShowsTheWaitingRoom(t *testing.T) {
	t.Parallel()
	need(t, "chromium", "chromium")
	folder := os.Getenv("FAIRSHARE_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	for _, test := range []struct {
		name, room string
		args       []string
		want       []string
	}{
		{"light", "{after: 0s}", []string{"--window-size=800,600", "--accept-lang=en-US"},
			[]string{"This site is busy", "You keep your place", "shop@example.org", `lang="en"`}},
		{"dark", "{after: 0s}", []string{"--window-size=800,600", "--accept-lang=de-AT",
			"--blink-settings=preferredColorScheme=0", "--force-dark-mode"},
			[]string{"Diese Website ist ausgelastet", `lang="de"`}},
		{"phone", "{after: 0s, step: button}", []string{"--window-size=360,640", "--accept-lang=fr"},
			[]string{"Ce site est très sollicité", "<button>Passer plus tôt</button>"}},
	} {
		s := startBusyServe(t, test.room)
		picture := filepath.Join(folder, "room-"+test.name+".png")
		cmd := chromium(t, append(test.args, asPerson, "--dump-dom", "--screenshot="+picture, s.front.URL+"/page")...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err, exitText(err))
		}
		for _, want := range test.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: the page lacks %q:\n%s", test.name, want, out)
			}
		}
		if info, err := os.Stat(picture); err != nil || info.Size() < 2000 {
			t.Errorf("%s: no picture: %v", test.name, err)
		}
	}
}

// While the attack mode is on, a newcomer gets the page first and is let in when it comes back with the
// cookie.
func TestNewcomersWaitFirstInAttackMode(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	state := t.TempDir()
	s := startServe(t, behindLoopback+"rules: []\n", "--upstream", site.URL, "--state", state)
	navigate := func(cookie string) *http.Response {
		t.Helper()
		req, err := http.NewRequest("GET", "http://"+s.addr+"/page", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/html,*/*;q=0.8")
		req.Header.Set("X-Forwarded-For", "203.0.113.7")
		req.Header.Set("User-Agent", strings.TrimPrefix(asPerson, "--user-agent="))
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := navigate(""); resp.StatusCode != 404 {
		t.Fatalf("without an attack: %d", resp.StatusCode)
	}
	runOperator(t, state, "attack", "on")
	s.stderr.wait(`(attack mode: on)`)
	resp := navigate("")
	if resp.StatusCode != 503 || resp.Header.Get("Refresh") == "" || len(resp.Cookies()) != 1 {
		t.Fatalf("a newcomer gets %d %v", resp.StatusCode, resp.Header)
	}
	line := s.stderr.wait(`(\{.*"waiting_room":true.*\})`)
	if !strings.Contains(line, `"rule":"attack mode"`) {
		t.Errorf("the journal says %s", line)
	}
	if resp := navigate(resp.Cookies()[0].String()); resp.StatusCode != 404 {
		t.Errorf("with the cookie it gets %d", resp.StatusCode)
	}
}

func exitText(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}
