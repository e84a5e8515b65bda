package inbound

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The scanner finds the same frames in pieces of any size.
func TestFramesAreFoundInPieces(t *testing.T) {
	b := slices.Concat(hello()[len(clientPreface):], get(1), encode(frameReset, 0, 1, 0, 0, 0, 8),
		encode(frameData, endStream, 0x80000003, make([]byte, 70000)...), encode(kindWindow, 0, 0, 1, 2, 3, 4))
	want := []frame{
		{0, kindSettings, 0, 0, 0},
		{uint32(len(getHeaders)), frameHeaders, 5, 1, 0x82868441},
		{4, frameReset, 0, 1, 8},
		{70000, frameData, 1, 3, 0},
		{4, kindWindow, 0, 0, 0x01020304},
	}
	for size := 1; size < 40; size++ {
		var s scanner
		var got []frame
		for piece := range slices.Chunk(b, size) {
			s.scan(piece, func(f *frame) { got = append(got, *f) })
		}
		if !slices.Equal(got, want) || s.within() {
			t.Fatalf("in pieces of %d: %+v, want %+v", size, got, want)
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add(get(1), 3)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var whole, pieces []frame
		var one, two scanner
		one.scan(b, func(f *frame) { whole = append(whole, *f) })
		for piece := range slices.Chunk(b, max(1, size%100)) {
			two.scan(piece, func(f *frame) { pieces = append(pieces, *f) })
		}
		if !slices.Equal(whole, pieces) || one.within() != two.within() {
			t.Fatalf("at once %+v, in pieces %+v", whole, pieces)
		}
	})
}

// The tests send frames with a pause between them.
func TestAbusiveFramesCloseTheConnection(t *testing.T) {
	reset := func(stream uint32) []byte { return encode(frameReset, 0, stream, 0, 0, 0, 8) }
	ping := encode(kindPing, 0, 0, make([]byte, 8)...)
	stream := func(i int) uint32 { return uint32(2*i + 1) }
	tests := []struct {
		name  string
		next  func(i int) []byte
		every time.Duration
		sent  int // bytes to the client, with each frame
		after int // closed with the frame of this number, 0: with none of 20,000
		why   string
	}{
		{"each is reset", func(i int) []byte { return append(get(stream(i)), reset(stream(i))...) }, time.Millisecond,
			0, 201, tooManyResets},
		{"each is reset, slowly", func(i int) []byte { return append(get(stream(i)), reset(stream(i))...) },
			150 * time.Millisecond, 0, 0, ""},
		{"one of three is reset", func(i int) []byte {
			if i%3 == 0 {
				return append(get(stream(i)), reset(stream(i))...)
			}
			return get(stream(i))
		}, time.Millisecond, 0, 0, ""},
		{"resets of streams that were never opened",
			func(i int) []byte { return reset(stream(i)) }, 0, 0, 201, tooManyResets},
		{"pings", func(int) []byte { return ping }, 0, 0, 1001, tooManyIdleFrames},
		{"pings, 90 a second", func(int) []byte { return ping }, 11 * time.Millisecond, 0, 0, ""},
		{"pings, 200 a second", func(int) []byte { return ping }, 5 * time.Millisecond, 0, 2000, tooManyIdleFrames},
		{"settings", func(int) []byte { return encode(kindSettings, 0, 0) }, 0, 0, 1001, tooManyIdleFrames},
		{"priorities", func(i int) []byte { return encode(kindPriority, 0, stream(i), 0, 0, 0, 0, 1) }, 0, 0, 1001,
			tooManyIdleFrames},
		{"unknown frames", func(i int) []byte { return encode(0xbe, 0, 0) }, 0, 0, 1001, tooManyIdleFrames},
		{"empty continuations", func(i int) []byte { return encode(frameContinuation, 0, 1) }, 0, 0, 1001,
			tooManyIdleFrames},
		{"empty data", func(i int) []byte { return encode(frameData, 0, 1) }, 0, 0, 1001, tooManyIdleFrames},
		{"single bytes", func(i int) []byte { return encode(frameData, 0, 1, 'x') }, 0, 0, 1001, tooManyIdleFrames},
		{"windows", func(i int) []byte { return encode(kindWindow, 0, 0, 0, 0, 0, 1) }, 0, 0, 1001, tooManyIdleFrames},
		{"windows of a download", func(i int) []byte { return encode(kindWindow, 0, 0, 0, 0, 4, 0) }, 0, 1000, 0, ""},
		{"a body", func(i int) []byte { return encode(frameData, 0, 1, make([]byte, 100)...) }, 0, 0, 0, ""},
		{"requests with their settings and pings", func(
			i int) []byte {
			return slices.Concat(get(stream(i)), ping, ping)
		}, 0, 0, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStreams(t)
			closed, why := 0, ""
			now := time.Second
			for i := range 20_000 {
				s.in.scan(test.next(i), func(f *frame) {
					if why == "" {
						why = s.note(f, now)
					}
				})
				if why != "" {
					closed = i + 1
					break
				}
				now += test.every
				s.conn.sent.Add(int64(test.sent))
			}
			if why != test.why || test.after == 0 && closed != 0 || closed < test.after || closed > test.after+10 {
				t.Errorf("closed after %d: %q, want %d: %q", closed, why, test.after, test.why)
			}
			if len(s.open) > openKept {
				t.Errorf("%d streams are idle", len(s.open))
			}
		})
	}
}

