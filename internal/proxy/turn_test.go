package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/share"
)

// oneTurn returns a queue for an upstream that works on one request at a time. One
// request may wait, for at most wait.
func oneTurn(wait time.Duration) *share.Queue {
	return share.New(share.Options{Capacity: 1, Wait: wait, Queue: 1})
}

// wantOneTurn checks that the site has exactly one free turn: one request gets it at
// once, and another one at the same time gets none.
func (s *site) wantOneTurn(q *share.Queue, when string) {
	s.t.Helper()
	synctest.Wait()
	if st := q.Stats(); st.Inside != 0 || st.Waiting != 0 {
		s.t.Errorf("%s: %d are inside and %d wait", when, st.Inside, st.Waiting)
	}
	v := s.visitor()
	defer v.Close()
	v.send("GET /hold HTTP/1.1\nHost: a\n\n")
	synctest.Wait()
	if st := q.Stats(); st.Inside != 1 {
		s.t.Errorf("%s: one request, and %d are inside", when, st.Inside)
	}
	if status, _ := s.get("/hold"); status != 503 {
		s.t.Errorf("%s: while one is inside: %d, want 503", when, status)
	}
	v.head()
	synctest.Wait()
	if st := q.Stats(); st.Inside != 0 {
		s.t.Errorf("%s: %d are inside at the end", when, st.Inside)
	}
}

// The turn ends once, exactly when the upstream is done: with a valid, a malformed or no
// answer, and even if the client reads nothing of it.
func TestTurnEndsWhenTheUpstreamIsDone(t *testing.T) {
	const long = 10 * time.Minute
	for _, test := range []struct {
		name, request string
		leaves        bool          // the client, after a second
		free          time.Duration // when the turn is free again, after the request
	}{
		{"an empty answer", "GET /empty?wait=5s", false, 5 * time.Second},
		{"204", "GET /status?code=204&wait=5s", false, 5 * time.Second},
		{"304", "GET /status?code=304&wait=5s", false, 5 * time.Second},
		{"500", "GET /status?code=500&wait=5s", false, 5 * time.Second},
		{"HEAD", "HEAD /length?n=100000&wait=5s", false, 5 * time.Second},
		{"a small answer", "GET /length?n=100&wait=5s", false, 5 * time.Second},
		{"a small answer in chunks", "GET /chunks?n=100&wait=5s", false, 5 * time.Second},
		{"a small answer in chunks, slowly", "GET /chunks?n=100&wait=5s&pause=3s", false, 8 * time.Second},
		{"a trailer alone", "GET /trailer?n=0&wait=5s", false, 5 * time.Second},
		{"a trailer", "GET /trailer?n=100&wait=5s", false, 5 * time.Second},
		{"a longer answer", "GET /length?n=20000&wait=5s", false, 5 * time.Second},
		{"a long answer", "GET /length?n=500000&wait=5s", false, 5 * time.Second},
		{"a long answer in chunks", "GET /chunks?n=500000&wait=5s&pause=3s", false, 8 * time.Second},
		{"hints before it", "GET /hints?n=100&wait=5s", false, 5 * time.Second},
		{"a break in the head", "GET /break?wait=5s", false, 5 * time.Second},
		{"a break in the middle", "GET /break?n=100&wait=5s", false, 5 * time.Second},
		{"a break after many bytes", "GET /break?n=500000&wait=5s", false, 5 * time.Second},
		{"no HTTP", "GET /garbage?wait=5s", false, 5 * time.Second},
		{"an invalid status", "GET /099?wait=5s", false, 5 * time.Second},
		{"an upgrade that was not requested", "GET /chat?wait=5s", false, 5 * time.Second},
		{"no answer in time", "GET /empty?wait=10m", false, DefaultTimeout},
		{"a client that leaves", "GET /length?n=100&wait=5s", true, 5 * time.Second},
		{"a client that leaves before a long answer", "GET /length?n=500000&wait=5s", true, 5 * time.Second},
		{"a client that leaves early", "GET /empty?wait=59s", true, 59 * time.Second},
		{"an event stream", "GET /events?wait=5s&pause=10m", false, 5 * time.Second},
		{"an event stream without its client", "GET /events?wait=5s&pause=10m", true, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := oneTurn(time.Millisecond)
				s := newSharedSite(t, behaving, Config{}, q)
				v := s.visitor()
				began := time.Now()
				v.send(test.request + " HTTP/1.1\nHost: a\n\n")
				time.Sleep(time.Second)
				if test.name == "hints before it" {
					v.head() // a pipe has no buffer, so a hint would block
				}
				if test.leaves {
					v.Close()
				}
				if status, _ := s.get("/hold"); status != 503 {
					t.Errorf("before the upstream is done: another request gets %d, want 503", status)
				}
				time.Sleep(time.Until(began.Add(test.free - time.Nanosecond)))
				synctest.Wait()
				if st := q.Stats(); st.Inside != 1 {
					t.Errorf("just before the upstream is done: %d are inside", st.Inside)
				}
				time.Sleep(time.Nanosecond)
				s.wantOneTurn(q, "when it is done")
				v.Close()
				time.Sleep(long)
				s.wantOneTurn(q, "long after")
			})
		})
	}
}

