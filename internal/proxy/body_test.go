package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// countingUpstream reads the body of each request and answers with its length.
func countingUpstream(requests *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%d, announced %d, expect %q", n, r.ContentLength, r.Header.Get("Expect"))
	}
}

func TestRequestIsForwardedWhenTheBodyIsComplete(t *testing.T) {
	for _, test := range []struct {
		name, head string
		parts      []int // bytes, a second apart
		forwarded  int   // the request is forwarded after so many parts
		want       string
	}{
		{"short", "Content-Length: 3\n", []int{1, 1, 1}, 3, "3, announced 3"},
		{"longer", "Content-Length: 40000\n", []int{20_000, 19_999, 1}, 3, "40000, announced 40000"},
		{"as much as is read ahead", "Content-Length: 65536\n", []int{65_535, 1}, 2, "65536, announced 65536"},
		{"more than is read ahead", "Content-Length: 100000\n", []int{65_535, 1, 34_464}, 2,
			"100000, announced 100000"},
		{"in chunks", "Transfer-Encoding: chunked\n", []int{10, 20_000, 0}, 3, "20010, announced 20010"},
		{"more in chunks", "Transfer-Encoding: chunked\n", []int{60_000, 60_000, 0}, 2, "120000, announced -1"},
		{"empty in chunks", "Transfer-Encoding: chunked\n", []int{0}, 1, "0, announced 0"},
		{"expecting", "Content-Length: 3\nExpect: 100-continue\n", []int{2, 1}, 2, "3, announced 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				s := newSite(t, countingUpstream(&requests), Config{}, slots(1))
				v := s.visitor()
				v.send("POST / HTTP/1.1\nHost: a\n" + test.head + "\n")
				if strings.Contains(test.head, "Expect") {
					if line, err := v.r.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 100") {
						t.Fatalf("%q, %v", line, err)
					}
					v.r.ReadString('\n')
				}
				for i, n := range test.parts {
					synctest.Wait()
					if got := requests.Load() > 0; got != (i >= test.forwarded) {
						t.Errorf("before part %d: forwarded %v", i, got)
					}
					time.Sleep(time.Second)
					part := strings.Repeat("x", n)
					if strings.Contains(test.head, "chunked") {
						part = fmt.Sprintf("%x\n%s\n", n, part)
					}
					v.send(part)
				}
				resp := v.head()
				body, err := io.ReadAll(resp.Body)
				if want := test.want + `, expect ""`; resp.StatusCode != 200 || string(body) != want || err != nil {
					t.Errorf("%s %q, %v; want %q", resp.Status, body, err, want)
				}
				// The connection can be used again.
				time.Sleep(time.Minute)
				v.send("GET / HTTP/1.1\nHost: a\n\n")
				if resp := v.head(); resp.StatusCode != 200 {
					t.Errorf("the next request: %s", resp.Status)
				}
			})
		})
	}
}

