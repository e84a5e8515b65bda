package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Behind an nginx that no policy names, sixty visitors request pages, miss some
// and log in, and none is refused. serve prints the configuration that is
// missing.
func TestVisitorsPassBehindAnUnnamedNginx(t *testing.T) {
	t.Parallel()
	const visitors, rounds = 60, 25
	for _, test := range []struct{ name, headers, report string }{
		{"usual", `proxy_set_header Host $host;
			proxy_set_header X-Real-IP $remote_addr;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto $scheme;`, `is not a trusted proxy but names clients`},
		{"bare", "", `no header names a client`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/nowhere":
					http.NotFound(w, r)
				case r.Method == "POST": // everybody logs in
					http.SetCookie(w, &http.Cookie{Name: "wordpress_logged_in_1", Value: "a"})
					http.Redirect(w, r, "/wp-admin/", http.StatusFound)
				}
			}))
			defer site.Close()
			s := startServe(t, "", "--upstream", site.URL)
			front := freeAddr(t)
			startNginx(t, front, "location / {\nproxy_pass http://"+s.addr+";\n"+test.headers+"\n}")
			var all sync.WaitGroup
			var mu sync.Mutex
			refused := map[string]int{}
			clients := make([]*http.Client, visitors)
			for i := range clients {
				clients[i] = clientAt(t, fmt.Sprintf("127.0.%d.2", i)) // each of another network
			}
			for round := range rounds {
				method, path := "GET", fmt.Sprintf("/page/%d", round)
				switch {
				case round%8 == 5:
					path = "/nowhere"
				case round == 6:
					path = "/wp-login.php"
				case round == 7:
					method, path = "POST", "/wp-login.php"
				}
				for i, client := range clients {
					if method == "POST" {
						all.Wait() // so many log in one after another
					}
					all.Go(func() {
						req, err := http.NewRequest(method, "http://"+front+path, strings.NewReader(""))
						if err != nil {
							t.Error(err)
							return
						}
						req.Header.Set("User-Agent", fmt.Sprintf(
							"Mozilla/5.0 (X11; Linux x86_64; rv:%d.0) Gecko/20100101 Firefox/%[1]d.0", 100+i))
						req.Header.Set("Referer", "http://example.org/wp-login.php") // as a browser does with a form
						resp, err := client.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.StatusCode != 200 && resp.StatusCode != 404 {
							mu.Lock()
							refused[fmt.Sprint(method, path, " ", resp.StatusCode)]++
							mu.Unlock()
						}
					})
				}
				all.Wait()
			}
			if len(refused) > 0 {
				t.Errorf("refused visitors: %v", refused)
			}
			if test.headers != "" || required() { // without the headers it takes a minute
				s.stderr.wait(`(?s)` + test.report + `.*?(trusted_proxies: \[127\.0\.0\.1\])\n +header: X-Forwarded-For`)
			}
		})
	}
}
