package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow answers after d, or when its request is cancelled. Then it stores in
// cancelled how many seconds the request lasted.
func slow(d time.Duration, cancelled *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		select {
		case <-time.After(d):
			io.WriteString(w, "done")
		case <-r.Context().Done():
			cancelled.Store(int64(time.Since(began) / time.Second))
		}
	}
}

// A client that disconnects early has as many requests in progress as one that waits.
func TestDisconnectingEarlyKeepsTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int64
		s := newSite(t, slow(30*time.Second, &cancelled), Config{}, slots(1))
		v := s.visitor()
		v.send("GET / HTTP/1.1\nHost: a\n\n")
		synctest.Wait()
		v.Close()
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 429}, {29 * time.Second, 429}, {2 * time.Second, 200}} {
			time.Sleep(step.after)
			synctest.Wait()
			if status, body := s.get("/"); status != step.want {
				t.Errorf("after %v more: %d %q, want %d", step.after, status, body, step.want)
			}
		}
		if at := cancelled.Load(); at != 0 {
			t.Errorf("the upstream was cancelled after %d s", at)
		}
	})
}

func TestResetOfAStreamKeepsTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int64
		s := newSite(t, slow(30*time.Second, &cancelled), Config{}, slots(1))
		client := s.http2()
		ctx, reset := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, reset)
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://a/", nil)
		if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		synctest.Wait()
		if resp, err := client.Get("http://a/"); err != nil || resp.StatusCode != 429 {
			t.Errorf("after a reset: %v %v, want 429", resp, err)
		}
		time.Sleep(30 * time.Second)
		if status, _ := s.get("/"); status != 200 {
			t.Errorf("when the upstream is done: %d, want 200", status)
		}
		if at := cancelled.Load(); at != 0 {
			t.Errorf("the upstream was cancelled after %d s", at)
		}
	})
}

// The same is true if the client sends half of a request and disconnects, and the
// upstream works without the rest.
func TestHalfAPostKeepsTheSlot(t *testing.T) {
	for _, upstream := range []*url.URL{nil, &h2cUpstream} {
		for _, rest := range []string{"", "\nthis is not a chunk\n"} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					io.CopyN(io.Discard, r.Body, 0x11000)
					time.Sleep(30 * time.Second)
					io.WriteString(w, "done")
				}, Config{Upstream: upstream}, slots(1))
				v := s.visitor()
				v.send("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n11000\n" +
					strings.Repeat("x", 0x11000) + rest)
				synctest.Wait()
				v.Close()
				for _, step := range []struct {
					after time.Duration
					want  int
				}{{0, 429}, {29 * time.Second, 429}, {2 * time.Second, 200}} {
					time.Sleep(step.after)
					synctest.Wait()
					if status, body := s.get("/"); status != step.want {
						t.Errorf("%v %q: after %v more: %d %q, want %d", upstream, rest, step.after, status, body,
							step.want)
					}
				}
			})
		}
	}
}

// The slot of half a request is free again if the upstream works for longer than
// Config.Abandon, or closes its connection.
func TestHalfAPostIsNotAwaitedForever(t *testing.T) {
	for _, test := range []struct {
		path  string
		after time.Duration
	}{{"/slow", DefaultAbandon}, {"/closes", 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				io.CopyN(io.Discard, r.Body, 0x11000)
				time.Sleep(10 * time.Second)
				switch r.URL.Path {
				case "/slow":
					time.Sleep(10 * time.Minute)
				case "/closes":
					conn, _, _ := w.(http.Hijacker).Hijack()
					conn.Close()
				}
			}, Config{Timeout: time.Hour}, slots(1))
			v := s.visitor()
			v.send("POST " + test.path + " HTTP/1.1\nHost: a\nContent-Length: 100000\n\n" +
				strings.Repeat("x", 0x11000))
			synctest.Wait()
			v.Close()
			for _, step := range []struct {
				after time.Duration
				want  int
			}{{test.after - time.Second, 429}, {2 * time.Second, 200}} {
				time.Sleep(step.after)
				synctest.Wait()
				if status, body := s.get("/"); status != step.want {
					t.Errorf("%s: after %v more: %d %q, want %d", test.path, step.after, status, body, step.want)
				}
			}
			time.Sleep(10 * time.Minute) // until the upstream is done
		})
	}
}

func TestAbandonedRequestIsCancelledInTheEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		c    Config
		want int64 // seconds after the request was sent; the client leaves after 5
	}{
		{"by default", Config{}, 65},
		{"as configured", Config{Abandon: 10 * time.Second}, 15},
		{"when the upstream stops by itself", Config{Cancels: true, Abandon: time.Minute}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cancelled atomic.Int64
				test.c.Timeout = time.Hour
				s := newSite(t, slow(10*time.Minute, &cancelled), test.c, slots(1))
				v := s.visitor()
				v.send("GET / HTTP/1.1\nHost: a\n\n")
				time.Sleep(5 * time.Second)
				v.Close()
				time.Sleep(5 * time.Minute)
				if at := cancelled.Load(); at != test.want {
					t.Errorf("the upstream was cancelled after %d s, want %d", at, test.want)
				}
				if s.log.String() != "" {
					t.Errorf("logged: %s", s.log.String())
				}
				s.proxy.abandoned.mu.Lock()
				defer s.proxy.abandoned.mu.Unlock()
				if n := s.proxy.abandoned.list.Len(); n != 0 {
					t.Errorf("%d requests are still abandoned", n)
				}
			})
		})
	}
}

