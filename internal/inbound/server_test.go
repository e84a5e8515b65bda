package inbound

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// Handlers reach the methods of net/http through the wrapped answer.
func TestHandlersReachTheirServer(t *testing.T) {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "first, ")
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if connOfRequest(r) == nil {
			t.Error("the request's connection is unknown")
		}
		io.WriteString(w, "second")
	})}
	in := serve(t, listenTCP(t, "127.0.0.1:0"), Config{}, srv)
	answer, err := http.DefaultTransport.RoundTrip(httpGet(t, "http://"+in.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "first, second" || answer.Close {
		t.Errorf("answer %q, %v, ends its connection: %v", body, err, answer.Close)
	}
}

// BenchmarkServe answers requests on one connection, with and without a Listener.
func BenchmarkServe(b *testing.B) {
	for _, watched := range []bool{false, true} {
		for _, proto := range []string{"HTTP1", "HTTP2"} {
			b.Run(fmt.Sprintf("%s/watched=%v", proto, watched), func(b *testing.B) {
				l, err := Listen("127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				srv := &http.Server{Protocols: allProtocols(),
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						io.WriteString(w, "here you are")
					})}
				defer srv.Close()
				if watched {
					in := New(l, Config{})
					in.Attach(srv)
					l = in
				}
				go srv.Serve(l)
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				if proto == "HTTP1" {
					in := bufio.NewReader(c)
					b.ReportAllocs()
					for b.Loop() {
						io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
						answer, err := http.ReadResponse(in, nil)
						if err != nil {
							b.Fatal(err)
						}
						io.Copy(io.Discard, answer.Body)
					}
					return
				}
				c.Write(hello())
				var in scanner
				piece := make([]byte, 4096)
				stream := uint32(1)
				b.ReportAllocs()
				for b.Loop() {
					c.Write(append(get(stream), encode(kindWindow, 0, 0, 0, 0, 0, 12)...))
					for answered := false; !answered; {
						n, err := c.Read(piece)
						if err != nil {
							b.Fatal(err)
						}
						in.scan(piece[:n], func(f *frame) {
							answered = answered || f.stream == stream && f.kind == frameData &&
								f.flags&flagEndStream != 0
						})
					}
					stream += 2
				}
			})
		}
	}
}
