//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// A caller is one connection of a client, from an address of its own.
type caller struct {
	from netip.Addr
	to   string

	conn net.Conn
	r    *bufio.Reader
}

var errGone = errors.New("the connection was closed before an answer began")

// ask asks once and reads the answer. A connection that was closed while it was
// idle is opened anew, as every client does. The connection is closed when the
// answer is not here within the given time, or when ctx is done.
func (c *caller) ask(ctx context.Context, path string, within time.Duration) (status int, err error) {
	kept := c.conn != nil
	status, err = c.once(ctx, path, within)
	if kept && errors.Is(err, errGone) && ctx.Err() == nil {
		c.close()
		status, err = c.once(ctx, path, within)
	}
	if err != nil {
		c.close()
	}
	return status, err
}

func (c *caller) once(ctx context.Context, path string, within time.Duration) (int, error) {
	deadline := time.Now().Add(within)
	if c.conn == nil {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0)), Deadline: deadline}
		conn, err := dialer.Dial("tcp", c.to)
		if err != nil {
			return 0, err
		}
		c.conn = conn
		if c.r == nil {
			c.r = bufio.NewReaderSize(conn, 1024)
		} else {
			c.r.Reset(conn)
		}
	}
	conn := c.conn
	conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: site.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: */*\r\n\r\n", path); err != nil {
		return 0, errGone
	}
	if _, err := c.r.Peek(1); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		return 0, errGone
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.Close {
		c.close()
	}
	return resp.StatusCode, err
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// patience is how long anybody waits for an answer.
const patience = 30 * time.Second

// counts is what came of requests.
type counts struct {
	answered, refused, failed int // refused: 429 or 503; failed: any other answer, or none
	took                      []time.Duration
	faults                    map[string]int
}

func (c *counts) asked() int { return c.answered + c.refused + c.failed }

func (c *counts) note(status int, took time.Duration, err error) {
	switch {
	case err == nil && status == http.StatusOK:
		c.answered++
		c.took = append(c.took, took)
	case err == nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
		c.refused++
	default:
		c.failed++
		if c.faults == nil {
			c.faults = map[string]int{}
		}
		what := fmt.Sprint("status ", status)
		if err != nil {
			what = err.Error()
			if op := (*net.OpError)(nil); errors.As(err, &op) {
				what = op.Op + ": " + op.Err.Error()
			}
		}
		c.faults[what]++
	}
}

func (c *counts) add(d *counts) {
	c.answered += d.answered
	c.refused += d.refused
	c.failed += d.failed
	c.took = append(c.took, d.took...)
	for what, n := range d.faults {
		if c.faults == nil {
			c.faults = map[string]int{}
		}
		c.faults[what] += n
	}
}

// quantile returns the time that a share q of the answers took at most; 0 when
// there was none.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Clone(took)
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// A person is a polite client: it asks once a second in the mean (Poisson),
// whether the answer before is here or not, over kept connections, and does
// not ask again when it is refused.
type person struct {
	from netip.Addr
	to   string
	path string

	mu   sync.Mutex
	idle []*caller
}

// An event is one request of a person.
type event struct {
	at     time.Time // when it was asked
	took   time.Duration
	status int
	err    error
}

// polite runs people until ctx is done and returns, when all answers are here,
// what came of their requests.
func polite(ctx context.Context, people []*person, every time.Duration) []event {
	var mu sync.Mutex
	var events []event
	var all sync.WaitGroup
	for i, p := range people {
		random := rand.New(rand.NewPCG(uint64(i), 0)) // the same story in each run
		all.Go(func() {
			for sleep(ctx, time.Duration(random.ExpFloat64()*float64(every))) {
				all.Go(func() {
					e := p.ask()
					mu.Lock()
					events = append(events, e)
					mu.Unlock()
				})
			}
		})
	}
	all.Wait()
	for _, p := range people {
		for _, c := range p.idle {
			c.close()
		}
		p.idle = nil
	}
	return events
}

func (p *person) ask() event {
	p.mu.Lock()
	var c *caller
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if c == nil {
		c = &caller{from: p.from, to: p.to}
	}
	at := time.Now()
	status, err := c.ask(context.Background(), p.path, patience)
	e := event{at, time.Since(at), status, err}
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	return e
}

// A fleet keeps requests open, one in each slot, all the time.
type fleet struct {
	slots  []slot
	pause  time.Duration // after a refusal, before the next request of that slot
	hangUp time.Duration // 0: they wait; else how long they do

	first, networks int // which /24s they come from; 0: too many to compare
}

// A slot asks one request after the other.
type slot struct {
	next  func() netip.Addr // who asks
	fresh bool              // each request is another client's, on a connection of its own
	path  string
}

// run keeps the slots busy until ctx is done. Requests that are open then are
// given up and not counted.
func (f *fleet) run(ctx context.Context, to string) *counts {
	total := &counts{}
	var mu sync.Mutex
	var all sync.WaitGroup
	within := patience
	if f.hangUp > 0 {
		within = f.hangUp
	}
	for _, s := range f.slots {
		all.Go(func() {
			var own counts
			c := &caller{from: s.next(), to: to}
			sleep(ctx, rand.N(50*time.Millisecond)) // not all at the same moment
			for ctx.Err() == nil {
				began := time.Now()
				status, err := c.ask(ctx, s.path, within)
				if ctx.Err() != nil {
					break
				}
				own.note(status, time.Since(began), err)
				if s.fresh || err != nil {
					c.close()
				}
				if s.fresh {
					c = &caller{from: s.next(), to: to}
				}
				hungUp := f.hangUp > 0 && errors.Is(err, os.ErrDeadlineExceeded)
				if err != nil && !hungUp || err == nil && status != http.StatusOK {
					sleep(ctx, f.pause)
				}
			}
			c.close()
			mu.Lock()
			total.add(&own)
			mu.Unlock()
		})
	}
	all.Wait()
	return total
}

// sleep waits and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
