package inbound

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Clients that send too slowly lose their connections after the same time in both lanes. An idle connection may be
// closed up to idleSlack earlier.
func TestLanesCloseSlowClientsAfterTheSameTime(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, test := range []struct {
		name  string
		parts []string // one is sent every 4 s; the first at once
	}{
		{"nothing is sent", []string{""}},
		{"a part of a head", []string{"GET / HTTP"}},
		{"a head, byte by byte", []string{"GET / ", "H", "T", "T", "P", "/", "1"}},
		{"one request", []string{request}},
		{"two requests", []string{request, request}},
		{"a request, and a byte", []string{request + "G"}},
		{"a request, and a byte later", []string{request, "G"}},
		{"a request, and a part of a head", []string{request, "GET / ", "H", "T", "T", "P", "/", "1"}},
		{"a request, and nonsense byte by byte", []string{request, "?", "?", "?"}},
	} {
		var took [2]time.Duration
		for i := range took {
			synctest.Test(t, func(t *testing.T) {
				in := newPipes()
				l := New(in, Config{})
				srv := &http.Server{IdleTimeout: time.Minute, ReadHeaderTimeout: 10 * time.Second,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { echo(w, r) })}
				l.Attach(srv)
				lane := l.NewLane(l, srv)
				if i == 0 {
					go srv.Serve(lane)
				} else {
					go srv.Serve(l)
				}
				c := in.dial("192.0.2.1")
				began := time.Now()
				go func() {
					for _, part := range test.parts {
						if _, err := io.WriteString(c, part); err != nil {
							return
						}
						time.Sleep(4 * time.Second)
					}
				}()
				r := bufio.NewReader(c)
				for {
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						break
					}
					io.Copy(io.Discard, resp.Body)
				}
				io.Copy(io.Discard, c)
				took[i] = time.Since(began)
				c.Close()
				srv.Close()
				lane.CloseAll()
				time.Sleep(time.Minute) // the goroutine that sends ends
			})
		}
		if took[0] > took[1] || took[0] < took[1]-idleSlack {
			t.Errorf("%s: closed after %v, without the lane after %v", test.name, took[0], took[1])
		}
	}
}

// A client that reads slowly loses its connection in the lane after the same time as elsewhere.
func TestLanesCloseSlowReadersAfterTheSameTime(t *testing.T) {
	var took [2]time.Duration
	for i := range took {
		synctest.Test(t, func(t *testing.T) {
			in := newPipes()
			l := New(in, Config{})
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "1000000")
				w.Header().Set("Content-Type", "text/plain")
				w.Write(make([]byte, 1_000_000))
			})}
			l.Attach(srv)
			lane := l.NewLane(l, srv)
			if i == 0 {
				go srv.Serve(lane)
			} else {
				go srv.Serve(l)
			}
			c := in.dial("192.0.2.1")
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			began := time.Now()
			var one [1]byte
			for {
				if _, err := c.Read(one[:]); err != nil {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			took[i] = time.Since(began)
			c.Close()
			srv.Close()
			lane.CloseAll()
			time.Sleep(time.Minute)
		})
	}
	if d := (took[0] - took[1]).Abs(); d > time.Second || took[0] > 10*time.Minute {
		t.Errorf("closed after %v, without the lane after %v", took[0], took[1])
	}
}