// A quick 503 of a busy upstream, or half an answer, does not show that it could work on more requests at
// once.
func TestFailuresDoNotCountAsCapacity(t *testing.T) {
	for _, path := range []string{"/status?code=503", "/break?n=50", "/break?n=50000", "/chunks-break"} {
		synctest.Test(t, func(t *testing.T) {
			q := share.New(share.Options{Min: 1, Max: 64})
			var inside, most atomic.Int64
			s := newSharedSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer inside.Add(-1)
				if inside.Add(1) > 4 {
					time.Sleep(2 * time.Millisecond)
					behaving(w, r)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}), Config{}, q)
			began := time.Now()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for time.Since(began) < time.Minute {
						v := s.visitor()
						v.send("GET " + path + " HTTP/1.1\nHost: a\n\n")
						if resp, err := http.ReadResponse(v.r, nil); err == nil {
							io.Copy(io.Discard, resp.Body)
						}
						v.Close()
						if time.Since(began) > 10*time.Second { // it starts with more, until it knows the upstream
							most.Store(max(most.Load(), int64(q.Stats().Capacity)))
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			all.Wait()
			if most := most.Load(); most > 8 { // it may try a few more
				t.Errorf("%s: up to %d at once", path, most)
			}
		})
	}
}

// If the client has left, the turn ends at the latest when the proxy gives up waiting
// for the upstream.
func TestTurnEndsWhenTheUpstreamIsGivenUp(t *testing.T) {
	for _, test := range []struct {
		name string
		c    Config
		want time.Duration // since the client left
	}{
		{"by default", Config{}, DefaultAbandon},
		{"as configured", Config{Abandon: 7 * time.Second}, 7 * time.Second},
		{"when the upstream stops by itself", Config{Cancels: true}, 0},
	} {
		for _, path := range []string{"/empty?wait=30m", "/chunks?n=1000&pause=30m", "/length?n=20000000&wait=30m"} {
			synctest.Test(t, func(t *testing.T) {
				test.c.Timeout = time.Hour
				q := oneTurn(time.Millisecond)
				s := newSharedSite(t, behaving, test.c, q)
				v := s.visitor()
				v.send("GET " + path + " HTTP/1.1\nHost: a\n\n")
				time.Sleep(5 * time.Second)
				began := time.Now()
				v.Close()
				if test.want > 0 {
					time.Sleep(test.want - time.Nanosecond)
					synctest.Wait()
					if st := q.Stats(); st.Inside != 1 {
						t.Errorf("%s, %s: %d are inside after %v", test.name, path, st.Inside, time.Since(began))
					}
					time.Sleep(time.Nanosecond)
				}
				s.wantOneTurn(q, test.name+", "+path)
				time.Sleep(time.Hour) // until the upstream is done
			})
		}
	}
}

// behaving is an upstream. The path of the request says how it answers, after wait.
func behaving(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var n int
	fmt.Sscan(query.Get("n"), &n)
	wait, _ := time.ParseDuration(query.Get("wait"))
	pause, _ := time.ParseDuration(query.Get("pause"))
	raw := func(text string) {
		conn, rw, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		rw.WriteString(text)
		rw.Flush()
	}
	if r.URL.Path == "/hints" {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(103)
	}
	time.Sleep(wait)
	switch r.URL.Path {
	case "/hold":
		time.Sleep(time.Second)
	case "/status":
		var code int
		fmt.Sscan(query.Get("code"), &code)
		w.WriteHeader(code)
	case "/length", "/hints":
		w.Header().Set("Content-Length", fmt.Sprint(n))
		w.Write(make([]byte, n))
	case "/chunks":
		w.(http.Flusher).Flush()
		w.Write(make([]byte, n/2))
		w.(http.Flusher).Flush()
		time.Sleep(pause)
		w.Write(make([]byte, n-n/2))
	case "/trailer":
		w.Header().Set("Trailer", "X-Sum")
		w.Write(make([]byte, n))
		w.Header().Set("X-Sum", fmt.Sprint(n))
	case "/break":
		if n > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(2*n))
			w.Write(make([]byte, n))
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	case "/chunks-break":
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
		panic(http.ErrAbortHandler)
	case "/garbage":
		raw("220 mail.internal ESMTP\r\n")
	case "/099":
		raw("HTTP/1.1 099 Low\r\n\r\n")
	case "/chat":
		raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
		}
	}
}

