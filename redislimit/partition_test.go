package redislimit_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// A wire forwards connections to a server until it is cut: then they stay open, and nothing gets
// through.
type wire struct {
	addr string

	mu    sync.Mutex
	whole chan struct{} // closed while the wire is whole
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: ln.Addr().String(), whole: make(chan struct{})}
	close(w.whole)
	end := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() { close(end); ln.Close(); all.Wait() })
	carry := func(dst, src net.Conn) {
		defer dst.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			w.mu.Lock()
			whole := w.whole
			w.mu.Unlock()
			select {
			case <-whole:
			case <-end:
				return
			}
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			all.Go(func() { <-end; c.Close(); s.Close() })
			all.Go(func() { carry(s, c) })
			all.Go(func() { carry(c, s) })
		}
	})
	return w
}

func (w *wire) cut() {
	w.mu.Lock()
	w.whole = make(chan struct{})
	w.mu.Unlock()
}

func (w *wire) mend() {
	w.mu.Lock()
	close(w.whole)
	w.mu.Unlock()
}

// One of two members loses the store, and the other does not. It admits its share, and what it
// admitted is counted when it is back.
func TestMemberThatIsCutOff(t *testing.T) {
	server := redistest.Start(t)
	w := newWire(t, server.Addr)
	name := fmt.Sprint("group", groups.Add(1))
	var members [2]*redislimit.Limiter
	for i, url := range []string{server.URL(), "redis://" + w.addr} {
		members[i] = open(t, connect(t, url), hundred, redislimit.Options{Name: name})
	}
	with, without := members[0], members[1]
	for _, l := range members {
		await(t, "two members", func() bool { redislimit.Beat(l); return len(l.Status().Members) == 2 })
	}
	w.cut()
	n, longest := admit(t, without, "k", 200)
	if n < 45 || n > 50 {
		t.Errorf("the member that is cut off admitted %d of its share of 50", n)
	}
	if longest > 5*time.Second { // Wait is 25 ms; the machine may be busy
		t.Errorf("a request waited for %v", longest)
	}
	if !without.Status().Away || with.Status().Away {
		t.Errorf("away: %t and %t; only the second is", with.Status().Away, without.Status().Away)
	}
	if n, _ := admit(t, with, "other", 200); n != 100 {
		t.Errorf("the other member admitted %d of 100", n)
	}
	w.mend()
	await(t, "back", func() bool { return !without.Status().Away })
	flush(t, members[:]...)
	more := 0
	for _, l := range members {
		m, _ := admit(t, l, "k", 100)
		more += m
	}
	if n+more > 100+lateAtMost {
		t.Errorf("%d and then %d were admitted, of 100", n, more)
	}
}

// lateAtMost is how many requests may have waited for the store when it went away: they are
// counted by the member, and perhaps by the store too late.
const lateAtMost = 10

// Somebody sends requests from many addresses, to push others out of the tables. What a member keeps
// is bounded, all states in the store end by themselves, and a client over its limit stays refused.
func TestSprayedKeys(t *testing.T) {
	server := redistest.Start(t)
	limits := []fairshare.Limit{{Name: "page", Resource: fairshare.Requests, N: 480, Window: time.Hour}}
	a, b, _ := pair(t, server.URL(), limits, redislimit.Patient(redislimit.Options{}))
	used, _ := admit(t, a, "greedy", 600)
	if used < 480 || used > 510 {
		t.Fatalf("%d of 480 were admitted", used)
	}
	flush(t, a, b)
	const sprayed = 30_000 // the tables have room for some 4,000
	most := 0
	for i := range sprayed {
		if n, _ := admit(t, a, fmt.Sprint("spray ", i), 1); n != 1 && i < 1000 {
			t.Fatalf("request %d of a new client was refused", i)
		}
		if i%1000 == 0 {
			most = max(most, a.Status().Pending)
		}
	}
	if most > 16_000 {
		t.Errorf("%d states wait for being reported", most)
	}
	flush(t, a, b)
	for name, l := range map[string]*redislimit.Limiter{"the member that was sprayed": a, "the other": b} {
		if n, _ := admit(t, l, "greedy", 100); n > 2 {
			t.Errorf("%s admitted %d more of a client over its limit", name, n)
		}
	}
	endless := 0
	for _, line := range strings.Split(server.Do("INFO", "keyspace"), "\n") {
		var keys, expires int
		if _, rest, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(line, "db") {
			if _, err := fmt.Sscanf(rest, "keys=%d,expires=%d", &keys, &expires); err != nil {
				t.Fatal(line, err)
			}
			endless += keys - expires
		}
	}
	if endless > 5 { // those of the group itself
		t.Errorf("%d keys of the store never end", endless)
	}
}

// Slots move from one master of a cluster to another while members count.
func TestReshardingLosesNoCount(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		redistest.Program(t) // skips or fails
		t.Skip("redis-cli not found: install redis-tools")
	}
	c := redistest.StartCluster(t, 0)
	a, b, _ := pair(t, c.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	const keys = 60
	passed := make([]int, keys)
	round := func(times int) {
		for i := range keys {
			for _, l := range []*redislimit.Limiter{a, b} {
				n, _ := admit(t, l, fmt.Sprint("key ", i), times)
				passed[i] += n
			}
		}
	}
	round(5)
	before := c.Nodes[0].Do("DBSIZE")
	moved := make(chan error, 1)
	go func() {
		cmd := exec.Command(cli, "--cluster", "reshard", c.Nodes[0].Addr, "--cluster-slots", "2000", "--cluster-yes",
			"--cluster-from", c.Nodes[0].Do("CLUSTER", "MYID"), "--cluster-to", c.Nodes[1].Do("CLUSTER", "MYID"))
		cmd.Stdout = io.Discard
		moved <- cmd.Run()
	}()
	for done := false; !done; {
		select {
		case err := <-moved:
			if err != nil {
				t.Fatal("redis-cli --cluster reshard:", err)
			}
			done = true
		default:
			if passed[0] < 60 {
				round(1)
			}
		}
	}
	if after := c.Nodes[0].Do("DBSIZE"); before == after {
		t.Fatalf("no state has moved: %s before and after", before)
	}
	round(60)
	for i, n := range passed {
		if n < 95 || n > 105 {
			t.Errorf("key %d: %d of 100 were admitted", i, n)
		}
	}
	await(t, "back", func() bool { return !a.Status().Away && !b.Status().Away })
}
