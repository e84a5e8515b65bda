package site_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"fairshare/site"
)

// The policy file lies next to the program. Here it is written first.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "site")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "policy.yaml")
	const policy = "rules: [{name: two, limit: {requests: 2, per: 1m}}]\n"
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		log.Fatal(err)
	}

	s, err := site.Open(context.Background(), path, site.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	handler := s.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a page")
	}))

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