func TestSlowPostIsCut(t *testing.T) {
	for _, test := range []struct {
		name     string
		bytes    int // each second
		length   int
		status   int           // 0: the connection breaks
		after    time.Duration // since the start
		requests int64
	}{
		{"nothing comes", 0, 100, 408, 20 * time.Second, 0},
		{"a byte a second", 1, 1000, 408, 20 * time.Second, 0},
		{"too slow", 990, 60_000, 408, 20 * time.Second, 0},
		{"fast enough", 1060, 63_600, 200, 60 * time.Second, 1},
		{"fast enough for long", 1060, 636_000, 200, 600 * time.Second, 1},
	} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(test.name+" "+proto, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var requests atomic.Int64
					s := newSite(t, countingUpstream(&requests), Config{}, slots(1))
					client := s.http2()
					if proto == "HTTP/1.1" {
						client = &http.Client{Transport: &http.Transport{DialContext: s.clients.dial,
							DisableKeepAlives: true}}
					}
					pr, pw := io.Pipe()
					req, _ := http.NewRequest("POST", "http://a/", pr)
					req.ContentLength = int64(test.length)
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						// Never at the very moment at which the post is cut: then the
						// result depends on chance.
						for n, pause := 0, time.Second/2; n < test.length; n, pause = n+max(1, test.bytes),
							time.Second {
							time.Sleep(pause)
							if _, err := pw.Write(make([]byte, test.bytes)); err != nil {
								return
							}
						}
						pw.Close()
					}()
					defer func() {
						pr.Close()
						<-sent
					}()
					began := time.Now()
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if resp.StatusCode != test.status || time.Since(began).Round(time.Second) != test.after ||
						requests.Load() != test.requests || resp.Proto != proto {
						t.Errorf("%s %s after %v, the upstream got %d requests; want %d after %v, %d", resp.Proto,
							resp.Status, time.Since(began), requests.Load(), test.status, test.after, test.requests)
					}
					if resp.StatusCode == 408 && proto == "HTTP/1.1" && !resp.Close {
						t.Error("the connection stays open")
					}
					resp.Body.Close()
					if status, _ := s.get("/"); status != 200 {
						t.Errorf("afterwards: %d", status)
					}
				})
			})
		}
	}
}

// A client is not cut because the upstream reads slowly.
func TestSlowUpstreamDoesNotCutAPost(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		synctest.Test(t, func(t *testing.T) {
			const size = 300_000
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				n, buf := 0, make([]byte, 10_000)
				for {
					m, err := io.ReadFull(r.Body, buf)
					n += m
					if err != nil {
						break
					}
					time.Sleep(15 * time.Second)
				}
				time.Sleep(50 * time.Second)
				fmt.Fprint(w, n)
			}, Config{Timeout: time.Hour})
			client := s.http2()
			if proto == "HTTP/1.1" {
				client = &http.Client{Transport: &http.Transport{DialContext: s.clients.dial, DisableKeepAlives: true}}
			}
			resp, err := client.Post("http://a/", "", bytes.NewReader(make([]byte, size)))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != fmt.Sprint(size) ||
				err != nil {
				t.Errorf("%s: %s %q %v", proto, resp.Status, body, err)
			}
		})
	}
}

// An upstream that takes nothing of a body holds the request no longer than one that does not answer, whether the
// client waits or has left.
func TestUpstreamThatTakesNoBodyIsGivenUp(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the client leaves: %v", scheme, leaves), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
						if r.Method == http.MethodPost {
							time.Sleep(5 * time.Minute)
						}
					}, Config{Upstream: &url.URL{Scheme: scheme, Host: "upstream"}}, slots(1))
					v := s.visitor()
					go v.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" +
						strings.Repeat("x", 2_000_000)))
					synctest.Wait()
					if leaves {
						v.Close()
					}
					defer time.Sleep(10 * time.Minute) // until the upstream is done
					time.Sleep(DefaultTimeout - time.Second)
					if status, _ := s.get("/"); status != 429 {
						t.Errorf("a second before the timeout: %d", status)
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if status, _ := s.get("/"); status != 200 {
						t.Errorf("after the timeout the slot is taken: %d", status)
					}
					if !strings.Contains(s.log.String(), "did not take") {
						t.Errorf("logged %q", s.log.String())
					}
					if leaves {
						return
					}
					v.SetReadDeadline(time.Now().Add(time.Minute))
					if resp, err := http.ReadResponse(v.r, nil); err != nil || resp.StatusCode != 504 || !resp.Close {
						t.Errorf("the answer: %v, %v", resp, err)
					}
				})
			})
		}
	}
}

