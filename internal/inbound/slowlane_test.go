package inbound

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
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

// The time for the next request counts from the end of the answer before it, in both lanes: also after an answer that
// was written whole, however the requests come and the answers are read.
func TestLanesCountTheTimeForARequestFromTheLastAnswer(t *testing.T) {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }
	half := "GET / HTTP"
	rest := strings.TrimPrefix(get("/"), half)
	type part struct {
		text  string
		pause time.Duration // after it
	}
	for _, test := range []struct {
		name    string
		idle    time.Duration // bounds; 10 s for a head
		parts   []part
		reading time.Duration // when the client begins to read
		answers int
	}{
		{"two at once, then one", 12 * time.Second,
			[]part{{get("/refused") + get("/slow"), 20 * time.Second}, {get("/"), 0}}, 0, 3},
		{"two and a half at once", 12 * time.Second,
			[]part{{get("/refused") + get("/slow") + half, 20 * time.Second}, {rest, 0}}, 0, 3},
		{"halves after a pause, without a bound of idle connections", 0,
			[]part{{get("/refused"), 15 * time.Second}, {half, 5 * time.Second}, {rest, 0}}, 0, 2},
		{"the client reads late", 12 * time.Second,
			[]part{{get("/refused") + half, 18 * time.Second}, {rest, 0}}, 13 * time.Second, 2},
		{"too late", 12 * time.Second,
			[]part{{get("/refused"), 13 * time.Second}, {get("/"), 0}}, 0, 1},
		{"half of one comes too late", 12 * time.Second,
			[]part{{get("/refused") + half, 11 * time.Second}, {rest, 0}}, 0, 1},
	} {
		for _, inLane := range []bool{true, false} {
			check := func(t *testing.T) {
				in := newPipes()
				l := New(in, Config{})
				srv := &http.Server{IdleTimeout: test.idle, ReadHeaderTimeout: 10 * time.Second,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/refused":
							answerWhole(w, http.StatusForbidden, "", "no")
						case "/slow":
							time.Sleep(15 * time.Second)
						}
					})}
				l.Attach(srv)
				lane := l.NewLane(l, srv)
				if inLane {
					go srv.Serve(lane)
				} else {
					go srv.Serve(l)
				}
				c := in.dial("192.0.2.1")
				go func() {
					for _, part := range test.parts {
						if _, err := io.WriteString(c, part.text); err != nil {
							return
						}
						time.Sleep(part.pause)
					}
					time.Sleep(time.Second)
					c.Close()
				}()
				time.Sleep(test.reading)
				r := bufio.NewReader(c)
				answers := 0
				for ; ; answers++ {
					resp, err := http.ReadResponse(r, nil)
					if err != nil || resp.StatusCode == http.StatusBadRequest {
						break
					}
					io.Copy(io.Discard, resp.Body)
				}
				if answers != test.answers {
					t.Errorf("%d answers, want %d", answers, test.answers)
				}
				c.Close()
				srv.Close()
				lane.CloseAll()
				time.Sleep(time.Minute)
			}
			t.Run(fmt.Sprintf("%s, in the lane %v", test.name, inLane), func(t *testing.T) { synctest.Test(t, check) })
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
