package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const adminPolicy = `
clients: {trusted_proxies: loopback}
share: {capacity: 4}
rules:
  - name: three
    limit: {requests: 3, per: 1h}
  - name: "no way \"in\""
    match: {path: /secret}
    block: true
  - name: would
    match: {path: /dry}
    dry_run: true
    block: true
`

// An adminClient asks an admin listener.
type adminClient struct {
	t      *testing.T
	client http.Client
	url    string
	token  string
}

func (a *adminClient) get(path, host string) (status int, body string) {
	a.t.Helper()
	req, err := http.NewRequest("GET", a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Host = host
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// values returns the values of all series, by name and labels.
func (a *adminClient) values() map[string]float64 {
	a.t.Helper()
	status, text := a.get("/metrics", "")
	if status != 200 {
		a.t.Fatalf("/metrics: %d %s", status, text)
	}
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			a.t.Fatalf("%q: %v", line, err)
		}
		values[line[:at]] = value
	}
	return values
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			w.WriteHeader(404)
		}
		fmt.Fprint(w, "0123456789")
	}))
	t.Cleanup(site.Close)
	s := startServe(t, adminPolicy, "--upstream", site.URL, "--admin", "127.0.0.1:0")
	a := &adminClient{t: t, url: "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)}
	for _, path := range []string{"/", "/missing", "/dry", "/", "/", "/secret"} {
		getFrom(t, "http://"+s.addr+path, "203.0.113.7")
	}
	for i := range 40 { // no client adds a series
		getFrom(t, fmt.Sprintf("http://%s/other%d", s.addr, i), fmt.Sprintf("203.0.113.%d", 10+i))
	}
	want := map[string]float64{
		`fairshare_requests_total{site="",status="2xx"}`:                                        42,
		`fairshare_requests_total{site="",status="4xx"}`:                                        1,
		`fairshare_refusals_total{action="refuse",dry_run="false",rule="three",site=""}`:        2,
		`fairshare_refusals_total{action="block",dry_run="false",rule="no way \"in\"",site=""}`: 1,
		`fairshare_refusals_total{action="block",dry_run="true",rule="would",site=""}`:          1,
		`fairshare_answer_bytes_total{site=""}`:                                                 430,
		`fairshare_upstream_duration_seconds_count{site=""}`:                                    43,
		`fairshare_upstream_capacity{site=""}`:                                                  4,
		`fairshare_upstream_waiting{site=""}`:                                                   0,
		`fairshare_turns_total{age="0",result="turn",site=""}`:                                  43,
		`fairshare_policy_reloads_total{result="success"}`:                                      0,
		`fairshare_bans`:                                     0,
		`fairshare_attack_mode`:                              0,
		`fairshare_registry_failing`:                         0,
		`fairshare_registry_errors_total{operation="write"}`: 0,
		`fairshare_counters_lost_total`:                      0,
	}
	var got map[string]float64
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got = a.values() // a request is counted a moment after its answer
		if got[`fairshare_requests_total{site="",status="2xx"}`] == 42 || time.Now().After(deadline) {
			break
		}
	}
	for name, value := range want {
		if has, found := got[name]; !found || has != value {
			t.Errorf("%s is %v (found: %v), want %v", name, has, found, value)
		}
	}
	for _, name := range []string{"fairshare_policy_loaded_timestamp_seconds", "fairshare_counters_memory_bytes",
		"process_resident_memory_bytes", "go_goroutines"} {
		if got[name] <= 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	for name := range got {
		if strings.Contains(name, "203.0.113") || strings.Contains(name, "/other") {
			t.Errorf("%s: a label comes from a client", name)
		}
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if status, body := a.get(path, ""); status != 200 || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, _ := a.get("/nowhere", ""); status != 404 {
		t.Errorf("/: %d", status)
	}
	// The name of another site may point here: a browser must not read the answer for it.
	for host, want := range map[string]int{"evil.example": 403, "evil.example:9091": 403, "localhost:9091": 200,
		"[::1]:9091": 200, "127.0.0.1": 200} {
		if status, _ := a.get("/metrics", host); status != want {
			t.Errorf("Host: %s: %d, want %d", host, status, want)
		}
	}
	// The site is not reached by the admin listener, nor the other way round.
	resp := getFrom(t, "http://"+s.addr+"/metrics", "203.0.113.99")
	if resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.ContentLength != 10 {
		t.Errorf("/metrics of the site: %v", resp.Header)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://")); err == nil {
		t.Error("the admin listener outlives the server")
	}
}

// While the last requests end, /readyz fails, so that a balancer sends new ones elsewhere.
func TestNotReadyWhileStopping(t *testing.T) {
	t.Parallel()
	began, hold := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-hold
	}))
	t.Cleanup(site.Close)
	s := startServe(t, "rules: []\n", "--upstream", site.URL, "--admin", "127.0.0.1:0")
	a := &adminClient{t: t, url: "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)}
	ended := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + s.addr)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	<-began
	go s.stop()
	s.stderr.wait(`(stopping)`)
	if status, body := a.get("/readyz", ""); status != 503 || body != "stopping\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, _ := a.get("/healthz", ""); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	close(hold)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAdminNeedsItsToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123456789abcdef"
	file := writeFile(t, "token", token+"\n")
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--admin", "127.0.0.1:0",
		"--admin-token-file", file)
	url := "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)
	for given, want := range map[string]int{"": 401, token: 200, token[1:]: 401, token + "0": 401, "wrong": 401} {
		a := &adminClient{t: t, url: url, token: given}
		status, body := a.get("/metrics", "metrics.example")
		if status != want || status == 401 && strings.Contains(body, token) {
			t.Errorf("token %q: %d, want %d", given, status, want)
		}
		if status, _ := a.get("/readyz", "metrics.example"); status != 200 {
			t.Errorf("token %q: /readyz: %d", given, status)
		}
	}
	s.stderr.wait(`(warning: a request to the admin listener had a wrong token; it came from 127.0.0.1)`)
	if strings.Contains(s.stderr.String(), token) {
		t.Error("the log contains the token")
	}
}

func TestAdminOnAUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.sock")
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--admin", "unix:"+path)
	s.stderr.wait(`(admin: unix:)`)
	a := &adminClient{t: t, url: "http://localhost"}
	a.client.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}
	if values := a.values(); values["go_goroutines"] == 0 {
		t.Errorf("%v", values)
	}
	a.client.CloseIdleConnections()
	s.stop()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// Prometheus's own tool accepts the metrics and the alert rules.
func TestPrometheusAcceptsTheMetrics(t *testing.T) {
	t.Parallel()
	promtool := need(t, "promtool", "prometheus")
	s := startServe(t, "rules: []\n", "--upstream", "http://127.0.0.1:9", "--admin", "127.0.0.1:0")
	a := &adminClient{t: t, url: "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)}
	getFrom(t, "http://"+s.addr, "")
	_, metrics := a.get("/metrics", "")
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	check = exec.Command(promtool, "check", "rules", "../../deploy/prometheus/alerts.yaml")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}
