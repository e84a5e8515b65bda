package proxyprotocol_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/clientaddr"
	"fairshare/clientaddr/proxyprotocol"
)

// A pipes is a listener that hands out what is put into it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return tcp("127.0.0.1:80") }

// A from is a connection with a given peer.
type from struct {
	net.Conn
	peer net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.peer }
func (f from) LocalAddr() net.Addr  { return tcp("127.0.0.1:80") }

func tcp(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

// accept connects peer to a listener that trusts 10.0.0.0/8. It returns the accepted
// connection, the peer's end, and the peers that were refused.
func accept(t *testing.T, peer net.Addr) (accepted, theirs net.Conn, refused *[]string) {
	t.Helper()
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	inner := make(pipes, 1)
	refused = new([]string)
	listener := proxyprotocol.Listener(inner, r.TrustsPeer, func(peer net.Addr, err error) {
		if err == nil {
			t.Error("refused without a reason")
		}
		*refused = append(*refused, peer.String())
	})
	ours, theirs := net.Pipe()
	inner <- from{ours, peer}
	accepted, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close(); theirs.Close() })
	return accepted, theirs, refused
}

var balancer = tcp("10.0.0.1:4711")

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// v2 is a version 2 header with the two bytes behind the signature.
func v2(command, family byte, body string) string {
	return signature + string([]byte{command, family}) +
		string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + body
}

const (
	ports   = "\x30\x39\x00\x50" // 12345, 80
	v4Addrs = "\xc0\x00\x02\x01\xc6\x33\x64\x01" + ports
	v6Addrs = " \x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		" \x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + ports
)

func TestTrustedPeersMustSendAHeader(t *testing.T) {
	unixAddrs := strings.Repeat("/run/a\x00\x00", 27)
	tests := []struct {
		name, sent string
		want       string // RemoteAddr; "" when the connection must fail
	}{
		{"v1 IPv4", "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\r\n", "192.0.2.1:12345"},
		{"v1 IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 12345 80\r\n", "[2001:db8::1]:12345"},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "10.0.0.1:4711"},
		{"v1 unknown with addresses", "PROXY UNKNOWN 192.0.2.1 198.51.100.1 12345 80\r\n", "10.0.0.1:4711"},
		{"v2 IPv4", v2(0x21, 0x11, v4Addrs), "192.0.2.1:12345"},
		{"v2 IPv6", v2(0x21, 0x21, v6Addrs), "[2001:db8::1]:12345"},
		{"v2 with further fields", v2(0x21, 0x11, v4Addrs+"\x04\x00\x01\x00"), "192.0.2.1:12345"},
		{"v2 local", v2(0x20, 0x00, ""), "10.0.0.1:4711"},
		{"v2 local with addresses", v2(0x20, 0x11, v4Addrs), "10.0.0.1:4711"},
		{"v2 Unix socket", v2(0x21, 0x31, unixAddrs), "10.0.0.1:4711"},

		{"none", "GET / HTTP/1.1\r\n\r\n", ""},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""},
		{"v1 two blanks", "PROXY  TCP4 192.0.2.1 198.51.100.1 12345 80\r\n", ""},
		{"v1 leading zero in a port", "PROXY TCP4 192.0.2.1 198.51.100.1 012345 80\r\n", ""},
		{"v1 leading zero in an address", "PROXY TCP4 192.0.2.01 198.51.100.1 12345 80\r\n", ""},
		{"v1 bare LF", "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\n", ""},
		{"v1 bare CR", "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\rGET / HTTP/1.1\r\n", ""},
		{"v1 IPv6 as TCP4", "PROXY TCP4 2001:db8::1 2001:db8::2 12345 80\r\n", ""},
		{"v1 with a zone", "PROXY TCP6 fe80::1%eth0 2001:db8::2 12345 80\r\n", ""},
		{"v1 lower case", "proxy TCP4 192.0.2.1 198.51.100.1 12345 80\r\n", ""},
		{"v1 over 107 bytes", "PROXY TCP4 " + strings.Repeat("1", 100) + "\r\n", ""},
		{"v2 unknown command", v2(0x22, 0x11, v4Addrs), ""},
		{"v2 other version", v2(0x11, 0x11, v4Addrs), ""},
		{"v2 too short for its family", v2(0x21, 0x11, v4Addrs[:8]), ""},
		{"v2 no family", v2(0x21, 0x00, ""), ""},
		{"v2 datagrams", v2(0x21, 0x12, v4Addrs), ""},
		{"v2 Unix datagrams", v2(0x21, 0x32, unixAddrs), ""},
		{"v2 huge", v2(0x21, 0x11, v4Addrs+strings.Repeat("\x00", 60000)), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, theirs, refused := accept(t, balancer)
				go func() {
					io.WriteString(theirs, test.sent+"hello")
					theirs.Close()
				}()
				if test.want == "" {
					if got := conn.RemoteAddr().String(); got != "10.0.0.1:4711" {
						t.Errorf("RemoteAddr = %s", got)
					}
					if n, err := conn.Read(make([]byte, 10)); n != 0 || err == nil {
						t.Errorf("Read = %d, %v, want an error", n, err)
					}
					if n, err := conn.Write([]byte("x")); n != 0 || err == nil {
						t.Errorf("Write = %d, %v, want an error", n, err)
					}
					conn.Read(make([]byte, 10))
					if !slices.Equal(*refused, []string{"10.0.0.1:4711"}) {
						t.Errorf("refused %q, want the peer, once", *refused)
					}
					return
				}
				if got := conn.RemoteAddr().String(); got != test.want {
					t.Errorf("RemoteAddr = %s, want %s", got, test.want)
				}
				if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
					t.Errorf("read %q, %v", got, err)
				}
				conn.Read(make([]byte, 1)) // the end of the connection is not a refusal
				if len(*refused) != 0 {
					t.Errorf("refused %q", *refused)
				}
			})
		})
	}
}

