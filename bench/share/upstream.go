//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An upstream has some workers, each of which processes one request at a time. Other
// requests wait in order of arrival. A worker sleeps for the time in the path,
// "/takes/20ms", since the machine may have few cores. Like most sites, an upstream does
// not notice that a client disconnects.
type upstream struct {
	free   chan struct{} // one token for each busy worker; Go serves waiting goroutines in order
	inside atomic.Int64  // requests, including waiting ones
	slower atomic.Int64  // factor on the times

	mu      sync.Mutex
	busy    time.Duration // of all workers
	most    int64         // inside, since the last report
	clients map[netip.Addr]*served
	begun   map[int64]time.Time // requests in progress
	number  int64
}

// served holds the results of one client.
type served struct {
	Answers int64
	Took    time.Duration // of the workers
}

// state is the report of an upstream.
type state struct {
	At      time.Time
	Busy    time.Duration // of all workers, since the start
	Inside  int64
	Most    int64 // inside, since the last time
	Clients map[netip.Addr]served
}

// serveUpstream runs an upstream until it is killed: the site on one port, its report on
// another.
func serveUpstream(workers int) error {
	u := &upstream{free: make(chan struct{}, workers), clients: map[netip.Addr]*served{}, begun: map[int64]time.Time{}}
	u.slower.Store(1)
	site, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("control http://%s http://%s protects\n", control.Addr(), site.Addr())
	words := http.NewServeMux()
	words.HandleFunc("GET /state", u.report)
	words.HandleFunc("POST /slower", func(_ http.ResponseWriter, r *http.Request) {
		if n, err := strconv.ParseInt(r.FormValue("times"), 10, 64); err == nil {
			u.slower.Store(n)
		}
	})
	go http.Serve(control, words)
	return http.Serve(site, http.HandlerFunc(u.work))
}

func (u *upstream) work(w http.ResponseWriter, r *http.Request) {
	long, err := time.ParseDuration(strings.TrimPrefix(r.URL.Path, "/takes/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	client := r.RemoteAddr
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" {
		client = forwarded[strings.LastIndexByte(forwarded, ' ')+1:]
	}
	addr, err := netip.ParseAddr(client)
	if err != nil {
		if port, err := netip.ParseAddrPort(client); err == nil {
			addr = port.Addr()
		}
	}
	inside := u.inside.Add(1)
	u.mu.Lock()
	u.most = max(u.most, inside)
	u.mu.Unlock()

	u.free <- struct{}{}
	began := time.Now()
	u.mu.Lock()
	u.number++
	number := u.number
	u.begun[number] = began
	u.mu.Unlock()
	time.Sleep(long * time.Duration(u.slower.Load()))
	took := time.Since(began)
	u.mu.Lock()
	delete(u.begun, number)
	u.busy += took
	c := u.clients[addr]
	if c == nil {
		c = &served{}
		u.clients[addr] = c
	}
	c.Answers++
	c.Took += took
	u.mu.Unlock()
	<-u.free
	u.inside.Add(-1)

	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Cache-Control", "no-store") // as PHP with sessions; other answers get no cookie
	w.Write([]byte("here is your page\n"))
}

func (u *upstream) report(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	now := time.Now()
	s := state{At: now, Busy: u.busy, Inside: u.inside.Load(), Most: u.most}
	u.most = s.Inside
	for _, began := range u.begun {
		s.Busy += now.Sub(began)
	}
	if r.FormValue("clients") != "" {
		s.Clients = make(map[netip.Addr]served, len(u.clients))
		for addr, c := range u.clients {
			s.Clients[addr] = *c
		}
	}
	u.mu.Unlock()
	json.NewEncoder(w).Encode(s)
}