// The turn of a websocket ends when the websocket begins.
func TestWebsocketHoldsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		q := oneTurn(time.Millisecond)
		s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/chat" {
				chat(ended)(w, r)
				return
			}
			behaving(w, r)
		}, Config{}, q)
		v := s.visitor()
		v.send(handshake)
		if resp := v.head(); resp.StatusCode != 101 {
			t.Fatal(resp.Status)
		}
		s.wantOneTurn(q, "while the websocket is open")
		v.Close()
		<-ended
		s.wantOneTurn(q, "after the websocket")
	})
}

// If a body ends early, or the upstream answers early, the request keeps its turn while
// the upstream works.
func TestHalfAPostKeepsTheTurn(t *testing.T) {
	for _, upstream := range []*url.URL{nil, &h2cUpstream} {
		synctest.Test(t, func(t *testing.T) {
			q := oneTurn(time.Millisecond)
			s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					behaving(w, r)
					return
				}
				io.CopyN(io.Discard, r.Body, 0x11000)
				time.Sleep(30 * time.Second)
				io.WriteString(w, "done")
			}, Config{Upstream: upstream}, q)
			v := s.visitor()
			v.send("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n11000\n" + strings.Repeat("x", 0x11000))
			synctest.Wait()
			v.Close()
			time.Sleep(30*time.Second - time.Nanosecond)
			synctest.Wait()
			if st := q.Stats(); st.Inside != 1 {
				t.Errorf("%v: while the upstream works on half a request: %d are inside", upstream, st.Inside)
			}
			time.Sleep(time.Nanosecond)
			s.wantOneTurn(q, "when it is done")
		})
	}
}

// A request waits for a turn only when its body, or the first 64 KiB of it, has arrived.
// The time of the upstream does not include the time of sending the request, of waiting
// for the turn, or of reading the answer.
func TestTimeOfTheUpstreamIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := oneTurn(time.Minute)
		s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				time.Sleep(20 * time.Second)
				return
			}
			io.Copy(io.Discard, r.Body)
			time.Sleep(3 * time.Second)
			w.Write(make([]byte, 100_000))
		}, Config{}, q, measured...)
		v := s.visitor()
		v.send("POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nab")
		time.Sleep(10 * time.Second)
		if st := q.Stats(); st.Inside+st.Waiting != 0 {
			t.Errorf("a slow post is inside or waits: %+v", st)
		}
		hold := s.visitor()
		hold.send("GET /hold HTTP/1.1\nHost: a\n\n") // for 20 s
		time.Sleep(time.Second)
		v.send("cd") // and now it waits 19 s
		synctest.Wait()
		if st := q.Stats(); st.Inside != 1 || st.Waiting != 1 {
			t.Errorf("a complete post: %+v", st)
		}
		hold.head()
		synctest.Wait()
		if got := s.charged.total(fairshare.Time); got != 20_000_000 {
			t.Errorf("the client that held the upstream is charged %d µs, want 20 s", got)
		}
		time.Sleep(time.Minute) // the client does not read its answer
		resp := v.head()
		io.Copy(io.Discard, resp.Body)
		synctest.Wait()
		if got := s.charged.total(fairshare.Time); got != 3_000_000 {
			t.Errorf("the client that sends slowly, waits and reads slowly is charged %d µs, want 3 s", got)
		}
	})
}

