//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// A forwarder passes connections of a program on to the site, each from the next of its addresses. So
// programs that cannot choose an address have as many as needed. It counts their requests.
type forwarder struct {
	addr  string // where it listens; port 80
	ip    string
	ln    net.Listener
	addrs []netip.Addr

	mu    sync.Mutex
	next  int
	count func(*http.Request)
}

// newForwarder listens at an address of 127.0.0.0/8, port 80. count may be nil.
func newForwarder(ip string, addrs []netip.Addr, count func(*http.Request)) (*forwarder, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "80"))
	if err != nil {
		return nil, err
	}
	f := &forwarder{addr: ln.Addr().String(), ip: ip, ln: ln, addrs: addrs, count: count}
	go f.accept()
	return f, nil
}

func (f *forwarder) close() { f.ln.Close() }

// connections returns how many connections it has passed on.
func (f *forwarder) connections() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.next)
}

func (f *forwarder) accept() {
	for {
		conn, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		from := f.addrs[f.next%len(f.addrs)]
		f.next++
		f.mu.Unlock()
		go f.pass(conn, from)
	}
}

func (f *forwarder) pass(conn net.Conn, from netip.Addr) {
	defer conn.Close()
	// A firewall that drops packets lets a real client wait for longer, but not for an answer.
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: giveUp}
	out, err := dialer.DialContext(context.Background(), "tcp", siteAddr)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer out.Close()
	go func() {
		f.requests(conn, out)
		out.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(conn, out)
}

// requests passes bytes on as they come, and counts the requests that are complete up to their bodies.
func (f *forwarder) requests(in io.Reader, out io.Writer) {
	if f.count == nil {
		io.Copy(out, in)
		return
	}
	r, w := io.Pipe()
	go func() {
		defer func() { io.Copy(io.Discard, r) }() // the rest is not HTTP/1
		b := bufio.NewReader(r)
		for {
			req, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			f.count(req)
			io.Copy(io.Discard, req.Body)
		}
	}()
	io.Copy(out, io.TeeReader(in, w))
	w.Close()
}
