//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// from returns a client of the public server with an address of this machine.
func (s *sandwich) from(t *testing.T, addr string, timeout time.Duration) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", s.public)
		},
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: 100,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: timeout}
}

// page gets a page as a browser does and returns the status, 0 for no answer.
func page(ctx context.Context, client *http.Client, path string) int {
	req, err := http.NewRequestWithContext(ctx, "GET", "https://shop.example"+path, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	req.Header.Set("Referer", "https://shop.example/")
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// pagesInAFlood returns the usual time of a person's page while another address keeps 50
// searches open, and the worst.
func pagesInAFlood(t *testing.T, changes map[string]string) (median, worst time.Duration) {
	s := startSandwich(t, 4, changes)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	person, greedy := s.from(t, "127.0.0.2", time.Minute), s.from(t, "127.0.1.3", time.Minute)
	for range 3 { // it has read before
		if status := page(ctx, person, "/"); status != 200 {
			t.Fatalf("the first page: %d", status)
		}
	}
	var flood atomic.Int64 // the guard lets more of its requests in at once after each one that ends, 16 at most
	for i := range 50 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if page(ctx, greedy, fmt.Sprintf("/search/?ms=%d", 200+(37*i+61*n)%200)) == 200 {
					flood.Add(1)
				}
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); flood.Load() < 60; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the flood gets no pages")
		}
	}
	var took []time.Duration
	for range 7 {
		began := time.Now()
		if status := page(ctx, person, "/"); status != 200 {
			t.Errorf("the person got %d", status)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// One address with 50 connections fills all workers of php-fpm with slow searches. By
// default other clients do not wait behind them.
func TestSandwichSharesPHPByDefault(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	none, _ := pagesInAFlood(t, map[string]string{"rules:": "share: none\nrules:"})
	shared, worst := pagesInAFlood(t, nil)
	t.Logf("a person's page: %v usually and %v at most; with share: none %v usually", shared, worst, none)
	if 3*shared > none { // 3.7 s and 0.1 s on an idle machine
		t.Errorf("a person's page takes %v, with share: none %v", shared, none)
	}
}

// Clients that do not read long answers hold no worker of php-fpm: nginx and fairshare
// read ahead.
func TestSandwichSlowReadersHoldNoWorker(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, nil)
	for range 20 {
		conn := tls.Client(slowConn(t, s.public), &tls.Config{InsecureSkipVerify: true})
		defer conn.Close()
		fmt.Fprint(conn, "GET /large.php?kb=4000 HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer has begun, and is not read on
			t.Fatal(err)
		}
	}
	v := s.visitor(t, "127.0.0.2")
	for range 5 {
		v.get(200, "<h1>Home</h1>", "/")
	}
}
