package inbound

import (
	"net"
	"sync/atomic"
	"testing"
)

// BenchmarkSetState makes connections busy and idle again, each connection from one goroutine.
func BenchmarkSetState(b *testing.B) {
	l := New(noListener{}, Config{Connections: 4096, PerAddr: 512})
	var conns [4096]*conn
	for i := range conns {
		conns[i] = l.admit(pipeFrom(net.IPv4(10, 0, byte(i>>8), byte(i))))
	}
	var first atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(first.Add(1)); pb.Next(); i += 8 {
			c := conns[i%len(conns)]
			l.setState(c, busy)
			l.setState(c, idle)
		}
	})
}

type noListener struct{ net.Listener }

func (noListener) Close() error { return nil }

type addressed struct {
	net.Conn
	addr net.TCPAddr
}

func (c *addressed) RemoteAddr() net.Addr { return &c.addr }

func pipeFrom(ip net.IP) net.Conn { return &addressed{addr: net.TCPAddr{IP: ip}} }
