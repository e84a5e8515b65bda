package main

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// newRequest returns a request of a client behind a proxy on this machine.
func newRequest(t *testing.T, method, url, client string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", client)
	return req
}

// getFrom sends GET as a client behind a proxy on this machine.
func getFrom(t *testing.T, url, client string) *http.Response {
	t.Helper()
	resp, _ := requestAs(t, "GET", url, client, "hammer/1 \u202e")
	return resp
}

// requestAs sends a request as a client behind a proxy on this machine, and returns
// the answer and its body. header has pairs of names and values.
func requestAs(t *testing.T, method, url, client, userAgent string, header ...string) (*http.Response, string) {
	t.Helper()
	req := newRequest(t, method, url, client)
	req.Header.Set("User-Agent", userAgent)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// eventually calls ask until it returns want: what runs in the background takes
// effect a little later.
func eventually[T comparable](t *testing.T, want T, ask func() T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := ask()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v in the end, want %v", got, want)
		}
		time.Sleep(10 * time.Millisecond) // no signal says when the background has finished
	}
}

// clientAt returns an HTTP client that connects from an address of this machine.
func clientAt(t *testing.T, addr string) *http.Client {
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// statusFrom sends a request and returns the status of the answer. forwarded is
// the X-Forwarded-For header; "" for none.
func statusFrom(t *testing.T, client *http.Client, url, forwarded string) int {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if forwarded != "" {
		req.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
