package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Clients read an answer at different rates.
func TestSlowReadersAreCut(t *testing.T) {
	tests := []struct {
		name  string
		size  int           // of the answer
		write int           // bytes in one Write of the handler
		take  int           // bytes that the client reads at once
		every time.Duration // between its reads
		pause time.Duration // between the handler's Writes
		cut   bool
	}{
		{"reads nothing", 100_000, 32 << 10, 0, time.Hour, 0, true},
		{"900 B/s", 100_000, 4 << 10, 900, time.Second, 0, true},
		{"900 B/s of one large Write", 1_000_000, 1_000_000, 900, time.Second, 0, true},
		{"one byte at a time", 100_000, 4 << 10, 1, 100 * time.Millisecond, 0, true},
		{"pieces of 4 kB each 5 s", 100_000, 4 << 10, 4 << 10, 5 * time.Second, 0, true},
		{"2 kB/s", 100_000, 4 << 10, 2000, time.Second, 0, false},
		{"2 kB/s of one large Write", 200_000, 200_000, 2000, time.Second, 0, false},
		{"25 kB each 19 s", 200_000, 4 << 10, 25_000, 19 * time.Second, 0, false},
		{"an answer slower than its reader", 2000, 100, 4 << 10, 0, time.Minute, false},
	}
	for _, test := range tests {
		for _, secure := range []bool{false, true} {
			name := test.name
			if secure {
				name += ", TLS"
			}
			t.Run(name, func(t *testing.T) {
				var end struct {
					err error
					at  time.Duration
				}
				handled := make(chan struct{})
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(handled)
					began := time.Now()
					for left := test.size; left > 0 && end.err == nil; {
						var n int
						n, end.err = w.Write(make([]byte, min(left, test.write)))
						if test.pause > 0 {
							http.NewResponseController(w).Flush()
						}
						left -= n
						end.at = time.Since(began)
						time.Sleep(test.pause)
					}
				})}
				if secure {
					srv.TLSConfig = certificate(t)
				}
				var logged logText
				inBubble(t, Config{Log: logged.log()}, srv, func(t *testing.T, p *pipes, l *Listener) {
					handled = make(chan struct{})
					raw := p.dial("192.0.2.2")
					c := raw
					if secure {
						c = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
					}
					go func() {
						defer raw.Close()
						io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
						if test.take == 0 {
							time.Sleep(time.Hour)
							return
						}
						for {
							if _, err := io.ReadFull(c, make([]byte, test.take)); err != nil {
								return
							}
							time.Sleep(test.every)
						}
					}()
					<-handled
					if cut := end.err != nil; cut != test.cut {
						t.Errorf("the handler's Write: %v, want cut: %v", end.err, test.cut)
					}
					if end.err != nil && (end.at < runTime || end.at > runTime+20*time.Second) {
						t.Errorf("cut after %v, want 20 s of waiting", end.at)
					}
					time.Sleep(2 * time.Hour)
				})
				if want := "1 connection was closed: the client took less than 1 kB/s for 20s"; strings.Contains(
					logged.String(), want) != test.cut {
					t.Errorf("logged %q", logged.String())
				}
			})
		}
	}
}

// The kernel's buffer is large: a Write blocks for long while the client reads from it.
func TestPace(t *testing.T) {
	type step struct {
		wrote     int
		took      time.Duration
		confirmed int64 // -1: unknown
		slow      bool
	}
	const s = time.Second
	tests := map[string][]step{
		"nothing confirmed": {
			{0, 5 * s, 0, false}, {0, 5 * s, 0, false}, {0, 5 * s, 0, false}, {0, 5 * s, 0, true},
		},
		"2 kB/s confirmed": {
			{0, 5 * s, 10_000, false}, {0, 5 * s, 20_000, false}, {0, 5 * s, 30_000, false}, {0, 5 * s, 40_000, false},
			{0, 5 * s, 50_000, false}, {0, 5 * s, 60_000, false}, {0, 5 * s, 70_000, false}, {0, 5 * s, 80_000, false},
		},
		"2 kB/s, then none": {
			{0, 5 * s, 10_000, false}, {0, 5 * s, 20_000, false}, {0, 5 * s, 30_000, false}, {0, 5 * s, 40_000, false},
			{0, 5 * s, 40_000, false}, {0, 5 * s, 40_000, false}, {0, 5 * s, 40_000, false}, {0, 5 * s, 40_000, true},
		},
		"under 1 kB/s confirmed": {
			{0, 5 * s, 4_900, false}, {0, 5 * s, 9_800, false}, {0, 5 * s, 14_700, false}, {0, 5 * s, 19_600, true},
		},
		"confirmations unknown": {
			{10_000, 5 * s, -1, false}, {9_999, 14 * s, -1, false}, {0, s, -1, true},
		},
		"a run ends": {
			{10_000, 10 * s, -1, false}, {10_000, 9 * s, -1, false}, {0, 19 * s, -1, false},
			{20_000, 10 * s, -1, false}, {0, 20 * s, -1, true},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var p pace
			for i, step := range steps {
				confirmed := func() (int64, bool) { return step.confirmed, step.confirmed >= 0 }
				if slow := p.wrote(step.wrote, step.took, confirmed); slow != step.slow {
					t.Fatalf("step %d: slow %v, want %v; %+v", i, slow, step.slow, p)
				}
				p.blocked(confirmed)
			}
		})
	}
}