// If parts of a body arrive while the request waits, and later, the body is unchanged.
func TestBodyArrivesWhileTheRequestWaits(t *testing.T) {
	for _, test := range []struct {
		name      string
		parts     [3]int // bytes: at once, while it waits, and when it has its turn
		chunked   bool
		announced int64 // to the upstream
		atItsTurn bool  // the last part is sent before the upstream gets the request
	}{
		{"whole at once", [3]int{65_536, 0, 0}, false, 65_536, false},
		{"whole while it waits", [3]int{65_536, 1_000, 0}, false, 66_536, false},
		{"whole while it waits, in chunks", [3]int{65_536, 1_000, 0}, true, 66_536, false},
		{"in part", [3]int{65_536, 1_000, 40_000}, false, 106_536, false},
		{"in part, in chunks", [3]int{65_536, 1_000, 40_000}, true, -1, false},
		{"until the memory is full", [3]int{65_536, 4_096, 40_000}, true, -1, false},
		{"nothing while it waits", [3]int{65_536, 0, 40_000}, false, 105_536, false},
		{"a part when its turn comes", [3]int{65_536, 0, 40_000}, true, -1, true},
		{"the rest when its turn comes", [3]int{65_536, 0, 10}, true, -1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := oneTurn(time.Minute)
				all := noise(200_000)
				s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/hold" {
						time.Sleep(5 * time.Second)
						return
					}
					got, err := io.ReadAll(r.Body)
					fmt.Fprintf(w, "%v %v %d", bytes.Equal(got, all[:test.parts[0]+test.parts[1]+test.parts[2]]), err,
						r.ContentLength)
				}, Config{}, q)
				hold := s.visitor()
				hold.send("GET /hold HTTP/1.1\nHost: a\n\n")
				synctest.Wait()
				v := s.visitor()
				var sending sync.WaitGroup
				sending.Go(func() {
					head, sent := fmt.Sprintf("Content-Length: %d", test.parts[0]+test.parts[1]+test.parts[2]), 0
					if test.chunked {
						head = "Transfer-Encoding: chunked"
					}
					v.send("POST / HTTP/1.1\nHost: a\n" + head + "\n\n")
					for i, n := range test.parts {
						if i > 0 {
							time.Sleep(2 * time.Second)
						}
						if i == 2 && test.atItsTurn {
							time.Sleep(time.Second)
						} else if i == 2 {
							time.Sleep(2 * time.Second)
						}
						switch {
						case n == 0:
						case test.chunked:
							fmt.Fprintf(v, "%x\r\n%s\r\n", n, all[sent:sent+n])
						default:
							v.Write(all[sent : sent+n])
						}
						if sent += n; test.chunked && (i == 2 || i == 1 && test.parts[2] == 0) {
							io.WriteString(v, "0\r\n\r\n")
							return
						}
					}
				})
				hold.head()
				sending.Wait()
				resp := v.head()
				got, err := io.ReadAll(resp.Body)
				if want := fmt.Sprintf("true <nil> %d", test.announced); string(got) != want || err != nil {
					t.Errorf("%s %q, %v; want %q", resp.Status, got, err, want)
				}
				v.send("GET / HTTP/1.1\nHost: a\n\n")
				if resp := v.head(); resp.StatusCode != 200 {
					t.Errorf("the next request: %s", resp.Status)
				}
			})
		})
	}
}

// A client that leaves while its request waits frees its position in the queue at once,
// and the upstream does not get the request.
func TestWaitingEndsWithTheClient(t *testing.T) {
	leaving := map[string]func(s *site) (leave func()){}
	for name, request := range map[string]string{
		"GET":         "GET /left HTTP/1.1\nHost: a\n\n",
		"HEAD":        "HEAD /left HTTP/1.1\nHost: a\n\n",
		"a websocket": strings.Replace(handshake, "/chat", "/left", 1),
		"a post": "POST /left HTTP/1.1\nHost: a\nContent-Length: 5000\n\n" +
			strings.Repeat("x", 5000),
		"a post in chunks": "POST /left HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
		"a post of 64 KiB": "POST /left HTTP/1.1\nHost: a\nContent-Length: 65536\n\n" +
			strings.Repeat("x", 65_536),
		"a larger post, sent": "POST /left HTTP/1.1\nHost: a\nContent-Length: 68000\n\n" +
			strings.Repeat("x", 68_000),
		"a large post, in part": "POST /left HTTP/1.1\nHost: a\nContent-Length: 10000000\n\n" +
			strings.Repeat("x", 67_000),
		"an endless post, in part": "POST /left HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n10000\n" +
			strings.Repeat("x", 65_536),
	} {
		leaving[name] = func(s *site) func() {
			v := s.visitor()
			v.send(request)
			return func() { v.Close() }
		}
	}
	for _, n := range []int{0, 1000, 65_536, 1 << 20} {
		leaving[fmt.Sprintf("HTTP/2, %d bytes", n)] = func(s *site) func() {
			ctx, reset := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://a/left", bytes.NewReader(make([]byte, n)))
			ended := make(chan error)
			client := s.http2()
			go func() {
				_, err := client.Do(req)
				ended <- err
			}()
			return func() {
				reset()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					s.t.Errorf("HTTP/2: %v", err)
				}
			}
		}
	}
	for name, begin := range leaving {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := oneTurn(time.Minute)
				var left atomic.Int64
				s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/left" {
						left.Add(1)
					}
					time.Sleep(10 * time.Second)
				}, Config{}, q, measured...)
				hold := s.visitor()
				began := time.Now()
				hold.send("GET /hold HTTP/1.1\nHost: a\n\n")
				synctest.Wait()
				leave := begin(s)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if st := q.Stats(); st.Inside != 1 || st.Waiting != 1 {
					t.Fatalf("the request does not wait: %+v", st)
				}
				if status, _ := s.get("/"); status != 503 {
					t.Errorf("the queue is full, and one more request gets %d, want 503", status)
				}
				leave()
				synctest.Wait()
				if st := q.Stats(); st.Waiting != 0 {
					t.Errorf("its client has left, and it waits: %+v", st)
				}
				if status, _ := s.get("/"); status != 200 || time.Since(began) != 20*time.Second {
					t.Errorf("the next request gets %d after %v, want 200 after 20 s", status, time.Since(began))
				}
				if hold.head(); left.Load() != 0 {
					t.Error("the upstream got a request whose client had left")
				}
				synctest.Wait()
				if got := s.charged.total(fairshare.Time); got != 20_000_000 {
					t.Errorf("%d µs are charged, want 20 s: a request that left the queue costs nothing", got)
				}
			})
		})
	}
}