// If a client stops in the middle of a body, the upstream does not wait for the rest. A
// client that sends the rest too slowly is cut off.
func TestBrokenPostIsBrokenForTheUpstream(t *testing.T) {
	for _, test := range []struct {
		name  string
		leave func(*visitor)
		after time.Duration
	}{
		{"hangs up", func(v *visitor) { v.Close() }, 0},
		{"stops sending", func(*visitor) {}, 20 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan time.Time, 1)
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						t.Error("the body came to an end")
					}
					ended <- time.Now()
				}, Config{}, slots(1))
				v := s.visitor()
				v.send("POST / HTTP/1.1\nHost: a\nContent-Length: 200000\n\n" + strings.Repeat("x", 100_000))
				synctest.Wait()
				began := time.Now()
				test.leave(v)
				if test.after > 0 {
					if resp := v.head(); resp.StatusCode != 408 || !resp.Close {
						t.Errorf("the client got %s", resp.Status)
					}
				}
				if at := <-ended; at.Sub(began) != test.after {
					t.Errorf("the upstream noticed it after %v, want %v", at.Sub(began), test.after)
				}
				time.Sleep(time.Second) // the transport waits a moment for its own write
				synctest.Wait()
				if n := s.proxy.inside.Load(); n != 0 {
					t.Errorf("%d requests are in progress", n)
				}
				if s.log.String() != "" {
					t.Errorf("logged: %s", s.log.String())
				}
			})
		})
	}
}

// If a client leaves before its body is read ahead, the upstream gets no request.
func TestIncompletePostIsNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		s := newSite(t, countingUpstream(&requests), Config{}, slots(1))
		for _, head := range []string{"Content-Length: 60000", "Transfer-Encoding: chunked"} {
			v := s.visitor()
			v.send("POST / HTTP/1.1\nHost: a\n" + head + "\n\nabc")
			synctest.Wait()
			v.Close()
			synctest.Wait()
		}
		if requests.Load() != 0 || s.proxy.inside.Load() != 0 {
			t.Errorf("the upstream got %d requests, %d are in progress", requests.Load(),
				s.proxy.inside.Load())
		}
	})
}

// An answer that comes before the complete body is forwarded at once.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, "too much", http.StatusRequestEntityTooLarge)
		}, Config{})
		v := s.visitor()
		began := time.Now()
		v.send("POST / HTTP/1.1\nHost: a\nContent-Length: 20000000\n\n" + strings.Repeat("x", bodyAhead))
		resp := v.head()
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(body) != "too much\n" || err != nil ||
			time.Since(began) > 0 {
			t.Errorf("%s %q %v after %v", resp.Status, body, err, time.Since(began))
		}
		io.Copy(io.Discard, v.r) // until the connection is closed
		if waited := time.Since(began); waited > 2*linger {
			t.Errorf("the proxy waited %v for the rest", waited)
		}
	})
}

// The rest of a body after an early answer is not another request.
func TestRestOfABodyIsNotARequest(t *testing.T) {
	for _, test := range []struct {
		path, head, first, rest string
		status                  int
		more                    string // sent later, so that the transport's read returns
	}{
		{"/", "Content-Length: 66000", strings.Repeat("x", bodyAhead), strings.Repeat("x", 66_000-bodyAhead-50), 200,
			""},
		{"/", "Content-Length: 66000", strings.Repeat("x", bodyAhead), "", 200, ""},
		{"/", "Transfer-Encoding: chunked", "10100\r\n" + strings.Repeat("x", bodyAhead), "", 200, ""},
		{"/broken", "Content-Length: 80000", strings.Repeat("x", bodyAhead), "", 502, strings.Repeat("x", 8000)},
	} {
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int64
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if r.URL.Path != test.path {
					t.Errorf("the upstream gets a request for %s", r.URL)
				}
				if test.status != 200 {
					conn, _, _ := w.(http.Hijacker).Hijack()
					conn.Close()
					return
				}
				http.NewResponseController(w).EnableFullDuplex()
				io.WriteString(w, "early")
			}, Config{})
			v := s.visitor()
			v.send("POST " + test.path + " HTTP/1.1\nHost: a\n" + test.head + "\n\n")
			io.WriteString(v, test.first)
			synctest.Wait()
			go io.WriteString(v, test.more)
			resp := v.head()
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != test.status || !resp.Close ||
				test.status == 200 && string(body) != "early" || err != nil {
				t.Errorf("%s, closes %v, %q, %v", resp.Status, resp.Close, body, err)
			}
			go io.WriteString(v, test.rest+strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 20))
			if rest, err := io.ReadAll(v.r); len(rest) > 0 || requests.Load() != 1 {
				t.Errorf("another answer: %q, %v", rest, err)
			}
			v.Close()
		})
	}
}