// newTestStreams returns the streams of a connection whose peer reads nothing.
func newTestStreams(t *testing.T) *streams {
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	return newStreams(server, newConn(New(newPipes(), Config{}), server))
}

// Streams that net/http resets count if the client has broken a rule.
func TestRefusedStreamsCount(t *testing.T) {
	for name, test := range map[string]struct {
		code   uint32
		same   bool // always the same few streams
		closed bool
	}{
		"protocol errors":                {errCodeProtocol, false, true},
		"flow control errors":            {errCodeFlow, false, true},
		"refused":                        {errCodeRefused, false, true},
		"DATA on closed streams":         {errCodeEnded, false, true},
		"DATA on the same few streams":   {errCodeEnded, true, false},
		"our own failures":               {2, false, false},
		"early answers, complete bodies": {0, false, false},
	} {
		s := newTestStreams(t)
		why := ""
		for i := range 500 {
			if test.same {
				i %= 50
			}
			if w := s.noteSent(&frame{kind: frameReset, length: 4, stream: uint32(2*i + 1),
				first: test.code}); w != "" {
				why = w
			}
		}
		if (why != "") != test.closed {
			t.Errorf("%s: closed for %q, want closed %v", name, why, test.closed)
		}
	}
}

// dialHTTP2 connects as a client of HTTP/2 that drops all answers.
func dialHTTP2(t *testing.T, addr string, secure bool) net.Conn {
	t.Helper()
	return dialHTTP2To(t, addr, secure, io.Discard)
}

// dialHTTP2To connects as a client of HTTP/2 that copies all bytes from the server to w.
func dialHTTP2To(t *testing.T, addr string, secure bool, w io.Writer) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(hello()); err != nil {
		t.Fatal(err)
	}
	go io.Copy(w, c)
	return c
}

// The test uses real sockets.
func TestRapidResetsEndTheConnection(t *testing.T) {
	attacks := map[string]func(stream uint32) []byte{
		"RST_STREAM": func(stream uint32) []byte {
			return append(get(stream), encode(frameReset, 0, stream, 0, 0, 0, 8)...)
		},
		"made to reset": func(stream uint32) []byte { // WINDOW_UPDATE by 0
			return append(get(stream), encode(kindWindow, 0, stream, 0, 0, 0, 0)...)
		},
		"PING": func(uint32) []byte { return encode(kindPing, 0, 0, make([]byte, 8)...) },
	}
	for name, attack := range attacks {
		for _, secure := range []bool{false, true} {
			for _, exempt := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					var started atomic.Int64
					for attempt := 1; attempt <= 3; attempt++ { // net/http may be faster, and close the connection
						srv := &http.Server{Protocols: allProtocols(), ErrorLog: new(logText).log(),
							Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								started.Add(1)
								<-r.Context().Done()
							})}
						if secure {
							srv.TLSConfig = certificate(t)
						}
						var logged logText
						in := serve(t, listenTCP(t, "127.0.0.1:0"),
							Config{Log: logged.log(), Exempt: func(netip.Addr) bool { return exempt }}, srv)
						c := dialHTTP2(t, in.Addr().String(), secure)
						const many = 5000
						written := 0
						for i := range uint32(many) {
							if _, err := c.Write(attack(2*i + 1)); err != nil {
								break
							}
							written++
						}
						if exempt {
							return // net/http may close the connection itself
						}
						for in.Open() > 0 {
							time.Sleep(time.Millisecond)
						}
						// some are in transit at that moment, more on a busy machine
						if n := started.Load(); n > many/4 {
							t.Errorf("the handler got %d requests", n)
						}
						in.notices.flush()
						if strings.Contains(logged.String(), "1 connection was closed: its") {
							return
						}
						if attempt == 3 {
							t.Errorf("logged %q", logged.String())
						}
					}
				})
			}
		}
	}
}

