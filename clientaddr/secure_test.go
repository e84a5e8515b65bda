package clientaddr

import (
	"net/http"
	"testing"
)

func TestSecure(t *testing.T) {
	for _, c := range []struct {
		header string // with the client's address
		peer   string
		sent   http.Header
		want   bool
	}{
		{"", "127.0.0.1:9", http.Header{"X-Forwarded-Proto": {"https"}}, true},
		{"", "127.0.0.1:9", http.Header{"X-Forwarded-Proto": {"http, HTTPS"}}, true},
		{"", "127.0.0.1:9", http.Header{"X-Forwarded-Proto": {"https, http"}}, false},
		{"", "127.0.0.1:9", http.Header{"X-Forwarded-Proto": {"https", "http"}}, false},
		{"", "127.0.0.1:9", http.Header{}, false},
		{"", "192.0.2.1:9", http.Header{"X-Forwarded-Proto": {"https"}}, false}, // not trusted
		{"Forwarded", "127.0.0.1:9", http.Header{"Forwarded": {"for=192.0.2.1;proto=https"}}, true},
		{"Forwarded", "127.0.0.1:9",
			http.Header{"Forwarded": {"for=192.0.2.1"}, "X-Forwarded-Proto": {"https"}}, false},
	} {
		r, err := New(Config{TrustedProxies: []string{"loopback"}, Header: c.header})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Secure(c.peer, c.sent); got != c.want {
			t.Errorf("%q from %s with %v: %v, want %v", c.header, c.peer, c.sent, got, c.want)
		}
	}
	r, err := New(Config{TrustedProxies: []string{"loopback"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Secure("127.0.0.1:9", nil) {
		t.Error("a request without a header is secure")
	}
}
