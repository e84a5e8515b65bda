package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/share"
)

// Clients and the upstream disconnect at random. Clients that stay get their whole
// answers, and no memory, turn or goroutine remains in use. In half of the runs,
// clients also wait for turns.
func TestRandomDisconnectsLeaveNothingBehind(t *testing.T) {
	all := noise(2 << 20)
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			var q *share.Queue
			if seed%4 > 1 {
				q = share.New(share.Options{Capacity: 10, Wait: time.Minute, Queue: 30})
			}
			s := newSharedSite(t, func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				n, _ := strconv.Atoi(query.Get("n"))
				wait, _ := time.ParseDuration(query.Get("wait"))
				sent, err := io.ReadAll(r.Body)
				time.Sleep(wait)
				if err != nil {
					return
				}
				if !bytes.HasPrefix(all, sent) {
					t.Error("the upstream got another body than the client sent")
				}
				w.Header().Set("X-Sent", fmt.Sprint(len(sent)))
				if query.Has("length") {
					w.Header().Set("Content-Length", fmt.Sprint(n))
				}
				if query.Has("break") {
					w.Write(all[:n/2])
					panic(http.ErrAbortHandler)
				}
				w.Write(all[:n/2])
				time.Sleep(wait)
				w.Write(all[n/2 : n])
			}, Config{}, q)
			s.proxy.answers.max, s.proxy.bodies.max = 20*chunkSize, 20*bodyAhead
			client := s.http2()
			if seed%2 == 0 {
				client = &http.Client{Transport: &http.Transport{DialContext: s.clients.dial, DisableKeepAlives: true}}
			}
			var refused atomic.Int64
			var visitors sync.WaitGroup
			for i := range uint64(60) {
				visitors.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, i))
					n, sends := rnd.IntN(1<<rnd.IntN(22)), 0
					if rnd.IntN(2) == 0 {
						sends = rnd.IntN(1 << rnd.IntN(19))
					}
					path := fmt.Sprintf("/?n=%d&wait=%v", n, time.Duration(rnd.IntN(29_000))*time.Millisecond)
					path += [...]string{"", "&length"}[rnd.IntN(2)]
					breaks, leaves := rnd.IntN(8) == 0, rnd.IntN(2) == 0
					if breaks {
						path += "&break"
					}
					ctx, leave := context.WithCancel(context.Background())
					defer leave()
					if leaves {
						time.AfterFunc(time.Duration(rnd.IntN(60_000))*time.Millisecond, leave)
					}
					var body io.Reader = bytes.NewReader(all[:sends])
					if rnd.IntN(3) == 0 {
						body = &trickle{all[:sends], rand.New(rand.NewPCG(i, seed))}
					}
					req, _ := http.NewRequestWithContext(ctx, "POST", "http://a"+path, body)
					resp, err := client.Do(req)
					var got []byte
					if err == nil {
						var part []byte
						defer resp.Body.Close()
						for err == nil { // a part from time to time
							part, err = readPart(resp.Body, 1+rnd.IntN(500_000))
							got = append(got, part...)
							if rnd.IntN(3) == 0 {
								time.Sleep(time.Duration(rnd.IntN(5_000)) * time.Millisecond)
							}
						}
					}
					switch {
					case leaves && err != io.EOF:
					case err == io.EOF && resp.StatusCode == 503 && sends > 4<<10 && q == nil: // the budget
					case err == io.EOF && resp.StatusCode == 503 && q != nil:
						refused.Add(1)
					case q != nil && sends > bodyAhead && client.Transport.(*http.Transport).DisableKeepAlives &&
						err != io.EOF:
						// HTTP/1 can only close, and a client that is still sending may not see the answer.
					case breaks && (err != io.EOF || resp.StatusCode == 502):
					case breaks && n < 2 && err == io.EOF:
						// Half of an empty answer is the complete one.
					case err != io.EOF || resp.StatusCode != 200 || resp.Header.Get("X-Sent") != fmt.Sprint(sends) ||
						!bytes.Equal(got, all[:n]):
						t.Errorf("seed %d, visitor %d, %s, %d sent: %v, %d bytes, %v", seed, i, path, sends, resp,
							len(got), err)
					}
				})
			}
			visitors.Wait()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := s.proxy.inside.Load(); n != 0 {
				t.Errorf("seed %d: %d requests are in progress", seed, n)
			}
			if q != nil {
				if st := q.Stats(); st.Inside != 0 || st.Waiting != 0 || st.Classes[0].Waited == 0 ||
					refused.Load() == 0 {
					t.Errorf("seed %d: %+v, %d were refused", seed, st, refused.Load())
				}
			}
		})
	}
}

// A trickle is a body that comes in pieces, with pauses.
type trickle struct {
	rest []byte
	rnd  *rand.Rand
}

func (b *trickle) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Duration(b.rnd.IntN(2_000)) * time.Millisecond)
	n := copy(p, b.rest[:min(len(b.rest), 1+b.rnd.IntN(30_000))])
	b.rest = b.rest[n:]
	return n, nil
}

func readPart(r io.Reader, n int) ([]byte, error) {
	part, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(part) < n {
		err = io.EOF
	}
	return part, err
}
