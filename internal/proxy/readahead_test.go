package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// noise returns n bytes that do not repeat soon.
func noise(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return b
}

// A client that takes its answer slowly holds neither the upstream nor a slot.
func TestSlowReaderDoesNotHoldTheUpstream(t *testing.T) {
	for _, test := range []struct {
		name   string
		length bool
		bytes  int
	}{
		{"small", true, 8 << 10},
		{"one chunk", true, chunkSize},
		{"with a length", true, answerAhead - chunkSize},
		{"without a length", false, answerAhead - 2*chunkSize},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var done atomic.Bool
				want := noise(test.bytes)
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/other" {
						return
					}
					if test.length {
						w.Header().Set("Content-Length", strconv.Itoa(test.bytes))
					}
					w.Write(want)
					w.(http.Flusher).Flush()
					done.Store(true)
				}, Config{}, slots(1))
				v := s.visitor()
				v.send("GET / HTTP/1.1\nHost: a\n\n")
				synctest.Wait() // the client reads nothing
				if !done.Load() {
					t.Error("the upstream waits for the client")
				}
				if status, _ := s.get("/other"); status != 200 {
					t.Errorf("after the answer was read ahead: %d, want 200", status)
				}
				resp := v.head()
				if got, err := io.ReadAll(resp.Body); !bytes.Equal(got, want) || err != nil {
					t.Errorf("got %d bytes, %v; want the %d that were sent", len(got), err, len(want))
				}
			})
		})
	}
}

// The bytes that are read ahead stay below the budget, and the complete answer arrives
// with every budget.
func TestAnswersReadAheadAreBounded(t *testing.T) {
	for _, test := range []struct {
		budget int64
		most   int
	}{{answerBudget, answerAhead + 16<<10}, {5 * chunkSize, 6*chunkSize + 16<<10}, {0, chunkSize + 16<<10}} {
		synctest.Test(t, func(t *testing.T) {
			want := noise(4 << 20)
			var wrote atomic.Int64
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				for rest := want; len(rest) > 0; rest = rest[4<<10:] {
					w.Write(rest[:4<<10])
					wrote.Add(4 << 10)
				}
			}, Config{})
			s.proxy.answers.max = test.budget
			v := s.visitor()
			v.send("GET / HTTP/1.1\nHost: a\n\n")
			synctest.Wait()
			if n := int(wrote.Load()); n > test.most || n < test.most-48<<10 {
				t.Errorf("budget %d: the upstream wrote %d bytes ahead, want at most %d", test.budget, n, test.most)
			}
			if got, err := io.ReadAll(v.head().Body); !bytes.Equal(got, want) || err != nil {
				t.Errorf("budget %d: got %d bytes, %v", test.budget, len(got), err)
			}
		})
	}
}

// Each Read of pieces returns one of them.
type pieces struct {
	rest [][]byte
	err  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, p.err
	}
	n := copy(b, p.rest[0])
	if p.rest[0] = p.rest[0][n:]; len(p.rest[0]) == 0 {
		p.rest = p.rest[1:]
	}
	return n, nil
}

// The bytes arrive unchanged, for any sizes of reads and writes.
func TestReadAheadPreservesTheOrder(t *testing.T) {
	broken := errors.New("broken")
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := New(Config{Upstream: &urlOfNobody})
		p.answers.max = int64(rnd.IntN(4)) * chunkSize
		all := noise(rnd.IntN(300_000))
		src := &pieces{err: io.EOF}
		if rnd.IntN(2) == 0 {
			src.err = broken
		}
		for rest := all; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1+rnd.IntN(50_000)))
			src.rest, rest = append(src.rest, rest[:n]), rest[n:]
		}
		finished := false
		a := p.newReadAhead(src, p.chunks.get(), func(error) { finished = true })
		go a.run()
		var got []byte
		var err error
		for {
			var part []byte
			if part, err = a.take(); err != nil {
				break
			}
			n := 1 + rnd.IntN(len(part))
			got = append(got, part[:n]...)
			a.release(n)
			if rnd.IntN(100) == 0 {
				a.abandon()
				err = src.err
				break
			}
		}
		if err != src.err || !finished || !bytes.HasPrefix(all, got) || !a.drop && len(got) != len(all) {
			t.Fatalf("%v, want %v; finished %v; %d bytes of %d", err, src.err, finished, len(got), len(all))
		}
		a.end()
		if used := p.answers.used.Load(); used != 0 {
			t.Fatalf("%d bytes were not given back", used)
		}
	}
}