// The test uses a real socket.
func TestConfirmedCountsAcknowledgedBytes(t *testing.T) {
	if !canRefuse {
		t.Skip("this system does not report acknowledged bytes")
	}
	l := New(listenTCP(t, "127.0.0.1:0"), Config{})
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	c := accepted.(*conn)
	// Until the kernel's buffer is full.
	n := 0
	for n == 0 { // the deadline may be over before the Write begins
		c.Conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err = c.Conn.Write(make([]byte, 64<<20)); err == nil {
			t.Fatal("the kernel buffered 64 MiB")
		}
	}
	c.sent.Add(int64(n))
	before, ok := c.confirmed()
	if !ok || before <= 0 || before >= int64(n) {
		t.Fatalf("%d of %d bytes are confirmed, %v", before, n, ok)
	}
	if _, err := io.CopyN(io.Discard, client, int64(n)); err != nil {
		t.Fatal(err)
	}
	for {
		after, _ := c.confirmed()
		if after == int64(n) {
			break
		}
		if after < before || after > int64(n) {
			t.Fatalf("%d of %d bytes are confirmed, after %d", after, n, before)
		}
		time.Sleep(time.Millisecond)
	}
}

// Clients of HTTP/2 keep a stream's window closed, or open it by a few bytes at a time.
func TestStalledStreamsAreReset(t *testing.T) {
	tests := []struct {
		name   string
		size   int
		window int           // opened for a stream
		every  time.Duration // each time
		cut    bool
	}{
		{"never opened, a short answer", 100, 0, time.Hour, true},
		{"never opened, a long answer", 100_000, 0, time.Hour, true},
		{"500 B/s", 100_000, 500, time.Second, true},
		{"2 kB/s", 100_000, 2000, time.Second, false},
		{"one byte at a time", 100_000, 1, 100 * time.Millisecond, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			srv := &http.Server{Protocols: allProtocols(),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Write(make([]byte, test.size))
				})}
			inBubble(t, Config{}, srv, func(t *testing.T, p *pipes, l *Listener) {
				c := p.dial("192.0.2.2")
				began := time.Now()
				ended := make(chan time.Duration, 1)
				var reset bool
				go func() {
					var in scanner
					b := make([]byte, 64<<10)
					for done := false; ; {
						n, err := c.Read(b)
						if err != nil {
							return
						}
						in.scan(b[:n], func(f *frame) {
							over := f.stream == 1 && (f.kind == frameReset ||
								f.kind == frameData && f.flags&flagEndStream != 0)
							if over && !done {
								done, reset = true, f.kind == frameReset
								ended <- time.Since(began)
							}
						})
					}
				}()
				// The connection's window is large, and the stream's is closed.
				c.Write(hello(noWindow...))
				c.Write(encode(kindWindow, 0, 0, 0x10, 0, 0, 0))
				c.Write(get(1))
				stop := make(chan struct{})
				if test.window > 0 {
					go func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(test.every):
								c.Write(encode(kindWindow, 0, 1, 0, 0, byte(test.window>>8), byte(test.window)))
							}
						}
					}()
				}
				select {
				case at := <-ended:
					if reset != test.cut {
						t.Errorf("reset: %v after %v, want %v", reset, at, test.cut)
					}
					if reset && (at < runTime || at > 2*runTime) {
						t.Errorf("reset after %v, want 20 s of waiting", at)
					}
				case <-time.After(10 * time.Minute):
					t.Error("the stream is stalled, and is not reset")
				}
				close(stop)
				c.Close()
				synctest.Wait()
			})
		})
	}
}

// A connection of 10 kB/s carries many answers in turn, and none is cut.
func TestStreamsOfASlowConnectionAreNotReset(t *testing.T) {
	const streams, size = 50, 64 << 10
	srv := &http.Server{Protocols: allProtocols(), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, bytes.NewReader(make([]byte, size)))
		})}
	inBubble(t, Config{}, srv, func(t *testing.T, p *pipes, l *Listener) {
		c := p.dial("192.0.2.2")
		transport := &http.Transport{
			Protocols:   new(http.Protocols),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return slowReader{c}, nil },
		}
		transport.Protocols.SetUnencryptedHTTP2(true)
		request := func() error {
			answer, err := transport.RoundTrip(httpGet(t, "http://here/"))
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if n, err := io.Copy(io.Discard, answer.Body); err != nil || n != size {
				return fmt.Errorf("%d bytes of %d: %w", n, size, err)
			}
			return nil
		}
		if err := request(); err != nil { // alone, so that there is only one connection
			t.Fatal(err)
		}
		began := time.Now()
		answers := make(chan error, streams)
		for range streams {
			go func() { answers <- request() }()
		}
		for range streams {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took < 5*runTime {
			t.Errorf("all answers took %v: too fast for this test", took)
		}
		transport.CloseIdleConnections()
		c.Close()
		time.Sleep(time.Minute)
	})
}

func httpGet(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A slowReader reads 10 kB/s.
type slowReader struct{ net.Conn }

func (r slowReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	time.Sleep(time.Duration(n) * time.Second / 10_000)
	return n, err
}

// BenchmarkWrite writes 4 kB to a socket whose peer reads everything, with and without pace.
func BenchmarkWrite(b *testing.B) {
	for _, paced := range []bool{false, true} {
		b.Run(fmt.Sprintf("paced=%v", paced), func(b *testing.B) {
			inner, err := Listen("127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			l := New(inner, Config{})
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			go io.Copy(io.Discard, client)
			c, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if !paced {
				c = c.(*conn).Conn
			}
			piece := make([]byte, 4<<10)
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(piece); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPace measures a paced Write without the system call.
func BenchmarkPace(b *testing.B) {
	c := newConn(New(newPipes(), Config{}), taker{})
	piece := make([]byte, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		if n, err := c.Write(piece); n != len(piece) || err != nil {
			b.Fatal(n, err)
		}
	}
}

// A taker accepts all bytes at once.
type taker struct{ net.Conn }

func (taker) Write(b []byte) (int, error)      { return len(b), nil }
func (taker) SetWriteDeadline(time.Time) error { return nil }
