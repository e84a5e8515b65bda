package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A client that an operator has banned gets the answer of the policy file.
func TestOperatorsBanHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	t.Cleanup(site.Close)
	state := t.TempDir()
	s := startServe(t, "clients: {trusted_proxies: [loopback]}\nupstream: "+site.URL+`
answers: {operator_ban: {status: 451, body: "Blocked. Rule: {rule}"}}
rules: [{use: default}]
`, "--state", state)
	runOperator(t, state, "ban", "192.0.2.1", "--for", "1h")
	status, body := 0, []byte(nil)
	for end := time.Now().Add(20 * time.Second); status != 451 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		req, err := http.NewRequest("GET", "http://"+s.addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", "192.0.2.1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		status = resp.StatusCode
	}
	if status != 451 || string(body) != "Blocked. Rule: ban by an operator" {
		t.Errorf("%d %s", status, body)
	}
}
