//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// namedSite is an upstream that answers with its name, and the host that it was asked for.
func namedSite(t *testing.T, name string) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name, r.Host)
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// askSite asks a server for a path of a host.
func askSite(client *http.Client, addr, host, path string) (status int, text string, err error) {
	req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: addr, Path: path}, Host: host}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// Sites have upstreams and rules of their own. Reloads in the middle of load add, change and
// remove sites, and no request is lost.
func TestSitesOverReloadsUnderLoad(t *testing.T) {
	one, two, three := namedSite(t, "one"), namedSite(t, "two"), namedSite(t, "three")
	const policy = `
robots: off
sites:
  one.example: %s
  shop:
    hosts: [shop.example, "*.shop.example"]
    upstream: [%s]
    rules:
      - {name: private, match: {path: /private}, block: true}
%s
rules:
  - {name: login, match: {path: /login}, limit: {requests: 2, per: 1h, algorithm: quiet}}
  - {name: all, limit: {requests: 1000000, per: 1m}}
`
	p, path := serveFile(t, fmt.Sprintf(policy, one, two, ""))
	client := http.DefaultClient
	ask := func(host, path string, status int, text string) {
		t.Helper()
		got, body, err := askSite(client, p.addr, host, path)
		if err != nil || got != status || !strings.Contains(body, text) {
			t.Errorf("%s%s: %d %.200q %v, want %d %q", host, path, got, body, err, status, text)
		}
	}
	ask("one.example", "/", 200, "one one.example")
	ask("SHOP.example", "/", 200, "two SHOP.example")
	ask("a.shop.example", "/", 200, "two a.shop.example")
	ask("three.example", "/", 421, "There is no such site here")
	ask("shop.example", "/private", 403, "shop/private")
	ask("one.example", "/private", 200, "one")
	ask("shop.example", "/login", 200, "two")
	ask("one.example", "/login", 200, "one")
	ask("one.example", "/login", 200, "one")
	ask("one.example", "/login", 429, "login")
	ask("shop.example", "/login", 200, "two")

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var asked atomic.Int64
	for i := range 4 {
		host, want := "one.example", []string{"one one.example"}
		if i%2 == 1 {
			host, want = "shop.example", []string{"two shop.example", "three shop.example"}
		}
		all.Go(func() {
			for ctx.Err() == nil {
				status, text, err := askSite(client, p.addr, host, "/")
				if err != nil || status != 200 || text != want[0] && text != want[len(want)-1] {
					t.Errorf("%s: %d %q %v", host, status, text, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	more := "  three.example: {upstream: " + three + ", policy: three.yaml}"
	writeOver(t, strings.TrimSuffix(path, "edited.yaml")+"three.yaml",
		"rules: [{name: none, match: {path: /none}, block: true}]\n")
	for range 3 {
		writeOver(t, path, fmt.Sprintf(policy, one, two+", "+three, more))
		p.reload(t, "(?m)^fairshare: (new site three.example → .*; rules of three.yaml)\\.$")
		ask("three.example", "/", 200, "three three.example")
		ask("three.example", "/none", 403, "three.example/none")
		ask("one.example", "/login", 429, "login") // the counters are kept
		writeOver(t, path, fmt.Sprintf(policy, one, two, ""))
		p.reload(t, "(?m)^fairshare: (site three.example is gone: .*)$")
		ask("three.example", "/", 421, "")
	}
	writeOver(t, path, fmt.Sprintf(policy, one, two+", "+two, ""))
	p.reload(t, "(nothing has changed); the old policy stays in force")
	cancel()
	all.Wait()
	if asked.Load() == 0 {
		t.Error("there was no load")
	}
}

// The page about sites shows what the program prints.
func TestSitesPageShowsTheProgramsOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/sites.md")
	if err != nil {
		t.Fatal(err)
	}
	_, policy, _ := strings.Cut(string(page), "```yaml\n")
	policy, _, _ = strings.Cut(policy, "```")
	_, example, _ := strings.Cut(string(page), "    $ fairshare check sites.yaml --try /cart --host a.shop.example.org\n")
	example, _, _ = strings.Cut(example, "\n\n")
	var want strings.Builder
	for line := range strings.Lines(example + "\n") {
		want.WriteString(strings.TrimPrefix(line, "    "))
	}
	file := writeFile(t, "sites.yaml", policy)
	_, out, _ := runCommand(t, "check", file, "--try", "/cart", "--host", "a.shop.example.org")
	if !strings.Contains(out, want.String()) {
		t.Errorf("the page shows\n%s\nthe program prints\n%s", &want, out[max(0, len(out)-1500):])
	}
}
