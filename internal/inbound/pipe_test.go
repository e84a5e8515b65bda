package inbound

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes is a listener without sockets, for synctest.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes {
	return &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// dial connects as a client with this address.
func (p *pipes) dial(from string) net.Conn {
	client, server := net.Pipe()
	p.waiting <- pipeEnd{server, &net.TCPAddr{IP: net.ParseIP(from), Port: 1024}}
	return client
}

type pipeEnd struct {
	net.Conn
	peer net.Addr
}

func (e pipeEnd) RemoteAddr() net.Addr { return e.peer }

// certificate returns a self-signed certificate.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// A logText holds all logged lines. It is safe for concurrent use.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *logText) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *logText) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (w *logText) log() *log.Logger { return log.New(w, "", 0) }

// inBubble serves on pipes in synctest, calls do, and closes everything.
func inBubble(t *testing.T, c Config, srv *http.Server, do func(t *testing.T, p *pipes, l *Listener)) {
	t.Helper()
	quietly := log.New(io.Discard, "", 0)
	secure := srv.TLSConfig
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		srv.ErrorLog = quietly
		in := New(p, c)
		in.Attach(srv)
		ended := make(chan error, 1)
		lane := in.NewLane(in, srv)
		go func() {
			if secure != nil {
				ended <- srv.ServeTLS(in, "", "")
			} else {
				ended <- srv.Serve(lane)
			}
		}()
		do(t, p, in)
		srv.Close()
		lane.CloseAll()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
		synctest.Wait()
		if n := in.Open(); n != 0 {
			t.Errorf("%d connections are in the table of a closed server", n)
		}
	})
}

// encode makes a frame.
func encode(kind, flags byte, stream uint32, payload ...byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	f = append(f, flags)
	f = binary.BigEndian.AppendUint32(f, stream)
	return append(f, payload...)
}

// getHeaders requests / of the host "here": names and values of HPACK's static
// table.
var getHeaders = []byte{0x82, 0x86, 0x84, 0x41, 4, 'h', 'e', 'r', 'e'}

const (
	kindPriority = 0x2
	kindSettings = 0x4
	kindPing     = 0x6
	kindWindow   = 0x8
	endStream    = 0x1
	endHeaders   = 0x4
)

// get returns a complete request without a body.
func get(stream uint32) []byte {
	return encode(frameHeaders, endStream|endHeaders, stream, getHeaders...)
}

// hello returns the first bytes of a client of HTTP/2.
func hello(settings ...byte) []byte {
	return append([]byte(clientPreface), encode(kindSettings, 0, 0, settings...)...)
}

// noWindow is the setting SETTINGS_INITIAL_WINDOW_SIZE = 0.
var noWindow = []byte{0, 4, 0, 0, 0, 0}
