package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/census"
	"fairshare/logins"
)

const manyClients = "clients: {trusted_proxies: 127.0.0.1}\nrules: [{name: pages, limit: {requests: 1000000, per: 1m, by: addr}}]\n"

// send sends one request as a client of the proxy, and reports whether it was
// answered.
func send(method, url, client string) error {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// A client that holds a busy upstream is reported within a minute. As many
// requests of many clients at the same time are not.
func TestServeReportsTheClientThatHoldsTheUpstream(t *testing.T) {
	if !required() {
		t.Skip("takes a minute: FAIRSHARE_REQUIRE_SERVICES=1")
	}
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(50 * time.Millisecond): // what the page costs
		case <-r.Context().Done():
		}
	}))
	defer site.Close()
	const policy = "share: {capacity: 8}\n" + manyClients  // on a slow machine serve could find that it is not busy
	crowd := startServe(t, policy, "--upstream", site.URL) // its minutes end first
	held := startServe(t, policy, "--upstream", site.URL)
	done := make(chan struct{})
	var all sync.WaitGroup
	ask := func(url string, client func(i int) string) {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := send("GET", url, client(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 8 {
		ask("http://"+held.addr+"/search?q=secret", func(int) string { return "203.0.113.9" })
		ask("http://"+crowd.addr+"/search", func(i int) string { return fmt.Sprintf("198.%d.%d.7", 51+n, i%100) })
	}
	ask("http://"+held.addr+"/", func(i int) string { return fmt.Sprintf("198.51.%d.1", i%200) })
	line := held.stderr.wait(`(WARNING: ONE CLIENT HAD .*)\n`)
	close(done)
	all.Wait()
	for _, part := range []string{
		"MOST OF THE UPSTREAM'S TIME: 203.0.113.9 had ", `most of it for "/search". `, "The upstream was busy",
		"fairshare ban 203.0.113.9",
	} {
		if !strings.Contains(line, part) {
			t.Errorf("%q is not in %s", part, line)
		}
	}
	if strings.Contains(held.stderr.String(), "secret") {
		t.Errorf("the query is reported: %s", held.stderr)
	}
	if output := crowd.stderr.String(); strings.Contains(output, "MOST OF THE UPSTREAM'S TIME") {
		t.Errorf("a crowd is reported: %s", output)
	}
}

// Failed logins of many addresses are reported; successful logins of many are
// not.
func TestServeReportsGuessedPasswords(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("pwd") != "right" {
			return // the form again, with 200
		}
		w.Header().Set("Location", "/wp-admin/")
		w.WriteHeader(http.StatusFound)
	}))
	defer site.Close()
	office := startServe(t, manyClients, "--upstream", site.URL)
	guessed := startServe(t, manyClients, "--upstream", site.URL)
	for n := range 200 {
		for i := range 2 {
			client := fmt.Sprintf("198.51.%d.%d", n, i)
			if err := send("POST", "http://"+guessed.addr+"/wp-login.php?pwd=wrong", client); err != nil {
				t.Fatal(err)
			}
			pwd := "right"
			if n%5 == 0 {
				pwd = "wrong"
			}
			if err := send("POST", "http://"+office.addr+"/wp-login.php?pwd="+pwd, client); err != nil {
				t.Fatal(err)
			}
		}
	}
	line := guessed.stderr.wait(`(WARNING: PASSWORDS ARE BEING GUESSED .*)\n`)
	if !strings.Contains(line, `at "/wp-login.php" in the last`) || strings.Contains(line, "wrong") {
		t.Error(line)
	}
	office.stop()
	if output := office.stderr.String(); strings.Contains(output, "GUESSED") {
		t.Errorf("people who log in are reported: %s", output)
	}
}

// The report recognizes the logins that rules on attempts know by their paths.
func TestKnownLoginsAreReported(t *testing.T) {
	for _, path := range []string{"/wp-login.php", "/blog/wp-login.php", "/administrator/index.php", "/ucp.php",
		"/user/login", "/loginPost/", "/owa/auth.owa", "/j_security_check", "/login_form", "/login", "/login/",
		"/login.php",
		"/login.aspx", "/login.jsp", "/login.do", "/log-in", "/logon", "/signin", "/sign-in", "/users/sign_in",
		"/admin/index.php", "/session", "/sessions", "/api/session", "/api/auth"} {
		req := fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST"}
		req.SetTarget(path)
		logins.New(logins.Options{}).Arrived(&req, nil)
		if req.Attempt != fairshare.LoginAttempt {
			t.Errorf("%s is not an attempt to log in", path)
		}
		if !census.IsLogin(path) {
			t.Errorf("%s is not known as a login", path)
		}
	}
}