// One connection carries many requests with bodies. Some of them are cancelled.
func TestHTTP2IsServed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		srv := &http.Server{Protocols: allProtocols(),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 || (r.TLS != nil) != secure {
					t.Errorf("%s, TLS %v, want HTTP/2 and TLS %v", r.Proto, r.TLS != nil, secure)
				}
				if r.URL.Path == "/wait" {
					<-r.Context().Done()
					return
				}
				if n, err := io.Copy(w, r.Body); err != nil {
					t.Errorf("body: %v after %d bytes", err, n)
				}
			})}
		transport := &http.Transport{Protocols: new(http.Protocols),
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		scheme := "http://"
		if secure {
			scheme = "https://"
			srv.TLSConfig = certificate(t)
			transport.Protocols.SetHTTP2(true)
		} else {
			transport.Protocols.SetUnencryptedHTTP2(true)
		}
		in := serve(t, listenTCP(t, "127.0.0.1:0"), Config{}, srv)
		body := strings.Repeat("0123456789", 50_000)
		for i := range 60 {
			if i%3 == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				transport.RoundTrip(httpGet(t, scheme+in.Addr().String()+"/wait").WithContext(ctx))
				cancel()
				continue
			}
			r, err := http.NewRequest("POST", scheme+in.Addr().String()+"/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || string(got) != body {
				t.Fatalf("answer: %d bytes, %v, want the request's %d", len(got), err, len(body))
			}
		}
		if n := in.Open(); n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
		in.each(func(c *conn) {
			s := c.h2.Load()
			if s == nil {
				t.Fatal("the connection is not watched")
			}
			for s.unanswered() > 0 {
				time.Sleep(time.Millisecond)
			}
		})
		transport.CloseIdleConnections()
	}
}

// Answers that the client does not read use memory, even if they are short.
func TestStreamsOfOneAddressAreBounded(t *testing.T) {
	const perConn, conns = 100, 3
	for _, test := range []struct {
		config Config
		exempt bool
		stay   int64
	}{
		{Config{PerAddr: 8}, false, leastStreams},
		{Config{PerAddr: 8}, true, conns * perConn},
		{Config{PerAddr: 70, Connections: 70}, false, 70},
	} {
		for _, secure := range []bool{false, true} {
			srv := &http.Server{Protocols: allProtocols(),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "the window of this stream is 0")
				})}
			if secure {
				srv.TLSConfig = certificate(t)
			}
			var logged logText
			test.config.Log = logged.log()
			test.config.Exempt = func(netip.Addr) bool { return test.exempt }
			in := serve(t, listenTCP(t, "127.0.0.1:0"), test.config, srv)
			var resets atomic.Int64
			var all []net.Conn
			for range conns {
				c := dialHTTP2To(t, in.Addr().String(), secure, &resetCounter{n: &resets})
				all = append(all, c)
				c.Write(encode(kindSettings, 0, 0, noWindow...))
				for i := range uint32(perConn) {
					c.Write(get(2*i + 1))
				}
			}
			for late := time.Now().Add(10 * time.Second); resets.Load()+in.streams.Load() < conns*perConn ||
				in.streams.Load() > test.stay; time.Sleep(time.Millisecond) {
				if time.Now().After(late) {
					t.Fatalf("%+v: %d streams are open and %d were reset, want %d open", test, in.streams.Load(),
						resets.Load(), test.stay)
				}
			}
			in.notices.flush()
			if n := resets.Load(); n < conns*perConn-test.stay ||
				(n > 0) != strings.Contains(logged.String(), "HTTP/2 requests were reset") {
				t.Errorf("%+v: %d streams were reset, and the log contains %q", test, n, logged.String())
			}
			for _, c := range all {
				c.Close()
			}
			for in.Open() > 0 || in.streams.Load() != 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// A resetCounter counts the frames written to it that reset a stream.
type resetCounter struct {
	scanner
	n *atomic.Int64
}

func (c *resetCounter) Write(b []byte) (int, error) {
	c.scan(b, func(f *frame) {
		if f.kind == frameReset {
			c.n.Add(1)
		}
	})
	return len(b), nil
}
