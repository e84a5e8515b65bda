package site_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairshare/botauth/botauthtest"
	"fairshare/site"
)

// A program with the middleware verifies signatures of bots, for the hosts of the policy.
func TestSignedRequests(t *testing.T) {
	t.Parallel()
	signer := botauthtest.New("signer.example")
	folder := t.TempDir()
	policy := filepath.Join(folder, "site.yaml")
	for file, text := range map[string]string{
		"keys.json": string(botauthtest.Directory(signer)),
		"site.yaml": `
hosts: [shop.example]
bots: {agents: {signer.example: {bot: shopwatch, keys: keys.json}}}
rules:
  - {name: ours, match: {bot: shopwatch}, allow: true}
  - {name: nobody else, block: true}
`,
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := site.Open(t.Context(), policy, site.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		host string
		want int
	}{{"shop.example", 200}, {"SHOP.example:443", 200}, {"other.example", 403}} {
		r := httptest.NewRequest("GET", "http://"+c.host+"/a", nil)
		r.TLS = nil
		signer.Sign(r.Header, "shop.example", time.Now().Add(time.Second))
		if c.host == "other.example" { // a signature for that site
			signer.Sign(r.Header, c.host, time.Now().Add(time.Second))
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d", c.host, w.Code)
		}
	}
}
