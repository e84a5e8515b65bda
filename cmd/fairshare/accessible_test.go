//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// A screen reader gets a name for each link, button, field, chart, table and region of the pages, and nothing that
// interrupts it. FAIRSHARE_SCREENSHOTS names a folder for pictures.
func TestDashboardIsAccessible(t *testing.T) {
	t.Parallel()
	token := writeFile(t, "token", strings.Repeat("a", 32))
	policy := writeFile(t, "site.yaml", adminPolicy)
	s := runServe(t, nil, "-c", policy, "--upstream", echoSite(t).URL, "--state", t.TempDir(), "--admin", "127.0.0.1:0",
		"--admin-token-file", token)
	url := "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)
	for i := range 20 {
		req := newRequest(t, "GET", "http://"+s.addr+"/dry", fmt.Sprintf("203.0.113.%d", i%3+1))
		req.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	edited := strings.Replace(adminPolicy, "rules:\n", "contact: a@example.org\nlisten: 127.0.0.1:1\nrules:\n"+
		"  - {name: new rule, match: {path: /new/*}, limit: {requests: 5, per: 1m, by: addr}}\n"+
		"  - {name: also new, match: {path: /also}, block: true}\n", 1)
	if err := os.WriteFile(policy, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	d := openDevtools(t)
	d.visit(url + "/login")
	checkAccessible(t, "/login", d.accessible())
	d.value(`document.querySelector('[name=token]').value = '` + strings.Repeat("a", 32) + `'`)
	d.submit("main form button")
	for _, path := range []string{"/", "/client", "/client?client=203.0.113.1", "/rules", "/bots", "/bans", "/journal",
		"/history?by=owner&key=AS64500", "/nothing"} {
		d.visit(url + path)
		checkAccessible(t, path, d.accessible())
	}
	d.visit(url + "/reload")
	checkAccessible(t, "/reload", d.accessible())
	for _, l := range []struct {
		name, scheme string
		width        int
	}{{"reload-light", "light", 1280}, {"reload-dark", "dark", 1280}, {"reload-phone", "dark", 390}} {
		d.look(l.width, l.scheme)
		if wide := d.value("document.documentElement.scrollWidth"); wide != float64(l.width) {
			t.Errorf("%s: the page is %v pixels wide, not %d", l.name, wide, l.width)
		}
		d.picture(l.name)
	}
	d.submit("form[action='/reload'] button")
	if text, _ := d.value("document.querySelector('main').innerText").(string); !strings.Contains(text,
		"was loaded and is in force") {
		t.Errorf("after the reload the page shows %q", text)
	}
	checkAccessible(t, "/reload, loaded", d.accessible())
	d.picture("reload-done")
	s.stderr.wait(`reload: \S+ (was loaded again)`)
}

// checkAccessible checks what a screen reader gets of a page.
func checkAccessible(t *testing.T, path string, nodes []axNode) {
	t.Helper()
	byID := map[string]*axNode{}
	for i := range nodes {
		byID[nodes[i].NodeID] = &nodes[i]
	}
	inside := func(n *axNode, role string) bool {
		for n = byID[n.ParentID]; n != nil; n = byID[n.ParentID] {
			if n.role() == role {
				return true
			}
		}
		return false
	}
	count, names := map[string]int{}, map[string][]string{}
	level := 0.0
	for i := range nodes {
		n := &nodes[i]
		if n.Ignored {
			continue
		}
		count[n.role()]++
		switch n.role() {
		case "link", "button", "textbox", "combobox", "checkbox", "table", "image", "img", "heading", "navigation",
			"region", "RootWebArea", "searchbox", "form", "search":
			if n.name() == "" && n.role() != "form" && n.role() != "search" {
				t.Errorf("%s: a %s has no name: %+v", path, n.role(), n)
			}
			if n.role() == "button" || n.role() == "region" || n.role() == "table" {
				if slices.Contains(names[n.role()], n.name()) {
					t.Errorf("%s: two elements are %s %q", path, n.role(), n.name())
				}
				names[n.role()] = append(names[n.role()], n.name())
			}
		case "columnheader", "rowheader":
			if n.name() == "" {
				t.Errorf("%s: a %s has no text", path, n.role())
			}
		case "cell", "gridcell":
			if !inside(n, "table") {
				t.Errorf("%s: a cell outside a table", path)
			}
		}
		for _, p := range n.Properties {
			switch {
			case p.Name == "live" && p.Value.Value == "assertive" && path != "/nothing": // the page is its error
				t.Errorf("%s: the %s %q interrupts a screen reader", path, n.role(), n.name())
			case p.Name == "level" && n.role() == "heading":
				now, _ := p.Value.Value.(float64)
				if now > level+1 {
					t.Errorf("%s: the heading %q has level %v after %v", path, n.name(), now, level)
				}
				level = now
			}
		}
	}
	if count["main"] != 1 || count["table"] > 0 && count["columnheader"] == 0 {
		t.Errorf("%s: %v", path, count)
	}
}
