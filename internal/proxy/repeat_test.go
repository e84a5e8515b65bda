package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/proxy"
	"fairshare/limittest"
)

// A lasting is the context of the requests of one connection.
type lasting struct {
	context.Context
	memory *any
}

func (c lasting) Memory() *any { return c.memory }

// heads starts an upstream that answers with the lines that it gets, in order.
func heads(t *testing.T) string {
	return upstreamOf(t, func(conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			var lines []string
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == "\r\n" {
					break
				}
				lines = append(lines, line)
			}
			slices.Sort(lines[1:])
			text := strings.Join(lines, "")
			if strings.Contains(text, "Content-Length: 2\r\n") {
				io.CopyN(io.Discard, r, 2)
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
}

// What the upstream gets of the requests of one connection is the same as on connections of their own, even if they
// differ in one thing only, after the same request came twice.
func TestRepeatedHeadersAreRewrittenAsOthers(t *testing.T) {
	config := proxy.Config{Hosts: []string{"a", "b"}, KeepUnderscores: true, Fields: 12, HeaderBytes: 3 << 10}
	var err error
	if config.Upstream, err = proxy.ParseUpstream(heads(t)); err != nil {
		t.Fatal(err)
	}
	p := proxy.New(config)
	defer p.Close()
	guard, err := fairshare.NewGuard(&fairshare.Policy{}, limittest.NewModel(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	addr, bot := "192.0.2.1", fairshare.Bot{}
	h := httpguard.New(guard, httpguard.Options{
		Client: func(*http.Request) httpguard.Client { return httpguard.Client{Addr: netip.MustParseAddr(addr)} },
		Bot:    func(netip.Addr, string) fairshare.Bot { return bot },
	}, p)
	usual := "Accept: */*\nCookie: a=b\nUser-Agent: Firefox\n"
	var memory any
	send := func(r string, ctx context.Context) string {
		head, body, _ := strings.Cut(r, "\n\n")
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader([]byte(
			strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body))))
		if err != nil {
			t.Fatal(err)
		}
		req.RemoteAddr = "192.0.2.1:4711"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req.WithContext(ctx))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	check := func(name, r string) {
		t.Helper()
		got, want := send(r, lasting{context.Background(), &memory}), send(r, context.Background())
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	request := func(line, host, fields string) string {
		return line + " HTTP/1.1\nHost: " + host + "\n" + fields + "\n"
	}
	first := request("GET /", "a", usual)
	for _, test := range []struct{ name, r string }{
		{"another target", request("GET /x?y", "a", usual)},
		{"a target that cannot be sent", request("GET /x#y", "a", usual)},
		{"another method", request("POST /", "a", usual)},
		{"a method that is not supported", request("TRACE /", "a", usual)},
		{"a body", request("POST /", "a", usual+"Content-Length: 2\n") + "hi"},
		{"another host", request("GET /", "b", usual)},
		{"a host that is none of the site", request("GET /", "c", usual)},
		{"a value of the same length", request("GET /", "a", strings.Replace(usual, "a=b", "a=c", 1))},
		{"one field less", request("GET /", "a", "Accept: */*\nCookie: a=b\n")},
		{"one field more", request("GET /", "a", usual+"X-A: b\n")},
		{"another field instead", request("GET /", "a", strings.Replace(usual, "Cookie", "Coekie", 1))},
		{"a second value", request("GET /", "a", usual+"Cookie: c=d\n")},
		{"a value that is empty", request("GET /", "a", strings.Replace(usual, "a=b", "", 1))},
		{"a field of the connection", request("GET /", "a", usual+"Connection: cookie\n")},
		{"forged fields", request("GET /", "a", usual+"X-Forwarded-For: 1\nFairshare-Client: 2\nX_Real_Ip: 3\n")},
		{"trailers", request("GET /", "a", usual+"Te: trailers\n")},
		{"too many fields", request("GET /", "a", strings.Repeat("X: y\n", 13))},
		{"too many bytes", request("GET /", "a", "X: "+strings.Repeat("y", 3<<10)+"\n")},
		{"more than is remembered", request("GET /", "a", "X: "+strings.Repeat("y", 2<<10)+"\n")},
	} {
		for range 3 {
			check("the same", first)
		}
		if !proxy.IsRepeated(memory) {
			t.Error("the header is not remembered")
		}
		for i := range 4 {
			check(fmt.Sprint(test.name, ", ", i), test.r)
		}
	}
	for range 3 {
		for range 3 {
			check("before a change", first)
		}
		addr = "192.0.2.2"
		check("another client", first)
		bot = fairshare.Bot{Name: "some bot", State: fairshare.Verified}
		check("a bot", first)
		bot.State = fairshare.Forged
		check("a forged bot", first)
		config.CostHeader = "X-Cost"
		p.Replace(config)
		check("another config", first)
		config.CostHeader, addr, bot = "", "192.0.2.1", fairshare.Bot{}
		p.Replace(config)
	}
}

// A connection remembers no long text: of none of its requests, and none that is a part of a longer one.
func TestRepeatedHeadersTakeLittleMemory(t *testing.T) {
	long := strings.Repeat("y", 8<<10)
	for _, test := range []struct{ name, line, fields string }{
		{"a long method", strings.Repeat("M", 8<<10) + " /", "A: b\n"},
		{"a long value", "GET /", "A: b\nCookie: " + long + "\nD: e\n"},
		{"a long name", "GET /", "A: b\n" + long + ": c\nD: e\n"},
		{"many fields", "GET /", manyFields(50)},
		{"two values", "GET /", "A: b\nA: " + long + "\n"},
	} {
		upstream, err := proxy.ParseUpstream(heads(t))
		if err != nil {
			t.Fatal(err)
		}
		p := proxy.New(proxy.Config{Upstream: upstream})
		defer p.Close()
		var memory any
		for range 4 {
			for _, r := range []string{"GET / HTTP/1.1\nHost: a\nA: b\nC: d\n\n",
				test.line + " HTTP/1.1\nHost: a\n" + test.fields + "\n"} {
				for range 3 {
					req, err := http.ReadRequest(bufio.NewReaderSize(strings.NewReader(
						strings.ReplaceAll(r, "\n", "\r\n")), 64<<10))
					if err != nil {
						t.Fatal(err)
					}
					req.RemoteAddr = "192.0.2.1:4711"
					p.ServeHTTP(httptest.NewRecorder(), req.WithContext(lasting{context.Background(), &memory}))
				}
			}
			if proxy.IsRepeated(memory) {
				t.Errorf("%s: the header is remembered", test.name)
			}
			if n := proxy.RepeatedBytes(memory); n > 0 {
				t.Errorf("%s: %d bytes are remembered", test.name, n)
			}
		}
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: y\n", i)
	}
	return b.String()
}
