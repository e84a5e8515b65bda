//go:build unix

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pages of the admin listener work in a real browser: their style and script load, nothing breaks their
// own Content-Security-Policy, and hostile texts stay texts. FAIRSHARE_SCREENSHOTS names a folder for
// pictures of them.
func TestBrowserShowsTheDashboard(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer site.Close()
	s := startServe(t, adminPolicy, "--upstream", site.URL, "--admin", "127.0.0.1:0")
	url := "http://" + s.stderr.wait(`admin: http://(\S+): /metrics`)
	agent := "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
	for i := range 9 {
		req, err := http.NewRequest("GET", "http://"+s.addr+"/dry?password=secret", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", "203.0.113.9")
		req.Header.Set("User-Agent", agent+[]string{"", ` </title><script>document.title="hostile"</script>`}[i%2])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	folder := os.Getenv("FAIRSHARE_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	for _, c := range []struct{ name, path, size, scheme, want string }{
		{"now-desktop-light", "/?by=agent", "1280,1400", "1", "AppleWebKit"},
		{"now-phone-dark", "/", "500,1400", "0", "203.0.113.9"},
		{"client-desktop-dark", "/client?client=203.0.113.9", "1280,1400", "0", "is refused"},
		{"rules-phone-light", "/rules", "500,1400", "1", `class="tag">looks like a person`},
		{"journal-desktop-light", "/journal", "1280,1400", "1", "document.title="},
	} {
		picture := filepath.Join(folder, c.name+".png")
		cmd := chromium(t, "--dump-dom", "--screenshot="+picture, "--window-size="+c.size, "--enable-logging=stderr",
			"--blink-settings=preferredColorScheme="+c.scheme, url+c.path)
		var messages bytes.Buffer
		cmd.Stderr = &messages
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		page := string(out)
		if !strings.Contains(page, c.want) || strings.Contains(page, "<title>hostile") ||
			strings.Contains(page, "password") {
			t.Errorf("%s: no %q, or more than there may be:\n%s", c.name, c.want, page)
		}
		if !strings.Contains(page, `<button id="pause" type="button">`) {
			t.Errorf("%s: the script has not run:\n%s", c.name, page)
		}
		for line := range strings.Lines(messages.String()) {
			if strings.Contains(line, "CONSOLE") {
				t.Errorf("%s: %s", c.name, line)
			}
		}
		if info, err := os.Stat(picture); err != nil || info.Size() < 2000 {
			t.Errorf("no picture: %v", err)
		}
	}
}
