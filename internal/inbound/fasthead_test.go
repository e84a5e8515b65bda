package inbound

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// readOne reads a request that has come completely.
func readOne(t *testing.T, c *fastConn, h *fastHead, text string) *exchange {
	t.Helper()
	c.takeBuffer()
	c.from, c.to = 0, copy(c.buffer[:], rawRequest(text))
	if found, _ := h.scan(c.buffer[:c.to]); !found {
		t.Fatalf("%.50q is not simple", text)
	}
	return c.request(h)
}

// A connection remembers the fields of its last request only if there are few idle connections, and no long names.
// What the requests are does not depend on it.
func TestWhatIdleConnectionsRemember(t *testing.T) {
	long := strings.Repeat("x", longestName+1)
	c := &fastConn{lane: &Lane{}}
	var h fastHead
	for _, open := range []int64{1, mostTexts + 1} {
		c.lane.open.Store(open)
		for _, agent := range []string{"a", "a", long, long, "b", strings.Repeat(long, 10)} {
			for _, host := range []string{"a.example", long} {
				text := fmt.Sprintf("GET / HTTP/1.1\nHost: %s\nX: y\nUser-Agent: %s\n\n", host, agent)
				for range 2 {
					r := readOne(t, c, &h, text).r
					if r.Host != host || r.Header.Get("User-Agent") != agent || r.Header.Get("X") != "y" {
						t.Fatalf("%d connections: the request is %.50q %v", open, r.Host, r.Header)
					}
				}
				if isKept := c.host == host; isKept != (host != long) {
					t.Errorf("the host %.20s is remembered: %v", host, isKept)
				}
				if isKept := c.agent == agent; isKept != (len(agent) == 1) {
					t.Errorf("the user agent %.20s is remembered: %v", agent, isKept)
				}
				c.forgetText(&h)
				if isKept := h.text != ""; isKept != (open == 1 && len(text) < longestText) {
					t.Errorf("%d connections: %d bytes are remembered: %v", open, len(text), isKept)
				}
			}
		}
	}
}

// The body of an earlier request neither stays in memory nor ends that of a later one.
func TestReuseForgetsTheBody(t *testing.T) {
	c := &fastConn{lane: &Lane{}}
	x := readOne(t, c, new(fastHead), "POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi")
	x.r.Body.Close()
	x.r.Body = http.NoBody // a handler may do so
	x.reuse()
	if x.body.rest != nil || x.body.closed {
		t.Errorf("the body is still %q, closed: %v", x.body.rest, x.body.closed)
	}
}
