package main

import (
	"net/http/httptest"
	"testing"

	"fairshare"
	"fairshare/examples/servers/internal/servertest"
)

func TestSite(t *testing.T) {
	for name, c := range map[string]struct {
		resource fairshare.Resource
		n        int64
		paths    []string
		want     []int
	}{
		"requests are limited": {fairshare.Requests, 2, []string{"/hello", "/hello", "/hello"}, []int{200, 200, 429}},
		"404 counts as an error": {fairshare.Errors, 2, []string{"/hello", "/missing", "/missing", "/hello"},
			[]int{200, 404, 404, 429}},
		"a reported cost counts": {fairshare.Cost, 15, []string{"/report", "/report", "/hello"}, []int{200, 200, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			site := newSite(servertest.Guard(t, c.resource, c.n))
			for i, path := range c.paths {
				answer, err := site.Test(httptest.NewRequest("GET", path, nil), -1)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				if answer.StatusCode != c.want[i] {
					t.Errorf("request %d for %s: status %d, want %d", i, path, answer.StatusCode, c.want[i])
				}
				if answer.StatusCode == 429 && answer.Header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
		})
	}
}
