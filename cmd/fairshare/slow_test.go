//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startUnbuffered runs a PHP site whose nginx buffers nothing: a request
// occupies a worker of php-fpm from its first byte to the last byte of its
// answer.
func startUnbuffered(t *testing.T, workers int) (addr, root string) {
	t.Helper()
	addr, root = freeAddr(t), phpSite(t)
	startNginx(t, addr, fmt.Sprintf(`root %s;
		client_max_body_size 0;
		keepalive_timeout 5m;
		location ~ \.php$ {
			include fastcgi_params;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
			fastcgi_request_buffering off;
			fastcgi_buffering off;
			fastcgi_read_timeout 5m;
			fastcgi_send_timeout 5m;
			fastcgi_pass unix:%s;
		}`, root, startPHP(t, workers)))
	return addr, root
}

// slowConn opens a connection with small buffers.
func slowConn(t *testing.T, addr string) net.Conn {
	t.Helper()
	small := func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) {
			if err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096); err == nil {
				err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536)
			}
		})
		return err
	}
	conn, err := (&net.Dialer{Control: small}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// pageArrives reports whether a page arrives within a time.
func pageArrives(addr string, within time.Duration) bool {
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/asked.php")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == 200
}

// workersBusy reports whether pages wait for a worker. It waits until the
// clients that occupy the workers have done so.
func workersBusy(addr string) bool {
	for deadline := time.Now().Add(patience); pageArrives(addr, soon); {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// checkOccupiesWorkers checks that two slow clients occupy two workers without
// fairshare: otherwise a test with fairshare shows nothing.
func checkOccupiesWorkers(t *testing.T, request string) {
	t.Helper()
	direct, _ := startUnbuffered(t, 2)
	for range 2 {
		io.WriteString(slowConn(t, direct), request)
	}
	if !workersBusy(direct) {
		t.Error("without fairshare no worker is occupied either: this test shows nothing")
	}
}

// onlyCeiling is the policy of tests in which a person and slow clients have
// the same address. The built-in policy would refuse the person for the errors
// of the slow clients.
const onlyCeiling = "rules: [{name: ceiling, limit: {requests: 1000000, per: 1m}}]\n"

const (
	soon     = 300 * time.Millisecond // a page that has not arrived by then waits for a worker
	patience = 20 * time.Second       // of a person
)

// Twenty slow POST requests occupy no worker of PHP; without fairshare two of
// them occupy both workers.
func TestSlowPostsOccupyNoWorker(t *testing.T) {
	t.Parallel()
	const post = "POST /asked.php HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\nlog="
	checkOccupiesWorkers(t, post)

	addr, _ := startUnbuffered(t, 2)
	s := startServe(t, onlyCeiling, "--upstream", "http://"+addr)
	conns := make([]net.Conn, 20)
	for i := range conns {
		conns[i] = slowConn(t, s.addr)
		io.WriteString(conns[i], post)
	}
	for range 5 {
		for _, conn := range conns {
			io.WriteString(conn, "x")
		}
		if !pageArrives(s.addr, patience) {
			t.Error("a person waits for a page during slow posts")
		}
	}
	// One of them sends the rest and is answered.
	rest := strings.Repeat("x", 60000-len("log=")-5)
	io.WriteString(conns[0], rest)
	conns[0].SetDeadline(time.Now().Add(patience))
	if answer, _ := io.ReadAll(io.LimitReader(conns[0], 15)); string(answer) != "HTTP/1.1 200 OK" {
		t.Errorf("a slow post that ends: %q", answer)
	}
}

// Twenty slow readers occupy no worker of PHP; without fairshare two of them
// occupy both workers.
func TestSlowReadersOccupyNoWorker(t *testing.T) {
	t.Parallel()
	const get = "GET /large.php?kb=900 HTTP/1.1\r\nHost: a\r\n\r\n"
	checkOccupiesWorkers(t, get)

	addr, _ := startUnbuffered(t, 2)
	s := startServe(t, "", "--upstream", "http://"+addr)
	var last net.Conn
	for range 20 {
		last = slowConn(t, s.addr)
		io.WriteString(last, get)
	}
	for range 5 {
		if !pageArrives(s.addr, patience) {
			t.Error("a person waits for a page while others read slowly")
		}
	}
	last.SetDeadline(time.Now().Add(patience))
	io.WriteString(last, strings.Replace(get, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	if got, err := io.ReadAll(last); err != nil || len(got) < 2*900<<10 {
		t.Errorf("a slow reader got %d bytes: %v", len(got), err)
	}
}

// A stalled client that sends or reads more than is buffered occupies a worker,
// and is cut off after twenty seconds.
func TestStalledClientsAreCutOff(t *testing.T) {
	t.Parallel()
	if !required() {
		t.Skip("takes half a minute: FAIRSHARE_REQUIRE_SERVICES=1")
	}
	for _, test := range []struct {
		name             string
		clients, workers int
		request          string
	}{
		{"post", 20, 2, "POST /asked.php HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" +
			strings.Repeat("x", 100000)},
		{"reader", 1, 1, "GET /large.php?kb=20000 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"header", 20, 2, "GET /asked.php HTTP/1.1\r\nHost: a\r\nX-Slow: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addr, _ := startUnbuffered(t, test.workers)
			s := startServe(t, onlyCeiling, "--upstream", "http://"+addr)
			conns := make([]net.Conn, test.clients)
			for i := range conns {
				conns[i] = slowConn(t, s.addr)
				io.WriteString(conns[i], test.request)
			}
			if test.name != "header" && !workersBusy(s.addr) {
				t.Error("the stalled clients occupy no worker: this test shows nothing")
			}
			if !pageArrives(s.addr, time.Minute) {
				t.Error("a person waits for a page a minute after the others stalled")
			}
			for _, conn := range conns {
				conn.SetDeadline(time.Now().Add(time.Minute))
				if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
					t.Error("a connection is still open a minute later")
					break
				}
			}
		})
	}
}

// runs returns the counts of slow.php: how many requests run now, the most at
// once, and all.
func runs(t *testing.T, root string) (now, most, all int) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "running"))
	if os.IsNotExist(err) {
		return 0, 0, 0
	}
	if err == nil {
		defer f.Close()
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH) // it is written under a lock, not at once
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fscan(f, &now, &most, &all)
	return now, most, all
}

