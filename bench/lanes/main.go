// Command lanes asks two servers of fairshare for all requests of access logs: one answers by
// its own loop, the other one with `fast_lane: false`. It compares what the site got and what
// the client got, byte for byte except for times and references.
//
//	go run ./lanes [-enforce] LOG…
//
// Without -enforce both servers only observe, so that all requests reach the site. With it, some
// answers differ: those at the border of a limit, since one server is asked after the other, and
// those to crawlers whose names the DNS confirms at different times.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"fairshare/bench/internal/stand"
	"fairshare/internal/accesslog"
)

const (
	shown  = 5 // differences that are printed
	within = 20 * time.Second
)

// changing is what two equal answers differ in: fields with a time, and references.
var changing = regexp.MustCompile(`(?m)^(?:Date|Retry-After|Ratelimit|Fairshare-Reference): .*$|` +
	`Reference: \w+|Please wait [^.]*\.`)

func main() {
	log.SetFlags(0)
	enforce := flag.Bool("enforce", false, "let both servers refuse requests")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Args(), *enforce); err != nil {
		log.Fatal(err)
	}
}

func run(paths []string, enforce bool) error {
	dir, err := os.MkdirTemp("", "lanes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := stand.Build(context.Background(), dir)
	if err != nil {
		return err
	}
	site := httptest.NewServer(http.HandlerFunc(echo))
	defer site.Close()
	var servers [2]server
	for i, lane := range []bool{true, false} {
		name := fmt.Sprintf("lane-%v", lane)
		policy, err := stand.Write(dir, name+".yaml", fmt.Sprintf("fast_lane: %v\ndry_run: %v\nshare: none\n"+
			"clients: {trusted_proxies: [127.0.0.1]}\nrules:\n  - {use: default}\n", lane, !enforce))
		if err != nil {
			return err
		}
		p, err := stand.Fairshare(dir, name, []string{program, "serve", "-c", policy, "--listen", "127.0.0.1:0",
			"--upstream", site.URL, "--state", filepath.Join(dir, name), "--admin", "off"})
		if err != nil {
			return err
		}
		defer p.Stop()
		servers[i].addr = p.Addr
	}
	for _, path := range paths {
		if err := compare(path, &servers); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// echo answers with the request. The state of bots is omitted: names are looked up in the DNS, and
// one server may know the result before the other one.
func echo(w http.ResponseWriter, r *http.Request) {
	r.Header.Del("Fairshare-Bot-State")
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %d %q\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, body)
	r.Header.Write(w)
}

// compare sends all requests of a log to both servers.
func compare(path string, servers *[2]server) error {
	file, err := accesslog.Open(path, accesslog.Options{})
	if err != nil {
		return err
	}
	defer file.Close()
	requests, differ := 0, 0
	for {
		batch, err := file.Next()
		if errors.Is(err, io.EOF) {
			fmt.Printf("%s: %d requests, %d answers differ\n", filepath.Base(path), requests, differ)
			return nil
		}
		if err != nil {
			return err
		}
		for i := range batch.Entries {
			e := &batch.Entries[i]
			if e.Method == "" || e.Method == http.MethodConnect { // CONNECT has no answer that ends
				continue
			}
			raw := request(e)
			var answers [2]string
			for i := range servers {
				if answers[i], err = servers[i].answer(raw, e.Method); err != nil {
					return fmt.Errorf("line %d: %w", e.Line, err)
				}
			}
			requests++
			if answers[0] != answers[1] {
				if differ++; differ <= shown {
					fmt.Printf("line %d: %q\n%s\nwithout the lane:\n%s\n\n", e.Line, raw, answers[0], answers[1])
				}
			}
		}
		batch.Release()
	}
}

// request returns the bytes that a client would send. Texts of the log stay as they are, even if
// they are not valid.
func request(e *accesslog.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: example.org\r\n", e.Method, e.Target)
	if e.Client.IsValid() {
		fmt.Fprintf(&b, "X-Forwarded-For: %s\r\n", e.Client)
	}
	for _, f := range [][2]string{{"Referer", e.Referer}, {"User-Agent", e.UserAgent}, {"Cookie", e.Cookie}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
		}
	}
	if slices.Contains([]string{"POST", "PUT", "PATCH"}, e.Method) {
		b.WriteString("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n\r\na=b&c=d")
	} else {
		b.WriteString("\r\n")
	}
	return b.String()
}

// A server is asked on one connection after the other.
type server struct {
	addr string
	conn net.Conn // nil: the last one was closed
	r    *bufio.Reader
}

// answer returns the answer to a request, without what changes. A connection that the server has
// closed meanwhile is replaced once.
func (s *server) answer(raw, method string) (string, error) {
	var err error
	for range 2 {
		if s.conn == nil {
			if s.conn, err = net.Dial("tcp", s.addr); err != nil {
				return "", err
			}
			s.r = bufio.NewReader(s.conn)
		}
		s.conn.SetDeadline(time.Now().Add(within))
		if _, err = io.WriteString(s.conn, raw); err == nil {
			var text string
			if text, err = s.read(method); err == nil {
				return text, nil
			}
		}
		s.conn.Close()
		s.conn = nil
	}
	return "no answer: " + err.Error(), nil
}

func (s *server) read(method string) (string, error) {
	a, err := http.ReadResponse(s.r, &http.Request{Method: method})
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintln(&b, a.Proto, a.Status, a.ContentLength, a.TransferEncoding, a.Close)
	a.Header.Write(&b)
	b.WriteString("\n")
	b.Write(body)
	if a.Close {
		s.conn.Close()
		s.conn = nil
	}
	text := strings.ReplaceAll(b.String(), "\r\n", "\n")
	return changing.ReplaceAllString(text, ""), nil
}
