package inbound

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Clients send one byte of a request each second, or stop sending.
func TestSlowSendersAreCut(t *testing.T) {
	request := "GET / HTTP/1.1\r\nHost: here\r\nX-Long: " + strings.Repeat("a", 1000) + "\r\n\r\n"
	settled := slices.Concat(hello(), get(1))
	headers := slices.Concat(encode(frameHeaders, endStream, 3, getHeaders...))
	continued := slices.Clone(headers)
	for range 1000 {
		continued = append(continued, encode(frameContinuation, 0, 3, 0, 1, 'x', 1, 'y')...)
	}
	var pings []byte
	for range 200 {
		pings = append(pings, encode(kindPing, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)...)
	}
	tests := []struct {
		name   string
		secure bool // with TLS
		at     []byte
		drip   []byte
		step   int           // bytes at once; 0: 1
		want   time.Duration // after drip began; 0: it is not cut within 100 s
	}{
		{"HTTP/1 header", false, nil, []byte(request), 0, 10 * time.Second},
		{"nothing at all", false, nil, nil, 0, 10 * time.Second},
		{"header of a second request", false, []byte("GET / HTTP/1.1\r\nHost: here\r\n\r\nGET "), []byte(request), 0,
			10 * time.Second},
		{"preface", false, nil, hello(), 0, 10 * time.Second},
		// by net/http
		{"SETTINGS", false, []byte(clientPreface), encode(kindSettings, 0, 0, noWindow...), 0, 2 * time.Second},
		{"never a request", false, hello(), nil, 0, 10 * time.Second},
		{"pings and never a request", false, hello(), pings, 17, 10 * time.Second},
		{"headers of the first request", false, hello(), headers, 0, 10 * time.Second},
		{"headers of a later one", false, settled, append(
			encode(frameHeaders, endStream|endHeaders, 3, append(getHeaders, make([]byte, 100)...)...), 0), 0,
			10 * time.Second},
		{"continuations", false, slices.Concat(settled, headers), continued[len(headers):], 0, 10 * time.Second},
		{"a block that stops", false, slices.Concat(settled, headers), nil, 0, 10 * time.Second},
		{"a frame that stops", false, slices.Concat(settled, []byte{0, 0, 8, kindPing}), nil, 0,
			10 * time.Second},
		{"DATA that stops", false, slices.Concat(settled, encode(frameHeaders, endHeaders, 3, getHeaders...),
			[]byte{0, 0x0f, 0xa0, frameData, 0, 0, 0, 0, 3}), nil, 0, 14 * time.Second},
		{"settled, and idle", false, settled, nil, 0, 0},
		{"after a request, a ping each second", false, settled, pings, 17, 0},
		{"TLS handshake", true, nil, []byte(strings.Repeat("\x16\x03\x01\x02\x00", 100)), 0, 10 * time.Second},
		{"TLS, preface", true, nil, hello(), 0, 10 * time.Second},
		{"TLS, never a request", true, hello(), nil, 0, 10 * time.Second},
		{"TLS, continuations", true, slices.Concat(settled, headers), continued[len(headers):], 0, 10 * time.Second},
		{"TLS, settled, and idle", true, settled, nil, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			srv := &http.Server{
				ReadHeaderTimeout: 10 * time.Second,
				IdleTimeout:       2 * time.Minute,
				Protocols:         allProtocols(),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
				}),
			}
			if test.secure {
				srv.TLSConfig = certificate(t)
			}
			inBubble(t, Config{}, srv, func(t *testing.T, p *pipes, l *Listener) {
				c := p.dial("192.0.2.2")
				defer c.Close()
				raw := c
				if test.secure && test.name != "TLS handshake" {
					s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
					if err := s.Handshake(); err != nil {
						t.Fatal(err)
					}
					c = s
				}
				cut := make(chan time.Duration, 1)
				began := time.Now()
				go func() {
					io.Copy(io.Discard, c)
					cut <- time.Since(began)
					raw.Close()
				}()
				if _, err := c.Write(test.at); err != nil {
					t.Fatal(err)
				}
				go func() {
					for piece := range slices.Chunk(test.drip, max(1, test.step)) {
						if _, err := c.Write(piece); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				}()
				select {
				case after := <-cut:
					// GOAWAY and the end of a handshake may take another second.
					if after < test.want || after > test.want+2*time.Second || test.want == 0 {
						t.Errorf("cut after %v, want %v", after, test.want)
					}
				case <-time.After(100 * time.Second):
					if test.want != 0 {
						t.Errorf("not cut, want it after %v", test.want)
					}
				}
				raw.Close()
				synctest.Wait()
				time.Sleep(time.Minute) // the drip ends
			})
		})
	}
}

func allProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

var _ net.Listener = (*pipes)(nil)