// A client that requests slow pages and disconnects has as few of them running as
// a client that waits, over HTTP/1.1 and HTTP/2.
func TestDisconnectingDoesNotEvadeTheLimit(t *testing.T) {
	t.Parallel()
	const waves, each = 15, 4
	hangUp := map[string]func(t *testing.T, addr string){
		"close": func(t *testing.T, addr string) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "GET /slow.php?ms=150 HTTP/1.1\r\nHost: a\r\n\r\n")
			time.Sleep(20 * time.Millisecond) // a client that disconnects does so after a short time
			conn.Close()
		},
		"reset": func(t *testing.T, addr string) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "GET /slow.php?ms=150 HTTP/1.1\r\nHost: a\r\n\r\n")
			time.Sleep(20 * time.Millisecond)
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		},
	}
	http2 := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(http2.CloseIdleConnections)
	hangUp["stream"] = func(t *testing.T, addr string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			time.AfterFunc(20*time.Millisecond, cancel)
		}})
		req, err := http.NewRequestWithContext(ctx, "GET", "https://"+addr+"/slow.php?ms=150", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http2.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	for _, test := range []struct {
		how, upstream string
		evaded        bool
	}{
		{"close", "upstream: http://%s", false},
		{"reset", "upstream: http://%s", false},
		{"stream", "upstream: http://%s", false},
		// This upstream continues after a disconnect, but its policy says that it stops.
		{"close", "upstream: {url: http://%s, cancels: true}", true},
	} {
		t.Run(fmt.Sprint(test.how, test.evaded), func(t *testing.T) {
			t.Parallel()
			addr, root := startUnbuffered(t, 12)
			policy := fmt.Sprintf(test.upstream, addr) + "\nrules: [{name: at once, limit: {concurrent: 2}}]\n"
			if test.how == "stream" {
				cert, key, _ := newCertificate(t)
				policy += fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, key)
			}
			s := startServe(t, policy)
			for range waves {
				done := make(chan bool, each)
				for range each {
					go func() {
						hangUp[test.how](t, s.addr)
						done <- true
					}()
				}
				for range each {
					<-done
				}
			}
			now, most, all := runs(t, root)
			for deadline := time.Now().Add(patience); (now > 0 || all < 2) && time.Now().Before(deadline); now, most,
				all = runs(t, root) {
				time.Sleep(20 * time.Millisecond)
			}
			if now != 0 || all < 2 || (most > 2) != test.evaded {
				t.Errorf("%d run now, at most %d ran at once, %d in all", now, most, all)
			}
			if test.how != "stream" && !pageArrives(s.addr, patience) {
				t.Error("its slots were not given back")
			}
		})
	}
}