func TestUntrustedPeersArePassedAsTheyAre(t *testing.T) {
	const forged = "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\r\n"
	for _, peer := range []net.Addr{tcp("203.0.113.9:1"), &net.UnixAddr{Net: "unix", Name: "@"},
		&net.UnixAddr{Net: "unix"}} {
		synctest.Test(t, func(t *testing.T) {
			conn, theirs, _ := accept(t, peer)
			if got := conn.RemoteAddr(); got != peer { // nothing was sent yet, nothing is waited for
				t.Errorf("RemoteAddr = %v, want %v", got, peer)
			}
			go func() {
				io.WriteString(theirs, forged)
				theirs.Close()
			}()
			if got, err := io.ReadAll(conn); err != nil || string(got) != forged {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}

func TestHeadersMustComeInTime(t *testing.T) {
	for _, first := range []string{"", "P", "PROXY TCP4 192.0.2.1", signature, v2(0x21, 0x11, v4Addrs)[:20]} {
		synctest.Test(t, func(t *testing.T) {
			conn, theirs, _ := accept(t, balancer)
			go io.WriteString(theirs, first) // and then silence
			start := time.Now()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("after %q: a read without error", first)
			}
			if waited := time.Since(start); waited > 5*time.Second {
				t.Errorf("after %q: waited %v", first, waited)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		conn, theirs, _ := accept(t, balancer)
		go func() {
			time.Sleep(3 * time.Second)
			io.WriteString(theirs, "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\r\n")
		}()
		if got := conn.RemoteAddr().String(); got != "192.0.2.1:12345" {
			t.Errorf("after three seconds: RemoteAddr = %s", got)
		}
	})
}

// A peer that sends a header slowly gets no extra time for it.
func TestTrickledHeadersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, theirs, _ := accept(t, balancer)
		header := v2(0x21, 0x11, v4Addrs)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := range header {
				if _, err := theirs.Write([]byte{header[i]}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		start := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a trickled header was taken")
		}
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("waited %v, want 5s", waited)
		}
		conn.Close()
		<-stopped
	})
}

func TestSlowPeersDoNotHoldUpAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := make(pipes, 100)
		listener := proxyprotocol.Listener(inner, func(string) bool { return true }, nil)
		for range cap(inner) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			inner <- from{ours, balancer}
		}
		start := time.Now()
		for range cap(inner) {
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("accepting silent peers took %v", waited)
		}
		inner.Close()
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

// The two parts together, as a server uses them.
func TestServerSeesTheClientBehindTheBalancer(t *testing.T) {
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, header, want string
	}{
		{"a client", "PROXY TCP4 192.0.2.1 198.51.100.1 12345 80\r\n", "192.0.2.1"},
		{"a proxy before the balancer", "PROXY TCP4 10.0.0.7 198.51.100.1 12345 80\r\n", "6.6.6.6"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := make(chan string, 1)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					seen <- r.Resolve(req.RemoteAddr, req.Header).Addr.String()
				})}
				inner := make(pipes, 1)
				done := make(chan error, 1)
				go func() { done <- server.Serve(proxyprotocol.Listener(inner, r.TrustsPeer, nil)) }()
				ours, theirs := net.Pipe()
				inner <- from{ours, balancer}
				go io.WriteString(theirs,
					test.header+"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: close\r\n\r\n")
				answer, err := io.ReadAll(theirs)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
					t.Errorf("answer %q, %v", answer, err)
				}
				if got := <-seen; got != test.want {
					t.Errorf("client %s, want %s", got, test.want)
				}
				server.Close()
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("Serve: %v", err)
				}
			})
		})
	}
}
