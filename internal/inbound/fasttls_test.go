package inbound

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairshare/internal/socket"
)

// The lane serves HTTP/1.1 with TLS, and the handler gets the same requests as without the lane, with the same facts
// about TLS.
func TestLanesGetTheSameRequestsWithTLS(t *testing.T) {
	for _, asks := range []tls.ClientAuthType{tls.NoClientCert, tls.RequireAnyClientCert} {
		config := certificate(t)
		config.ClientAuth, config.NextProtos = asks, []string{"h2", "http/1.1"}
		p := newTLSLanePair(t, config, echo)
		if asks != tls.NoClientCert {
			p.tls.Certificates = config.Certificates
		}
		for i, text := range requests {
			if asks != tls.NoClientCert && i > 5 {
				break
			}
			p.tls.NextProtos = nil
			if i%2 == 0 {
				p.tls.NextProtos = []string{"http/1.1"}
			}
			for _, piece := range []int{1 << 20, 11} {
				p.compare(rawRequest(text), piece)
			}
		}
		if p.fast.Load() < 6 {
			t.Errorf("only %d requests took the lane", p.fast.Load())
		}
	}
}

// Answers of all kinds are the same with TLS.
func TestLanesGiveTheSameAnswersWithTLS(t *testing.T) {
	p := newTLSLanePair(t, certificate(t), func(w http.ResponseWriter, r *http.Request) {
		laneAnswers[strings.ReplaceAll(r.URL.Path[1:], "_", " ")](w, r)
	})
	// The end of TLS would come unread when net/http closes, and the client would lose the end of the answer.
	p.stays = true
	for name := range laneAnswers {
		one := "GET /" + strings.ReplaceAll(name, " ", "_") + " HTTP/1.1\r\nHost: a\r\n"
		p.compare(one+"\r\n"+one+"Connection: close\r\n\r\n", 1<<20)
	}
}

// HTTP/2 goes to the server after the handshake, and so does the rest of a connection after a request that is not
// simple. Both are served as requests with TLS.
func TestLaneHandsConnectionsWithTLSOver(t *testing.T) {
	config := certificate(t)
	config.NextProtos = []string{"h2", "http/1.1"}
	p := newTLSLanePair(t, config, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS != nil && r.TLS.HandshakeComplete, " ", r.TLS.NegotiatedProtocol)
	})
	transport := &http.Transport{TLSClientConfig: p.tls, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + p.addr[0])
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "HTTP/2.0 true h2" || err != nil {
		t.Errorf("HTTP/2: %q, %v", body, err)
	}
	resp.Body.Close()
	p.tls.NextProtos = nil
	conn := p.dial(0)
	defer conn.Close()
	// A few bytes of the second request come together with the first one.
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Enc")
	r := bufio.NewReader(conn)
	for i, want := range []string{"HTTP/1.1 true ", "HTTP/1.1 true "} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil {
			t.Errorf("request %d: %q, %v", i, body, err)
		}
		io.WriteString(conn, "oding: chunked\r\n\r\n0\r\n\r\n")
	}
	if p.fast.Load() != 1 {
		t.Errorf("%d requests took the lane, want the first of HTTP/1.1", p.fast.Load())
	}
}

// A client that speaks HTTP in place of TLS gets the same answer as from net/http, and one that sends other bytes
// or leaves during the handshake gets none.
func TestLaneAnswersClientsWithoutTLS(t *testing.T) {
	p := newTLSLanePair(t, certificate(t), echo)
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\x16\x03\x01", ""} {
		var answers [2]string
		for i := range answers {
			conn, err := net.Dial("tcp", p.addr[i])
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(30 * time.Second))
			io.WriteString(conn, text)
			conn.(*net.TCPConn).CloseWrite()
			all, _ := io.ReadAll(conn)
			answers[i] = string(all)
			conn.Close()
		}
		if answers[0] != answers[1] {
			t.Errorf("%q: answer %q, without the lane %q", text, answers[0], answers[1])
		}
	}
}

// A client with TLS that leaves while its request is in progress is noticed, even after sending more.
func TestLaneNoticesThatAClientWithTLSLeaves(t *testing.T) {
	if !canSeeHangups {
		t.Skip("this system does not show it")
	}
	began, ended := make(chan bool, 1), make(chan bool)
	p := newTLSLanePair(t, certificate(t), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- true
			<-r.Context().Done()
			ended <- true
		}
	})
	conn := p.dial(0)
	io.WriteString(conn, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET /more HTTP/1.1\r\nHost: a\r\n\r\nG")
	<-began
	conn.Close()
	<-ended
}

// A connection that waits for its next request holds no buffer of the lane, with TLS and without. One that waits for
// the rest of a head holds one.
func TestIdleLaneConnectionsHoldNoBuffer(t *testing.T) {
	if !socket.Supported {
		t.Skip("this system cannot read without waiting")
	}
	const n = 200
	heap := func() int {
		runtime.GC() // what is in a pool lives until the second collection
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, config := range []*tls.Config{nil, certificate(t)} {
		p := newTLSLanePair(t, config, echo)
		conns := make([]net.Conn, n)
		for i := range conns {
			conns[i] = p.dial(0)
			defer conns[i].Close()
		}
		request := func(text string) {
			for _, c := range conns {
				io.WriteString(c, text)
				if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		request("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		idle := heap()
		for range 20 { // the last connections may still be reading
			time.Sleep(5 * time.Millisecond)
			idle = min(idle, heap())
		}
		for _, c := range conns {
			io.WriteString(c, "GET / HTTP/1.1\r\n")
		}
		deadline := time.Now().Add(20 * time.Second)
		for heap()-idle < n*headBytes*3/4 {
			if time.Now().After(deadline) {
				t.Fatalf("TLS %v: %d bytes with idle connections, %d with those that have sent a part of a head",
					config != nil, idle, heap())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TLS answers some records while it reads, within a read of the raw connection. A client that does not
// take these answers is closed, and nothing waits for itself.
func TestSlowClientOfAnAnswerWithinARead(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the client has five seconds")
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(inner, Config{})
	defer l.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := accepted.(*conn)
	if c.raw == nil {
		t.Skip("no raw connections here")
	}
	c.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil { // until the buffer of the kernel is full
		_, err = c.Conn.Write(make([]byte, 1<<16))
	}
	c.SetWriteDeadline(time.Time{})
	written := make(chan error, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- c.raw.Read(func(uintptr) bool {
			for { // the kernel may still take some
				c.pace = pace{spent: runTime}
				if _, err := c.Write(make([]byte, 1<<16)); err != nil {
					written <- err
					return true
				}
			}
		})
	}()
	if err := <-written; err != errSlow {
		t.Fatalf("the write ended with %v", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the read waits for the close, and the close for the read")
	}
	c.Close() // it was begun in the background
}
