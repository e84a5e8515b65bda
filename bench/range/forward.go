//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A forwarder passes connections of a program on to the site, each from the next of its addresses. So
// programs that cannot choose an address have as many as needed. It counts their requests.
type forwarder struct {
	ip    string // where it listens
	to    string
	ln    net.Listener
	addrs []netip.Addr

	mu    sync.Mutex
	next  int
	count func(*http.Request)
}

// newForwarder passes connections on to the site, and listens at an address of 127.0.0.0/8, port 80. count
// may be nil.
func newForwarder(addrs []netip.Addr, count func(*http.Request)) (*forwarder, error) {
	n := forwarders.Add(1)
	return forward(fmt.Sprintf("127.1.%d.%d:80", n/250, n%250+1), siteAddr, addrs, count)
}

// forwarders numbers the addresses at which forwarders listen.
var forwarders atomic.Int32

func forward(listen, to string, addrs []netip.Addr, count func(*http.Request)) (*forwarder, error) {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	ip, _, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return nil, err
	}
	f := &forwarder{ip: ip, to: to, ln: ln, addrs: addrs, count: count}
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

// command returns a program that finds the site at the forwarder, by its usual name. It works in dir.
func (f *forwarder) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	const script = `echo "127.0.0.1 localhost
$0 ` + siteHost + `" > hosts && mount --bind hosts /etc/hosts && exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", script, f.ip, name}, args...)...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
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
	out, err := dialer.DialContext(context.Background(), "tcp", f.to)
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