// Many slow posts use little memory, and posts beyond the budget are refused.
func TestBudgetOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		s := newSite(t, countingUpstream(&requests), Config{})
		s.proxy.bodies.max = 100_000
		for range 100 {
			v := s.visitor()
			v.send("POST / HTTP/1.1\nHost: a\nContent-Length: 65536\n\nx")
		}
		synctest.Wait()
		if used := s.proxy.bodies.used.Load(); used != 0 {
			t.Errorf("a hundred posts of one byte took %d bytes of the budget", used)
		}
		large := func() *visitor {
			v := s.visitor()
			go v.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n" +
				strings.Repeat("x", 20_000)))
			synctest.Wait()
			return v
		}
		first := large()
		refused := large()
		resp := refused.head()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !resp.Close || requests.Load() != 0 {
			t.Errorf("over the budget: %s %v", resp.Status, resp.Header)
		}
		if !strings.Contains(s.log.String(), "request bodies use all") {
			t.Errorf("logged %q", s.log.String())
		}
		first.send(strings.Repeat("x", 45_536))
		if resp := first.head(); resp.StatusCode != 200 {
			t.Errorf("within the budget: %s", resp.Status)
		}
		synctest.Wait()
		if used := s.proxy.bodies.used.Load(); used != 0 {
			t.Errorf("%d bytes were not given back", used)
		}
	})
}

// If the upstream closes an idle connection instead of answering, the request is sent
// again. This is possible while the complete body is in memory.
func TestPostIsSentAgainOnAnotherConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			for n := 0; ; n++ {
				req, err := http.ReadRequest(r)
				if err != nil {
					break
				}
				body, _ := io.ReadAll(req.Body)
				if i == 0 && n == 1 { // the second request of the first connection
					break
				}
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}
			conn.Close()
		}
	}()
	u, _ := url.Parse("http://" + l.Addr().String())
	p := New(Config{Upstream: u})
	defer p.Close()
	for i := range 3 {
		r := httptest.NewRequest("POST", "/", strings.NewReader("hello"))
		r.Header.Set("Idempotency-Key", "1")
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != 200 || w.Body.String() != "hello" {
			t.Errorf("post %d: %d %q", i, w.Code, w.Body)
		}
	}
}

// The transport may read from a body after its end, in any order.
func TestBodyIsSafeWhenItIsOver(t *testing.T) {
	p := New(Config{Upstream: &urlOfNobody})
	var all sync.WaitGroup
	for i := range 200 {
		r := httptest.NewRequest("POST", "/", struct{ io.Reader }{bytes.NewReader(noise(i * 1000))})
		b := p.newBody(httptest.NewRecorder(), r, false)
		if err := b.readAhead(); err != nil {
			t.Fatal(err)
		}
		out := new(http.Request)
		b.gone, b.stuck, b.timeout = func() {}, func() {}, time.Minute
		b.attach(out)
		if out.Body == nil {
			continue
		}
		all.Add(2)
		go func() {
			defer all.Done()
			io.Copy(io.Discard, out.Body)
			out.Body.Close()
		}()
		go func() {
			defer all.Done()
			b.setAnswered()
			b.end()
			if _, err := out.Body.Read(make([]byte, 1)); !errors.Is(err, errEnded) {
				t.Errorf("a body was read after its end: %v", err)
			}
		}()
	}
	all.Wait()
	if used := p.bodies.used.Load(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
}
