package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
)

// Behind a real nginx, with a real curl as client, clients are identified by
// the address that nginx appends, whatever they send. Refused clients get the
// whole answer.
func TestClientsAreIdentifiedBehindNginx(t *testing.T) {
	curl := need(t, "curl", "curl")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "host %s, for %s, proto %s\n", r.Host, r.Header.Get("X-Forwarded-For"),
			r.Header.Get("X-Forwarded-Proto"))
	}))
	defer site.Close()
	s := startServe(t, `
contact: shop@example.org
clients: {trusted_proxies: 127.0.0.1}
rules:
  - name: three
    limit: {requests: 3, per: 1h, algorithm: quiet}
`, "--upstream", site.URL)
	front := freeAddr(t)
	startNginx(t, front, `location / {
			proxy_pass http://`+s.addr+`;
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto https;
		}`)
	ask := func(from string, args ...string) string {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"-sS", "-i", "--max-time", "20", "--interface", from},
			append(args, "http://"+front+"/")...)...).Output()
		if err != nil {
			t.Fatalf("curl: %v", err)
		}
		return string(out)
	}
	first := ask("127.0.0.2", "-H", "Host: shop.example", "-H", "X-Forwarded-For: 203.0.113.9")
	if !strings.HasPrefix(first, "HTTP/1.1 200") || !strings.Contains(first,
		"host shop.example, for 127.0.0.2, 127.0.0.1, proto https") {
		t.Errorf("the site was asked otherwise:\n%s", first)
	}
	for i := range 2 { // another claim each time, and still the same client
		ask("127.0.0.2", "-H", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i))
	}
	refused := ask("127.0.0.2", "-H", "X-Forwarded-For: 198.51.100.7", "-H", "Accept: application/json")
	for _, want := range []string{"HTTP/1.1 429", "Retry-After: 3600", "Cache-Control: no-store",
		`"violated-policies":["three"]`, "shop@example.org"} {
		if !strings.Contains(refused, want) {
			t.Errorf("the fourth request lacks %q:\n%s", want, refused)
		}
	}
	if other := ask("127.0.0.3"); !strings.HasPrefix(other, "HTTP/1.1 200") {
		t.Errorf("another client:\n%s", other)
	}
	s.stderr.wait(`"client":"127.0.0.2"[^\n]*"rule":"three"`)
}

// Bodies of requests and answers pass nginx and fairshare unchanged.
func TestBodiesPassUnchangedBehindNginx(t *testing.T) {
	curl := need(t, "curl", "curl")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	}))
	defer site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	front := freeAddr(t)
	startNginx(t, front, "client_max_body_size 0; location / { proxy_pass http://"+s.addr+"; }")
	sent := strings.Repeat("fair share\n", 1<<18)
	cmd := exec.Command(curl, "-sS", "--max-time", "30", "--data-binary", "@-", "http://"+front+"/")
	cmd.Stdin = strings.NewReader(sent)
	got, err := cmd.Output()
	if err != nil || string(got) != sent {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(sent), err)
	}
}
