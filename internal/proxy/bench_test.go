package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"fairshare/internal/proxy"
)

// A discard is a client that drops the answer and keeps its status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// quick starts an upstream that does almost no work.
func quick(b *testing.B) string {
	return upstreamOf(b, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				io.WriteString(conn,
					"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 12\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\n\r\nhello world\n")
			}
		}
	})
}

// visit is one small GET of a browser. done ends it, as net/http does.
func visit() (r *http.Request, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r, _ = http.NewRequestWithContext(ctx, "GET", "/index.html?a=b", nil)
	r.RequestURI, r.RemoteAddr, r.Host = "/index.html?a=b", "192.0.2.1:4711", "site.example"
	for _, field := range [...][2]string{{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, {"Accept", "text/html"},
		{"Accept-Language", "de"}, {"Accept-Encoding", "gzip, br"}, {"Cookie", "session=0123456789"},
		{"Connection", "keep-alive"}, {"Sec-Fetch-Mode", "navigate"}} {
		r.Header[field[0]] = []string{field[1]}
	}
	return r, cancel
}

// BenchmarkPass is one small GET of a browser through the proxy and a real
// connection to the upstream.
func BenchmarkPass(b *testing.B) {
	u, err := proxy.ParseUpstream(quick(b))
	if err != nil {
		b.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: u})
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		r, done := visit()
		w := &discard{header: make(http.Header)}
		p.ServeHTTP(w, r)
		done()
		if w.status != 200 {
			b.Fatalf("status %d", w.status)
		}
	}
}