// The upstream does not notice that the client has stopped reading.
func TestAnswerIsReadAndDropped(t *testing.T) {
	for _, test := range []struct {
		name  string
		bytes int
		whole bool
	}{{"to its end", 4 << 20, true}, {"no further than maxDropped", 64 << 20, false}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wrote atomic.Int64
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					for range test.bytes / 1024 {
						n, err := io.WriteString(w, strings.Repeat("x", 1024))
						if err != nil {
							return
						}
						wrote.Add(int64(n))
					}
				}, Config{}, slots(1))
				v := s.visitor()
				v.send("GET / HTTP/1.1\nHost: a\n\n")
				io.CopyN(io.Discard, v.r, 100_000)
				v.Close()
				synctest.Wait()
				n := int(wrote.Load())
				if test.whole != (n == test.bytes) || n > maxDropped+4<<20 {
					t.Errorf("%d bytes of %d were read after the client left", n, test.bytes)
				}
			})
		})
	}
}

func TestEventStreamEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Bool
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			cancelled.Store(true)
		}, Config{}, slots(1))
		v := s.visitor()
		v.send("GET / HTTP/1.1\nHost: a\n\n")
		if resp := v.head(); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
		v.Close()
		synctest.Wait()
		if !cancelled.Load() {
			t.Error("the event stream continues without its client")
		}
	})
}

func TestAbandonedAreBounded(t *testing.T) {
	for most, bound := range map[int]int{0: maxAbandoned, 3: 3, 2 * maxAbandoned: maxAbandoned} {
		testAbandonedAreBounded(t, most, bound)
	}
}

func testAbandonedAreBounded(t *testing.T, most, bound int) {
	synctest.Test(t, func(t *testing.T) {
		var a abandoned
		a.bound(most)
		all := make([]*patience, bound+10)
		ended := make([]error, len(all))
		for i := range all {
			ctx, cancel := context.WithCancelCause(context.Background())
			context.AfterFunc(ctx, func() { ended[i] = context.Cause(ctx) })
			all[i] = &patience{abort: cancel, abandoned: &a, time: time.Minute}
			all[i].clientLeft()
			all[i].clientLeft() // a second call has no effect
			synctest.Wait()
		}
		for i, err := range ended {
			if want := i < 10; want != (err != nil) {
				t.Errorf("%d of %d: %v", i, len(all), err)
			}
		}
		a.stop()
		for _, p := range all {
			p.end()
			p.clientLeft() // after end: no effect
		}
		if n := a.list.Len(); n != 0 {
			t.Errorf("%d requests remain", n)
		}
		synctest.Wait()
		for i, err := range ended[10:] {
			if err != errStopped {
				t.Errorf("%d: %v, want %v", i+10, err, errStopped)
			}
		}
	})
}

func TestStopEndsStreamsAndWebsockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/events":
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "data: 1\n\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case "/chat":
				conn, rw, _ := w.(http.Hijacker).Hijack()
				defer conn.Close()
				rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n")
				rw.Flush()
				io.Copy(io.Discard, rw)
			case "/slow":
				select {
				case <-r.Context().Done():
				case <-time.After(50 * time.Second):
				}
			}
		}, Config{})
		events, chat, gone, slow := s.visitor(), s.visitor(), s.visitor(), s.visitor()
		events.send("GET /events HTTP/1.1\nHost: a\n\n")
		chat.send("GET /chat HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n\n")
		stream := events.head()
		if resp := chat.head(); resp.StatusCode != 101 || resp.Header.Get("Upgrade") == "" {
			t.Errorf("the websocket: %v", resp)
		}
		event := make([]byte, len("data: 1\n\n"))
		io.ReadFull(stream.Body, event)
		gone.send("GET /slow HTTP/1.1\nHost: a\n\n")
		slow.send("GET /slow HTTP/1.1\nHost: a\n\n")
		synctest.Wait()
		gone.Close()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.proxy.Wait(ctx); err != context.DeadlineExceeded || s.proxy.inside.Load() != 4 {
			t.Errorf("waiting for all: %v, %d in progress", err, s.proxy.inside.Load())
		}
		s.proxy.Stop()
		synctest.Wait()
		if n := s.proxy.inside.Load(); n != 1 {
			t.Errorf("%d requests are in progress, want the one that ends by itself", n)
		}
		if rest, err := io.ReadAll(stream.Body); string(event) != "data: 1\n\n" || len(rest) > 0 || err != nil {
			t.Errorf("the event stream: %q %q, %v; want a complete one", event, rest, err)
		}
		if rest, err := io.ReadAll(chat.r); len(rest) > 0 || err != nil {
			t.Errorf("the websocket: %q, %v", rest, err)
		}
		// Later ones are ended at once, too.
		chat = s.visitor()
		chat.send("GET /chat HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\n\n")
		if rest, err := io.ReadAll(chat.r); err != nil {
			t.Errorf("a late websocket: %q, %v", rest, err)
		}
		began := time.Now()
		if err := s.proxy.Wait(context.Background()); err != nil || time.Since(began) != 40*time.Second {
			t.Errorf("waited %v, %v", time.Since(began), err)
		}
		if resp := slow.head(); resp.StatusCode != 200 {
			t.Errorf("the one that ends by itself: %v", resp)
		}
	})
}