// Each line of an answer without a length is forwarded at once, and so is the head
// before the first line.
func TestAnswerWithoutLengthIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			for i := range 3 {
				time.Sleep(time.Minute)
				fmt.Fprintf(w, "%d\n", i)
				w.(http.Flusher).Flush()
			}
		}, Config{})
		v := s.visitor()
		began := time.Now()
		v.send("GET / HTTP/1.1\nHost: a\n\n")
		resp := v.head()
		if waited := time.Since(began); waited > 10*time.Millisecond {
			t.Errorf("the head came after %v", waited)
		}
		line := make([]byte, 2)
		for i := range 3 {
			if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != fmt.Sprintf("%d\n", i) ||
				time.Since(began).Round(time.Second) != time.Duration(i+1)*time.Minute {
				t.Errorf("%q after %v, %v", line, time.Since(began), err)
			}
		}
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestTrailers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("n"))
			if r.URL.Query().Has("announced") {
				w.Header().Set("Trailer", "X-Sum")
			}
			io.WriteString(w, strings.Repeat("x", n))
			w.(http.Flusher).Flush()
			w.Header().Set(map[bool]string{true: "", false: http.TrailerPrefix}[r.URL.Query().Has("announced")]+
				"X-Sum", "sum")
		}, Config{})
		for _, n := range []int{0, 10, 5_000, 200_000} {
			for _, announced := range []string{"", "&announced"} {
				for _, client := range []*http.Client{{Transport: &http.Transport{DialContext: s.clients.dial,
					DisableKeepAlives: true}}, s.http2()} {
					resp, err := client.Get(fmt.Sprintf("http://a/?n=%d%s", n, announced))
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if len(body) != n || err != nil || resp.Trailer.Get("X-Sum") != "sum" {
						t.Errorf("%s, %d bytes%s: %d, %v, trailer %v", resp.Proto, n, announced, len(body), err,
							resp.Trailer)
					}
				}
			}
		}
	})
}

// An incomplete answer must not look complete.
func TestBrokenAnswerIsVisibleToTheClient(t *testing.T) {
	for _, n := range []int{0, 10, 3_000, 20_000, 200_000} {
		for _, head := range []string{"Content-Length: 300000\r\n", fmt.Sprintf("Content-Length: %d\r\n", n+10),
			"Transfer-Encoding: chunked\r\n"} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
					conn, rw, _ := w.(http.Hijacker).Hijack()
					defer conn.Close()
					rw.WriteString("HTTP/1.1 200 OK\r\n" + head + "\r\n")
					if strings.HasPrefix(head, "Transfer") && n > 0 {
						fmt.Fprintf(rw, "%x\r\n%s\r\n", n, strings.Repeat("x", n))
					} else {
						rw.WriteString(strings.Repeat("x", n))
					}
					rw.Flush()
				}, Config{})
				for _, client := range []*http.Client{{Transport: &http.Transport{DialContext: s.clients.dial,
					DisableKeepAlives: true}}, s.http2()} {
					resp, err := client.Get("http://a/")
					if err == nil {
						var body []byte
						if body, err = io.ReadAll(resp.Body); err == nil {
							t.Errorf("%q and %d bytes: %s %d bytes arrived as if they were complete", head, n, resp.Proto,
								len(body))
						}
						resp.Body.Close()
					}
				}
				if got := s.log.String(); strings.Count(got,
					"upstream upstream ended in the middle of an answer: ") != 2 {
					t.Errorf("%q and %d bytes: logged %q", head, n, got)
				}
			})
		}
	}
}