// A request without a turn is refused at once. Its connection stays open for the next
// request only if no part of the body is unread.
func TestRefusedUploadEndsItsConnection(t *testing.T) {
	for _, test := range []struct {
		name, request string
		stays         bool
	}{
		{"GET", "GET / HTTP/1.1\nHost: a\n\n", true},
		{"a websocket", strings.Replace(handshake, "/chat", "/", 1), true},
		{"a post", "POST / HTTP/1.1\nHost: a\nContent-Length: 50000\n\n" + strings.Repeat("x", 50_000), true},
		{"a post in chunks", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n", true},
		{"half of a large post", "POST / HTTP/1.1\nHost: a\nAccept: text/html\nContent-Length: 1000000\n\n" +
			strings.Repeat("x", 69_000), false},
		{"half of a large post in chunks",
			"POST / HTTP/1.1\nHost: a\nAccept: text/html\nTransfer-Encoding: chunked\n\n20000\n" +
				strings.Repeat("x", 65_536), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := oneTurn(2 * time.Second)
				s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) { time.Sleep(5 * time.Second) },
					Config{}, q, measured...)
				hold := s.visitor()
				hold.send("GET /hold HTTP/1.1\nHost: a\n\n")
				synctest.Wait()
				v := s.visitor()
				began := time.Now()
				v.send(test.request)
				resp := v.head()
				page, err := io.ReadAll(resp.Body)
				if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || err != nil ||
					time.Since(began) != 2*time.Second {
					t.Errorf("%s %v %d bytes, %v, after %v; want 503 after 2 s", resp.Status, resp.Header, len(page),
						err, time.Since(began))
				}
				if resp.Close == test.stays {
					t.Errorf("the connection stays open: %v, want %v", !resp.Close, test.stays)
				}
				hold.head()
				if test.stays {
					v.send("GET / HTTP/1.1\nHost: a\n\n")
					if resp := v.head(); resp.StatusCode != 200 {
						t.Errorf("the next request on the connection: %s", resp.Status)
					}
				}
				synctest.Wait()
				if st := q.Stats(); st.Inside != 0 {
					t.Errorf("%d are inside", st.Inside)
				}
			})
		})
	}
}

// In HTTP/2 only the request itself ends; the connection stays open for others.
func TestRefusedUploadEndsItsConnectionInHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := oneTurn(2 * time.Second)
		s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) { time.Sleep(5 * time.Second) }, Config{}, q)
		client := s.http2()
		var all sync.WaitGroup
		var ok, busy atomic.Int64
		for i, body := range []io.Reader{nil, strings.NewReader("hello"), bytes.NewReader(make([]byte, 1<<20))} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				req, _ := http.NewRequest("POST", "http://a/", body)
				resp, err := client.Do(req)
				switch {
				case err != nil:
					t.Errorf("request %d: %v", i, err)
				case resp.StatusCode == 200 && i == 0:
					ok.Add(1)
				case resp.StatusCode == 503:
					busy.Add(1)
				}
			})
		}
		all.Wait()
		if ok.Load() != 1 || busy.Load() != 2 {
			t.Errorf("%d answered and %d busy, want 1 and 2", ok.Load(), busy.Load())
		}
		if resp, err := client.Get("http://a/"); err != nil || resp.StatusCode != 200 {
			t.Errorf("afterwards: %v, %v", resp, err)
		}
	})
}
