package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fairshare/internal/proxy"
)

// If the upstream does not use the HTTP version of the policy, the log shows what to
// write in the policy.
func TestUpstreamThatDoesNotSpeakHTTP2(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	var out lockedBuffer
	resp, _ := exchange(t, serve(t, strings.Replace(upstream.URL, "http:", "h2c:", 1),
		proxy.Config{Log: proxy.NewLog(&out, "")}), "GET / HTTP/1.1\nHost: a\n\n")
	if resp.StatusCode != 502 || !strings.Contains(out.String(), "not with HTTP/2") ||
		!strings.HasSuffix(out.String(), "hint: upstream: "+upstream.URL+"\n") {
		t.Errorf("%d, logged %q", resp.StatusCode, out.String())
	}
}

// The log and Reach show the errors of an upstream, each with a hint.
func TestTLSErrorsHaveAHint(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	unknown := httptest.NewUnstartedServer(http.NotFoundHandler())
	unknown.Config.ErrorLog = proxy.NewLog(io.Discard, "")
	unknown.StartTLS()
	defer unknown.Close()
	for _, test := range []struct{ upstream, want string }{
		{strings.Replace(plain.URL, "http:", "https:", 1), " answers, but not with TLS; hint: upstream: " + plain.URL},
		{unknown.URL,
			" is not trusted: x509: certificate signed by unknown authority; hint: "},
	} {
		var out lockedBuffer
		resp, _ := exchange(t, serve(t, test.upstream, proxy.Config{Log: proxy.NewLog(&out, "fairshare: ")}),
			"GET /secret HTTP/1.1\nHost: a\n\n")
		if resp.StatusCode != 502 || !strings.Contains(out.String(), test.want) ||
			strings.Contains(out.String(), "secret") {
			t.Errorf("%d, logged %q, want %q", resp.StatusCode, out.String(), test.want)
		}
		u, err := proxy.ParseUpstream(test.upstream)
		if err != nil {
			t.Fatal(err)
		}
		if err := proxy.New(proxy.Config{Upstream: u}).Reach(context.Background()); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("reached: %v, want %q", err, test.want)
		}
	}
}
